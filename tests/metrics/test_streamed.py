"""Metrics of chunks: as of all rows at once, to the bit; of many rows, at levels of
confidence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hokical
from hokical import metrics
from hokical.calibrators import make
from hokical.metrics import levels
from hokical.metrics.levels import MOST_LEVELS, confidence_level, level_confidence
from hokical.streams import open_source
from tests.conftest import max_examples

TOP = [
    "ece",
    "debiased_ece",
    "brier",
    "log_loss",
    "auroc",
    "aurc",
    "selective_risk",
    "smooth_ece",
]
VECTORS = ["brier", "log_loss", "classwise_ece"]


def scores(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = np.clip(rng.normal(0.7, 0.3, size=n), 0.0, 1.0)  # also exactly 0 and 1
    return confidence, rng.uniform(size=n) < confidence**2


def cut(arrays, sizes):
    ends = np.cumsum(sizes)
    for start, stop in zip([0, *ends], [*ends, len(arrays[0])], strict=True):
        if stop > start:
            yield tuple(array[start:stop] for array in arrays)


@pytest.mark.parametrize("most", [1 << 20, 100])
@pytest.mark.parametrize("name", TOP)
@max_examples(8)
@given(seed=st.integers(0, 999), sizes=st.lists(st.integers(0, 60), max_size=4))
def test_metrics_do_not_depend_on_the_chunks(
    name: str, most: int, seed: int, sizes: list[int]
) -> None:
    """Exactly, with every confidence a level of its own and with rounded levels."""
    data = scores(250, seed)
    metric = getattr(metrics, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "MOST_EXACT", most)
        assert np.array_equal(metric(cut(data, sizes)), metric(*data), equal_nan=True)


@pytest.mark.parametrize("name", TOP)
def test_levels_change_little(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that share levels with others; a bin can lose a row at its edge."""
    data = scores(30_000, 1)
    metric = getattr(metrics, name)
    exact = metric(*data)
    monkeypatch.setattr(levels, "MOST_EXACT", 100)
    allowed = 1e-4 if name in ("ece", "debiased_ece") else 2e-6
    assert metric(*data) == pytest.approx(exact, rel=2e-5, abs=allowed)


def test_stated_confidences_keep_their_bins_and_values_at_levels() -> None:
    """0.6, 0.8 and 0.9 are edges of bins; levels keep their mean, which is the
    value.
    """
    rng = np.random.default_rng(0)
    confidence = rng.choice([0.2, 0.6, 0.8, 0.9, 1.0], size=5000)
    correct = rng.uniform(size=5000) < confidence - 0.1
    for n_bins in (5, 10, 15):
        exact = metrics.ece(confidence, correct, n_bins=n_bins, norm=2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(levels, "MOST_EXACT", 100)
            found = metrics.ece(confidence, correct, n_bins=n_bins, norm=2)
        assert found == pytest.approx(exact, rel=1e-12)


def nearly_sure(n: int, seed: int, octaves: float = 53.0) -> np.ndarray:
    """Confidences at all distances from 0 and 1, down to the last bit."""
    rng = np.random.default_rng(seed)
    distance = 2.0 ** -rng.uniform(1.0, octaves, size=n)
    return np.where(rng.uniform(size=n) < 0.5, distance, 1.0 - distance)


@given(seed=st.integers(0, 999))
def test_levels_are_near_and_in_order(seed: int) -> None:
    confidence = np.sort(np.concatenate([nearly_sure(300, seed), [0.0, 0.5, 1.0]]))
    level = confidence_level(confidence)
    assert (np.diff(level) >= 0).all()
    assert (level[0], level[-1]) == (0, MOST_LEVELS - 1)
    found = level_confidence(level)
    assert (confidence_level(found) == level).all()
    assert np.abs(found - confidence).max() <= 2.0**-19
    distance = np.minimum(confidence, 1.0 - confidence)
    assert (np.abs(found - confidence) <= 2.0**-11 * distance).all()


@max_examples(8)
@given(seed=st.integers(0, 99))
def test_order_among_the_nearly_sure_is_kept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    correct = rng.uniform(size=2000) < 0.8
    # right: 1 - 1e-12 or so; wrong: 1 - 1e-9 or so, all of which 2^18 even steps would
    # tie
    confidence = 1.0 - 10.0 ** -np.where(
        correct, rng.normal(12, 1, 2000), rng.normal(9, 1, 2000)
    )
    for name, allowed in (("auroc", 1e-5), ("aurc", 1e-5), ("selective_risk", 1e-3)):
        metric = getattr(metrics, name)
        known = metric(confidence, correct)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(levels, "MOST_EXACT", 100)
            assert metric(confidence, correct) == pytest.approx(known, abs=allowed), (
                name
            )


@pytest.mark.slow
def test_millions_of_rows_to_seven_digits() -> None:
    rng = np.random.default_rng(0)
    confidence = 1.0 - 0.5 * rng.random(4_000_000) ** 3
    correct = rng.random(4_000_000) < confidence**1.1
    found = metrics.summary(confidence, correct)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "MOST_EXACT", 10_000_000)
        exact = metrics.summary(confidence, correct)
    for name, estimate in exact.estimates.items():
        # The debiased ECE is a small difference of squares, by which its error grows;
        # of equal levels, others may be within the coverage of the selective risk.
        digits = {"debiased_ece": 3e-6, "selective_risk": 1e-5}.get(name, 3e-7)
        assert found[name].value == pytest.approx(estimate.value, rel=digits), name


