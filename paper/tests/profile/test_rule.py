"""The rules with a stability profile: against their definition, in every library,
exported.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from scipy.special import expit, log_softmax, softmax
from tests.conftest import max_examples, synthetic_logits
from tests.libraries import NAMES, answers, get_library
from tests.references import gaussian_distribution
from tests.rules.making import assert_chances, class_counts, make_rows, seeds

from hokical.rules import as_logits
from hokical.rules.base import Output
from hokical_paper.profile import ProfileRule, StabilityProfile
from hokical_paper.profile.novelty import Novelty

Row = np.ndarray
ANSWERS: tuple[Output, ...] = ("labels", "confidence", "proba")


def make_profile(seed: int) -> ProfileRule:
    """One with random valid numbers."""
    rng = np.random.default_rng(seed)
    temperature = float(np.exp(rng.normal()))
    widths = temperature * np.unique(np.exp(rng.normal(size=rng.integers(1, 4))))
    size = 1 + 2 * widths.size
    familiar = Novelty.of(rng.normal(size=(50, size)) * 5.0, np.ones(50))
    limits = np.sort(rng.normal(size=2))
    return ProfileRule(
        temperature,
        widths,
        float(rng.normal()),
        rng.normal(size=size),
        limits,
        familiar,
    )


def features_by_hand(rule: ProfileRule, row: Row) -> Row:
    """Log-odds, then log gamma and log(1 - gamma) from the probabilities of all
    classes.
    """
    label, others = row.argmax(), np.arange(row.size) != row.argmax()
    logs = log_softmax(row / rule.temperature)
    with np.errstate(divide="ignore"):
        out = [np.clip(logs[label] - np.log(np.exp(logs[others]).sum()), -34.0, 34.0)]
        for width in rule.widths:
            chances = gaussian_distribution(row[None], width)[0]
            out += [np.log(chances[label]), np.log(chances[others].sum())]
    return np.maximum(out, [-34.0] + [-25.0] * (len(out) - 1))


def confidence_by_hand(rule: ProfileRule, row: Row) -> float:
    features = features_by_hand(rule, row)
    correction = np.clip(rule.coef @ features + rule.intercept, *rule.range)
    apart = features - rule.familiar.centre
    distance = apart @ rule.familiar.precision @ apart
    trust = min(1.0, rule.familiar.reach / distance)
    chance = expit(np.clip(features[0] + correction * trust, -34.0, 34.0))
    return max(float(chance), 1.0 / max(2, np.isfinite(row).sum()))


@given(seed=seeds, n_classes=class_counts)
@max_examples(15)
def test_features_confidence_and_probabilities(seed: int, n_classes: int) -> None:
    """As far as the stability is precise; far logits are left to its own tests."""
    rule = make_profile(seed)
    rows = np.random.default_rng(seed).normal(size=(4, n_classes)) * rule.temperature
    features = rule.features(as_logits(rows))
    labels, confidence, proba = answers(rule, rows)
    for i, row in enumerate(rows):
        np.testing.assert_allclose(features[i], features_by_hand(rule, row), atol=5e-3)
        expected = confidence_by_hand(rule, row)
        np.testing.assert_allclose(confidence[i], expected, atol=1e-2)
        others = np.where(
            np.arange(n_classes) == labels[i], 0.0, softmax(row / rule.temperature)
        )
        shared = others * (1.0 - expected) / others.sum()
        shared[labels[i]] = expected
        np.testing.assert_allclose(proba[i], shared, atol=1e-2)


@given(seed=seeds, n_classes=class_counts)
def test_rows_by_themselves(seed: int, n_classes: int) -> None:
    rule, rows = make_profile(seed), make_rows(seed, n_classes, 70)
    whole = labels, confidence, proba = answers(rule, rows)
    assert_chances(proba)
    assert_chances(confidence)
    assert (proba[rows == -np.inf] == 0.0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(labels, rows.argmax(axis=1))
    for i in (0, 3, 9, 69):
        for one, batch in zip(answers(rule, rows[i : i + 1]), whole, strict=True):
            np.testing.assert_array_equal(one[0], batch[i])


@pytest.mark.parametrize("library", NAMES)
def test_every_library_answers_alike(library: str) -> None:
    kind = get_library(library)
    rule = make_profile(3)
    rows = make_rows(3, 6)
    expected = answers(rule, rows)
    with kind.scope(), np.errstate(all="ignore"):
        answered = answers(rule, kind.make(rows))
    for array, reference in zip(answered, expected, strict=True):
        np.testing.assert_allclose(array, reference, rtol=0.0, atol=1e-8)


def test_modules_and_gradients() -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    cal = StabilityProfile(widths=(1.0,)).fit(*synthetic_logits(800, 5, seed=0))
    rows = torch.tensor(synthetic_logits(4, 5, seed=9)[0])
    module = as_module(cal)
    expected = cal.predict_confidence(rows.numpy())
    np.testing.assert_allclose(module(rows).confidence, expected, atol=1e-9)
    confident = lambda z: module(z).confidence  # noqa: E731
    assert torch.autograd.gradcheck(confident, (rows.requires_grad_(),), atol=1e-7)


@pytest.mark.sample(0)
def test_onnx() -> None:
    pytest.importorskip("ndonnx")
    runtime = pytest.importorskip("onnxruntime")
    from hokical.integrations.onnx import export

    cal = StabilityProfile().fit(*synthetic_logits(800, 5, seed=0))
    rows = synthetic_logits(30, 5, seed=9)[0].astype(np.float32)
    session = runtime.InferenceSession(export(cal).SerializeToString())
    (confidence,) = session.run(["confidence"], {"logits": rows})
    np.testing.assert_allclose(confidence, cal.predict_confidence(rows), atol=1e-6)


@pytest.mark.parametrize(
    "numbers",
    [{"range": np.array([1.0, -1.0])}, {"widths": np.zeros(0)}, {"familiar": None}],
)
def test_numbers_that_no_fit_makes_are_refused(numbers: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must"):
        make_profile(5).with_numbers(numbers).__post_init__()
