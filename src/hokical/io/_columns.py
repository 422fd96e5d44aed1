"""Tables: which columns are logits, which the label, which the part; Parquet (extra `parquet`)."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.types import AnyArray
from hokical.io import _names as spelling
from hokical.io._errors import DataFileError, import_reader, report_damage
from hokical.io._names import ALL, LOGITS_AND_LABELS, WEIGHT_ARRAY, Arrays, Wanted, normalize

_NUMBERED = re.compile(r"(logits?|scores?|outputs?|class|c|z|)_?(\d+)")
_NUMBERED_PROBABILITY = re.compile(r"(p|prob(?:s|a|ability|abilities)?|softmax)_?(\d+)")
_ID = re.compile(r"(\w+_)?id")
#: Columns that number the rows; taken for a class they would silently spoil everything.
_ROW_NUMBERS = ("", "id", "idx", "index", "row", "unnamed:_0", "__index_level_0__")
#: Other numbers that tables hold beside logits, and that could be mistaken for a class.
_OTHER_NUMBERS = re.compile(
    r"conf|confidences?|score|pred|preds|prediction|predictions|predicted|(pred|predicted)_\w+"
    r"|y_pred|y_hat|(\w+_)?weights?|timestamp|time|date|(\w+_)?(id|idx|index)|fold|epoch|loss"
    r"|entropy|margin|correct"
)
#: Among the arrays of a table: names of its classes; what its kept columns begin with.
CLASSES, KEPT = "classes", "kept: "
#: Scores (n, classes), and labels, weights and kept columns (n,) where there are any, by name.
TableRows = Mapping[str, AnyArray | None]
_WANTED = "columns logit_0, logit_1, ... and label"
_NAME_CLASSES = (
    "Drop that column, name the columns of the logits logit_0, logit_1, ..., or say which columns "
    "are the classes: --classes cat,dog,..."
)
#: Rows that tell whether a column holds whole numbers: at least, and at most.
_FEW_ROWS, _LOOKED_AT = 20, 1000
KIND = "a Parquet table"


@dataclass(frozen=True)
class ColumnLayout:
    """Column indices: the logits in the order of the classes, the labels, the part, weights.

    `classes` are the names of the logits' columns if these are not numbered; `kept` are columns to
    read beside. Labels that do not exclude each other have a column each. `left_over` says that
    every column without another role was taken for a class.
    """

    logits: list[int]
    labels: int | list[int] | None
    split: int | None
    weights: int | None = None
    classes: tuple[str, ...] = ()
    kept: dict[str, int] = field(default_factory=dict)
    left_over: bool = False

    def all(self) -> list[int]:
        labels = self.labels if isinstance(self.labels, list) else [self.labels]
        others = (*labels, self.split, self.weights, *self.kept.values())
        return list(dict.fromkeys([*self.logits, *(i for i in others if i is not None)]))


def find_columns(
    path: Path, header: Sequence[str], wanted: Wanted = LOGITS_AND_LABELS
) -> ColumnLayout:
    """Read the roles of columns from their names."""
    names = [normalize(name) for name in header]
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataFileError(path, f"expected every column once; found `{twice}` twice.", "Rename.")
    index = {name: i for i, name in enumerate(names)}
    found = [spelling.first_known(index, words) for words in (spelling.LABELS, spelling.WEIGHTS)]
    labels: Any
    labels, weights = (None if name is None else index[name] for name in found)
    if wanted.multilabel:
        labels = None
    elif wanted.label_column is not None:
        option = "--right" if wanted.answers else "--label-column"
        labels = _find_column(path, index, wanted.label_column, option)
    split = index.get("split")
    kept = {header[i]: i for i in _kept_columns(path, index, wanted)}
    taken = (labels, split, weights, *kept.values())
    named = [normalize(name) for name in wanted.classes]
    rest = {name: i for name, i in index.items() if i not in taken or name in named}
    logits: list[int]
    called: tuple[str, ...] = ()  # the classes, by a pattern of the columns' names
    if not wanted.scores and (labels is not None or len(names) == 1):
        logits, labels = [], labels or 0
    elif wanted.score_columns:
        logits, called = _score_columns(path, header, wanted)
        if wanted.multilabel and wanted.label_column is not None:
            own = [wanted.label_column.replace("{class}", name) for name in called]
            labels = [_find_column(path, index, name, "--label-column") for name in own]
    elif wanted.binary_score is not None:
        option = "--confidence" if wanted.answers else "--binary-score"
        logits = [_find_column(path, index, wanted.binary_score, option)]
    elif named and set(named) <= set(index):
        logits = [index[name] for name in named]
    else:
        if labels is None:
            _refuse_multilabel(path, rest)
        logits = _logit_columns(path, rest, wanted)
    if wanted.keep == ALL:
        kept = {name: i for i, name in enumerate(header) if i not in logits}
    elif wanted.keep is None:  # a class may be called `id`
        kept = {name: i for name, i in kept.items() if i not in logits}
    patterns = (_NUMBERED, _NUMBERED_PROBABILITY)
    numbered = any(p.fullmatch(names[i]) for p in patterns for i in logits)
    classes = () if numbered or len(logits) < 2 else tuple(header[i] for i in logits)
    if any("{class}" in name for name in wanted.score_columns):
        classes = () if all(map(str.isdigit, called)) else called
    left_over = bool(classes) and not (wanted.classes or wanted.score_columns)
    return ColumnLayout(logits, labels, split, weights, classes, kept, left_over)


def _kept_columns(path: Path, index: dict[str, int], wanted: Wanted) -> list[int]:
    """The columns to keep; `ALL` is left to the caller, who knows the scores."""
    own = [_find_column(path, index, name, "--groups") for name in wanted.groups]
    if wanted.keep is None:
        return [*(i for name, i in index.items() if _ID.fullmatch(name)), *own]
    names = () if wanted.keep == ALL else wanted.keep
    option = "--timestamp" if wanted.unlabelled else "--keep"
    return [*(_find_column(path, index, name, option) for name in names), *own]


def _score_columns(
    path: Path, header: Sequence[str], wanted: Wanted
) -> tuple[list[int], tuple[str, ...]]:
    """The columns that are named, or that a pattern fits, and the classes' names in it."""
    pattern = wanted.score_columns[0]
    if "{class}" not in pattern:
        index = {normalize(name): i for i, name in enumerate(header)}
        names = wanted.score_columns
        return [_find_column(path, index, name, "--score-columns") for name in names], names
    start, _, end = pattern.partition("{class}")
    found = {
        name[len(start) : len(name) - len(end)]: i
        for i, name in enumerate(header)
        if name.startswith(start) and name.endswith(end) and len(name) > len(start + end)
    }
    missing = [name for name in wanted.classes if name not in found]
    if len(found) < 2 or missing:
        raise DataFileError(
            path,
            f"expected a column like {pattern} for every class; found {', '.join(header[:6])}"
            + (f", and none for {missing[0]}." if missing else "."),
            "Check --score-columns; `{class}` stands for the name of a class.",
        )
    numbers = all(name.isdigit() for name in found)
    names = wanted.classes or tuple(sorted(found, key=int) if numbers else found)
    return [found[name] for name in names], names


