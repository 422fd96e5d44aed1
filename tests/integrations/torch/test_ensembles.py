"""Networks that are evaluated several times, against one evaluation after the other."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from hokical import Ensemble, MultilabelCalibrator, auto, calibrate, make  # noqa: E402
from hokical.integrations.torch import (  # noqa: E402
    CalibratedEnsemble,
    CalibratedModel,
    MemberNetwork,
    collect_logits,
    views,
)

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randn(500, 2, 6, 6, generator=GENERATOR)
SIGNAL = 0.3 * torch.randn(72, 3, generator=GENERATOR)
NOISE = torch.randn(500, 3, generator=GENERATOR)
LABELS = (IMAGES.flatten(1) @ SIGNAL + NOISE).argmax(dim=1)
NEW = torch.randn(40, 2, 6, 6, generator=GENERATOR)
VIEWS = views("symbol")


def network(seed: int = 0, tail: nn.Module | None = None) -> nn.Module:
    """Noisy weights of the truth, with what dropout and batches change."""
    torch.manual_seed(seed)
    layers = nn.Sequential(
        nn.BatchNorm2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(72, 3)
    )
    with torch.no_grad():
        layers[3].weight.copy_(3 * (SIGNAL.T + 0.2 * torch.randn(3, 72)))
    return layers.append(tail) if tail is not None else layers


def one_by_one(networks: list[nn.Module], transforms: Any, inputs: Any) -> np.ndarray:
    """Logits (members, n, classes), by the plainest of loops."""
    with torch.no_grad():
        members = [
            net.eval()(transform(inputs))
            for net in networks
            for transform in transforms
        ]
    return torch.stack(members).numpy()


def assert_as_one_by_one(
    model: Any, networks: list[nn.Module], transforms: Any, names: list[str]
) -> None:
    """The module's answers are the calibrator's on an ensemble of all members."""
    members = one_by_one(networks, transforms, NEW)
    ensemble = Ensemble(members, names)
    calibrator = model.fitted
    with torch.no_grad():
        logits, labels, confidence = model(NEW)
    assert (labels.numpy() == calibrator.predict(ensemble)).all()
    expected = calibrator.predict_confidence(ensemble)
    np.testing.assert_allclose(confidence, expected, atol=1e-5)
    expected = calibrator.predict_proba(ensemble)
    np.testing.assert_allclose(model.predict_proba(NEW), expected, atol=1e-5)
    pooled = calibrator.members_.read(ensemble).values
    np.testing.assert_allclose(logits, pooled, atol=1e-4)
    # And the fit is that of such an ensemble.
    again = Ensemble(one_by_one(networks, transforms, IMAGES), names)
    fitted = auto(again, LABELS.numpy(), most_members=len(calibrator.needed_members_))
    np.testing.assert_allclose(fitted.predict_proba(ensemble), expected, atol=1e-3)


@pytest.mark.parametrize("most_members", [None, 3])
def test_views_are_pooled(most_members: int | None) -> None:
    net = network().eval()
    model = calibrate(
        net, IMAGES, LABELS, transforms=VIEWS, most_members=most_members
    ).eval()
    assert isinstance(model, CalibratedEnsemble)
    assert_as_one_by_one(model, [net], VIEWS.values(), [*VIEWS])
    assert model.model.names == model.fitted.needed_members_
    if most_members is not None:
        assert len(model.model.names) == most_members


def test_several_networks_are_pooled() -> None:
    nets = {"a": network(1), "b": network(2), "c": network(3)}
    model = calibrate(nets, IMAGES, LABELS).eval()
    assert_as_one_by_one(model, [*nets.values()], [torch.clone], [*nets])
    assert calibrate([*nets.values()], IMAGES, LABELS).fitted.members_.names == (
        *"012",
    )
    held = calibrate(nn.ModuleDict(nets), IMAGES, LABELS)
    assert held.fitted.members_.names == ("a", "b", "c")
    few = calibrate(nets, IMAGES, LABELS, most_members=1)
    assert len(few.model.networks) == 1


def test_each_of_several_networks_sees_every_view() -> None:
    nets = [network(1), network(2)]
    model = calibrate(nets, IMAGES, LABELS, transforms={"half": lambda x: x / 2}).eval()
    names = ["0: identity", "0: half", "1: identity", "1: half"]
    assert_as_one_by_one(model, nets, [torch.clone, lambda x: x / 2], names)


@pytest.mark.parametrize("rows_at_once", [1, 90, 10_000])
def test_answers_do_not_depend_on_how_many_views_go_at_once(rows_at_once: int) -> None:
    calls = []
    net = network().eval()
    net.register_forward_hook(lambda *call: calls.append(len(call[1][0])))
    members = MemberNetwork(net, VIEWS, rows_at_once=rows_at_once)
    stacked = members(NEW)
    at_once = {1: 1, 90: 2, 10_000: len(VIEWS)}[rows_at_once]
    assert max(calls) == 40 * at_once
    assert sum(calls) == 40 * len(VIEWS)
    expected = one_by_one([net], VIEWS.values(), NEW)
    np.testing.assert_allclose(stacked.detach(), expected, atol=1e-5)


def test_in_training_mode_each_view_is_a_batch_of_its_own() -> None:
    net = network()
    net[2].p = 0.0
    net.train()
    expected = [net(transform(NEW)) for transform in VIEWS.values()]
    stacked = MemberNetwork(net, VIEWS)(NEW)
    torch.testing.assert_close(stacked, torch.stack(expected))


def test_the_identity_comes_first_once() -> None:
    net = network()
    negative = {"negative": torch.neg}
    assert MemberNetwork(net, negative).names == ("identity", "negative")
    last = negative | {"identity": views()["identity"]}
    assert MemberNetwork(net, last).names == ("identity", "negative")
    renamed = negative | {"as it is": views()["identity"]}
    assert MemberNetwork(net, renamed).names == ("as it is", "negative")
    assert MemberNetwork(net, [torch.neg]).names == ("0", "1")
    listed = MemberNetwork(net.eval(), [torch.neg, views()["identity"]])
    assert listed.names == ("0", "1")
    torch.testing.assert_close(listed(NEW)[0], net(NEW))


def test_labels_of_the_identity_are_kept() -> None:
    net = network().eval()
    model = calibrate(net, IMAGES, LABELS, transforms=VIEWS, keep_labels=True).eval()
    assert torch.equal(model(NEW).labels, net(NEW).argmax(dim=1))


def test_passes_with_dropout_are_fixed_and_leave_everything_as_it_was() -> None:
    net = network().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    model = calibrate(net, IMAGES, LABELS, "temps", dropout=6)
    assert net.training
    assert net[2].training
    again = calibrate(net, IMAGES, LABELS, "temps", dropout=6)
    model.eval()
    confidence = model(NEW).confidence
    assert torch.equal(model(NEW).confidence, confidence)
    assert torch.equal(again.eval()(NEW).confidence, confidence)
    assert torch.equal(torch.get_rng_state(), state)
    assert not net[2].training
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    assert model.fitted.members_.exchangeable


def test_passes_are_those_of_the_network_with_these_seeds() -> None:
    net = network().eval()
    passes = MemberNetwork(net, dropout=3)(NEW)
    net[2].train()
    for seed, stated in enumerate(passes):
        torch.manual_seed(seed)
        assert torch.equal(net(NEW), stated)
    model = calibrate(net.eval(), IMAGES, LABELS, "temps", dropout=3).eval()
    ensemble = Ensemble(passes.detach().numpy(), exchangeable=True)
    expected = model.fitted.predict_confidence(ensemble)
    np.testing.assert_allclose(model(NEW).confidence.detach(), expected, atol=1e-5)


def test_dropout_of_transformers_is_on() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, dropout=0.3, batch_first=True)
    encoder = nn.Sequential(layer, nn.Flatten(), nn.Linear(32, 3)).eval()
    with torch.no_grad():
        passes = MemberNetwork(encoder, dropout=2)(torch.randn(5, 4, 8))
    assert not torch.equal(passes[0], passes[1])


class Scaled(nn.Module):
    """A network of two inputs, or of keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, pixels: Any, scale: Any, ids: Any = None) -> dict[str, Any]:
        return {"logits": self.inner(pixels) * scale[:, None]}


