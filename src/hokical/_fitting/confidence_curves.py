"""Fit curves of confidence, with or without groups, and keep what helps on held-out examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.groups import NAMELESS, GroupCoding
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._core.warn import FitDataWarning, warn_user
from hokical._fitting.example_stats import FEWEST_EXAMPLES
from hokical._fitting.examples import effective_size, mean_and_error
from hokical._fitting.partial_pooling import PooledFit, fit_pooled
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
#: Confidences are cut this close to 0 and 1; or, where log loss is lower for it, to the second
#: over the number of examples, but not beyond the third.
_CLOSEST, _CLOSER, _LEAST = 1e-3, 0.1, 1e-6
#: Pairs of columns with more combinations of groups than this are not tried.
_MOST_COMBINED = 2000
#: Most points at which a curve is made non-decreasing.
_GRID = 200


@dataclass(frozen=True, eq=False)
class StatedConfidence:
    """`confidence` (n,) in [0, 1] with answers, whether they are `right` (n,), and weights (n,)."""

    confidence: FloatArray
    right: BoolArray
    weights: FloatArray

    @property
    def share(self) -> FloatArray:
        return np.asarray(self.weights / self.weights.sum())


def fit_confidence(
    examples: StatedConfidence, groups: tuple[GroupCoding, IntArray] | None, *, monotone: bool
) -> tuple[ConfidenceCurve, dict[str, Any]]:
    """The curve that is clearly best on held-out examples, and a report.

    The candidates are the confidence as it is, one curve for all, and one with `groups`: their
    coding and codes (n, columns).
    """
    share, blank = examples.share, _shape_curve(examples)
    n_examples, right = effective_size(share), examples.right
    if n_examples < FEWEST_EXAMPLES * (1.0 - 1e-9) or right.all() or not right.any():
        why = f"{right.size} examples are too few to tell what is better"
        remedy = "Use some hundred or more."
        if n_examples >= FEWEST_EXAMPLES:
            why = f"all examples are {'right' if right.all() else 'wrong'}"
            remedy = "Check `right`, and use examples of both kinds."
        warn_user(
            f"`right` teaches nothing: {why}; the confidence is kept. {remedy}", FitDataWarning
        )
        return blank, _report(f"the confidence was kept as it is: {why}.", None)
    terms = BinaryTerms(
        blank.features(examples.confidence),
        examples.right,
        blank.log_odds(examples.confidence),
        share * n_examples,
    )
    own = binary_losses(terms.offset, examples.right)
    common = _fit(terms, np.zeros((own.size, 0), np.int64), ())
    losses = {"as it is": own, "one curve": common.losses_left_out()}
    chosen, curve, words = common, replace(blank, coef=common.common), "one curve was fitted"
    best = "one curve"
    if groups is not None:
        coding, codes = groups
        named = "" if coding.columns == (NAMELESS,) else f" ({', '.join(coding.columns)})"
        sizes = tuple(size - 1 for size in coding.sizes)
        pooled = _fit(terms, np.where(codes == sizes, -1, codes), sizes)
        losses["groups"] = pooled.losses_left_out()
        price = _PRICE * N_OWN * len(sizes) / n_examples
        gain, error = mean_and_error(losses["one curve"] - losses["groups"], share)
        if gain > price + _CLEAR * error:
            found = _add_pairs(terms, coding, codes, _Pooled((), pooled, losses["groups"]))
            chosen, best = found.fit, "pairs" if found.pairs else "groups"
            losses[best] = found.losses
            tables = _tables(found, coding)
            curve = replace(
                blank, coef=chosen.common, coding=coding, tables=tables, pairs=found.pairs
            )
            words = f"a curve with corrections by group{named} was fitted"
            if found.pairs:
                both = (f"{coding.columns[a]} x {coding.columns[b]}" for a, b in found.pairs)
                words += f", and by pairs of groups ({', '.join(both)})"
        else:
            words += f", as groups{named} did not clearly help"
    gain, error = mean_and_error(own - losses[best], share)
    if gain <= _PRICE / n_examples + _CLEAR * error:
        curve, words = blank, "the confidence was kept as it is, as nothing was clearly better"
        monotone = False  # it rises by itself, where no example is as well
    means = {name: float(share @ part) for name, part in losses.items()}
    scores = ", ".join(f"{name} {loss:.4f}" for name, loss in means.items())
    reason = f"{words} (held-out log loss: {scores}; standard error of the gain {error:.4f})."
    return _with_grid(curve, examples, monotone), _report(reason, chosen, means)


@dataclass(frozen=True, eq=False)
class _Pooled:
    """A fit with all columns and some pairs of them, and its held-out losses (n,)."""

    pairs: tuple[tuple[int, int], ...]
    fit: PooledFit
    losses: FloatArray


def _add_pairs(terms: BinaryTerms, coding: GroupCoding, codes: IntArray, found: _Pooled) -> _Pooled:
    """Add pairs of columns, the most helpful first, as long as one clearly helps."""
    sizes = [size - 1 for size in coding.sizes]
    waiting = [
        (a, b)
        for a, b in combinations(range(len(sizes)), 2)
        if min(sizes[a], sizes[b]) > 1 and sizes[a] * sizes[b] <= _MOST_COMBINED
    ]
    share, n_examples = terms.weights / terms.weights.sum(), float(terms.weights.sum())
    # As likely as for a single candidate, one of several passes by chance.
    clear = NormalDist().inv_cdf(1.0 - (1.0 - NormalDist().cdf(_CLEAR)) / max(len(waiting), 1))
    while waiting:
        tried = [_fit_pairs(terms, codes, sizes, (*found.pairs, pair)) for pair in waiting]
        gains = [mean_and_error(found.losses - each.losses, share) for each in tried]
        k = max(range(len(tried)), key=lambda k: gains[k][0])
        if gains[k][0] <= _PRICE * N_OWN / n_examples + clear * gains[k][1]:
            break
        found = tried[k]
        del waiting[k]
    return found


def _fit_pairs(
    terms: BinaryTerms, codes: IntArray, sizes: list[int], pairs: tuple[tuple[int, int], ...]
) -> _Pooled:
    """The fit with these pairs; a combination with an unknown group is -1."""
    own = np.where(codes == sizes, -1, codes)
    joint = [
        np.where((own[:, a] < 0) | (own[:, b] < 0), -1, own[:, a] * sizes[b] + own[:, b])
        for a, b in pairs
    ]
    every = (*sizes, *(sizes[a] * sizes[b] for a, b in pairs))
    found = _fit(terms, np.column_stack([own, *joint]), every)
    return _Pooled(pairs, found, found.losses_left_out())


def _tables(found: _Pooled, coding: GroupCoding) -> tuple[FloatArray, ...]:
    """Corrections by group, with a row of zeros for an unknown one, as the rule has them."""
    shapes: list[tuple[int, ...]] = [(size,) for size in coding.sizes]
    shapes += [(coding.sizes[a], coding.sizes[b]) for a, b in found.pairs]
    tables = []
    for part, shape in zip(found.fit.groups, shapes, strict=True):
        table = np.zeros((*shape, N_OWN))
        table[tuple(slice(size - 1) for size in shape)] = part.reshape(
            *(size - 1 for size in shape), N_OWN
        )
        tables.append(table.reshape(-1, N_OWN))
    return tuple(tables)


def combine_signals(signals: FloatArray, examples: StatedConfidence) -> SignalCombination:
    """How the signals (n, k) make the confidence under which the answers are most likely.

    The coefficients are shrunk towards the mean of the log-odds, as far as the examples allow.
    """
    log_p, log_rest = cut_logs(signals, _CLOSEST)
    features = np.column_stack([np.ones(len(signals)), log_p, log_rest])
    weights = examples.share * effective_size(examples.share)
    terms = BinaryTerms(features, examples.right, np.mean(log_p - log_rest, axis=1), weights)
    blocks = [-1] + [0] * (features.shape[1] - 1)
    none = np.zeros((len(signals), 0), np.int64)
    intercept, *coef = fit_pooled(terms, none, (), 1, common_blocks=blocks).common
    rise, fall = np.split(np.array(coef), 2)
    return SignalCombination(float(intercept), rise, fall, _CLOSEST)


def _fit(terms: BinaryTerms, codes: IntArray, sizes: tuple[int, ...]) -> PooledFit:
    blocks = np.where(np.arange(terms.n_features) < N_OWN, -1, 0)
    return fit_pooled(terms, codes, sizes, N_OWN, common_blocks=blocks.tolist())


def _shape_curve(examples: StatedConfidence) -> ConfidenceCurve:
    """Where a curve may bend, and the values that many examples have."""
    share, right = examples.share, examples.right
    closer = min(max(_CLOSER / right.size, _LEAST), _CLOSEST)
    logs = {cut: cut_logs(examples.confidence, cut) for cut in (_CLOSEST, closer)}
    closest = max(logs, key=lambda cut: float(share @ np.where(right, *logs[cut])))
    log_p, log_rest = logs[closest]
    odds = log_p - log_rest
    centre = np.array([share @ odds, share @ (log_p + log_rest)])
    order = np.argsort(odds, kind="stable")
    reached = np.cumsum(share[order])
    wanted = np.arange(1, _HINGES + 1) / (_HINGES + 1)
    places = np.minimum(np.searchsorted(reached, wanted), odds.size - 1)
    knots = np.unique(odds[order][places])
    knots = knots[(knots > odds.min()) & (knots < odds.max())]
    values, place = np.unique(confidence_keys(examples.confidence), return_inverse=True)
    atoms = values[np.bincount(place, share) >= _ATOM_SHARE]
    coef = np.zeros(N_OWN + knots.size + atoms.size)
    return ConfidenceCurve(coef, centre, knots, atoms, closest)


def _with_grid(
    curve: ConfidenceCurve, examples: StatedConfidence, monotone: bool
) -> ConfidenceCurve:
    """The same, non-decreasing where asked: at values of the fit, spread evenly among them."""
    if not monotone:
        return curve
    values, place = np.unique(confidence_keys(examples.confidence), return_inverse=True)
    counts = sum_by(place, examples.weights, values.size)
    step = np.cumsum(counts) * (_GRID - 1) // counts.sum()
    first = np.append(True, np.diff(step) > 0) | np.isin(values, curve.atoms)
    first[-1] = True
    part = np.cumsum(first) - 1
    return replace(curve, grid=values[first], counts=sum_by(part, counts, int(part[-1]) + 1))


def _report(
    reason: str, found: PooledFit | None, losses: dict[str, float] | None = None
) -> dict[str, Any]:
    solution = None if found is None else found.solution
    return {
        "reason": reason,
        "held_out_log_loss": losses or {},
        "converged": solution is None or solution.converged,
        "n_iter": 0 if solution is None else solution.n_iter,
    }
