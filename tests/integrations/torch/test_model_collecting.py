"""Logits from networks and loaders, and calibration in one line."""

from __future__ import annotations

import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hokical
from hokical import Gaussian, Hoki, load
from tests.integrations.torch.examples import data_parallel, synthetic_logits

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from hokical.integrations.torch import calibrate, collect_logits  # noqa: E402


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 4, generator=generator)
    labels = (inputs[:, :3] + 0.7 * torch.randn(300, 3, generator=generator)).argmax(
        dim=1
    )
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


def test_every_part_has_its_mode_back_also_after_an_error(
    network: Any, data: Any
) -> None:
    network.train()
    network[1].eval()

    def breaking() -> Iterator[Any]:
        yield data
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        collect_logits(network, breaking())
    assert (network.training, network[0].training, network[1].training) == (
        True,
        True,
        False,
    )
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
    logits, labels = collect_logits(
        network, [(images, truth)], class_axis=1, ignore_label=255
    )
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
    with pytest.raises(
        ValueError, match=r"\(300,\); got \(300, 1\). Use `labels.squeeze\(-1\)`"
    ):
        collect_logits(network, [(inputs, labels[:, None])])
    with pytest.raises(ValueError, match="at least one batch"):
        collect_logits(network, [])
    with pytest.raises(ValueError, match="at least one batch"):
        collect_logits(network, [(inputs, torch.full((300,), -100))], ignore_label=-100)


def test_progress_counts_batches(
    network: Any,
    data: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("hokical._core.runtime._SHOW_AFTER_SECONDS", 0.0)

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
        model.eval()(data[0]).confidence.detach(),
        expected.predict_confidence(logits),
        atol=1e-6,
    )


def test_calibrate_fits_a_copy_of_a_calibrator(network: Any, data: Any) -> None:
    given = Hoki(noise=Gaussian(2.0))
    model = calibrate(network, loader(data), given)
    assert not hasattr(given, "n_classes_")
    assert model.fitted.noise_ == Gaussian(2.0)


def test_calibrate_fits_what_was_loaded_again(
    network: Any, data: Any, tmp_path: Path
) -> None:
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
    model = calibrate(
        network, [(images, truth)], "temps", class_axis=1, ignore_label=255
    )
    assert model(images).confidence.shape == (4, 6, 6)


def test_calibrate_refuses_what_it_cannot_do(network: Any, data: Any) -> None:
    with pytest.raises(
        TypeError, match=r"`data` must be a tensor .* got DataLoader with .* int\."
    ):
        calibrate(network, loader(data), 3)
    for method in (Hoki(), hokical.MultilabelCalibrator()):
        with pytest.raises(
            TypeError, match=r"options \['n_bins'\] go with a method's name"
        ):
            calibrate(network, loader(data), method, n_bins=3)
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
    expected = hokical.calibrate(
        network, loader(data), "temps"
    ).fitted.rule_.temperature
    for given in ((*data, "temps"), (data, "temps")):
        assert hokical.calibrate(network, *given).fitted.rule_.temperature == expected
    arrays = [part.numpy() for part in data]
    for labels in (arrays[1], arrays[1].tolist()):
        found = hokical.calibrate(network, arrays[0], labels, method="temps")
        assert found.fitted.rule_.temperature == expected
    with pytest.raises(ValueError, match=r"same length; got 300 inputs and 299 labels"):
        hokical.calibrate(network, data[0], data[1][1:])


def test_a_sigmoid_for_each_label() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(2000, 4, generator=generator)
    labels = torch.rand(2000, 4, generator=generator) < torch.sigmoid(inputs - 1.0)
    head = torch.nn.Linear(4, 4, bias=False)
    head.weight = torch.nn.Parameter(3.0 * torch.eye(4), requires_grad=False)
    model = hokical.calibrate(
        head, loader((inputs, labels)), hokical.MultilabelCalibrator()
    )
    output = model.eval()(inputs)
    cal = hokical.MultilabelCalibrator().fit(3.0 * inputs, labels)
    assert (
        output.logits.shape
        == output.labels.shape
        == output.confidence.shape
        == (2000, 4)
    )
    expected = torch.as_tensor(cal.predict_proba(3.0 * inputs))
    torch.testing.assert_close(output.confidence, expected, check_dtype=False)
    torch.testing.assert_close(model.predict_proba(inputs), output.confidence)
    assert torch.equal(output.labels, output.confidence >= 0.5)
    assert abs(float(output.confidence.mean() - labels.double().mean())) < 0.01


def binary_data(n: int = 500) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs (n, 4), labels (n,), and the log-odds (n,) of an overconfident network."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(n, 4, generator=generator)
    odds = inputs @ torch.tensor([1.0, -1.0, 0.5, 0.0])
    labels = (torch.rand(n, generator=generator) < odds.sigmoid()).long()
    return inputs, labels, 2.0 * odds


