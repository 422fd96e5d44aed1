"""Every rule answers alike in every library, row by row, whatever the logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from hokical._core.arrays import to_host
from hokical.rules import as_logits
from hokical.rules.base import predict_blocks
from hokical.rules.scaling import TemperatureRule
from tests.conftest import max_examples
from tests.libraries import answers
from tests.rules.making import (
    NAMES,
    assert_chances,
    class_counts,
    make_case,
    seeds,
)

# These rules are made up: their coefficients can amplify the rounding of log(1 -
# gamma), which differs between compiled and portable sums. Fitted methods are compared
# to 1e-12 elsewhere.
CLOSE = 1e-10
ANSWERS = ("labels", "confidence", "proba")
every_rule = pytest.mark.parametrize("name", NAMES)


def assert_alike(
    found: list[np.ndarray], expected: list[np.ndarray], rows: np.ndarray
) -> None:
    """Labels equal; the label is the first maximum by one rounding of what is given
    back.
    """
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=CLOSE)
    tolerance = CLOSE if rows.dtype == np.float64 else 2.0**-23
    np.testing.assert_allclose(found[2], expected[2], rtol=0, atol=tolerance)


@every_rule
@given(seed=seeds, n_classes=class_counts)
def test_answers_are_probabilities(name: str, seed: int, n_classes: int) -> None:
    rule, rows = make_case(name, seed, n_classes)
    labels, confidence, proba = answers(rule, as_logits(rows))
    assert_chances(proba)
    assert_chances(confidence)
    assert (proba[rows == -np.inf] == 0.0).all()
    if getattr(rule.core, "normalize", True):
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    if rule.preserves_labels:
        np.testing.assert_array_equal(labels, rows.argmax(axis=1))
    else:
        np.testing.assert_array_equal(labels, proba.argmax(axis=1))
        np.testing.assert_array_equal(confidence, proba.max(axis=1))


@pytest.mark.parametrize("name", ["uncalibrated", "temps", "ets", "irm"])
@given(seed=seeds, n_classes=class_counts)
def test_the_label_is_the_first_of_the_most_likely(
    name: str, seed: int, n_classes: int
) -> None:
    rule, rows = make_case(name, seed, n_classes)
    labels, confidence, proba = answers(rule, as_logits(rows))
    np.testing.assert_array_equal(proba.argmax(axis=1), labels)
    np.testing.assert_allclose(proba.max(axis=1), confidence, rtol=1e-12)
    if name == "irm":  # and so that float32 can tell
        np.testing.assert_array_equal(proba.astype(np.float32).argmax(axis=1), labels)


@pytest.mark.slow
@every_rule
@given(seed=seeds, n_classes=class_counts)
def test_a_row_does_not_depend_on_its_batch(
    name: str, seed: int, n_classes: int
) -> None:
    """In rows of either memory order, to the bit."""
    assert_same = np.testing.assert_array_equal
    rule, rows = make_case(name, seed, n_classes, 70)
    logits = as_logits(rows)
    whole = answers(rule, logits)
    for i in (0, 3, 9, 69):
        alone = answers(rule, logits.take(np.array([i])))
        some = answers(rule, logits.take(slice(i, i + 1)))
        for one, slice_, batch in zip(alone, some, whole, strict=True):
            assert_same(one[0], batch[i])
            assert_same(slice_[0], batch[i])
    turned = answers(rule, as_logits(np.asfortranarray(rows)))
    for one, batch in zip(turned, whole, strict=True):
        assert_same(one, batch)


@pytest.mark.sample(6)
@every_rule
@given(seed=seeds, n_classes=class_counts)
@max_examples(20)
def test_the_strict_standard_is_enough(name: str, seed: int, n_classes: int) -> None:
    strict = pytest.importorskip("array_api_strict")
    rule, rows = make_case(name, seed, n_classes)
    with np.errstate(
        all="ignore"
    ):  # it is NumPy underneath, which remarks on infinities
        found = answers(rule, as_logits(strict.asarray(rows)))
    assert_alike(found, answers(rule, as_logits(rows)), rows)


@every_rule
@given(seed=seeds, n_classes=class_counts)
@max_examples(20)
def test_torch_with_gradients(name: str, seed: int, n_classes: int) -> None:
    """The portable path, and gradients that are finite wherever there are any."""
    torch = pytest.importorskip("torch")
    rule, rows = make_case(name, seed, n_classes)
    found = []
    for what in ANSWERS:
        given_rows = torch.tensor(rows, requires_grad=True)
        logits = as_logits(given_rows)
        assert not logits.is_numpy
        answered = predict_blocks(rule, what, logits)
        found.append(to_host(answered))
        if answered.requires_grad:
            weights = torch.arange(1.0, answered.numel() + 1.0, dtype=answered.dtype)
            (answered * weights.reshape(answered.shape)).sum().backward()
            assert torch.isfinite(given_rows.grad).all()
    assert_alike(found, answers(rule, as_logits(rows)), rows)


@every_rule
@given(seed=seeds)
@max_examples(4)
def test_jax(name: str, seed: int) -> None:
    """With one number of classes: every operation is compiled anew for another."""
    jax = pytest.importorskip("jax")
    rule, rows = make_case(name, seed, 6)
    with jax.enable_x64(True):
        found = answers(rule, as_logits(jax.numpy.asarray(rows)))
    assert_alike(found, answers(rule, as_logits(rows)), rows)


@pytest.mark.parametrize("temperature", [0.01, 1.0, 1e18])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_probabilities(dtype, temperature):
    """Ties, classes far away and masked ones, in float32 and float64, in batches of
    any size.
    """
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 40)).astype(dtype)
    values[:50] = np.round(values[:50])  # several have the largest
    values[50:100, ::3] = -np.inf
    values[100:150, 1::3] = -2e3
    values[150, 1:] = -np.inf
    rule, logits = TemperatureRule(temperature), as_logits(values)
    found, small = (
        predict_blocks(rule, "proba", logits, narrow=narrow) for narrow in (0, 1)
    )
    assert small.dtype == np.float32
    np.testing.assert_array_equal(found.argmax(axis=1), logits.labels)
    np.testing.assert_array_equal(small.argmax(axis=1), logits.labels)
    for step in (1, 7):  # a row is answered as in any other batch
        parts = [as_logits(values[k : k + step]) for k in range(0, 200, step)]
        again = [predict_blocks(rule, "proba", part) for part in parts]
        np.testing.assert_array_equal(np.concatenate(again), found)
    wide = values.astype(np.float64)
    expected = np.exp((wide - wide.max(axis=1, keepdims=True)) / temperature)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(found == 0.0, values == -np.inf)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-36)
    np.testing.assert_allclose(small, expected, rtol=1e-6, atol=1e-36)
