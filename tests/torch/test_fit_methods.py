"""Every method fitted on logits in a tensor is the method fitted on the array.

`TensorLogits` made of tensors on the host take the path that tensors on a GPU take.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hokical.answers import confidence_of, labels_of  # noqa: E402
from hokical.calibrators import recal  # noqa: E402
from hokical.integrations.torch.tensors import TensorLogits  # noqa: E402
from hokical.logits import as_logits  # noqa: E402
from tests.torch.examples import MAKERS, views  # noqa: E402

N_ROWS, N_CLASSES = 240, 12
#: What an inverse of nearly collinear features is known to.
LOOSE = {"precision": 1e-6}
#: `auto` without `hoki`, whose noise is chosen in a test of its own; and penalties with which a fit
#: has one answer: where examples can be told apart, rounding decides where a solver gives up.
OPTIONS: dict[str, dict[str, Any]] = {
    "auto": {"candidates": ["temps", "profile"]},
    "ms_odir": {"lambdas": [10.0]},
    "dir_odir": {"lambdas": [10.0]},
}
METHODS = [*MAKERS, "hoki chosen", "ets log", "ms_odir searched"]


def made(name: str) -> Any:
    if name in MAKERS:
        return MAKERS[name]().set_params(**OPTIONS.get(name, {}))
    return {
        "hoki chosen": lambda: MAKERS["hoki gaussian"]().set_params(noise="auto"),
        "ets log": lambda: MAKERS["ets"]().set_params(loss="log"),
        "ms_odir searched": lambda: MAKERS["ms_odir"]().set_params(lambdas=[1e3, 10.0]),
    }[name]()


def problem(case: str) -> tuple[Any, Any, np.ndarray, np.ndarray | None]:
    """Logits as an array and as a tensor, labels, weights."""
    rng = np.random.default_rng(1)
    labels = rng.integers(N_CLASSES, size=N_ROWS)
    logits = 2.0 * (rng.normal(size=(N_ROWS, N_CLASSES)) + 2.0 * np.eye(N_CLASSES)[labels])
    weights = None
    if case == "weights":
        weights = rng.random(N_ROWS)
        weights[:20] = 0.0
    if case == "masked":
        hidden = rng.random(logits.shape) < 0.2
        hidden[np.arange(N_ROWS), labels] = False
        logits[hidden] = -np.inf
    if case == "bfloat16":
        tensor = torch.from_numpy(logits).bfloat16()
        return tensor.float().numpy(), tensor, labels, weights
    array = logits.astype({"float16": np.float16, "float64": np.float64}.get(case, np.float32))
    return array, torch.from_numpy(array), labels, weights


def fitted(name: str, logits: Any, labels: Any, weights: Any, transformed: Any) -> Any:
    calibrator = made(name)
    extra = {"transformed": transformed} if calibrator.needs_transformed else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both warn alike, if they do
        return calibrator.fit(logits, labels, weights, **extra)


@pytest.fixture
def views_stay_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """ReCal's transformed logits as `TensorLogits`, as they would be on a GPU."""

    def keep(view: Any, *, name: str = "logits") -> Any:
        return TensorLogits(view) if isinstance(view, torch.Tensor) else as_logits(view, name=name)

    monkeypatch.setattr(recal, "as_logits", keep)