def test_views_change_the_first_input_alone() -> None:
    net = Scaled().eval()
    scale = torch.rand(500, generator=torch.Generator().manual_seed(1)) + 0.5
    batches = [((IMAGES, scale), LABELS)]
    model = calibrate(net, batches, transforms=VIEWS).eval()
    stacked = model.model(NEW, scale[:40])
    for name, seen in zip(model.model.names, stacked, strict=True):
        torch.testing.assert_close(seen, net(VIEWS[name](NEW), scale[:40])["logits"])
    one = MemberNetwork(network().eval(), VIEWS)
    by_keyword = one(input=NEW)
    torch.testing.assert_close(by_keyword, one(NEW))
    with pytest.raises(TypeError, match="its only keyword argument of floats"):
        model.model(pixels=NEW, scale=scale[:40])


def second_class() -> nn.Module:
    """One column: the logit of the class in the middle."""
    tail = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        tail.weight.copy_(torch.tensor([[-0.5, 1.0, -0.5]]))
    return tail


@pytest.mark.parametrize(
    ("tail", "columns"), [(nn.Softmax(dim=1), 3), (second_class(), 1)]
)
def test_probabilities_and_single_outputs_are_recognized(
    tail: nn.Module, columns: int
) -> None:
    net = network(tail=tail).eval()
    labels = LABELS if columns == 3 else (LABELS == 1).long()
    model = calibrate(net, IMAGES, labels, "temps", transforms=VIEWS).eval()
    assert model.outputs == ("probabilities" if columns == 3 else "logits")
    with torch.no_grad():
        stacked = torch.stack([net(view(NEW)) for view in VIEWS.values()])
    if columns == 3:
        logits = stacked.log()
    else:
        logits = torch.cat([torch.zeros_like(stacked), stacked], dim=2)
    ensemble = Ensemble(logits.numpy(), [*VIEWS])
    expected = model.fitted.predict_confidence(ensemble)
    np.testing.assert_allclose(model(NEW).confidence.detach(), expected, atol=1e-5)