def _refuse_multilabel(path: Path, rest: dict[str, int]) -> None:
    for name in rest:
        if name.startswith("score_") and (own := name.replace("score", "label", 1)) in rest:
            raise DataFileError(
                path,
                f"expected {_WANTED}; found `{name}` and `{own}`.",
                "If these are labels that do not exclude each other, add --multilabel.",
            )


def _find_column(path: Path, index: dict[str, int], name: str, option: str) -> int:
    if normalize(name) in index:
        return index[normalize(name)]
    raise DataFileError(
        path,
        f"expected a column `{name}`, named by {option}; found {', '.join(index)}.",
        f"Check the name; a fit knows it too ({option} none: no such column)."
        if option == "--binary-score"
        else "Check the name.",
    )


def _logit_columns(path: Path, rest: dict[str, int], wanted: Wanted) -> list[int]:
    whole = spelling.first_known(rest, wanted.words)
    if whole is not None:  # one column that holds lists
        return [rest[whole]]
    pattern = _NUMBERED_PROBABILITY if wanted.probabilities else _NUMBERED
    numbered = _numbered_columns(path, rest, pattern)
    if len(numbered) >= 2:
        return numbered
    if not rest.keys().isdisjoint(map(normalize, wanted.classes)):  # one is missing
        return [_find_column(path, rest, name, "--classes or the fit") for name in wanted.classes]
    if not rest:
        raise DataFileError(
            path, f"expected {_WANTED}; found no other column.", "Rename the columns."
        )
    if wanted.probabilities and all(_NUMBERED.fullmatch(name) for name in rest):
        return _numbered_columns(path, rest, _NUMBERED)
    if not wanted.probabilities and all(_names_probability(name) for name in rest):
        raise spelling.probabilities_error(path, list(rest))
    if len(rest) == 1 and next(iter(rest)) not in _ROW_NUMBERS:
        return list(rest.values())  # of lists, or see `one_score_error`
    doubtful = next((name for name in rest if _is_no_logit(name, wanted)), None)
    if doubtful is not None:
        raise DataFileError(
            path,
            f"expected {_WANTED}; found `{doubtful}` beside others.",
            _NAME_CLASSES,
        )
    return list(rest.values())


