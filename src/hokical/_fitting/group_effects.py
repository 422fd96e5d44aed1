"""Which columns of groups help, and the corrections of their groups, by partial pooling.

Columns, and then pairs of columns, are added one at a time, if that clearly lowers the held-out
log loss. All that are used are fitted jointly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist

import numpy as np

from hokical._core.groups import PARTS, GroupCoding
from hokical._core.types import FloatArray, IntArray
from hokical._fitting.examples import mean_and_error
from hokical._fitting.partial_pooling import PooledFit, fit_densely, fit_pooled
from hokical._fitting.pooled_terms import PooledTerms

#: Columns whose groups, or combinations of groups, have corrections.
Term = tuple[int, ...]
#: Combinations of groups that a pair may have.
MOST_COMBINED = 10_000


@dataclass(frozen=True)
class Pooling:
    """How groups are fitted, and from when on they are used.

    Blocks and `n_own` are those of `fit_pooled`. A gain has to exceed a `price` for each term, in
    nats of all examples, and so many standard errors that a gain of none would reach them with the
    probability `level`, shared by the candidates. Columns are used one by one, or `jointly`.
    """

    n_own: int
    level: float
    price: float = 0.0
    jointly: bool = False
    own_blocks: Sequence[int] | None = None
    common_blocks: Sequence[int] | None = None


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """The terms that are used, their fit or None, its held-out losses (n,), and why, in words."""

    coding: GroupCoding
    losses: FloatArray
    terms: tuple[Term, ...] = ()
    fit: PooledFit | None = None
    notes: tuple[str, ...] = ()

    def tables(self) -> dict[Term, FloatArray]:
        """Corrections (groups, own features), with a row for unknown groups in each column."""
        found = {}
        for term, table in zip(self.terms, self.fit.groups if self.fit else (), strict=True):
            sizes = _known_sizes(self.coding, term)
            known = table.reshape(*sizes, -1)
            whole = np.pad(known, [*[(0, 1) for _ in sizes], (0, 0)])
            found[term] = whole.reshape(-1, table.shape[1])
        return found


@dataclass(frozen=True, eq=False)
class _Trial:
    """A fit with one more term, its held-out losses (n,), their mean gain and standard error."""

    fit: PooledFit
    losses: FloatArray
    gain: float
    error: float

    def __str__(self) -> str:
        which = "lower" if self.gain > 0.0 else "higher"
        return f"held-out log loss {which} by {abs(self.gain):.4f}, standard error {self.error:.4f}"


def learn_groups(
    terms: PooledTerms,
    codes: IntArray,
    coding: GroupCoding,
    pooling: Pooling,
    losses: FloatArray,
) -> GroupEffects:
    """Add columns, the most helpful first, as long as one clearly helps; then pairs of columns.

    `codes` (n, columns) are of groups by `coding`, and `losses` (n,) are held out, without groups.
    """
    notes = [
        f"{name!r} has {'one' if size == 2 else 'no'} group"
        for name, size in zip(coding.columns, coding.sizes, strict=True)
        if size <= 2
    ]
    found = GroupEffects(coding, losses, notes=tuple(notes))
    columns = [k for k, size in enumerate(coding.sizes) if size > 2]
    single = [((k,),) for k in columns]
    several = [tuple((k,) for k in columns)] if columns and pooling.jointly else single
    for candidates in (several, [(pair,) for pair in combinations(columns, 2)]):
        found = _add_terms(found, terms, codes, candidates, pooling)
    return found


def _add_terms(
    found: GroupEffects,
    terms: PooledTerms,
    codes: IntArray,
    candidates: Sequence[tuple[Term, ...]],
    pooling: Pooling,
) -> GroupEffects:
    """Add candidates, the most helpful first, as long as one clearly helps."""
    coding, notes, waiting = found.coding, list(found.notes), list(candidates)
    share, n_examples = terms.weights / terms.weights.sum(), float(terms.weights.sum())
    caution = NormalDist().inv_cdf(1.0 - pooling.level / max(len(candidates), 1))
    while waiting:
        crowded = [new for new in waiting if not _has_room(found, new, pooling.n_own)]
        notes += [f"{_name(coding, new)} has too many combinations" for new in crowded]
        waiting = [new for new in waiting if new not in crowded]
        trials = {}
        for new in waiting:
            fit = _fit((*found.terms, *new), terms, codes, coding, pooling)
            losses = terms.losses(fit.scores_left_out())
            trials[new] = _Trial(fit, losses, *mean_and_error(found.losses - losses, share))
        first = max(trials, key=lambda new: trials[new].gain, default=())
        if not first:
            break
        best = trials[first]
        if best.gain <= pooling.price * len(first) / n_examples + caution * best.error:
            notes += [
                f"{_name(coding, new)} was left out ({trial})" for new, trial in trials.items()
            ]
            break
        found = replace(found, terms=(*found.terms, *first), fit=best.fit, losses=best.losses)
        notes.append(f"{_name(coding, first)} was used ({best})")
        waiting.remove(first)
    return replace(found, notes=tuple(notes))


def _fit(
    used: Sequence[Term],
    terms: PooledTerms,
    codes: IntArray,
    coding: GroupCoding,
    pooling: Pooling,
) -> PooledFit:
    several = [_known_sizes(coding, term) for term in used]
    columns = [_combine(codes[:, term], n) for term, n in zip(used, several, strict=True)]
    return fit_pooled(
        terms,
        np.stack(columns, axis=1),
        [math.prod(sizes) for sizes in several],
        pooling.n_own,
        own_blocks=pooling.own_blocks,
        common_blocks=pooling.common_blocks,
    )


def _has_room(found: GroupEffects, new: tuple[Term, ...], n_own: int) -> bool:
    """Whether a pair has not too many groups to be fitted with what is used."""
    sizes = [math.prod(_known_sizes(found.coding, term)) for term in (*found.terms, *new)]
    return len(new[0]) == 1 or (sizes[-1] <= MOST_COMBINED and fit_densely(sizes, n_own))


def _known_sizes(coding: GroupCoding, term: Term) -> list[int]:
    """How many known groups each column of a term has."""
    return [coding.sizes[k] - 1 for k in term]


def _combine(codes: IntArray, sizes: list[int]) -> IntArray:
    """The combination (n,) of known groups, by codes (n, columns); -1 where one is not known."""
    known = (codes < np.array(sizes)).all(axis=1)
    return np.where(known, np.ravel_multi_index(codes.T, sizes, mode="clip"), -1)


def _name(coding: GroupCoding, terms: tuple[Term, ...]) -> str:
    if len(terms) > 1:
        return ", ".join(_name(coding, (term,)) for term in terms)
    term = terms[0]
    names = " x ".join(f"{coding.columns[k]!r}" for k in term)
    if len(term) > 1 or not coding.cut[term[0]]:
        return names
    points = [f"{point:.6g}" for point in coding.levels[term[0]]]
    shown = points if len(points) < PARTS else [*points[:2], "...", *points[-2:]]
    return f"{names}, cut at {', '.join(shown)},"
