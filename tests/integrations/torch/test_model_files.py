"""A calibrated network in one file; abstention; what a model says it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hokical import CalibratorFileError  # noqa: E402
from hokical.calibrators import make  # noqa: E402
from hokical.integrations.torch import CalibratedModel, calibrate, collect_logits  # noqa: E402
from tests.fitted import label_scores  # noqa: E402
from tests.integrations.torch.examples import (  # noqa: E402
    data_parallel,
    fitted,
)


def make_network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Dropout(0.1))


def trained_network() -> torch.nn.Module:
    network = make_network()
    network[0].weight = torch.nn.Parameter(3 * torch.eye(3))
    return network


def batches(seed: int, n: int = 300) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs whose class a network that returns 3 * inputs mostly knows."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (n,), generator=random)
    inputs = torch.nn.functional.one_hot(labels, 3) + 0.4 * torch.randn(
        n, 3, generator=random
    )
    return list(zip(inputs.split(100), labels.split(100), strict=True))


def test_saved_and_loaded_models_agree(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    inputs = batches(1)[0][0]
    model = calibrate(trained_network(), batches(0), "auto").eval()
    model.save(tmp_path / "model.safetensors")
    for given in (make_network, make_network()):
        again = CalibratedModel.load(tmp_path / "model.safetensors", given).eval()
        for mine, theirs in zip(model(inputs), again(inputs), strict=True):
            torch.testing.assert_close(mine, theirs)
        assert again.fitted is not None
        assert again.fitted.reason_ == model.fitted.reason_
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_tied_weights_are_saved(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")

    def tied() -> torch.nn.Module:
        network = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Linear(5, 5))
        network[1].weight = network[0].weight
        return network

    model = CalibratedModel(tied(), fitted("temps"))
    model.save(tmp_path / "model.safetensors")
    again = CalibratedModel.load(tmp_path / "model.safetensors", tied)
    inputs = torch.randn(4, 5)
    torch.testing.assert_close(again(inputs).confidence, model(inputs).confidence)


def test_files_that_are_not_ours(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "model.safetensors"
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        CalibratedModel.load(path, make_network)
    path.write_bytes(b"text")
    with pytest.raises(CalibratorFileError, match="not a safetensors file"):
        CalibratedModel.load(path, make_network)
    safetensors.save_model(make_network(), str(path))
    with pytest.raises(CalibratorFileError, match="no calibrator"):
        CalibratedModel.load(path, make_network)
    with pytest.raises(TypeError, match=r"got int\. .*a function that makes it"):
        CalibratedModel.load(path, lambda: 3)  # type: ignore[arg-type,return-value]


def test_a_state_dict_has_the_calibrator(tmp_path: Path) -> None:
    model = calibrate(trained_network(), batches(0), "hoki")
    model.fitted.certify(*collect_logits(model.model, batches(1)))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    again = CalibratedModel(
        make_network(), make("uncalibrated").fit(torch.eye(3), [0, 1, 2])
    )
    again.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    logits = collect_logits(model.model, batches(2))[0]
    found, expected = (
        each.fitted.predict_set(logits, coverage=0.9).members for each in (again, model)
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("training", [True, False])
def test_modes_are_kept(training: bool) -> None:
    network = trained_network().train(training)
    network[1].train(not training)
    model = calibrate(network, batches(0), "temps")
    modes = [module.training for module in (network, network[0], network[1])]
    assert modes == [training, training, not training]
    assert model.training is training


def test_positions_of_items_prove_nothing() -> None:
    inputs, labels = batches(0)[0]
    tokens = (inputs.reshape(10, 10, 3), labels.reshape(10, 10))
    model = calibrate(trained_network(), [tokens], "temps")
    assert model.fitted is not None
    assert label_scores(model.fitted) is None
    with pytest.raises(ValueError, match="pixels or tokens"):
        model.fitted.predict_set(tokens[0], coverage=0.9)


def test_a_model_says_what_it_is() -> None:
    model = calibrate(trained_network(), batches(0))
    assert model.fitted is not None
    assert "method='auto'" in repr(model)
    assert repr(model.fitted.reason_) in repr(model)


def test_files_of_data_parallel_load_into_the_bare_network(tmp_path: Path) -> None:
    pytest.importorskip("safetensors.torch")
    inputs, path = batches(1)[0][0], tmp_path / "model.safetensors"
    model = calibrate(data_parallel(trained_network()), batches(0), "temps").eval()
    wanted = model(inputs).confidence
    model.save(path)
    for network in (make_network(), data_parallel(make_network())):
        again = CalibratedModel.load(path, network).eval()
        assert again.model is network
        assert torch.equal(again(inputs).confidence, wanted)


@pytest.mark.parametrize("saved", [data_parallel, lambda network: network])
@pytest.mark.parametrize("loading", [data_parallel, lambda network: network])
def test_state_dicts_load_with_and_without_data_parallel(
    saved: Any, loading: Any
) -> None:
    model = calibrate(saved(trained_network()), batches(0), "temps").eval()
    state = model.state_dict()
    again = CalibratedModel(loading(make_network()), fitted_again()).eval()
    again.load_state_dict(state)
    inputs = batches(1)[0][0]
    assert torch.equal(again(inputs).confidence, model(inputs).confidence)
    state["model.other"] = torch.zeros(1)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*model\.other"):
        again.load_state_dict(state)


def fitted_again() -> Any:
    return make("uncalibrated").fit(torch.eye(3), [0, 1, 2])


def test_what_the_network_returns_is_in_the_file(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    inputs = batches(1)[0][0]
    network = torch.nn.Sequential(trained_network(), torch.nn.Softmax(dim=1))
    model = calibrate(network, batches(0), "temps").eval()
    assert model.outputs == "probabilities"
    model.save(tmp_path / "model.safetensors")
    again = CalibratedModel.load(tmp_path / "model.safetensors", network).eval()
    assert again.outputs == "probabilities"
    assert torch.equal(again(inputs).confidence, model(inputs).confidence)
    program = torch.export.export(
        model, (inputs[:3],), dynamic_shapes={"args": ({0: torch.export.Dim("batch")},)}
    )
    torch.testing.assert_close(
        program.module()(inputs).confidence, model(inputs).confidence
    )


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("{", "is damaged: Expecting property name"),
        ("[1]", "`hokical_use` must be an object; got \\[1\\]"),
        ('{"class_axis": "1"}', "`class_axis` of `hokical_use` must be an integer"),
        ('{"class_axis": true}', "`class_axis` of .* an integer; got True"),
        ('{"outputs": "auto"}', "`outputs` of .* logits or probabilities; got 'auto'"),
        ('{"outputs": []}', "`outputs` of .* logits or probabilities; got "),
        ('{"members": "ab"}', "`members` of `hokical_use` must be a list of names"),
        ('{"as_tuple": true}', "class_axis, outputs, members alone; got 'as_tuple'"),
    ],
)
def test_damaged_uses_are_named(tmp_path: Path, use: str, words: str) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "model.safetensors"
    model = CalibratedModel(make_network(), fitted_again())
    model.save(path)
    with safetensors.safe_open(str(path), framework="pt") as stored:
        metadata = stored.metadata() | {"hokical_use": use}
    safetensors.save_model(make_network(), str(path), metadata=metadata)
    with pytest.raises(CalibratorFileError, match=rf"model\.safetensors .*{words}"):
        CalibratedModel.load(path, make_network)


def test_a_damaged_calibrator_names_the_file(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "model.safetensors"
    metadata = {"hokical_calibrator": "{}"}
    safetensors.save_model(make_network(), str(path), metadata=metadata)
    with pytest.raises(CalibratorFileError, match=r"model\.safetensors is damaged"):
        CalibratedModel.load(path, make_network)


@pytest.mark.parametrize(
    "wrap", [data_parallel, partial(torch.compile, backend="eager")]
)
def test_the_config_is_that_of_the_bare_network(wrap: Any) -> None:
    network = make_network()
    network.config = SimpleNamespace(problem_type="multi_label_classification")
    model = CalibratedModel(wrap(network), fitted_again())
    assert model.config is network.config
    with pytest.raises(ValueError, match="got 'multi_label_classification'"):
        model.for_pipeline()
    network.config.problem_type = None
    assert type(model.for_pipeline()) is type(network)
