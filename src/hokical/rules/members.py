"""How a fitted calibrator reads an ensemble: which members, and the pool of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np

from hokical._core import runtime
from hokical._core.arrays import Array, FloatArray, IntArray
from hokical._core.checks import ArrayOf, Checked
from hokical._core.ensembles import Ensemble
from hokical._core.logits import Logits
from hokical._core.schema import InputSchema
from hokical._core.storage import storable
from hokical.rules.base import Rule, WrappedRule
from hokical.rules.pooled import MemberLogits, Pool, pool_rows

if TYPE_CHECKING:
    from hokical._fitting.pooling import PoolFit

#: Fewer than this share of the passes of the fit are far fewer, and make a warning.
_FEW_PASSES = 0.5
#: Members are named up to this share of the gain.
_MOST_OF_THE_GAIN = 0.9


@storable("members")
@dataclass(frozen=True, eq=False)
class PooledMembers(Checked):
    """The members of a fit, the pool that was fitted for them, and what each is worth.

    Attributes
    ----------
    names : the members of the fit
    pool : how they become one row of logits
    losses : the held-out log loss (members,) of each member alone, at its temperature
    order : the members (members,) as a greedy search adds them, by number; None where
        they are exchangeable
    remaining : the held-out log loss (members,) of the first, the first two, ... of the
        order; None where there is none
    learned : whether examples taught the weights
    keep_first : whether predictions keep the labels of the first member
    """

    names: tuple[str, ...]
    pool: Pool
    losses: Annotated[FloatArray, ArrayOf((None,), 0.0, 1e300)]
    order: Annotated[IntArray, ArrayOf((None,), 0, 1 << 31, np.int64)] | None
    remaining: Annotated[FloatArray, ArrayOf((None,), 0.0, 1e300)] | None
    learned: bool = True
    keep_first: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        size = len(self.names)
        if self.order is None or self.remaining is None:
            consistent = (self.order is None) is (self.remaining is None)
            consistent &= self.exchangeable
        else:
            consistent = sorted(self.order.tolist()) == list(range(size))
            consistent &= self.remaining.size == self.pool.n_members == size
        if not consistent or self.losses.size != size:
            raise ValueError("`members` must say of each member what it is worth.")

    @classmethod
    def plain(cls, ensemble: Ensemble) -> Self:
        """The mean of the members' own probabilities, which nothing was learned for."""
        zeros = np.zeros(ensemble.n_members)
        names = ensemble.names
        if ensemble.exchangeable:
            pool = replace(Pool.plain(1), exchangeable=True)
            return cls(names, pool, zeros, None, None, learned=False)
        pool = Pool.plain(len(names))
        return cls(names, pool, zeros, np.arange(len(names)), zeros, learned=False)

    @classmethod
    def of(cls, ensemble: Ensemble, fit: PoolFit) -> Self:
        """The members of an ensemble as a pool was fitted for them."""
        if fit.pool.exchangeable:
            return cls(ensemble.names, fit.pool, fit.losses, None, None)
        order = np.array(fit.order, np.int64)
        return cls(ensemble.names, fit.pool, fit.losses, order, fit.remaining)

    @property
    def exchangeable(self) -> bool:
        return self.pool.exchangeable

    @property
    def needed(self) -> tuple[str, ...]:
        """The members with a weight; the others need not be evaluated."""
        if self.exchangeable:
            return self.names
        return tuple(self.names[v] for v in self._needed_indices)

    @property
    def _needed_indices(self) -> list[int]:
        first = {0} if self.keep_first else set()
        return sorted({*self.pool.needed} | first)

    @property
    def weights(self) -> np.ndarray:
        """The share (members,) that each has in the pool."""
        if self.exchangeable:
            return np.full(len(self.names), 1.0 / len(self.names))
        return self.pool.weights

    @property
    def gain_shares(self) -> np.ndarray:
        """The share (members,) of the gain on the best member that the first k have."""
        if self.remaining is None:
            raise ValueError("exchangeable members have no order, and equal shares.")
        gains = self.remaining[0] - self.remaining
        largest = gains.max()
        return gains / largest if largest > 0.0 else np.ones(gains.size)

    def read(self, ensemble: Ensemble, groups: object = None) -> Logits:
        """The pooled logits (n, classes) of checked members."""
        if ensemble.exchangeable != self.exchangeable:
            fitted = "" if self.exchangeable else "not "
            raise ValueError(
                f"`exchangeable` must be {self.exchangeable}, as in the fit, whose "
                f"members are {fitted}exchangeable; got {ensemble.exchangeable}."
            )
        if not self.exchangeable:
            ensemble = self._match(ensemble)
        else:
            self._warn_of_few(ensemble.n_members)
        return self.pool_needed(as_members(ensemble))

    def pool_all(self, members: MemberLogits) -> Logits:
        """The pooled logits (n, classes) of the members of the fit, in their order."""
        if self.exchangeable:
            return self.pool_needed(members)
        return self.pool_needed(members.select(self._needed_indices))

    def pool_needed(self, members: MemberLogits) -> Logits:
        """The pooled logits (n, classes) of the needed members, in their order."""
        pool = self.pool
        if not self.exchangeable:
            pool = pool.take(self._needed_indices)
        pooled = pool_rows(pool, members)
        return with_first_labels(pooled, members) if self.keep_first else pooled

    def choose(self, n_members: int) -> list[int]:
        """Which of `n_members` members without names are pooled, by number.

        They are all members of the fit, or those of them that are needed; any number if
        they are exchangeable.
        """
        if self.exchangeable:
            self._warn_of_few(n_members)
            return list(range(n_members))
        if n_members == len(self.names):
            return self._needed_indices
        if n_members == len(self.needed):
            return list(range(n_members))
        raise self._other_members(f"{n_members} without names")

    def _match(self, ensemble: Ensemble) -> Ensemble:
        """The needed members: by name or, where they have none, by their places."""
        if not ensemble.named:
            chosen = self.choose(ensemble.n_members)
            return _select(ensemble, [ensemble.names[v] for v in chosen])
        missing = [name for name in self.needed if name not in ensemble.names]
        if missing:
            raise self._other_members(
                f"{', '.join(ensemble.names)} ({', '.join(missing)} missing)"
            )
        return _select(ensemble, self.needed)

    def _other_members(self, got: str) -> ValueError:
        return ValueError(
            f"`members` must be those of the fit, or those of them that are needed: "
            f"{', '.join(self.needed)}; got {got}. Members that were not evaluated "
            "may be rows of NaN."
        )

    def _warn_of_few(self, n_members: int) -> None:
        if n_members < _FEW_PASSES * len(self.names):
            runtime.warn_user(
                f"the ensemble has {n_members} exchangeable members; the fit "
                f"had {len(self.names)}. Fewer are noisier, so that confidences are "
                "likely to be too high: pass about as many as in the fit."
            )

    def describe(self) -> str:
        """The members in a few words: which of them give most of the gain."""
        n = len(self.names)
        if not self.learned:
            return f"the mean of {n} members"
        if self.order is None or n == 1:
            return f"{n} {'exchangeable ' * self.exchangeable}members"
        shares = self.gain_shares
        used = shares[: len(self.pool.needed)]
        enough = min(_MOST_OF_THE_GAIN, used.max())  # `most_members` may give less
        k = int(np.argmax(used >= enough)) + 1
        names = ", ".join(self.names[v] for v in self.order[:k])
        if shares[0] == 1.0:
            return f"{n} members: {names} alone is as good as all"
        if enough <= 0.0:
            return f"{n} members, {used.size} used: {', '.join(self.needed)}"
        return f"{n} members: {k} give {shares[k - 1]:.0%} of the gain: {names}"

    def __str__(self) -> str:
        """A table: name, weight, held-out log loss alone and with the better ones.

        There are no losses where nothing was learned.
        """
        order = np.arange(len(self.names)) if self.order is None else self.order
        columns = [("weight", self.weights[order], 3)]
        if self.learned:
            columns.append(("log loss alone", self.losses[order], 4))
        if self.learned and self.remaining is not None:
            columns.append(("with those above", self.remaining, 4))
        width = max(len("member"), *map(len, self.names))
        lines = [f"{'member':{width}s}"]
        lines += [f"{self.names[v]:{width}s}" for v in order]
        for title, values, digits in columns:
            cells = [title, *(f"{x:{len(title)}.{digits}f}" for x in values)]
            lines = [f"{line}  {cell}" for line, cell in zip(lines, cells, strict=True)]
        return "\n".join(lines)


