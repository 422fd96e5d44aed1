"""What `compare` and `evaluate` show: formats, subjects, classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hokical
from tests.cli.running import hokical_command
from tests.conftest import synthetic_logits


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve classes, of which one is far too sure of itself."""
    logits, labels = synthetic_logits(
        2400, 12, seed=5, signal=3.0
    )  # calibrated, but for one
    given = logits.argmax(axis=1) == 3
    labels[given] = np.where(np.arange(given.sum()) % 3, 4, 3)
    path = tmp_path_factory.mktemp("data") / "data.npz"
    parts = {"val": slice(0, 800), "test": slice(800, None)}
    arrays = {f"{name}_logits": logits[rows] for name, rows in parts.items()}
    np.savez(
        path,
        **arrays,
        **{f"{name}_labels": labels[rows] for name, rows in parts.items()},
    )
    return path


def test_the_report_names_the_data(data: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.html"
    words = ("--methods=temps", "--report", report)
    assert hokical_command("compare", data, *words).code == 0
    page = report.read_text(encoding="utf-8")
    assert "<dt>Test data</dt><dd>data.npz: " in page


def test_differences_from_the_subject_are_in_words(data: Path) -> None:
    found = hokical_command("compare", data, "--methods=temps,vecs", columns=80)
    assert "Log loss compared with vecs (5 %, Holm): " in found.words
    assert max(map(len, found.out.splitlines())) <= 80


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_a_class_that_is_off_is_shown_and_said(data: Path, command: str) -> None:
    found = hokical_command(
        command, data, *(["--methods=temps"] * (command == "compare"))
    )
    assert "hides class 3" in found.err
    lines = found.out.split("By predicted label")[1].splitlines()
    assert lines[3].startswith("3 ")  # the worst first
    assert "The worst 10; 2 more are not shown." in lines


def test_evaluate_scores_all_classes(data: Path) -> None:
    found = hokical_command("evaluate", data, "--json").methods["uncalibrated"]
    assert {"brier", "log_loss", "classwise_ece"} <= set(found["estimates"])
    assert found["vectors"] is True
    assert len(found["classes"]["rows"]) == 12


def test_classes_have_their_names_and_methods_their_reasons(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(300, 3, seed=6)
    names = np.array(["cat", "dog", "[bold]"])[labels]
    rows = [
        f"{a},{b},{c},{name}" for (a, b, c), name in zip(logits, names, strict=True)
    ]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["cat,dog,[bold],label", *rows]))
    words = ("compare", path, path, "--methods=temps,platt", "--classes=cat,dog,[bold]")
    found = hokical_command(*words)
    assert found.code == 0, found.err
    assert [f"\n{name} " in found.out for name in ("cat", "dog", "[bold]")] == [
        True
    ] * 3
    assert "Left out: platt (for two classes, and there are 3)." in found.err


def test_columns_are_in_the_order_of_the_fit_whatever_their_names(
    tmp_path: Path,
) -> None:
    """A class whose name has a comma, and test columns in another order."""
    logits, labels = synthetic_logits(600, 3, seed=6)
    logits[:, 0] += 2.0  # what a bias per class corrects
    names = np.array(["a", "b, rare", "c"])
    for file, rows, order in (
        ("val.csv", slice(0, 300), [0, 1, 2]),
        ("test.csv", slice(300, 600), [2, 0, 1]),
    ):
        columns = {f"logit_{names[k]}": logits[rows, k] for k in order}
        columns["label"] = names[labels[rows]]
        hokical.io.write_table(tmp_path / file, columns)
    words = ("compare", tmp_path / "val.csv", tmp_path / "test.csv")
    found = hokical_command(*words, "--methods=vecs", "--json").methods
    by_hand = hokical.compare(
        (logits[:300], labels[:300]), (logits[300:], labels[300:]), ["vecs"]
    )
    for metric in ("accuracy", "log_loss"):
        value = found["vecs"]["estimates"][metric]["value"]
        assert value == pytest.approx(by_hand["vecs"][metric].value, rel=1e-9)
