"""Metrics of chunks: as of all rows at once, exactly or to the levels that were counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import metrics
from hokical.metrics.sums import LEVELS, FullSums, MetricSums

EXACT = ["ece", "mce", "debiased_ece", "brier", "refinement"]
BY_LEVEL = ["auroc", "aurc", "selective_risk", "ks_error", "smooth_ece"]
FULL = ["brier_full", "log_loss_full", "classwise_ece"]


def scores(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = np.clip(rng.normal(0.7, 0.3, size=n), 0.0, 1.0)  # also exactly 0 and 1
    return confidence, rng.uniform(size=n) < confidence**2


def cut(arrays, sizes):
    ends = np.cumsum(sizes)
    for start, stop in zip([0, *ends], [*ends, len(arrays[0])], strict=True):
        if stop > start:
            yield tuple(array[start:stop] for array in arrays)


@pytest.mark.parametrize("name", EXACT)
@given(seed=st.integers(0, 999), sizes=st.lists(st.integers(0, 60), max_size=4))
def test_exact_ones_do_not_feel_the_chunks(name: str, seed: int, sizes: list[int]) -> None:
    data = scores(250, seed)
    metric = getattr(metrics, name)
    assert metric(cut(data, sizes)) == metric(*data)


@pytest.mark.parametrize("name", BY_LEVEL)
@given(seed=st.integers(0, 999))
def test_ordered_ones_are_exact_on_the_levels(name: str, seed: int) -> None:
    confidence, correct = scores(250, seed)
    metric = getattr(metrics, name)
    levelled = np.rint(confidence * LEVELS) / LEVELS
    assert metric(cut((confidence, correct), [70, 90])) == pytest.approx(
        metric(levelled, correct), abs=1e-9, nan_ok=True
    )


def test_weights_are_repetitions() -> None:
    confidence, correct = scores(300, 5)
    weights = np.random.default_rng(0).integers(0, 4, size=300)
    weights[:100] = np.maximum(weights[:100], 1)
    repeated = np.repeat(confidence, weights), np.repeat(correct, weights)
    chunks = list(cut((confidence, correct, weights), [100, 80]))
    for name in [*EXACT, "auroc", "ks_error", "log_loss"]:
        metric = getattr(metrics, name)
        options = {"clip": 1e-9} if name == "log_loss" else {}
        assert metric(iter(chunks), **options) == pytest.approx(
            metric(*repeated, **options), abs=1e-5
        )


def test_options_reach_the_sums() -> None:
    data = scores(400, 2)
    chunks = list(cut(data, [150]))
    assert metrics.ece(iter(chunks), n_bins=7, norm=2) == metrics.ece(*data, n_bins=7, norm=2)
    assert metrics.log_loss(iter(chunks), clip=0.01) == pytest.approx(
        metrics.log_loss(*data, clip=0.01)
    )
    assert metrics.log_loss(iter([([1.0], [False])])) == np.inf
    assert metrics.debiased_ece(iter(chunks), squared=True) == metrics.debiased_ece(
        *data, squared=True
    )
    assert metrics.ece(iter(chunks), bins="mass") == pytest.approx(
        metrics.ece(*data, bins="mass"), abs=1e-2
    )
    assert metrics.sharpness(iter(chunks)) == pytest.approx(metrics.sharpness(data[0]))
    assert metrics.brier_split(iter(chunks)) == metrics.brier_split(*data)


@pytest.mark.parametrize("name", FULL)
def test_full_metrics(name: str) -> None:
    rng = np.random.default_rng(3)
    proba = rng.dirichlet(np.ones(4), size=500)
    labels = rng.integers(4, size=500)
    metric = getattr(metrics, name)
    assert metric(cut((proba, labels), [200, 7])) == pytest.approx(metric(proba, labels), rel=1e-13)
    weights = rng.exponential(size=500)
    assert metric(cut((proba, labels, weights), [200])) == pytest.approx(
        metric(proba, labels, sample_weight=weights), rel=1e-12
    )


def test_a_summary_of_chunks() -> None:
    data = scores(2000, 9)
    found = metrics.summary(cut(data, [500]), coverage=0.5, delta=0.1)
    known = metrics.summary(*data, coverage=0.5, delta=0.1, n_resamples=0)
    assert found.bounds == pytest.approx(known.bounds)
    for name, estimate in known.estimates.items():
        allowed = 1e-2 if name == "ece_mass" else 1e-5
        assert found[name].value == pytest.approx(estimate.value, abs=allowed), name
        assert np.isnan(found[name].low) or not np.isfinite(found[name].value)


def test_sums_add_in_any_order() -> None:
    parts = [MetricSums.from_examples(*scores(100, seed)) for seed in range(4)]
    one = parts[0] + parts[1] + (parts[2] + parts[3])
    other = parts[3] + parts[1] + (parts[0] + parts[2])
    assert one.n_rows == other.n_rows == 400
    assert one.binned.ece() == other.binned.ece()
    assert (one.levels == other.levels).all()


def test_what_is_wrong_is_said() -> None:
    data = scores(10, 0)
    with pytest.raises(TypeError, match=r"a chunk must be \(confidence, correct\)"):
        metrics.ece(iter([data[0]]))
    with pytest.raises(TypeError, match="give nothing beside them"):
        metrics.ece(iter([data]), data[1])
    with pytest.raises(ValueError, match="at least one chunk"):
        metrics.ece(iter([]))
    with pytest.raises(ValueError, match="`n_bins` must be an integer"):
        metrics.ece(iter([data]), n_bins=0)
    with pytest.raises(TypeError, match="`proba` cannot be given with chunks"):
        metrics.summary(iter([data]), proba=np.eye(2))
    with pytest.raises(ValueError, match="equal-mass bins need all rows"):
        metrics.classwise_ece(iter([(np.eye(2), [0, 1])]), bins="mass")
    with pytest.raises(ValueError, match="same `n_bins`"):
        MetricSums.from_examples(*data, n_bins=3) + MetricSums.from_examples(*data, n_bins=4)
    with pytest.raises(TypeError):
        FullSums.from_predictions(np.eye(2), [0, 1]) + 1
