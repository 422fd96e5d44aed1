"""The study over a folder of classifiers: what it reads, how it counts, and that it
resumes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hokical_paper.cli import app
from hokical_paper.study import harm as study_harm
from hokical_paper.study import noise as study_noise
from hokical_paper.study import outcomes as study
from hokical_paper.study import peers as study_peers
from hokical_paper.study.harm import HarmCell
from hokical_paper.study.outcomes import (
    Outcome,
    choose_experiments,
    judge,
    read_experiments,
    run_study,
)
from hokical_paper.study.tables import compare_by_size, summarise


def make_scores(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, n_classes))
    return 3.0 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two data sets of probabilities in one file, one of logits, one without a
    validation set.
    """
    many = {}
    for name, n_classes in (("iris__rf", 3), ("iris__lr", 3), ("coins__rf", 2)):
        for part, seed in (("val", 0), ("test", 1)):
            logits, labels = make_scores(120, n_classes, seed)
            proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            proba[proba < 1e-3] = 0.0
            many[f"{name}/{part}_probs"] = proba / proba.sum(axis=1, keepdims=True)
            many[f"{name}/{part}_labels"] = labels
    made = tmp_path / "scores"
    made.mkdir()
    np.savez(made / "tables.npz", **many)
    logits, labels = make_scores(100, 4, 5)
    np.savez(made / "net.npz", test_logits=logits, test_labels=labels)
    np.savez(made / "other.npz", weights=np.ones(3))
    return made


def test_what_is_read(folder: Path) -> None:
    found = {experiment.name: experiment for experiment in read_experiments(folder)}
    assert sorted(found) == ["coins__rf", "iris__lr", "iris__rf", "net"]
    assert found["iris__lr"].data_set == "iris"
    assert np.isfinite(
        found["coins__rf"].val_logits
    ).all()  # zeros are unlikely, not impossible
    assert found["net"].val_labels.size == found["net"].test_labels.size == 50
    first, second = (choose_experiments(folder, half) for half in ("first", "second"))
    assert {e.data_set for e in first}.isdisjoint({e.data_set for e in second})
    assert max(e.val_labels.size for e in choose_experiments(folder, limit=30)) == 30
    several = choose_experiments(folder, limit=30, draws=2)
    assert (
        len({experiment.name for experiment in several})
        == len(several)
        == 2 * len(found)
    )


def test_scores_are_those_of_a_plain_loop(folder: Path) -> None:
    experiment = next(e for e in read_experiments(folder) if e.name == "net")
    found = judge(experiment, "uncalibrated")
    logits, labels = experiment.test_logits, experiment.test_labels
    losses, squares = [], []
    for row, label in zip(logits, labels, strict=True):
        p = np.exp(row) / np.exp(row).sum()
        losses.append(-np.log(p[label]))
        squares.append(((p - np.eye(4)[label]) ** 2).sum())
    assert found.log_loss == pytest.approx(np.mean(losses))
    assert found.brier == pytest.approx(np.mean(squares))
    assert found.error_rate == pytest.approx(np.mean(logits.argmax(axis=1) != labels))


@pytest.mark.slow
def test_outcomes_are_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = ["uncalibrated", "temps", "platt"]
    first = run_study(read_experiments(folder), methods, tmp_path / "cache")
    assert [f.experiment for f in first if f.method == "platt"] == ["coins__rf"]
    monkeypatch.setattr(study, "judge", None)
    assert run_study(read_experiments(folder), methods, tmp_path / "cache") == first


def outcome(experiment: str, method: str, loss: float) -> Outcome:
    fixed = ("binary", "up to 500 examples to fit on", method)
    return Outcome(
        experiment, experiment[0], *fixed, loss, loss, loss, loss, loss, 0, 1.0
    )


def test_standings() -> None:
    losses = {
        "uncalibrated": [0.5, 0.5, 0.5],
        "auto": [0.4, 0.4, 0.6],
        "temps": [0.4, 0.45, 0.5],
    }
    losses["temps"][0] += 1e-8  # where a solver stopped
    outcomes = [
        outcome(name, method, loss)
        for method, row in losses.items()
        for name, loss in zip(("a1", "a2", "b1"), row, strict=True)
    ]
    whole = summarise(outcomes, subject="auto", resamples=50)[0]
    by_name = {standing.method: standing for standing in whole.standings}
    assert (whole.n_experiments, whole.n_data_sets) == (3, 2)
    assert by_name["auto"].rank == pytest.approx((1.5 + 1 + 3) / 3)
    assert by_name["temps"].subject_wins == pytest.approx((0.5 + 1 + 0) / 3)
    assert by_name["auto"].worse_than_base == pytest.approx(1 / 3)
    low, high = by_name["auto"].mean_interval
    assert low <= by_name["auto"].mean <= high
    assert "| temps |" in whole.to_markdown()


