"""Every method as a graph says what it says in Python, whatever the rows."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

import hokical  # noqa: E402
from hokical.calibrators import TemperatureScaling, load, make  # noqa: E402
from hokical.calibrators.catalog import AUTOMATIC, BUILT_IN  # noqa: E402
from hokical.integrations.onnx import check, export  # noqa: E402
from hokical.rules.base import FlooredRule  # noqa: E402
from hokical.rules.scaling import TemperatureRule  # noqa: E402
from tests.conftest import max_examples, synthetic_logits  # noqa: E402
from tests.fitted import with_rule  # noqa: E402
from tests.integrations.onnx.helpers import (  # noqa: E402
    METHODS,
    differences,
    fitted,
    from_rule,
    run,
)
from tests.rules.making import NAMES, make_case, seeds  # noqa: E402

CLASSES = (2, 12)
#: What is cast to float32 at the end is off by half a step there.
ROUNDING = 1e-7


def hard_rows(n_classes: int, seed: int, dtype: type = np.float32) -> np.ndarray:
    """Rows of all spreads, with ties, impossible classes, sure and unsure labels."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, n_classes)) * np.geomspace(1e-3, 300.0, 40)[:, None]
    rows += rng.normal(scale=100.0, size=(40, 1)) * (rng.random((40, 1)) < 0.3)
    rows[0] = 0.0
    rows[1, :2] = rows[1].max()
    rows[2, 1:] = -np.inf
    rows[3, n_classes // 2 + 1 :] = -np.inf
    rows[4], rows[4, -1] = -25.0, 0.0
    rows[5] = -10.0 * np.arange(n_classes)
    masked = rng.random(rows.shape) < 0.2 * (rng.random((40, 1)) < 0.3)
    masked[np.arange(40), rows.argmax(axis=1)] = False
    rows[masked] = -np.inf
    return rows.astype(dtype)


_MODELS: dict[tuple[str, int], Any] = {}


def exported(method: str, n_classes: int) -> Any:
    key = method, n_classes
    if key not in _MODELS:
        _MODELS[key] = export(fitted(*key), probabilities=True)
    return _MODELS[key]


def test_every_method_of_the_registry_is_here():
    """Those for two classes are below, as rules; those of other packages have their
    own tests.
    """
    several = [name for name in BUILT_IN if not make(name).method.binary_only]
    assert {name for name, _ in METHODS.values()} == {*several, *AUTOMATIC}


@pytest.mark.sample(3)
@pytest.mark.parametrize("method", METHODS)
class TestEveryMethod:
    @pytest.mark.slow
    @max_examples(6)
    @given(n_classes=st.sampled_from(CLASSES), seed=st.integers(0, 10**6))
    def test_parity_on_hard_rows(self, method, n_classes, seed):
        rows = hard_rows(n_classes, seed)
        found = run(exported(method, n_classes), logits=rows)
        assert found["labels"].dtype == np.int64
        assert found["confidence"].dtype == np.float32
        assert found["probabilities"].shape == rows.shape
        wrong, confidence, proba = differences(fitted(method, n_classes), found, rows)
        assert wrong == 0
        assert confidence < ROUNDING
        assert proba < 2 * ROUNDING  # the label is held one float32 above the others

    @pytest.mark.slow
    def test_plain_operators_of_the_default_domain(self, method):
        model = exported(method, 12)
        kinds = {node.op_type for node in model.graph.node}
        assert {node.domain for node in model.graph.node} == {""}
        assert [item.domain for item in model.opset_import] == [""]
        assert not kinds & {"Loop", "Scan", "If"}
        assert not [kind for kind in kinds if "Random" in kind]

    @pytest.mark.sample(1)
    def test_empty_batch_and_rows_by_themselves(self, method):
        rows, model = hard_rows(12, 7), exported(method, 12)
        whole = run(model, logits=rows)
        for part in (slice(0, 0), slice(9, 10)):
            some = run(model, logits=rows[part])
            for name, values in some.items():
                np.testing.assert_array_equal(values, whole[name][part])

    @pytest.mark.sample(2)
    def test_rows_that_python_refuses_are_nan(self, method):
        rows = hard_rows(12, 1)[:6]
        rows[1, 0], rows[3, 2], rows[5] = np.nan, np.inf, -np.inf
        found = run(exported(method, 12), logits=rows)
        good, bad = np.array([0, 2, 4]), np.array([1, 3, 5])
        assert np.isnan(found["confidence"][bad]).all()
        assert np.isnan(found["probabilities"][bad]).all()
        assert np.isfinite(found["confidence"][good]).all()
        assert np.isfinite(found["probabilities"][good]).all()

    @pytest.mark.sample(2)
    def test_float64_logits_agree_to_rounding(self, method):
        rows = hard_rows(12, 5, np.float64)
        model = export(fitted(method, 12), input_dtype="float64", probabilities=True)
        found = run(model, logits=rows)
        assert found["confidence"].dtype == np.float64
        wrong, confidence, proba = differences(fitted(method, 12), found, rows)
        assert wrong == 0
        assert confidence < 1e-9
        assert proba < 1e-9

    @pytest.mark.slow
    def test_float32_is_near(self, method):
        """Without float64: what the page on ONNX says it costs."""
        rows = synthetic_logits(300, 12, seed=8)[0].astype(np.float32)
        model = export(fitted(method, 12), precision="float32")
        inferred = onnx.shape_inference.infer_shapes(model).graph
        kinds = {tensor.data_type for tensor in inferred.initializer}
        kinds |= {item.type.tensor_type.elem_type for item in inferred.value_info}
        assert onnx.TensorProto.DOUBLE not in kinds
        found = run(model, logits=rows)
        wrong, confidence, _ = differences(fitted(method, 12), found, rows)
        assert wrong == 0
        assert confidence < 1e-3

    @pytest.mark.slow
    def test_the_oldest_opset(self, method):
        model = export(fitted(method, 12), opset=13, probabilities=True)
        assert model.opset_import[0].version == 13
        rows = hard_rows(12, 2)
        found = run(model, logits=rows)
        expected = run(exported(method, 12), logits=rows)
        for name, values in found.items():
            np.testing.assert_array_equal(values, expected[name])


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", NAMES)
@max_examples(5)
@given(seed=seeds)
def test_rules_with_random_numbers(name, seed):
    """Far temperatures, huge logits, and answers in the precision of the input."""
    n_classes = 2 + seed % 7
    rule, rows = make_case(name, seed, n_classes)
    calibrator = from_rule(rule, rows.shape[1])
    model = export(calibrator, input_dtype=rows.dtype.name, probabilities=True)
    found = run(model, logits=rows)
    np.testing.assert_array_equal(found["labels"], calibrator.predict(rows))
    confidence, proba = (
        calibrator.predict_confidence(rows),
        calibrator.predict_proba(rows),
    )
    np.testing.assert_allclose(found["confidence"], confidence, atol=ROUNDING)
    np.testing.assert_allclose(found["probabilities"], proba, atol=2 * ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [15, 18, 20, 21, 22])
def test_opsets(opset):
    model = export(fitted("hoki_uniform", 12), opset=opset, probabilities=True)
    assert model.opset_import[0].version == opset
    rows = hard_rows(12, 2)
    assert (
        differences(fitted("hoki_uniform", 12), run(model, logits=rows), rows)[1]
        < ROUNDING
    )


@pytest.mark.sample(0)
@pytest.mark.parametrize("method", ["temps", "hoki", "hoki_sampled", "irm"])
def test_float16_logits(method):
    rows = np.clip(hard_rows(12, 6), -60000, 60000).astype(np.float16)
    rows[2, 1:] = -np.inf
    found = run(export(fitted(method, 12), input_dtype="float16"), logits=rows)
    wrong, confidence, _ = differences(fitted(method, 12), found, rows)
    assert wrong == 0
    assert confidence < ROUNDING


@pytest.mark.slow
def test_what_was_loaded_is_exported(tmp_path):
    fitted("hoki", 12).save(tmp_path / "cal.json")
    assert export(load(tmp_path / "cal.json"), probabilities=True) == exported(
        "hoki", 12
    )


def test_labels_are_the_first_of_equals_among_many():
    """With so many classes that a runtime looks at several at a time."""
    calibrator = TemperatureScaling().fit(*synthetic_logits(500, 70, seed=0))
    rows = np.zeros((70, 70), np.float32)
    for k in range(70):
        rows[k, k:] = 1.0
    found = run(export(calibrator), logits=rows)
    np.testing.assert_array_equal(found["labels"], np.arange(70))
    np.testing.assert_array_equal(found["probabilities"].argmax(axis=1), np.arange(70))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_labels_stay_the_maximum_at_a_large_temperature(dtype):
    calibrator = TemperatureScaling().fit(*synthetic_logits(500, 4, seed=0))
    calibrator = with_rule(calibrator, TemperatureRule(1e16))
    rows = np.array([[0.0, 0.001, 0.002, 0.0005]], dtype)
    found = run(export(calibrator, input_dtype=dtype), logits=rows)
    assert found["probabilities"].argmax() == 2


@pytest.mark.slow
def test_probabilities_by_default_where_they_are_cheap():
    for method in ("temps", "irova_ts", "hoki_gumbel", "hoki_gaussian", "hoki_sampled"):
        names = [output.name for output in export(fitted(method, 2)).graph.output]
        costly = method in ("hoki_gaussian", "hoki_sampled")
        assert ("probabilities" not in names) == costly, method


def test_metadata():
    model = export(fitted("temps", 2), opset=18, precision="float32")
    facts = {item.key: item.value for item in model.metadata_props}
    assert facts == {
        "hokical_version": hokical.__version__,
        "hokical_method": "temps",
        "hokical_n_classes": "2",
        "hokical_opset": "18",
        "hokical_precision": "float32",
    }
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_written_whole_and_the_same_every_time(tmp_path, monkeypatch, recorded_anew):
    monkeypatch.setattr("hokical.integrations.onnx.exporting.record", recorded_anew)
    path = tmp_path / "cal.onnx"
    model = export(fitted("hoki", 2), path)
    assert [item.name for item in tmp_path.iterdir()] == ["cal.onnx"]
    assert path.read_bytes() == model.SerializeToString()
    assert export(fitted("hoki", 2)).SerializeToString() == path.read_bytes()
    assert check(path, fitted("hoki", 2)).agrees


def test_check_sees_a_difference():
    other = TemperatureScaling().fit(*synthetic_logits(500, 2, seed=9, stretch=1.0))
    found = check(export(fitted("temps", 2)), other)
    assert not found.agrees
    assert found.largest_difference > 0.01


def test_too_many_draws_are_refused(monkeypatch):
    """Also those of a rule inside another."""
    monkeypatch.setattr("hokical.integrations.onnx.exporting.MOST_DRAWN", 1799)
    plain = fitted("hoki_sampled", 12)
    floored = copy(plain)
    floored = with_rule(floored, FlooredRule(0.01, plain.rule_))
    for calibrator in (plain, floored):
        with pytest.raises(
            ValueError, match=r"draws of 12 classes, 1,800 numbers. Fit with"
        ):
            export(calibrator)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"opset": 12}, ValueError, "`opset` must be from 13 to"),
        ({"opset": "17"}, TypeError, "`opset` must be an integer; got '17'"),
        ({"input_dtype": "int8"}, ValueError, "`input_dtype` must be one of"),
        ({"precision": "float16"}, ValueError, "`precision` must be one of"),
        (
            {"precision": "float32", "input_dtype": "float64"},
            ValueError,
            'must be "float64" for inputs of float64',
        ),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        export(fitted("temps", 2), **options)


def test_bad_calibrators():
    with pytest.raises(
        TypeError, match="`calibrator` must be one of hokical's for logits; got str"
    ):
        export("cal.json")
    with pytest.raises(ValueError, match="not fitted"):
        export(hokical.MultilabelCalibrator())
    with pytest.raises(Exception, match="not fitted"):
        export(TemperatureScaling())