def assert_same(one: Any, other: Any, path: str = "") -> None:
    """Two states, number by number."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert_same(value, other[key], key)
    elif isinstance(one, (list, tuple)):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b, path)
    elif isinstance(one, (float, int, np.ndarray)):
        rtol = LOOSE.get(path, 1e-8)
        np.testing.assert_allclose(other, one, rtol=rtol, atol=1e-8, err_msg=path)
    else:
        assert one == other, path


@pytest.mark.usefixtures("views_stay_tensors")
@pytest.mark.parametrize("case", ["float32", "weights", "masked"])
@pytest.mark.parametrize("name", METHODS)
def test_a_fit_on_a_tensor_is_the_fit_on_the_array(name: str, case: str) -> None:
    array, tensor, labels, weights = problem(case)
    transformed = views(array).astype(np.float32)
    expected = fitted(name, array, labels, weights, transformed)
    found = fitted(name, TensorLogits(tensor), labels, weights, torch.from_numpy(transformed))
    assert_same(expected._state(), found._state())
    assert (expected.fit_scores_ is None) == (found.fit_scores_ is None)
    if expected.fit_scores_ is not None:  # float32 exponentials may put one a level higher
        assert np.abs(np.cumsum(expected.fit_scores_.count - found.fit_scores_.count)).max() <= 1
    if name == "recal":
        return
    data = TensorLogits(tensor)
    np.testing.assert_array_equal(labels_of(data, expected), expected.predict(array))
    np.testing.assert_allclose(
        confidence_of(data, expected), expected.predict_confidence(array), atol=1e-10
    )


@pytest.mark.parametrize("case", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["temps", "vecs", "hoki chosen", "hoki sampled", "irm"])
def test_every_float_type_fits_alike(name: str, case: str) -> None:
    array, tensor, labels, _ = problem(case)
    expected = fitted(name, array, labels, None, None)
    found = fitted(name, TensorLogits(tensor), labels, None, None)
    assert_same(expected._state(), found._state())


@pytest.mark.usefixtures("views_stay_tensors")
@pytest.mark.parametrize("name", METHODS)
def test_no_fit_copies_the_logits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ways out of a tensor raise for as many numbers as there are logits."""
    array, tensor, labels, weights = problem("weights")
    data = TensorLogits(tensor)
    transformed = torch.from_numpy(views(array).astype(np.float32))

    def guarded(way: str) -> Any:
        plain = getattr(torch.Tensor, way)

        def call(self: Any, *args: Any, **options: Any) -> Any:
            assert self.numel() < array.size, f"{way} of {tuple(self.shape)}"
            return plain(self, *args, **options)

        return call

    for way in ("cpu", "numpy", "tolist", "__array__"):
        monkeypatch.setattr(torch.Tensor, way, guarded(way))
    with pytest.raises(AssertionError, match="cpu of"):
        tensor.cpu()
    calibrator = fitted(name, data, labels, weights, transformed)
    if name != "recal":
        calibrator.certify(data, labels)
        calibrator.predict_or_abstain(data)
        calibrator.predict_interval(data)
        calibrator.score(data, labels)


def test_what_would_copy_the_logits_says_so() -> None:
    data = TensorLogits(torch.zeros(3, 2))
    for way in (
        lambda: data.margins(slice(0, 3)),
        lambda: data.block(slice(0, 3)),
        data.row_blocks,
    ):
        with pytest.raises(TypeError, match=r"would copy the logits .* pass `logits.cpu\(\)`"):
            way()


def test_a_fit_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    from hokical.integrations.torch.fits import isotonic, vectors
    from hokical.integrations.torch.kernels import rows

    _, tensor, labels, weights = problem("weights")
    for name in ("temps", "ets", "irm", "irova_ts", "vecs", "hoki gaussian", "ms_odir"):
        whole = fitted(name, TensorLogits(tensor), labels, weights, None)
        with monkeypatch.context() as patch:
            for module in (rows, isotonic, vectors):
                patch.setattr(module, "CHUNK_SIZE", 1000)
            cut = fitted(name, TensorLogits(tensor), labels, weights, None)
        assert_same(whole._state(), cut._state())


def test_classes_without_examples_fit_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from hokical.integrations.torch.fits import isotonic

    array, tensor, labels, _ = problem("masked")
    few = np.where(labels < 2, labels, array.argmax(axis=1) % 2)
    array[np.arange(N_ROWS), few] = np.maximum(array[np.arange(N_ROWS), few], -1.0)
    monkeypatch.setattr(isotonic, "CHUNK_SIZE", 1)  # a class at a time
    for name in ("irova_ts", "irm", "vecs", "ms_odir"):
        expected = fitted(name, array, few, None, None)
        found = fitted(name, TensorLogits(tensor), few, None, None)
        assert_same(expected._state(), found._state())


def test_an_impossible_truth_is_warned_of() -> None:
    _, tensor, labels, _ = problem("masked")
    tensor[0, labels[0]] = -torch.inf
    for name in ("temps", "ms_odir", "irm"):
        with pytest.warns(RuntimeWarning, match="-inf"):
            made(name).fit(TensorLogits(tensor), labels)


def test_a_fit_without_mistakes_ends_alike() -> None:
    array, tensor, *_ = problem("float32")
    labels = array.argmax(axis=1)
    for name in ("temps", "ets", "profile", "vecs"):
        expected = fitted(name, array, labels, None, None)
        assert_same(
            expected._state(), fitted(name, TensorLogits(tensor), labels, None, None)._state()
        )
    even = np.zeros((4, 3), np.float32)
    expected = fitted("temps", even, [0, 0, 0, 0], None, None)
    found = fitted("temps", TensorLogits(torch.from_numpy(even)), [0, 0, 0, 0], None, None)
    assert_same(expected._state(), found._state())