def one_score_error(path: Path, name: str) -> DataFileError:
    """For a table with one column of scores, if it is not said what it is."""
    return DataFileError(
        path,
        f"expected {_WANTED}; found one column of scores, `{name}`.",
        f"If it is the score of class 1 of two, add --binary-score {name}.",
    )


def _is_no_logit(name: str, wanted: Wanted) -> bool:
    spare_label = name in spelling.LABELS and name != "y"  # the class may well be the letter y
    known = name in _ROW_NUMBERS or _OTHER_NUMBERS.fullmatch(name) is not None
    return known or spare_label or (not wanted.probabilities and _names_probability(name))


def _names_probability(name: str) -> bool:
    return spelling.are_probabilities([re.sub(r"_?\d+$", "", name)])


def _numbered_columns(path: Path, rest: dict[str, int], pattern: re.Pattern[str]) -> list[int]:
    """logit_0, logit_1, ... by their numbers: tools like to put logit_10 before logit_2."""
    groups: dict[str, dict[int, int]] = {}
    for name, i in rest.items():
        match = pattern.fullmatch(name)
        if match:
            groups.setdefault(match[1], {})[int(match[2])] = i
    columns = max(groups.values(), key=len, default={})
    first = min(columns, default=0)
    numbers = list(range(first, first + len(columns)))
    if first > 1 or sorted(columns) != numbers:
        raise DataFileError(
            path,
            f"expected logit columns numbered 0, 1, 2, ...; found {sorted(columns)}.",
            "Add the missing columns.",
        )
    return [columns[number] for number in numbers]


def split_rows(path: Path, rows: TableRows, parts: Any, classes: tuple[str, ...]) -> Arrays:
    """Arrays by name; where the table has a `split` column, `parts`, some for each part."""
    given = {name: array for name, array in rows.items() if array is not None}
    about: Arrays = {CLASSES: np.array(classes)} if classes else {}
    if parts is None:
        return {**given, **about}
    names = np.array([normalize(str(part)) for part in parts])
    found = {part: np.isin(names, spellings) for part, spellings in spelling.PARTS.items()}
    if not any(kept.any() for kept in found.values()):
        raise DataFileError(
            path,
            f"expected `split` to be val or test; found {sorted(set(names.tolist()))[:5]}.",
            "Rename the values, or drop the column.",
        )
    some = [(part, rows) for part, rows in found.items() if rows.any()]
    return {**{f"{p}_{n}": array[rows] for p, rows in some for n, array in given.items()}, **about}


