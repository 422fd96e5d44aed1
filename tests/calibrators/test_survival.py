"""Algorithms 1 and 2 for any transformations, from survivals or their table."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hokical
from hokical import Ensemble, Hoki
from hokical.calibrators import SurvivalCalibrator
from hokical.cli import app
from hokical.stability import StabilityTable, Uniform
from tests.ensembles import noisy_members


def survivals(n: int, *, seed: int = 0, count: int = 20) -> tuple[Any, Any]:
    """Transformations keep labels that are right more often."""
    rng = np.random.default_rng(seed)
    ease = rng.random(n)
    return rng.random((count, n)) < ease, rng.random(n) < 0.4 + 0.5 * ease


def printed_algorithm(survived: Any, correct: Any, n_bins: int) -> np.ndarray:
    """Algorithm 1 line by line, in a loop over bins; the confidence of each example."""
    gamma = survived.mean(axis=0)
    confidence = np.full(correct.size, correct.mean())
    for _ in range(50):
        updated = confidence.copy()
        bins = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
        for b in np.unique(bins):
            rows = bins == b
            g, c = gamma[rows], correct[rows]
            alpha = (g * c).sum() / g.sum() if g.sum() else 0.0
            beta = ((1 - g) * c).sum() / (1 - g).sum() if (1 - g).sum() else 0.0
            updated[rows] = alpha * g + beta * (1 - g)
        confidence = updated
    return confidence


def test_it_is_the_algorithm_as_printed() -> None:
    survived, correct = survivals(3000)
    calibrator = SurvivalCalibrator(n_bins=5, unseen="as_printed")
    confidence = calibrator.fit(survived, correct).predict(survived)
    assert calibrator.ending_ == "converged"
    np.testing.assert_allclose(
        confidence, printed_algorithm(survived, correct, 5), atol=1e-9
    )


def test_hoki_with_draws_is_one_of_its_uses() -> None:
    """Noise on logits, drawn outside, gives Hoki's own numbers."""
    members, labels = noisy_members(500, noise=[1.0])
    logits = members[0]
    hoki = Hoki(noise=Uniform(-2.0, 2.0), draws=64, n_bins=10).fit(logits, labels)
    stability = hoki.stability(logits)
    survived = np.arange(64)[:, None] < np.rint(64 * stability)
    correct = logits.argmax(axis=1) == labels
    calibrator = SurvivalCalibrator(n_bins=10).fit(survived, correct)
    np.testing.assert_allclose(calibrator.alpha_, hoki.alpha_)
    np.testing.assert_allclose(
        calibrator.predict(survived), hoki.predict_confidence(logits), atol=1e-12
    )


def test_new_examples_are_right_as_often_as_stated() -> None:
    calibrator = SurvivalCalibrator().fit(*survivals(4000))
    survived, correct = survivals(20_000, seed=1)
    confidence = calibrator.predict(survived)
    for low, high in ((0.3, 0.6), (0.6, 0.75), (0.75, 1.0)):
        rows = (confidence >= low) & (confidence < high)
        assert correct[rows].mean() == pytest.approx(confidence[rows].mean(), abs=0.04)


def test_parts_and_tables_lead_to_the_same_fit(tmp_path: Any) -> None:
    survived, correct = survivals(1000)
    whole = SurvivalCalibrator(n_bins=5).fit(survived, correct)
    first = SurvivalCalibrator(n_bins=5).fit(survived[:, :300], correct[:300])
    second = SurvivalCalibrator(n_bins=5).fit(survived[:, 300:], correct[300:])
    merged = first.merge(second)
    added = first.partial_fit(survived[:, 300:], correct[300:])
    table = StabilityTable.from_examples(survived.sum(axis=0), correct, levels=20)
    counted = SurvivalCalibrator(n_bins=5).fit(table, None)
    whole.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    for calibrator in (merged, added, counted, loaded):
        assert (calibrator.predict(survived) == whole.predict(survived)).all()
    assert loaded.accuracy_ == whole.accuracy_


@pytest.mark.slow
def test_a_new_process_loads_the_file_and_commands_refuse_it(tmp_path: Any) -> None:
    """Nothing has imported the record of its curve there."""
    survived, correct = survivals(300)
    path = tmp_path / "survival.json"
    SurvivalCalibrator().fit(survived, correct).save(path)
    hokical_command = [sys.executable, "-m", "hokical"]
    shown = subprocess.run(
        [*hokical_command, "show", path], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert "survival" in shown.stdout
    applied = CliRunner().invoke(app, ["apply", str(path), "x.npz", "-o", "y.csv"])
    assert applied.exit_code == 2
    assert "`hokical.load(path).predict(survived)`" in applied.output.replace("\n", " ")


def test_members_of_an_ensemble_keep_the_label_of_the_first() -> None:
    members, labels = noisy_members(800, noise=[1.0] * 9)
    members[4, 7] = np.nan
    ensemble = Ensemble(members)
    survived = ensemble.label_survival()
    assert survived.shape == (8, 800)
    first = members[0].argmax(axis=1)
    assert (survived[0] == (members[1].argmax(axis=1) == first)).all()
    assert survived[3, 7]
    calibrator = SurvivalCalibrator().fit(survived, first == labels)
    confidence = calibrator.predict(survived)
    assert np.corrcoef(confidence, first == labels)[0, 1] > 0.2


@pytest.mark.parametrize(
    ("survived", "correct", "message"),
    [
        (np.ones(5), np.ones(5), r"must be \(transformations, n\).*got shape \(5,\)"),
        (np.array([[0, 2]]), np.ones(2), "must be True or False"),
        (np.ones((3, 5)), np.ones(4, int), "`correct`"),
    ],
)
def test_mistaken_survivals_are_told(survived: Any, correct: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        SurvivalCalibrator().fit(survived, correct)


def test_other_transformations_are_refused() -> None:
    calibrator = SurvivalCalibrator().fit(*survivals(200))
    with pytest.raises(ValueError, match="the 20 transformations of the fit"):
        calibrator.predict(np.ones((10, 3)))
