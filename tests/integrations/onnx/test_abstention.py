"""Which labels a graph accepts: those that Python accepts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

from hokical.calibrators import Calibrator, make
from hokical.integrations.onnx import attach, export
from tests.conftest import quiet_fit, synthetic_logits
from tests.integrations.onnx.helpers import run
from tests.integrations.onnx.test_attach import network

#: Which some rows reach, and some do not.
RISK = 0.12


def certified(method: str, n_classes: int, certify: bool) -> Calibrator:
    logits, labels = synthetic_logits(3000, n_classes, seed=0)
    calibrator = quiet_fit(make(method), logits[:1000], labels[:1000])
    return calibrator.certify(logits[1000:], labels[1000:]) if certify else calibrator


@pytest.mark.sample(2)
@pytest.mark.parametrize("certify", [True, False])
@pytest.mark.parametrize("method", ["temps", "vecs", "hoki", "auto"])
def test_the_same_rows_are_accepted(method: str, certify: bool) -> None:
    calibrator = certified(method, 4, certify)
    rows, _ = synthetic_logits(2000, 4, seed=1)
    model = export(calibrator, input_dtype="float64", risk=RISK, delta=0.05)
    expected = calibrator.predict_or_abstain(rows, risk=RISK, delta=0.05)
    assert 0.05 < expected.accepted.mean() < 0.999
    accepted = run(model, logits=rows)["accepted"]
    np.testing.assert_array_equal(accepted, expected.accepted)
    properties = {item.key: item.value for item in model.metadata_props}
    assert properties["hokical_guarantee"] == expected.guarantee


def test_rows_that_nobody_can_predict_are_not_accepted() -> None:
    model = export(certified("temps", 3, True), risk=0.3)
    rows = np.full((3, 3), -np.inf, np.float32)
    rows[1] = [np.nan, 9.0, 0.0]
    rows[2] = [30.0, 0.0, 0.0]
    assert run(model, logits=rows)["accepted"].tolist() == [False, False, True]


def test_nothing_is_accepted_where_nothing_is_proven() -> None:
    model = export(certified("temps", 3, True), risk=1e-6)
    rows = np.array([[900.0, 0.0, 0.0]], np.float32)
    assert run(model, logits=rows)["accepted"].tolist() == [False]


def test_a_classifier_with_its_calibrator_abstains() -> None:
    calibrator = certified("temps", 4, True)
    both = attach(network(), calibrator, risk=0.2)
    outputs = run(both, x=np.random.default_rng(0).normal(size=(50, 6)).astype("f4"))
    expected = calibrator.predict_or_abstain(outputs["scores"], risk=0.2, delta=0.1)
    np.testing.assert_array_equal(outputs["accepted"], expected.accepted)


def test_refusals() -> None:
    calibrator = certified("temps", 3, True)
    with pytest.raises(ValueError, match="`delta` goes with `risk`"):
        export(calibrator, delta=0.1)
    with pytest.raises(ValueError, match="roundings of float32"):
        export(calibrator, risk=0.1, precision="float32")
