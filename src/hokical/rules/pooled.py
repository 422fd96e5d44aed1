"""Several evaluations of each example, pooled into one row of logits.

The members of an ensemble are networks, models of several kinds, prompts, passes with
dropout, or one network on transformed inputs. With margins d_v (classes,) of member v
below its largest logit, its temperature T_v and p_v = softmax(-d_v / T_v), the pooled
logits are

    T ((1 - u) sum_v w_v (-d_v / T_v) + u log(sum_v w_v p_v)),    1 / T = sum_v w_v / T_v.

The weights w sum to 1. The first sum is a geometric mean of probabilities (a log-linear
pool), the second an arithmetic one (a linear pool); u is the linear share. The factor T
keeps the scale of the members' own logits: a single member is left as it is, and the
calibrator behind the pool chooses the scale.

A row of NaN says that a member was not evaluated: the others share its weight, in a fit
too (`_impute` of `_fitting/pooling.py`). A class is impossible (-inf) where every
evaluated member says so. A member that masks a class alone, or puts it very far below
the top, is outvoted: its margins count as `FARTHEST_MARGIN` temperatures at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from hokical._core import arrays
from hokical._core.arrays import (
    NUMPY,
    AnyArray,
    Array,
    Backend,
    BoolArray,
    FloatArray,
    IntArray,
)
from hokical._core.checks import (
    LARGEST_TEMPERATURE,
    LEAST_TEMPERATURE,
    ArrayOf,
    Checked,
    Share,
)
from hokical._core.logits import Logits, by_blocks, row_maxima
from hokical._core.special import row_sums
from hokical._core.storage import storable
from hokical.rules.base import add_floor

#: Largest margin of one member, in units of its temperature: 2e-22 of the top's
#: probability. No member can veto a class alone, and huge logits stay finite.
FARTHEST_MARGIN = 50.0
#: How far from 1 rounding to float32, as of a state dict, may put the sum of weights.
_ROUNDING = 1e-6


class MemberLogits(Logits):
    """Checked logits of several members, `tables` (n, classes) of each.

    `values` are those of the first. `top` (members, n) are the row maxima, NaN where a
    member was not evaluated. Rows are examples, so that blocks of rows are taken as of
    plain logits.
    """

    def __init__(
        self,
        tables: Sequence[Array],
        top: Array,
        backend: Backend = NUMPY,
        codes: object = None,
    ) -> None:
        super().__init__(tables[0], top, backend, codes)
        self.tables = tuple(tables)

    @property
    def n_members(self) -> int:
        return len(self.tables)

    @classmethod
    def from_array(cls, values: Array) -> Self:
        """Members from an array (members, n, classes) of any library, unchecked.

        >>> members = MemberLogits.from_array(np.zeros((3, 5, 2)))
        >>> members.n_members, members.n_rows, members.n_classes
        (3, 5, 2)
        """
        backend = arrays.backend_of(values) or NUMPY
        tables = [values[v, ...] for v in range(values.shape[0])]
        tops = [row_maxima(table, backend) for table in tables]
        return cls(tables, backend.namespace(values).stack(tops), backend)

    def select(self, chosen: Sequence[int]) -> Self:
        """Some of the members, by number.

        >>> MemberLogits.from_array(np.zeros((3, 5, 2))).select([2, 0]).n_members
        2
        """
        index = self.from_host(np.array(chosen))
        top = self.xp.take(self.top, index, axis=0)
        tables = [self.tables[v] for v in chosen]
        return type(self)(tables, top, self.backend, self.codes)

    @property
    def evaluated(self) -> BoolArray:
        """Which rows each member was evaluated on, (members, n) on the host."""
        return ~np.isnan(self.to_host(self.top))

    @property
    def labels(self) -> Array:
        """The label of the mean of the members' own probabilities, (n,)."""
        if self._labels is None:
            plain = Pool.plain(self.n_members)
            self._labels = self.xp.argmax(plain.pool(self).values, axis=1)
        return self._labels

    label_columns = labels

    @property
    def possible(self) -> Array:
        """Which classes are possible to some evaluated member, (n, classes)."""
        if self._possible is None:
            possible = self.values > -self.xp.inf  # False where it is NaN
            for table in self.tables[1:]:
                possible = possible | (table > -self.xp.inf)
            if self.is_numpy:
                possible = np.asarray(possible, order=self.order)
            self._possible = possible
        return self._possible

    @property
    def all_possible(self) -> bool:
        """Whether every class is known to be possible: a look at NumPy's values."""
        if self._all_possible is None:
            self._all_possible = self.is_numpy and self._look_for_masks()
        return self._all_possible

    def _look_for_masks(self) -> bool:
        with np.errstate(invalid="ignore"):  # NaN of members that were not evaluated
            lowest = min(table.min() for table in self.tables)
        return bool(lowest > -np.inf) or bool(self.possible.all())

    def member(self, index: int) -> tuple[Logits, Array]:
        """The logits of one member, zeros where missing; and where it is not, (n,)."""
        xp = self.xp
        top = self.top[index, ...]
        evaluated = ~xp.isnan(top)
        values = self.tables[index]
        if not self.is_numpy or not evaluated.all():
            values = xp.where(evaluated[:, None], values, xp.zeros_like(values))
            top = xp.where(evaluated, top, xp.zeros_like(top))
        return Logits(values, top, self.backend), evaluated

    def of_class(self, classes: IntArray) -> FloatArray:
        """The largest logit that a member has for one class per row, (n,)."""
        largest = np.full(classes.size, -np.inf)
        for v in range(self.n_members):
            single, evaluated = self.member(v)
            logits = single.of_class(classes)
            logits = np.where(self.to_host(evaluated), logits, -np.inf)
            np.maximum(largest, logits, out=largest)
        return largest

    def take(self, rows: AnyArray | slice) -> Self:
        """Examples selected by number or by a mask (host arrays), or by a slice."""
        if isinstance(rows, slice) or self.is_numpy:
            tables = [table[rows, ...] for table in self.tables]
            top = self.top[:, rows]
        else:
            is_mask = rows.dtype == np.bool_
            index = self.from_host(np.flatnonzero(rows) if is_mask else rows)
            tables = [self.xp.take(table, index, axis=0) for table in self.tables]
            top = self.xp.take(self.top, index, axis=1)
        codes = None if self.codes is None else self.codes[rows]
        return type(self)(tables, top, self.backend, codes)


