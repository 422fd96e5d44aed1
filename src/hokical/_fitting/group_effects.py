"""Which columns of groups help, and the corrections of their groups, by partial pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.groups import PARTS, GroupCoding
from hokical._core.portable import normal_quantile
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._fitting.examples import mean_and_error
from hokical._fitting.partial_pooling import PooledFit, fit_densely, fit_pooled
from hokical._fitting.pooled_terms import ScaleTerms, SoftmaxTerms

#: A column is used if that lowers the held-out log loss, by so many standard errors that a gain of
#: none would reach them with this probability, shared by the columns.
LEVEL = 0.025
#: Columns whose groups, or combinations of groups, have corrections.
Term = tuple[int, ...]
#: Combinations of groups that a pair may have.
MOST_COMBINED = 10_000
#: Classes have biases by group up to this many; of more, there is a scale by group alone.
MAX_BIASED = 30


@dataclass(frozen=True, eq=False)
class GroupedPredictions:
    """Predictions of examples, held out where that matters: `log_proba` (n, classes), 0 where not
    `possible`; `labels`, `weights`, which count examples, (n,), and `codes` (n, columns).
    """

    log_proba: FloatArray
    possible: BoolArray
    labels: IntArray
    weights: FloatArray
    codes: IntArray

    @property
    def losses(self) -> FloatArray:
        """The log loss (n,) without groups."""
        return np.asarray(-self.log_proba[np.arange(self.labels.size), self.labels])

    def fit(self, coding: GroupCoding, terms: Sequence[Term]) -> PooledFit:
        """Corrections by the groups of some columns, or of several together, and a common one."""
        sizes = [math.prod(_known_sizes(coding, term)) for term in terms]
        codes = np.stack([_term_codes(self.codes, coding, term) for term in terms], axis=1)
        offset = np.where(self.possible, self.log_proba, -np.inf)
        kind: Any = SoftmaxTerms if self.n_features > 1 else ScaleTerms
        examples = kind(self.log_proba, self.labels, offset, self.weights)
        blocks = [0] + [1] * (self.n_features - 1)
        return fit_pooled(
            examples, codes, sizes, self.n_features, own_blocks=blocks, common_blocks=blocks
        )

    @property
    def n_features(self) -> int:
        """A scale, and a bias of each class if they are not many."""
        n_classes = self.log_proba.shape[1]
        return 1 + n_classes if n_classes <= MAX_BIASED else 1

    def has_room(self, coding: GroupCoding, terms: Sequence[Term]) -> bool:
        """Whether the groups of terms are not too many to be fitted together."""
        sizes = [math.prod(_known_sizes(coding, term)) for term in terms]
        return max(sizes) <= MOST_COMBINED and fit_densely(sizes, self.n_features)


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """The terms that are used, their corrections as in `GroupedRule`, and why, in words."""

    terms: list[Term]
    scale: FloatArray
    bias: FloatArray
    description: str


def learn_groups(
    rows: GroupedPredictions, coding: GroupCoding, pairs: Sequence[tuple[int, int]]
) -> GroupEffects:
    """Add columns, the most helpful first, as long as one clearly helps on held-out examples.

    Then pairs of columns, in the same way.
    """
    share = rows.weights / rows.weights.sum()
    losses, used, best, notes = rows.losses, list[Term](), None, list[str]()
    for name, size in zip(coding.columns, coding.sizes, strict=True):
        notes += [f"{name!r} has {'one' if size == 2 else 'no'} group"] if size <= 2 else []
    columns = [(k,) for k in range(len(coding.columns))]
    for candidates in (columns, pairs):
        waiting: list[Term] = [t for t in candidates if min(_known_sizes(coding, t)) > 1]
        caution = float(normal_quantile(np.array([1.0 - LEVEL / max(len(candidates), 1)]))[0])
        while waiting:
            crowded = [t for t in waiting if len(t) > 1 and not rows.has_room(coding, [*used, t])]
            notes += [f"{_name(coding, t)} has too many combinations" for t in crowded]
            waiting = [t for t in waiting if t not in crowded]
            if not waiting:
                break
            fits = {term: rows.fit(coding, [*used, term]) for term in waiting}
            held = {term: found.losses_left_out() for term, found in fits.items()}
            gains = {term: mean_and_error(losses - held[term], share) for term in waiting}
            first = max(waiting, key=lambda term: gains[term][0])
            gain, error = gains[first]
            if gain <= caution * error:
                notes += [f"{_name(coding, t)} was left out ({_gain(*gains[t])})" for t in waiting]
                break
            used, best, losses = [*used, first], fits[first], held[first]
            notes.append(f"{_name(coding, first)} was used ({_gain(gain, error)})")
            waiting.remove(first)
    return GroupEffects(used, *_tables(best, coding, used), "; ".join(notes))


def _known_sizes(coding: GroupCoding, term: Term) -> list[int]:
    """How many known groups each column of a term has."""
    return [coding.sizes[k] - 1 for k in term]


def _term_codes(codes: IntArray, coding: GroupCoding, term: Term) -> IntArray:
    """The combination (n,) of known groups, -1 where one is not known."""
    sizes, own = _known_sizes(coding, term), codes[:, term]
    known = (own < np.array(sizes)).all(axis=1)
    return np.where(known, np.ravel_multi_index(own.T, sizes, mode="clip"), -1)


def _name(coding: GroupCoding, term: Term) -> str:
    names = " x ".join(f"{coding.columns[k]!r}" for k in term)
    if len(term) > 1 or not coding.cut[term[0]]:
        return names
    points = [f"{point:.6g}" for point in coding.levels[term[0]]]
    shown = points if len(points) < PARTS else [*points[:2], "...", *points[-2:]]
    return f"{names}, cut at {', '.join(shown)},"


def _gain(gain: float, error: float) -> str:
    which = "lower" if gain > 0.0 else "higher"
    return f"held-out log loss {which} by {abs(gain):.4f}, standard error {error:.4f}"


def _tables(
    found: PooledFit | None, coding: GroupCoding, terms: Sequence[Term]
) -> tuple[FloatArray, FloatArray]:
    """Scales (groups,) and biases (groups, classes or 1), the common ones in the first term."""
    if found is None:
        return np.zeros(0), np.zeros((0, 1))
    parts = []
    for term, table in zip(terms, found.groups, strict=True):
        sizes = _known_sizes(coding, term)
        known = table.reshape(*sizes, -1)
        whole = np.pad(known, [*[(0, 1) for _ in sizes], (0, 0)])  # of groups that are not known
        parts.append(whole.reshape(-1, table.shape[1]))
    parts[0] = parts[0] + found.common
    whole = np.vstack(parts)
    return whole[:, 0], whole[:, 1:] if whole.shape[1] > 1 else np.zeros((len(whole), 1))