def test_chunks_in_a_list_or_from_a_function() -> None:
    data = scores(400, 3)
    chunks = list(cut(data, [150, 20]))
    plain = [tuple(column.tolist() for column in chunk) for chunk in chunks]
    for given_as in (
        chunks,
        tuple(chunks),
        plain,
        lambda: iter(chunks),
        lambda: chunks,
    ):
        assert metrics.ece(given_as) == metrics.ece(*data)
        assert metrics.auroc(given_as) == metrics.auroc(iter(chunks))
    proba, labels = [[0.2, 0.8], [0.9, 0.1]], [1, 0]  # rows in a list are no chunks
    known = metrics.brier(np.array(proba), labels)
    assert metrics.brier(proba, labels) == known
    assert metrics.brier([tuple(row) for row in proba], labels) == known
    assert metrics.brier([(proba, labels)]) == pytest.approx(known)


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("name", ["ece", "debiased_ece", "brier", "auroc", "log_loss"])
def test_chunks_of_which_nothing_counts(name: str, vectors: bool) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(3, size=300)
    first = rng.dirichlet(np.ones(3), size=300) if vectors else rng.uniform(size=300)
    second = labels if vectors else labels > 0
    weights = np.where(np.arange(300) < 100, 0, rng.integers(1, 4, size=300))
    metric = getattr(metrics, name)
    known = metric(first, second, sample_weight=weights)
    found = metric(cut((first, second, weights), [100, 50]))
    assert found == pytest.approx(known, rel=1e-12)
    empty = (first[:0], second[:0])
    assert metric([empty, (first, second, weights), empty]) == pytest.approx(
        known, rel=1e-12
    )
    with pytest.raises(ValueError, match="rows of weight above 0; got none"):
        metric([empty, (first, second, np.zeros(300))])


def test_evaluating_blocks_of_which_nothing_counts(overconfident, monkeypatch) -> None:
    logits, labels = overconfident
    monkeypatch.setattr("hokical.streams.rows_per_chunk", lambda n_classes: 500)
    weights = np.where(np.arange(3000) < 1200, 0, 2)
    cal = make("temps").fit(logits, labels)
    found = hokical.evaluate(cal, open_source(logits, labels, weights))
    known = hokical.evaluate(cal, open_source(logits[1200:], labels[1200:]))
    assert found["ece"].value == pytest.approx(known["ece"].value, rel=1e-13)
    assert found["brier"].value == pytest.approx(known["brier"].value, rel=1e-13)
    with pytest.raises(ValueError, match="at least one row that counts"):
        hokical.evaluate(cal, open_source(logits, labels, np.zeros(3000)))


