"""Groups of rows: columns of names or of numbers, and a code for each group of a
column.

A column of numbers with more than `MANY` different values is cut at its quantiles; text
never is, nor are whole numbers that come alone and without a name: they are ids.
Calibrators that learned from groups get codes beside logits (`InputSchema.read`), or
the numbers themselves of columns that are `numeric`; guarantees by group go by the
values themselves (`GroupNames`), matched by name and meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from hokical._core import arrays
from hokical._core.arrays import AnyArray, Array, BoolArray, IntArray
from hokical._core.checks import show
from hokical._core.reading import (
    Rows,
    as_weights,
    check_length,
    frame_columns,
    to_numpy,
)
from hokical._core.runtime import warn_user
from hokical._core.storage import storable

#: Numbers with more different values than this are cut into the second number of bins;
#: in fits into the third, from the fourth number of examples on.
MANY = 20
N_BINS = 10
N_FINE_BINS = 30
FINE_FROM = 50_000
#: The name of a column that came without one, and of a row's group that is not known.
NAMELESS = "group"
UNKNOWN = "missing or unknown"
_MISSING = ("", "nan", "<NA>", "NaT")


@storable("groups")
@dataclass(frozen=True)
class GroupCoding:
    """By column its name, and its groups' names, or the points at which its numbers are
    cut.

    The codes of a column are 0, 1, ... in this order; the last is for rows whose group
    is missing or unknown. The `inputs` of a rule are codes, but for the numbers
    themselves in columns that are `numeric`: as () says, in none.
    """

    columns: tuple[str, ...]
    levels: tuple[tuple[Any, ...], ...]
    cut: tuple[bool, ...]
    numeric: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        fields = (self.columns, self.levels, self.cut)
        tuples = all(isinstance(field, tuple) for field in (*fields, *self.levels))
        texts = (
            tuples and self.columns and all(type(name) is str for name in self.columns)
        )
        if not texts or len({*map(len, fields)}) != 1:
            raise ValueError(
                "`groups` must be tuples of equally many columns (text) and levels."
            )
        for levels, cut in zip(self.levels, self.cut, strict=True):
            if len(set(levels)) != len(levels) or (cut and sorted(levels) != [*levels]):
                raise ValueError("`levels` must be different names, or rising numbers.")
        if self.numeric:
            self._check_numeric()

    def _check_numeric(self) -> None:
        """Raise unless numeric columns have numbers as levels."""
        is_tuple = isinstance(self.numeric, tuple)
        if not is_tuple or [*map(type, self.numeric)] != [bool] * len(self.columns):
            raise ValueError("`numeric` must be True or False for each column.")
        for column, is_numeric in enumerate(self.numeric):
            if is_numeric and not all(map(_is_number, self.levels[column])):
                raise ValueError("`levels` must be numbers where a column is numeric.")

    @classmethod
    def read(
        cls,
        groups: Any,
        n_rows: int,
        weights: AnyArray | None = None,
        n_bins: int = N_BINS,
    ) -> tuple[Self, IntArray]:
        """The groups that occur, in one or more columns, and the code (n, columns) of
        each row's.

        Rows of weight 0 are not looked at. See `read_columns`.
        """
        is_counted = slice(None) if weights is None else weights > 0.0
        learned = {}
        codes = []
        for name, column in read_columns(groups, n_rows).items():
            names, index = _distinct(column)
            learned[name] = _learn_levels(
                names, index[is_counted], n_bins, ids=name == NAMELESS
            )
            codes.append(_encode(names, index, *learned[name]))
        levels, cut = zip(*learned.values(), strict=True)
        return cls(tuple(learned), levels, cut), np.stack(codes, axis=1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each column has, the one for unknown groups included."""
        pairs = zip(self.levels, self.cut, strict=True)
        return tuple(len(levels) + 1 + cut for levels, cut in pairs)

    def codes(self, groups: Any, n_rows: int) -> IntArray:
        """The code (n, columns) of the group of each row."""
        columns = _same_columns(groups, n_rows, self.columns, "the fit")
        pairs = zip(map(_distinct, columns), self.levels, self.cut, strict=True)
        return np.stack(
            [_encode(*names, levels, cut) for names, levels, cut in pairs], axis=1
        )

    @property
    def has_numbers(self) -> bool:
        """Whether the inputs of a rule are numbers in some column."""
        return any(self.numeric)

    @property
    def input_dtype(self) -> str:
        """The type of the `inputs` of a rule."""
        return "float64" if self.has_numbers else "int64"

    def is_numeric(self, column: int) -> bool:
        """Whether a rule gets the numbers of a column instead of codes."""
        return bool(self.numeric) and self.numeric[column]

    def inputs(self, groups: Any, n_rows: int) -> Array:
        """What a rule gets (n, columns): codes, int64; or float64 if it needs numbers.

        A number is NaN where it is missing.
        """
        if not self.has_numbers:
            return self.codes(groups, n_rows)
        columns = _same_columns(groups, n_rows, self.columns, "the fit")
        inputs = []
        for k, (names, index) in enumerate(map(_distinct, columns)):
            if self.is_numeric(k):
                values = np.array([*map(_to_float, names)])[index]
            else:
                values = _encode(names, index, self.levels[k], self.cut[k])
            inputs.append(values.astype(np.float64))
        return np.stack(inputs, axis=1)

    def column_codes(self, inputs: Array, column: int, xp: arrays.Namespace) -> Array:
        """The codes (n,) of a column from the `inputs` (n, columns) of a rule."""
        values = inputs[:, column]
        if not self.is_numeric(column):
            return xp.astype(values, xp.int64) if self.has_numbers else values
        codes = xp.zeros_like(values)
        n_levels = len(self.levels[column])
        if self.cut[column]:
            for level in self.levels[column]:
                codes = xp.where(values >= level, codes + 1.0, codes)
            codes = xp.where(xp.isnan(values), n_levels + 1.0, codes)
        else:
            codes = codes + float(n_levels)
            for code, level in enumerate(self.levels[column]):
                codes = xp.where(values == level, float(code), codes)
        return xp.astype(codes, xp.int64)

    def codes_of_inputs(self, inputs: AnyArray) -> IntArray:
        """The codes (n, columns) from the `inputs` (n, columns) of a rule."""
        if not self.has_numbers:
            return np.asarray(inputs)
        columns = range(len(self.columns))
        return np.stack([self.column_codes(inputs, k, np) for k in columns], axis=1)

    def are_unknown(self, inputs: AnyArray) -> BoolArray:
        """Which rows (n, columns) are of no known group, or have no number."""
        unknown = inputs == np.array(self.sizes) - 1
        for column in range(len(self.sizes)):
            if self.is_numeric(column):
                unknown[:, column] = np.isnan(inputs[:, column])
        return np.asarray(unknown)

    def take(self, columns: list[int], numeric: Iterable[int] = ()) -> Self:
        """The coding of some of the columns, of which some are `numeric`."""
        flags = tuple(k in numeric for k in columns)
        return type(self)(
            columns=tuple(self.columns[k] for k in columns),
            levels=tuple(self.levels[k] for k in columns),
            cut=tuple(self.cut[k] for k in columns),
            numeric=flags if any(flags) else (),
        )

    def with_numbers(self) -> Self:
        """The same, numeric in all columns that can be: those that are cut, and
        fractions.

        Whole numbers of few different values may be names of groups.
        """
        flags = tuple(
            cut or (len(levels) > 2 and _are_fractions(levels))
            for levels, cut in zip(self.levels, self.cut, strict=True)
        )
        return replace(self, numeric=flags if any(flags) else ())

    def full_names(self, column: int) -> list[str]:
        """The names of a column's groups in the order of their codes.

        Where there are several columns, they begin with the name of theirs.
        """
        levels = self.levels[column]
        first = f"{self.columns[column]}=" if len(self.columns) > 1 else ""
        if self.cut[column]:
            names = _band_names(levels)
        else:
            names = [
                str(_text(name) if isinstance(name, float) else name) for name in levels
            ]
        return [f"{first}{name}" for name in (*names, UNKNOWN)]


