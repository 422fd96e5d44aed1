"""Groups on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from hokical import load
from tests.cli.running import hokical_command, run


def write_table(path: Path, seed: int, n: int = 600) -> dict[str, np.ndarray]:
    """Logits of three classes, twice too sure in the west."""
    rng = np.random.default_rng(seed)
    logits, site = 2.0 * rng.normal(size=(n, 3)), rng.choice(["north", "west"], n)
    true = logits * np.where(site == "west", 0.2, 1.0)[:, None]
    labels = np.argmax(true + rng.gumbel(size=logits.shape), axis=1)
    age = rng.integers(20, 80, n)
    lines = [
        f"{','.join(f'{z:.6f}' for z in row)},{label},{where},{years}"
        for row, label, where, years in zip(logits, labels, site, age, strict=True)
    ]
    path.write_text("\n".join(["logit_0,logit_1,logit_2,label,site,age", *lines]))
    return {"logits": logits, "labels": labels, "site": site}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for seed, part in enumerate(("val", "test")):
        write_table(tmp_path / f"{part}.csv", seed)
    return tmp_path


def test_compare_says_which_groups_are_miscalibrated(files: Path) -> None:
    args = ("compare", files / "val.csv", files / "test.csv", "--methods", "temps")
    args = (*args, "--groups", "site,age")
    page = files / "report.html"
    text = run(*args, "--report", page)
    assert "Which groups are miscalibrated with temps?" in text
    assert "site=west" in text
    assert "site=west" in page.read_text()
    shown = json.loads(run(*args, "--json"))
    groups = shown["methods"][0]["groups"]
    assert {"site=west", "site=north", "age=74 or more"} & {
        row["name"] for row in groups["rows"]
    }
    assert "groups are miscalibrated, most clearly" in groups["verdict"]


def test_evaluate_has_groups_of_arrays_too(files: Path) -> None:
    data = write_table(files / "other.csv", 3)
    np.savez(files / "test.npz", **data)
    words = ("evaluate", files / "test.npz", "--groups", "site", "--json")
    rows = hokical_command(*words).methods["uncalibrated"]["groups"]["rows"]
    assert [row["name"] for row in rows] == ["north", "west"]
    assert [row["flagged"] for row in rows] == [False, True]
    missing = run("evaluate", files / "test.csv", "--groups", "town", code=2)
    assert "--groups" in missing


def test_fit_and_apply_by_group(files: Path) -> None:
    cal, output = files / "cal.json", files / "out.csv"
    text = run("fit", files / "val.csv", "-o", cal, "--groups", "site,age")
    assert "Groups: 'site' was used" in " ".join(text.split())
    run("apply", cal, files / "test.csv", "-o", output)  # it knows the columns
    rows = list(csv.DictReader(output.read_text().splitlines()))
    table = list(csv.DictReader((files / "test.csv").read_text().splitlines()))
    logits = np.array([[float(row[f"logit_{k}"]) for k in range(3)] for row in table])
    site = [row["site"] for row in table]
    expected = load(cal).predict_confidence(logits, groups=site)
    np.testing.assert_allclose(
        [float(row["confidence"]) for row in rows], expected, atol=1e-6
    )
    run("apply", cal, files / "test.csv", "-o", output, "--groups", "age", code=2)
    wrong = run(
        "fit",
        files / "val.csv",
        "-o",
        cal,
        "--groups",
        "site",
        "--method",
        "temps",
        code=2,
    )
    assert "only auto learns from groups" in " ".join(wrong.split())
    args = ("evaluate", cal, files / "test.csv", "--groups", "site")
    shown = hokical_command(*args, "--json").methods
    worst = [
        min(row["p_value"] for row in each["groups"]["rows"]) for each in shown.values()
    ]
    assert worst[0] < 1e-4 < 0.001 < worst[1]
    assert "never guessed" not in run("show", cal)
    run("certify", cal, files / "test.csv")
    more = ("--coverage", "0.9", "--risk", "0.4", "--proba")
    assert "at least 90%" in run("apply", cal, files / "test.csv", "-o", output, *more)


def test_fit_and_apply_with_a_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(2400, 3))
    age = rng.normal(50.0, 12.0, size=2400).round(1)
    scores = logits + np.outer((age - 50.0) / 20.0, [1.0, 0.0, -1.0])
    labels = np.argmax(scores + rng.gumbel(size=logits.shape), axis=1)
    columns = {f"logit_{k}": logits[:, k] for k in range(3)}
    columns |= {"label": labels, "age": age}
    for name, rows in {"val": slice(0, 1200), "new": slice(1200, None)}.items():
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(v[rows] for v in columns.values()), strict=True))
    cal = tmp_path / "cal.json"
    text = run("fit", tmp_path / "val.csv", "-o", cal, "--groups", "age")
    assert "'age' as a number was used" in " ".join(text.split())
    output = tmp_path / "out.csv"
    run("apply", cal, tmp_path / "new.csv", "-o", output)
    rows = csv.DictReader(output.read_text().splitlines())
    confidence = [float(row["confidence"]) for row in rows]
    groups = {"age": age[1200:]}
    expected = load(cal).predict_confidence(logits[1200:], groups=groups)
    np.testing.assert_allclose(confidence, expected, atol=1e-6)


def test_monitor_watches_groups(files: Path) -> None:
    cal, state = files / "cal.json", files / "state.json"
    run("fit", files / "val.csv", "-o", cal, "--method", "temps")
    args = ("monitor", cal, files / "test.csv", "--groups", "site", "--state", state)
    text = run(*args, "--reference", files / "val.csv", code=3)
    assert "group" in text
    assert "west" in text
    status = json.loads(run(*args, "--again", "--json", code=3))
    assert {each["name"] for each in status["groups"]} == {"north", "west"}


def test_rows_that_belong_together(files: Path) -> None:
    """With --cluster age, 60 clusters: intervals are wider, and certified examples
    one of each.
    """
    both = ("--cluster", "age", "--json")
    compare = ("compare", files / "val.csv", files / "test.csv", "--methods", "temps")
    values = hokical_command(*compare, *both).json
    assert {method["method"] for method in values["methods"]} == {
        "uncalibrated",
        "temps",
    }
    run("fit", files / "val.csv", "-o", files / "cal.json", "--method", "temps")
    evaluate = ("evaluate", files / "cal.json", files / "test.csv")
    assert hokical_command(*evaluate, *both).json["data"]["n_clusters"] == 60
    assert "600 examples of 60 clusters" in run(*evaluate, "--cluster", "age")
    certify = (
        "certify",
        files / "cal.json",
        files / "test.csv",
        "-o",
        files / "sure.json",
    )
    values = hokical_command(*certify, *both).json
    assert values["clusters"] == values["examples"] == 60
    assert "one of each cluster" in run(*certify, "--cluster", "age")
    failed = hokical_command(*evaluate, "--cluster", "patient")
    assert failed.code != 0
    assert "--cluster" in failed.err


@pytest.mark.slow
def test_cross_fitting(files: Path) -> None:
    found = hokical_command(
        "evaluate", files / "val.csv", "--folds", 5, "--method", "temps"
    )
    assert "intervals are conditional on these fits" in found.words
    values = hokical_command("evaluate", files / "val.csv", "--folds", 5, "--json").json
    assert "Cross-fitted in 5 folds" in values["headline"]
    run("fit", files / "val.csv", "-o", files / "cal.json", "--method", "temps")
    args = ("evaluate", files / "cal.json", files / "val.csv", "--folds", 5)
    assert "not with a calibrator" in hokical_command(*args).words
