"""Fit curves of confidence, with or without groups, and keep what helps on held-out examples."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.groups import GroupCoding
from hokical._core.parallel import one_blas_thread
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._core.warn import FitDataWarning, warn_user
from hokical._fitting.examples import FEWEST_EXAMPLES, effective_size, mean_and_error
from hokical._fitting.group_effects import GroupEffects, Pooling, Term, learn_groups
from hokical._fitting.partial_pooling import fit_pooled
from hokical._fitting.pooled_terms import BinaryTerms, binary_losses
from hokical.rules._confidence import (
    N_OWN,
    ConfidenceCurve,
    SignalCombination,
    confidence_keys,
    cut_logs,
)

#: Hinges of the curve, and the share of the examples from which a value has a term of its own.
_HINGES, _ATOM_SHARE = 10, 0.03
#: A gain on held-out examples is clear from this many standard errors, once each precision that
#: was fitted to the same examples has paid so many nats.
_CLEAR, _PRICE = 0.7, 0.5
_POOLING = Pooling(1.0 - NormalDist().cdf(_CLEAR), _PRICE, jointly=True, common_blocks=[0] * N_OWN)
#: Confidences are cut this close to 0 and 1; or, where log loss is lower for it, to the second
#: over the number of examples, but not beyond the third.
_CLOSEST, _CLOSER, _LEAST = 1e-3, 0.1, 1e-6
#: Most points at which a curve is made non-decreasing.
_GRID = 200


@one_blas_thread()
def fit_confidence(
    stated: FloatArray,
    right: BoolArray,
    weights: FloatArray,
    groups: tuple[GroupCoding, IntArray] | None,
    *,
    monotone: bool,
) -> tuple[ConfidenceCurve, dict[str, Any]]:
    """The curve that is clearly best on held-out examples, and a report.

    `stated` are confidences (n,) or signals (n, k), which are combined first. The candidates are
    the confidence as it is, one curve for all, and one with `groups`: their coding and codes (n,
    columns).
    """
    share = weights / weights.sum()
    counts, n_examples = share * effective_size(share), effective_size(share)
    signals = _combine_signals(stated, right, counts) if stated.ndim == 2 else None
    confidence = stated if signals is None else signals.combine(stated)
    blank = replace(_shape_curve(confidence, right, share), signals=signals)
    few = n_examples < FEWEST_EXAMPLES * (1.0 - 1e-9)
    if few or right.all() or not right.any():
        why = f"all examples are {'right' if right.all() else 'wrong'}"
        why = f"{right.size} examples are too few to tell what is better" if few else why
        warn_user(
            f"`right` teaches nothing: {why}; the confidence is kept. Check `right`, and use some "
            "hundred examples or more, right and wrong ones.",
            FitDataWarning,
        )
        nothing = {"held_out_log_loss": {}, "converged": True, "n_iter": 0}
        return blank, {"reason": f"the confidence was kept as it is: {why}.", **nothing}
    offset = blank.log_odds(confidence)
    terms = BinaryTerms(blank.features(confidence), right, offset, counts)
    bends = [-1] * N_OWN + [0] * (terms.n_features - N_OWN)  # hinges and atoms share a precision
    fit = fit_pooled(terms, common_blocks=bends)
    scores, losses = fit.scores_left_out(), {"as it is": binary_losses(offset, right)}
    best = losses["one curve"] = terms.losses(scores)
    curve, words, notes = replace(blank, coef=fit.common), "one curve was fitted", ""
    if groups is not None:
        fitted = offset + terms.features @ fit.common
        rows = replace(terms, features=terms.features[:, :N_OWN], offset=fitted)
        without = GroupEffects(groups[0], best, shift=scores - fitted)
        found = learn_groups(rows, groups[1], without, _POOLING)
        notes = f" Groups: {'; '.join(found.notes)}."
        if found.fit is not None:
            best, fit = found.losses, found.fit
            losses["groups"], curve = best, _with_groups(curve, found)
            words = "a curve with corrections by group was fitted"
    gain, error = mean_and_error(losses["as it is"] - best, share)
    if gain <= _PRICE / n_examples + _CLEAR * error:
        curve, words = blank, "the confidence was kept as it is, as nothing was clearly better"
        monotone = False  # it rises by itself, where no example is as well
    if monotone:
        curve = _with_grid(curve, confidence, weights)
    if signals is not None:
        words = f"{signals.rise.size} signals were combined to one confidence; {words}"
    report = fit.report(words, losses, share, error)
    return curve, report | {"reason": report["reason"] + notes}


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
    log_p, log_rest = cut_logs(signals, _CLOSEST)
    features = np.column_stack([np.ones(len(signals)), log_p, log_rest])
    terms = BinaryTerms(features, right, np.mean(log_p - log_rest, axis=1), counts)
    blocks = [-1] + [0] * (features.shape[1] - 1)
    intercept, *coef = fit_pooled(terms, common_blocks=blocks).common
    rise, fall = np.split(np.array(coef), 2)
    return SignalCombination(float(intercept), rise, fall, _CLOSEST)


def _shape_curve(confidence: FloatArray, right: BoolArray, share: FloatArray) -> ConfidenceCurve:
    """Where a curve may bend, and the values that many examples have."""
    closer = min(max(_CLOSER / right.size, _LEAST), _CLOSEST)
    logs = {cut: cut_logs(confidence, cut) for cut in (_CLOSEST, closer)}
    closest = max(logs, key=lambda cut: float(share @ np.where(right, *logs[cut])))
    log_p, log_rest = logs[closest]
    odds = log_p - log_rest
    centre = np.array([share @ odds, share @ (log_p + log_rest)])
    order = np.argsort(odds, kind="stable")
    wanted = np.arange(1, _HINGES + 1) / (_HINGES + 1)
    places = np.minimum(np.searchsorted(np.cumsum(share[order]), wanted), odds.size - 1)
    knots = np.unique(odds[order][places])
    knots = knots[(knots > odds.min()) & (knots < odds.max())]
    values, place = np.unique(confidence_keys(confidence), return_inverse=True)
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
