"""Where predictions place the true class of examples: all that thresholds of sets rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from hokical._core.blocks import rows_per_block
from hokical._core.logits import Logits
from hokical._core.parallel import map_slices
from hokical._core.storage import pack_array, storable
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.guarantees._control import can_be_counts
from hokical.guarantees._group_names import GroupNames
from hokical.rules._base import Rule
from hokical.rules._sets import Kind, set_probabilities


@storable("conformity")
@dataclass(frozen=True, eq=False)
class Conformity:
    """The true class of each example, (n,) each.

    `labels` are the classes, `proba` their probabilities, `above` the sum of those that are
    likelier, `rank` their place (1: the likeliest), `weights` how much each counts, `unit` how much
    a new one may. `group` is their place among the `group_names`. `run` is the least probability
    from the likeliest class to the true one, in the order of the columns. Examples of a sample are
    those of the smallest `key`, which is random.
    """

    labels: IntArray
    proba: FloatArray
    above: FloatArray
    rank: IntArray
    weights: FloatArray | None = None
    unit: float = 1.0
    group: IntArray | None = None
    group_names: GroupNames | None = None
    run: FloatArray | None = None
    key: FloatArray | None = None

    @classmethod
    def from_rows(cls, rule: Rule, forms: Sequence[Logits], labels: IntArray) -> Self:
        """Of labelled rows in one or more `forms` of the same numbers, the worst of each."""
        found = [_place_truth(rule, form, labels) for form in forms]
        proba, above, rank, run = (np.stack(parts) for parts in zip(*found, strict=True))
        worst = proba.min(axis=0), above.max(axis=0), rank.max(axis=0).astype(np.int64)
        return cls(labels, *worst, run=run.min(axis=0))

    @property
    def n(self) -> int:
        return self.labels.size

    @property
    def counts(self) -> FloatArray:
        """How much each example counts, (n,)."""
        return np.ones(self.n) if self.weights is None else self.weights

    def scores(self, kind: Kind, penalty: float = 0.0, free_ranks: int = 0) -> FloatArray:
        """How strange each true class is, (n,): the score of `SetRule`."""
        if kind == "adaptive":
            found = self.above + penalty * np.maximum(self.rank - free_ranks, 0)
            return np.where(self.proba > 0.0, found, np.inf)
        if kind == "ordered" and self.run is None:
            raise ValueError(
                "ordered sets need examples that were noted for them. Call `certify(logits, "
                "labels)` first, with examples that nothing was fitted on."
            )
        return -(self.proba if kind == "smallest" or self.run is None else self.run)

    def take(self, rows: AnyArray | slice) -> Self:
        """Some of the examples."""
        some: dict[str, Any] = {name: array[rows] for name, array in self._arrays().items()}
        return replace(self, **some)

    @property
    def counted(self) -> bool:
        """Whether every example counts as one, or as a number of them."""
        return self.unit == 1.0 and can_be_counts(self.weights)

    def settled(self) -> Self:
        """The same without weights, if all are equal: their scale means nothing.

        Unless a new example may weigh more than each of these, as an item of many positions does.
        """
        if self.weights is None or self.counted or (self.weights != self.unit).any():
            return self
        return replace(self, weights=None, unit=1.0)

    def __add__(self, other: Self) -> Self:
        """Both lots of examples, without their groups."""
        joined: dict[str, Any] = {
            name: np.concatenate([array, getattr(other, name)])
            for name, array in self._arrays().items()
            if name not in ("weights", "group") and getattr(other, name) is not None
        }
        if self.weights is not None or other.weights is not None:
            joined["weights"] = np.concatenate([self.counts, other.counts])
        return type(self)(**joined, unit=max(self.unit, other.unit))

    def _arrays(self) -> dict[str, AnyArray]:
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: a for name, a in known.items() if isinstance(a, np.ndarray)}

    def to_stored(self) -> dict[str, Any]:
        """Arrays of as few bytes as hold the same numbers."""
        found: dict[str, Any] = {"unit": self.unit, "group_names": self.group_names}
        for name, array in self._arrays().items():
            small = array.astype(np.int32) if array.dtype.kind == "i" else array
            found[name] = pack_array(small)
        return found

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        """The inverse of `to_stored`; groups of 0.3, one text for all columns, are left out."""
        wide = {"i": np.int64, "f": np.float64}
        for name, value in stored.items():
            if isinstance(value, np.ndarray):
                stored[name] = value.astype(wide[value.dtype.kind])
        grouped = isinstance(stored.get("group_names"), GroupNames)
        old = {"draw"} if grouped else {"draw", "group", "group_names"}
        found = cls(**{name: value for name, value in stored.items() if name not in old})
        limits = [(found.labels, 0, 1 << 31), (found.rank, 1, 1 << 31), (found.proba, 0.0, 1.0),
                  (found.above, 0.0, 1e300), (found.counts, 1e-300, 1e300)]  # fmt: skip
        right = 0.0 < found.unit < np.inf and (found.group is not None) == grouped
        if found.group is not None and found.group_names is not None:
            limits += [(found.group, 0, len(found.group_names.names) - 1)]
        sizes = {array.shape for array in found._arrays().values()}
        inside = all(((a >= low) & (a <= most)).all() for a, low, most in limits)
        if not right or not inside or sizes != {(found.n,)}:
            raise ValueError("`conformity` must hold labels, ranks, probabilities and weights.")
        return found


def _place_truth(rule: Rule, logits: Logits, labels: IntArray) -> list[AnyArray]:
    """Probability, sum above, rank and run (n,) of the true class, in one pass."""
    here = rule.on_device_of(logits)
    columns = logits.from_host(np.arange(logits.n_classes))[None, :]

    def work(rows: slice) -> AnyArray:
        block, xp = logits.take(rows), logits.xp
        proba, truth = set_probabilities(here, block), logits.from_host(labels[rows])[:, None]
        own = xp.take_along_axis(proba, truth, axis=1)
        above = (proba > own) | ((proba == own) & (columns < truth))
        sums = xp.sum(xp.where(above, proba, 0.0), axis=1)
        ranks = xp.sum(xp.astype(above, xp.float64), axis=1) + 1.0
        best = xp.argmax(proba, axis=1)[:, None]
        between = (columns >= xp.minimum(best, truth)) & (columns <= xp.maximum(best, truth))
        run = xp.min(xp.where(between, proba, 1.0), axis=1)
        return logits.to_host(xp.stack([own[:, 0], sums, ranks, run]))

    with logits.backend.in_float64():
        step = rows_per_block(logits.n_classes, logits.backend.block_size)
        parts = map_slices(work, logits.n_rows, step, threads=logits.is_numpy)
    return [*np.concatenate(parts, axis=1)]
