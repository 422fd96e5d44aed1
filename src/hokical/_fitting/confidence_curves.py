"""Curves of stated confidences, fitted on whether the answers were right.

The stated confidence, a line and a curve are averaged by held-out log loss. With groups,
corrections by group are kept where they help on held-out examples. Several signals per
answer are combined to one confidence first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.checks import effective_size, sum_by
from hokical._core.groups import GroupCoding
from hokical._core.runtime import FitDataWarning, one_blas_thread, warn_user
from hokical._core.special import expit
from hokical._fitting import partial_pooling as pooling
from hokical._fitting.examples import FEWEST_EXAMPLES, mean_and_error
from hokical._fitting.partial_pooling import BinaryTerms, PooledFit, fit_pooled
from hokical._fitting.signal_moments import fit_moments
from hokical.rules import confidence as confidence_rules
from hokical.rules.confidence import N_OWN, ConfidenceCurve, SignalCombination

#: Hinges of the curve.
_HINGES = 10
#: The share of the examples from which a value has a term of its own.
_ATOM_SHARE = 0.03
#: The expected slope of stated log-odds, which are mostly overconfident. This and the
#: other constants of the prior were chosen on answers of language models and on
#: calibrated confidences: `paper/studies/answers.py`.
_SLOPE = 0.7
#: The expected slope of log-odds of a combination that was fitted.
_FITTED_SLOPE = 1.0
#: Precisions of the slope and of the coefficient of log p (1 - p).
_RIDGES = np.array([3.0, 0.3])
#: The weight of a right and of a wrong example at either end of the confidences: k of n
#: right at a single value are (k + 1) / (n + 2), and no steep line is surer than that.
_AT_END = 1.0
#: The weight of both for the term of a value.
_AT_ATOM = 1.0
#: The weight of the line and of the curve in the average, before the fit.
_EITHER = 0.5
#: Groups are used where they gain this many standard errors on held-out examples.
_CLEAR = 0.3
#: Before the fit, two coefficients of groups are known, with this sum of squares.
_ALIKE = (2.0, 0.05)
#: Before the fit, two bends of the curve are known, with this sum of squares.
_BENDS = (2.0, 0.3)
#: Confidences are cut this close to 0 and 1, or to the next two where a line has lower
#: log loss for it.
_CLOSEST = 1e-2
_CLOSER = 1e-3
#: The third cut, divided by the number of examples.
_BY_SIZE = 0.1
#: The smallest cut.
_LEAST = 1e-6
#: How much lower the log loss (nats) must be for each closer cut.
_NATS = 1.0
#: Where signals and confidences are cut that are not fitted.
_KEPT = 1e-3
#: The largest number of points at which a curve is made non-decreasing.
_GRID = 200
#: Halvings of the interval that contains the share of the curve.
_HALVINGS = 14
#: A gain is lowered by this many standard errors before it is weighed against no fit.
_CAUTION = 0.1


class _Answers(NamedTuple):
    """Confidences (n,), whether the answers were right, and their weights, which
    count examples.
    """

    confidence: FloatArray
    right: BoolArray
    counts: FloatArray


@dataclass(frozen=True, eq=False)
class _FittedCurve:
    """A curve, the fit of its features, and held-out log losses (n,) of the candidates.

    The losses of the curve come last.
    """

    curve: ConfidenceCurve
    fit: PooledFit
    losses: dict[str, FloatArray]
    description: str

    @property
    def name(self) -> str:
        """The name of the candidate that the curve is."""
        return list(self.losses)[-1]


@one_blas_thread()
def fit_confidence(
    stated: FloatArray,
    right: BoolArray,
    weights: FloatArray,
    groups: tuple[GroupCoding, IntArray] | None,
    *,
    monotone: bool,
) -> tuple[ConfidenceCurve, dict[str, Any]]:
    """The average of the confidence, a line and a curve, with corrections by group; and
    a report.

    `stated` are confidences (n,) or signals (n, k), which are combined first. The three
    are functions of log-odds that are linear in their coefficients, which are averaged
    by held-out log loss. `groups` are their coding and codes (n, columns).
    """
    share = weights / weights.sum()
    n_examples = effective_size(share)
    if n_examples < FEWEST_EXAMPLES * (1.0 - 1e-9):
        return _keep_stated(stated)
    _warn_of_one_outcome(right)
    counts = share * n_examples
    signals = _combine(stated, right, counts) if stated.ndim == 2 else None
    confidence = stated if signals is None else signals.combine(stated)
    answers = _Answers(confidence, right, counts)
    slope = _SLOPE if signals is None else _FITTED_SLOPE
    fitted, held_out = _fit_average(answers, slope)
    group_notes = ""
    if groups is not None:
        effects = _learn_groups(fitted.curve, answers, groups, held_out)
        group_notes = f" Groups: {'; '.join(effects.notes)}."
        fitted = _with_groups(fitted, effects)
    if monotone:
        codes = None if groups is None else groups[1]
        fitted = _make_monotone(fitted, answers, codes, weights)
    description = fitted.description
    if signals is not None:
        description = f"{_describe_signals(stated)}; {description}"
    gains = fitted.losses["as stated"] - fitted.losses[fitted.name]
    error = mean_and_error(gains, share)[1]
    report = fitted.fit.report(description, fitted.losses, share, error)
    report["reason"] += group_notes
    return replace(fitted.curve, signals=signals), report


def _warn_of_one_outcome(right: BoolArray) -> None:
    """Warn if all examples are right, or all are wrong."""
    if right.all() or not right.any():
        outcome = "right" if right.all() else "wrong"
        warn_user(
            f"all {right.size} examples are {outcome}. Check `right`, and use examples "
            "of both outcomes.",
            FitDataWarning,
            cause=f"all examples are {outcome}",
        )


def _learn_groups(
    curve: ConfidenceCurve,
    answers: _Answers,
    groups: tuple[GroupCoding, IntArray],
    held_out: FloatArray,
) -> pooling.GroupEffects:
    """The corrections by group of a curve whose `held_out` log-odds are (n,)."""
    coding, codes = groups
    no_codes = curve.codes(None, answers.right.size)
    fitted = curve.curve_log_odds(answers.confidence, no_codes)
    without = pooling.GroupEffects(
        coding,
        pooling.binary_losses(held_out, answers.right),
        shift=held_out - fitted,
    )
    shared_features = curve.features(answers.confidence)[:, :N_OWN]
    terms = BinaryTerms(shared_features, answers.right, fitted, answers.counts)
    return pooling.learn_groups(
        terms,
        codes,
        without,
        level=1.0 - NormalDist().cdf(_CLEAR),
        jointly=True,
        common_blocks=[0] * N_OWN,
        alike=_ALIKE,
    )


def _with_groups(fitted: _FittedCurve, effects: pooling.GroupEffects) -> _FittedCurve:
    """The curve with tables of groups, if they help.

    Columns that did not help have a table of zeros.
    """
    fit = effects.fit
    if fit is None:
        return fitted
    shared, bends = np.split(fitted.curve.coef, [N_OWN])
    zeros = {
        (k,): np.zeros((size, N_OWN)) for k, size in enumerate(effects.coding.sizes)
    }
    pairs = [(term[0], term[1]) for term in effects.terms if len(term) == 2]
    curve = replace(
        fitted.curve,
        coef=np.append(shared + fit.common, bends),
        coding=effects.coding,
        tables=tuple((zeros | effects.tables()).values()),
        pairs=tuple(pairs),
    )
    return _FittedCurve(
        curve,
        fit,
        fitted.losses | {"groups": effects.losses},
        f"{fitted.description}, with corrections by group",
    )


def _make_monotone(
    fitted: _FittedCurve,
    answers: _Answers,
    codes: IntArray | None,
    weights: FloatArray,
) -> _FittedCurve:
    """The same with a non-decreasing curve, and losses that allow for the constraint.

    `codes` (n, columns) are of groups, if any are given.
    """
    curve = _with_grid(fitted.curve, answers.confidence, weights)
    if codes is None:
        codes = curve.codes(None, answers.right.size)
    # The constraint costs this on the examples themselves.
    costs = _curve_losses(curve, answers, codes)
    losses = (
        fitted.losses[fitted.name] + costs - _curve_losses(fitted.curve, answers, codes)
    )
    return replace(fitted, curve=curve, losses=fitted.losses | {fitted.name: losses})


def _curve_losses(
    curve: ConfidenceCurve, answers: _Answers, codes: IntArray
) -> FloatArray:
    """Log losses (n,) of a curve on the examples of its fit."""
    proba = curve.proba(answers.confidence, codes)
    return np.asarray(-np.log(np.where(answers.right, proba, 1.0 - proba)))


def _describe_signals(signals: FloatArray) -> str:
    """What was combined, and how often each signal is missing, if any is."""
    missing = np.isnan(signals).sum(axis=0)
    text = f"{missing.size} signals were combined to one confidence"
    if not missing.any():
        return text
    counts = ", ".join(f"{count:,}" for count in missing)
    return f"{text}, missing in {counts} of {len(signals):,} answers"


def _keep_stated(stated: FloatArray) -> tuple[ConfidenceCurve, dict[str, Any]]:
    """The stated confidence, or the mean of signals, cut where no count allows more."""
    why = f"{len(stated)} examples are too few (at least {FEWEST_EXAMPLES} are needed)"
    warn_user(
        f"The stated confidence is kept: {why}. Use more examples.", FitDataWarning
    )
    none = np.zeros(0)
    zeros = np.zeros(stated.shape[1:])
    signals = SignalCombination(0.0, zeros, zeros, _KEPT) if stated.ndim == 2 else None
    curve = ConfidenceCurve(
        np.zeros(N_OWN), np.zeros(2), none, none, _KEPT, signals=signals
    )
    nothing = {"held_out_log_loss": {}, "converged": True, "n_iter": 0}
    return curve, {"reason": f"the stated confidence was kept: {why}.", **nothing}


def uncalibrated_share(
    uncalibrated: FloatArray,
    fitted: FloatArray,
    hits: BoolArray,
    weights: FloatArray,
    row: IntArray,
) -> float:
    """The share 1 / (1 + exp(g - c s)) of the log-odds before the fit in an average
    with it.

    `uncalibrated` and the held-out `fitted` are log-odds (m,), `row` (m,) says which go
    together. The gain g is summed over the rows, as is its standard error s: the larger
    of the observed one and of the one that `uncalibrated` would have if they were
    calibrated.
    """
    before = pooling.binary_losses(uncalibrated, hits)
    gains = before - pooling.binary_losses(fitted, hits)
    total = np.bincount(row, weights * gains)
    count = np.bincount(row, weights) > 0.0
    observed = float(np.sum((total - total.sum() / count.sum())[count] ** 2))
    proba: FloatArray = expit(uncalibrated, np)
    change = fitted - uncalibrated
    expected = float(np.sum(weights * proba * (1.0 - proba) * change**2))
    error = float(np.sqrt(max(observed, expected)))
    return float(expit(_CAUTION * error - total.sum(), np))


def _fit_average(answers: _Answers, slope: float) -> tuple[_FittedCurve, FloatArray]:
    """The average of the stated confidence, a line and a curve; and its held-out
    log-odds (n,).
    """
    confidence, right, counts = answers
    blank, line, line_scores = _fit_line(answers, slope)
    odds = blank.log_odds(confidence)
    # Hinges and atoms share a precision.
    bends = [-1] * N_OWN + [0] * (blank.coef.size - N_OWN)
    fit, curve_scores = _fit_curve(
        blank, answers, slope, common_blocks=bends, alike=_BENDS
    )
    of_curve = _find_curve_share(answers, line_scores, curve_scores)
    averaged = line_scores + of_curve * (curve_scores - line_scores)
    stated = uncalibrated_share(odds, averaged, right, counts, np.arange(odds.size))
    coef = of_curve * fit.common
    coef[:2] += (1.0 - of_curve) * line
    # The coefficients are added to a slope of 1.
    coef[0] += (slope - 1.0) * blank.centre[0]
    coef[1] += slope - 1.0
    held_out = averaged + stated * (odds - averaged)
    candidates = {
        "as stated": odds,
        "line": line_scores,
        "curve": curve_scores,
        "average": held_out,
    }
    losses = {
        name: pooling.binary_losses(log_odds, right)
        for name, log_odds in candidates.items()
    }
    description = (
        f"log-odds were averaged: {stated:.0%} as stated, "
        f"{(1.0 - stated) * (1.0 - of_curve):.0%} a line, "
        f"{(1.0 - stated) * of_curve:.0%} a curve"
    )
    curve = replace(blank, coef=(1.0 - stated) * coef)
    return _FittedCurve(curve, fit, losses, description), held_out


def _fit_line(
    answers: _Answers, slope: float
) -> tuple[ConfidenceCurve, FloatArray, FloatArray]:
    """The shape of a curve with the best cut, and of a line there the coefficients (2,)
    and held-out log-odds (n,).
    """
    trials = []
    for price, closest in _cuts(answers.counts):
        blank = _shape_curve(answers, closest)
        fit, scores = _fit_curve(blank, answers, slope, width=2)
        losses = pooling.binary_losses(scores, answers.right)
        trials.append((float(answers.counts @ losses) + price, blank, fit, scores))
    _, blank, fit, scores = min(trials, key=lambda trial: trial[0])
    return blank, fit.common, scores


def _find_curve_share(answers: _Answers, line: FloatArray, curve: FloatArray) -> float:
    """The share of the curve in the average of least log loss with the line.

    Both are held-out log-odds (n,). The log loss is convex in the share, which the prior
    keeps between 0 and 1.
    """
    low = 0.0
    high = 1.0
    gap = curve - line
    for _ in range(_HALVINGS):
        share = 0.5 * (low + high)
        residuals = expit(line + share * gap, np) - answers.right
        slope = (answers.counts * residuals) @ gap
        if slope > _EITHER / share - _EITHER / (1.0 - share):
            high = share
        else:
            low = share
    return 0.5 * (low + high)


def _fit_curve(
    blank: ConfidenceCurve,
    answers: _Answers,
    slope: float,
    width: int = 0,
    **options: Any,
) -> tuple[PooledFit, FloatArray]:
    """A fit of the curve's features, or of its first, and held-out log-odds (n,)."""
    width, n_atoms = (width, 0) if width else (blank.coef.size, blank.atoms.size)
    extremes = np.unique([answers.confidence.min(), answers.confidence.max()])
    (features, offset), at_extremes = (
        (blank.features(values)[:, :width], slope * blank.log_odds(values))
        for values in (answers.confidence, extremes)
    )
    terms = BinaryTerms(features, answers.right, offset, answers.counts)
    fit = fit_pooled(with_prior(terms, *at_extremes, _AT_END, n_atoms), **options)
    return fit, fit.scores_left_out()[: offset.size]


