"""Examples that cannot teach what is asked of them are warned about, once and with a
remedy.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from typer.testing import CliRunner

from hokical import FitDataWarning, Hoki, make
from hokical.calibrators import method_names
from hokical.cli import app
from hokical.streams import fit as fit_stream
from tests.conftest import synthetic_logits

NAMES = [*method_names(2), "auto"]


def warnings_of(
    name: str, logits: np.ndarray, labels: np.ndarray, **options: Any
) -> list[str]:
    calibrator = make(name, **options)
    if calibrator.method.binary_only:
        logits, labels = logits[:, :2], labels % 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", FitDataWarning)
        calibrator.fit(logits, labels)
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", NAMES)
def test_a_handful_and_nothing_wrong_are_said_by_every_method(name: str) -> None:
    logits, labels = synthetic_logits(60, 3, seed=1)
    few = warnings_of(name, logits[:5], labels[:5])
    best = (logits[:, :2] if make(name).method.binary_only else logits).argmax(axis=1)
    perfect = warnings_of(name, logits, best)
    if name == "uncalibrated":
        assert few == perfect == []
    elif name == "auto":  # which has priors
        assert perfect == []
        assert "kept: 5 examples are too few" in few[0]
    else:
        assert len(few) == len(perfect) == 1
        assert (
            few[0]
            == "`logits` hold 5 examples, too few to learn from. Use some hundred or more."
        )
        assert "all 60 examples" in perfect[0]
        assert "has not seen" in perfect[0]


def test_labels_of_other_columns() -> None:
    logits, _ = synthetic_logits(60, 3, seed=1)
    (found,) = warnings_of("temps", logits, logits.argmin(axis=1))
    assert "`labels` contradict the scores: 0.0% agree" in found


@pytest.mark.parametrize("name", ["uncalibrated", "temps"])
def test_probabilities_for_logits(name: str) -> None:
    logits, labels = synthetic_logits(200, 3, seed=1)
    for rows in (softmax(logits, axis=1), softmax(logits.astype(np.float16), axis=1)):
        (found,) = warnings_of(name, rows, labels)
        assert "from_probabilities" in found
    assert not warnings_of(name, logits, labels)
    assert not warnings_of(name, 0.999 * softmax(logits, axis=1) - 1e-3, labels)
    assert not warnings_of(name, np.random.default_rng(0).random((200, 3)), labels)


def test_fewer_mistakes_than_parameters() -> None:
    logits, labels = synthetic_logits(300, 4, seed=1, signal=3.2)
    wrong = int((logits.argmax(axis=1) != labels).sum())
    assert 0 < wrong < 8
    (found,) = warnings_of("vecs", logits, labels)
    assert f"{wrong} mistakes, fewer than the 8 numbers that 'vecs' learns" in found
    assert warnings_of("hoki", logits, labels)
    (found,) = warnings_of("temps", logits, labels)
    assert found.startswith(
        f"`labels` show {wrong} mistakes; a temperature needs 10. Use more"
    )


@pytest.mark.parametrize(
    ("name", "n", "n_classes", "words"),
    [
        ("platt", 30, 2, "examples of the rarer class; 'platt' needs 20"),
        ("beta", 40, 2, "examples of the rarer class; 'beta' needs 30"),
        ("venn_abers", 20, 2, "examples of the rarer class; 'venn_abers' needs 10"),
        ("vecs", 70, 8, "70 examples of 8 classes; 'vecs' needs 10 a class"),
        (
            "structured",
            70,
            8,
            "70 examples of 8 classes; 'structured' needs 10 a class",
        ),
        ("irova_ts", 70, 8, "70 examples of 8 classes; 'irova_ts' needs 10 a class"),
    ],
)
def test_few_examples_are_said_once_with_a_remedy(
    name: str, n: int, n_classes: int, words: str
) -> None:
    logits, labels = synthetic_logits(max(5 * n, 400), n_classes, seed=1, signal=0.5)
    (found,) = warnings_of(name, logits[:n], labels[:n])
    assert words in found
    assert "`hokical.auto`" in found
    assert not warnings_of(name, logits, labels)
    assert not any(
        "needs" in each for each in warnings_of("auto", logits[:n], labels[:n])
    )


def test_streams_and_weights_are_judged_by_what_counts() -> None:
    logits, labels = synthetic_logits(100, 3, seed=2)
    right = logits.argmax(axis=1) == labels
    with pytest.warns(FitDataWarning, match=f"all {right.sum()} examples"):
        Hoki().fit(logits, labels, right.astype(float))
    chunks = [
        (softmax(logits[rows], axis=1), labels[rows])
        for rows in (slice(50), slice(50, 100))
    ]
    with pytest.warns(FitDataWarning, match="look like probabilities"):
        fit_stream(make("temps"), chunks)


def test_demo_data_are_free_of_warnings() -> None:
    from hokical.demo import demo_logits

    logits, labels = demo_logits()[0]
    for name in ("hoki", "temps", "vecs", "ets"):
        assert not warnings_of(name, logits, labels)


@pytest.mark.filterwarnings("default::hokical._core.runtime.FitDataWarning")
def test_the_command_line_says_it_and_fails_if_strict(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(300, 3, seed=3)
    for name, rows in (("good", logits), ("bad", softmax(logits, axis=1))):
        np.savez(tmp_path / f"{name}.npz", logits=rows, labels=labels)

    def run(*args: str) -> Any:
        words = [
            str(tmp_path / arg) if Path(arg).suffix[1:].isalpha() else arg
            for arg in args
        ]
        return CliRunner().invoke(app, words)

    fit = ("--method", "temps", "-o", "cal.json")
    good, bad = (
        run("fit", f"{name}.npz", *fit, "--strict") for name in ("good", "bad")
    )
    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert bad.stderr.count("Warning: `logits` look like probabilities") == 1
    assert run("fit", "bad.npz", *fit).exit_code == 0
    assert run("fit", "good.npz", *fit).exit_code == 0
    evaluate = ("evaluate", "cal.json", "good.npz")
    found = run(*evaluate)
    assert found.exit_code == 0
    assert (
        "good.npz holds the examples that the calibrator was fitted on" in found.stderr
    )
    assert run("--strict", *evaluate).exit_code == 1
    apply = ("apply", "cal.json", "good.npz", "-o", "out.csv", "--risk", "0.3")
    assert "was fitted on" in run(*apply).stderr
    np.savez(tmp_path / "other.npz", logits=logits[1:], labels=labels[1:])
    other = run("--strict", "evaluate", "other.npz", *evaluate[2:])
    assert "was fitted on" not in other.stderr


@pytest.mark.filterwarnings("default::hokical._core.runtime.FitDataWarning")
def test_comparisons_say_it_and_not_as_notes() -> None:
    from hokical import compare

    logits, labels = synthetic_logits(300, 3, seed=3)
    rows = softmax(logits, axis=1)
    with pytest.warns(FitDataWarning, match="look like probabilities"):
        found = compare(
            (rows[:150], labels[:150]), (rows[150:], labels[150:]), ["temps", "vecs"]
        )
    assert not any(
        "probabilities" in note for result in found.results for note in result.notes
    )
