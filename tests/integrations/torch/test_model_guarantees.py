"""Guarantees of calibrated networks, and networks that return probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hokical import Gumbel, Hoki, MultilabelCalibrator  # noqa: E402
from hokical.integrations.torch import CalibratedModel, calibrate  # noqa: E402
from hokical.integrations.torch.backend import bisect  # noqa: E402


def examples(n: int, seed: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 4, generator=generator)
    noise = torch.randn(n, 4, generator=generator)
    return inputs, (inputs + noise)[:, :3].argmax(dim=1)


def network(softmax: bool = False) -> torch.nn.Module:
    layer = torch.nn.Linear(4, 3, bias=False)
    layer.weight = torch.nn.Parameter(5.0 * torch.eye(4)[:3])
    tail = [torch.nn.Softmax(dim=-1)] if softmax else []
    return torch.nn.Sequential(layer, *tail)


@pytest.fixture
def calibrated() -> CalibratedModel:
    return calibrate(network(), *examples(500, 0), "temps").eval()


@pytest.mark.parametrize("softmax", [False, True])
def test_a_network_is_certified_with_inputs_and_answers_or_abstains(
    softmax: bool,
) -> None:
    model = calibrate(network(softmax), *examples(500, 0), "temps").eval()
    inputs, labels = examples(2000, 1)
    loader = [(inputs[rows], labels[rows]) for rows in torch.arange(2000).split(300)]
    assert model.certify(loader) is model
    new, truth = examples(4000, 2)
    found = model.predict_or_abstain(new, risk=0.2)
    assert isinstance(found.accepted, torch.Tensor)
    wrong = (found.labels != truth)[found.accepted]
    assert 0.1 < found.accepted.float().mean() < 1.0
    assert wrong.float().mean() < 0.2
    expected = model.fitted.predict_or_abstain(model(new).logits.detach(), risk=0.2)
    assert torch.equal(found.accepted, expected.accepted)
    sets = model.predict_set(new, coverage=0.9)
    covered = sets.members[torch.arange(4000), truth].float().mean()
    assert 0.87 < covered < 0.93
    by_class = model.predict_set(new, coverage=0.9, by="class")
    assert "class" in by_class.guarantee


def test_files_keep_what_was_certified(calibrated: Any, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    calibrated.certify(*examples(1000, 1))
    calibrated.save(tmp_path / "net.safetensors")
    loaded = CalibratedModel.load(tmp_path / "net.safetensors", network()).eval()
    new, _ = examples(300, 2)
    np.testing.assert_array_equal(
        loaded.predict_set(new, coverage=0.95).members,
        calibrated.predict_set(new, coverage=0.95).members,
    )


def test_rows_of_the_fit_are_refused(calibrated: Any) -> None:
    with pytest.raises(ValueError, match="reused"):
        calibrated.certify(*examples(500, 0))
    calibrated.certify(*examples(500, 0), reused="ignore")


def test_clusters_are_counted_once(calibrated: Any) -> None:
    inputs, labels = examples(1000, 1)
    calibrated.certify(inputs, labels, cluster=np.arange(1000) // 4)
    assert calibrated.fitted.predictor_.held_out.label_scores.total == 250


def test_maps_and_several_labels_are_told_what_to_use(calibrated: Any) -> None:
    maps = torch.nn.Conv2d(4, 3, 1)
    model = CalibratedModel(maps, calibrated.fitted, class_axis=1)
    images = torch.randn(5, 4, 2, 2)
    with pytest.raises(ValueError, match=r"hokical\.Dense"):
        model.predict_set(images)
    with pytest.raises(ValueError, match=r"hokical\.Dense"):
        model.certify(images, torch.zeros(5, 2, 2, dtype=torch.long))
    scores = torch.randn(300, 3)
    several = MultilabelCalibrator().fit(scores, scores > torch.randn(300, 3))
    tags = CalibratedModel(torch.nn.Identity(), several)
    with pytest.raises(TypeError, match="one label per example"):
        tags.predict_or_abstain(scores)


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize(
    "method", ["temps", "auto", "irova_ts", Hoki(noise=Gumbel(1.5))], ids=str
)
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::RuntimeWarning"
)
def test_probabilities_are_exported_to_onnx(
    method: Any, softmax: bool, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model = calibrate(network(softmax), *examples(800, 0), method).eval()
    inputs, _ = examples(50, 1)
    torch.onnx.export(
        model.for_probabilities(),
        (inputs[:7],),
        tmp_path / "net.onnx",
        input_names=["inputs"],
        output_names=["probabilities"],
        dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),),
        dynamo=True,
    )
    session = runtime.InferenceSession(tmp_path / "net.onnx")
    (proba,) = session.run(["probabilities"], {"inputs": inputs.numpy()})
    np.testing.assert_allclose(proba, model.predict_proba(inputs), atol=1e-6)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-6)


def test_edges_are_found_without_an_operator_for_it() -> None:
    """Against the operator that ONNX lacks."""
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 64, 100):
        edges = torch.as_tensor(np.sort(rng.integers(0, 40, size).astype(float)))
        values = torch.as_tensor(rng.integers(-2, 44, size=(7, 9)).astype(float))
        values[0, :2] = torch.tensor([torch.inf, -torch.inf])
        for side in ("left", "right"):
            expected = torch.searchsorted(edges, values, side=side)
            assert torch.equal(bisect(edges, values, right=side == "right"), expected)


def test_a_network_of_probabilities_has_gradients(calibrated: Any) -> None:
    inputs = torch.randn(5, 4, requires_grad=True)
    proba = calibrated.for_probabilities()(inputs)
    torch.testing.assert_close(proba, calibrated.predict_proba(inputs))
    proba[:, 0].sum().backward()
    assert bool((inputs.grad != 0.0).any())
