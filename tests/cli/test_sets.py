"""Prediction sets on the command line."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from hokical import load
from tests.cli.running import hokical_command, run
from tests.conftest import softmax_examples


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for part, seed in (("val", 1), ("test", 2)):
        logits, labels = softmax_examples(500, 3, seed=seed)
        np.savez(tmp_path / f"{part}.npz", logits=logits, labels=labels)
    names = "--classes", "cat,dog,bird"
    run(
        "fit",
        tmp_path / "val.npz",
        "--method",
        "temps",
        "-o",
        tmp_path / "cal.json",
        *names,
    )
    return tmp_path


def test_apply_writes_the_names(files: Path) -> None:
    output = files / "out.csv"
    text = run(
        "apply",
        files / "cal.json",
        files / "test.npz",
        "-o",
        output,
        "--coverage",
        "0.9",
    )
    assert "Coverage at least 90%" in " ".join(text.split())
    rows = list(csv.DictReader(output.read_text().splitlines()))
    found = load(files / "cal.json").predict_set(
        np.load(files / "test.npz")["logits"], coverage=0.9
    )
    names = np.array(["cat", "dog", "bird"])
    assert rows[0]["set"] == "|".join(names[found.members[0]])
    assert [int(row["set_size"]) for row in rows] == found.sizes.tolist()
    arrays = files / "out.npz"
    run(
        "apply",
        files / "cal.json",
        files / "test.npz",
        "-o",
        arrays,
        "--coverage",
        "0.9",
    )
    np.testing.assert_array_equal(np.load(arrays)["members"], found.members)
    wrong = run(
        "apply",
        files / "cal.json",
        files / "test.npz",
        "-o",
        output,
        "--coverage",
        "2",
        code=2,
    )
    assert "--coverage" in wrong


def test_certify_and_what_apply_then_guarantees(files: Path) -> None:
    cal, more = files / "cal.json", files / "more.csv"
    logits, labels = softmax_examples(600, 3, seed=3)
    names = np.array(["cat", "dog", "bird"])
    with more.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "region", *names, "label"])
        for k, row in enumerate(logits):
            table.writerow([k, ["north", "south"][k % 2], *row, names[labels[k]]])
    whole = cal.read_bytes()
    other = files / "other.json"
    run("certify", cal, more, "-o", other)
    assert cal.read_bytes() == whole
    assert load(other).metadata_ == load(cal).metadata_
    text = run("certify", cal, more, "--groups", "region")  # in its own file
    assert "600 examples of more.csv" in text
    assert "groups        2" in text
    assert "pass --look-alike." in run("certify", cal, files / "val.npz", code=2)
    run("certify", cal, files / "val.npz", "--look-alike", "-o", other)
    known, output = load(cal), files / "out.csv"
    groups = np.array(["north", "south"])[np.arange(600) % 2]
    for words, options in (
        (["--coverage", "0.9", "--by", "class"], {"coverage": 0.9, "by": "class"}),
        (
            ["--coverage", "0.9", "--by", "group", "--groups", "region"],
            {"coverage": 0.9, "by": "group", "groups": groups},
        ),
    ):
        text = run("apply", cal, more, "-o", output, *words)
        found = known.predict_set(logits, **options)
        rows = list(csv.DictReader(output.read_text().splitlines()))
        assert [row["set"] for row in rows] == [
            "|".join(names[own]) for own in found.members
        ]
        assert found.guarantee in " ".join(text.split())
    assert "--by" in run("apply", cal, more, "-o", output, "--by", "class", code=2)
    by_group = ("--coverage", "0.9", "--by", "group")
    assert "--groups" in run("apply", cal, more, "-o", output, *by_group, code=2)


def test_certify_streams(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    folder = tmp_path / "parts"
    folder.mkdir()
    for part in range(2):
        logits, labels = softmax_examples(300, 3, seed=10 + part)
        columns = {f"logit_{k}": logits[:, k] for k in range(3)}
        parquet.write_table(
            table(columns | {"label": labels}), folder / f"{part}.parquet"
        )
    logits, labels = softmax_examples(500, 3, seed=1)
    np.savez(tmp_path / "val.npz", logits=logits, labels=labels)
    cal = tmp_path / "cal.json"
    run("fit", tmp_path / "val.npz", "--method", "temps", "-o", cal)
    assert "600 examples" in run("certify", cal, folder)
    assert load(cal).predictor_.held_out.conformity.n == 600
    groups = run("certify", cal, folder, "--groups", "x", code=2)
    assert "--groups" in groups


def test_evaluate_and_compare_show_sets(files: Path) -> None:
    test = files / "test.npz"
    args = ("evaluate", files / "cal.json", test, "--coverage", "0.9")
    assert "Prediction sets at 0.9, on 500 examples" in run(*args)
    shown = hokical_command(*args, "--json").methods
    assert shown["temps"]["sets"]["goal"] == 0.9
    pair = ("compare", files / "val.npz", test, "--methods", "temps")
    assert "Prediction sets at 0.9, on 250" in run(*pair, "--coverage", "0.9")
    assert "Prediction sets at 0.9" in run("evaluate", test, "--coverage", "0.9")
