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

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.groups import PARTS, GroupCoding
from hokical._fitting.examples import mean_and_error
from hokical._fitting.partial_pooling import (
    MOST_DENSE,
    PooledFit,
    TooManyGroupsError,
    fit_pooled,
)
from hokical._fitting.pooled_terms import PooledTerms

#: Columns whose groups, or combinations of groups, have corrections.
Term = tuple[int, ...]
#: Examples for each combination of groups that a pair has on average at least, and numbers in the
#: dense block of a fit with pairs at most.
_LEAST_EXAMPLES, _MOST_DENSE = 4, 300


@dataclass(frozen=True)
class Pooling:
    """How groups are fitted, and from when on they are used.

    Blocks, and how `alike` groups are, are those of `fit_pooled`. A gain has to exceed a `price`
    for each term, in nats of all examples, and so many standard errors that a gain of none would
    reach them with the probability `level`, shared by the candidates. Columns are used one by one,
    or `jointly`.
    """

    level: float
    price: float = 0.0
    jointly: bool = False
    own_blocks: Sequence[int] | None = None
    common_blocks: Sequence[int] | None = None
    alike: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """The terms that are used, their fit, its held-out losses (n,), and why, in words.

    `shift` is what held-out scores without groups are above the offset of the fit.
    """

    coding: GroupCoding
    losses: FloatArray
    fit: PooledFit | None = None
    shift: FloatArray | float = 0.0
    terms: tuple[Term, ...] = ()
    notes: tuple[str, ...] = ()

    def tables(self) -> dict[Term, FloatArray]:
        """Corrections (groups, features), with a row for unknown groups in each column."""
        found = {}
        for term, table in zip(self.terms, self.fit.groups if self.fit else (), strict=True):
            sizes = self.sizes(term)
            known = table.reshape(*sizes, -1)
            whole = np.pad(known, [*[(0, 1) for _ in sizes], (0, 0)])
            found[term] = whole.reshape(-1, table.shape[1])
        return found

    def sizes(self, term: Term) -> list[int]:
        """How many known groups each column of a term has."""
        return [self.coding.sizes[k] - 1 for k in term]

    def named(self, term: Term) -> str:
        """The names of the columns, and where a single one is cut."""
        names = " x ".join(f"{self.coding.columns[k]!r}" for k in term)
        if len(term) > 1 or not self.coding.cut[term[0]]:
            return names
        points = [f"{point:.6g}" for point in self.coding.levels[term[0]]]
        shown = points if len(points) < PARTS else [*points[:2], "...", *points[-2:]]
        return f"{names}, cut at {', '.join(shown)},"


def learn_groups(
    terms: PooledTerms, codes: IntArray, without: GroupEffects, pooling: Pooling
) -> GroupEffects:
    """Add columns, the most helpful first, as long as one clearly helps; then pairs of columns.

    `codes` (n, columns) are of groups by the coding of what is known `without` groups: held-out
    losses, and a fit if there is one.
    """
    alike = [
        f"{name!r} has {'one' if size == 2 else 'no'} group"
        for name, size in zip(without.coding.columns, without.coding.sizes, strict=True)
        if size <= 2
    ]
    columns = [(k,) for k, size in enumerate(without.coding.sizes) if size > 2]
    several = [tuple(columns)] if pooling.jointly and columns else [(term,) for term in columns]
    found = replace(without, notes=tuple(alike))
    for candidates in (several, [((*a, *b),) for a, b in combinations(columns, 2)]):
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
    notes, total = list(found.notes), float(terms.weights.sum())
    waiting = {new: ", ".join(map(found.named, new)) for new in candidates}
    caution = NormalDist().inv_cdf(1.0 - pooling.level / max(len(candidates), 1))
    while waiting:
        trials = []
        for new in list(waiting):
            with_new = _fit(replace(found, terms=(*found.terms, *new)), terms, codes, pooling)
            if with_new is None:
                notes.append(f"{waiting.pop(new)} has too many combinations")
            else:
                gain, error = mean_and_error(found.losses - with_new.losses, terms.weights / total)
                trials.append((gain, error, new, with_new))
        trials.sort(key=lambda trial: -trial[0])
        for gain, error, new, with_new in trials:
            clear = gain > pooling.price * len(new) / total + caution * error
            notes.append(
                f"{waiting.pop(new)} was {'used' if clear else 'left out'} (held-out log loss "
                f"{'lower' if gain > 0.0 else 'higher'} by {abs(gain):.4f}, standard error "
                f"{error:.4f})"
            )
            if clear:  # the others are tried again, beside it
                found = with_new
                break
    return replace(found, notes=tuple(notes))


def _fit(
    wanted: GroupEffects, terms: PooledTerms, codes: IntArray, pooling: Pooling
) -> GroupEffects | None:
    """The terms that are wanted with their fit; None if the last is a pair of too many groups."""
    several = [wanted.sizes(term) for term in wanted.terms]
    sizes, is_pair = [math.prod(each) for each in several], len(wanted.terms[-1]) > 1
    if is_pair and sizes[-1] * _LEAST_EXAMPLES > len(codes):
        return None
    try:
        fit = fit_pooled(
            terms,
            np.stack([*map(_combine, (codes[:, k] for k in wanted.terms), several)], axis=1),
            sizes,
            own_blocks=pooling.own_blocks,
            common_blocks=pooling.common_blocks,
            start=wanted.fit,
            alike=pooling.alike,
            most_dense=_MOST_DENSE if is_pair else MOST_DENSE,
        )
    except TooManyGroupsError:
        if is_pair:
            return None
        raise
    return replace(wanted, fit=fit, losses=terms.losses(fit.scores_left_out() + wanted.shift))


def _combine(codes: IntArray, sizes: list[int]) -> IntArray:
    """The combination (n,) of known groups, by codes (n, columns); -1 where one is not known."""
    known = (codes < np.array(sizes)).all(axis=1)
    return np.where(known, np.ravel_multi_index(codes.T, sizes, mode="clip"), -1)
