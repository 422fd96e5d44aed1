"""Logits from networks and loaders, and calibration in one line."""

from __future__ import annotations

import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from hokical import Gaussian, Hoki, load
from tests.integrations.torch.examples import synthetic_logits

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from hokical.integrations.torch import calibrate, collect_logits  # noqa: E402


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 4, generator=generator)
    labels = (inputs[:, :3] + 0.7 * torch.randn(300, 3, generator=generator)).argmax(dim=1)
    return inputs, labels


@pytest.fixture
def network() -> torch.nn.Module:
    layer = torch.nn.Linear(4, 3, bias=False)
    layer.weight = torch.nn.Parameter(6.0 * torch.eye(3, 4))
    return torch.nn.Sequential(layer, torch.nn.Dropout(0.5))


def loader(data: Any, size: int = 70) -> DataLoader:
    return DataLoader(TensorDataset(*data), batch_size=size)


def test_all_logits_and_labels_in_evaluation_mode(network: Any, data: Any) -> None:
    network.train()
    logits, labels = collect_logits(network, loader(data))
    torch.testing.assert_close(logits, network[0](data[0]).detach())
    assert torch.equal(labels, data[1])
    assert not logits.requires_grad
    assert not logits.is_inference()
    assert network.training


def test_every_part_has_its_mode_back_also_after_an_error(network: Any, data: Any) -> None:
    network.train()
    network[1].eval()

    def breaking() -> Iterator[Any]:
        yield data
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        collect_logits(network, breaking())
    assert (network.training, network[0].training, network[1].training) == (True, True, False)
    assert torch.is_grad_enabled()


Pair = namedtuple("Pair", ["inputs", "labels"])


@pytest.mark.parametrize(
    "batch",
    [
        lambda x, y: (x, y),
        lambda x, y: [x, y],
        lambda x, y: Pair(x, y),
        lambda x, y: {"input": x, "labels": y},
        lambda x, y: {"label": y.tolist(), "input": x},
        lambda x, y: (x, y.numpy()),
    ],
)
def test_forms_of_batches(network: Any, data: Any, batch: Any) -> None:
    logits, labels = collect_logits(network, (batch(*data) for _ in range(2)))
    assert torch.equal(labels, torch.cat([data[1]] * 2))
    assert logits.shape == (600, 3)


def test_networks_may_take_arrays(network: Any, data: Any) -> None:
    class Converting(torch.nn.Module):
        def forward(self, inputs: np.ndarray) -> torch.Tensor:
            return network(torch.from_numpy(inputs))

    logits, _ = collect_logits(Converting().eval(), [(data[0].numpy(), data[1])])
    assert logits.shape == (300, 3)


def test_several_inputs_come_before_the_labels(data: Any) -> None:
    class Sum(torch.nn.Module):
        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return one[:, :3] + other[:, :3]

    inputs, labels = data
    logits, _ = collect_logits(Sum(), [(inputs, inputs, labels)])
    torch.testing.assert_close(logits, 2.0 * inputs[:, :3])


def test_images_are_flattened_and_ignored_positions_left_out() -> None:
    network = torch.nn.Conv2d(2, 3, 1)
    images = torch.randn(4, 2, 5, 5)
    truth = torch.randint(3, (4, 5, 5))
    truth[:, :2] = 255
    logits, labels = collect_logits(network, [(images, truth)], class_axis=1, ignore_label=255)
    every = network(images).detach().permute(0, 2, 3, 1)
    assert torch.equal(labels, truth[truth != 255])
    torch.testing.assert_close(logits, every[truth != 255])


def test_errors_name_the_remedy(network: Any, data: Any) -> None:
    inputs, labels = data
    with pytest.raises(TypeError, match=r"a batch must be .*got Tensor"):
        collect_logits(network, [inputs])
    with pytest.raises(TypeError, match=r"got keys \['input'\]"):
        collect_logits(network, [{"input": inputs}])
    with pytest.raises(ValueError, match=r"\(300,\); got \(299,\).*class_axis"):
        collect_logits(network, [(inputs, labels[1:])])
    with pytest.raises(ValueError, match=r"\(300,\); got \(300, 1\). Use `labels.squeeze\(-1\)`"):
        collect_logits(network, [(inputs, labels[:, None])])
    with pytest.raises(ValueError, match="at least one batch"):
        collect_logits(network, [])
    with pytest.raises(ValueError, match="at least one batch"):
        collect_logits(network, [(inputs, torch.full((300,), -100))], ignore_label=-100)


