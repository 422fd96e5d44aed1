"""What was said of the true class of examples with labels: all that thresholds of sets rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from hokical._core.blocks import rows_per_block
from hokical._core.groups import look_up, match_cells, read_cells
from hokical._core.logits import Logits
from hokical._core.parallel import map_slices
from hokical._core.storage import pack_array, storable
from hokical._core.topk import TopK
from hokical._core.topk_checks import EMPTY
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.guarantees._control import can_be_counts, remembered
from hokical.guarantees._row_sketch import row_hashes
from hokical.guarantees._score_table import ScoreTable
from hokical.rules._base import Rule
from hokical.rules._probabilities import LEAST
from hokical.rules._scaling import SoftmaxRule
from hokical.rules._sets import Kind, set_probabilities

#: Probabilities that are nearer to each other, relative, may be equal.
_TIE = 1e-12


@storable("conformity")
@dataclass(frozen=True, eq=False)
class Conformity:
    """The true class of each example, (n,) each.

    `labels` are the classes, `proba` their probabilities, `above` the sum of those that are
    likelier, `rank` their place (1: the likeliest), `draw` the row's number in [0, 1) for
    randomised sets, `weights` how much each counts, `unit` how much a new one may. `group` is an
    index of `group_names`, the values of the `group_columns` (files of 0.3 have one text for all
    columns). `run` is the least probability from the likeliest class to the true one, in the order
    of the columns. `level` is that of the label's score, and `wrong` whether the label is.
    """

    labels: IntArray
    proba: FloatArray
    above: FloatArray
    rank: IntArray
    draw: FloatArray
    weights: FloatArray | None = None
    unit: float = 1.0
    group: IntArray | None = None
    group_names: tuple[Any, ...] = ()
    run: FloatArray | None = None
    group_columns: tuple[str, ...] = ()
    level: IntArray | None = None
    wrong: IntArray | None = None

    def __post_init__(self) -> None:
        sizes = {array.shape for array in self._arrays().values()}
        if len(sizes) != 1 or len(next(iter(sizes))) != 1:
            raise ValueError("`conformity` must hold arrays of one length.")
        if not ((self.proba >= 0.0) & (self.proba <= 1.0)).all():
            raise ValueError("`conformity` must hold probabilities.")
        if any(a.dtype.kind != "i" for a in (self.labels, self.rank)) or (self.rank < 1).any():
            raise ValueError("`conformity` must hold labels, and ranks from 1 up.")
        if not ((self.above >= 0.0) & (self.above < np.inf)).all() or (self.labels < 0).any():
            raise ValueError("`conformity` must hold sums of probabilities, and labels from 0 up.")
        weights = np.append(self.counts, self.unit)
        if not ((weights > 0.0) & np.isfinite(weights)).all():
            raise ValueError("`conformity` must hold weights above 0.")
        if self.group is not None and not (
            self.group.dtype.kind == "i"
            and ((self.group >= 0) & (self.group < len(self.group_names))).all()
            and all(self._is_name(name) for name in self.group_names)
        ):
            raise ValueError("`conformity` must hold groups, and a name for each.")

    def _is_name(self, name: Any) -> bool:
        parts = name if self.group_columns else (name,)
        right = isinstance(parts, tuple) and len(parts) == max(len(self.group_columns), 1)
        return right and not any(isinstance(part, list | dict | tuple) for part in parts)

    @classmethod
    def from_rows(
        cls,
        rule: Rule,
        forms: Sequence[Logits],
        labels: IntArray,
        hashes: FloatArray | None = None,
    ) -> Self:
        """Of labelled rows in one or more `forms` of the same numbers, the worst of each.

        Their `row_hashes` (n,) may be known.
        """
        draw = row_draws(forms[0], hashes)
        found = [_place_truth(rule, form, labels) for form in forms]
        proba, above, rank, run = (np.stack(parts) for parts in zip(*found, strict=True))
        worst = proba.min(axis=0), above.max(axis=0), rank.max(axis=0).astype(np.int64)
        return cls(labels, *worst, draw, run=run.min(axis=0))

    @property
    def n(self) -> int:
        return self.labels.size

    @property
    def counts(self) -> FloatArray:
        """How much each example counts, (n,)."""
        return np.ones(self.n) if self.weights is None else self.weights

    def scores(
        self, kind: Kind, penalty: float = 0.0, free_ranks: int = 0, seed: int | None = None
    ) -> FloatArray:
        """How strange each true class is, (n,): the score of `SetRule`."""
        if kind == "ordered":
            if self.run is None:
                raise ValueError(
                    "ordered sets need examples that were noted for them. Call `certify(logits, "
                    "labels)` first, with examples that nothing was fitted on."
                )
            return -self.run
        if kind == "smallest":
            return -self.proba
        share = 0.0 if seed is None else shift_draw(self.draw, seed)
        found = self.above + share * self.proba + penalty * np.maximum(self.rank - free_ranks, 0)
        return np.where(self.proba > 0.0, found, np.inf)

    def take(self, rows: AnyArray | slice) -> Self:
        """Some of the examples."""
        some: dict[str, Any] = {name: array[rows] for name, array in self._arrays().items()}
        return replace(self, **some)

    def with_groups(self, groups: Any) -> Self:
        """The same with the group of each example: columns of them, see `read_columns`."""
        columns, cells = read_cells(groups, self.n)
        return self._with_cells(columns, cells)

    def _with_cells(self, columns: tuple[str, ...], cells: Sequence[Any]) -> Self:
        codes: dict[Any, int] = {}
        group = np.array([codes.setdefault(cell, len(codes)) for cell in cells], np.int64)
        return replace(self, group=group, group_names=tuple(codes), group_columns=columns)

    def match_groups(self, groups: Any, n_rows: int) -> IntArray:
        """The place (n,) of each row's group among `group_names`; their number if it is unknown."""
        if self.group_columns:
            return match_cells(groups, n_rows, self.group_columns, self.group_names)
        _, cells = read_cells(groups, n_rows)  # a file of 0.3
        names = [cell[0] if len(cell) == 1 else ", ".join(map(str, cell)) for cell in cells]
        return np.array(look_up(names, self.group_names), np.int64)

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

    def score_table(self, rows: Any = slice(None)) -> ScoreTable:
        """Counts by the level of the label's score."""
        if self.level is None or self.wrong is None:
            raise ValueError(
                '`by="group"` needs examples that were noted for it, and this file is older. Call '
                "`certify(logits, labels, groups=groups)` again."
            )
        return ScoreTable.from_examples(
            self.level[rows], self.wrong[rows] > 0, self.counts[rows] if self.n else None
        )

    def score_tables(self) -> list[ScoreTable]:
        """The same for each group."""
        if self.group is None or not self.counted:
            raise ValueError(
                '`by="group"` needs examples with groups that count alike. Call `certify(logits, '
                "labels, groups=groups)` first."
            )
        own, names = self.group, range(len(self.group_names))
        return remembered(self, "tables", lambda: [self.score_table(own == k) for k in names])

    def __add__(self, other: Self) -> Self:
        """Both lots of examples, with their groups where both have such."""
        joined: dict[str, Any] = {
            name: np.concatenate([array, getattr(other, name)])
            for name, array in self._arrays().items()
            if name not in ("weights", "group") and getattr(other, name) is not None
        }
        if self.weights is not None or other.weights is not None:
            joined["weights"] = np.concatenate([self.counts, other.counts])
        found = type(self)(**joined, unit=max(self.unit, other.unit))
        if self.group is None or other.group is None:
            return found
        if {*self.group_columns} != {*other.group_columns}:
            raise ValueError("`groups` must have the same columns in all parts.")
        order = [other.group_columns.index(name) for name in self.group_columns]
        own = [self.group_names[k] for k in self.group]
        cells = [other.group_names[k] for k in other.group]
        if order:
            cells = [tuple(cell[k] for k in order) for cell in cells]
        return found._with_cells(self.group_columns, [*own, *cells])

    def _arrays(self) -> dict[str, AnyArray]:
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: a for name, a in known.items() if isinstance(a, np.ndarray)}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_stored, (self._narrow() | self._others(),)

    def to_stored(self) -> dict[str, Any]:
        return {name: pack_array(a) for name, a in self._narrow().items()} | self._others()

    def _others(self) -> dict[str, Any]:
        names = ("unit", "group_names", "group_columns")
        return {name: getattr(self, name) for name in names}

    def _narrow(self) -> dict[str, AnyArray]:
        """Arrays of as few bytes as hold the same numbers."""
        kept = self._arrays()
        narrow = {"labels": np.int32, "rank": np.int32, "group": np.int32, "draw": np.float32,
                  "level": np.int16, "wrong": np.int8}  # fmt: skip
        return kept | {
            name: kept[name].astype(kind) for name, kind in narrow.items() if name in kept
        }

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> Self:
        wide = {"i": np.int64, "f": np.float64}
        arrays = {name: a for name, a in stored.items() if isinstance(a, np.ndarray)}
        return cls(**stored | {name: a.astype(wide[a.dtype.kind]) for name, a in arrays.items()})


