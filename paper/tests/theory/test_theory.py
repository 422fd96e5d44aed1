"""The theorems on data: both sides of the first, the bounds of the second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hokical import Hoki
from hokical.calibrators import SurvivalCalibrator
from hokical.metrics import ece
from hokical_paper.running.results import Results
from hokical_paper.suite.manifest import open_suite
from hokical_paper.theory.sufficiency import sufficiency_gap, survival_gap
from hokical_paper.theory.theorems import BOUNDS, simulate_bounds, sufficiency_facts


def test_the_recursion_closes_the_gap_of_theorem_1(suite_folder: Path) -> None:
    data = open_suite(suite_folder).pairs[1].load()
    hoki = Hoki(unseen="as_printed").fit(data.val_logits, data.val_labels)
    facts = sufficiency_facts(hoki, data)
    last = facts["validation"][-1]
    assert last["step"] == facts["n_steps"] == hoki.n_iter_
    assert last["error"] == pytest.approx(hoki.validation_ece_, abs=1e-12)
    measured = ece(hoki.predict_confidence(data.test_logits), data.test_correct)
    assert facts["test"][-1]["error"] == pytest.approx(measured, rel=1e-9)
    gap = np.subtract(last["implied"], last["confidence"]) @ last["weight"]
    assert gap == pytest.approx(0.0, abs=1e-9 * sum(last["weight"]))


def test_the_gap_is_that_of_bins_for_arrays_weights_and_tensors(
    suite_folder: Path,
) -> None:
    data = open_suite(suite_folder).pairs[1].load()
    hoki = Hoki(unseen="as_printed").fit(data.val_logits, data.val_labels)
    gap = sufficiency_gap(hoki, data.test_logits, data.test_labels)
    measured = ece(hoki.predict_confidence(data.test_logits), data.test_correct)
    assert gap.calibration_error == pytest.approx(measured, rel=1e-9)
    twice = np.full(data.test_labels.size, 2)
    weighted = sufficiency_gap(hoki, data.test_logits, data.test_labels, twice)
    np.testing.assert_array_equal(weighted.weight, 2 * gap.weight)
    np.testing.assert_allclose(weighted.gap, gap.gap, atol=1e-12)
    torch = pytest.importorskip("torch")
    tensors = torch.from_numpy(data.test_logits), torch.from_numpy(data.test_labels)
    found = sufficiency_gap(hoki, *tensors)
    assert found.calibration_error == pytest.approx(gap.calibration_error, abs=1e-12)


def test_bounds_hold_as_often_as_they_say_and_shrink() -> None:
    few, many = simulate_bounds((500, 20_000), n_sets=60)
    assert few.true_error == many.true_error < many.mean_ece < few.mean_ece
    for name in BOUNDS:
        assert few.coverage[name] >= 0.95
        assert many.mean_bound[name] < few.mean_bound[name]
    assert many.mean_bound["Bousquet, Brier"] == min(many.mean_bound.values())


def test_bounds_are_from_examples_of_their_own(results: Results) -> None:
    facts = results.by_cell["mnist_lenet5", "hoki"].facts["bounds"]
    assert (facts["n"], facts["n_held"]) == (75, 120)


def test_both_sides_agree_for_any_transformations() -> None:
    """Theorem 1 at the end of the recursion, for survivals that a user counted."""
    rng = np.random.default_rng(0)
    ease = rng.random(3000)
    survived = rng.random((20, 3000)) < ease
    correct = rng.random(3000) < 0.4 + 0.5 * ease
    calibrator = SurvivalCalibrator(n_bins=5, unseen="as_printed")
    calibrator.fit(survived, correct)
    assert calibrator.converged_
    gap = survival_gap(calibrator, survived, correct)
    assert gap.calibration_error < 1e-9