def test_rows_that_do_not_count_are_checked_all_the_same() -> None:
    good = scores(10, 0)
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        metrics.ece([good, ([2.0], [True], [0.0])])
    with pytest.raises(ValueError, match="one entry per row"):
        metrics.ece([good, ([0.5, 0.5], [True, True], [0.0])])
    with pytest.raises(ValueError, match="at least one entry"):
        metrics.ece([good, ([], [True])])


def test_weights_are_repetitions() -> None:
    confidence, correct = scores(300, 5)
    weights = np.random.default_rng(0).integers(0, 4, size=300)
    weights[:100] = np.maximum(weights[:100], 1)
    repeated = np.repeat(confidence, weights), np.repeat(correct, weights)
    chunks = list(cut((confidence, correct, weights), [100, 80]))
    for name in TOP[:5]:
        metric = getattr(metrics, name)
        options = {"clip": 1e-9} if name == "log_loss" else {}
        assert metric(iter(chunks), **options) == pytest.approx(
            metric(*repeated, **options)
        )


def test_options_reach_the_sums() -> None:
    data = scores(400, 2)
    chunks = list(cut(data, [150]))
    assert metrics.ece(iter(chunks), n_bins=7, norm=2) == metrics.ece(
        *data, n_bins=7, norm=2
    )
    assert metrics.log_loss(iter(chunks), clip=0.01) == pytest.approx(
        metrics.log_loss(*data, clip=0.01)
    )
    assert metrics.log_loss(iter([([1.0], [False])])) == np.inf
    assert metrics.debiased_ece(iter(chunks), squared=True) == metrics.debiased_ece(
        *data, squared=True
    )
    assert metrics.ece(iter(chunks), bins="mass") == metrics.ece(*data, bins="mass")


@pytest.mark.parametrize("name", VECTORS)
def test_metrics_of_all_classes(name: str) -> None:
    rng = np.random.default_rng(3)
    proba = rng.dirichlet(np.ones(4), size=500)
    labels = rng.integers(4, size=500)
    metric = getattr(metrics, name)
    assert metric(cut((proba, labels), [200, 7])) == pytest.approx(
        metric(proba, labels), rel=1e-13
    )
    weights = rng.exponential(size=500)
    assert metric(cut((proba, labels, weights), [200])) == pytest.approx(
        metric(proba, labels, sample_weight=weights), rel=1e-12
    )


def test_a_summary_of_chunks() -> None:
    data = scores(2000, 9)
    found = metrics.summary(cut(data, [500]), delta=0.1)
    known = metrics.summary(*data, delta=0.1)
    assert found.bounds == pytest.approx(known.bounds)
    for name, estimate in known.estimates.items():
        assert found[name].value == estimate.value, name
        ends = [(each[name].low, each[name].high) for each in (found, known)]
        np.testing.assert_array_equal(*ends, err_msg=name)


def test_what_is_wrong_is_said() -> None:
    data = scores(10, 0)
    with pytest.raises(TypeError, match=r"a chunk must be \(proba, labels\)"):
        metrics.ece(iter([data[0]]))
    with pytest.raises(TypeError, match="pass nothing beside them"):
        metrics.ece(iter([data]), data[1])
    with pytest.raises(ValueError, match="at least one chunk"):
        metrics.ece(iter([]))
    with pytest.raises(ValueError, match="`n_bins` must be an integer"):
        metrics.ece(iter([data]), n_bins=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        metrics.brier(iter([data]), foo=1)


@pytest.mark.parametrize("metric", [metrics.brier, metrics.ece, metrics.summary])
def test_chunks_are_of_one_shape(metric: Callable[..., object]) -> None:
    chunks = [([0.9, 0.8], [True, False]), ([[0.3, 0.7]], [1])]
    with pytest.raises(
        ValueError, match=r"all have probabilities .* or all confidences"
    ):
        metric(chunks)