def read_columns(groups: Any, n_rows: int) -> dict[str, AnyArray]:
    """Columns (n,) by name: of a mapping, a DataFrame, a table, a structured, 2-D or
    1-D array.
    """
    columns = _split_columns(groups)
    remedy = (
        "Pass an array (n,), or several columns as a mapping, a DataFrame or (n, "
        "columns)."
    )
    for name, column in columns.items():
        argument = "groups" if name == NAMELESS else f"groups[{name!r}]"
        check_length(column, n_rows, argument, remedy)
    if not columns:
        raise ValueError("`groups` must have at least one column; got none.")
    return columns


def _split_columns(groups: Any) -> dict[str, AnyArray]:
    """The columns of groups by name, of any length."""
    names: Iterable[Any] | None = frame_columns(groups) or None
    if isinstance(groups, Mapping):
        names = groups
    elif isinstance(groups, np.ndarray):
        names = groups.dtype.names
    if names is not None:
        return {str(name): _as_array(groups[name]) for name in names}
    array = _as_array(groups)
    if array.ndim == 2:
        return {str(k): array[:, k] for k in range(array.shape[1])}
    return {NAMELESS: array}


def _same_columns(
    groups: Any,
    n_rows: int,
    columns: Sequence[str],
    source: str,
    *,
    exact: bool = False,
) -> list[AnyArray]:
    """The columns (n,) of groups that have these names; a column alone needs none."""
    named = read_columns(groups, n_rows)
    if len(named) == len(columns) == 1 and NAMELESS in (*named, *columns):
        return [*named.values()]
    if not {*columns} <= {*named} or (exact and len(named) > len(columns)):
        exclusively = " and no others" if exact else ""
        raise ValueError(
            f"`groups` must have the columns of {source}, {', '.join(columns)}; got "
            f"{', '.join(named)}. Pass a mapping or a DataFrame with these "
            f"columns{exclusively}."
        )
    return [named[name] for name in columns]


