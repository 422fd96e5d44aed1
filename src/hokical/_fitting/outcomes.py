"""Fits of two outcomes: of stated confidences, of labels that do not exclude each
other, of two classes; and isotonic regression.

Curves of confidence, with or without groups, keep what helps on held-out examples;
curves of labels are partially pooled, with label = group. Two classes have logistic
regression and Venn-Abers.

Isotonic regression of "is it this class?" on log-probabilities is SciPy's, on the host.
Log-probabilities are compared as float32 keys, so that rows that differ only by
rounding count as the ties they are.

Where all targets are 0 or all are 1, so is the regression; but of m entries that came
out alike, the next could be different, with a probability of 1 / (m + 2) by the rule of
succession. The lowest values are kept that far from 0 and the highest from 1 (or at
their neighbour's, if that is nearer), and nothing else is changed. Functions of single
classes share one such example: of n, each keeps 1 / (n + 2) / classes from 0, so that
classes without a hit stay equal to each other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY, Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import effective_size, sum_by
from hokical._core.groups import GroupCoding
from hokical._core.logits import Logits, per_row
from hokical._core.runtime import FitDataWarning, one_blas_thread, warn_user
from hokical._core.special import expit
from hokical._fitting import partial_pooling as pooling
from hokical._fitting.examples import FEWEST_EXAMPLES, Examples, mean_and_error
from hokical._fitting.partial_pooling import BinaryTerms, PooledFit, fit_pooled
from hokical._fitting.searches import MAX_ITER, Solution, minimize_dense
from hokical._fitting.signal_moments import fit_moments
from hokical.guarantees.control import can_be_counts
from hokical.rules import confidence as confidence_rules
from hokical.rules.base import log_norms
from hokical.rules.binary_isotonic import LARGEST_KEY, as_key, binary_log_odds
from hokical.rules.confidence import (
    FARTHEST_SCORE,
    N_OWN,
    ConfidenceCurve,
    SignalCombination,
)

#: Hinges of the curve, and the share of the examples from which a value has a term of
#: its own.
_HINGES = 10
_ATOM_SHARE = 0.03
#: The slope of log-odds that is expected of stated confidences, which are mostly
#: overconfident, and of a combination that was fitted; ...
_SLOPE = 0.7
_FITTED_SLOPE = 1.0
#: ... precisions of that slope and of the coefficient of log p (1 - p); the weight of a
#: right and of a wrong example at either end of the confidences, so that k of n right
#: at a single value are (k + 1) / (n + 2), and none is surer than that by a line that
#: is steep; their weight for the term of a value; and that of the line and of the curve
#: in the average. Chosen on answers of language models and on calibrated confidences:
#: `paper/studies/answers.py`.
_RIDGES = np.array([3.0, 0.3])
_AT_END = 1.0
_AT_ATOM = 1.0
_EITHER = 0.5
#: Groups are used where they gain so many standard errors on held-out examples. Before
#: the fit, two coefficients of groups and two bends of the curve are known, with these
#: sums of squares.
_CLEAR = 0.3
_ALIKE = (2.0, 0.05)
_BENDS = (2.0, 0.3)
#: Confidences are cut this close to 0 and 1; or, where a line has less log loss for it
#: by so many nats, to the second; or to the third over the number of examples, but not
#: beyond the fourth.
_CLOSEST = 1e-2
_CLOSER = 1e-3
_BY_SIZE = 0.1
_LEAST = 1e-6
_NATS = 1.0
#: Signals are cut, and confidences that are kept as they are.
_KEPT = 1e-3
#: Most points at which a curve is made non-decreasing.
_GRID = 200
#: Halvings of the interval that a share lies in, and how many standard errors a gain is
#: lowered by before it is weighed against no fit at all.
_HALVINGS = 14
_CAUTION = 0.1


class _Answers(NamedTuple):
    """Confidences (n,), whether the answers were right, and their weights, which
    count examples.
    """

    confidence: FloatArray
    right: BoolArray
    counts: FloatArray


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

    `stated` are confidences (n,) or signals (n, k), which are combined first. All three
    are functions of log-odds that are linear in their coefficients, which are averaged
    by held-out log loss. `groups` are their coding and codes (n, columns).
    """
    share = weights / weights.sum()
    n_examples = effective_size(share)
    if n_examples < FEWEST_EXAMPLES * (1.0 - 1e-9):
        return _keep_stated(stated)
    if right.all() or not right.any():
        message = f"all {right.size} examples are {'right' if right.all() else 'wrong'}"
        warn_user(
            f"{message}. Check `right`, and use examples of both outcomes.",
            FitDataWarning,
        )
    counts = share * n_examples
    signals = _combine(stated, right, counts) if stated.ndim == 2 else None
    confidence = stated if signals is None else signals.combine(stated)
    answers = _Answers(confidence, right, counts)
    slope = _SLOPE if signals is None else _FITTED_SLOPE
    curve, fit, candidates, description = _fit_average(answers, slope)
    losses = {
        name: pooling.binary_losses(log_odds, right)
        for name, log_odds in candidates.items()
    }
    curve = replace(curve, signals=signals)
    group_notes = ""
    final = losses["average"]
    if groups is not None:
        effects = _learn_groups(curve, answers, groups, candidates["average"])
        group_notes = f" Groups: {'; '.join(effects.notes)}."
        if effects.fit is not None:
            losses["groups"] = final = effects.losses
            fit = effects.fit
            description = f"{description}, with corrections by group"
            curve = _with_groups(curve, effects, fit.common)
    if monotone:
        free = curve
        curve = _with_grid(curve, confidence, weights)
        codes = curve.codes(None, right.size) if groups is None else groups[1]
        # The constraint costs this on the examples themselves.
        bound_losses = _curve_losses(curve, answers, codes)
        final = final + bound_losses - _curve_losses(free, answers, codes)
        losses["average" if "groups" not in losses else "groups"] = final
    if signals is not None:
        description = f"{_describe_signals(stated)}; {description}"
    error = mean_and_error(losses["as stated"] - final, share)[1]
    report = fit.report(description, losses, share, error)
    return curve, report | {"reason": report["reason"] + group_notes}


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


