"""The same numbers as published packages where they are right, and not where they
are wrong.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from hokical.metrics import debiased_ece, ece, smooth_ece
from hokical.plots import reliability

from . import twins

pytestmark = pytest.mark.peer


def peer(name: str) -> ModuleType:
    """A package that need not be there; what it warns about itself is not ours to
    mend.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("n_bins", [5, 10, 15])
def test_scikit_learn_curve_has_our_bins(n_bins: int) -> None:
    confidence, correct = twins.model(4000, seed=21)
    accuracy, mean = calibration_curve(correct, confidence, n_bins=n_bins)
    found = reliability(confidence, correct, n_bins=n_bins)
    assert accuracy == pytest.approx(found.accuracy)
    assert mean == pytest.approx(found.confidence)


@pytest.mark.parametrize("n_bins", [5, 15, 40])
@pytest.mark.parametrize(("norm", "theirs"), [(1, "l1"), (2, "l2"), (math.inf, "max")])
def test_torchmetrics_agrees_inside_the_bins(
    n_bins: int, norm: float, theirs: str
) -> None:
    confidence, correct = twins.model(2000, seed=22)
    assert ece(confidence, correct, n_bins=n_bins, norm=norm) == pytest.approx(
        _torchmetrics(confidence, correct, n_bins, theirs), rel=1e-6
    )


def test_torchmetrics_gives_one_a_bin_of_its_own_and_we_do_not() -> None:
    """One bin of ten holds all three: confidence 2.9/3 and accuracy 2/3, so the gap
    is 0.3.
    """
    confidence, correct = np.array([0.95, 1.0, 0.95]), np.array([True, False, True])
    assert ece(confidence, correct, n_bins=10) == pytest.approx(0.3)
    assert reliability(confidence, correct, n_bins=10).count[-1] == 3
    assert ece(confidence, correct, n_bins=10, norm=np.inf) == pytest.approx(0.3)
    assert _torchmetrics(confidence, correct, 10, "l1") == pytest.approx(1.1 / 3)
    assert _torchmetrics(confidence, correct, 10, "max") == pytest.approx(1.0)


def test_torchmetrics_debias_is_ours_but_for_lone_examples() -> None:
    torch = peer("torch")
    functional = peer("torchmetrics.functional.classification.calibration_error")
    confidence, correct = twins.model(3000, seed=23)
    keep = (
        confidence > 0.4
    )  # no bin with a single example, for which it divides by zero
    confidence, correct = confidence[keep], correct[keep]
    found = functional._ce_compute(
        torch.tensor(confidence), torch.tensor(correct), 15, norm="l2", debias=True
    )
    assert debiased_ece(confidence, correct) == pytest.approx(float(found), rel=1e-9)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("n_bins", [5, 10, 15])
def test_netcal_agrees(n_bins: int) -> None:
    netcal = peer("netcal.metrics")
    confidence, correct = twins.model(2000, seed=24)
    theirs = netcal.ECE(n_bins).measure(confidence, correct.astype(int))
    assert ece(confidence, correct, n_bins=n_bins) == pytest.approx(theirs, rel=1e-9)
    largest = netcal.MCE(n_bins).measure(confidence, correct.astype(int))
    found = ece(confidence, correct, n_bins=n_bins, norm=np.inf)
    assert found == pytest.approx(largest, rel=1e-9)


@pytest.mark.parametrize(("power", "n"), [(1.0, 2000), (1.5, 2000), (3.0, 500)])
def test_relplot_agrees_on_smooth_ece(power: float, n: int) -> None:
    """It bisects the bandwidth to 1e-3 on 200 points; we agree to about that."""
    relplot = peer("relplot")
    confidence, correct = twins.model(n, seed=25, power=power)
    theirs = relplot.smECE(confidence, correct.astype(float))
    assert smooth_ece(confidence, correct) == pytest.approx(theirs, abs=1.5e-3)


@pytest.mark.parametrize("bandwidth", [0.02, 0.05, 0.1])
def test_relplot_agrees_at_a_given_bandwidth(bandwidth: float) -> None:
    relplot = peer("relplot")
    confidence, correct = twins.model(1000, seed=26)
    theirs = relplot.smECE_sigma(confidence, correct.astype(float), bandwidth)
    ours = smooth_ece(confidence, correct, bandwidth=bandwidth)
    assert ours == pytest.approx(theirs, rel=0.02)


def test_relplot_cuts_wide_kernels_and_we_do_not() -> None:
    """Its kernel ends half a unit away, so what should cancel from afar does not."""
    relplot = peer("relplot")
    confidence, correct = np.array([0.1, 0.9]), np.array([True, False])
    slow = twins.smooth_size(confidence, correct, 0.6)
    assert smooth_ece(confidence, correct, bandwidth=0.6) == pytest.approx(
        slow, rel=1e-4
    )
    theirs = relplot.smECE_sigma(confidence, correct.astype(float), 0.6)
    assert abs(theirs - slow) > 0.01


def _torchmetrics(
    confidence: np.ndarray, correct: np.ndarray, n_bins: int, norm: str
) -> float:
    torch = peer("torch")
    functional = peer("torchmetrics.functional.classification")
    # The binary error takes (confidence, correct) as they are, without a class
    # dimension.
    return float(
        functional.binary_calibration_error(
            torch.tensor(confidence),
            torch.tensor(correct.astype(int)),
            n_bins=n_bins,
            norm=norm,
        )
    )
