"""What a newcomer sees: examples in help pages, next steps, mistakes in the order of
arguments, and numbers as long as they need to be.
"""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer

import hokical
from hokical.cli import app
from hokical.cli.applying import round_probabilities
from tests.conftest import synthetic_logits

from .running import hokical_command, one_line

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the examples name."""
    for seed, name in enumerate(("val", "test", "held_out", "new")):
        logits, labels = synthetic_logits(300, 3, seed=seed)
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(command: str) -> list[str]:
    """The arguments of the example on a help page."""
    page = hokical_command(command, "--help", columns=80).out
    lines = re.findall(r"^ *Example: hokical (.*?) *$", page, re.MULTILINE)
    assert len(lines) == 1, page
    return shlex.split(lines[0])


def test_the_example_of_every_help_page_runs(files: Path) -> None:
    first = ["fit", "certify"]
    slow = ["demo"]  # which has tests of its own
    others = [name for name in COMMANDS if name not in (*first, *slow)]
    for command in [*first, *others]:
        arguments = example(command)
        assert arguments[0] == command
        result = hokical_command(*arguments)
        assert result.code == 0, (command, result.err)


def test_the_example_of_the_demo_names_its_report() -> None:
    assert example("demo") == ["demo", "--report", "demo.html"]


def test_fit_names_the_next_commands_whole(files: Path) -> None:
    folder = files / ("a_long_name_" * 6)
    folder.mkdir()
    path = folder / "cal.json"
    result = hokical_command("fit", "val.npz", "-o", path, columns=80)
    for command in (
        "evaluate {} TEST",
        "certify {} HELD_OUT",
        "apply {} NEW -o OUT.csv",
    ):
        assert f"\n  hokical {command.format(path)}\n" in result.err


@pytest.mark.parametrize(
    "command", ["evaluate", "apply", "shift", "monitor", "certify"]
)
def test_swapped_arguments_are_noticed(files: Path, command: str) -> None:
    hokical_command("fit", "val.npz", "-o", "cal.json")
    output = ["-o", "out.csv"] if command == "apply" else []
    error = one_line(hokical_command(command, "test.npz", "cal.json", *output))
    assert "cal.json is the calibrator and comes first, then the data test.npz" in error


def test_data_in_the_place_of_a_calibrator_are_named_as_before(files: Path) -> None:
    error = one_line(hokical_command("evaluate", "test.npz", "val.npz"))
    assert "test.npz is not a hokical calibrator file" in error


def test_a_calibrator_in_the_place_of_data_is_named(files: Path) -> None:
    hokical_command("fit", "val.npz", "-o", "cal.json", "--method", "temps")
    error = one_line(hokical_command("fit", "cal.json", "-o", "again.json"))
    assert "cal.json: expected scores; found a calibrator" in error


@pytest.mark.parametrize(
    ("flag", "expected"), [("", False), ("no-", False), ("+", True)]
)
def test_keep_labels_can_be_switched_either_way(
    files: Path, flag: str, expected: bool
) -> None:
    option = {"": [], "no-": ["--no-keep-labels"], "+": ["--keep-labels"]}[flag]
    fitted = hokical_command("fit", "val.npz", "-o", "cal.json", *option)
    assert fitted.code == 0, fitted.err
    assert hokical.load("cal.json").keep_labels is expected


def test_the_verdict_stands_above_the_metrics(files: Path) -> None:
    hokical_command("fit", "val.npz", "-o", "cal.json")
    for command in (
        ("evaluate", "cal.json", "test.npz"),
        ("compare", "val.npz", "test.npz", "--methods=temps"),
    ):
        shown = hokical_command(*command, columns=200).out
        assert shown.startswith("The model said ")
        assert max(map(len, shown.split("\n\n")[0].splitlines())) <= 80


def test_confidences_in_a_csv_have_six_decimals(files: Path) -> None:
    hokical_command("fit", "val.npz", "-o", "cal.json")
    hokical_command("apply", "cal.json", "new.npz", "-o", "out.csv")
    hokical_command("apply", "cal.json", "new.npz", "-o", "out.npz")
    with (files / "out.csv").open(newline="") as table:
        texts = [row["confidence"] for row in csv.DictReader(table)]
    exact = np.load(files / "out.npz")["confidence"]
    np.testing.assert_allclose(np.array(texts, float), exact, rtol=0, atol=5e-7)
    short = [text for text, p in zip(texts, exact, strict=True) if 1 - p > 1e-2]
    assert max(map(len, short)) <= len("0.123456")


def test_rounded_probabilities_stay_apart_from_0_and_1() -> None:
    powers = 10.0 ** -np.arange(1.0, 12.0)
    near = 1.2345678 * np.concatenate([powers, [1e-13, 0.0]])
    for values in (near, 1.0 - near):
        rounded = round_probabilities(values)
        distance = np.minimum(values, 1.0 - values)
        error = np.abs(rounded - values)
        assert (error <= np.minimum(5.1e-7, 5.1e-4 * distance) + 1e-16).all()
        assert ((rounded == 0.0) == (values == 0.0)).all()
        assert ((rounded == 1.0) == (values == 1.0)).all()
    assert np.isnan(round_probabilities(np.array([np.nan]))).all()


def test_the_numbers_beside_a_report_replace_no_input(files: Path) -> None:
    hokical_command("fit", "val.npz", "-o", "cal.metrics.json")
    before = (files / "cal.metrics.json").read_text()
    result = hokical_command(
        "evaluate", "cal.metrics.json", "test.npz", "--report", "cal.html"
    )
    assert "would be lost" in one_line(result)
    assert (files / "cal.metrics.json").read_text() == before