def _with_groups(
    curve: ConfidenceCurve, effects: pooling.GroupEffects, common: FloatArray
) -> ConfidenceCurve:
    """The curve with tables of groups, and `common` added to its first coefficients.

    Columns that did not help have a table of zeros.
    """
    shared, bends = np.split(curve.coef, [N_OWN])
    zeros = {
        (k,): np.zeros((size, N_OWN)) for k, size in enumerate(effects.coding.sizes)
    }
    pairs = [(term[0], term[1]) for term in effects.terms if len(term) == 2]
    return replace(
        curve,
        coef=np.append(shared + common, bends),
        coding=effects.coding,
        tables=tuple((zeros | effects.tables()).values()),
        pairs=tuple(pairs),
    )


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


def _fit_average(
    answers: _Answers, slope: float
) -> tuple[ConfidenceCurve, PooledFit, dict[str, FloatArray], str]:
    """The averaged curve, the fit of the flexible one, held-out log-odds (n,), and
    words.
    """
    (confidence, right, counts), trials = answers, []
    for price, closest in _cuts(counts):
        blank = _shape_curve(answers, closest)
        fit, scores = _fit_curve(blank, answers, slope, width=2)
        loss = float(counts @ pooling.binary_losses(scores, right)) + price
        trials.append((loss, blank, fit.common, scores))
    _, blank, line, scores = min(trials, key=lambda trial: trial[0])
    odds = blank.log_odds(confidence)
    bends = [-1] * N_OWN + [0] * (
        blank.coef.size - N_OWN
    )  # hinges and atoms share a precision
    fit, flexible = _fit_curve(blank, answers, slope, common_blocks=bends, alike=_BENDS)
    # The share of the curve of least log loss, which is convex in it. The prior keeps
    # it inside.
    low = 0.0
    high = 1.0
    gap = flexible - scores
    for _ in range(_HALVINGS):
        second = 0.5 * (low + high)
        rise = (counts * (expit(scores + second * gap, np) - right)) @ gap
        rising = rise > _EITHER / second - _EITHER / (1.0 - second)
        low, high = (low, second) if rising else (second, high)
    second = 0.5 * (low + high)
    averaged = scores + second * gap
    stated = uncalibrated_share(odds, averaged, right, counts, np.arange(odds.size))
    coef = second * fit.common
    coef[:2] += (1.0 - second) * line
    coef[0] += (slope - 1.0) * blank.centre[
        0
    ]  # the coefficients are added to a slope of 1
    coef[1] += slope - 1.0
    shares = stated, (1.0 - stated) * (1.0 - second), (1.0 - stated) * second
    template = "log-odds were averaged: {:.0%} as stated, {:.0%} a line, {:.0%} a curve"
    candidates = {"as stated": odds, "line": scores, "curve": flexible}
    candidates["average"] = averaged + stated * (odds - averaged)
    return (
        replace(blank, coef=(1.0 - stated) * coef),
        fit,
        candidates,
        template.format(*shares),
    )


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
    fit = fit_pooled(_with_prior(terms, *at_extremes, _AT_END, n_atoms), **options)
    return fit, fit.scores_left_out()[: offset.size]


