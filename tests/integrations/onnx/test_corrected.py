"""Graphs of the default's rules and of adaptive scaling, in every form that their
fits have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

import hokical  # noqa: E402
from hokical.calibrators import make, with_sets  # noqa: E402
from hokical.integrations.onnx import attach, check, export  # noqa: E402
from hokical.rules import Rule  # noqa: E402
from hokical.rules.base import FlooredRule  # noqa: E402
from hokical.rules.scaling import (  # noqa: E402
    AdaptiveRule,
    AutoRule,
    StructuredRule,
)
from tests.conftest import grouped_examples, synthetic_logits  # noqa: E402
from tests.integrations.onnx.helpers import differences, fitted, from_rule, run  # noqa: E402
from tests.integrations.onnx.test_attach import inputs, network  # noqa: E402
from tests.integrations.onnx.test_export import ROUNDING, hard_rows  # noqa: E402
from tests.rules.making import (  # noqa: E402
    make_class_scaling,
    make_correction,
    make_structured,
)

BASES = {
    "structured": make_structured,
    "class_scaling": make_class_scaling,
}
N_CLASSES = 6


def make_auto(base: str, corrected: bool, floor: float, keep_labels: bool) -> Rule:
    rng = np.random.default_rng([*base.encode(), corrected])
    correction = make_correction(rng) if corrected else None
    rule: Rule = AutoRule(BASES[base](rng, N_CLASSES), correction, keep_labels)
    return FlooredRule(floor, rule) if floor else rule


def assert_same(rule: Rule, dtype: type) -> None:
    """Labels are equal, and numbers to rounding, in rows of every kind; the file is
    checked.
    """
    calibrator = from_rule(rule, N_CLASSES)
    model = export(calibrator, input_dtype=np.dtype(dtype).name, probabilities=True)
    rows = hard_rows(N_CLASSES, 3, dtype)
    found = run(model, logits=rows)
    wrong, confidence, proba = differences(calibrator, found, rows)
    assert wrong == 0
    assert confidence < (ROUNDING if dtype == np.float32 else 1e-9)
    assert proba < (2 * ROUNDING if dtype == np.float32 else 1e-9)
    assert not found["probabilities"][np.isneginf(rows)].any()
    assert check(model, calibrator).agrees


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("base", BASES)
def test_the_default(base: str, corrected: bool, dtype: type) -> None:
    assert_same(make_auto(base, corrected, 0.0, False), dtype)


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("base", "keep_labels"), [*zip(BASES, (True, False), strict=True)]
)
def test_the_default_with_a_floor(base: str, keep_labels: bool) -> None:
    assert_same(make_auto(base, True, 1e-4, keep_labels), np.float32)


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adaptive_scaling(dtype: type) -> None:
    rng = np.random.default_rng(2)
    assert_same(AdaptiveRule(2.5, make_correction(rng)), dtype)


def test_fits_have_these_forms() -> None:
    """So that the tests of every method are of rules with a correction."""
    assert isinstance(fitted("adaptive", 12).rule_, AdaptiveRule)
    rule = fitted("auto", 12).rule_
    assert isinstance(rule, AutoRule)
    assert isinstance(rule.base, StructuredRule)
    assert rule.base.shape.size
    assert rule.correction is not None


@pytest.fixture(scope="module")
def many() -> tuple[Any, np.ndarray]:
    """The default of 40 classes, some of which are too seldom predicted, and new
    logits.
    """
    logits, labels = synthetic_logits(3000, 40, seed=0)
    logits[:, :10] -= 3.0
    logits *= np.where(np.arange(3000) % 2, 0.3, 1.0)[:, None]
    return hokical.auto(logits[:2500], labels[:2500]), logits[2500:].astype(np.float32)


@pytest.mark.sample(1)
def test_many_classes(many: tuple[Any, np.ndarray]) -> None:
    calibrator, rows = many
    assert not calibrator.base_.shape.size
    assert calibrator.correction_ is not None
    found = run(export(calibrator), logits=rows)
    wrong, confidence, proba = differences(calibrator, found, rows)
    assert wrong == 0
    assert confidence < ROUNDING
    assert proba < 2 * ROUNDING
    assert (found["labels"] != rows.argmax(axis=1)).any()


@pytest.mark.sample(0)
@pytest.mark.parametrize("method", ["auto_keeping", "adaptive", "auto"])
def test_behind_a_network(method: str) -> None:
    calibrator = fitted(method, 4)
    model = attach(network(), calibrator)
    found = run(model, x=inputs())
    wrong, confidence, _ = differences(calibrator, found, found["scores"])
    assert wrong == 0
    assert confidence < 1e-6
    assert check(model, calibrator).agrees


@pytest.mark.slow
def test_groups_and_a_correction() -> None:
    logits, labels, site = grouped_examples(2000, seed=0)
    logits *= np.where(np.arange(2000) % 2, 0.3, 1.0)[:, None]
    calibrator = hokical.auto(logits, labels, groups=site)
    assert calibrator.groups_
    assert calibrator.correction_ is not None
    model = export(calibrator, input_dtype="float64")
    rows, _, sites = grouped_examples(50, seed=1)
    found = run(model, logits=rows, groups=calibrator.group_codes(sites))
    expected = calibrator.predict_proba(rows, groups=sites)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-9)
    np.testing.assert_array_equal(found["labels"], expected.argmax(axis=1))
    assert check(model, calibrator).agrees


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["adaptive", "auto"])
def test_label_sets(method: str) -> None:
    calibrator = make(method).fit(*synthetic_logits(600, 5, seed=0))
    calibrator = with_sets(
        calibrator.certify(*synthetic_logits(900, 5, seed=1)), coverage=0.9
    )
    rows = hard_rows(5, 1)
    found = run(export(calibrator), logits=rows)["members"]
    np.testing.assert_array_equal(
        found, calibrator.predict_set(rows, coverage=0.9).members
    )