def test_progress_counts_batches(
    network: Any, data: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hokical._core.progress._SHOW_AFTER_SECONDS", 0.0)

    class Slow(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            time.sleep(0.02)
            return network(inputs)

    collect_logits(Slow(), loader(data, 30), progress=True)
    assert "collecting logits" in capsys.readouterr().err
    collect_logits(Slow(), loader(data, 30), progress=False)
    assert capsys.readouterr().err == ""


def test_calibrate_in_one_line(network: Any, data: Any) -> None:
    model = calibrate(network.train(), loader(data), "hoki", noise=Gaussian(2.0))
    logits = network[0](data[0]).detach().numpy()
    expected = Hoki(noise=Gaussian(2.0)).fit(logits, data[1].numpy())
    assert isinstance(model.fitted, Hoki)
    assert model.training
    np.testing.assert_allclose(
        model.eval()(data[0]).confidence.detach(), expected.predict_confidence(logits), atol=1e-6
    )


def test_calibrate_fits_a_copy_of_a_calibrator(network: Any, data: Any) -> None:
    given = Hoki(noise=Gaussian(2.0))
    model = calibrate(network, loader(data), given)
    assert not hasattr(given, "n_classes_")
    assert model.fitted.noise_ == Gaussian(2.0)


def test_calibrate_fits_what_was_loaded_again(network: Any, data: Any, tmp_path: Path) -> None:
    logits = network[0](data[0]).detach()
    Hoki(noise=Gaussian(2.0)).fit(2.0 * logits, data[1]).save(tmp_path / "cal.json")
    found = calibrate(network, loader(data), load(tmp_path / "cal.json")).fitted
    wanted = Hoki(noise=Gaussian(2.0)).fit(logits, data[1])
    np.testing.assert_array_equal(
        found.predict_confidence(logits), wanted.predict_confidence(logits)
    )


def test_calibrate_chooses_by_itself(network: Any, data: Any) -> None:
    assert calibrate(network, loader(data)).fitted is not None


def test_calibrate_segmentation() -> None:
    torch.manual_seed(0)
    network = torch.nn.Conv2d(3, 3, 1)
    images = torch.randn(4, 3, 6, 6)
    truth = (network(images) + torch.randn(4, 3, 6, 6)).argmax(dim=1)
    truth[0, 0, 0] = 255
    model = calibrate(network, [(images, truth)], "temps", class_axis=1, ignore_label=255)
    assert model(images).confidence.shape == (4, 6, 6)


def test_calibrate_refuses_what_it_cannot_do(network: Any, data: Any) -> None:
    with pytest.raises(TypeError, match="must be a method's name or a calibrator; got int"):
        calibrate(network, loader(data), 3)
    with pytest.raises(TypeError, match=r"options \['n_bins'\] go with a method's name"):
        calibrate(network, loader(data), Hoki(), n_bins=3)
    with pytest.raises(TypeError, match="no parameter 'n_bans'"):
        calibrate(network, loader(data), "hoki", n_bans=3)


def test_labels_of_padding_are_named() -> None:
    logits, labels = synthetic_logits(200, 5, seed=0)
    labels[::4] = -100
    tokens = logits.reshape(20, 10, 5), labels.reshape(20, 10)
    batch = [tuple(torch.tensor(part) for part in tokens)]
    for attempt in (
        lambda: hokical.auto(*tokens),
        lambda: hokical.auto(logits, labels),
        lambda: hokical.Dense().fit(*tokens),
        lambda: calibrate(torch.nn.Identity(), batch, "temps"),
    ):
        with pytest.raises(ValueError, match="`ignore_label=-100`"):
            attempt()
    expected = hokical.make("temps").fit(logits[labels >= 0], labels[labels >= 0])
    dense = hokical.Dense("temps", ignore_label=-100).fit(*tokens)
    model = calibrate(torch.nn.Identity(), batch, "temps", ignore_label=-100)
    confidence = expected.predict_confidence(logits).reshape(20, 10)
    np.testing.assert_allclose(dense.predict_confidence(tokens[0]), confidence)
    np.testing.assert_allclose(model(batch[0][0]).confidence, confidence)


def test_a_network_of_one_argument_takes_batches_with_more_behind_the_labels(
    network: Any, data: Any
) -> None:
    inputs, labels = data
    indexed = loader((inputs, labels, torch.arange(len(labels))))
    logits, found = collect_logits(network, indexed)
    assert torch.equal(found, labels)
    torch.testing.assert_close(logits, network[0](inputs).detach())


class TwoInputs(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x + y


def test_labels_come_last_for_a_network_of_two_arguments(data: Any) -> None:
    inputs, labels = data[0][:, :3], data[1]
    logits, found = collect_logits(TwoInputs(), loader((inputs, 2 * inputs, labels)))
    assert torch.equal(found, labels)
    torch.testing.assert_close(logits, 3 * inputs)


def test_tensors_instead_of_a_loader(network: Any, data: Any) -> None:
    expected = hokical.calibrate(network, loader(data), "temps").fitted.rule_.temperature
    for given in ((*data, "temps"), (data, "temps")):
        assert hokical.calibrate(network, *given).fitted.rule_.temperature == expected
    arrays = [part.numpy() for part in data]
    found = hokical.calibrate(network, *arrays, method="temps")
    assert found.fitted.rule_.temperature == expected
    with pytest.raises(ValueError, match=r"same length; got 300 inputs and 299 labels"):
        hokical.calibrate(network, data[0], data[1][1:])


def test_a_sigmoid_for_each_label() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(2000, 4, generator=generator)
    labels = torch.rand(2000, 4, generator=generator) < torch.sigmoid(inputs - 1.0)
    head = torch.nn.Linear(4, 4, bias=False)
    head.weight = torch.nn.Parameter(3.0 * torch.eye(4), requires_grad=False)
    model = hokical.calibrate(head, loader((inputs, labels)), hokical.MultilabelCalibrator())
    output = model.eval()(inputs)
    cal = hokical.MultilabelCalibrator().fit(3.0 * inputs, labels)
    assert output.logits.shape == output.labels.shape == output.confidence.shape == (2000, 4)
    expected = torch.as_tensor(cal.predict_proba(3.0 * inputs))
    torch.testing.assert_close(output.confidence, expected, check_dtype=False)
    torch.testing.assert_close(model.predict_proba(inputs), output.confidence)
    assert torch.equal(output.labels, output.confidence >= 0.5)
    assert abs(float(output.confidence.mean() - labels.double().mean())) < 0.01