def parquet_library(path: Path) -> Any:
    """`pyarrow.parquet`, or an error that says how to install it."""
    return import_reader(path, "pyarrow.parquet", KIND, "parquet")


def open_parquet(path: Path, wanted: Wanted = LOGITS_AND_LABELS) -> Arrays:
    """Logits from one column each or from one column of lists; labels from theirs."""
    parquet = parquet_library(path)
    with report_damage(path, KIND):
        stored = parquet.ParquetFile(path, page_checksum_verification=True)
        names = stored.schema_arrow.names
        layout = find_columns(path, names, wanted)
        if len(layout.logits) == 1 and wanted.binary_score is None:
            only = stored.schema_arrow.field(layout.logits[0])
            if "list" not in str(only.type):
                raise one_score_error(path, only.name)
        table = stored.read(columns=[names[index] for index in layout.all()])
        rows = table_rows(path, layout, arrow_columns(path, table, names, layout), wanted.array)
        return split_rows(path, *rows, layout.classes)


def table_rows(
    path: Path, layout: ColumnLayout, column: Callable[[int], AnyArray], scores: str = "logits"
) -> tuple[TableRows, Any]:
    """The rows of a table, whose columns are known by their index, and their parts."""
    parts = [column(index) for index in layout.logits]
    if layout.left_over:
        _refuse_whole_numbers(path, layout.classes, parts)
    listed = len(parts) == 1 and parts[0].ndim == 2
    logits = parts[0] if listed else np.stack(parts, axis=1) if parts else np.empty((0, 0))
    labels, weights, split = (
        np.stack([column(k) for k in index], axis=1)
        if isinstance(index, list)
        else None
        if index is None
        else column(index)
        for index in (layout.labels, layout.weights, layout.split)
    )
    kept = {KEPT + name: column(index) for name, index in layout.kept.items()}
    return {scores: logits, "labels": labels, WEIGHT_ARRAY: weights, **kept}, split


def _refuse_whole_numbers(path: Path, names: tuple[str, ...], columns: list[AnyArray]) -> None:
    """Raise for ages and counts among logits: whole numbers, more than two, beside fractions."""
    some = [np.unique(column[:_LOOKED_AT]) for column in columns if len(column) >= _FEW_ROWS]
    whole = [one.dtype.kind in "fiu" and bool(np.all(np.floor(one) == one)) for one in some]
    if any(whole) and not all(whole):
        odd = next((k for k, one in enumerate(some) if whole[k] and one.size > 2), None)
        if odd is not None:
            raise DataFileError(
                path,
                f"expected {_WANTED}; found `{names[odd]}`, whole numbers, beside others.",
                _NAME_CLASSES,
            )


def arrow_columns(
    path: Path, table: Any, names: Sequence[str], layout: ColumnLayout
) -> Callable[[int], AnyArray]:
    """The columns of a pyarrow table by their index: (n,), or (n, classes) of lists.

    With nulls, columns to keep are objects, so that whole numbers stay whole.
    """

    def column(index: int) -> AnyArray:
        found = table.column(names[index])
        if "list" in str(found.type):
            return _from_lists(path, found)
        if found.null_count and index in layout.kept.values():
            return np.array(found.to_pylist(), object)
        return np.asarray(found.to_numpy())

    return column


def _from_lists(path: Path, column: Any) -> AnyArray:
    rows = column.combine_chunks()
    lengths = set(rows.value_lengths().to_pylist())
    if len(lengths) > 1 or None in lengths:
        raise DataFileError(
            path,
            f"expected as many logits in every row; found {sorted(map(str, lengths))}.",
            "Fix or drop the odd rows.",
        )
    width = lengths.pop() if lengths else 0
    if len(rows) and not width:
        raise DataFileError(path, "expected logits in every row; found empty lists.", "Fill them.")
    return np.asarray(rows.flatten().to_numpy(zero_copy_only=False)).reshape(len(rows), width)
