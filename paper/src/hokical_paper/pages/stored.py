"""Results as a small JSON file, and pages of documentation whose tables come from it.

A page marks the place of a table with the lines `<!-- paper: NAME -->` and `<!-- end
-->`; what is between them is replaced. `findings` is the list of sentences.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hokical.io import DataFileError
from hokical_paper.core.files import report_damage, write_text_atomically
from hokical_paper.published import BIN_COUNTS
from hokical_paper.tables.method_columns import PAPER
from hokical_paper.tables.render import to_markdown
from hokical_paper.tables.table import Cell, Row, Table

RESULTS = "results.json"
FINDINGS = "findings"
_BLOCK = re.compile(r"(<!-- paper: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PICTURE = re.compile(r"\]\((assets/paper_(\w+)\.png)\)")
_TABLE = re.compile(r"\]\((tables/(\w+)\.csv)\)")

Stored = dict[str, Any]


def store_results(
    path: Path, tables: Mapping[str, Table], findings: Sequence[str] = ()
) -> None:
    """Add tables and sentences to a file; those of other runs in it stay."""
    stored = read_stored(path) if path.exists() else {}
    stored |= {name: _to_dict(table) for name, table in tables.items()}
    if findings:
        stored[FINDINGS] = list(findings)
    write_stored(path, stored)


def read_stored(path: Path) -> Stored:
    """The content of a file of results."""
    if not path.is_file():
        raise DataFileError(path, "no such file.", "`hokical paper all` writes it.")
    with report_damage(path, "the results of `hokical paper all`"):
        stored: Stored = json.loads(path.read_text(encoding="utf-8"))
    return stored


def write_stored(path: Path, stored: Stored) -> None:
    """One line per table, so that changes can be read in a diff."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(stored[name])}" for name in sorted(stored)
    ]
    write_text_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def fill_page(text: str, stored: Stored) -> str:
    """The page with every marked block replaced by what is stored under its name.

    >>> fill_page(
    ...     "<!-- paper: findings -->\\n<!-- end -->", {"findings": ["It holds."]}
    ... )
    '<!-- paper: findings -->\\n- It holds.\\n<!-- end -->'
    """
    return _BLOCK.sub(
        lambda found: f"{found[1]}{_block(found[2], stored)}{found[3]}", text
    )


def update_page(page: Path, results: Path | None = None) -> list[Path]:
    """Fill a page from a file of results, or from the JSON file beside the page; what
    was written.

    With `results`, what the page shows or links to is stored beside it: pictures that
    it shows as `assets/paper_NAME.png` are copied from the folder `figures` next to the
    results, tables that it links to as `tables/NAME.csv` from the folder `tables`.
    """
    beside = page.with_suffix(".json")
    text = page.read_text(encoding="utf-8")
    stored = read_stored(beside if results is None else results)
    filled = fill_page(text, stored)
    written = [page]
    write_text_atomically(page, filled)
    if results is None:
        return written
    linked = {match[2]: match[1] for match in _TABLE.finditer(filled)}
    names = {match[2] for match in _BLOCK.finditer(text)} | set(linked)
    write_stored(beside, {name: stored[name] for name in names})
    copies = {
        page.parent / match[1]: results.parent / "figures" / f"{match[2]}.png"
        for match in _PICTURE.finditer(text)
    }
    for name, place in linked.items():
        copies[page.parent / place] = results.parent / "tables" / f"{name}.csv"
    for target, source in copies.items():
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)
    return [*written, *copies, beside]


def _block(name: str, stored: Stored) -> str:
    if name not in stored:
        raise ValueError(
            f"no {name!r} in the results; they have {', '.join(sorted(stored))}."
        )
    if name == FINDINGS:
        return "".join(f"- {text}\n" for text in stored[name])
    body = to_markdown(_from_dict(name, stored[name])).partition("\n\n")[
        2
    ]  # without its heading
    return f"\n{body}\n"


#: By how much a number on a page may differ from one computed anew, by table: other
#: processors and versions of the libraries round differently, which can move an example
#: across the edge of a bin.
TOLERANCES = {
    "ece": 5e-4,
    "ece_mass": 5e-4,
    "smooth_ece": 5e-4,
    "brier": 2e-4,
    "log_loss": 1e-3,
    "init": 5e-4,
    "variance": 2e-4,
    "accuracy": 5e-4,
    "top_k": 5e-4,
    "theorem_1": 2e-3,
    "noise": 5e-3,
    **{f"ece_{bins}": 1e-3 for bins in BIN_COUNTS if bins != 15},
}


def moved_cells(stored: Stored, tables: Mapping[str, Table]) -> tuple[int, list[str]]:
    """How many numbers were compared, and a line for each that moved by more than its
    tolerance.

    Rows of pairs that were not run anew are left out; a column that is no longer
    computed, or one that the page does not have, is a difference. Times and what is not
    a number are not compared.
    """
    lines = []
    compared = 0
    for name in (name for name in TOLERANCES if name in stored and name in tables):
        page = _from_dict(name, stored[name])
        anew = tables[name]
        odd = sorted(set(page.columns) ^ set(anew.columns))
        lines += [
            f"{name}: only the page or only the results have a column {x!r}"
            for x in odd
        ]
        before_by_cell = _cells(page)
        for key, text in _cells(anew).items():
            if key[2] != PAPER and key[3] in page.columns and _is_number(text):
                before = before_by_cell.get(key, "nothing")
                compared += 1
                if (
                    not _is_number(before)
                    or abs(float(before) - float(text)) > TOLERANCES[name]
                ):
                    lines.append(
                        f"{name}, {', '.join(key)}: {before} on the page, now {text}"
                    )
    return compared, lines


def _cells(table: Table) -> dict[tuple[str, str, str, str], str]:
    """The text of each cell by heads, source and column."""
    return {
        (*row.heads, row.source, column): cell.text
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
    }


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+\.\d+", text) is not None


def _to_dict(table: Table) -> dict[str, Any]:
    """What Markdown shows of a table."""
    rows = [
        [
            *row.heads,
            row.source,
            [[c.text, c.mark] if c.mark else c.text for c in row.cells],
        ]
        for row in table.rows
    ]
    return {
        "title": table.title,
        "heads": list(table.heads),
        "columns": list(table.columns),
        "rows": rows,
        "notes": list(table.notes),
        "lead": table.lead,
    }


def _from_dict(name: str, plain: Mapping[str, Any]) -> Table:
    rows = [
        Row((first, second), source, tuple(map(_cell, cells)))
        for first, second, source, cells in plain["rows"]
    ]
    first, second = plain["heads"]
    columns = tuple(plain["columns"])
    notes = tuple(plain["notes"])
    lead = plain.get("lead", "")
    return Table(
        name, plain["title"], columns, tuple(rows), notes, (first, second), lead
    )


def _cell(plain: Any) -> Cell:
    return Cell(plain) if isinstance(plain, str) else Cell(plain[0], mark=plain[1])
