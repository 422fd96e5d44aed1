"""The commands: what they print, write and refuse."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hokical.cli import app
from hokical_paper.cli import app as paper_app
from hokical_paper.running import cells as running
from hokical_paper.running.results import Results
from paper.tests.tiny_suite import QUICK

runner = CliRunner()


@pytest.fixture
def cached(
    ran: tuple[Path, Path, Results], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Options that find the small suite and its cache; the matrix methods stay out."""
    folder, cache, _ = ran
    monkeypatch.setattr(running, "METHODS", tuple(QUICK))
    return ["--suite", str(folder), "--cache", str(cache), "--jobs", "1"]


def test_suite_lists_the_pairs(ran: tuple[Path, Path, Results]) -> None:
    done = runner.invoke(app, ["paper", "suite", "--suite", str(ran[0]), "--json"])
    assert done.exit_code == 0
    rows = json.loads(done.stdout)
    assert [row["dataset"] for row in rows] == ["MNIST", "CIFAR-10", "ImageNet"]
    assert {"model", "test_accuracy", "uncalibrated_ece"} <= set(rows[0])
    shown = runner.invoke(app, ["paper", "suite", "--suite", str(ran[0])])
    assert "ResNet-110" in shown.stdout
    assert f"{rows[1]['test_accuracy']:.2%}" in shown.stdout


def test_every_command_has_an_example() -> None:
    group = typer.main.get_command(paper_app)
    for name, command in group.commands.items():
        assert f"Example: hokical paper {name}" in command.help, name


def test_tables_fit_the_terminal(
    cached: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["paper", "tables", "ece", "noise", "bins", *cached]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 80
    assert done.stdout.count("ECE, 15 bins of equal width") > 1


def test_a_table_on_stdout(cached: list[str]) -> None:
    done = runner.invoke(app, ["paper", "tables", "ece", "--format", "csv", *cached])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {row["table"] for row in rows} == {"ece"}
    assert {row["source"] for row in rows} == {"ours", "paper"}


def test_a_table_in_the_terminal(cached: list[str]) -> None:
    done = runner.invoke(app, ["paper", "tables", "noise", "--intervals", *cached])
    assert done.exit_code == 0, done.output
    assert "U(-2, 4)" in done.stdout
    assert "only its width matters" in " ".join(done.stdout.split())


def test_one_file_per_table(cached: list[str], tmp_path: Path) -> None:
    arguments = ["paper", "tables", "brier", "time", "--format", "markdown", "-o"]
    done = runner.invoke(app, [*arguments, str(tmp_path / "out"), *cached])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "brier.md",
        "time.md",
    ]


@pytest.mark.slow
def test_everything_at_once(
    cached: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hokical_paper.pages import output

    monkeypatch.setattr(
        output, "draw_all", lambda *_: {"ece_bars": ("A bar.", b"\x89PNG")}
    )
    done = runner.invoke(app, ["paper", "all", "-o", str(tmp_path / "out"), *cached])
    assert done.exit_code == 0, done.output
    written = {
        str(path.relative_to(tmp_path / "out"))
        for path in (tmp_path / "out").rglob("*.*")
    }
    assert {
        "index.html",
        "findings.md",
        "tables/ece.md",
        "figures/ece_bars.png",
    } <= written
    assert "The paper's claim" in done.stdout
    assert "The paper's claim" in (tmp_path / "out" / "findings.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tables", "nonsense"], "no table 'nonsense'; choose from wins, ece"),
        (["tables", "-o", "x"], "choose --format markdown, csv or html"),
        (
            ["tables", "--pairs", "mnist"],
            "no pairs ['mnist']; choose from mnist_lenet5",
        ),
    ],
)
def test_bad_usage_is_one_line(
    cached: list[str], arguments: list[str], message: str
) -> None:
    done = runner.invoke(app, ["paper", *arguments[:1], *cached, *arguments[1:]])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("below", ["", "x"])
def test_a_cache_that_is_a_file_is_bad_usage(
    suite_folder: Path, tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").write_text("keep")
    words = ["paper", "tables", "ece", "--suite", str(suite_folder), "--cache"]
    done = runner.invoke(app, [*words, str(tmp_path / "file" / below)])
    assert done.exit_code == 2
    assert "cannot create the cache folder" in done.stderr
    assert "--cache" in done.stderr
    assert (tmp_path / "file").read_text() == "keep"


def test_quick_pairs_are_warned_of(suite_folder: Path) -> None:
    path = suite_folder / "manifest.json"
    document = json.loads(path.read_text())
    document["pairs"][1]["quick"] = True
    path.write_text(json.dumps(document))
    done = runner.invoke(
        app, ["paper", "suite", "--suite", str(suite_folder), "--json"]
    )
    assert done.exit_code == 0
    assert len(json.loads(done.stdout)) == 3
    assert "Warning: 1 of 3 pairs were made with --quick" in done.stderr


def test_a_missing_suite_is_bad_usage(tmp_path: Path) -> None:
    done = runner.invoke(app, ["paper", "suite", "--suite", str(tmp_path)])
    assert done.exit_code == 2
    assert "no logit suite here" in done.stderr


def test_wide_tables_are_not_cut_in_a_pipe(cached: list[str]) -> None:
    """Reasons such as "not available" may wrap; the last column must be there in
    every row.
    """
    done = runner.invoke(app, ["paper", "tables", "ece", *cached])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert any(line.rstrip().endswith("auto \N{DAGGER}") for line in lines)
    ours = [line for line in lines if " ours " in line]
    assert len(ours) % 3 == 0
    assert all("\N{HORIZONTAL ELLIPSIS}" not in line for line in lines)


@pytest.mark.parametrize("command", ["figures", "all"])
def test_missing_matplotlib_is_said_before_anything_is_computed(
    command: str, suite_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = [
        "paper",
        command,
        "--suite",
        str(suite_folder),
        "--cache",
        str(tmp_path / "cache"),
    ]
    done = runner.invoke(app, [*words, "-o", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "pip install './paper[plot]'" in " ".join(done.output.split())
    assert not (tmp_path / "cache").exists()