def with_prior(
    terms: BinaryTerms,
    extremes: FloatArray,
    offset: FloatArray,
    extreme_weight: float,
    n_atoms: int = 0,
) -> BinaryTerms:
    """What is known before the fit, as examples: at the ends, of the slope and the
    tilt, which are the second and the third feature, and of the last features, those of
    atoms.
    """
    eye = np.eye(terms.n_features)
    # Two examples bend by 1/2.
    slope_rows = eye[1:3] * np.sqrt(2.0 * _RIDGES[: len(eye) - 1])[:, None]
    return terms.with_prior(
        np.vstack([extremes, slope_rows, eye[len(eye) - n_atoms :]]),
        np.append(offset, np.zeros(len(slope_rows) + n_atoms)),
        np.repeat(
            [extreme_weight, 1.0, _AT_ATOM], [len(extremes), len(slope_rows), n_atoms]
        ),
    )


def _combine(
    signals: FloatArray, right: BoolArray, counts: FloatArray
) -> SignalCombination:
    """How the signals (n, k) make the confidence under which the answers are most
    likely.

    The coefficients are shrunk towards the mean of the log-odds, as far as the examples
    allow. Signals that are NaN are completed, and have a coefficient for their absence.
    """
    n_signals = signals.shape[1]
    lacking = np.flatnonzero(np.isnan(signals).any(axis=0))
    extremes = np.unique(
        [np.nanmin(signals, axis=0), np.nanmax(signals, axis=0)], axis=0
    )
    blocks = [-1] + [0] * (2 * n_signals) + [1] * lacking.size
    trials = []
    for price, closest in _cuts(counts):
        zeros = np.zeros(n_signals)
        moments = fit_moments(signals, counts, closest)
        blank = SignalCombination(0.0, zeros, zeros, closest, moments)
        features, odds = _read_signals(signals, blank, lacking)
        terms = BinaryTerms(features, right, odds, counts)
        extreme_rows = _read_signals(extremes, blank, lacking)
        prior = terms.with_prior(*extreme_rows, [_AT_END] * len(extremes))
        fit = fit_pooled(prior, common_blocks=blocks)
        held_out = fit.scores_left_out()[: odds.size]
        loss = float(counts @ terms.losses(held_out)) + price
        trials.append((loss, closest, moments, odds, held_out, fit.common))
    _, closest, moments, odds, held_out, coef = min(trials, key=lambda trial: trial[0])
    share = uncalibrated_share(odds, held_out, right, counts, np.arange(odds.size))
    coef = (1.0 - share) * coef
    rise, fall, absent = np.split(coef[1:], [n_signals, 2 * n_signals])
    absence = np.zeros(n_signals)
    absence[lacking] = absent
    moments = replace(moments, absence=absence)
    return SignalCombination(float(coef[0]), rise, fall, closest, moments)