def look_up(names: Sequence[Any], known: Sequence[Any]) -> list[int]:
    """The place of each name among those known; their number where it is not there.

    A number and its text are the same name, unless more than one known name has that
    text: a file of numbers alone is read as numbers, and one with a single word among
    them as text. A tuple is a name of several parts.
    """
    exact = {name: k for k, name in enumerate(known)}
    if all(name in exact for name in names):
        return [exact[name] for name in names]
    often = Counter(map(_text, known))
    alike = {_text(name): k for name, k in exact.items() if often[_text(name)] == 1}
    return [exact.get(name, alike.get(_text(name), len(exact))) for name in names]


def combine_codes(
    columns: Sequence[Array], sizes: Sequence[int], xp: arrays.Namespace
) -> Array:
    """The number (n,) of each row's combination of groups, from the codes (n,) of
    columns.

    A code that no group has is that of an unknown group, the last.
    """
    cell: Array = 0
    for codes, size in zip(columns, sizes, strict=True):
        is_unknown = (codes < 0) | (codes >= size)
        known_codes = xp.where(is_unknown, xp.full_like(codes, size - 1), codes)
        cell = cell * size + known_codes
    return cell


def count_rows(groups: Any) -> int:
    """How many rows an array, or several columns, have."""
    column = next(iter(groups.values()), ()) if isinstance(groups, Mapping) else groups
    try:
        return len(column)
    except TypeError as error:
        raise TypeError(
            "`groups` must be one group per row (n,), or several columns; got "
            f"{show(column)}."
        ) from error


def take_rows(groups: Any, rows: slice | IntArray) -> dict[str, AnyArray]:
    """Some of the rows of columns by name."""
    return {name: column[rows] for name, column in groups.items()}


def _as_array(column: object) -> AnyArray:
    if isinstance(column, (list, tuple)):
        return np.asarray(column, object)
    return to_numpy(column, "groups")


