"""Fits of stated confidences, and of labels that do not exclude each other.

Curves of confidence, with or without groups, keep what helps on held-out examples; curves of labels
are partially pooled, with label = group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from hokical._core.arrays import NUMPY, BoolArray, FloatArray, IntArray
from hokical._core.checks import sum_by
from hokical._core.groups import GroupCoding
from hokical._core.messages import FitDataWarning, warn_user
from hokical._core.parallel import one_blas_thread
from hokical._fitting.examples import effective_size, mean_and_error
from hokical._fitting.group_effects import GroupEffects, Pooling, Term, learn_groups
from hokical._fitting.partial_pooling import PooledFit, fit_pooled
from hokical._fitting.pooled_terms import (
    BinaryTerms,
    binary_losses,
    uncalibrated_share,
    weigh_two,
)
from hokical.rules.confidence import (
    FARTHEST_SCORE,
    N_OWN,
    ConfidenceCurve,
    MultilabelCurves,
    SignalCombination,
    confidence_keys,
    cut_logs,
    score_features,
)

#: Hinges of the curve, and the share of the examples from which a value has a term of its own.
_HINGES, _ATOM_SHARE = 10, 0.03
#: Fewer examples than this teach nothing.
_FEWEST = 10
#: The slope of log-odds that is expected of stated confidences, which are mostly overconfident,
#: and of a combination that was fitted; ...
_SLOPE, _FITTED_SLOPE = 0.7, 1.0
#: ... precisions of that slope and of the coefficient of log p (1 - p); the weight of a right and
#: of a wrong example at either end of the confidences, so that k of n right at a single value are
#: (k + 1) / (n + 2), and none is surer than that by a line that is steep; their weight for the term
#: of a value; and that of the line and of the curve in the average. Chosen on answers of language
#: models and on calibrated confidences: `paper/studies/answers.py`.
_RIDGES, _AT_END, _AT_ATOM, _EITHER = np.array([3.0, 0.3]), 1.0, 1.0, 0.5
#: Groups are used where they gain so many standard errors on held-out examples. Before the fit, two
#: coefficients of groups and two bends of the curve are known, with these sums of squares.
_CLEAR, _ALIKE, _BENDS = 0.3, (2.0, 0.05), (2.0, 0.3)
_POOLING = Pooling(
    1.0 - NormalDist().cdf(_CLEAR), jointly=True, common_blocks=[0] * N_OWN, alike=_ALIKE
)
#: Confidences are cut this close to 0 and 1; or, where a line has less log loss for it by so many
#: nats, to the second; or to the third over the number of examples, but not beyond the fourth.
_CLOSEST, _CLOSER, _BY_SIZE, _LEAST, _NATS = 1e-2, 1e-3, 0.1, 1e-6, 1.0
#: Signals are cut, and confidences that are kept as they are.
_KEPT = 1e-3
#: Most points at which a curve is made non-decreasing.
_GRID = 200


@dataclass(frozen=True, eq=False)
class _Answers:
    """Confidences (n,), whether the answers were right, and their weights, which count examples."""

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
    """The average of the confidence, a line and a curve, with corrections by group; and a report.

    `stated` are confidences (n,) or signals (n, k), which are combined first. All three are
    functions of log-odds that are linear in their coefficients, which are averaged by held-out log
    loss. `groups` are their coding and codes (n, columns).
    """
    share = weights / weights.sum()
    n_examples = effective_size(share)
    if n_examples < _FEWEST * (1.0 - 1e-9):
        return _keep_stated(stated)
    if right.all() or not right.any():
        warn_user(
            f"all {right.size} examples are {'right' if right.all() else 'wrong'}. Check `right`, "
            "and use examples of both outcomes.",
            FitDataWarning,
        )
    counts = share * n_examples
    signals = _combine_signals(stated, right, counts) if stated.ndim == 2 else None
    confidence = stated if signals is None else signals.combine(stated)
    answers = _Answers(confidence, right, counts)
    curve, fit, candidates, words = _fit_average(
        answers, _SLOPE if signals is None else _FITTED_SLOPE
    )
    losses = {name: binary_losses(each, right) for name, each in candidates.items()}
    curve, notes, final = replace(curve, signals=signals), "", losses["average"]
    if groups is not None:
        unknown = curve.codes(None, right.size)
        fitted = curve.curve_log_odds(confidence, unknown)
        own = curve.features(confidence)[:, :N_OWN]
        without = GroupEffects(groups[0], final, shift=candidates["average"] - fitted)
        terms = BinaryTerms(own, right, fitted, counts)
        found = learn_groups(terms, groups[1], without, _POOLING)
        notes = f" Groups: {'; '.join(found.notes)}."
        if found.fit is not None:
            final, fit = found.losses, found.fit
            losses["groups"], curve = final, _with_groups(curve, found)
            words += ", with corrections by group"
    if monotone:
        before, curve = curve, _with_grid(curve, confidence, weights)
        codes = curve.codes(None, right.size) if groups is None else groups[1]
        free, bound = (_seen_losses(each, answers, codes) for each in (before, curve))
        final = final + bound - free  # what the constraint costs on the examples themselves
        losses["average" if "groups" not in losses else "groups"] = final
    if signals is not None:
        words = f"{signals.rise.size} signals were combined to one confidence; {words}"
    error = mean_and_error(losses["as stated"] - final, share)[1]
    report = fit.report(words, losses, share, error)
    return curve, report | {"reason": report["reason"] + notes}


def _keep_stated(stated: FloatArray) -> tuple[ConfidenceCurve, dict[str, Any]]:
    """The stated confidence, or the mean of signals, cut where no count allows more."""
    why = f"{len(stated)} examples are too few (at least {_FEWEST} are needed)"
    warn_user(f"The stated confidence is kept: {why}. Use more examples.", FitDataWarning)
    signals = None
    if stated.ndim == 2:
        none = np.zeros(stated.shape[1])
        signals = SignalCombination(0.0, none, none, _KEPT)
    none = np.zeros(0)
    curve = ConfidenceCurve(np.zeros(N_OWN), np.zeros(2), none, none, _KEPT, signals=signals)
    nothing = {"held_out_log_loss": {}, "converged": True, "n_iter": 0}
    return curve, {"reason": f"the stated confidence was kept: {why}.", **nothing}


def _seen_losses(curve: ConfidenceCurve, answers: _Answers, codes: IntArray) -> FloatArray:
    """Log losses (n,) on the examples of the fit."""
    proba = curve.proba(answers.confidence, codes)
    return np.asarray(-np.log(np.where(answers.right, proba, 1.0 - proba)))


def _fit_average(
    answers: _Answers, slope: float
) -> tuple[ConfidenceCurve, PooledFit, dict[str, FloatArray], str]:
    """The averaged curve, the fit of the flexible one, held-out log-odds (n,), and words."""
    blank, line, scores = _fit_line(answers, slope)
    features, odds = blank.features(answers.confidence), blank.log_odds(answers.confidence)
    terms = BinaryTerms(features, answers.right, slope * odds, answers.counts)
    bends = [-1] * N_OWN + [0] * (blank.coef.size - N_OWN)  # hinges and atoms share a precision
    fit = fit_pooled(_with_prior(terms, blank, answers, slope), common_blocks=bends, alike=_BENDS)
    flexible = fit.scores_left_out()[: odds.size]
    second = weigh_two(scores, flexible, answers.right, answers.counts, _EITHER)
    averaged = scores + second * (flexible - scores)
    stated, _ = uncalibrated_share(
        odds, averaged, answers.right, answers.counts, np.arange(odds.size)
    )
    coef = second * fit.common
    coef[:2] += (1.0 - second) * line
    coef[0] += (slope - 1.0) * blank.centre[0]  # the coefficients are added to a slope of 1
    coef[1] += slope - 1.0
    shares = stated, (1.0 - stated) * (1.0 - second), (1.0 - stated) * second
    words = "log-odds were averaged: {:.0%} as stated, {:.0%} a line, {:.0%} a curve".format(
        *shares
    )
    candidates = {"as stated": odds, "line": scores, "curve": flexible}
    candidates["average"] = averaged + stated * (odds - averaged)
    return replace(blank, coef=(1.0 - stated) * coef), fit, candidates, words


def _fit_line(answers: _Answers, slope: float) -> tuple[ConfidenceCurve, FloatArray, FloatArray]:
    """A blank curve, and a line of its log-odds: coefficients (2,), held-out log-odds (n,)."""
    trials = []
    for price, closest in _cuts(answers.counts):
        blank = _shape_curve(answers, closest)
        features, odds = blank.features(answers.confidence), blank.log_odds(answers.confidence)
        terms = BinaryTerms(features[:, :2], answers.right, slope * odds, answers.counts)
        fit = fit_pooled(_with_prior(terms, blank, answers, slope))
        scores = fit.scores_left_out()[: odds.size]
        loss = float(answers.counts @ terms.losses(scores)) + price
        trials.append((loss, blank, fit.common, scores))
    return min(trials, key=lambda trial: trial[0])[1:]


def _with_prior(
    terms: BinaryTerms, blank: ConfidenceCurve, answers: _Answers, slope: float
) -> BinaryTerms:
    """What is known before the fit, as examples; of as many features as the terms have."""
    ends = np.unique([answers.confidence.min(), answers.confidence.max()])
    own, scale = (
        np.eye(blank.coef.size),
        np.sqrt(2.0 * _RIDGES),
    )  # two examples have a curvature of 1/2
    rows = [blank.features(ends), own[1:N_OWN] * scale[:, None], own[N_OWN + blank.knots.size :]]
    offset = np.append(slope * blank.log_odds(ends), np.zeros(scale.size + blank.atoms.size))
    weights = np.repeat([_AT_END, 1.0, _AT_ATOM], [ends.size, scale.size, blank.atoms.size])
    prior = np.vstack(rows)[:, : terms.n_features]
    used = prior.any(axis=1)
    return terms.with_prior(prior[used], offset[used], weights[used])


def _with_groups(curve: ConfidenceCurve, found: GroupEffects) -> ConfidenceCurve:
    """The curve with corrections; columns that did not help have a table of zeros."""
    assert found.fit is not None
    own, bends = np.split(curve.coef, [N_OWN])
    columns: dict[Term, FloatArray] = {
        (k,): np.zeros((size, N_OWN)) for k, size in enumerate(found.coding.sizes)
    }
    return replace(
        curve,
        coef=np.append(own + found.fit.common, bends),
        coding=found.coding,
        tables=tuple((columns | found.tables()).values()),
        pairs=tuple((term[0], term[1]) for term in found.terms if len(term) == 2),
    )


def _combine_signals(
    signals: FloatArray, right: BoolArray, counts: FloatArray
) -> SignalCombination:
    """How the signals (n, k) make the confidence under which the answers are most likely.

    The coefficients are shrunk towards the mean of the log-odds, as far as the examples allow.
    """
    ends, trials = np.unique([signals.min(axis=0), signals.max(axis=0)], axis=0), []
    for price, closest in _cuts(counts):
        features, odds = _read_signals(signals, closest)
        terms = BinaryTerms(features, right, odds, counts)
        prior = terms.with_prior(*_read_signals(ends, closest), [_AT_END] * len(ends))
        fit = fit_pooled(prior, common_blocks=[-1] + [0] * (features.shape[1] - 1))
        held_out = fit.scores_left_out()[: odds.size]
        loss = float(counts @ terms.losses(held_out)) + price
        trials.append((loss, closest, odds, held_out, fit.common))
    _, closest, odds, held_out, coef = min(trials, key=lambda trial: trial[0])
    own, _ = uncalibrated_share(odds, held_out, right, counts, np.arange(odds.size))
    intercept, *both = (1.0 - own) * coef
    rise, fall = np.split(np.array(both), 2)
    return SignalCombination(float(intercept), rise, fall, closest)


def _read_signals(signals: FloatArray, closest: float) -> tuple[FloatArray, FloatArray]:
    """Features (n, 1 + 2 k) of signals (n, k), and their mean log-odds (n,)."""
    log_p, log_rest = cut_logs(signals, closest)
    features = np.column_stack([np.ones(len(signals)), log_p, log_rest])
    return features, np.mean(log_p - log_rest, axis=1)


def _cuts(counts: FloatArray) -> list[tuple[float, float]]:
    """How close to 0 and 1 confidences may be cut, after what log loss has to fall by for it.

    The coarsest is 1 / (n + 2): n of n right are (n + 1) / (n + 2).
    """
    total = float(counts.sum())
    by_size = min(max(_BY_SIZE / total, _LEAST), _CLOSER)
    cuts = {max(_CLOSEST, 1.0 / (total + 2.0)), _CLOSER, by_size}
    return [(_NATS * rank, cut) for rank, cut in enumerate(sorted(cuts, reverse=True))]


def _shape_curve(answers: _Answers, closest: float) -> ConfidenceCurve:
    """Where a curve may bend, and the values that many examples have."""
    share = answers.counts / answers.counts.sum()
    log_p, log_rest = cut_logs(answers.confidence, closest)
    odds = log_p - log_rest
    centre = np.array([share @ odds, share @ (log_p + log_rest)])
    order = np.argsort(odds, kind="stable")
    wanted = np.arange(1, _HINGES + 1) / (_HINGES + 1)
    places = np.minimum(np.searchsorted(np.cumsum(share[order]), wanted), odds.size - 1)
    knots = np.unique(odds[order][places])
    knots = knots[(knots > odds.min()) & (knots < odds.max())]
    values, place = np.unique(confidence_keys(answers.confidence), return_inverse=True)
    atoms = values[np.bincount(place, share) >= _ATOM_SHARE]
    coef = np.zeros(N_OWN + knots.size + atoms.size)
    return ConfidenceCurve(coef, centre, knots, atoms, closest)


def _with_grid(
    curve: ConfidenceCurve, confidence: FloatArray, weights: FloatArray
) -> ConfidenceCurve:
    """The same, non-decreasing: at values of the fit, spread evenly among them."""
    values, place = np.unique(confidence_keys(confidence), return_inverse=True)
    counts = sum_by(place, weights, values.size)
    step = np.cumsum(counts) * (_GRID - 1) // counts.sum()
    first = np.append(True, np.diff(step) > 0) | np.isin(values, curve.atoms)
    first[-1] = True
    part = np.cumsum(first) - 1
    return replace(curve, grid=values[first], counts=sum_by(part, counts, int(part[-1]) + 1))


#: Without a pile of scores, odds are believed up to so many times the number of examples.
_BORNE_OUT = 10.0
#: Before the fit: precisions of the common slope and tilt; the weight of a hit and of a miss at
#: either end of the scores, shared by the labels; and two labels that differ so little.
_CURVE_RIDGES, _AT_ENDS, _LABELS_ALIKE = np.array([3.0, 0.3]), 0.5, (2.0, 0.01)


@one_blas_thread()
def fit_multilabel(
    scores: FloatArray, labels: FloatArray, weights: FloatArray
) -> tuple[MultilabelCurves, dict[str, Any]]:
    """Curves of scores (n, labels) for labels of 0, 1 and NaN (n, labels), and a report.

    Log-odds of the curves and of the scores are averaged by held-out log loss. Weights (n,) are of
    rows; so is the standard error, as labels of a row go together.
    """
    n_labels = scores.shape[1]
    row, label = np.nonzero(~np.isnan(labels) & (weights > 0.0)[:, None])
    if not row.size:
        raise ValueError("`labels` must have known entries; got NaN everywhere.")
    share = weights / weights.sum()
    hits, counts = labels[row, label] == 1.0, share[row] * effective_size(share)
    edges, ends = _find_piles(scores[row, label], hits, counts)
    odds, spread, *piled = score_features(scores[row, label], NUMPY, edges, ends)
    # Where examples tell most, so that what is known of the shift and of the slope is independent.
    centre = np.average(np.stack([odds, spread]), axis=1, weights=share[row] * np.exp(spread))
    piles = [k for k, part in enumerate(piled) if part.any()]
    columns = [np.ones(row.size), odds - centre[0], spread - centre[1], *(piled[k] for k in piles)]
    terms = BinaryTerms(np.stack(columns, axis=1, dtype=np.float64), hits, odds, counts)
    found = _fit_pooled(terms, label, n_labels)
    held_out = found.scores_left_out()[: odds.size]
    kept, _ = uncalibrated_share(odds, held_out, hits, counts, row)
    why = _nothing_learned(hits, effective_size(share), len(share))
    words = f"log-odds were averaged: {kept:.0%} uncalibrated, {1.0 - kept:.0%} curves of labels"
    if why:
        kept, words = 1.0, f"the probabilities were kept as they are: {why}"
    averaged = held_out + kept * (odds - held_out)
    several = {"uncalibrated": odds, "pooled": held_out, "average": averaged}
    known = np.maximum(sum_by(row, np.ones(row.size), len(share)), 1.0)
    losses = {
        name: sum_by(row, terms.losses(each), len(share)) / known for name, each in several.items()
    }
    _, error = mean_and_error(losses["uncalibrated"] - losses["average"], share)
    report = found.report(words, losses, share, error)
    coef = (1.0 - kept) * (found.common + found.groups[0])
    shift = coef[:, 0] - coef[:, 1:3] @ centre
    jumps = np.zeros((2, n_labels))
    jumps[piles] = coef[:, 3:].T
    return MultilabelCurves(shift, 1.0 + coef[:, 1], coef[:, 2].copy(), edges, ends, jumps), report


def _fit_pooled(terms: BinaryTerms, label: IntArray, n_labels: int) -> PooledFit:
    """Common coefficients and those of each label, with what is known before as examples."""
    width = terms.n_features
    places = np.unique([np.argmin(terms.offset), np.argmax(terms.offset)])
    own = np.eye(width)[1:3] * np.sqrt(2.0 * _CURVE_RIDGES)[:, None]
    prior = terms.with_prior(
        np.vstack([terms.features[places], own]),
        np.append(terms.offset[places], [0.0, 0.0]),
        np.repeat([_AT_ENDS / n_labels, 1.0], [places.size, 2]),
    )
    codes = np.append(label, np.full(prior.offset.size - label.size, -1))
    blocks = [-1, -1, -1, *(0 for _ in range(width - 3))]
    return fit_pooled(prior, codes[:, None], (n_labels,), common_blocks=blocks, alike=_LABELS_ALIKE)


def _nothing_learned(hits: BoolArray, n_examples: float, n_rows: int) -> str:
    """Why the probabilities are kept, with a warning; "" if they are not."""
    why = ""
    if n_examples < _FEWEST * (1.0 - 1e-9):
        why = f"{n_rows} examples are too few (at least {_FEWEST} are needed)"
    elif hits.all() or not hits.any():
        why = f"all {hits.size} labels are {int(hits[0])}"
    if why:
        warn_user(
            f"`labels` teach nothing: {why}; the probabilities are kept. Check `labels`, and use "
            "more examples, with labels of 0 and 1.",
            FitDataWarning,
        )
    return why


def _find_piles(
    scores: FloatArray, hits: BoolArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Edges beyond which scores (m,) pile up, and the log-odds (2,) that they are cut to.

    A largest or least score that comes more than once, as probabilities rounded to 0 and 1 do,
    shows no more than how often its labels are there. Without such a pile, scores are as
    extreme as any of the fit, or as the number of examples supports.
    """
    edges, ends = np.array([-FARTHEST_SCORE, FARTHEST_SCORE]), np.empty(2)
    cut = np.clip(scores, -FARTHEST_SCORE, FARTHEST_SCORE)
    keys = cut.astype(np.float32)
    values = np.unique(keys).astype(np.float64)
    if values.size == 1:  # beside it lies only that nothing is known
        values = np.sort(np.append(values, 0.0))
    for side, sign, (last, inner) in ((0, -1.0, values[:2]), (1, 1.0, values[:-3:-1])):
        here = keys == np.float32(last)
        if here.sum() <= 1:
            farthest = max(float((sign * cut).max()), np.log(_BORNE_OUT * cut.size))
            ends[side] = sign * min(farthest, FARTHEST_SCORE)
            continue
        edges[side] = 0.5 * (last + inner)
        there = float(counts[here] @ hits[here])
        odds = np.log((there + 0.5) / (float(counts[here].sum()) - there + 0.5))
        ends[side] = np.clip(odds, min(last, inner), max(last, inner))
    return edges, np.sort(ends)
