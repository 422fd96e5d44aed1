"""Binned calibration errors: against exact fractions, under merging, weights and permutation."""

from __future__ import annotations

import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical.metrics import brier, debiased_ece, ece
from hokical.metrics._binned_sums import BinnedSums, exact_sums, total
from hokical.plots import reliability

from . import twins

FIELDS = ("count", "weight", "correct", "confidence_words", "error_words")


@given(twins.rows, st.integers(1, 20), st.sampled_from([1, 1.5, 2, 3, math.inf]))
def test_equal_width_is_the_fraction(data: list, n_bins: int, norm: float) -> None:
    confidence, correct, _ = twins.unpack(data)
    bins = [twins.width_bin(c, n_bins) for c in confidence]
    expected = twins.ece(confidence, correct, bins, norm)
    assert ece(confidence, correct, n_bins=n_bins, norm=norm) == pytest.approx(
        expected, rel=1e-13, abs=1e-16
    )


@given(twins.rows, st.integers(1, 20), st.sampled_from([1, 2, math.inf]))
def test_equal_mass_is_the_fraction(data: list, n_bins: int, norm: float) -> None:
    confidence, correct, _ = twins.unpack(data)
    expected = twins.ece(confidence, correct, twins.mass_bin(confidence, n_bins), norm)
    found = ece(confidence, correct, n_bins=n_bins, bins="mass", norm=norm)
    assert found == pytest.approx(expected, rel=1e-13, abs=1e-16)


def test_equal_mass_bins_hold_equal_mass() -> None:
    confidence, correct = twins.model(1007, seed=0)
    count = reliability(confidence, correct, n_bins=10, bins="mass").count
    assert count.sum() == 1007
    assert set(count) <= {100, 101}


def test_equal_mass_keeps_a_crowd_apart() -> None:
    confidence = np.array([0.3, 0.5] + [1.0] * 48)
    assert reliability(confidence, confidence > 0.4, bins="mass").count.tolist() == [2, 48]


@given(twins.rows, st.integers(1, 20), st.sampled_from(["width", "mass"]))
def test_weight_two_is_the_row_twice(data: list, n_bins: int, bins: str) -> None:
    confidence, correct, weight = twins.unpack(data)
    twice = (np.repeat(confidence, weight), np.repeat(correct, weight))
    for metric in (ece, debiased_ece):
        weighted = metric(confidence, correct, n_bins=n_bins, bins=bins, sample_weight=weight)
        assert weighted == metric(*twice, n_bins=n_bins, bins=bins)
    assert brier(confidence, correct, sample_weight=weight) == brier(*twice)