class Returns(torch.nn.Module):
    """What `binary_data` has as log-odds, in another form."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1, bias=False)
        self.layer.weight = torch.nn.Parameter(torch.tensor([[2.0, -2.0, 1.0, 0.0]]))
        self.form = form

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.form(self.layer(inputs))


def pair(odds: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros_like(odds), odds], dim=1)


FORMS = {
    "one output": lambda odds: odds,
    "no axis": lambda odds: odds[:, 0],
    "sigmoid": torch.sigmoid,
    "sigmoid without axis": lambda odds: odds[:, 0].sigmoid(),
    "softmax": lambda odds: pair(odds).softmax(dim=1),
    "log softmax": lambda odds: pair(odds).log_softmax(dim=1),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", ["(n,)", "(n, 1)"])
def test_binary_networks_of_every_form_calibrate_alike(form: str, shape: str) -> None:
    inputs, labels, odds = binary_data()
    truth = labels if shape == "(n,)" else labels[:, None].float()
    if shape == "(n, 1)" and "softmax" in form:
        pytest.skip("labels (n, 1) are for networks with one output")
    network = Returns(FORMS[form])
    model = calibrate(network, inputs, truth, "temps")
    expected = hokical.make("temps").fit(hokical.from_binary_scores(odds), labels)
    assert model.fitted.rule_.temperature == pytest.approx(
        expected.rule_.temperature, rel=1e-4
    )
    output = model(inputs)
    assert output.logits.shape == (500, 2)
    assert torch.equal(output.labels, (odds > 0).long())
    confidence = expected.predict_confidence(hokical.from_binary_scores(odds))
    torch.testing.assert_close(
        output.confidence, confidence.float(), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        model.predict_proba(inputs).amax(dim=1), output.confidence
    )
    (slope,) = torch.autograd.grad(output.confidence.sum(), network.layer.weight)
    assert slope.isfinite().all()
    assert slope.abs().sum() > 0.0
    held_out = collect_logits(model, [(inputs, labels)])[0]
    torch.testing.assert_close(held_out, output.logits)


@pytest.mark.parametrize("form", ["sigmoid", "softmax"])
def test_probabilities_of_0_and_1_are_taken(form: str) -> None:
    inputs, labels, _ = binary_data()
    network = Returns(FORMS[form])
    network.layer.weight.data *= 200.0  # saturates in single precision
    model = calibrate(network, inputs, labels, "temps")
    output = model(inputs)
    assert output.confidence.isfinite().all()
    assert output.logits.isfinite().all()
    (slope,) = torch.autograd.grad(output.confidence.sum(), network.layer.weight)
    assert slope.isfinite().all()


def test_sigmoids_of_several_labels() -> None:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(400, 3, generator=generator)
    truth = torch.rand(400, 3, generator=generator) < inputs.sigmoid()
    plain = calibrate(
        torch.nn.Identity(), [(inputs, truth)], hokical.MultilabelCalibrator()
    )
    model = calibrate(
        torch.nn.Sigmoid(), [(inputs, truth)], hokical.MultilabelCalibrator()
    )
    assert (plain.outputs, model.outputs) == ("logits", "probabilities")
    torch.testing.assert_close(
        model(inputs).confidence, plain(inputs).confidence, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("outputs", ["auto", "probabilities"])
def test_votes_of_a_network_with_a_softmax(
    outputs: Any, network: Any, data: Any
) -> None:
    """They are no several labels, whose sigmoids would be read."""
    inputs, labels = data
    votes = 5 * torch.nn.functional.one_hot(labels, 3)
    votes += torch.arange(3)
    softmax = torch.nn.Sequential(network, torch.nn.Softmax(dim=1))
    model = calibrate(softmax, inputs, votes, "temps", outputs=outputs).eval()
    expected = calibrate(network, inputs, votes, "temps").eval()
    found = model(inputs).confidence
    torch.testing.assert_close(found, expected(inputs).confidence, atol=1e-5, rtol=0.0)
    logits, _ = collect_logits(softmax, (inputs, votes))
    torch.testing.assert_close(logits.exp(), softmax.eval()(inputs), check_device=False)


def test_votes_of_a_network_with_one_output(data: Any) -> None:
    inputs, labels = data
    network = torch.nn.Linear(4, 1)
    votes = 3 * torch.nn.functional.one_hot((labels > 0).long(), 2) + 1
    logits, collected = collect_logits(network, (inputs, votes))
    assert torch.equal(collected, votes)
    torch.testing.assert_close(logits[:, 1:] - logits[:, :1], network(inputs).detach())
    model = calibrate(network, inputs, votes, "temps").eval()
    expected = hokical.make("temps").fit(logits, votes).predict_proba(logits)
    torch.testing.assert_close(model.predict_proba(inputs), expected)


def test_what_is_returned_may_be_said() -> None:
    inputs, labels, _ = binary_data()
    network = Returns(lambda odds: odds.sigmoid())
    model = calibrate(network, inputs, labels, "temps", outputs="logits")
    assert model.outputs == "logits"
    assert "outputs" not in model.extra_repr()
    assert "outputs='probabilities'" in repr(
        calibrate(network, inputs, labels, "temps")
    )
    with pytest.raises(ValueError, match=r"`outputs` must be .*'scores'"):
        calibrate(network, inputs, labels, "temps", outputs="scores")  # type: ignore[arg-type]


def test_maps_of_one_class() -> None:
    network = torch.nn.Conv2d(2, 1, 1)
    network.weight.data, network.bias.data = torch.ones(1, 2, 1, 1), torch.zeros(1)
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(6, 2, 5, 5, generator=generator)
    noise = torch.randn(6, 5, 5, generator=generator)
    truth = (network(images)[:, 0] + noise > 0.0).long()
    truth[:, 0] = 255
    model = calibrate(
        network, [(images, truth)], "temps", class_axis=1, ignore_label=255
    )
    assert model(images).logits.shape == (6, 2, 5, 5)
    assert model(images).confidence.shape == (6, 5, 5)
    again = calibrate(
        network, [(images, truth[:, None])], "temps", class_axis=1, ignore_label=255
    )
    assert again.fitted.rule_.temperature == model.fitted.rule_.temperature


class Joined(torch.nn.Module):
    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one[:, :3] + other[:, :3]


class OfOne(torch.nn.Module):
    def forward(self, both: Any) -> torch.Tensor:
        return both[0][:, :3] + both[1][:, :3]


@pytest.mark.parametrize("wrap", [lambda network: network, data_parallel])
def test_nested_inputs_and_targets(data: Any, wrap: Any) -> None:
    inputs, labels = data
    expected = 2.0 * inputs[:, :3]
    for network, batch in (
        (Joined(), ((inputs, inputs), labels)),
        (Joined(), [[inputs, inputs], labels]),
        (Joined(), ({"one": inputs, "other": inputs}, labels)),
        (OfOne(), ((inputs, inputs), labels)),
        (OfOne(), ((inputs, inputs), labels, "index")),
        *(
            (Joined(), {"one": inputs, "other": inputs, name: labels})
            for name in ("target", "y")
        ),
    ):
        found, truth = collect_logits(wrap(network), [batch])
        torch.testing.assert_close(found, expected)
        assert torch.equal(truth, labels)
    dataset = [((x, x), int(y)) for x, y in zip(inputs, labels, strict=True)]
    found, truth = collect_logits(wrap(Joined()), DataLoader(dataset, batch_size=64))
    torch.testing.assert_close(found, expected)
    assert torch.equal(truth, labels)


class Streamed(torch.utils.data.IterableDataset):
    """Examples without a length, as of a stream."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.data, strict=True)