def _with_prior(
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
    slope_rows = (
        eye[1:3] * np.sqrt(2.0 * _RIDGES[: len(eye) - 1])[:, None]
    )  # two examples bend by 1/2
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


#: Without a pile of scores, odds are believed up to so many times the number of
#: examples.
_BORNE_OUT = 10.0
#: Before the fit: the weight of a hit and of a miss at either end of the scores, shared
#: by the labels; and two labels that differ so little. Slope and tilt have the
#: precisions of above.
_AT_ENDS = 0.5
_LABELS_ALIKE = (2.0, 0.01)


@one_blas_thread()
def fit_multilabel(
    scores: FloatArray, labels: FloatArray, weights: FloatArray
) -> tuple[confidence_rules.MultilabelCurves, dict[str, Any]]:
    """Curves of scores (n, labels) for labels of 0, 1 and NaN (n, labels), and a
    report.

    Log-odds of the curves and of the scores are averaged by held-out log loss. Weights
    (n,) are of rows; so is the standard error, as labels of a row go together.
    """
    n_labels = scores.shape[1]
    row, label = np.nonzero(~np.isnan(labels) & (weights > 0.0)[:, None])
    if not row.size:
        raise ValueError("`labels` must have known entries; got NaN everywhere.")
    share = weights / weights.sum()
    hits = labels[row, label] == 1.0
    counts = share[row] * effective_size(share)
    edges, pile_odds = _find_piles(scores[row, label], hits, counts)
    odds, spread, *piled = confidence_rules.score_features(
        scores[row, label], NUMPY, edges, pile_odds
    )
    # Where examples tell most, so that what is known of the shift and of the slope is
    # independent.
    centre = np.average(
        np.stack([odds, spread]), axis=1, weights=share[row] * np.exp(spread)
    )
    piles = [k for k, indicator in enumerate(piled) if indicator.any()]
    columns = [
        np.ones(row.size),
        odds - centre[0],
        spread - centre[1],
        *(piled[k] for k in piles),
    ]
    terms = BinaryTerms(np.stack(columns, axis=1, dtype=np.float64), hits, odds, counts)
    extreme_rows = np.unique([np.argmin(odds), np.argmax(odds)])
    prior = _with_prior(
        terms, terms.features[extreme_rows], odds[extreme_rows], _AT_ENDS / n_labels
    )
    codes = np.append(label, np.full(prior.offset.size - label.size, -1))[:, None]
    blocks = [-1] * 3 + [0] * len(piles)
    fit = fit_pooled(
        prior, codes, (n_labels,), common_blocks=blocks, alike=_LABELS_ALIKE
    )
    held_out = fit.scores_left_out()[: odds.size]
    uncalibrated = uncalibrated_share(odds, held_out, hits, counts, row)
    description = (
        f"log-odds were averaged: {uncalibrated:.0%} uncalibrated, "
        f"{1.0 - uncalibrated:.0%} curves of labels"
    )
    why = _find_useless_labels(hits, share)
    if why:
        uncalibrated = 1.0
        description = f"the probabilities were kept as they are: {why}"
        message = f"`labels` teach nothing: {why}; the probabilities are kept"
        remedy = "Check `labels`, and use more examples, with labels of 0 and 1"
        warn_user(f"{message}. {remedy}.", FitDataWarning)
    averaged = held_out + uncalibrated * (odds - held_out)
    candidates = {"uncalibrated": odds, "pooled": held_out, "average": averaged}
    n_known = np.maximum(sum_by(row, np.ones(row.size), len(share)), 1.0)
    losses = {
        k: sum_by(row, terms.losses(log_odds), len(share)) / n_known
        for k, log_odds in candidates.items()
    }
    _, error = mean_and_error(losses["uncalibrated"] - losses["average"], share)
    report = fit.report(description, losses, share, error)
    coef = (1.0 - uncalibrated) * (fit.common + fit.groups[0])
    shift = coef[:, 0] - coef[:, 1:3] @ centre
    jumps = np.zeros((2, n_labels))
    jumps[piles] = coef[:, 3:].T
    slope = 1.0 + coef[:, 1]
    tilt = coef[:, 2].copy()
    return confidence_rules.MultilabelCurves(
        shift, slope, tilt, edges, pile_odds, jumps
    ), report


def _find_useless_labels(hits: BoolArray, share: FloatArray) -> str:
    """Why nothing can be learned from labels `hits` (m,) of rows with weights (n,); ""
    if something can.
    """
    if effective_size(share) < FEWEST_EXAMPLES * (1.0 - 1e-9):
        return (
            f"{len(share)} examples are too few (at least {FEWEST_EXAMPLES} are needed)"
        )
    if hits.all() or not hits.any():
        return f"all {hits.size} labels are {int(hits[0])}"
    return ""


def _find_piles(
    scores: FloatArray, hits: BoolArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Edges beyond which scores (m,) pile up, and the log-odds (2,) that they are cut
    to.

    A largest or least score that comes more than once, as probabilities rounded to 0
    and 1 do, shows no more than how often its labels are there. Without such a pile,
    scores are as extreme as any of the fit, or as the number of examples supports.
    """
    edges = np.array([-FARTHEST_SCORE, FARTHEST_SCORE])
    pile_odds = np.empty(2)
    cut = np.clip(scores, -FARTHEST_SCORE, FARTHEST_SCORE)
    keys = cut.astype(np.float32)
    values = np.unique(keys).astype(np.float64)
    if values.size == 1:  # beside it lies only that nothing is known
        values = np.sort(np.append(values, 0.0))
    for side, sign, (last, inner) in ((0, -1.0, values[:2]), (1, 1.0, values[:-3:-1])):
        in_pile = keys == np.float32(last)
        if in_pile.sum() <= 1:
            farthest = max(float((sign * cut).max()), np.log(_BORNE_OUT * cut.size))
            pile_odds[side] = sign * min(farthest, FARTHEST_SCORE)
            continue
        edges[side] = 0.5 * (last + inner)
        n_hits = float(counts[in_pile] @ hits[in_pile])
        odds = np.log((n_hits + 0.5) / (float(counts[in_pile].sum()) - n_hits + 0.5))
        pile_odds[side] = np.clip(odds, min(last, inner), max(last, inner))
    return edges, np.sort(pile_odds)


#: Decides between coefficients that the examples cannot distinguish, and is too small
#: to shrink.
_RIDGE = 1e-10
#: Features that vary less than this are constant.
_LEAST_SPREAD = 1e-90
#: So are those that vary by rounding alone, relative to their size.
_ROUNDING_SPREAD = 1e-12


def with_both_classes(examples: Examples) -> Examples:
    """The examples that count and for which both classes are possible."""
    learnable = examples.learnable
    keep = learnable.logits.to_host(learnable.logits.possible_counts) > 1.0
    if not keep.any():
        rule = "`logits` must have rows in which both classes are possible"
        raise ValueError(
            f"{rule}; got one class at -inf in every row: nothing to calibrate."
        )
    return learnable.take(keep)


def fit_logistic(
    examples: Examples, features: FloatArray
) -> tuple[FloatArray, Solution[FloatArray]]:
    """Coefficients of features (n, k) and, last, the intercept, by least log loss on
    the targets.

    Those of several features are not negative: of the best fits with some of the
    features, it is the best one that has no negative coefficient.
    """
    centre = examples.share @ features
    spread = np.sqrt(examples.share @ (features - centre) ** 2)
    varies = spread > np.maximum(
        _LEAST_SPREAD, _ROUNDING_SPREAD * np.abs(features).max(axis=0)
    )
    useful = np.flatnonzero(varies).tolist()
    for size in range(len(useful), -1, -1):
        fits = []
        for chosen in map(list, combinations(useful, size)):
            solution = _minimize(
                examples, (features[:, chosen] - centre[chosen]) / spread[chosen]
            )
            if centre.size == 1 or (solution.x[:-1] >= 0.0).all():
                coef = np.zeros(centre.size + 1)
                coef[chosen] = solution.x[:-1] / spread[chosen]
                coef[-1] = solution.x[-1] - coef[:-1] @ centre
                fits.append((coef, solution))
        if fits:  # the intercept alone always is one
            break
    return min(fits, key=lambda fit: fit[1].value)


def _minimize(examples: Examples, columns: FloatArray) -> Solution[FloatArray]:
    """On Platt's targets, (n1 + 1) / (n1 + 2) for class 1 and 1 / (n0 + 2) for class 0.

    Each example is one of class 1 and one of class 0, with weights by its target.
    """
    size = examples.n_rows
    hits = examples.labels == 1
    counts = examples.counts
    ones, zeros = (float(counts[rows].sum()) for rows in (hits, ~hits))
    targets = np.where(hits, (ones + 1.0) / (ones + 2.0), 1.0 / (zeros + 2.0))
    table = np.tile(np.column_stack([columns, np.ones(size)]), (2, 1))
    weights = np.concatenate(
        [examples.share * targets, examples.share * (1.0 - targets)]
    )
    terms = BinaryTerms(table, np.arange(2 * size) < size, np.zeros(2 * size), weights)
    with one_blas_thread():
        start = np.zeros(table.shape[1])
        return minimize_dense(partial(terms.ridge, penalty=_RIDGE), start, MAX_ITER)


def fit_venn_abers(examples: Examples) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The numbers of a `VennAbersRule`: knots, lower, upper. Takes n log n
    operations.
    """
    odds = per_row(binary_log_odds, examples.logits)
    keys = np.clip(odds, -LARGEST_KEY, LARGEST_KEY).astype(np.float32)
    knots, group = np.unique(keys.astype(np.float64), return_inverse=True)
    counts = sum_by(group, examples.counts, knots.size)
    ones = sum_by(group, examples.counts * (examples.labels == 1), knots.size)
    upper = np.append(added_example(counts, ones), 1.0)
    lower = (
        1.0 - np.append(added_example(counts[::-1], (counts - ones)[::-1]), 1.0)[::-1]
    )
    upper = np.clip(
        upper, 1e-300, 1.0
    )  # so many examples that one more is rounded away
    lower = np.clip(lower, 0.0, np.minimum(np.append(1.0, upper[:-1]), 1.0 - 2.0**-53))
    steps = (np.diff(lower) > 0.0) | (np.diff(upper) > 0.0)
    steps[0] |= not steps.any()
    is_step = np.append(True, steps)
    return knots[steps], lower[is_step], upper[is_step]


def added_example(counts: FloatArray, ones: FloatArray) -> FloatArray:
    """Isotonic regression (k,) at an example of class 1 that is added to each group in
    turn.

    The regression is the slope of the greatest convex minorant of the cumulative sums.
    Its corners to the right of the added example are kept on a stack while the example
    moves from group to group, as in algorithms 1 and 2 of Vovk, Petej and Fedorova,
    2015.
    """
    x = [-1.0, 0.0, *np.cumsum(counts).tolist()]
    y = [-1.0, 0.0, *np.cumsum(ones).tolist()]
    corners: list[tuple[float, float]] = []
    for point in zip(reversed(x), reversed(y), strict=True):
        _add_corner(corners, point)
    slopes = []
    for i in range(1, len(x) - 1):
        (left, low), (right, high) = corners[-1], corners[-2]
        slopes.append((high - low) / (right - left))
        x[i] = x[i - 1] + x[i + 1] - x[i]
        y[i] = y[i - 1] + y[i + 1] - y[i]
        # Below the minorant.
        if (y[i] - low) * (right - left) < (high - low) * (x[i] - left):
            corners.pop()
            _add_corner(corners, (x[i], y[i]))
    return np.maximum.accumulate(np.array(slopes))


def _add_corner(corners: list[tuple[float, float]], point: Any) -> None:
    """Put a point to the left of a convex chain, without the corners that are now
    above it.
    """
    while len(corners) > 1:
        (x1, y1), (x2, y2) = corners[-1], corners[-2]
        if (y1 - point[1]) * (x2 - point[0]) < (y2 - point[1]) * (x1 - point[0]):
            break
        corners.pop()
    corners.append(point)


#: Means of targets that are all 1 may fall short of 1 by this.
_ROUNDING = 1e-12


#: A rising function of the log-probability: knots (k,) and values (k,), k >= 1. Linear
#: from the end of one step to the start of the next (the data say nothing in between),
#: and constant outside the data.
StepCurve = tuple[FloatArray, FloatArray]


def fit_pooled_isotonic(examples: Examples) -> StepCurve:
    """One curve for the log-probabilities of all classes, pooled, of rows with a
    weight.
    """
    keys, counts = _keys_and_counts(examples, 1.0)
    hits = np.arange(examples.n_classes) == examples.labels[:, None]
    return _fit_steps(keys.ravel(), hits.ravel(), np.repeat(counts, examples.n_classes))


def fit_classwise(examples: Examples, temperature: float) -> list[StepCurve]:
    """One curve per class, for the scaled log-probabilities of that class, of such
    rows.
    """
    keys, counts = _keys_and_counts(examples, temperature)
    least = 1.0 / ((float(counts.sum()) + 2.0) * examples.n_classes)
    return [
        _fit_steps(column, examples.labels == k, counts, least)
        for k, column in enumerate(np.ascontiguousarray(keys.T))
    ]


def _keys_and_counts(
    examples: Examples, temperature: float
) -> tuple[NDArray[np.float32], FloatArray]:
    """Log-probabilities (n, classes), as they are compared; and the weights (n,) of the
    rows, scaled to their number unless they are counts.
    """

    def work(block: Logits) -> Array:
        margins = block.margins / temperature
        return as_key(-(margins + log_norms(margins, block)), block.xp)

    are_counts = can_be_counts(examples.weights)
    counts = examples.counts if are_counts else examples.share * examples.n_rows
    return per_row(work, examples.logits), counts


def _fit_steps(
    keys: NDArray[np.float32],
    hits: BoolArray,
    counts: FloatArray,
    least: float | None = None,
) -> StepCurve:
    """The isotonic regression, from `least` up; by default that follows from the
    zeros.
    """
    from scipy.optimize import isotonic_regression

    possible = keys > -np.inf
    if not possible.all():
        keys = keys[possible]
        hits = hits[possible]
        counts = counts[possible]
    knots, knot_index = np.unique(keys, return_inverse=True)
    mass = sum_by(knot_index, counts, knots.size)
    ones = sum_by(knot_index[hits], counts[hits], knots.size)
    first_hit = int(np.argmax(ones > 0.0)) if ones.any() else knots.size
    if least is None:
        least = 1.0 / (float(mass[:first_hit].sum()) + 2.0)
    if first_hit == knots.size:
        return np.zeros(1), np.full(1, least)
    zeros = knots[:first_hit][-1:].astype(
        np.float64
    )  # the last of them ends the lowest step
    knots = knots[first_hit:]
    mass = mass[first_hit:]
    ones = ones[first_hit:]
    blocks = isotonic_regression(ones / mass, weights=mass).blocks
    first_rows = blocks[:-1]
    last_rows = blocks[1:] - 1
    totals = np.add.reduceat(mass, first_rows)
    levels = np.minimum(
        np.maximum.accumulate(np.add.reduceat(ones, first_rows) / totals), 1.0
    )
    below = int(np.searchsorted(levels, 1.0 - _ROUNDING))
    levels[below:] = max(
        [1.0 - 1.0 / (totals[below:].sum() + 2.0), *levels[:below][-1:]]
    )
    pairs = np.stack([knots[first_rows], knots[last_rows]], axis=1).astype(np.float64)
    is_knot = np.stack(
        [np.ones(first_rows.size, np.bool_), last_rows > first_rows], axis=1
    )
    values = np.broadcast_to(levels[:, None], pairs.shape)[is_knot]
    lowest = np.full(zeros.size, min(least, levels[0]))
    return np.append(zeros, pairs[is_knot]), np.append(lowest, values)
