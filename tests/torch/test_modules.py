"""Calibrators as modules: the core's numbers, whatever happens to a module."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import load
from hokical.calibrators import make
from hokical.calibrators.base import BaseCalibrator
from tests.torch.examples import (
    NAMES,
    awkward,
    fitted,
    fitted_on,
    given,
    suite_arrays,
    synthetic_logits,
    views,
)

torch = pytest.importorskip("torch")

from hokical.integrations.torch import as_module  # noqa: E402
from hokical.integrations.torch.kernels import rows  # noqa: E402
from hokical.integrations.torch.modules.hoki import slopes  # noqa: E402


def tensors(calibrator: BaseCalibrator, logits: np.ndarray) -> tuple[Any, dict[str, Any]]:
    extra = {name: torch.tensor(value) for name, value in given(calibrator, logits).items()}
    return torch.tensor(logits), extra


def assert_agree(calibrator: BaseCalibrator, logits: np.ndarray, within: float = 1e-10) -> None:
    """Labels, confidence and probabilities of the module are those of the core."""
    module = as_module(calibrator)
    tensor, extra = tensors(calibrator, logits)
    arrays = given(calibrator, logits)
    labels, confidence = module(tensor, **extra)
    np.testing.assert_array_equal(labels, calibrator.predict(logits))
    np.testing.assert_array_equal(module.labels(tensor) if not extra else labels, labels)
    expected = calibrator.predict_confidence(logits, **arrays)
    np.testing.assert_allclose(confidence, expected, rtol=0.0, atol=within)
    proba = module.proba(tensor, **extra)
    expected = calibrator.predict_proba(logits, **arrays)
    np.testing.assert_allclose(proba, expected, rtol=0.0, atol=within)
    assert labels.dtype == torch.int64
    assert confidence.dtype == proba.dtype == torch.float64


def assert_agree_on_suite(name: str, pair: str, n_val: int, n_test: int) -> None:
    file = suite_arrays(pair)
    logits, labels = file["val_logits"][:n_val].astype(np.float64), file["val_labels"][:n_val]
    assert_agree(fitted_on(name, logits, labels), awkward(file["test_logits"][:n_test]))


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_core_on_awkward_rows(name: str) -> None:
    assert_agree(fitted(name), awkward(synthetic_logits(60, 5, seed=9)[0]))


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_core_on_real_logits(name: str) -> None:
    assert_agree_on_suite(name, "cifar10_lenet5", 1500, 300)


@pytest.mark.parametrize("name", ["hoki gaussian", "hoki uniform", "profile", "irova_ts", "vecs"])
def test_agrees_with_the_core_on_a_hundred_classes(name: str) -> None:
    assert_agree_on_suite(name, "cifar100_lenet5", 1000, 200)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_logits_give_float32_of_the_same_numbers(name: str, dtype: str) -> None:
    calibrator = fitted(name)
    logits = torch.tensor(synthetic_logits(40, 5, seed=9)[0]).to(getattr(torch, dtype))
    module = as_module(calibrator)
    wide = logits.float().numpy()
    extra = given(calibrator, wide)
    more = {key: torch.tensor(value) for key, value in extra.items()}
    _, confidence = module(logits, **more)
    assert confidence.dtype == torch.float32
    expected = calibrator.predict_confidence(wide, **extra)
    np.testing.assert_allclose(confidence, expected, rtol=0.0, atol=1e-7)
    proba = module.proba(logits, **more)
    assert proba.dtype == torch.float32
    np.testing.assert_allclose(proba, calibrator.predict_proba(wide, **extra), rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_results_do_not_depend_on_chunks_or_leading_shape(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrator = fitted(name)
    module = as_module(calibrator)
    logits, extra = tensors(calibrator, synthetic_logits(24, 5, seed=9)[0])
    whole, proba = module(logits, **extra), module.proba(logits, **extra)
    monkeypatch.setattr(rows, "CHUNK_SIZE", 40)
    shaped = {key: value.reshape(-1, 2, 3, 4, 5) for key, value in extra.items()}
    answer = module(logits.reshape(2, 3, 4, 5), **shaped)
    assert answer.labels.shape == answer.confidence.shape == (2, 3, 4)
    torch.testing.assert_close(answer.confidence.reshape(-1), whole.confidence, rtol=0, atol=1e-14)
    torch.testing.assert_close(module.proba(logits, **extra), proba, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_no_logits_get_nan_and_the_others_stay(name: str) -> None:
    calibrator = fitted(name)
    values = synthetic_logits(6, 5, seed=9)[0]
    module = as_module(calibrator)
    logits, extra = tensors(calibrator, values)
    sound = module(logits, **extra).confidence
    logits[1, 2], logits[2, 0], logits[3] = torch.nan, torch.inf, -torch.inf
    broken = module(logits, **extra).confidence
    assert torch.isnan(broken[1:4]).all()
    torch.testing.assert_close(broken[[0, 4, 5]], sound[[0, 4, 5]], rtol=0, atol=0)
    assert torch.isnan(module.proba(logits, **extra)[1:4]).all()


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_carries_the_whole_fit(name: str) -> None:
    source, target = fitted(name), as_module(fitted(name, seed=1))
    if name == "auto" and source.chosen_ != fitted(name, seed=1).chosen_:
        pytest.skip("two methods were chosen")
    logits, extra = tensors(source, synthetic_logits(50, 5, seed=9)[0])
    wanted = as_module(source)
    target.load_state_dict(wanted.state_dict())
    for got, right in zip(target(logits, **extra), wanted(logits, **extra), strict=True):
        assert torch.equal(got, right)
    assert torch.equal(target.proba(logits, **extra), wanted.proba(logits, **extra))
    assert target.fitted is None
    assert wanted.fitted is not None


@pytest.mark.parametrize("name", NAMES)
def test_narrow_numbers_are_widened_also_when_assigned(name: str) -> None:
    module = as_module(fitted(name))
    kinds = {key: value.dtype for key, value in module.state_dict().items()}
    state = {
        key: value.float() if value.is_floating_point() else value
        for key, value in module.state_dict().items()
    }
    module.load_state_dict(state, assign=True)
    assert {key: value.dtype for key, value in module.state_dict().items()} == kinds
    logits, extra = tensors(fitted(name), synthetic_logits(20, 5, seed=9)[0])
    assert module(logits, **extra).confidence.dtype == torch.float64


def test_state_dict_goes_through_a_file_into_a_module_from_json(tmp_path: Path) -> None:
    calibrator = fitted("hoki sampled")
    calibrator.save(tmp_path / "cal.json")
    torch.save(as_module(calibrator).state_dict(), tmp_path / "state.pt")
    module = as_module(load(tmp_path / "cal.json"))
    module.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    logits = torch.tensor(synthetic_logits(50, 5, seed=9)[0])
    expected = calibrator.predict_confidence(logits.numpy())
    np.testing.assert_array_equal(module(logits).confidence, expected)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("hoki gaussian", "hoki gumbel"),
        ("temps", "uncalibrated"),
        ("ms_odir", "dir_odir"),
        ("irm", "irm not normalised"),
        ("hoki gaussian", "hoki sampled"),
    ],
)
def test_numbers_of_another_kind_are_refused(one: str, other: str) -> None:
    module = as_module(fitted(one))
    with pytest.raises(RuntimeError, match="got the numbers of"):
        module.load_state_dict(as_module(fitted(other)).state_dict())
    before = module(torch.zeros(1, 5)).confidence
    assert torch.equal(before, as_module(fitted(one))(torch.zeros(1, 5)).confidence)


def test_numbers_for_other_classes_are_refused() -> None:
    state = as_module(fitted("temps", n_classes=6)).state_dict()
    with pytest.raises(RuntimeError, match="temps, 5 classes; got the numbers of temps, 6 classes"):
        as_module(fitted("temps")).load_state_dict(state)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["half", "bfloat16", "float", "to"])
def test_buffers_stay_float64(name: str, change: str) -> None:
    module = as_module(fitted(name))
    before = copy.deepcopy(module.state_dict())
    parent = torch.nn.Sequential(module, torch.nn.Linear(2, 2))
    parent.to("cpu", torch.float16) if change == "to" else getattr(parent, change)()
    assert parent[1].weight.dtype != torch.float32 or change == "float"
    for key, value in module.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(torch.nan_to_num(value), torch.nan_to_num(before[key]))


def test_buffers_follow_to_another_device() -> None:
    module = as_module(fitted("hoki sampled")).to("meta", torch.float16)
    assert {buffer.device.type for buffer in module.buffers()} == {"meta"}
    assert module.curve.dtype == torch.float64


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_pickles(name: str) -> None:
    calibrator = fitted(name)
    module = as_module(calibrator)
    logits, extra = tensors(calibrator, synthetic_logits(20, 5, seed=9)[0])
    wanted = module(logits, **extra).confidence
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(logits, **extra).confidence, wanted)
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
    calibrator = fitted(name)
    module = as_module(calibrator)
    logits, extra = tensors(calibrator, synthetic_logits(30, 5, seed=9)[0])
    narrow, more = logits.float(), {key: value.float() for key, value in extra.items()}
    for values, views_ in ((logits, extra), (narrow, more)):
        plain, proba = module(values, **views_), module.proba(values, **views_)
        with torch.autocast("cpu", torch.bfloat16):
            inside, shares = module(values, **views_), module.proba(values, **views_)
        assert torch.equal(inside.confidence, plain.confidence)
        assert torch.equal(shares, proba)


def test_slopes_are_those_of_the_curve() -> None:
    """Between two levels that the steps treat alike, the curve rises by its slope."""
    calibrator = fitted("hoki gaussian")
    levels = calibrator.table_.levels
    slope = slopes(calibrator._curve.schedule, levels, calibrator.accuracy_)
    rise = np.diff(calibrator._curve.confidence) * levels
    alike = slope[1:] == slope[:-1]
    same = alike & (np.abs(rise) < 1.0)  # elsewhere the curve jumps
    assert same.sum() > 0.99 * levels
    np.testing.assert_allclose(rise[same], slope[1:][same], rtol=1e-6, atol=1e-9)


def test_errors_say_what_is_wanted() -> None:
    module = as_module(fitted("temps"))
    with pytest.raises(ValueError, match=r"5 classes, along the last axis; got shape \(2, 4\)"):
        module(torch.zeros(2, 4))
    with pytest.raises(TypeError, match="must be a tensor; got ndarray"):
        module(np.zeros((2, 5)))
    with pytest.raises(TypeError, match="must be a fitted calibrator; got str"):
        as_module("hoki")
    with pytest.raises(ValueError, match="not fitted"):
        as_module(make("hoki"))
    recal = as_module(fitted("recal"))
    with pytest.raises(ValueError, match="ReCal needs `transformed`"):
        recal(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"shape \(2, 3, 5\).*got shape \(1, 3, 5\)"):
        recal(torch.zeros(3, 5), transformed=torch.tensor(views(np.zeros((3, 5)))[:1]))


def test_integer_logits_and_no_rows() -> None:
    module = as_module(fitted("hoki gaussian"))
    assert module(torch.tensor([[3, 0, 0, 1, 2]])).confidence.dtype == torch.float64
    answer = module(torch.zeros(0, 5))
    assert answer.labels.shape == answer.confidence.shape == (0,)


def test_repr_tells_what_it_is() -> None:
    assert "hoki, 5 classes, gaussian noise, exact" in repr(as_module(fitted("hoki gaussian")))