def _select(ensemble: Ensemble, names: Sequence[str]) -> Ensemble:
    """Some members; the same ensemble, whose array need not be copied, if it is all."""
    return ensemble if ensemble.names == tuple(names) else ensemble.select(names)


@dataclass(frozen=True, eq=False)
class MemberLabelsRule(WrappedRule):
    """`rule`, with the labels of the first member of an ensemble.

    The confidence is the probability that `rule` gives to that label.
    """

    name: ClassVar[str] = "member-labels"
    preserves_labels = False

    rule: Rule

    def labels(self, logits: Logits) -> Array:
        return logits.member_labels

    def confidence(self, logits: Logits) -> Array:
        columns = logits.member_labels[:, None]
        proba = self.rule.proba(logits)
        return logits.xp.take_along_axis(proba, columns, axis=1)[:, 0]

    def proba(self, logits: Logits) -> Array:
        return self.rule.proba(logits)


def with_first_labels(pooled: Logits, members: MemberLogits) -> Logits:
    """Pooled logits with the labels of the first member, where it was evaluated."""
    logits, evaluated = members.member(0)
    labels = members.xp.where(evaluated, logits.labels, pooled.labels)
    return replace(pooled, member_labels=labels)


def as_members(ensemble: Ensemble) -> MemberLogits:
    """The checked logits (members, n, classes) of an ensemble."""
    return MemberLogits(*ensemble.checked())


def pooled_members_of(schema: InputSchema) -> PooledMembers | None:
    """The members that a calibrator pools before its rule, in a module or a graph."""
    members = schema.members
    if members is None or isinstance(members, PooledMembers):
        return members
    raise ValueError(
        "`calibrator` must take one row of logits, or pool the members of an ensemble, "
        f"here; got one of {members.describe()}. Fit one on the members themselves: "
        "`hokical.auto(hokical.Ensemble(members), labels)`; of a "
        "`CalibratedClassifier`, pass `ensemble=False`."
    )