@given(twins.rows, st.integers(1, 20), st.integers(1, 5), st.randoms(use_true_random=False))
def test_sums_of_parts_are_the_sums_of_the_whole(
    data: list, n_bins: int, n_parts: int, random: object
) -> None:
    confidence, correct, weight = twins.unpack(data)
    whole = BinnedSums.from_examples(confidence, correct, n_bins=n_bins, sample_weight=weight)
    order = np.arange(len(data))
    random.shuffle(order)  # type: ignore[attr-defined]
    parts = [
        BinnedSums.from_examples(confidence[p], correct[p], n_bins=n_bins, sample_weight=weight[p])
        for p in np.array_split(order, n_parts)
        if len(p)
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = part + merged
    for name in FIELDS:
        assert np.array_equal(getattr(merged, name), getattr(whole, name)), name


def test_a_stream_gives_the_bits_of_the_whole() -> None:
    confidence, correct = twins.model(20_000, seed=1)
    cuts = [0, 1, 17, 5000, 5001, 19_999, 20_000]
    stream = sum(
        (BinnedSums.from_examples(confidence[a:b], correct[a:b]) for a, b in pairwise(cuts[1:])),
        start=BinnedSums.from_examples(confidence[:1], correct[:1]),
    )
    backwards = BinnedSums.from_examples(confidence[::-1], correct[::-1])
    for sums in (stream, backwards, pickle.loads(pickle.dumps(stream))):
        assert sums.ece() == stream.ece() == pytest.approx(ece(confidence, correct), rel=1e-14)
        assert (
            sums.brier() == stream.brier() == pytest.approx(brier(confidence, correct), rel=1e-14)
        )


def test_billions_of_examples_are_still_summed_exactly() -> None:
    rng = np.random.default_rng(5)
    confidence, correct = twins.model(40, seed=5)
    weight = rng.integers(1, 2**29, size=40)  # 10^10 examples in all
    order = rng.permutation(40)
    make = BinnedSums.from_examples
    first = make(confidence, correct, n_bins=1, sample_weight=weight)
    second = make(confidence[order], correct[order], n_bins=1, sample_weight=weight[order])
    for name in FIELDS:
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


def test_fractional_weights_add_to_rounding() -> None:
    confidence, correct = twins.model(5000, seed=2)
    weight = np.random.default_rng(0).exponential(size=5000)
    make = BinnedSums.from_examples
    halves = make(confidence[:99], correct[:99], sample_weight=weight[:99]) + make(
        confidence[99:], correct[99:], sample_weight=weight[99:]
    )
    whole = ece(confidence, correct, sample_weight=weight)
    assert halves.ece() == pytest.approx(whole, rel=1e-12)
    assert ece(confidence, correct, sample_weight=7.3 * weight) == pytest.approx(whole, rel=1e-12)


def test_sums_that_do_not_add_are_refused() -> None:
    make = BinnedSums.from_examples
    sums = make([0.5], [True])
    with pytest.raises(ValueError, match="same `n_bins` to be added; got 15 and 10"):
        sums + make([0.5], [True], n_bins=10)
    with pytest.raises(TypeError):
        sums + 1
    assert repr(sums) == "BinnedSums(n_bins=15, total_weight=1)"


def test_bins_show_accuracy_and_confidence_and_nan_where_empty() -> None:
    sums = BinnedSums.from_examples([0.0, 1.0, 1.0], [False, True, False], n_bins=2)
    assert sums.accuracy.tolist() == [0.0, 0.5]
    assert sums.mean_confidence.tolist() == [0.0, 1.0]
    empty = BinnedSums.from_examples([1.0], [True], n_bins=2)
    assert np.isnan(empty.accuracy[0])
    assert empty.count.dtype == np.int64


def test_certain_and_right_is_perfect_and_certain_and_wrong_is_the_worst() -> None:
    ends = np.array([0.0, 1.0])
    for bins in ("width", "mass"):
        for norm in (1, 2, math.inf):
            assert ece(ends, ends == 1.0, bins=bins, norm=norm) == 0.0
            assert ece(ends, ends == 0.0, bins=bins, norm=norm) == 1.0


@given(twins.rows, st.integers(1, 20))
def test_norms_are_ordered(data: list, n_bins: int) -> None:
    confidence, correct, weight = twins.unpack(data)
    errors = [
        ece(confidence, correct, n_bins=n_bins, norm=p, sample_weight=weight)
        for p in (1, 2, 7.5, math.inf)
    ]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(errors))
    assert 0.0 <= errors[0] <= errors[-1] <= 1.0


def test_tiny_gaps_do_not_underflow() -> None:
    assert ece([1e-200], [False], norm=2) == pytest.approx(1e-200)
    assert ece([1e-12], [False], norm=50) == pytest.approx(1e-12, rel=1e-4)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_exact_sums_keep_every_bit_that_matters(values: list[float]) -> None:
    array = np.array(values)
    words = exact_sums(np.zeros(len(values), np.int64), array, 1)
    assert total(words)[0] == pytest.approx(math.fsum(values), rel=1e-15, abs=len(values) * 2**-55)
    again = exact_sums(np.zeros(len(values), np.int64), array[::-1], 1)
    assert np.array_equal(words, again)


def test_debiasing_removes_the_bias() -> None:
    """500 perfect data sets: the plug-in square is far above 0, the debiased one at 0."""
    rng = np.random.default_rng(3)
    level = np.array([0.2, 0.5, 0.7, 0.9])  # one value per bin, as Kumar et al. assume
    plain, debiased = [], []
    for _ in range(500):
        confidence = rng.choice(level, size=200)
        correct = rng.uniform(size=200) < confidence
        plain.append(ece(confidence, correct, norm=2, n_bins=10) ** 2)
        debiased.append(debiased_ece(confidence, correct, n_bins=10, squared=True))
    error = np.std(debiased) / np.sqrt(500)
    assert abs(np.mean(debiased)) < 4 * error
    assert np.mean(plain) > 10 * error


def test_debiasing_formula_and_its_corner_cases() -> None:
    # One bin of four: gap 0.9 - 0.75, accuracy 3/4; and a lone example, which adds nothing.
    confidence, correct = [0.9] * 4 + [0.1], [True, True, True, False, True]
    square = 4 / 5 * (0.15**2 - 0.75 * 0.25 / 3)
    assert debiased_ece(confidence, correct, squared=True) == pytest.approx(square)
    assert debiased_ece(confidence, correct) == 0.0
    assert debiased_ece([0.1], [True]) == 0.0
