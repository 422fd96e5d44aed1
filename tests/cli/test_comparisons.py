"""What `compare` and `evaluate` show: formats, subjects, classes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import hokical_command, one_line
from tests.cli.test_cli import FAST
from tests.conftest import synthetic_logits


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve classes, of which one is far too sure of itself."""
    logits, labels = synthetic_logits(2400, 12, seed=5, signal=3.0)  # calibrated, but for one
    given = logits.argmax(axis=1) == 3
    labels[given] = np.where(np.arange(given.sum()) % 3, 4, 3)
    path = tmp_path_factory.mktemp("data") / "data.npz"
    parts = {"val": slice(0, 800), "test": slice(800, None)}
    arrays = {f"{name}_logits": logits[rows] for name, rows in parts.items()}
    np.savez(path, **arrays, **{f"{name}_labels": labels[rows] for name, rows in parts.items()})
    return path


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", ["csv", "markdown", "latex"])
def test_compare_prints_every_format(data: Path, form: str) -> None:
    found = hokical_command("compare", data, "--methods=temps", *FAST, "--seed=3", "--format", form)
    assert found.code == 0, found.err
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(found.out)))
        assert [row["title"] for row in rows] == ["Uncalibrated softmax", "Temperature scaling"]
        assert [row["difference_against"] for row in rows] == ["temps", ""]
        ends = [float(rows[0][f"difference_{end}"]) for end in ("low", "value", "high")]
        assert ends == sorted(ends)
        losses = [float(row["log_loss"]) for row in rows]
        assert ends[1] == pytest.approx(losses[0] - losses[1])
        assert rows[0]["difference_metric"] == "log_loss"
        assert rows[0]["difference_verdict"] in ("better", "worse", "no clear difference")
    else:
        assert "Temperature scaling (temps)" in found.out
        assert found.out.count("\n") == {"markdown": 4, "latex": 8}[form]


def test_the_report_names_the_data(data: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.html"
    words = ("--methods=temps", "--report", report)
    assert hokical_command("compare", data, *words, *FAST).code == 0
    page = report.read_text(encoding="utf-8")
    assert "<strong>data.npz</strong>" in page


def test_differences_from_the_subject_are_in_words(data: Path) -> None:
    found = hokical_command("compare", data, "--methods=temps,vecs", *FAST, columns=80)
    assert "Log loss compared with vecs (5 %, Holm): " in found.words
    assert max(map(len, found.out.splitlines())) <= 80


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_a_class_that_is_off_is_shown_and_said(data: Path, command: str) -> None:
    found = hokical_command(command, data, *FAST, *(["--methods=temps"] * (command == "compare")))
    assert "hides class 3" in found.err
    lines = found.out.split("By predicted label")[1].splitlines()
    assert lines[3].startswith("3 ")  # the worst first
    assert "The worst 10 labels; 2 more are not shown." in lines


def test_evaluate_scores_all_classes(data: Path) -> None:
    found = hokical_command("evaluate", data, *FAST, "--json").methods["uncalibrated"]
    assert {"brier", "log_loss", "classwise_ece"} <= set(found["estimates"])
    assert found["vectors"] is True
    assert len(found["classes"]["rows"]) == 12


def test_classes_have_their_names_and_methods_their_reasons(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(300, 3, seed=6)
    names = np.array(["cat", "dog", "[bold]"])[labels]
    rows = [f"{a},{b},{c},{name}" for (a, b, c), name in zip(logits, names, strict=True)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["cat,dog,[bold],label", *rows]))
    words = ("compare", path, path, "--methods=temps,platt", "--classes=cat,dog,[bold]", *FAST)
    found = hokical_command(*words)
    assert found.code == 0, found.err
    assert [f"\n{name} " in found.out for name in ("cat", "dog", "[bold]")] == [True] * 3
    assert "Left out: platt (for two classes, and there are 3)." in found.err


def test_compare_ranks_over_several_data_sets(data: Path, tmp_path: Path) -> None:
    files = [data]
    for k in (1, 2):
        (val, y), (test, truth) = (synthetic_logits(600, 4, seed=s) for s in (10 * k, 10 * k + 1))
        files.append(tmp_path / f"set{k}.npz")
        np.savez(files[-1], val_logits=val, val_labels=y, test_logits=test, test_labels=truth)
    found = hokical_command("compare", *files, "--methods=temps,vecs", *FAST, "--json")
    assert found.code == 0, found.err
    told = json.loads(found.out)
    assert set(told["data_sets"]) == {"data", "set1", "set2"}
    alone = hokical_command("compare", data, "--methods=temps,vecs", *FAST, "--json")
    scores = {m["method"]: m["estimates"] for m in json.loads(alone.out)["methods"]}
    for name, loss in told["data_sets"]["data"].items():
        assert loss == pytest.approx(scores[name]["log_loss"]["value"])
    ranks = [row["rank"] for row in told["methods"]]
    assert ranks == sorted(ranks)
    assert sum(ranks) == pytest.approx(6.0)
    table = hokical_command("compare", *files, "--methods=temps")
    assert "3 data sets" in table.out
    assert "critical difference" in table.out
    repeated = hokical_command("compare", *files[:2], files[0], "--methods=temps", *FAST)
    assert "is given twice" in one_line(repeated)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--report", "r.html"], "--report: is for one data set"),
        (["--format", "latex"], "--format: is for one data set"),
        (["--coverage", "0.9"], "--coverage: is for one data set"),
    ],
)
def test_options_of_one_data_set(data: Path, arguments: list[str], words: str) -> None:
    found = hokical_command("compare", data, data, data, "--methods=temps", *FAST, *arguments)
    assert words in one_line(found)
