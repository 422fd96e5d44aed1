"""Tables as people have them: named columns, commas, encodings, gaps; options of
methods; pipes.
"""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hokical import load
from hokical.io import write_table
from tests.cli.running import hokical_command

HEADER = "name;P(cat);P(dog);confidence;truth;city"


def write(path: Path, *, gap: bool = False) -> Path:
    """A table of a German spreadsheet, with labels in a column of an odd name."""
    rng = np.random.default_rng(0)
    lines = [HEADER]
    for row in range(200):
        truth = rng.integers(2)
        chance = float(
            np.clip(0.5 + 0.3 * (2 * truth - 1) + rng.normal(0, 0.2), 0.01, 0.99)
        )
        scores = [f"{value:.3f}".replace(".", ",") for value in (1 - chance, chance)]
        scores[0] = "" if gap and row == 7 else scores[0]
        name = "=1+1" if row == 0 else str(row)
        lines.append(
            f"{name};{scores[0]};{scores[1]};0,5;{['cat', 'dog'][truth]};K\xf6ln"
        )
    path.write_text("\n".join(lines) + "\n", encoding="cp1252")
    return path


SCORES = ("--label-column", "truth", "--score-columns", "P(*)", "--probabilities")
GAP = ("--missing", "drop", *SCORES)


def test_a_table_of_another_make_from_end_to_end(tmp_path: Path) -> None:
    table, cal, out = (
        write(tmp_path / "v.csv", gap=True),
        tmp_path / "c.json",
        tmp_path / "o.csv",
    )
    done = hokical_command("fit", table, "-o", cal, "--method", "temps", *GAP)
    assert done.code == 0, done.err
    assert "Dropped 1 of 200 rows" in done.err
    assert "read as Windows-1252" in done.err
    stored = json.loads(cal.read_text())["beside"]
    assert stored["classes"] == ["cat", "dog"]
    assert stored["examples"] == 199
    done = hokical_command(
        "apply", cal, table, "-o", out, "--missing", "drop", "--keep", "all"
    )
    assert done.code == 0, done.err
    assert "`confidence` of the input is called `input_confidence`" in done.err
    assert "1 cells of text that a spreadsheet would run" in done.err
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert len(rows) == 200, "the row without a score is there"
    assert [row["name"] for row in rows if not row["label"]] == ["7"]
    assert [row["name"] for row in rows if not row["confidence"]] == ["7"]
    assert rows[0]["name"] == "'=1+1"
    assert rows[1]["city"] == "K\xf6ln"
    assert {row["label"] for row in rows} == {"cat", "dog", ""}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SCORES, "line 9, column `P.cat.`; found none .*--missing drop"),
        (("--label-column", "y"), "`y`, named by --label-column"),
        (("--score-columns", "Q(*)"), r"columns like Q\(\*\)"),
        (
            (*GAP, "--method", "hoki", "--set", "bins=3"),
            "option of hoki: .*max_iter=200",
        ),
        (
            (*GAP, "--method", "hoki", "--set", "max_iter=few"),
            "a whole number, as the default 200",
        ),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = hokical_command(
        "fit", write(tmp_path / "v.csv", gap=True), "-o", tmp_path / "c", *options
    )
    assert done.code == 2
    assert re.search(message, done.err), done.err


def test_options_of_any_method(tmp_path: Path) -> None:
    table = write(tmp_path / "v.csv")
    options = (*SCORES, "--set", "n_bins=7", "--set", "noise=gaussian:2.0")
    done = hokical_command(
        "fit", table, "-o", tmp_path / "c", "--method", "hoki", *options
    )
    assert done.code == 0, done.err
    assert load(tmp_path / "c").get_params()["n_bins"] == 7


def test_delta_needs_a_risk(tmp_path: Path) -> None:
    done = hokical_command(
        "apply", tmp_path / "c", tmp_path / "x", "-o", "o.csv", "--delta", 0.1
    )
    assert done.code == 2
    assert "--delta: only goes with --risk" in done.err


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_every_row_is_written(tmp_path: Path, suffix: str) -> None:
    """With and without an id, rows without a score are empty, in their places."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    logits = rng.normal(size=(400, 3)) + 2.0 * np.eye(3)[labels]
    np.savez(tmp_path / "val.npz", logits=logits, labels=labels)
    cal, out = tmp_path / "cal.json", tmp_path / f"out.{suffix}"
    assert (
        hokical_command(
            "fit", tmp_path / "val.npz", "-o", cal, "--method", "temps"
        ).code
        == 0
    )
    whole = load(cal).predict(logits)
    logits[[3, 399], 1] = np.nan
    np.savez(tmp_path / "new.npz", logits=logits)
    words = (
        "apply",
        cal,
        tmp_path / "new.npz",
        "-o",
        out,
        "--coverage",
        0.9,
        "--proba",
    )
    assert "row 3" in hokical_command(*words).err
    done = hokical_command(*words, "--missing", "drop", "--json")
    assert "Dropped 2 of 400 rows" in done.err
    assert done.json["examples"] == 398
    if suffix == "npz":
        found = dict(np.load(out, allow_pickle=False))
        assert np.isnan(found["confidence"]).nonzero()[0].tolist() == [3, 399]
        assert (
            found["labels"] == np.where(np.isin(np.arange(400), [3, 399]), -1, whole)
        ).all()
        assert found["members"].shape == (400, 3)
        return
    rows = pd.read_csv(out) if suffix == "csv" else pd.read_parquet(out)
    assert len(rows) == 400
    assert rows["confidence"].isna().to_numpy().nonzero()[0].tolist() == [3, 399]
    assert (
        rows["label"].drop([3, 399]).astype(int).tolist()
        == np.delete(whole, [3, 399]).tolist()
    )


def test_numbers_are_no_formulas(tmp_path: Path) -> None:
    texts = np.array(["-1.5", "+3", "-1e-7", "-x", "@a", "=b", "c", "-inf"])
    assert write_table(tmp_path / "t.csv", {"a": texts, "b": np.arange(8.0) - 4}) == 3
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [row["a"] for row in rows] == [
        "-1.5",
        "+3",
        "-1e-7",
        "'-x",
        "'@a",
        "'=b",
        "c",
        "-inf",
    ]