def _read_signals(
    signals: FloatArray, blank: SignalCombination, lacking: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Features (n, 1 + 2 k + lacking) of signals (n, k), and their mean log-odds (n,).

    The last features say whether the signals that some examples lack are missing.
    """
    log_p, log_rest = confidence_rules.cut_logs(blank.complete(signals), blank.closest)
    missing = np.isnan(signals[:, lacking]).astype(np.float64)
    features = np.column_stack([np.ones(len(signals)), log_p, log_rest, missing])
    return features, np.mean(log_p - log_rest, axis=1)


def _cuts(counts: FloatArray) -> list[tuple[float, float]]:
    """How close to 0 and 1 confidences may be cut, after what log loss has to fall by
    for it.

    The coarsest is 1 / (n + 2): n of n right are (n + 1) / (n + 2).
    """
    total = float(counts.sum())
    by_size = min(max(_BY_SIZE / total, _LEAST), _CLOSER)
    cuts = {max(_CLOSEST, 1.0 / (total + 2.0)), _CLOSER, by_size}
    return [(_NATS * rank, cut) for rank, cut in enumerate(sorted(cuts, reverse=True))]


def _shape_curve(answers: _Answers, closest: float) -> ConfidenceCurve:
    """Where a curve may bend, and the values that many examples have."""
    share = answers.counts / answers.counts.sum()
    log_p, log_rest = confidence_rules.cut_logs(answers.confidence, closest)
    odds = log_p - log_rest
    centre = np.array([share @ odds, share @ (log_p + log_rest)])
    order = np.argsort(odds, kind="stable")
    wanted = np.arange(1, _HINGES + 1) / (_HINGES + 1)
    quantile_rows = np.minimum(
        np.searchsorted(np.cumsum(share[order]), wanted), odds.size - 1
    )
    knots = np.unique(odds[order][quantile_rows])
    knots = knots[(knots > odds.min()) & (knots < odds.max())]
    keys = confidence_rules.confidence_keys(answers.confidence)
    values, value_index = np.unique(keys, return_inverse=True)
    atoms = values[np.bincount(value_index, share) >= _ATOM_SHARE]
    return ConfidenceCurve(
        np.zeros(N_OWN + knots.size + atoms.size), centre, knots, atoms, closest
    )


def _with_grid(
    curve: ConfidenceCurve, stated: FloatArray, weights: FloatArray
) -> ConfidenceCurve:
    """The same, non-decreasing: at values of the fit, spread evenly among them."""
    values, value_index = np.unique(
        confidence_rules.confidence_keys(stated), return_inverse=True
    )
    counts = sum_by(value_index, weights, values.size)
    step = np.cumsum(counts) * (_GRID - 1) // counts.sum()
    first = np.append(True, np.diff(step) > 0) | np.isin(values, curve.atoms)
    first[-1] = True
    interval = np.cumsum(first) - 1
    return replace(
        curve,
        grid=values[first],
        counts=sum_by(interval, counts, int(interval[-1]) + 1),
    )