def test_the_command(folder: Path, tmp_path: Path) -> None:
    options = ["--methods", "uncalibrated,temps", "--subject", "temps", "--no-peers"]
    found = CliRunner().invoke(
        app, ["study", str(folder), *options, "--cache", str(tmp_path / "cache")]
    )
    assert found.exit_code == 0, found.output
    assert "**binary**: 1 classifiers, 1 data sets" in found.output
    assert "worse than uncalibrated in" in found.output


@pytest.mark.slow
def test_peers_beside_the_default_by_size(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record for each size, task and method; a peer that fails counts as
    uncalibrated.
    """

    def refuse(scores: object, labels: object) -> object:
        raise ValueError("not with these examples")

    broken = replace(study_peers.PEERS["sklearn:sigmoid"], fit=refuse)
    monkeypatch.setitem(study_peers.PEERS, "sklearn:sigmoid", broken)
    methods = ["uncalibrated", "auto", "sklearn:sigmoid", "sklearn:temperature"]
    by_size = {
        size: run_study(
            choose_experiments(folder, limit=limit), methods, tmp_path / "cache"
        )
        for size, limit in (("40", 40), ("all", None))
    }
    records = compare_by_size(by_size, resamples=20)
    found = {(one["size"], one["task"], one["method"]): one for one in records}
    assert len(found) == len(records) == 2 * 3 * len(methods)
    for size in by_size:
        raw, ours, theirs, failing = (
            found[size, "all", name]
            for name in (
                "uncalibrated",
                "auto",
                "sklearn:temperature",
                "sklearn:sigmoid",
            )
        )
        assert (ours["gap"], ours["fit_ratio"], ours["failed"]) == (0.0, 1.0, 0)
        assert theirs["log_loss"] < raw["log_loss"]
        assert theirs["failed"] == 0
        assert theirs["gap"] == pytest.approx(theirs["log_loss"] - ours["log_loss"])
        low, high = theirs["gap_interval"]
        assert low <= theirs["gap"] <= high
        assert failing["failed"] == failing["classifiers"] == 4
        for score in ("log_loss", "classwise_ece", "brier"):
            assert failing[score] == raw[score]


def test_harm_of_what_is_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No calibration loses nothing, and is the only method that suits all sizes
    without changes.
    """
    monkeypatch.setattr(
        study_harm, "CELLS", (HarmCell(2, 40), HarmCell(3, 60, masked=0.4))
    )
    found = study_harm.measure_harm(["uncalibrated", "temps", "platt"], 2)
    assert [(harm.n_classes, harm.method) for harm in found] == [
        (2, "uncalibrated"),
        (2, "temps"),
        (2, "platt"),
        (3, "uncalibrated"),
        (3, "temps"),
    ]
    assert all((harm.mean == 0.0) == (harm.method == "uncalibrated") for harm in found)
    assert all(0.0 <= harm.mean <= harm.worst for harm in found)
    assert all(
        harm.error == pytest.approx(harm.worst - harm.mean) for harm in found
    )  # of two
    lines = study_harm.harm_table(found).splitlines()
    assert lines[0] == "| classes | examples | uncalibrated | temps | platt |"
    assert len(lines) == 4
    assert lines[2].startswith("| 2 | 40 | 0.0000 ± 0.0000 (0.000, 0%) | ")
    assert lines[3].startswith("| 3 (40% masked) | 60 | ")
    assert lines[3].endswith("|  |")


def test_masked_classes_are_never_the_likeliest() -> None:
    cell = HarmCell(10, 200, masked=0.4)
    logits, labels = study_harm._draw(200, cell, np.random.default_rng(0))
    unmasked, _ = study_harm._draw(200, HarmCell(10, 200), np.random.default_rng(0))
    np.testing.assert_array_equal(logits.argmax(axis=1), unmasked.argmax(axis=1))
    assert np.isfinite(logits[np.arange(200), labels]).all()
    assert np.isneginf(logits).sum() == pytest.approx(0.4 * 9 * 200, rel=0.1)


def test_random_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth is the best; ETS, which can mix in the uniform distribution, is near
    it.
    """
    monkeypatch.setattr(study_noise, "N_NEW", 500)
    found = study_noise.measure_noisy(["uncalibrated", "temps", "ets", "platt"], 2)
    losses = {loss.method: loss.mean for loss in found}
    assert [*losses] == ["uncalibrated", "temps", "ets", "truth"]
    assert losses["truth"] < losses["ets"] < losses["temps"] < losses["uncalibrated"]
    assert losses["ets"] < losses["truth"] + 0.01
    assert found[-1].error == 0.0 < found[0].error
    command = CliRunner().invoke(app, ["study", "--noisy", "1", "--methods", "temps"])
    assert command.exit_code == 0, command.output
    assert "| method | log loss | above the truth |" in command.output
    assert "| truth | 1." in command.output