def row_draws(logits: Logits, hashes: FloatArray | None = None) -> FloatArray:
    """A number in [0, 1) for each row (n,), of 24 bits; from its `row_hashes` if known."""
    hashes = row_hashes(logits) if hashes is None else hashes
    return np.asarray(np.floor(hashes * 2.0**24) * 2.0**-24)


def shift_draw(draw: FloatArray, seed: int) -> FloatArray:
    """Other numbers in [0, 1) for another seed."""
    return np.asarray((draw + seed * 0.6180339887498949) % 1.0)


def _place_truth(rule: Rule, logits: Logits, labels: IntArray) -> list[AnyArray]:
    """Probability, sum above, rank and run (n,) of the true class, in one pass."""
    if isinstance(logits, TopK) and isinstance(rule, SoftmaxRule):
        return _place_among_best(logits, rule.temperature, labels)
    here, columns = (
        rule.on_device_of(logits),
        logits.from_host(np.arange(logits.n_classes))[None, :],
    )

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


def _place_among_best(seen: TopK, temperature: float, truth: IntArray) -> list[AnyArray]:
    """The same under a softmax, without a column for each of perhaps a million classes.

    Where classes tie but for rounding, the worst is assumed.
    """
    columns, known = seen.indices, seen.indices != EMPTY
    proba, hidden = _probabilities_of_best(seen, temperature)
    is_truth, before = columns == truth[:, None], known & (columns < truth[:, None])
    found = is_truth.any(axis=1)
    own = np.where(found, np.max(proba, axis=1, where=is_truth, initial=0.0), hidden)
    above = known & ~is_truth & (proba >= own[:, None] * (1.0 - _TIE))
    others = np.where(found, seen.hidden * (hidden > own), truth - before.sum(axis=1))
    sums = np.sum(proba, axis=1, where=above) + others * hidden
    ends = known & (proba >= proba[:, :1] * (1.0 - _TIE))
    first = np.min(columns, axis=1, where=ends, initial=seen.n_classes)
    last = np.max(columns, axis=1, where=ends, initial=0)
    first, last = np.minimum(first, truth)[:, None], np.maximum(last, truth)[:, None]
    between = known & (columns >= first) & (columns <= last)
    run = np.min(proba, axis=1, where=between, initial=1.0)
    all_seen = between.sum(axis=1) == (last - first)[:, 0] + 1
    run = np.where(all_seen, run, np.minimum(run, hidden))
    return [own, sums, above.sum(axis=1) + others + 1, run]


def _probabilities_of_best(seen: TopK, temperature: float) -> tuple[FloatArray, FloatArray]:
    """`set_probabilities` of the classes that are seen (n, k), and of a hidden one (n,)."""
    weights, tail = np.exp(-seen.margins / temperature), seen.tail
    rest = weights[:, 1:].sum(axis=1) + tail.count * np.exp(-tail.margin / temperature)
    confidence = 1.0 / (1.0 + rest)
    proba = weights * ((1.0 - confidence) / np.where(rest > 0.0, rest, 1.0))[:, None]
    proba[:, 0] = confidence
    possible = (seen.indices != EMPTY) & seen.possible
    proba = np.where(possible, np.maximum(proba, LEAST), 0.0)
    least = np.min(proba, axis=1, where=possible, initial=1.0)
    left = np.maximum(1.0 - proba.sum(axis=1), 0.0)
    return proba, np.nextafter(np.minimum(least, left), 0.0)