def _learn_levels(
    names: list[Any], place: IntArray, n_bins: int, *, ids: bool
) -> tuple[tuple[Any, ...], bool]:
    """The groups of some rows of a column, or where it is cut, and whether it is."""
    names_present = {names[k] for k in np.unique(place).tolist()} - {None}
    are_ids = ids and all(isinstance(name, int) for name in names_present)
    if (
        len(names_present) > MANY
        and not are_ids
        and all(_is_number(name) for name in names_present)
    ):
        numbers = np.array([*map(_to_float, names)])[place]
        points = np.nanquantile(numbers, np.arange(1, n_bins) / n_bins, method="higher")
        values = np.unique(numbers[~np.isnan(numbers)])
        points = np.unique(points)
        points = points[points > values[0]] if points[-1] > values[0] else values[1:2]
        if (values != np.floor(values)).any():
            # Halfway to the next lower value, so that a fraction that is rounded on its
            # way, to single precision say, stays on its side.
            with np.errstate(invalid="ignore"):
                halfway = (
                    0.5 * points + 0.5 * values[np.searchsorted(values, points) - 1]
                )
            points = np.unique(np.where(np.isfinite(halfway), halfway, points))
        return tuple(points.tolist()), True
    return tuple(
        sorted(names_present, key=lambda name: (isinstance(name, str), name))
    ), False


def _encode(
    names: list[Any], place: IntArray, levels: tuple[Any, ...], cut: bool
) -> IntArray:
    """The codes (n,) of rows whose names are at these places."""
    if not cut:
        return np.array(look_up(names, levels), np.int64)[place]
    values = np.array([*map(_to_float, names)])
    codes = np.searchsorted(levels, values, side="right")
    return np.asarray(np.where(np.isnan(values), len(levels) + 1, codes)[place])


def _cut_measured(column: AnyArray) -> tuple[float, ...]:
    """Where a column of many numbers that are not all whole is cut; else ()."""
    names, place = _distinct(column)
    values = {*names} - {None}
    if len(values) <= MANY or not _are_fractions([*values]):
        return ()
    return _learn_levels(names, place, N_BINS, ids=False)[0]


def _band_names(points: Sequence[float]) -> list[str]:
    """What the bands between numbers, and beyond the first and last, are called."""
    n_different = len({*map(float, points)})  # as many texts, with digits enough
    texts = ([f"{bound:.{digits}g}" for bound in points] for digits in range(6, 18))
    low_high = next(names for names in texts if len({*names}) == n_different)
    middle = [f"{low} to {high}" for low, high in pairwise(low_high)]
    return [f"below {low_high[0]}", *middle, f"{low_high[-1]} or more"]


def _name_bands(column: AnyArray, points: tuple[float, ...]) -> AnyArray:
    """A column with the names of bands in place of its numbers, if it is cut."""
    if not points:
        return column
    names, place = _distinct(column)
    codes = _encode(names, np.arange(len(names)), points, True)
    bands = np.array([*_band_names(points), None], object)[codes]
    for k, name in enumerate(names):
        if _is_no_number(name):
            bands[k] = name  # a group of its own, and not one without a number
    return np.asarray(bands[place])


def _without_numbers(column: AnyArray) -> AnyArray:
    """A column (n,) of the names that are no numbers, None in the place of others."""
    names, place = _distinct(column)
    texts = [name if _is_no_number(name) else None for name in names]
    return np.array([*texts, None], object)[place]


def _show_row(names: Sequence[str], columns: Sequence[AnyArray], row: int) -> str:
    """The group of a row, for readers."""
    values = [_tidy(column[row : row + 1].tolist()[0]) for column in columns]
    if len(values) == 1:
        return repr(values[0])
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{name}={value!r}" for name, value in pairs)


def _distinct(column: AnyArray) -> tuple[list[Any], IntArray]:
    """The different names of a column, each tidied once, and the place (n,) of each
    row's.
    """
    raw = column.tolist() if column.dtype.kind in "iufbUO" else column
    if column.dtype.kind not in "iubU":
        return _number(map(_tidy, raw))
    names, index = _number(raw)
    return [_tidy(name) for name in names], index


def _number(names: Iterable[Any]) -> tuple[list[Any], IntArray]:
    """The different names, and the place (n,) of each among them."""
    code: dict[Any, int] = {}
    codes = [code.setdefault(name, len(code)) for name in names]
    return list(code), np.array(codes, np.int64)


