"""Which columns of groups help, and the corrections of their groups, by partial pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.groups import GroupCoding
from hokical._core.portable import normal_quantile
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._fitting.likelihood import mean_and_error
from hokical._fitting.partial_pooling import PooledFit, fit_pooled
from hokical._fitting.pooled_terms import ScaleTerms, SoftmaxTerms

#: A column is used if that lowers the held-out log loss, by so many standard errors that a gain of
#: none would reach them with this chance, shared by the columns.
CHANCE = 0.025
#: Classes have biases by group up to this many; of more, there is a scale by group alone.
MAX_BIASED = 30


@dataclass(frozen=True, eq=False)
class SaidRows:
    """What is said of examples, held out where that matters: `log_proba` (n, classes), 0 where not
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

    def fit(self, coding: GroupCoding, columns: Sequence[int]) -> PooledFit:
        """Corrections by the groups of some columns, and a common one."""
        sizes = [coding.sizes[k] - 1 for k in columns]
        codes = self.codes[:, columns]
        codes = np.where(codes < np.array(sizes), codes, -1)
        offset = np.where(self.possible, self.log_proba, -np.inf)
        biased = self.log_proba.shape[1] <= MAX_BIASED
        kind: Any = SoftmaxTerms if biased else ScaleTerms
        terms = kind(self.log_proba, self.labels, offset, self.weights)
        blocks = [0] + [1] * (terms.n_features - 1)
        return fit_pooled(
            terms, codes, sizes, terms.n_features, own_blocks=blocks, common_blocks=blocks
        )


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """The columns that are used, their corrections as in `GroupedRule`, and why, in words."""

    columns: list[int]
    scale: FloatArray
    bias: FloatArray
    told: str


def learn_groups(rows: SaidRows, coding: GroupCoding) -> GroupEffects:
    """Add columns, the most helpful first, as long as one clearly helps on held-out examples."""
    share = rows.weights / rows.weights.sum()
    losses, used, best, told = rows.losses, list[int](), None, list[str]()
    caution = float(normal_quantile(np.array([1.0 - CHANCE / len(coding.columns)]))[0])
    waiting = [k for k, size in enumerate(coding.sizes) if size > 2]
    for name, size in zip(coding.columns, coding.sizes, strict=True):
        told += [f"{name!r} has {'one' if size == 2 else 'no'} group"] if size <= 2 else []
    while waiting:
        fits = {k: rows.fit(coding, [*used, k]) for k in waiting}
        held = {k: found.losses_left_out() for k, found in fits.items()}
        gains = {k: mean_and_error(losses - held[k], share) for k in waiting}
        k = max(waiting, key=lambda k: gains[k][0])
        gain, error = gains[k]
        if gain <= caution * error:
            told += [f"{_name(coding, k)} was left out ({_gain(*gains[k])})" for k in waiting]
            break
        used, best, losses = [*used, k], fits[k], held[k]
        told.append(f"{_name(coding, k)} was used ({_gain(gain, error)})")
        waiting.remove(k)
    return GroupEffects(used, *_tables(best), "; ".join(told))


def _name(coding: GroupCoding, k: int) -> str:
    if not coding.cut[k]:
        return f"{coding.columns[k]!r}"
    cut = ", ".join(f"{point:.6g}" for point in coding.levels[k])
    return f"{coding.columns[k]!r}, cut at {cut},"


def _gain(gain: float, error: float) -> str:
    which = "lower" if gain > 0.0 else "higher"
    return f"held-out log loss {which} by {abs(gain):.4f}, standard error {error:.4f}"


def _tables(found: PooledFit | None) -> tuple[FloatArray, FloatArray]:
    """Scales (groups,) and biases (groups, classes or 1), the common ones in the first column."""
    if found is None:
        return np.zeros(0), np.zeros((0, 1))
    parts = [np.vstack([table, np.zeros(table.shape[1])]) for table in found.groups]
    parts[0] = parts[0] + found.common
    whole = np.vstack(parts)
    return whole[:, 0], whole[:, 1:] if whole.shape[1] > 1 else np.zeros((len(whole), 1))
