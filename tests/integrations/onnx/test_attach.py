"""Calibrators behind classifiers: networks from PyTorch, from scikit-learn, and made
by hand.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

from hokical import from_probabilities  # noqa: E402
from hokical.calibrators import TemperatureScaling  # noqa: E402
from hokical.integrations.onnx import NotRunnable, attach, check, export  # noqa: E402
from tests.integrations.onnx.helpers import differences, fitted, run  # noqa: E402

helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
DOUBLE = onnx.TensorProto.DOUBLE


def network(
    tail: str = "Identity",
    *,
    kind: int = FLOAT,
    opset: int = 17,
    n_classes: int = 4,
    names: tuple[str, ...] = ("scores",),
    shape: tuple = ("n", None),
):
    """x (n, 6) -> matrix -> `tail` -> as many equal outputs as there are names."""
    rng = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weight = numpy_helper.from_array(
        (3 * rng.normal(size=(6, n_classes))).astype(dtype), "constant_0"
    )
    nodes = [
        helper.make_node("MatMul", ["x", "constant_0"], ["inner"]),
        helper.make_node(tail, ["inner"], [names[0]]),
        *(helper.make_node("Identity", [names[0]], [name]) for name in names[1:]),
    ]
    shape = tuple(n_classes if length is None else length for length in shape)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", kind, ["n", 6])],
        [helper.make_tensor_value_info(name, kind, shape) for name in names],
        [weight],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(
        graph, opset_imports=imports, ir_version=helper.find_min_ir_version_for(imports)
    )


def inputs(n: int = 50, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, 6)).astype(dtype)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "method", ["temps", "vecs", "irova_ts", "hoki_uniform", "structured"]
)
def test_one_file_gives_old_outputs_labels_and_confidence(method):
    calibrator = fitted(method, 4)
    model = attach(network(), calibrator)
    found = run(model, x=inputs())
    assert list(found)[:3] == ["scores", "labels", "confidence"]
    np.testing.assert_array_equal(found["scores"], run(network(), x=inputs())["scores"])
    wrong, confidence, _ = differences(calibrator, found, found["scores"])
    assert wrong == 0
    assert confidence < 1e-6
    assert check(model, calibrator).agrees
    assert run(model, x=inputs(0))["confidence"].shape == (0,)


@pytest.mark.parametrize("opset", [13, 18, 21])
def test_the_network_keeps_its_opset(opset):
    model = attach(network(opset=opset), fitted("hoki", 4))
    assert model.opset_import[0].version == opset
    assert check(model, fitted("hoki", 4)).agrees


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype"), [(FLOAT16, np.float16), (DOUBLE, np.float64)]
)
def test_other_floats(kind, dtype):
    calibrator = fitted("structured", 4)
    found = run(attach(network(kind=kind), calibrator), x=inputs(dtype=dtype))
    assert found["scores"].dtype == dtype
    assert found["confidence"].dtype == (
        np.float64 if dtype == np.float64 else np.float32
    )
    assert differences(calibrator, found, found["scores"])[:2] < (1, 1e-6)


def test_names_that_are_taken_get_a_prefix():
    taken = network(names=("confidence", "labels", "hokical_labels"))
    model = attach(taken, fitted("temps", 4), output="labels")
    assert [item.name for item in model.graph.output] == [
        "confidence",
        "labels",
        "hokical_labels",
        "hokical_labels_2",
        "hokical_confidence",
        "probabilities",
    ]
    assert check(model, fitted("temps", 4)).agrees


def test_a_calibrated_model_can_be_calibrated_again():
    once = attach(network(), fitted("temps", 4))
    twice = attach(once, fitted("ets", 4), output="scores")
    assert check(twice, fitted("ets", 4)).agrees
    found = run(twice, x=inputs())
    expected = fitted("temps", 4).predict_confidence(found["scores"])
    np.testing.assert_allclose(found["confidence"], expected, atol=1e-6)


def test_the_model_given_is_not_changed(tmp_path):
    before = network()
    attach(before, fitted("temps", 4), tmp_path / "both.onnx")
    assert before == network()
    onnx.save(before, tmp_path / "net.onnx")
    from_file = attach(tmp_path / "net.onnx", fitted("temps", 4))
    assert from_file == onnx.load(tmp_path / "both.onnx")


def test_a_softmax_at_the_end():
    net = network("Softmax")
    calibrator = fitted("hoki", 4)
    with pytest.warns(UserWarning, match="comes from a softmax"):
        as_logits = attach(net, calibrator, scores="logits")
    assert "are probabilities" in check(as_logits, calibrator).contradiction
    assert not check(as_logits, calibrator).agrees
    by_name = run(attach(net, calibrator, output="inner"), x=inputs())
    by_log = attach(net, calibrator)
    assert by_log == attach(net, calibrator, scores="probabilities")
    found = run(by_log, x=inputs())
    logits = from_probabilities(found["scores"])
    assert differences(calibrator, found, logits)[:2] < (1, 1e-6)
    assert np.abs(by_name["confidence"] - found["confidence"]).max() < 1e-3
    assert check(by_log, calibrator).agrees
    assert check(attach(net, calibrator, output="inner"), calibrator).agrees


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("axis", "order"), [(1, (0, 3, 1, 2)), (-1, (0, 1, 2, 3)), (0, (3, 0, 1, 2))]
)
def test_maps(axis, order):
    """Scores in four axes, the classes in any of them."""
    shape = [("n", 5, 6, 4)[k] for k in order]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["map"])],
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("map", FLOAT, shape)],
    )
    net = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    calibrator = fitted("hoki_gaussian", 4)
    model = attach(net, calibrator, class_axis=axis, probabilities=True)
    for n in (3, 0):
        x = (
            np.random.default_rng(2)
            .normal(scale=3.0, size=(n, 5, 6, 4))
            .astype(np.float32)
        )
        found = run(model, x=np.ascontiguousarray(x.transpose(order)))
        assert found["labels"].shape == found["confidence"].shape == (n, 5, 6)
        assert found["probabilities"].shape == found["map"].shape
        if n:
            rows = -x.reshape(-1, 4)
            flat = {name: found[name].ravel() for name in ("labels", "confidence")}
            last = np.moveaxis(found["probabilities"], axis, -1)
            flat["probabilities"] = last.reshape(-1, 4)
            wrong, confidence, proba = differences(calibrator, flat, rows)
            assert wrong == 0
            assert confidence < 1e-6
            assert proba < 1e-6


def test_errors():
    calibrator = fitted("temps", 4)
    with pytest.raises(ValueError, match=r"2 of \['a', 'b'\] could"):
        attach(network(names=("a", "b")), calibrator)
    with pytest.raises(ValueError, match=r"`output` must name a tensor.*got 'c'"):
        attach(network(), calibrator, output="c")
    for output in ("scores", None):
        with pytest.raises(
            ValueError, match=r"it has 3, and 'scores' of shape \(n, 4\) has 4 in"
        ):
            attach(network(), fitted("temps", 3), output=output)
    with pytest.raises(ValueError, match="0 of"):
        attach(network(names=("a", "b")), fitted("temps", 3))
    with pytest.raises(ValueError, match="`class_axis` must be an axis of 'scores'"):
        attach(network(), calibrator, output="scores", class_axis=2)
    with pytest.raises(ValueError, match=r"`scores` must be one of .*probabilities"):
        attach(network(), calibrator, scores="odds")
    with pytest.raises(TypeError, match="a path or a ModelProto; got int"):
        attach(3, calibrator)


def test_files_that_are_no_models(tmp_path):
    path = tmp_path / "net.onnx"
    for content in (b"not a model", b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="`model` must"):
            attach(path, fitted("temps", 4))
    with pytest.raises(FileNotFoundError):
        attach(tmp_path / "absent.onnx", fitted("temps", 4))


def test_a_network_whose_input_is_not_known_is_not_run():
    net = network()
    net.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "anything"
    with pytest.raises(NotRunnable, match="input 'x' has shape"):
        check(attach(net, fitted("temps", 4)), fitted("temps", 4))


def test_a_network_from_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    ).eval()
    image = torch.randn(2, 3, 8, 8)
    path = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own making
        torch.onnx.export(
            net,
            (image,),
            path,
            dynamo=True,
            verbose=False,
            input_names=["image"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        )
    calibrator = fitted("hoki", 4)
    model = attach(path, calibrator, tmp_path / "both.onnx")
    x = torch.randn(20, 3, 8, 8)
    found = run(model, image=x.numpy())
    with torch.no_grad():
        np.testing.assert_allclose(found["logits"], net(x).numpy(), atol=1e-5)
    assert differences(calibrator, found, found["logits"])[:2] < (1, 1e-6)
    assert check(tmp_path / "both.onnx", calibrator).agrees


def test_a_pipeline_from_scikit_learn():
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LogisticRegression

    x = inputs(400)
    labels = np.argmax(x[:, :4], axis=1)
    classifier = LogisticRegression().fit(x, labels)
    options = {id(classifier): {"zipmap": False}}
    net = skl2onnx.to_onnx(classifier, x[:1], options=options, target_opset=17)
    logits = from_probabilities(classifier.predict_proba(x))
    calibrator = TemperatureScaling().fit(logits, labels)
    model = attach(net, calibrator, scores="probabilities")
    found = run(model, X=x)
    assert (
        np.abs(found["confidence"] - calibrator.predict_confidence(logits)).max() < 1e-5
    )


def test_the_calibrator_itself_as_a_network():
    """Its probabilities, calibrated once more."""
    net = export(fitted("temps", 4))
    model = attach(
        net, fitted("ets", 4), output="probabilities", scores="probabilities"
    )
    assert check(model, fitted("ets", 4)).agrees


@pytest.mark.parametrize("zeros", ["unlikely", "impossible"])
def test_zeros_mean_what_is_said(zeros: str) -> None:
    ends = [
        helper.make_tensor_value_info(name, 1, ["n", 4]) for name in ("x", "scores")
    ]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["scores"])], "net", ends[:1], ends[1:]
    )
    net = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    calibrator = fitted("temps", 4)
    rows = np.array([[0.5, 0.5, 0, 0], [0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4]], np.float32)
    model = attach(net, calibrator, scores="probabilities", zeros=zeros)
    expected = calibrator.predict_proba(from_probabilities(rows, zeros=zeros))
    found = run(model, x=rows)["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-7)
    np.testing.assert_array_equal(found == 0.0, (rows == 0.0) & (zeros == "impossible"))
    with pytest.raises(ValueError, match="`zeros` must be"):
        attach(net, calibrator, scores="probabilities", zeros="none")