PerMember = Annotated[FloatArray, ArrayOf(("members",), 0.0, 1.0)]


@storable("pool")
@dataclass(frozen=True, eq=False)
class Pool(Checked):
    """How members become one row of logits; see the module for the formula.

    `weights` and `temperatures` have a number for each member. If the members are
    `exchangeable`, they have one number for all, and any number of members is pooled,
    each with the same weight. `floors` (members,) are added to the members'
    probabilities first, where some of these are 0.

    >>> pool = Pool(np.array([0.5, 0.5]), np.array([1.0, 1.0]), linear_share=0.0)
    >>> members = MemberLogits.from_array(np.array([[[0.0, 1.0]], [[0.0, 3.0]]]))
    >>> pool.pool(members).values
    array([[-2.,  0.]])
    """

    weights: PerMember
    temperatures: Annotated[
        FloatArray, ArrayOf(("members",), LEAST_TEMPERATURE, LARGEST_TEMPERATURE)
    ]
    linear_share: Share
    exchangeable: bool = False
    floors: PerMember | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if abs(self.weights.sum() - 1.0) > _ROUNDING:
            raise ValueError(f"`weights` must sum to 1; got {self.weights}.")
        if self.exchangeable and self.weights.size != 1:
            raise ValueError(
                "`weights` must be one number for all members if they are "
                f"exchangeable; got {self.weights.size}."
            )
        if self.floors is not None and self.floors.size != self.weights.size:
            raise ValueError(
                f"`floors` must have a number for each of the {self.weights.size} "
                f"members; got {self.floors.size}."
            )

    @classmethod
    def plain(cls, n_members: int) -> Self:
        """The mean of the members' own probabilities, which nothing was fitted for."""
        ones = np.ones(n_members)
        return cls(ones / n_members, ones, linear_share=1.0)

    @property
    def n_members(self) -> int | None:
        """How many members it is for; None where any number is pooled."""
        return None if self.exchangeable else int(self.weights.shape[0])

    @property
    def needed(self) -> list[int]:
        """The members with a weight; the others need not be evaluated.

        >>> Pool(np.array([0.0, 1.0]), np.ones(2), 0.5).needed
        [1]
        """
        return np.flatnonzero(self.weights > 0.0).tolist()

    def take(self, chosen: Sequence[int]) -> Self:
        """The pool of some members, which have all the weight."""
        rows = list(chosen)
        return replace(
            self,
            weights=self.weights[rows],
            temperatures=self.temperatures[rows],
            floors=None if self.floors is None else self.floors[rows],
        )

    def on_device_of(self, members: Logits) -> Self:
        """The same pool with its arrays in the library and on the device of members."""
        if members.is_numpy:
            return self
        pool = object.__new__(type(self))
        for name, value in vars(self).items():
            moved = members.from_host(value) if isinstance(value, np.ndarray) else value
            object.__setattr__(pool, name, moved)
        return pool

    def pool(self, members: MemberLogits) -> Logits:
        """The pooled logits (n, classes), float64, in the library of the members.

        There are four tables (n, classes) of float64 at a time; give it blocks of rows
        (`pool_rows`) to bound the memory.
        """
        values = self.pooled_values(members)
        top = members.xp.max(values, axis=1)
        return Logits(values, top, members.backend, members.codes)

    def pooled_values(self, members: MemberLogits) -> Array:
        """Those of `pool`, without their maxima."""
        if self.n_members not in (None, members.n_members):
            raise ValueError(
                f"`members` must be the {self.n_members} members of the fit, in their "
                f"order; got {members.n_members}. Members that were not evaluated are "
                "rows of NaN."
            )
        if members.is_numpy:
            return self._pool_on_host(members)
        xp = members.xp
        geometric: Array = 0.0
        arithmetic: Array = 0.0
        total: Array = 0.0
        for index in self._members_used(members):
            i = 0 if self.exchangeable else index
            logits, evaluated = members.member(index)
            weight = xp.where(evaluated, self.weights[i], 0.0)[:, None]
            scores = self.member_scores(logits, i)
            odds = xp.exp(scores)
            geometric = geometric + weight * scores
            arithmetic = arithmetic + weight / row_sums(odds, xp)[:, None] * odds
            total = total + weight
        has_member = total > 0.0
        total = xp.where(has_member, total, 1.0)
        arithmetic = xp.log(xp.where(has_member, arithmetic / total, 1.0))
        u = self.linear_share
        pooled = (1.0 - u) / total * geometric + u * arithmetic
        pooled = members.put_masked(pooled / self._mean_beta(), -xp.inf)
        return xp.where(has_member, pooled, xp.nan)

    def _pool_on_host(self, members: MemberLogits) -> FloatArray:
        """The same of NumPy's, whose four tables are written again for each member."""
        shape = members.n_rows, members.n_columns
        room, term = (np.empty(shape, order=members.order) for _ in range(2))
        geometric = np.zeros_like(room)
        arithmetic = np.zeros_like(room)
        total = np.zeros((members.n_rows, 1))
        for index in self._members_used(members):
            i = 0 if self.exchangeable else index
            logits, evaluated = members.member(index)
            weight = self.weights[i] * evaluated[:, None]
            scores = self.member_scores(logits, i, out=room)
            np.multiply(scores, self.weights[i], out=term)
            if not evaluated.all():
                term *= evaluated[:, None]
            geometric += term
            np.exp(scores, out=scores)
            scores *= weight / row_sums(scores, np)[:, None]
            arithmetic += scores
            total += weight
        has_member = total > 0.0
        total[~has_member] = 1.0
        arithmetic[~has_member[:, 0]] = 1.0
        arithmetic *= 1.0 / total
        np.log(arithmetic, out=arithmetic)
        scale = 1.0 / self._mean_beta()
        arithmetic *= self.linear_share * scale
        geometric *= (1.0 - self.linear_share) * scale / total
        geometric += arithmetic
        pooled: FloatArray = members.put_masked(geometric, -np.inf)
        pooled[~has_member[:, 0]] = np.nan
        return pooled

    def _members_used(self, members: MemberLogits) -> range | list[int]:
        """Those without a weight are not looked at, so they need not be evaluated."""
        if self.exchangeable or not isinstance(self.weights, np.ndarray):
            return range(members.n_members)
        return self.needed

    def member_scores(
        self, logits: Logits, i: int, out: FloatArray | None = None
    ) -> Array:
        """Minus the margins in temperatures, (n, classes), in an array of its own.

        NumPy's are written to `out`.
        """
        xp = logits.xp
        if self.floors is not None:
            logits = add_floor(logits, self.floors[i])
        with arrays.ignore_overflow(xp):
            scores = logits.new_margins(-1.0 / self.temperatures[i], out)
        if not logits.is_numpy:
            return xp.clip(scores, -FARTHEST_MARGIN, None)
        if not scores.min() >= -FARTHEST_MARGIN:
            np.maximum(scores, -FARTHEST_MARGIN, out=scores)
        return scores

    def _mean_beta(self) -> Array:
        """The weighted mean of 1 / temperature."""
        return (self.weights / self.temperatures).sum()


#: Tables (n, classes) that are held at a time, for blocks that stay in the cache.
_N_TABLES = 2


def pool_rows(pool: Pool, members: MemberLogits) -> Logits:
    """The pooled logits (n, classes) of all rows, block by block."""

    def work(block: MemberLogits) -> Array:
        return on_device.pooled_values(block)

    on_device = pool.on_device_of(members)
    out = None
    if members.is_numpy:
        out = np.empty((members.n_rows, members.n_columns), order=members.order)
    values = by_blocks(work, members, _N_TABLES * members.n_columns, out=out)
    top = members.xp.max(values, axis=1)
    return Logits(values, top, members.backend, members.codes)
