"""Ensembles in files: several evaluations of each row.

| Where | Names |
|---|---|
| a table | `NAME:logit_*`, `NAME.prob_*`, ...: a member for each NAME |
| an archive | `logits_NAME`, `probs_NAME`, ...: an array (n, classes) of each member |
| an archive | `logits` (members, n, classes); `members` are the names, if any |
| several files | a member in each, read as any file of one row of scores |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hokical._core.arrays import AnyArray, BoolArray
from hokical._core.ensembles import Ensemble
from hokical._core.reading import Rows
from hokical.io.tables import Arrays, DataFileError, Table

if TYPE_CHECKING:
    from hokical.calibrators.calibrator import Calibrator
    from hokical.io.examples import Columns, Layout, Location

_SCORES = r"logit_.+|prob(?:a|ability)?_.+|logits|prob(?:s|a|abilities|ability)"
#: Columns of one member in a table, and its array in an archive.
_COLUMN = re.compile(rf"(?!(?:{_SCORES})$)(.+?)[:.]({_SCORES})", re.IGNORECASE)
_ARRAY = re.compile(r"(logits|probs|probabilities)_(.+)", re.IGNORECASE)
#: Arrays that may have a dimension for members, and those with their names.
_STACKED = ("logits", "probabilities", "probability", "proba", "probs", "")
_MEMBER_NAMES = ("members", "member_names")
#: Parts of a file, which are no members.
_PARTS = frozenset({"val", "test", "train"})
_HOW = (
    "columns `NAME:logit_*` or arrays `logits_NAME`, or a file for each member: "
    "--ensemble"
)
_SEPARATORS = re.compile(r"[\s_.-]+")


@dataclass(frozen=True)
class EnsembleLayout:
    """Which columns or arrays of a table hold the scores of each member.

    `layouts` are those of the members; labels, weights and all else are found by the
    first of them. Members that are not `named` are numbered.
    """

    layouts: Mapping[str, Layout]
    exchangeable: bool
    named: bool

    @property
    def first(self) -> Layout:
        return next(iter(self.layouts.values()))

    @property
    def table(self) -> Table:
        return self.first.table

    @property
    def wanted(self) -> Columns:
        return self.first.wanted

    @property
    def labels(self) -> str | None:
        return self.first.labels

    @property
    def weights(self) -> str | None:
        return self.first.weights

    @property
    def scores(self) -> tuple[str, ...]:
        return self.first.scores

    @property
    def unused(self) -> tuple[str, ...]:
        return ()

    def find_labels(
        self, labels: Location | None, column: str | None
    ) -> tuple[Table, str] | None:
        """Another table that has the labels, and their name in it."""
        return self.first.find_labels(labels, column)

    def read(
        self, table: Table | None = None, beside: tuple[Table, str] | None = None
    ) -> Rows:
        """The rows, whose scores are an Ensemble."""
        rows = {}
        for name, layout in self.layouts.items():
            labels = beside if layout is self.first else None
            rows[name] = layout.read(layout.table, labels)
        return combine_members(
            rows,
            self.table,
            self.wanted,
            exchangeable=self.exchangeable,
            named=self.named,
        )


def combine_members(
    rows: Mapping[str, Rows],
    table: Table,
    wanted: Columns,
    *,
    exchangeable: bool,
    named: bool = True,
) -> Rows:
    """Rows of an ensemble: the scores of each member, everything else of the first.

    Those of the first may lack rows of its `table`, those of the others have all.
    """
    first = next(iter(rows.values()))
    members = {}
    for name, evaluation in rows.items():
        if len(evaluation.used) != len(first.used):
            raise table.error(
                f"expected {len(first.used):,} rows of each member, as of the first; "
                f"found {len(evaluation.used):,} of {name}.",
                "Where a member was not evaluated, leave its scores empty (NaN).",
            )
        has_all = evaluation is not first and first.n_dropped
        members[name] = evaluation.scores[first.used] if has_all else evaluation.scores
    evaluated = np.any([~np.isnan(m).all(axis=1) for m in members.values()], axis=0)
    if not evaluated.all() and not wanted.drop_missing:
        row = np.flatnonzero(first.used)[np.argmin(evaluated)]
        raise table.error(
            "expected a member that was evaluated in every row; found none in "
            f"{table.place(int(row))}.",
            "Fill it in, or leave out such rows: --missing drop.",
        )
    base = _evaluated_rows(first, evaluated)
    names = [*members] if named else None
    scores = [*members.values()]
    if not evaluated.all():
        scores = [member[evaluated] for member in scores]
    ensemble = Ensemble(scores, names, exchangeable)
    metadata = dict(first.about)
    kinds = {evaluation.about.get("scores") for evaluation in rows.values()}
    if len(kinds) > 1:
        metadata.pop("scores", None)
    return replace(base, scores=ensemble, about=metadata, unused=())


def _evaluated_rows(first: Rows, evaluated: BoolArray) -> Rows:
    """The rows of the first member in which a member was evaluated."""
    if evaluated.all():
        return first
    used = first.used.copy()
    used[used] = evaluated
    labels, weights = (
        None if column is None else column[evaluated]
        for column in (first.labels, first.weights)
    )
    groups = first.groups and {
        k: column[evaluated] for k, column in first.groups.items()
    }
    return replace(first, labels=labels, weights=weights, groups=groups, used=used)


def are_named(table: Table) -> bool:
    """Whether the members of a table have names, by which they are matched."""
    has_names = table.first(*_MEMBER_NAMES) is not None
    return has_names or bool(named_members(table))


def named_members(table: Table) -> dict[str, Table]:
    """The part of a table with each member, by the names of columns or arrays.

    That of the first has all columns that are no scores of members, too.
    """
    by_member = dict[str, dict[str, str]]()
    for column in table.names:
        member, name = _member_of(table, column)
        if member is not None:
            by_member.setdefault(member, {})[name] = column
    scores = [name for names in by_member.values() for name in names.values()]
    beside = {name: name for name in others(table)}
    load = _Cached(table, scores).load
    return {
        member: table.select(columns if k else beside | columns, load)
        for k, (member, columns) in enumerate(by_member.items())
    }


def others(table: Table) -> list[str]:
    """The columns that are no scores of a member, by their names."""
    return [name for name in table.names if _member_of(table, name)[0] is None]


def _member_of(table: Table, column: str) -> tuple[str | None, str]:
    """The member that a column belongs to, and its name without it."""
    match = _COLUMN.fullmatch(column.strip())
    if match is not None:
        return match[1].strip(), match[2]
    prefix = "" if table.part is None else f"{table.part}_"
    name = column.strip()
    is_of_part = bool(prefix) and name.lower().startswith(prefix)
    match = _ARRAY.fullmatch(name[len(prefix) :] if is_of_part else name)
    if match is None or match[2].lower() in _PARTS or len(table.shape(column)) != 2:
        return None, column
    return match[2], f"{prefix if is_of_part else ''}{match[1]}"


class _Cached:
    """Scores of all members, which are read at once when the first is needed."""

    def __init__(self, table: Table, scores: Sequence[str]) -> None:
        self._table = table
        self._scores = scores
        self._loaded: Arrays = {}

    def load(self, scores: Sequence[str], others: Sequence[str]) -> Arrays:
        if scores and not self._loaded:
            self._loaded = self._table.read_columns(self._scores, ())
        beside = self._table.read_columns((), others) if others else {}
        return {**{name: self._loaded[name] for name in scores}, **beside}


def stacked_members(table: Table) -> dict[str, Table]:
    """The tables of the members of one array (members, n, classes), if there is one."""
    column = table.first(*_STACKED)
    shape = () if column is None else table.shape(column)
    if column is None or len(shape) != 3:
        return {}
    _refuse_other_order(table, column, shape)
    names = _stacked_names(table, shape[0])
    cached = _Cached(table, (column,))

    def select(v: int) -> Table:
        def load(scores: Sequence[str], others: Sequence[str]) -> Arrays:
            loaded = dict(cached.load(scores, others))
            return loaded | {name: loaded[name][v] for name in scores}

        names = table.names if v == 0 else [column]
        return table.select({name: name for name in names}, load)

    return {name: select(v) for v, name in enumerate(names)}


def _stacked_names(table: Table, n_members: int) -> tuple[str, ...]:
    column = table.first(*_MEMBER_NAMES)
    if column is None:
        return tuple(map(str, range(n_members)))
    names = tuple(map(str, table.read_column(column).tolist()))
    if len(names) != n_members or len({*names}) < n_members:
        raise table.error(
            f"expected the names of {n_members} members in `{column}`; found "
            f"{', '.join(names)}.",
            "Give each member a name of its own.",
        )
    return names


def _refuse_other_order(table: Table, column: str, shape: tuple[int, ...]) -> None:
    """Raise if the first dimension is that of rows, by the number of labels."""
    labels = table.first("label", "labels", "y")
    n_labels = 0 if labels is None else (*table.shape(labels), 0)[0]
    if n_labels == shape[0] != shape[1]:
        raise table.error(
            f"expected `{column}` as (members, n, classes) with n = {n_labels}, as "
            f"many as labels; found shape {shape}.",
            f"Save `{column}.transpose(1, 0, 2)`.",
        )


def check_members(table: Table, n_members: int, fitted: Calibrator | None) -> None:
    """Raise if a file has members and the fit had not, or the other way round.

    `n_members` is 0 for one row of scores for each example.
    """
    if fitted is None:
        return
    members = fitted.schema_.members
    if members is None and n_members:
        raise table.error(
            "expected one row of scores for each example, as in the fit; found "
            f"{n_members} members.",
            "Fit a calibrator on an ensemble, or keep the columns of one member.",
        )
    if members is not None and not n_members:
        raise table.error(
            f"expected the {len(members.names)} members of the fit "
            f"({', '.join(members.names[:4])}{', ...' * (len(members.names) > 4)}); "
            "found one row of scores for each example.",
            f"Pass the members: {_HOW}.",
        )


def is_exchangeable(fitted: Calibrator | None) -> bool:
    """Whether the members of a fit differ by chance alone."""
    members = None if fitted is None else fitted.schema_.members
    return members is not None and members.exchangeable


def name_members(paths: Sequence[Path], fitted_names: Sequence[str]) -> list[str]:
    """The names of members, by those of their files.

    What all files share at both ends of their names, or folders, says nothing. Names
    of a fit that occur in those of the files go before.

    >>> name_members([Path("val_vit.csv"), Path("val_resnet_50.csv")], ())
    ['vit', 'resnet_50']
    >>> name_members([Path("test-vit.npz")], ("resnet_50", "vit"))
    ['vit']
    """
    stems = [_stem(path) for path in paths]
    of_fit = [
        _name_of_fit(stem, fitted_names)
        or _name_of_fit(f"{path.parent.name} {stem}", fitted_names)
        for path, stem in zip(paths, stems, strict=True)
    ]
    if all(of_fit) and len({*of_fit}) == len(of_fit):
        return [str(name) for name in of_fit]
    if len({*stems}) < len(stems):
        stems = [f"{path.parent.name}_{_stem(path)}" for path in paths]
    if len({*stems}) < len(stems):
        twice = next(path for k, path in enumerate(paths) if stems[k] in stems[:k])
        raise DataFileError(
            twice,
            "has the name of another member.",
            "Give each file a name of its own.",
        )
    return _without_shared(stems)


def _stem(path: Path) -> str:
    """The name of a file without what says its format."""
    return Path(path.name.removesuffix(".gz")).stem


def _tokens(name: str) -> list[str]:
    return [token for token in _SEPARATORS.split(name.lower()) if token]


def _name_of_fit(stem: str, names: Sequence[str]) -> str | None:
    """The longest name of a fit that a file name has among its words."""
    text = f" {' '.join(_tokens(stem))} "
    matching = [name for name in names if f" {' '.join(_tokens(name))} " in text]
    return max(matching, key=len, default=None)


def _without_shared(stems: Sequence[str]) -> list[str]:
    """Names without the words that all of them begin or end with."""
    if len(stems) < 2:
        return [*stems]
    split = [re.findall(r"[^\s_.-]+[\s_.-]*", stem) or [stem] for stem in stems]
    shortest = min(map(len, split))
    n_first = 0
    while n_first < shortest - 1 and len({tokens[n_first] for tokens in split}) == 1:
        n_first += 1
    n_last = 0
    while (
        n_last < shortest - n_first - 1
        and len({tokens[-1 - n_last] for tokens in split}) == 1
    ):
        n_last += 1
    return [
        "".join(tokens[n_first : len(tokens) - n_last]).strip(" _.-") or stem
        for tokens, stem in zip(split, stems, strict=True)
    ]


def check_same_labels(path: Path, labels: AnyArray, first: AnyArray) -> None:
    """Raise if a member's file states other labels than that of the first."""
    differ = (labels >= 0) & (first >= 0) & (labels != first)
    if differ.any():
        raise DataFileError(
            path,
            "expected the labels of the first file; found others in "
            f"{int(differ.sum()):,} rows, the first in row {int(np.argmax(differ))}.",
            "Put the rows of all files in one order, or add a column `id`.",
        )
