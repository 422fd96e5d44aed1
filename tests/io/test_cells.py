"""What stands in the cells and lines of text tables: numbers as they are written, and
nothing that merely resembles them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hokical.io import DataFileError, read_examples
from hokical.io.tables import parse_number

SCORES = np.round(np.random.default_rng(0).normal(size=(12, 2)), 3)


def write(folder: Path, first_cell: str = "", end: str = "\n", note: str = "n") -> Path:
    """A table of logits, whose first score may be another text."""
    rows = [f"{a},{b},{k % 2},{note}" for k, (a, b) in enumerate(SCORES.tolist())]
    if first_cell:
        rows[0] = rows[0].replace(str(SCORES[0, 0]), first_cell, 1)
    path = folder / "val.csv"
    path.write_bytes(
        end.join(["logit_0,logit_1,label,note", *rows, ""]).encode("utf-8")
    )
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("first_cell", ["", "NA", " 1e-3 "])
def test_lines_end_in_any_way(end: str, first_cell: str, tmp_path: Path) -> None:
    path = write(tmp_path, first_cell, end)
    rows = read_examples(path, missing="drop")
    n_missing = int(first_cell == "NA")
    np.testing.assert_array_equal(
        np.asarray(rows.scores.values)[1 - n_missing :], SCORES[1:]
    )
    assert rows.labels.tolist() == [k % 2 for k in range(n_missing, 12)]


@pytest.mark.parametrize("first_cell", ["", "NA"])
def test_a_cell_may_be_long(first_cell: str, tmp_path: Path) -> None:
    path = write(tmp_path, first_cell, note="x" * 200_000)
    rows = read_examples(path, missing="drop", keep=("note",))
    assert {*map(len, rows.kept["note"].tolist())} == {200_000}


@pytest.mark.parametrize("cell", ["1.5%", "1_0", "٣", "0x10", "1e", "1 0", "½", "--1"])
def test_what_resembles_a_number_is_none(cell: str, tmp_path: Path) -> None:
    assert parse_number(cell) is None
    with pytest.raises(DataFileError, match="line 2, column `logit_0`") as error:
        read_examples(write(tmp_path, cell))
    assert repr(cell) in str(error.value)


@pytest.mark.parametrize("cell", ["1", "-1.5", ".5", "5.", "+1E-3", "-inf", " 2 "])
def test_numbers_are_read(cell: str, tmp_path: Path) -> None:
    assert parse_number(cell) == float(cell)
    rows = read_examples(write(tmp_path, cell))
    assert np.asarray(rows.scores.values)[0, 0] == float(cell)


def write_shares(folder: Path, cells: list[str]) -> Path:
    path = folder / "shares.csv"
    lines = [f"{cell},{k % 2}" for k, cell in enumerate(cells)]
    path.write_text("\n".join(["stated,right", *lines]) + "\n")
    return path


def test_percentages_are_of_a_whole_column(tmp_path: Path) -> None:
    options = {"kind": "confidence", "score_columns": ("stated",)}
    rows = read_examples(
        write_shares(tmp_path, ["50%", "NA", "90 %"]), **options, missing="drop"
    )  # type: ignore[arg-type]
    np.testing.assert_allclose(rows.scores, [0.5, 0.9])
    for cells in (["50%", "0.9"], ["0.9", "50%"]):
        with pytest.raises(
            DataFileError, match="% in all cells of `stated` or in none"
        ):
            read_examples(write_shares(tmp_path, cells), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("twice", ["scores", "labels"])
def test_an_id_occurs_once_in_both_files(twice: str, tmp_path: Path) -> None:
    ids = {"scores": [*range(6)], "labels": [*range(6)]}
    ids[twice][5] = 2
    scores, labels = tmp_path / "scores.csv", tmp_path / "labels.csv"
    scores.write_text(
        "\n".join(["id,logit_0,logit_1", *(f"{k},{k},1" for k in ids["scores"])])
    )
    labels.write_text("\n".join(["id,label", *(f"{k},{k % 2}" for k in ids["labels"])]))
    with pytest.raises(DataFileError, match=f"{twice}.csv: expected each `id` once"):
        read_examples(scores, labels=labels)


def test_the_label_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "val.csv"
    path.write_text("logit_0,logit_1,label\n1,2,1\n2,1,0\n2,1,1_0\n")
    with pytest.raises(DataFileError, match="got '1_0' in line 4"):
        read_examples(path)
