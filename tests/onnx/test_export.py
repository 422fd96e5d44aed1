"""Every method as a graph says what it says in Python, whatever the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import hokical  # noqa: E402
from hokical.calibrators import Hoki, ReCal, TemperatureScaling  # noqa: E402
from hokical.calibrators.registry import KINDS  # noqa: E402
from hokical.integrations.onnx import check, export  # noqa: E402
from hokical.integrations.onnx.sampled import MOST_NUMBERS  # noqa: E402
from hokical.noise import Gaussian  # noqa: E402
from tests.conftest import synthetic_logits  # noqa: E402
from tests.onnx.helpers import METHODS, differences, fitted, run  # noqa: E402

CLASSES = (2, 3, 12)


@pytest.fixture(scope="module")
def recal() -> ReCal:
    logits, labels = synthetic_logits(800, 5, seed=3)
    views = logits + np.random.default_rng(0).normal(size=(3, *logits.shape))
    return ReCal(random_state=0).fit(logits, labels, transformed=views)


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


def test_every_method_of_the_registry_is_here():
    assert {name for name, _ in METHODS.values()} | {"recal"} == set(KINDS)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=6)
@given(n_classes=st.sampled_from(CLASSES), seed=st.integers(0, 10**6))
def test_parity_on_hard_rows(method, n_classes, seed):
    calibrator = fitted(method, n_classes)
    rows = hard_rows(n_classes, seed)
    found = run(exported(method, n_classes), logits=rows)
    assert found["labels"].dtype == np.int64
    assert found["confidence"].dtype == np.float32
    assert found["probabilities"].shape == rows.shape
    wrong, confidence, proba = differences(calibrator, found, rows)
    assert wrong == 0
    assert confidence < 1e-6
    assert proba < 1e-6


_MODELS: dict = {}


def exported(method: str, n_classes: int):
    key = method, n_classes
    if key not in _MODELS:
        _MODELS[key] = export(fitted(*key), probabilities=True)
    return _MODELS[key]


@pytest.mark.parametrize("method", METHODS)
def test_float64_logits_agree_to_rounding(method):
    """Down to what polynomials stand in for: 1e-9 with float64 in and out."""
    rows = hard_rows(12, 5, np.float64)
    found = run(export(fitted(method, 12), input_dtype="float64"), logits=rows)
    assert found["confidence"].dtype == np.float64
    wrong, confidence, proba = differences(fitted(method, 12), found, rows)
    assert wrong == 0
    assert confidence < 1e-8
    assert proba < 2e-7  # the label is held one float32 above the others


@pytest.mark.parametrize("method", ["temps", "hoki", "hoki_sampled", "profile", "irm"])
def test_float16_logits(method):
    rows = np.clip(hard_rows(12, 6), -60000, 60000).astype(np.float16)
    rows[2, 1:] = -np.inf
    found = run(export(fitted(method, 12), input_dtype="float16"), logits=rows)
    wrong, confidence, _ = differences(fitted(method, 12), found, rows)
    assert wrong == 0
    assert confidence < 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_float32_is_near(method):
    """Without float64: what the page on ONNX says it costs."""
    rows = synthetic_logits(300, 12, seed=8)[0].astype(np.float32)
    model = export(fitted(method, 12), precision="float32")
    doubles = {tensor.data_type for tensor in model.graph.initializer}
    assert onnx.TensorProto.DOUBLE not in doubles
    wrong, confidence, _ = differences(fitted(method, 12), run(model, logits=rows), rows)
    assert wrong == 0
    assert confidence < 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_plain_operators_of_the_default_domain(method):
    model = exported(method, 3)
    kinds = {node.op_type for node in model.graph.node}
    assert {node.domain for node in model.graph.node} == {""}
    assert [item.domain for item in model.opset_import] == [""]
    assert not kinds & {"Loop", "Scan", "If"}
    assert not [kind for kind in kinds if "Random" in kind or kind in ("Multinomial", "Bernoulli")]


@pytest.mark.parametrize("method", METHODS)
def test_empty_batch_and_rows_by_themselves(method):
    rows = hard_rows(12, 7)
    model = exported(method, 12)
    empty = run(model, logits=rows[:0])
    assert empty["labels"].shape == empty["confidence"].shape == (0,)
    assert empty["probabilities"].shape == (0, 12)
    whole, one = run(model, logits=rows), run(model, logits=rows[9:10])
    for name, values in one.items():
        np.testing.assert_array_equal(values, whole[name][9:10])


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_python_refuses_are_nan(method):
    rows = hard_rows(3, 1)[:6]
    rows[1, 0], rows[3, 2], rows[5] = np.nan, np.inf, -np.inf
    found = run(exported(method, 3), logits=rows)
    bad = np.array([1, 3, 5])
    assert np.isnan(found["confidence"][bad]).all()
    assert np.isnan(found["probabilities"][bad]).all()
    good = np.delete(np.arange(6), bad)
    assert (
        differences(fitted(method, 3), {k: v[good] for k, v in found.items()}, rows[good])[1] < 1e-6
    )


@pytest.mark.parametrize("opset", [13, 15, 18, 20, 21])
@pytest.mark.parametrize("method", ["ets", "hoki_uniform", "hoki_sampled", "irova_ts", "profile"])
def test_opsets(method, opset):
    model = export(fitted(method, 12), opset=opset, probabilities=True)
    assert model.opset_import[0].version == opset
    rows = hard_rows(12, 2)
    assert differences(fitted(method, 12), run(model, logits=rows), rows)[1] < 1e-6


def test_labels_are_the_first_of_equals_among_many():
    """With so many classes that a runtime looks at several at a time."""
    calibrator = TemperatureScaling().fit(*synthetic_logits(500, 70, seed=0))
    rows = np.zeros((70, 70), np.float32)
    for k in range(70):
        rows[k, k:] = 1.0
    found = run(export(calibrator), logits=rows)
    np.testing.assert_array_equal(found["labels"], np.arange(70))
    np.testing.assert_array_equal(found["probabilities"].argmax(axis=1), np.arange(70))


def test_labels_stay_the_maximum_at_a_large_temperature():
    calibrator = TemperatureScaling().fit(*synthetic_logits(500, 4, seed=0))
    calibrator.temperature_ = 1e5
    rows = np.array([[0.0, 0.001, 0.002, 0.0005]], np.float32)
    found = run(export(calibrator), logits=rows)
    assert found["probabilities"].argmax() == 2


@pytest.mark.parametrize("probabilities", [True, False])
def test_recal(recal, probabilities):
    rng = np.random.default_rng(4)
    rows = hard_rows(5, 3)
    views = (np.where(rows > -np.inf, rows, 0) + rng.normal(size=(3, *rows.shape))).astype("f4")
    views[1, :5, 3] = -np.inf
    model = export(recal, probabilities=probabilities)
    found = run(model, logits=rows, transformed=views)
    assert ("probabilities" in found) is probabilities
    wrong, confidence, proba = differences(recal, found, rows, transformed=views)
    assert wrong == 0
    assert confidence < 1e-6
    assert proba < 1e-6
    assert check(model, recal).agrees


def test_probabilities_by_default_where_they_are_cheap():
    for method in METHODS:
        names = [output.name for output in export(fitted(method, 3)).graph.output]
        noise = getattr(fitted(method, 3), "noise_", None)
        costly = noise is not None and noise.family != "gumbel"
        assert ("probabilities" not in names) == costly, method


def test_metadata():
    model = export(fitted("temps", 3), opset=18, precision="float32")
    facts = {item.key: item.value for item in model.metadata_props}
    assert facts == {
        "hokical_version": hokical.__version__,
        "hokical_method": "temps",
        "hokical_n_classes": "3",
        "hokical_opset": "18",
        "hokical_precision": "float32",
    }
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_written_whole_and_the_same_every_time(tmp_path):
    path = tmp_path / "cal.onnx"
    model = export(fitted("hoki", 3), path)
    assert [item.name for item in tmp_path.iterdir()] == ["cal.onnx"]
    assert path.read_bytes() == model.SerializeToString()
    assert export(fitted("hoki", 3)).SerializeToString() == path.read_bytes()
    assert check(path, fitted("hoki", 3)).agrees


def test_check_sees_a_difference():
    other = TemperatureScaling().fit(*synthetic_logits(500, 3, seed=9, stretch=1.0))
    found = check(export(fitted("temps", 3)), other)
    assert not found.agrees
    assert found.largest_difference > 0.01


def test_too_many_draws_are_refused():
    draws = MOST_NUMBERS // 3 + 1
    calibrator = Hoki(noise=Gaussian(2.0), draws=10, random_state=0)
    calibrator.fit(*synthetic_logits(50, 3, seed=0))
    object.__setattr__(calibrator.draws_, "n_draws", draws)
    with pytest.raises(ValueError, match="Fit with fewer draws, or with exact stability"):
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
        export(fitted("temps", 3), **options)


def test_bad_calibrators():
    with pytest.raises(TypeError, match="`calibrator` must be one of hokical's; got str"):
        export("cal.json")
    with pytest.raises(Exception, match="not fitted"):
        export(TemperatureScaling())
