"""Calibrators of ensembles as graphs, alone and behind a network of several members."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

from hokical import Ensemble, auto, from_probabilities, make  # noqa: E402
from hokical.calibrators import with_sets  # noqa: E402
from hokical.integrations.onnx import attach, check, export  # noqa: E402
from tests.ensembles import NAMES, named, noisy_members  # noqa: E402
from tests.integrations.onnx.helpers import run  # noqa: E402

helper = onnx.helper
FLOAT = onnx.TensorProto.FLOAT
VALIDATION = named(600, seed=1)
NEW, _ = named(200, seed=2)


def exchangeable(ensemble: Ensemble) -> Ensemble:
    return Ensemble(np.stack(ensemble.members), exchangeable=True)


def properties(model: Any) -> dict[str, str]:
    return {item.key: item.value for item in model.metadata_props}


def assert_as_in_python(model: Any, calibrator: Any, ensemble: Ensemble) -> None:
    """Of members in float32, as the graph reads them."""
    values = np.stack(ensemble.members).astype(np.float32)
    outputs = run(model, logits=values)
    rows = Ensemble(values, exchangeable=ensemble.exchangeable)
    assert (outputs["labels"] == calibrator.predict(rows)).all()
    expected = calibrator.predict_confidence(rows)
    np.testing.assert_allclose(outputs["confidence"], expected, atol=1e-6)
    expected = calibrator.predict_proba(rows)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-6)
    assert (outputs["support"] == calibrator.predict_support(rows)).all()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "options", [{}, {"keep_labels": True}, {"most_members": 2}], ids=str
)
def test_the_needed_members_are_one_input(options: dict[str, Any]) -> None:
    calibrator = auto(*VALIDATION, **options)
    model = export(calibrator, support=True)
    assert json.loads(properties(model)["hokical_members"]) == [
        *calibrator.needed_members_
    ]
    needed = NEW.select(calibrator.needed_members_)
    assert_as_in_python(model, calibrator, needed)
    gappy = np.stack(needed.members)
    gappy[0, ::3] = np.nan
    assert_as_in_python(model, calibrator, Ensemble(gappy, needed.names))
    assert check(model, calibrator).agrees
    assert check(export(calibrator, precision="float32"), calibrator).agrees


@pytest.mark.slow
def test_exchangeable_members_are_as_many_as_in_the_fit() -> None:
    validation, labels = VALIDATION
    calibrator = make("temps").fit(exchangeable(validation), labels)
    model = export(calibrator, support=True)
    assert_as_in_python(model, calibrator, exchangeable(NEW))
    assert check(model, calibrator).agrees


@pytest.mark.slow
def test_groups_sets_and_abstention_go_along() -> None:
    validation, labels = VALIDATION
    grouped = auto(validation, labels, groups=labels % 2)
    assert grouped.needed_groups is not None
    assert check(export(grouped), grouped).agrees
    certified = auto(*VALIDATION).certify(*named(1500, seed=6))
    values = np.stack(NEW.members).astype(np.float32)
    outputs = run(export(certified, risk=0.2), logits=values)
    rows = Ensemble(values)
    accepted = certified.predict_or_abstain(rows, risk=0.2).accepted
    assert 0 < accepted.sum() < accepted.size
    assert (outputs["accepted"] == accepted).all()
    sets = run(export(with_sets(certified, coverage=0.9)), logits=values)["members"]
    assert (sets == certified.predict_set(rows, coverage=0.9).members).all()


@pytest.mark.slow
def test_rows_that_no_member_was_evaluated_on_have_no_confidence() -> None:
    calibrator = make("temps").fit(*VALIDATION)
    values = np.stack(NEW.members).astype(np.float32)
    values[:, 5] = np.nan
    values[1, 6, 2] = np.inf
    confidence = run(export(calibrator), logits=values)["confidence"]
    assert np.flatnonzero(np.isnan(confidence)).tolist() == [5, 6]


def stacking(tail: str, shape: tuple[Any, ...] = (4, "n", 4)) -> Any:
    """A network that gives what it gets: scores of several members."""
    graph = helper.make_graph(
        [helper.make_node(tail, ["x"], ["scores"])],
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("scores", FLOAT, shape)],
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(
        graph, opset_imports=imports, ir_version=helper.find_min_ir_version_for(imports)
    )


@pytest.mark.slow
def test_a_network_that_stacks_its_members_is_calibrated_in_one_file() -> None:
    values = np.stack(NEW.members).astype(np.float32)
    few = auto(*VALIDATION, most_members=2)
    outputs = run(attach(stacking("Identity"), few), x=values)
    confidence = few.predict_confidence(Ensemble(values, NAMES))
    np.testing.assert_allclose(outputs["confidence"], confidence, atol=1e-6)
    assert outputs["probabilities"].shape == (200, 4)
    needed = [NAMES.index(name) for name in few.needed_members_]
    narrow = attach(stacking("Identity", (2, "n", 4)), few)
    outputs = run(narrow, x=values[needed])
    np.testing.assert_allclose(outputs["confidence"], confidence, atol=1e-6)


@pytest.mark.slow
def test_members_of_probabilities_are_read_as_such() -> None:
    members, labels = noisy_members(600, seed=1)
    odds = np.exp(members)
    shares = odds / odds.sum(axis=2, keepdims=True)
    calibrator = auto(from_probabilities(Ensemble(shares)), labels)
    model = attach(stacking("Softmax"), calibrator)
    values = np.stack(NEW.members).astype(np.float32)
    expected = calibrator.predict_confidence(Ensemble(np.stack(NEW.members)))
    outputs = run(model, x=values)
    np.testing.assert_allclose(outputs["confidence"], expected, atol=1e-5)


@pytest.mark.parametrize(
    "shape", [("n", 4), (3, "n", 4), ("m", "n", 4), (4, 1, "n", 4)]
)
def test_a_network_with_other_scores_is_refused(shape: tuple[Any, ...]) -> None:
    calibrator = make("temps").fit(*VALIDATION)
    with pytest.raises(ValueError, match=r"must be scores \(4, batch, 4\) of the memb"):
        attach(stacking("Identity", shape), calibrator)
