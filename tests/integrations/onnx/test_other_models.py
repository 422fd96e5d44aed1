"""What other people's models may hold: inner names, graphs in nodes, weights
elsewhere, opsets.
"""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

from hokical.integrations.onnx import NotRunnable, attach, check, export  # noqa: E402
from hokical.integrations.onnx import models as models  # noqa: E402
from tests.integrations.onnx.helpers import differences, fitted, run  # noqa: E402
from tests.integrations.onnx.test_attach import (  # noqa: E402
    FLOAT,
    helper,
    inputs,
    network,
    numpy_helper,
)

BFLOAT16 = onnx.TensorProto.BFLOAT16


def model_of(
    nodes, *, kind: int = FLOAT, shape=("n", 4), opset: int = 17, domain: str = ""
):
    """x -> nodes -> scores, both of one type and shape."""
    ends = [
        helper.make_tensor_value_info(name, kind, shape) for name in ("x", "scores")
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:])
    imports = [helper.make_opsetid(domain, opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.sample(2)
@pytest.mark.parametrize("inner", ["logits", "labels", "confidence", "x"])
def test_scores_within_the_model_may_have_any_name(inner):
    nodes = [helper.make_node("Neg", ["x"], [inner])] if inner != "x" else []
    nodes.append(helper.make_node("Softmax", [inner], ["scores"], axis=1))
    model = attach(model_of(nodes), fitted("hoki", 4), output=inner)
    found = check(model, fitted("hoki", 4))
    assert found.agrees
    assert found.n_rows == 64
    assert not check(model, fitted("temps", 4)).agrees


def branching(inner: str, *, depth: int = 1):
    """scores = x from an If whose branches, `depth` deep, hold a tensor of the given
    name.
    """
    out = helper.make_tensor_value_info("o", FLOAT, ("n", 4))
    nodes = [
        helper.make_node("Neg", ["x"], [inner]),
        helper.make_node("Neg", [inner], ["o"]),
    ]
    for level in range(depth):
        branches = {
            f"{name}_branch": helper.make_graph(nodes, f"{name}{level}", [], [out])
            for name in ("then", "else")
        }
        out = helper.make_tensor_value_info(f"o{level}", FLOAT, ("n", 4))
        nodes = [helper.make_node("If", ["yes"], [f"o{level}"], **branches)]
    yes = helper.make_node(
        "Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))
    )
    return model_of(
        [yes, *nodes, helper.make_node("Identity", [f"o{depth - 1}"], ["scores"])]
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("inner", ["labels", "confidence", "hokical/x"])
def test_names_within_subgraphs_are_taken(inner, depth):
    model = attach(branching(inner, depth=depth), fitted("hoki", 4))
    assert check(model, fitted("hoki", 4)).agrees
    expected = f"hokical_{inner}" if inner in ("labels", "confidence") else "labels"
    assert expected in [item.name for item in model.graph.output]


def test_a_tensor_within_a_subgraph_cannot_be_calibrated():
    with pytest.raises(ValueError, match=r"`output` must name a tensor.*got 'inner'"):
        attach(branching("inner"), fitted("temps", 4), output="inner")


def test_weights_that_were_not_loaded_are_refused(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(
        network(),
        path,
        save_as_external_data=True,
        location="net.data",
        size_threshold=0,
    )
    without = onnx.load(path, load_external_data=False)
    for work in (attach, check):
        with pytest.raises(
            ValueError, match="Give the path, or load it with its external data"
        ):
            work(without, fitted("temps", 4))
    both = attach(path, fitted("temps", 4), tmp_path / "both.onnx")
    (tmp_path / "net.data").unlink()
    assert check(tmp_path / "both.onnx", fitted("temps", 4)) == check(
        both, fitted("temps", 4)
    )
    with pytest.raises(ValueError, match="`model` must lie beside its external data"):
        attach(path, fitted("temps", 4))


def test_models_too_large_for_a_file_are_refused(monkeypatch):
    """Wherever the weights are: here not in `raw_data`."""
    tensor = helper.make_tensor("w", FLOAT, [1000], np.zeros(1000))
    net = network()
    net.graph.initializer.append(tensor)
    assert not tensor.raw_data
    monkeypatch.setattr(models, "LARGEST_FILE", net.ByteSize() - 1)
    with pytest.raises(ValueError, match="at most 2 GB to be one file"):
        attach(net, fitted("temps", 4))


@pytest.mark.parametrize("opset", [17, 18])
def test_the_other_name_of_the_default_domain(opset):
    node = helper.make_node("Neg", ["x"], ["scores"])
    model = attach(model_of([node], opset=opset, domain="ai.onnx"), fitted("hoki", 4))
    assert [item.version for item in model.opset_import] == [opset]
    assert check(model, fitted("hoki", 4)).agrees


def test_an_opset_older_than_13_is_refused():
    with pytest.raises(
        ValueError,
        match=r"opset of `model` must be from 13 to.*got 12.*convert_version",
    ):
        attach(network(opset=12), fitted("hoki", 4))


def test_an_opset_newer_than_onnx_knows():
    newest = onnx.defs.onnx_opset_version()
    net = model_of([helper.make_node("Neg", ["x"], ["scores"])], opset=newest + 1)
    with pytest.raises(
        ValueError, match=f"must be from 13 to {newest}.*got {newest + 1}"
    ):
        attach(net, fitted("temps", 4))


def test_what_the_runtime_does_not_know_is_not_run():
    model = export(fitted("temps", 4))
    model.opset_import[0].version = 999
    with pytest.raises(NotRunnable, match=r"onnxruntime [0-9.]+ cannot load it: "):
        check(model, fitted("temps", 4))


def test_scores_that_are_no_numbers_are_not_compared():
    model = attach(
        model_of([helper.make_node("Log", ["x"], ["scores"])]), fitted("temps", 4)
    )
    with pytest.raises(NotRunnable, match="NaN or infinite scores for made-up inputs"):
        check(model, fitted("temps", 4))


def test_bfloat16():
    nodes = [helper.make_node("Identity", ["x"], ["scores"])]
    model = attach(model_of(nodes, kind=BFLOAT16), fitted("hoki", 4))
    with pytest.raises(NotRunnable, match=r"bfloat16.*not of floats"):
        check(model, fitted("hoki", 4))
    inner = [helper.make_node("Cast", ["f"], ["x"], to=BFLOAT16), *nodes]
    narrow = model_of(inner, kind=BFLOAT16)
    narrow.graph.input[0].name = "f"
    narrow.graph.input[0].type.tensor_type.elem_type = FLOAT
    del narrow.graph.output[:]
    narrow.graph.node.append(helper.make_node("Cast", ["scores"], ["wide"], to=FLOAT))
    narrow.graph.output.append(helper.make_tensor_value_info("wide", FLOAT, ("n", 4)))
    found = run(attach(narrow, fitted("hoki", 4), output="scores"), f=inputs()[:, :4])
    assert differences(fitted("hoki", 4), found, found["wide"])[:2] < (1, 1e-6)


def test_an_invalid_network_is_refused():
    net = network()
    net.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ValueError, match="must be valid ONNX; onnx's checker says"):
        attach(net, fitted("temps", 4))
