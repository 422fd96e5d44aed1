"""Tensors at the public edge: what is read, what is refused, and what comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from hokical import Hoki, label_distribution, label_stability, select_noise  # noqa: E402
from hokical import stability_bounds as bounds_of  # noqa: E402
from hokical.calibrators import make  # noqa: E402
from hokical.calibrators._odir_search import distinct_examples  # noqa: E402
from hokical.integrations.torch.fits.grouping import (  # noqa: E402
    counts_by,
    in_units,
    largest_by,
    sums_by,
    unit_of,
)
from hokical.integrations.torch.tensors import (  # noqa: E402
    TensorLogits,
    checked_tensor_logits,
    host_array,
)
from hokical.logits import as_labels, as_logits, as_weights  # noqa: E402
from hokical.noise import Gaussian, Gumbel, Uniform  # noqa: E402

RNG = np.random.default_rng(0)
LABELS = RNG.integers(5, size=300)
LOGITS = (2.0 * (RNG.normal(size=(300, 5)) + 2.0 * np.eye(5)[LABELS])).astype(np.float32)


class Three:
    """As if fitted with three classes."""

    n_classes_ = 3


BAD = {
    "nan": np.array([[1.0, 2.0, 3.0], [1.0, np.nan, 0.0]]),
    "inf": np.array([[1.0, 2.0, 3.0], [1.0, np.inf, 0.0]]),
    "no finite value": np.array([[1.0, 2.0, 3.0], [-np.inf] * 3]),
    "one dimension": np.zeros(3),
    "three dimensions": np.zeros((2, 2, 3)),
    "no rows": np.zeros((0, 3)),
    "one column": np.zeros((2, 1)),
    "complex": np.zeros((2, 3), complex),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_tensors_are_refused_in_the_words_for_arrays(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="`scores`") as expected:
        as_logits(bad, name="scores")
    with pytest.raises(ValueError, match="`scores`") as found:
        checked_tensor_logits(torch.from_numpy(bad), "scores", None)
    assert str(found.value) == str(expected.value)


def test_other_class_counts_and_types_are_refused() -> None:
    with pytest.raises(ValueError, match="Three is expecting 3 features"):
        checked_tensor_logits(torch.zeros(2, 4), "logits", Three())
    with pytest.raises(TypeError, match=r"got dtype torch.bool. Convert with `.float\(\)`"):
        checked_tensor_logits(torch.zeros(2, 3, dtype=torch.bool), "logits", None)
    with pytest.raises(TypeError, match=r"must be dense.* Use `.to_dense\(\)`"):
        checked_tensor_logits(torch.zeros(2, 3).to_sparse(), "logits", None)
    with pytest.raises(TypeError, match="must be dense"):
        as_logits(torch.zeros(2, 3).to_sparse())
    with pytest.raises(TypeError, match=r"must be on the host; .* on meta. Pass `.cpu\(\)`"):
        host_array(torch.zeros(2, 3, device="meta"), "values")


def test_integers_and_narrow_floats_are_widened() -> None:
    whole = checked_tensor_logits(torch.tensor([[1, 3], [2, 0]]), "logits", None)
    assert whole.values.dtype == torch.float64
    np.testing.assert_array_equal(whole.labels, [1, 0])
    tiny = torch.tensor([[1.0, 3.0]]).to(torch.float8_e4m3fn)
    assert checked_tensor_logits(tiny, "logits", None).values.dtype == torch.float32


def test_tensors_on_the_host_are_read_where_they_lie() -> None:
    tensor = torch.from_numpy(LOGITS).requires_grad_()
    read = as_logits(tensor).values
    assert np.shares_memory(read, LOGITS)
    assert as_logits(tensor.bfloat16()).values.dtype == np.float32
    np.testing.assert_array_equal(as_logits(tensor.T).values, LOGITS.T)


def test_labels_and_weights_come_to_the_host() -> None:
    labels = as_labels(torch.tensor([0, 2, 1], dtype=torch.int32), 3, 3)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, [0, 2, 1])
    weights = as_weights(torch.tensor([1.0, 0.5, 2.0], dtype=torch.bfloat16, requires_grad=True), 3)
    np.testing.assert_array_equal(weights, [1.0, 0.5, 2.0])
    with pytest.raises(TypeError, match="must be integers"):
        as_labels(torch.tensor([0.0, 1.0]), 2, 3)
    with pytest.raises(ValueError, match=r"must lie in \[0, 2\].* got 3 in row 1"):
        as_labels(torch.tensor([0, 3]), 2, 3)


@pytest.mark.parametrize("name", ["temps", "hoki", "vecs"])
def test_a_tensor_on_the_host_is_fitted_as_the_array(name: str) -> None:
    expected = make(name).fit(LOGITS, LABELS)
    tensor = torch.from_numpy(LOGITS)
    found = make(name).fit(tensor, torch.from_numpy(LABELS), torch.ones(300))
    confidence = found.predict_confidence(tensor)
    assert confidence.dtype == torch.float32
    np.testing.assert_allclose(confidence, expected.predict_confidence(LOGITS), rtol=1e-6)
    np.testing.assert_array_equal(found.predict(tensor), expected.predict(LOGITS))
    assert found.score(tensor, torch.from_numpy(LABELS)) == pytest.approx(
        expected.score(LOGITS, LABELS)
    )


def test_partial_fit_takes_tensors() -> None:
    expected = Hoki(noise=Gaussian(2.0)).fit(LOGITS, LABELS)
    found = Hoki(noise=Gaussian(2.0)).fit(torch.from_numpy(LOGITS[:100]), LABELS[:100])
    found.partial_fit(TensorLogits(torch.from_numpy(LOGITS[100:])), LABELS[100:])
    np.testing.assert_array_equal(expected.table_.weight, found.table_.weight)


@pytest.mark.parametrize("noise", [Gaussian(2.0), Uniform(-3.0, 3.0), Gumbel(1.5)])
def test_stability_answers_with_tensors(noise: Any) -> None:
    tensor = torch.from_numpy(LOGITS)
    expected = label_stability(LOGITS, noise)
    for found in (label_stability(tensor, noise), *bounds_of(tensor, noise)):
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found, expected, atol=1e-9)
    drawn = label_stability(tensor, noise, draws=50, random_state=1)
    np.testing.assert_array_equal(drawn, label_stability(LOGITS, noise, draws=50, random_state=1))
    np.testing.assert_allclose(label_distribution(tensor, noise), label_distribution(LOGITS, noise))


def test_the_distribution_stays_on_the_device_or_says_why_not() -> None:
    data = TensorLogits(torch.from_numpy(LOGITS))
    for noise in (Gaussian(2.0), Gumbel(1.5)):
        found = label_distribution(data, noise)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found, label_distribution(LOGITS, noise), atol=1e-9)
    with pytest.raises(TypeError, match=r"pass `logits.cpu\(\)`"):
        label_distribution(data, Uniform(-3.0, 3.0))


@pytest.mark.parametrize("families", [["gaussian"], ["uniform"], ["gumbel", "gaussian"]])
def test_the_noise_chosen_is_the_same(families: list[str]) -> None:
    weights = np.arange(300) % 3 * 1.0
    expected = select_noise(LOGITS, LABELS, families=families, sample_weight=weights)
    data = TensorLogits(torch.from_numpy(LOGITS))
    found = select_noise(data, LABELS, families=families, sample_weight=weights)
    assert [trial.noise for trial in found.trials] == [trial.noise for trial in expected.trials]
    assert found.sigma_hat == pytest.approx(expected.sigma_hat, rel=1e-9)


def test_other_methods_answer_with_tensors() -> None:
    tensor = torch.from_numpy(LOGITS)
    cal = Hoki(noise=Gaussian(2.0)).fit(LOGITS, LABELS)
    np.testing.assert_array_equal(cal.stability(tensor), cal.stability(LOGITS))
    np.testing.assert_array_equal(cal.predict_interval(tensor), cal.predict_interval(LOGITS))
    for end in cal.confidence_bounds(tensor):
        np.testing.assert_array_equal(end, cal.predict_confidence(LOGITS))
    found = cal.predict_or_abstain(tensor, risk=0.3)
    expected = cal.predict_or_abstain(LOGITS, risk=0.3)
    assert found.accepted.dtype == torch.bool
    np.testing.assert_array_equal(found.labels_or(-7), expected.labels_or(-7))
    assert str(found) == str(expected)
    gap = cal.sufficiency_gap(tensor, torch.from_numpy(LABELS))
    assert gap.calibration_error == pytest.approx(cal.validation_ece_, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(1e-9, 1e9)), min_size=1, max_size=50))
@settings(max_examples=50, deadline=None)
def test_sums_by_group_do_not_depend_on_the_order(pairs: list[tuple[int, float]]) -> None:
    group = torch.tensor([place for place, _ in pairs])
    weights = np.array([weight for _, weight in pairs])
    unit = unit_of(float(weights.sum()))
    whole = torch.from_numpy(in_units(weights, unit))
    there = sums_by(group, whole, 5, unit)
    back = sums_by(group.flip(0), whole.flip(0), 5, unit)
    assert torch.equal(there, back)
    expected = np.bincount(group.numpy(), weights, 5)
    np.testing.assert_allclose(there, expected, rtol=1e-12, atol=1e-15 * weights.sum())
    np.testing.assert_array_equal(counts_by(group, 5), np.bincount(group.numpy(), minlength=5))
    largest = np.full(5, -np.inf)
    np.maximum.at(largest, group.numpy(), weights)
    np.testing.assert_array_equal(largest_by(group, torch.from_numpy(weights), 5), largest)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_copies_are_told_as_the_core_tells_them(seed: int) -> None:
    """Rows of few different numbers, many of them copies, shifted or not, some with -inf."""
    rng = np.random.default_rng(seed)
    logits = rng.choice([0.0, 1.0, 2.0, -np.inf], size=(40, 3)).astype(np.float32)
    logits[:, 0] = 1.0
    logits += rng.choice([0.0, 8.0], size=(40, 1)).astype(np.float32)
    labels = rng.integers(2, size=40)
    expected = distinct_examples(as_logits(logits), labels)
    found = distinct_examples(TensorLogits(torch.from_numpy(logits)), labels)
    np.testing.assert_array_equal(found, expected)