def _cells(columns: Iterable[AnyArray]) -> list[tuple[Any, ...]]:
    """The names of each row."""
    pairs = map(_distinct, columns)
    return list(
        zip(
            *([names[k] for k in index.tolist()] for names, index in pairs), strict=True
        )
    )


def _tidy(name: Any) -> Any:
    """A name that JSON can hold: text or a number as it is, others as text.

    None for what is missing: nothing, NaN, NaT, pandas' NA.
    """
    if type(name) in (int, float, str) and name == name and name not in _MISSING:
        return name  # most are: in a fraction of the time that their texts take
    if name is None or str(name) in _MISSING:
        return None
    name = name.item() if isinstance(name, np.generic) else name
    return name if isinstance(name, (bool, int, float, str)) else str(name)


def _to_float(name: Any) -> float:
    """A number, also one that came as text; NaN for anything else."""
    try:
        return float(name) if _is_number(name) or isinstance(name, str) else np.nan
    except (ValueError, OverflowError):  # an integer beyond float64 is no number, too
        return np.nan


def _is_no_number(name: object) -> bool:
    """Whether a name is there and cannot be read as a number."""
    return name is not None and bool(np.isnan(_to_float(name)))


def _text(name: Any) -> Any:
    """One text for a number in all its forms: 3, 3.0, "3", "03"; a tuple of those of
    a tuple.
    """
    if isinstance(name, tuple):
        return tuple(map(_text, name))
    if isinstance(name, str) and name.removeprefix("-").isdecimal():
        name = int(name)
    number = _to_float(name)
    if isinstance(name, int) or np.isnan(number):
        return None if name is None else str(name)
    return (
        str(int(number))
        if number.is_integer() and abs(number) < 2.0**53
        else repr(number)
    )


def _are_fractions(levels: Sequence[Any]) -> bool:
    """Whether these are finite numbers, and some are not whole."""
    numbers = [level for level in levels if _is_number(level)]
    if len(numbers) < len(levels) or not np.isfinite(numbers).all():
        return False
    return any(float(level) != round(level) for level in numbers)


def _is_number(name: Any) -> bool:
    return isinstance(name, (int, float)) and not isinstance(name, bool)


def check_rows_of(rows: Rows, scores: Any, labels: Any, n_rows: int) -> Rows:
    """Rows with checked scores and labels, and one weight and group for each."""
    weights = as_weights(rows.weights, n_rows)
    if rows.groups is not None:
        read_columns(rows.groups, n_rows)
    return replace(rows, scores=scores, labels=labels, weights=weights)


def code_groups(groups: Any, counting: BoolArray) -> tuple[GroupCoding, Array]:
    """The coding of groups (n,) that is learned from rows that count (n,), and the
    inputs of a rule for all rows, with numbers wherever there are any.
    """
    n_bins = N_FINE_BINS if np.count_nonzero(counting) >= FINE_FROM else N_BINS
    coding, inputs = GroupCoding.read(groups, counting.size, counting, n_bins)
    coding = coding.with_numbers()
    if coding.has_numbers:
        inputs = coding.inputs(groups, counting.size)
    tell_unknown(inputs[counting], coding)
    return coding, inputs


def tell_unknown(inputs: AnyArray, coding: GroupCoding, groups: object = None) -> None:
    """Warn of rows whose group is not known, with their number.

    One of them is shown if the `groups` behind the inputs are given.
    """
    unknown = coding.are_unknown(np.asarray(inputs))
    counts = unknown.sum(axis=0).tolist()
    if any(counts):
        by_column = zip(coding.columns, counts, strict=True)
        in_columns = ", ".join(f"{n:,} in {name!r}" for name, n in by_column if n)
        example = ""
        if groups is not None:
            columns = _same_columns(groups, len(inputs), coding.columns, "the fit")
            row = int(unknown.any(axis=1).argmax())
            example = f"; one is {_show_row(coding.columns, columns, row)}"
        warn_user(
            f"`groups` has rows, of {len(inputs):,}, whose group is missing or was not "
            f"in the fit: {in_columns}. They get the predictions for all groups "
            f"together{example}.",
            cause="groups that are not known",
        )