def test_a_loader_without_a_length(network: Any, data: Any) -> None:
    streamed = DataLoader(Streamed(data), batch_size=70)
    logits, labels = collect_logits(network, streamed, progress=False)
    expected, _ = collect_logits(network, loader(data))
    assert torch.equal(logits, expected)
    assert torch.equal(labels, data[1])


@pytest.mark.parametrize("form", [tuple, list, pd.Series, np.asarray])
def test_labels_beside_inputs_may_be_of_any_kind(
    network: Any, data: Any, form: Any
) -> None:
    inputs, labels = data
    model = calibrate(network, inputs, form(labels.tolist()), "temps")
    expected = calibrate(network, inputs, labels, "temps")
    assert model.fitted.temperature_ == expected.fitted.temperature_
    model.certify(inputs, form(labels.tolist()), reused="ignore")
    assert model.predict_set(inputs[:3], coverage=0.9).members.shape == (3, 3)


def test_an_index_of_a_series_is_not_used(network: Any, data: Any) -> None:
    inputs, labels = data
    odd = pd.Series(labels.numpy(), index=np.arange(300)[::-1] + 7)
    found = calibrate(network, inputs, odd, "temps").fitted
    expected = calibrate(network, inputs, labels, "temps").fitted
    assert found.temperature_ == expected.temperature_


@pytest.mark.parametrize("ignored", [-100, 255])
def test_labels_that_are_ignored_are_not_known(ignored: int) -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(600, 3, generator=generator)
    labels = (torch.rand(600, 3, generator=generator) < torch.sigmoid(inputs)).long()
    is_known = torch.rand(600, 3, generator=generator) < 0.7
    marked = torch.where(is_known, labels, ignored)
    _, truth = collect_logits(
        torch.nn.Identity(), loader((3.0 * inputs, marked)), ignore_label=ignored
    )
    assert torch.equal(truth.isnan(), ~is_known)
    assert torch.equal(truth[is_known], labels[is_known].float())
    model = calibrate(
        torch.nn.Identity(),
        loader((3.0 * inputs, marked)),
        hokical.MultilabelCalibrator(),
        ignore_label=ignored,
    )
    partial = torch.where(is_known, labels.double(), torch.nan)
    expected = hokical.MultilabelCalibrator().fit(3.0 * inputs, partial)
    np.testing.assert_array_equal(
        model.fitted.predict_proba(inputs), expected.predict_proba(inputs)
    )
