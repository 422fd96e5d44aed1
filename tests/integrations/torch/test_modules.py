"""Calibrators as modules: the core's numbers, whatever happens to a module."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import hokical
from hokical import load
from hokical.calibrators import Calibrator, make
from tests.integrations.torch.examples import (
    NAMES,
    awkward,
    fitted,
    fitted_on,
    suite_arrays,
    synthetic_logits,
    torch_backend,
)

torch = pytest.importorskip("torch")

from hokical.integrations.torch import as_module  # noqa: E402


def assert_agree(
    calibrator: Calibrator, logits: np.ndarray, within: float = 1e-10
) -> None:
    """Labels, confidence and probabilities of the module are those of the core."""
    module, rows = as_module(calibrator), torch.tensor(logits)
    labels, confidence = module(rows)
    np.testing.assert_array_equal(labels, calibrator.predict(logits))
    np.testing.assert_array_equal(module.labels(rows), labels)
    expected = calibrator.predict_confidence(logits)
    np.testing.assert_allclose(confidence, expected, rtol=0.0, atol=within)
    proba = module.proba(rows)
    np.testing.assert_allclose(
        proba, calibrator.predict_proba(logits), rtol=0.0, atol=within
    )
    assert labels.dtype == torch.int64
    assert confidence.dtype == proba.dtype == torch.float64


def assert_agree_on_suite(name: str, pair: str, n_val: int, n_test: int) -> None:
    file = suite_arrays(pair)
    logits, labels = (
        file["val_logits"][:n_val].astype(np.float64),
        file["val_labels"][:n_val],
    )
    assert_agree(fitted_on(name, logits, labels), awkward(file["test_logits"][:n_test]))


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_core_on_awkward_rows(name: str) -> None:
    assert_agree(fitted(name), awkward(synthetic_logits(60, 5, seed=9)[0]))


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_core_on_real_logits(name: str) -> None:
    assert_agree_on_suite(name, "cifar10_lenet5", 1500, 300)


@pytest.mark.parametrize("name", ["hoki gaussian", "hoki uniform", "irova_ts", "vecs"])
def test_agrees_with_the_core_on_a_hundred_classes(name: str) -> None:
    assert_agree_on_suite(name, "cifar100_lenet5", 1000, 200)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_logits_give_float32_of_the_same_numbers(name: str, dtype: str) -> None:
    calibrator, module = fitted(name), as_module(fitted(name))
    logits = torch.tensor(synthetic_logits(40, 5, seed=9)[0]).to(getattr(torch, dtype))
    wide = logits.float().numpy()
    _, confidence = module(logits)
    assert confidence.dtype == torch.float32
    expected = calibrator.predict_confidence(wide)
    np.testing.assert_allclose(confidence, expected, rtol=0.0, atol=1e-7)
    proba = module.proba(logits)
    assert proba.dtype == torch.float32
    expected = calibrator.predict_proba(wide)
    np.testing.assert_allclose(proba, expected, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_results_do_not_depend_on_blocks_or_leading_shape(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = as_module(fitted(name))
    logits = torch.tensor(synthetic_logits(24, 5, seed=9)[0])
    whole, proba = module(logits), module.proba(logits)
    monkeypatch.setattr(type(torch_backend()), "block_size", 40)
    answer = module(logits.reshape(2, 3, 4, 5))
    assert answer.labels.shape == answer.confidence.shape == (2, 3, 4)
    torch.testing.assert_close(
        answer.confidence.reshape(-1), whole.confidence, rtol=0, atol=1e-14
    )
    torch.testing.assert_close(module.proba(logits), proba, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_numpy_and_torch_answer_alike(name: str) -> None:
    """On the CPU NumPy answers, and torch where there is a gradient."""
    module = as_module(fitted(name))
    logits = torch.tensor(synthetic_logits(6, 5, seed=9)[0])
    quick = module.proba(logits)
    slow = module.proba(logits.clone().requires_grad_())
    torch.testing.assert_close(quick, slow.detach(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_no_logits_get_nan_and_the_others_stay(name: str) -> None:
    module = as_module(fitted(name))
    logits = torch.tensor(synthetic_logits(6, 5, seed=9)[0])
    sound = module(logits).confidence
    logits[1, 2], logits[2, 0], logits[3] = torch.nan, torch.inf, -torch.inf
    broken = module(logits).confidence
    assert torch.isnan(broken[1:4]).all()
    torch.testing.assert_close(broken[[0, 4, 5]], sound[[0, 4, 5]], rtol=1e-12, atol=0)
    assert torch.isnan(module.proba(logits)[1:4]).all()


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_carries_the_whole_fit(name: str) -> None:
    """Into a module of another method, too."""
    source = fitted(name)
    logits = torch.tensor(synthetic_logits(50, 5, seed=9)[0])
    wanted = as_module(source)
    for target in (
        as_module(fitted(name, seed=1)),
        as_module(fitted("temps", n_classes=6)),
    ):
        target.load_state_dict(wanted.state_dict())
        for got, right in zip(target(logits), wanted(logits), strict=True):
            assert torch.equal(got, right)
        assert torch.equal(target.proba(logits), wanted.proba(logits))
        assert target.n_classes == 5
        assert repr(target.fitted) == repr(source)


def test_state_dict_goes_through_a_file_into_a_module_from_json(tmp_path: Path) -> None:
    calibrator = fitted("hoki sampled")
    calibrator.save(tmp_path / "cal.json")
    torch.save(as_module(calibrator).state_dict(), tmp_path / "state.pt")
    module = as_module(load(tmp_path / "cal.json"))
    module.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    logits = torch.tensor(synthetic_logits(50, 5, seed=9)[0])
    expected = calibrator.predict_confidence(logits.numpy())
    np.testing.assert_array_equal(module(logits).confidence, expected)


def test_a_state_dict_that_no_calibrator_has_is_refused() -> None:
    module = as_module(fitted("temps"))
    with pytest.raises(Exception, match=r"not a calibrator|JSON|json"):
        module.load_state_dict({"_extra_state": torch.zeros(3, dtype=torch.uint8)})
    several = hokical.MultilabelCalibrator().fit(*several_labels())
    with pytest.raises(
        ValueError, match="a module for TemperatureScaling; got one for Multi"
    ):
        module.load_state_dict(as_module(several).state_dict())
    before = as_module(fitted("temps"))(torch.zeros(1, 5)).confidence
    assert torch.equal(module(torch.zeros(1, 5)).confidence, before)


def several_labels() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.random((400, 3)) < 0.3
    return rng.normal(size=labels.shape) + 2.0 * labels, labels


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["half", "bfloat16", "float", "to"])
def test_buffers_stay_float64(name: str, change: str) -> None:
    module = as_module(fitted(name))
    before = copy.deepcopy(dict(module.named_buffers()))
    parent = torch.nn.Sequential(module, torch.nn.Linear(2, 2))
    parent.to("cpu", torch.float16) if change == "to" else getattr(parent, change)()
    assert parent[1].weight.dtype != torch.float32 or change == "float"
    for key, value in module.named_buffers():
        assert value.dtype == before[key].dtype
        assert torch.equal(torch.nan_to_num(value), torch.nan_to_num(before[key]))


def test_buffers_follow_to_another_device() -> None:
    module = as_module(fitted("hoki sampled")).to("meta", torch.float16)
    assert {buffer.device.type for buffer in module.buffers()} == {"meta"}
    assert module.link_slope.dtype == torch.float64
    answer = module(torch.zeros(3, 5, device="meta"))
    assert answer.confidence.shape == (3,)
    module.load_state_dict(
        as_module(fitted("hoki sampled", seed=1)).state_dict(), assign=True
    )
    logits = synthetic_logits(20, 5, seed=9)[0]
    expected = fitted("hoki sampled", seed=1).predict_confidence(logits)
    np.testing.assert_array_equal(module(torch.tensor(logits)).confidence, expected)


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_pickles(name: str) -> None:
    module = as_module(fitted(name))
    logits = torch.tensor(synthetic_logits(20, 5, seed=9)[0])
    wanted = module(logits).confidence
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(logits).confidence, wanted)
    assert not list(module.parameters())


def test_module_is_a_copy_of_the_fit() -> None:
    logits, labels = synthetic_logits(300, 5, seed=0)
    calibrator = make("vecs").fit(logits, labels)
    module = as_module(calibrator)
    before = module(torch.tensor(logits)).confidence
    calibrator.scale_ *= 2.0
    assert torch.equal(module(torch.tensor(logits)).confidence, before)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_changes_nothing(name: str) -> None:
    module = as_module(fitted(name))
    logits = torch.tensor(synthetic_logits(30, 5, seed=9)[0])
    for rows in (logits, logits.float()):
        plain, proba = module(rows), module.proba(rows)
        with torch.autocast("cpu", torch.bfloat16):
            inside, shares = module(rows), module.proba(rows)
        assert torch.equal(inside.confidence, plain.confidence)
        assert torch.equal(shares, proba)


def test_errors_say_what_is_wanted() -> None:
    module = as_module(fitted("temps"))
    with pytest.raises(
        ValueError, match=r"5 classes, along the last axis; got shape \(2, 4\)"
    ):
        module(torch.zeros(2, 4))
    with pytest.raises(TypeError, match="must be a tensor; got ndarray"):
        module(np.zeros((2, 5)))
    with pytest.raises(TypeError, match="must be a fitted calibrator; got str"):
        as_module("hoki")
    with pytest.raises(ValueError, match="not fitted"):
        as_module(make("hoki"))


def test_integer_logits_and_no_rows() -> None:
    module = as_module(fitted("hoki gaussian"))
    assert module(torch.tensor([[3, 0, 0, 1, 2]])).confidence.dtype == torch.float64
    answer = module(torch.zeros(0, 5))
    assert answer.labels.shape == answer.confidence.shape == (0,)


def test_repr_tells_what_it_is() -> None:
    assert "hoki, 5 classes" in repr(as_module(fitted("hoki gaussian")))


@pytest.mark.parametrize("name", ["uncalibrated", "temps", "ets"])
def test_the_label_is_the_first_maximum_in_float32_too(name: str) -> None:
    module = as_module(fitted(name, n_classes=3))
    found = module.proba(torch.tensor([[0.0, 1e-9, -1.0], [0.0, 3e-8, 1e-8]]))
    assert found.dtype == torch.float32
    assert found.argmax(dim=1).tolist() == [1, 1]
