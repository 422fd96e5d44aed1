"""Classifiers that put out probabilities, of one softmax or of several."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

from hokical import from_probabilities  # noqa: E402
from hokical.calibrators import Calibrator, make  # noqa: E402
from hokical.integrations.onnx import attach, check  # noqa: E402
from tests.integrations.onnx.helpers import run  # noqa: E402

helper, numpy_helper = onnx.helper, onnx.numpy_helper
node = helper.make_node
N_CLASSES = 4

#: How three softmaxes `p0`, `p1`, `p2` (n, classes) become their mean `scores`, by the
#: operators that networks are written with.
MEANS = {
    "stack and mean": [
        *(node("Unsqueeze", [f"p{k}", "first"], [f"u{k}"]) for k in range(3)),
        node("Concat", ["u0", "u1", "u2"], ["stacked"], axis=0),
        node("ReduceMean", ["stacked"], ["scores"], axes=[0], keepdims=0),
    ],
    "stack, sum and divide": [
        *(node("Unsqueeze", [f"p{k}", "first"], [f"u{k}"]) for k in range(3)),
        node("Concat", ["u0", "u1", "u2"], ["stacked"], axis=0),
        node("ReduceSum", ["stacked", "first"], ["sum"], keepdims=0),
        node("Div", ["sum", "three"], ["scores"]),
    ],
    "mean of tensors": [node("Mean", ["p0", "p1", "p2"], ["scores"])],
    "additions and a product": [
        node("Add", ["p0", "p1"], ["two"]),
        node("Add", ["two", "p2"], ["all"]),
        node("Mul", ["third", "all"], ["scores"]),
    ],
    "sum": [
        node("Sum", ["p0", "p1", "p2"], ["sum"]),
        node("Div", ["sum", "three"], ["scores"]),
    ],
    "normalized": [
        node("Sum", ["p0", "p1", "p2"], ["sum"]),
        node("ReduceSum", ["sum", "last"], ["total"], keepdims=1),
        node("Div", ["sum", "total"], ["scores"]),
    ],
    "weighted": [
        *(node("Mul", [f"p{k}", "third"], [f"w{k}"]) for k in range(3)),
        node("Sum", ["w0", "w1", "w2"], ["sum"]),
        node("Cast", ["sum"], ["wide"], to=onnx.TensorProto.DOUBLE),
        node("Cast", ["wide"], ["scores"], to=onnx.TensorProto.FLOAT),
    ],
    "normalized, kept from 0": [
        node("Sum", ["p0", "p1", "p2"], ["sum"]),
        node("ReduceSum", ["sum", "last"], ["total"], keepdims=1),
        node("Clip", ["total", "tiny"], ["above"]),
        node("Shape", ["sum"], ["shape"]),
        node("Expand", ["above", "shape"], ["totals"]),
        node("Div", ["sum", "totals"], ["scores"]),
    ],
    "log of the mean": [
        node("Mean", ["p0", "p1", "p2"], ["mean"]),
        node("Log", ["mean"], ["scores"]),
    ],
}

_TENSORS = {
    name: helper.make_tensor_value_info(name, kind, shape)
    for name, kind, shape in [
        ("turn", onnx.TensorProto.INT64, []),
        ("go", onnx.TensorProto.BOOL, []),
        ("going", onnx.TensorProto.BOOL, []),
        ("total", onnx.TensorProto.FLOAT, ["n", N_CLASSES]),
        ("sum", onnx.TensorProto.FLOAT, ["n", N_CLASSES]),
    ]
}
#: Adds softmaxes up.
LOOP = helper.make_graph(
    [
        node("Identity", ["go"], ["going"]),
        node("Softmax", ["z0"], ["part"]),
        node("Add", ["total", "part"], ["sum"]),
    ],
    "turn",
    [_TENSORS["turn"], _TENSORS["go"], _TENSORS["total"]],
    [_TENSORS["going"], _TENSORS["sum"]],
)
#: What else networks compute from softmaxes: nearly probabilities, or anything.
COMPUTED = {
    "clipped": [node("Clip", ["p0", "tiny"], ["scores"])],
    "inverse": [node("Div", ["third", "p0"], ["scores"])],
    "exponential of a logarithm": [
        node("Clip", ["p0", "tiny"], ["above"]),
        node("Log", ["above"], ["log"]),
        node("Exp", ["log"], ["scores"]),
    ],
    "smoothed": [
        node("Mul", ["p0", "third"], ["part"]),
        node("Add", ["part", "third"], ["scores"]),
    ],
    "interpolated": [
        node("Sub", ["p1", "p0"], ["step"]),
        node("Mul", ["step", "third"], ["part"]),
        node("Add", ["p0", "part"], ["scores"]),
    ],
    "mean as a product": [
        *(node("Unsqueeze", [f"p{k}", "last"], [f"u{k}"]) for k in range(3)),
        node("Concat", ["u0", "u1", "u2"], ["stacked"], axis=1),
        node("MatMul", ["weights", "stacked"], ["product"]),
        node("Squeeze", ["product", "last"], ["scores"]),
    ],
    "product, normalized": [
        node("Mul", ["p0", "p1"], ["product"]),
        node("ReduceSum", ["product", "last"], ["total"], keepdims=1),
        node("Reciprocal", ["total"], ["inverse"]),
        node("Mul", ["product", "inverse"], ["scores"]),
    ],
    "entries of two": [
        node("Greater", ["p0", "third"], ["is_large"]),
        node("Where", ["is_large", "p0", "p1"], ["scores"]),
    ],
    "largest of two": [node("Max", ["p0", "p1"], ["scores"])],
    "a sum in a loop": [
        node("Shape", ["p0"], ["shape"]),
        node("ConstantOfShape", ["shape"], ["zeros"]),
        node("Loop", ["turns", "", "zeros"], ["scores"], body=LOOP),
    ],
    "log of the mean": [
        node("Mean", ["p0", "p1", "p2"], ["mean"]),
        node("Add", ["mean", "tiny"], ["above"]),
        node("Log", ["above"], ["scores"]),
    ],
}
#: How else a softmax is written.
SOFTMAXES = {
    "log-sum-exp": [
        node("ReduceLogSumExp", ["z0"], ["total"], axes=[1]),
        node("Sub", ["z0", "total"], ["log"]),
        node("Exp", ["log"], ["scores"]),
    ],
    "reciprocal": [
        node("Exp", ["z0"], ["exp"]),
        node("ReduceSum", ["exp", "last"], ["total"], keepdims=1),
        node("Reciprocal", ["total"], ["inverse"]),
        node("Mul", ["exp", "inverse"], ["scores"]),
    ],
    "kept from NaN": [
        node("IsNaN", ["p0"], ["is_nan"]),
        node("Where", ["is_nan", "tiny", "p0"], ["scores"]),
    ],
    "either branch": [
        node(
            "If",
            ["condition"],
            ["scores"],
            **{
                f"{name}_branch": helper.make_graph(
                    [node("Softmax", [f"z{k}"], [name])],
                    name,
                    [],
                    [
                        helper.make_tensor_value_info(
                            name, onnx.TensorProto.FLOAT, ["n", N_CLASSES]
                        )
                    ],
                )
                for k, name in enumerate(["then", "else"])
            },
        )
    ],
}


def ensemble_of_networks(tail: list[onnx.NodeProto], softmax: str = "Softmax"):
    """x (n, 6) -> three matrices -> three softmaxes -> `tail`."""
    rng = np.random.default_rng(0)
    constants = {
        f"m{k}": (2.0 * rng.normal(size=(6, N_CLASSES))).astype(np.float32)
        for k in range(3)
    }
    constants["first"] = np.array([0])
    constants["last"] = np.array([1])
    constants["three"] = np.array(3.0, np.float32)
    constants["third"] = np.array(1.0 / 3.0, np.float32)
    constants["tiny"] = np.array(1e-7, np.float32)
    constants["weights"] = np.full((1, 3), 1.0 / 3.0, np.float32)
    constants["condition"] = np.array(True)
    constants["turns"] = np.array(2)
    nodes = []
    for k in range(3):
        nodes.append(node("MatMul", ["x", f"m{k}"], [f"z{k}"]))
        nodes.append(node(softmax, [f"z{k}"], [f"p{k}"]))
    graph = helper.make_graph(
        nodes + tail,
        "networks",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 6])],
        [
            helper.make_tensor_value_info(
                "scores", onnx.TensorProto.FLOAT, ["n", N_CLASSES]
            )
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def inputs(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 6)).astype(np.float32)


def fitted_on_outputs(model: onnx.ModelProto, read: Callable) -> Calibrator:
    scores = read(run(model, x=inputs(600))["scores"])
    labels = np.argmax(scores + np.random.default_rng(2).gumbel(size=scores.shape), 1)
    return make("temps").fit(scores, labels)


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_of_softmaxes_is_read_as_it_was_in_the_fit(name: str) -> None:
    network = ensemble_of_networks(MEANS[name])
    is_log = name.startswith("log")
    calibrator = fitted_on_outputs(
        network, np.asarray if is_log else from_probabilities
    )
    assert calibrator.schema_.scores == "log-probabilities"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = attach(network, calibrator)
    outputs = run(both, x=inputs(200, seed=3))
    logits = outputs["scores"] if is_log else from_probabilities(outputs["scores"])
    expected = calibrator.predict_confidence(logits)
    np.testing.assert_allclose(outputs["confidence"], expected, atol=1e-5)
    assert check(both, calibrator).agrees


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_from_softmaxes_is_not_taken_for_logits(name: str) -> None:
    network = ensemble_of_networks(COMPUTED[name])
    of_logits = fitted_on_outputs(
        ensemble_of_networks([node("Identity", ["z0"], ["scores"])]), np.asarray
    )
    assert of_logits.schema_.scores == "logits"
    with pytest.raises(ValueError, match=r"`scores` must be .* probabilities, and the"):
        attach(network, of_logits)


@pytest.mark.parametrize("name", SOFTMAXES)
def test_a_softmax_in_other_words(name: str) -> None:
    network = ensemble_of_networks(SOFTMAXES[name])
    of_logits = fitted_on_outputs(
        ensemble_of_networks([node("Identity", ["z0"], ["scores"])]), np.asarray
    )
    outputs = run(attach(network, of_logits), x=inputs(50))
    expected = of_logits.predict_confidence(from_probabilities(outputs["scores"]))
    np.testing.assert_allclose(outputs["confidence"], expected, atol=1e-5)


def test_a_mean_inside_a_function() -> None:
    network = ensemble_of_networks([node("Pool", ["p0", "p1"], ["scores"], domain="a")])
    body = [node("Mean", ["x", "y"], ["mean"])]
    imports = [helper.make_opsetid("", 17)]
    pool = helper.make_function("a", "Pool", ["x", "y"], ["mean"], body, imports)
    network.functions.append(pool)
    network.opset_import.append(helper.make_opsetid("a", 1))
    calibrator = fitted_on_outputs(network, from_probabilities)
    properties = attach(network, calibrator).metadata_props
    assert ("hokical_scores_are", "probabilities") in [
        (item.key, item.value) for item in properties
    ]


def test_a_layer_behind_softmaxes_gives_logits() -> None:
    weights = np.random.default_rng(3).normal(size=(N_CLASSES, N_CLASSES))
    network = ensemble_of_networks([node("MatMul", ["p0", "layer"], ["scores"])])
    network.graph.initializer.append(
        numpy_helper.from_array(weights.astype(np.float32), "layer")
    )
    calibrator = fitted_on_outputs(network, np.asarray)
    assert check(attach(network, calibrator), calibrator).agrees


def test_probabilities_that_are_read_as_logits_do_not_pass_a_check() -> None:
    network = ensemble_of_networks(MEANS["mean of tensors"])
    calibrator = fitted_on_outputs(network, from_probabilities)
    with pytest.warns(UserWarning, match="is taken for logits"):
        wrong = attach(network, calibrator, scores="logits")
    compared = check(wrong, calibrator)
    assert compared.contradiction == (
        "the scores are probabilities, and are read as logits"
    )
    assert not compared.agrees


def test_logits_that_are_read_as_probabilities_do_not_pass_a_check() -> None:
    network = ensemble_of_networks([node("Identity", ["z0"], ["scores"])])
    calibrator = fitted_on_outputs(network, np.asarray)
    wrong = attach(network, calibrator, scores="probabilities")
    assert (
        "read as probabilities, and are none" in check(wrong, calibrator).contradiction
    )


def test_what_a_graph_does_not_show_must_be_stated() -> None:
    """A matrix after the softmaxes may give anything."""
    tail = [node("Identity", ["z0"], ["scores"])]
    network = ensemble_of_networks(tail)
    mean = ensemble_of_networks(MEANS["mean of tensors"])
    calibrator = fitted_on_outputs(mean, from_probabilities)
    with pytest.raises(
        ValueError, match=r'`scores` must be "logits" or "prob.* not show'
    ):
        attach(network, calibrator)
    assert check(attach(network, calibrator, scores="logits"), calibrator).agrees
    of_logits = fitted_on_outputs(network, np.asarray)
    assert of_logits.schema_.scores == "logits"
    assert check(attach(network, of_logits), of_logits).agrees
    with pytest.raises(
        ValueError, match=r"is a mean of probabilities, and .* on logits"
    ):
        attach(mean, of_logits)
    with pytest.warns(UserWarning, match="not their logarithms"):
        attach(mean, of_logits, scores="probabilities")


def test_a_logarithm_to_another_base_must_be_stated() -> None:
    base = [node("Log", ["p0"], ["log"]), node("Mul", ["log", "three"], ["scores"])]
    network = ensemble_of_networks(base)
    softmax = ensemble_of_networks([node("Identity", ["p0"], ["scores"])])
    calibrator = fitted_on_outputs(softmax, from_probabilities)
    with pytest.raises(ValueError, match=r'`scores` must be "logits" or "prob'):
        attach(network, calibrator)


def forest(weights: list[float], *more: onnx.NodeProto) -> onnx.ModelProto:
    """A tree with two leaves, with `weights` of two classes at each."""
    tree = node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_values=[0.0, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0] * 4,
        class_nodeids=[1, 1, 2, 2],
        class_ids=[0, 1, 0, 1],
        class_weights=weights,
        classlabels_int64s=[0, 1],
        post_transform="NONE",
    )
    ends = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 6]),
        helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["n", 2]),
    ]
    outputs = [helper.make_empty_tensor_value_info("maps")] if more else ends[1:]
    graph = helper.make_graph([tree, *more], "forest", ends[:1], outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def test_shares_of_votes_of_trees_are_probabilities() -> None:
    network = forest([0.75, 0.25, 0.125, 0.875])
    calibrator = fitted_on_outputs(network, from_probabilities)
    outputs = run(attach(network, calibrator), x=inputs(50))
    expected = calibrator.predict_confidence(from_probabilities(outputs["scores"]))
    np.testing.assert_allclose(outputs["confidence"], expected, atol=1e-5)
    boosted = forest([1.5, -1.5, -2.0, 2.0])
    of_logits = fitted_on_outputs(boosted, np.asarray)
    assert check(attach(boosted, of_logits), of_logits).agrees
    with pytest.raises(ValueError, match=r"is a mean of probabilities, and .* logits"):
        attach(network, of_logits)


def test_mappings_of_scikit_learn_are_named() -> None:
    zipped = node(
        "ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
    )
    calibrator = fitted_on_outputs(forest([1.5, -1.5, -2.0, 2.0]), np.asarray)
    with pytest.raises(ValueError, match=r"list of mappings \(ZipMap\)"):
        attach(forest([1.5, -1.5, -2.0, 2.0], zipped), calibrator)


@pytest.mark.filterwarnings("ignore:`logits` look like probabilities")
def test_a_fit_on_probabilities_as_logits_is_noticed() -> None:
    network = ensemble_of_networks([node("Identity", ["p0"], ["scores"])])
    calibrator = fitted_on_outputs(network, np.asarray)
    with pytest.raises(ValueError, match=r"fitted on probabilities that were taken"):
        attach(network, calibrator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = attach(network, calibrator, scores="logits")
    outputs = run(both, x=inputs(50))
    expected = calibrator.predict_confidence(outputs["scores"])
    np.testing.assert_allclose(outputs["confidence"], expected, atol=1e-5)


def test_means_of_logits_are_logits() -> None:
    network = ensemble_of_networks(MEANS["mean of tensors"], softmax="Identity")
    calibrator = fitted_on_outputs(network, np.asarray)
    assert check(attach(network, calibrator), calibrator).agrees
    logs = ensemble_of_networks(MEANS["mean of tensors"], softmax="LogSoftmax")
    calibrator = fitted_on_outputs(logs, np.asarray)
    assert check(attach(logs, calibrator), calibrator).agrees


@pytest.mark.filterwarnings("ignore:::torch|copyreg")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_network_from_pytorch_that_averages_softmaxes(tmp_path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.networks = torch.nn.ModuleList(torch.nn.Linear(6, 4) for _ in range(3))

        def forward(self, x):
            return torch.stack([net(3 * x).softmax(-1) for net in self.networks]).mean(
                0
            )

    torch.manual_seed(0)
    network = Mean().eval()
    for dynamo in (False, True):
        path = tmp_path / f"mean-{dynamo}.onnx"
        torch.onnx.export(
            network,
            (torch.zeros(2, 6),),
            path,
            input_names=["x"],
            output_names=["scores"],
            dynamo=dynamo,
        )
        rows = torch.as_tensor(inputs(600))
        scores = from_probabilities(network(rows).detach())
        labels = torch.distributions.Categorical(logits=scores).sample()
        calibrator = make("temps").fit(scores, labels)
        assert calibrator.schema_.scores == "log-probabilities"
        both = attach(path, calibrator)
        assert {p.key: p.value for p in both.metadata_props}[
            "hokical_scores_are"
        ] == "probabilities"