@pytest.mark.parametrize("tail", [None, nn.Softmax(dim=1)])
def test_votes_are_learned_from(tail: nn.Module | None) -> None:
    nets = [network(seed, tail).eval() for seed in (1, 2)]
    votes = torch.randint(1, 4, (500, 3), generator=torch.manual_seed(0))
    votes += 5 * nn.functional.one_hot(LABELS, 3)
    model = calibrate(nets, IMAGES, votes, "temps").eval()
    plain = [network(seed).eval() for seed in (1, 2)]
    ensemble = Ensemble(one_by_one(plain, [torch.clone], IMAGES))
    expected = make("temps").fit(ensemble, votes.numpy()).predict_confidence(ensemble)
    np.testing.assert_allclose(model(IMAGES).confidence.detach(), expected, atol=1e-4)


def test_guarantees_are_those_of_the_calibrator() -> None:
    net = network().eval()
    model = calibrate(net, IMAGES[:250], LABELS[:250], transforms=VIEWS).eval()
    model.certify(IMAGES[250:], LABELS[250:])
    ensemble = Ensemble(one_by_one([net], VIEWS.values(), NEW), [*VIEWS])
    selected = model.predict_or_abstain(NEW, risk=0.3)
    assert selected.certified_on == "held-out"
    expected = model.fitted.predict_or_abstain(ensemble, risk=0.3).accepted
    assert (np.asarray(selected.accepted) == expected).all()
    sets = model.predict_set(NEW, coverage=0.9).members
    expected = model.fitted.predict_set(ensemble, coverage=0.9).members
    assert (np.asarray(sets) == expected).all()


def test_files_hold_all_but_code(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "model.safetensors"
    cases: list[tuple[Any, Any, dict[str, Any]]] = [
        (network(4), network(5), {"transforms": VIEWS}),
        ([network(1), network(2)], [network(5), network(6)], {}),
        (network(4), network, {"dropout": 5}),
    ]
    for networks, fresh, options in cases:
        model = calibrate(networks, IMAGES, LABELS, "temps", **options).eval()
        model.save(path)
        options.pop("dropout", None)
        loaded = CalibratedEnsemble.load(path, fresh, **options).eval()
        assert torch.equal(loaded(NEW).confidence, model(NEW).confidence)
        assert loaded.model.names == model.model.names
    with pytest.raises(ValueError, match=r"several times .* `CalibratedEnsemble.load`"):
        CalibratedModel.load(path, network())
    few = calibrate(network(4), IMAGES, LABELS, transforms=VIEWS, most_members=3).eval()
    few.save(path)
    needed = {name: VIEWS[name] for name in few.model.names}
    loaded = CalibratedEnsemble.load(path, network(5), transforms=needed).eval()
    assert torch.equal(loaded(NEW).confidence, few(NEW).confidence)
    with pytest.raises(ValueError, match="the members that the calibrator needs"):
        CalibratedEnsemble.load(path, network(5), transforms={"other": torch.neg})
    CalibratedModel(network(), make("uncalibrated").fit(np.eye(3), [0, 1, 2])).save(
        path
    )
    with pytest.raises(ValueError, match=r"evaluated once .* `CalibratedModel.load`"):
        CalibratedEnsemble.load(path, network())


def test_state_dicts_hold_the_calibrator() -> None:
    model = calibrate(network(4), IMAGES, LABELS, "temps", dropout=4).eval()
    other = calibrate(network(5), IMAGES, LABELS, "hoki", dropout=4).eval()
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    stream.seek(0)
    other.load_state_dict(torch.load(stream, weights_only=True))
    assert torch.equal(other(NEW).confidence, model(NEW).confidence)
    model = calibrate(network(4), IMAGES, LABELS, "uncalibrated", transforms=VIEWS)
    few = calibrate(network(4), IMAGES, LABELS, transforms=VIEWS, most_members=2)
    few.load_state_dict(model.state_dict())
    with pytest.raises(ValueError, match="the calibrator of a state dict needs"):
        few(NEW)


def test_exported_programs_give_the_same_or_are_refused() -> None:
    model = calibrate(network(), IMAGES, LABELS, transforms=VIEWS).eval()
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        model, (NEW[:3],), dynamic_shapes={"args": ({0: batch},)}
    ).module()
    torch.testing.assert_close(program(NEW).confidence, model(NEW).confidence)
    # A runtime would leave dropout out, and all passes would be equal.
    passes = calibrate(network(), IMAGES, LABELS, "temps", dropout=3).eval()
    with pytest.raises(RuntimeError, match="dropout cannot be exported"):
        torch.export.export(passes, (NEW[:3],))


