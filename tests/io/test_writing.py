"""Results are whole or not there, and never take the place of something else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from hokical.io import DataFileError, read_examples, write_table
from hokical.io.tables import check_output


def test_round_trip_keeps_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_text("old")
    path.chmod(0o640)
    write_table(path, {"labels": np.array([1, 2]), "confidence": np.array([0.5, 1.0])})
    with np.load(path, allow_pickle=False) as stored:
        assert stored["labels"].tolist() == [1, 2]
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_failure_leaves_the_old_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    error: type[BaseException],
) -> None:
    def fail(*args: object) -> None:
        raise error

    path = tmp_path / "a.npz"
    path.write_text("old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(error):
        write_table(path, {"x": np.array([1.0])})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "npz"])
def test_written_tables_are_read_again(tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out.{suffix}"
    columns = {"id": np.array(["007", "a,b", 'say "x"']), "n": np.array([1, 2, 3])}
    logits = np.array([[2.0, 0.5], [0.0, 3.0], [1.0, 1.0]]) / 3
    scores = (
        {"logits": logits}
        if suffix == "npz"
        else {"cat": logits[:, 0], "dog": logits[:, 1]}
    )
    write_table(path, columns | scores)
    options = {} if suffix == "npz" else {"classes": ("cat", "dog")}
    found = read_examples(path, labelled="none", keep=("id", "n"), **options)
    np.testing.assert_array_equal(found.scores.values, logits)
    assert found.kept["id"].tolist() == columns["id"].tolist()
    assert [int(n) for n in found.kept["n"]] == [1, 2, 3]


def test_rows_without_a_value_are_empty(tmp_path: Path) -> None:
    columns = {
        "label": np.array([1, None, 2], object),
        "confidence": np.array([0.5, np.nan, 0.7]),
    }
    write_table(tmp_path / "a.csv", columns)
    assert (tmp_path / "a.csv").read_text() == "label,confidence\n1,0.5\n,\n2,0.7\n"
    write_table(tmp_path / "a.npz", columns)
    with np.load(tmp_path / "a.npz") as stored:
        assert stored["label"].tolist() == [1, -1, 2]


def test_places_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_output(tmp_path / "out.npz", suffix=".npz")
    check_output(str(tmp_path / "out.npz"), suffix=".npz")
    with pytest.raises(DataFileError, match=r"ends in \.npz"):
        check_output(tmp_path / "out.csv", suffix=".npz")
    with pytest.raises(DataFileError, match="no folder"):
        check_output(tmp_path / "none" / "out.npz")
    with pytest.raises(DataFileError, match="not a file"):
        check_output(tmp_path)
    with pytest.raises(DataFileError, match="not a file"):
        check_output(Path(os.devnull))
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(DataFileError, match="no right to write"):
        check_output(tmp_path / "out.npz")


def test_json_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    columns = {
        "id": np.array(["a", "=b", "\N{SNOWMAN}"]),
        "labels": np.array([1, 2, 0]),
        "confidence": np.array([0.5, np.nan, 1.0]),
        "accepted": np.array([True, False, True]),
        "rank": np.array([1, None, 3], object),
    }
    assert write_table(tmp_path / "new.jsonl", columns) == 0
    lines = (tmp_path / "new.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": "a", "labels": 1, "confidence": 0.5, "accepted": True, "rank": 1},
        {"id": "=b", "labels": 2, "confidence": None, "accepted": False, "rank": None},
        {
            "id": "\N{SNOWMAN}",
            "labels": 0,
            "confidence": 1.0,
            "accepted": True,
            "rank": 3,
        },
    ]
