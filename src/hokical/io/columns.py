"""Which columns of a table are logits, which the label, which the part; for CSV and Parquet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io.errors import DataFileError
from hokical.io.names import (
    LABELS,
    PARTS,
    WEIGHT_ARRAY,
    WEIGHTS,
    Arrays,
    are_probabilities,
    first_known,
    normalize,
    probabilities_error,
)
from hokical.io.wanted import ALL, LOGITS_AND_LABELS, Wanted

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
_WANTED = "columns logit_0, logit_1, ... and label"


@dataclass(frozen=True)
class ColumnLayout:
    """Column indices: the logits in the order of the classes, the labels, the part, weights.

    `classes` are the names of the logits' columns if these are not numbered; `kept` are columns to
    read beside.
    """

    logits: list[int]
    labels: int | None
    split: int | None
    weights: int | None = None
    classes: tuple[str, ...] = ()
    kept: dict[str, int] = field(default_factory=dict)

    def all(self) -> list[int]:
        others = (self.labels, self.split, self.weights, *self.kept.values())
        return list(dict.fromkeys([*self.logits, *(i for i in others if i is not None)]))


@dataclass(frozen=True, eq=False)
class TableRows:
    """Scores (n, classes), and labels, weights, parts and kept columns (n,) where there are any."""

    logits: NDArray[Any]
    labels: NDArray[Any] | None
    weights: NDArray[Any] | None
    parts: Sequence[Any] | None
    kept: dict[str, NDArray[Any]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()


def find_columns(
    path: Path, header: Sequence[str], wanted: Wanted = LOGITS_AND_LABELS
) -> ColumnLayout:
    """Read the roles of columns from their names."""
    names = [normalize(name) for name in header]
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataFileError(path, f"expected every column once; found `{twice}` twice.", "Rename.")
    index = {name: i for i, name in enumerate(names)}
    label, weight = first_known(index, LABELS), first_known(index, WEIGHTS)
    labels, split = (None if label is None else index[label]), index.get("split")
    weights = None if weight is None else index[weight]
    kept = {header[i]: i for i in _kept_columns(path, index, wanted)}
    taken = (labels, split, weights, *kept.values())
    rest = {name: i for name, i in index.items() if i not in taken}
    named = [normalize(name) for name in wanted.classes]
    if not wanted.scores and (labels is not None or len(names) == 1):
        logits, labels = [], labels or 0
    elif wanted.binary_score is not None:
        logits = [_find_column(path, index, wanted.binary_score, "--binary-score")]
    elif set(named) & set(index):
        logits = [_find_column(path, index, name, "--classes") for name in wanted.classes]
    else:
        logits = _logit_columns(path, rest, wanted)
    if wanted.keep == ALL:
        kept = {name: i for i, name in enumerate(header) if i not in logits}
    numbered = any(
        p.fullmatch(names[i]) for p in (_NUMBERED, _NUMBERED_PROBABILITY) for i in logits
    )
    classes = () if numbered or len(logits) < 2 else tuple(header[i] for i in logits)
    return ColumnLayout(logits, labels, split, weights, classes, kept)


def _kept_columns(path: Path, index: dict[str, int], wanted: Wanted) -> list[int]:
    """The columns to keep; `ALL` is left to the caller, who knows the scores."""
    if wanted.keep is None:
        return [i for name, i in index.items() if _ID.fullmatch(name)]
    names = () if wanted.keep == ALL else wanted.keep
    return [_find_column(path, index, name, "--keep or --timestamp") for name in names]


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
    whole = first_known(rest, wanted.words)
    if whole is not None:  # one column that holds lists
        return [rest[whole]]
    numbered = _numbered_columns(
        path, rest, _NUMBERED_PROBABILITY if wanted.probabilities else _NUMBERED
    )
    if len(numbered) >= 2:
        return numbered
    if not rest:
        raise DataFileError(
            path, f"expected {_WANTED}; found no other column.", "Rename the columns."
        )
    if wanted.probabilities and all(_NUMBERED.fullmatch(name) for name in rest):
        return _numbered_columns(path, rest, _NUMBERED)
    if not wanted.probabilities and all(_names_probability(name) for name in rest):
        raise probabilities_error(path, list(rest))
    if len(rest) == 1 and next(iter(rest)) not in _ROW_NUMBERS:
        return list(rest.values())  # of lists, or see `one_score_error`
    doubtful = next((name for name in rest if _is_no_logit(name, wanted)), None)
    if doubtful is not None:
        raise DataFileError(
            path,
            f"expected {_WANTED}; found `{doubtful}` beside others.",
            "Drop that column, name the columns of the logits logit_0, logit_1, ..., or say "
            "which columns are the classes: --classes cat,dog,...",
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
    spare_label = name in LABELS and name != "y"  # the class may well be the letter y
    known = name in _ROW_NUMBERS or _OTHER_NUMBERS.fullmatch(name) is not None
    return known or spare_label or (not wanted.probabilities and _names_probability(name))


def _names_probability(name: str) -> bool:
    return are_probabilities([re.sub(r"_?\d+$", "", name)])


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


def split_rows(path: Path, rows: TableRows, name: str = "logits") -> Arrays:
    """Arrays by name; where the table has a `split` column, some for each part."""
    named = {name: rows.logits, "labels": rows.labels, WEIGHT_ARRAY: rows.weights}
    named |= {KEPT + name: array for name, array in rows.kept.items()}
    given = {name: array for name, array in named.items() if array is not None}
    about: Arrays = {CLASSES: np.array(rows.classes)} if rows.classes else {}
    if rows.parts is None:
        return {**given, **about}
    names = np.array([normalize(str(part)) for part in rows.parts])
    found = {part: np.isin(names, spellings) for part, spellings in PARTS.items()}
    if not any(kept.any() for kept in found.values()):
        raise DataFileError(
            path,
            f"expected `split` to be val or test; found {sorted(set(names.tolist()))[:5]}.",
            "Rename the values, or drop the column.",
        )
    parts = {
        f"{part}_{name}": array[kept]
        for part, kept in found.items()
        if kept.any()
        for name, array in given.items()
    }
    return {**parts, **about}
