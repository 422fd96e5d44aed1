"""`.csv`: text tables with commas, semicolons or tabs, and the names of the columns on top.

JSON lines (`.jsonl`), and a JSON list of objects, are tables too: each object is a row.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.types import AnyArray
from hokical.io._errors import report_damage
from hokical.io._labels import MISSING
from hokical.io._tables import Loaded, Table, read_text

#: Lists of scores in JSON, and how their columns are called.
_LISTS = {
    **dict.fromkeys(("logits", "scores"), "logit"),
    **dict.fromkeys(("probs", "proba", "probabilities"), "prob"),
}
_KIND = "a table (.csv) with columns logit_0, logit_1, ... and label"


class TextTable(Table):
    """Columns by the header, or by the keys of JSON objects."""

    #: Lines of the file before the first of the text.
    _before = 0

    def __init__(self, path: Path) -> None:
        self.path = path
        with report_damage(path, _KIND):
            self._text = read_text(path)
            if self._text.lstrip()[:1] in ("{", "["):
                self._text, self._before = _csv_of_json(self._text), -1
            first_line = self._text.lstrip().partition("\n")[0]
            self._delimiter = max(",;\t", key=first_line.count)
            head = [row for _, row in islice(self._rows(), 2)] or [[""]]
        names = [name.strip() for name in head[0]]
        if len(names) < 2 and not names[0].isidentifier():
            raise self.error(f"expected {_KIND}; found other text.", "Name another file.")
        if all(map(_is_number, names)) and names != [str(k) for k in range(len(names))]:
            problem = f"expected {_KIND}; found numbers in line 1."
            raise self.error(problem, "Name the columns there.")
        if len(head) < 2:
            raise self.error(f"expected {_KIND}; found 0 rows.", "Add rows.")
        super().__init__(path, names)

    def _load(self, scores: Sequence[str], others: Sequence[str]) -> Loaded:
        """Scores as numbers, NaN where there are none; other columns as text."""
        numbers, texts = ([self.names.index(name) for name in own] for own in (scores, others))
        kinds = dict.fromkeys(range(len(self.names)), "U1")  # of what is not used
        kinds |= dict.fromkeys(texts, "O") | dict.fromkeys(numbers, "f8")
        cells = np.dtype([(str(k), kind) for k, kind in kinds.items()])
        text = io.StringIO(self._text.lstrip("\r\n"))
        form: dict[str, Any] = {"delimiter": self._delimiter, "comments": None, "quotechar": '"'}
        try:
            table: AnyArray = np.loadtxt(text, cells, **form, skiprows=1, ndmin=1)
        except ValueError:  # percentages, decimal commas, missing values, and errors
            rows = [
                tuple(self._number(row[k], line, k) if k in numbers else row[k] for k in kinds)
                for line, row in self._checked_rows()
            ]
            table = np.array(rows, cells)
        rest = {name: table[str(k)].astype(np.str_) for name, k in zip(others, texts, strict=True)}
        return [table[str(k)] for k in numbers], rest

    def place(self, row: int) -> str:
        """Where an editor shows a row."""
        return f"line {next(islice(self._checked_rows(), row, None))[0]}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Each row that is not blank, after the number of its first line in the file."""
        reader = csv.reader(io.StringIO(self._text, newline=""), delimiter=self._delimiter)
        line = 1
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                yield line + self._before, row
            line = reader.line_num + 1

    def _checked_rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows below the header."""
        for line, row in islice(self._rows(), 1, None):
            if len(row) != len(self.names):
                raise self.error(
                    f"expected {len(self.names)} cells in a row, as in the first; found "
                    f"{len(row)} in line {line}.",
                    "Complete or drop the row, and name every column. Between commas, numbers "
                    "have a decimal point.",
                )
            yield line, row

    def _number(self, cell: str, line: int, column: int) -> float:
        """A cell as a number; a percentage as a fraction, NaN if it says that none is known."""
        text = cell.strip()
        if text.lower() in MISSING:
            return np.nan
        unit = 100.0 if text.endswith("%") else 1.0
        text = text.removesuffix("%").rstrip()
        if self._delimiter != "," and "." not in text:
            text = text.replace(",", ".")
        if _is_number(text):
            return float(text) / unit
        remedy = "Write a number there, or drop the row or column."
        if re.match(r"\s*[-+]?\d+,\d+", cell):
            remedy = "Write a decimal point, or put semicolons between the columns."
        where = f"line {line}, column `{self.names[column]}`"
        raise self.error(f"expected a number in {where}; found {cell!r}.", remedy)


def json_records(text: str) -> list[Any]:
    """The values of a JSON list, or of JSON lines; one alone is a list too."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    return found if isinstance(found, list) else [found]


def _csv_of_json(text: str) -> str:
    """JSON objects as a table with commas, a line each; lists of scores as a column each."""
    rows = []
    for row, record in enumerate(json_records(text)):
        if not isinstance(record, dict):
            raise ValueError(f"entry {row} is no JSON object but {json.dumps(record)[:40]}")
        cells: dict[str, Any] = {}
        for name, value in record.items():
            kind = _LISTS.get(name.strip().lower())
            if isinstance(value, list) and kind:
                if any(isinstance(each, (list, dict)) for each in value):
                    raise ValueError(f"`{name}` of entry {row} is not one list of numbers")
                cells |= {f"{kind}_{k}": each for k, each in enumerate(value)}
            elif not isinstance(value, (list, dict)):
                cells[name] = value
        rows.append({name: _cell(value) for name, value in cells.items()})
    names = [*dict.fromkeys(name for row in rows for name in row)]
    found = io.StringIO(newline="")
    table = csv.DictWriter(found, names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return found.getvalue()


def _cell(value: Any) -> str:
    """As a cell of one line."""
    return "" if value is None else " ".join(str(value).split())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