def test_a_network_that_stacks_its_members_itself() -> None:
    nets = [network(1), network(2)]
    members = MemberNetwork(nets).eval()
    calibrator = calibrate(nets, IMAGES, LABELS).fitted

    class Stacking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = members

        def forward(self, inputs: Any) -> Any:
            return self.members(inputs)

    model = CalibratedModel(Stacking(), calibrator).eval()
    expected = CalibratedEnsemble(members, calibrator).eval()(NEW)
    assert torch.equal(model(NEW).confidence, expected.confidence)
    assert torch.equal(model(NEW).logits, expected.logits)
    assert model(NEW).logits.shape == (40, 3)


class Maps(nn.Module):
    def forward(self, inputs: Any) -> Any:
        return inputs


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (
            Maps(),
            {"transforms": VIEWS},
            ValueError,
            "one row of logits .*hokical.Dense",
        ),
        (network(), {"transforms": torch.neg}, TypeError, "must be a mapping of names"),
        (network(), {"transforms": "image"}, TypeError, "got a str.*views"),
        (network(), {"transforms": [3]}, TypeError, "'1' is a int"),
        (network(), {"transforms": [lambda x: x[:7]]}, ValueError, "keep the number"),
        (network(), {"transforms": [lambda x: None]}, TypeError, "'1' returned a None"),
        (
            network(),
            {"transforms": VIEWS, "dropout": 4},
            ValueError,
            "must be None with",
        ),
        (network(), {"dropout": 1}, ValueError, "`dropout` must be an integer"),
        (nn.Linear(4, 3), {"dropout": 4}, ValueError, "layers of dropout, such as"),
        (network(), {"most_members": 2}, ValueError, "evaluated once; got 2"),
        ([network(), network], {}, TypeError, "'1' is a function"),
        ([], {}, ValueError, "at least one network"),
        (
            [network(), network(tail=nn.Linear(3, 4))],
            {},
            ValueError,
            "the same classes",
        ),
        ([network(), network(tail=nn.Softmax(dim=1))], {}, ValueError, "same for all"),
    ],
)
def test_what_cannot_work_is_refused(
    model: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        calibrate(model, IMAGES, LABELS, **options)


def test_what_needs_one_evaluation_is_refused() -> None:
    several = MultilabelCalibrator()
    with pytest.raises(TypeError, match="one label per example"):
        calibrate(network(), [(IMAGES, LABELS)], several, transforms=VIEWS)
    silent = network()
    silent[2].p = 0.0
    with pytest.raises(ValueError, match="passes that differ"):
        calibrate(silent, IMAGES, LABELS, dropout=4)
    model = calibrate(network(), IMAGES, LABELS, transforms=VIEWS)
    with pytest.raises(TypeError, match="`save"):
        model.save_pretrained("folder")
    with pytest.raises(TypeError, match="a pipeline evaluates a network once"):
        model.for_pipeline()
    single = auto(*map(np.asarray, collect_logits(network(), (IMAGES, LABELS))))
    with pytest.raises(ValueError, match="takes one row of logits"):
        CalibratedEnsemble(MemberNetwork(network(), VIEWS), single)
    with pytest.raises(ValueError, match="passes with dropout exactly where"):
        CalibratedEnsemble(MemberNetwork(network(), dropout=4), model.fitted)
