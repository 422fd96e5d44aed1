"""Which columns of a table are logits, which the label, which the part; for CSV and Parquet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io.errors import DataFileError
from hokical.io.lazy import Arrays
from hokical.io.names import (
    LABELS,
    LOGITS,
    PARTS,
    WEIGHT_ARRAY,
    WEIGHTS,
    are_probabilities,
    first_known,
    normalize,
    probabilities_error,
)

_NUMBERED = re.compile(r"(logits?|scores?|outputs?|class|c|z|)_?(\d+)")
#: Columns that number the rows; taken for a class they would silently spoil everything.
_ROW_NUMBERS = ("", "id", "idx", "index", "row", "unnamed:_0", "__index_level_0__")
#: Other numbers that tables hold beside logits, and that could be mistaken for a class.
_OTHER_NUMBERS = re.compile(
    r"conf|confidences?|score|pred|preds|prediction|predictions|predicted|(pred|predicted)_\w+"
    r"|y_pred|y_hat|(\w+_)?weights?|timestamp|time|date|(\w+_)?(id|idx|index)|fold|epoch|loss"
    r"|entropy|margin|correct"
)
_WANTED = "columns logit_0, logit_1, ... and label"


@dataclass(frozen=True)
class ColumnLayout:
    """Column indices: the logits in the order of the classes, the labels, the part, weights."""

    logits: list[int]
    labels: int | None
    split: int | None
    weights: int | None = None

    def all(self) -> list[int]:
        others = (self.labels, self.split, self.weights)
        return [*self.logits, *(i for i in others if i is not None)]


@dataclass(frozen=True, eq=False)
class TableRows:
    """Logits (n, classes), and labels, weights and parts (n,) where the table has them."""

    logits: NDArray[Any]
    labels: NDArray[Any] | None
    weights: NDArray[Any] | None
    parts: Sequence[Any] | None


def find_columns(path: Path, header: Sequence[str]) -> ColumnLayout:
    """Read the roles of columns from their names."""
    names = [normalize(name) for name in header]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataFileError(path, f"expected every column once; found `{twice}` twice.", "Rename.")
    index = {name: i for i, name in enumerate(names)}
    label, weight = first_known(index, LABELS), first_known(index, WEIGHTS)
    labels, split = (None if label is None else index[label]), index.get("split")
    weights = None if weight is None else index[weight]
    rest = {name: i for name, i in index.items() if i not in (labels, split, weights)}
    return ColumnLayout(_logit_columns(path, rest), labels, split, weights)


def _logit_columns(path: Path, rest: dict[str, int]) -> list[int]:
    whole = first_known(rest, LOGITS)
    if whole is not None:  # one column that holds lists
        return [rest[whole]]
    numbered = _numbered_columns(path, rest)
    if len(numbered) >= 2:
        return numbered
    if not rest:
        raise DataFileError(
            path, f"expected {_WANTED}; found no other column.", "Rename the columns."
        )
    if all(_names_probability(name) for name in rest):
        raise probabilities_error(path, list(rest))
    doubtful = next((name for name in rest if _is_no_logit(name)), None)
    if doubtful is not None:
        raise DataFileError(
            path,
            f"expected {_WANTED}; found `{doubtful}` beside others.",
            "Drop that column, or name the columns of the logits logit_0, logit_1, ...",
        )
    return list(rest.values())


def _is_no_logit(name: str) -> bool:
    spare_label = name in LABELS and name != "y"  # the class may well be the letter y
    known = name in _ROW_NUMBERS or _OTHER_NUMBERS.fullmatch(name) is not None
    return known or spare_label or _names_probability(name)


def _names_probability(name: str) -> bool:
    return are_probabilities([re.sub(r"_?\d+$", "", name)])


def _numbered_columns(path: Path, rest: dict[str, int]) -> list[int]:
    """logit_0, logit_1, ... by their numbers: tools like to put logit_10 before logit_2."""
    groups: dict[str, dict[int, int]] = {}
    for name, i in rest.items():
        match = _NUMBERED.fullmatch(name)
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


def split_rows(path: Path, rows: TableRows) -> Arrays:
    """Arrays by name; where the table has a `split` column, some for each part."""
    named = {"logits": rows.logits, "labels": rows.labels, WEIGHT_ARRAY: rows.weights}
    given = {name: array for name, array in named.items() if array is not None}
    if rows.parts is None:
        return given
    names = np.array([normalize(str(part)) for part in rows.parts])
    found = {part: np.isin(names, spellings) for part, spellings in PARTS.items()}
    if not any(kept.any() for kept in found.values()):
        raise DataFileError(
            path,
            f"expected `split` to be val or test; found {sorted(set(names.tolist()))[:5]}.",
            "Rename the values, or drop the column.",
        )
    return {
        f"{part}_{name}": array[kept]
        for part, kept in found.items()
        if kept.any()
        for name, array in given.items()
    }
