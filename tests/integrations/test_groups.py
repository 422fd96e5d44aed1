"""Groups in torch modules and ONNX graphs: integers beside the logits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import hokical
from tests.conftest import grouped_examples


@pytest.fixture(scope="module")
def fitted() -> hokical.AutoCalibrator:
    logits, labels, site = grouped_examples(2000, seed=0)
    sex = np.where(np.arange(2000) % 2, "f", "m")
    logits[:, 0] -= 2.0 * (sex == "f")
    logits[:, 1] -= 4.0 * ((sex == "f") & (site == "a"))
    groups = {"site": site, "sex": sex}
    cal = hokical.auto(logits, labels, groups=groups)
    assert set(cal.groups_) == {"site", "sex"}
    assert len(cal.rule_.terms) == 3
    return cal


def rows() -> tuple[Any, Any]:
    logits, _, site = grouped_examples(30, seed=1)
    groups = {"site": site.astype(object), "sex": np.where(np.arange(30) % 2, "f", "m")}
    groups["site"][3] = None
    return logits, groups


def test_a_module_takes_the_codes(fitted: hokical.AutoCalibrator) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    logits, groups = rows()
    with warnings.catch_warnings():  # of unknown groups, if nothing told of them yet
        warnings.simplefilter("ignore")
        expected = fitted.predict_proba(logits, groups=groups)
    module, codes = as_module(fitted), torch.as_tensor(fitted.group_codes(groups))
    given = torch.as_tensor(logits)
    np.testing.assert_allclose(module.proba(given, codes).numpy(), expected, atol=1e-12)
    with torch.enable_grad():
        slow = module.proba(given.clone().requires_grad_(), codes)
    np.testing.assert_allclose(slow.detach().numpy(), expected, atol=1e-12)
    shaped = module(given.reshape(5, 6, 4), codes.reshape(5, 6, 2))
    assert shaped.confidence.shape == (5, 6)
    codes[0] = 99  # no group of the fit
    assert torch.isfinite(module.proba(given, codes)).all()
    with pytest.raises(
        ValueError, match=r"`groups` must be integers of shape \(30, 2\)"
    ):
        module(given)
    from hokical.integrations.torch import CalibratedModel

    with pytest.raises(
        ValueError, match=r"must not have learned from groups .* site, sex"
    ):
        CalibratedModel(torch.nn.Linear(3, 4), fitted)
    with pytest.raises(
        ValueError, match=r"must not have learned from groups .* site, sex"
    ):
        hokical.Dense(fitted).predict(logits.reshape(5, 6, 4))
    again = as_module(fitted)
    again.load_state_dict(module.state_dict())
    torch.testing.assert_close(again.proba(given, codes), module.proba(given, codes))
    exported = torch.export.export(module, (given, codes)).module()
    torch.testing.assert_close(exported(given, codes), module(given, codes))


@pytest.mark.slow
def test_a_graph_takes_the_codes(fitted: hokical.AutoCalibrator) -> None:
    pytest.importorskip("ndonnx")
    runtime = pytest.importorskip("onnxruntime")
    from hokical.integrations.onnx import check, export

    logits, groups = rows()
    model = export(fitted, input_dtype="float64")
    session = runtime.InferenceSession(model.SerializeToString())
    assert [each.name for each in session.get_inputs()] == ["logits", "groups"]
    found = session.run(None, {"logits": logits, "groups": fitted.group_codes(groups)})
    with warnings.catch_warnings():  # of unknown groups, if nothing told of them yet
        warnings.simplefilter("ignore")
        expected = fitted.predict_proba(logits, groups=groups)
    np.testing.assert_allclose(found[2], expected, atol=1e-10)
    np.testing.assert_array_equal(found[0], found[2].argmax(axis=1))
    assert check(model, fitted).largest_difference < 1e-10


@pytest.mark.sample(0)
@pytest.mark.parametrize("maps", [False, True])
def test_a_network_with_its_calibrator_takes_the_codes(
    fitted: hokical.AutoCalibrator, maps: bool
) -> None:
    pytest.importorskip("ndonnx")
    runtime = pytest.importorskip("onnxruntime")
    helper = pytest.importorskip("onnx.helper")
    from hokical.integrations.onnx import attach, check

    logits, groups = rows()
    codes, shape = fitted.group_codes(groups), [5, 4, 3, 2] if maps else ["batch", 4]
    given = logits.reshape(5, 3, 2, 4).transpose(0, 3, 1, 2) if maps else logits
    x, y = (
        helper.make_tensor_value_info(name, 11, shape) for name in ("groups", "scores")
    )
    graph = helper.make_graph(
        [helper.make_node("Neg", ["groups"], ["scores"])], "net", [x], [y]
    )
    network = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    both = attach(network, fitted, class_axis=1)
    session = runtime.InferenceSession(both.SerializeToString())
    taken = {each.name: each.shape for each in session.get_inputs()}
    assert taken["hokical_groups"] == ([5, 3, 2, 2] if maps else ["batch", 2])
    feed = {
        "groups": -given,
        "hokical_groups": codes.reshape(5, 3, 2, 2) if maps else codes,
    }
    found = session.run(["labels", "confidence", "probabilities"], feed)
    with warnings.catch_warnings():  # of unknown groups, if nothing told of them yet
        warnings.simplefilter("ignore")
        expected = fitted.predict_proba(logits, groups=groups)
    np.testing.assert_array_equal(found[0].ravel(), expected.argmax(axis=1))
    np.testing.assert_allclose(
        np.moveaxis(found[2], 1, -1).reshape(-1, 4), expected, atol=1e-10
    )
    assert check(both, fitted, n_rows=30).largest_difference < 1e-10


def test_codes_need_a_calibrator_that_learned_from_groups() -> None:
    logits, labels, _ = grouped_examples(100, seed=2)
    with pytest.raises(ValueError, match="did not learn from groups"):
        hokical.make("temps").fit(logits, labels).group_codes(["a"])


@pytest.fixture(scope="module")
def with_a_number() -> hokical.AutoCalibrator:
    rng = np.random.default_rng(3)
    logits, labels, site = grouped_examples(2000, seed=3)
    age = rng.normal(50.0, 10.0, 2000)
    older = (age[:, None] - 50.0) / 10.0
    scores = np.log(np.eye(4)[labels] + 0.2) + older * [1.0, 0.0, 0.0, -1.0]
    labels = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    cal = hokical.auto(logits, labels, groups={"site": site, "age": age})
    assert cal.rule_.effects is not None
    assert cal.groups_ == ["age", "site"]
    return cal


def rows_with_a_number() -> tuple[Any, Any]:
    logits, groups = rows()
    age = np.random.default_rng(0).normal(50.0, 20.0, 30)
    age[4] = np.nan
    return logits, {"site": groups["site"], "age": age}


def test_a_module_takes_numbers(with_a_number: hokical.AutoCalibrator) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    logits, groups = rows_with_a_number()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = with_a_number.predict_proba(logits, groups=groups)
    module = as_module(with_a_number)
    inputs = torch.as_tensor(with_a_number.group_codes(groups))
    assert inputs.dtype == torch.float64
    scores = torch.as_tensor(logits)
    np.testing.assert_allclose(
        module.proba(scores, inputs).numpy(), expected, atol=1e-12
    )
    with torch.enable_grad():
        traced = module.proba(scores.clone().requires_grad_(), inputs)
    np.testing.assert_allclose(traced.detach().numpy(), expected, atol=1e-12)
    exported = torch.export.export(module, (scores, inputs)).module()
    torch.testing.assert_close(exported(scores, inputs), module(scores, inputs))
    with pytest.raises(
        ValueError, match=r"`groups` must be numbers of shape \(30, 2\)"
    ):
        module(scores)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_arrays_of_other_libraries_get_the_same(
    with_a_number: hokical.AutoCalibrator, library: str
) -> None:
    pytest.importorskip(library)
    logits, groups = rows_with_a_number()
    if library == "torch":
        import torch

        scores: Any = torch.as_tensor(logits).requires_grad_()
    else:
        import jax.numpy as jnp

        scores = jnp.asarray(logits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = with_a_number.predict_proba(scores, groups=groups)
        expected = with_a_number.predict_proba(np.asarray(logits), groups=groups)
    predicted = predicted.detach() if library == "torch" else predicted
    atol = 1e-12 if np.asarray(predicted).dtype == np.float64 else 1e-6
    np.testing.assert_allclose(np.asarray(predicted), expected, atol=atol)


@pytest.mark.slow
def test_a_graph_takes_numbers(with_a_number: hokical.AutoCalibrator) -> None:
    pytest.importorskip("ndonnx")
    runtime = pytest.importorskip("onnxruntime")
    from hokical.integrations.onnx import check, export

    logits, groups = rows_with_a_number()
    model = export(with_a_number, input_dtype="float64")
    session = runtime.InferenceSession(model.SerializeToString())
    types = {entry.name: entry.type for entry in session.get_inputs()}
    assert types == {"logits": "tensor(double)", "groups": "tensor(double)"}
    inputs = with_a_number.group_codes(groups)
    predicted = session.run(None, {"logits": logits, "groups": inputs})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = with_a_number.predict_proba(logits, groups=groups)
    np.testing.assert_allclose(predicted[2], expected, atol=1e-12)
    assert check(model, with_a_number).largest_difference < 1e-12