@storable("group-names")
@dataclass(frozen=True)
class GroupNames:
    """The values of the `columns` of each group.

    Measured numbers, of which hardly any comes twice, are named by the bands between
    the `cuts` of their column; a column of others has none, and () is no cut at all.
    """

    columns: tuple[str, ...]
    names: tuple[tuple[Any, ...], ...]
    cuts: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        values = [value for name in self.names for value in name]
        texts = all(isinstance(column, str) for column in self.columns)
        if not texts or any(isinstance(value, (list, dict)) for value in values):
            raise ValueError(
                f"`names` must be values of named columns; got {self.names} of "
                f"{self.columns}."
            )
        if {len(name) for name in self.names} != {len(self.columns)}:
            raise ValueError(
                f"`names` must have one value for each of the columns {self.columns}; "
                f"got {self.names}."
            )
        if self.cuts and len(self.cuts) != len(self.columns):
            raise ValueError("`cuts` must be those of each column.")
        if any([*points] != sorted({*points}) for points in self.cuts):
            raise ValueError("`cuts` must be rising numbers.")

    @classmethod
    def from_rows(cls, groups: Any, n_rows: int) -> tuple[Self, IntArray]:
        """The groups that occur, and the place (n,) of each row's among them."""
        columns = read_columns(groups, n_rows)
        cuts = tuple(map(_cut_measured, columns.values()))
        named = map(_name_bands, columns.values(), cuts)
        names, index = _number(_cells(named))
        return cls(tuple(columns), tuple(names), cuts if any(cuts) else ()), index

    def places(self, groups: Any, n_rows: int) -> IntArray:
        """The place (n,) of each row's group; the number of groups where it is not
        known.

        Columns are matched by name, in any order; values by `look_up`.
        """
        columns = _same_columns(groups, n_rows, self.columns, "`certify`", exact=True)
        cuts = self.cuts or ((),) * len(columns)
        names, index = _number(_cells(map(_name_bands, columns, cuts)))
        return np.array(look_up(names, self.names), np.int64)[index]

    def match(self, groups: Any, n_rows: int, what: str) -> tuple[IntArray, int]:
        """The place (n,) of each row's group, and the number of rows of unknown groups.

        The place of these is the number of groups. A warning counts them: `what` they
        get.
        """
        index = self.places(groups, n_rows)
        unknown = np.flatnonzero(index == len(self.names))
        if unknown.size:
            columns = _same_columns(groups, n_rows, self.columns, "`certify`")
            example = _show_row(self.columns, columns, int(unknown[0]))
            warn_user(
                f"`groups` has {unknown.size:,} of {n_rows:,} rows whose group was not "
                f"in `certify`, such as {example}: they {what}. Certify with examples "
                'of all groups, or ask for `by="new group"`, whose guarantee is for '
                "groups that were never seen."
            )
        return index, unknown.size

    def tell_new(self, groups: object, n_rows: int, what: str) -> None:
        """Warn of rows of unknown groups, which `what`, as `match` does.

        Measured numbers tell no groups here, as hardly any comes twice; text in their
        place does.
        """
        columns = _same_columns(groups, n_rows, self.columns, "`certify`", exact=True)
        measured = [self._is_measured(k) for k in range(len(columns))]
        names = {
            tuple(
                None if told else part
                for part, told in zip(name, measured, strict=True)
            ): None
            for name in self.names
        }
        known = GroupNames(self.columns, tuple(names))
        shown = {
            name: _without_numbers(column) if told else column
            for name, column, told in zip(self.columns, columns, measured, strict=True)
        }
        known.match(shown, n_rows, what)

    def _is_measured(self, column: int) -> bool:
        """Whether a column has many numbers that are not whole."""
        if self.cuts and self.cuts[column]:
            return True
        values = {name[column] for name in self.names} - {None}
        return len(values) > N_BINS and _are_fractions([*values])


def count_groups(place: IntArray | None) -> int:
    """How many groups occur among examples (n,) at these places."""
    return 0 if place is None else np.unique(place).size
