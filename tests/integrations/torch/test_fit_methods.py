"""Every method fitted on logits in a tensor is the method fitted on the array.

`as_on_device` makes tensors of this machine take the path that tensors on a GPU take.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hokical import Gaussian, Hoki, select_noise
from tests.conftest import quiet_fit
from tests.fitted import label_scores, with_fit_record
from tests.integrations.torch.examples import MAKERS, as_on_device, torch_backend

torch = pytest.importorskip("torch")


N_ROWS, N_CLASSES = 240, 12
#: What an inverse of nearly collinear features is known to.
LOOSE = {"familiar.precision": 1e-6}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "hoki chosen": ("hoki gaussian", {"noise": "auto"}),
}
METHODS = [*MAKERS, *VARIANTS]


def made(name: str) -> Any:
    base, options = VARIANTS.get(name, (name, {}))
    return MAKERS[base]().set_params(**options)


def problem(case: str) -> tuple[Any, Any, np.ndarray, np.ndarray | None]:
    """Logits as an array and as a tensor, labels, weights."""
    rng = np.random.default_rng(1)
    labels = rng.integers(N_CLASSES, size=N_ROWS)
    logits = 2.0 * (
        rng.normal(size=(N_ROWS, N_CLASSES)) + 2.0 * np.eye(N_CLASSES)[labels]
    )
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
    array = logits.astype(
        {"float16": np.float16, "float64": np.float64}.get(case, np.float32)
    )
    return array, torch.from_numpy(array), labels, weights


def given(logits: Any) -> Any:
    """Arrays as they are, tensors as on a device."""
    return as_on_device(logits) if isinstance(logits, torch.Tensor) else logits


def fitted(name: str, logits: Any, labels: Any, weights: Any = None) -> Any:
    return quiet_fit(
        made(name), given(logits), labels, weights
    )  # both warn alike, if they do


def assert_same(one: Any, other: Any) -> None:
    """Two fits, number by number."""
    assert type(one.rule_) is type(other.rule_)
    for numbers in ("numbers", "indices"):
        expected, found = getattr(one.rule_, numbers)(), getattr(other.rule_, numbers)()
        assert expected.keys() == found.keys()
        for name, number in expected.items():
            rtol = LOOSE.get(name, 1e-8)
            np.testing.assert_allclose(
                found[name], number, rtol=rtol, atol=1e-8, err_msg=name
            )


@pytest.mark.parametrize("case", ["float32", "weights", "masked"])
@pytest.mark.parametrize("name", METHODS)
def test_a_fit_on_a_tensor_is_the_fit_on_the_array(name: str, case: str) -> None:
    array, tensor, labels, weights = problem(case)
    expected = fitted(name, array, labels, weights)
    found = fitted(name, tensor, labels, weights)
    assert_same(expected, found)
    assert (label_scores(expected) is None) == (label_scores(found) is None)
    if (
        label_scores(expected) is not None
    ):  # float32 exponentials may put one a level higher
        assert (
            np.abs(
                np.cumsum(label_scores(expected).count - label_scores(found).count)
            ).max()
            <= 1
        )
    there = given(tensor)
    np.testing.assert_array_equal(
        expected.predict(there), expected.predict(given(array))
    )
    np.testing.assert_allclose(
        expected.predict_confidence(there),
        expected.predict_confidence(given(array)),
        atol=1e-10,
    )


@pytest.mark.parametrize("case", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "name", ["temps", "vecs", "hoki chosen", "hoki sampled", "irm"]
)
def test_every_float_type_fits_alike(name: str, case: str) -> None:
    array, tensor, labels, _ = problem(case)
    assert_same(fitted(name, array, labels), fitted(name, tensor, labels))


#: With all examples of a weight above 0 too, but for fits that sort on the host or try
#: many widths.
COPYING = [(name, "weights") for name in METHODS] + [
    (name, "float32") for name in ("temps", "vecs", "structured", "auto")
]


@pytest.mark.parametrize(("name", "case"), COPYING)
def test_no_fit_copies_the_logits(
    name: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ways out of a tensor raise for as many numbers as there are logits, but for
    Hessians.

    `certify` is left out: it counts the probabilities of each class on the host.
    """
    array, tensor, labels, weights = problem(case)
    data = given(tensor)
    # With so few, the default leaves examples out on the host.
    monkeypatch.setattr("hokical._fitting.structured.FEW_LOGITS", 0)

    def guarded(way: str) -> Any:
        plain = getattr(torch.Tensor, way)

        def call(self: Any, *args: Any, **options: Any) -> Any:
            square = self.ndim == 2 and self.shape[0] == self.shape[1]
            assert square or self.numel() < array.size, f"{way} of {tuple(self.shape)}"
            return plain(self, *args, **options)

        return call

    @contextmanager
    def guards() -> Iterator[None]:
        with monkeypatch.context() as patch:
            for way in ("cpu", "numpy", "tolist", "__array__"):
                patch.setattr(torch.Tensor, way, guarded(way))
            yield

    with guards(), warnings.catch_warnings():
        with pytest.raises(AssertionError, match="cpu of"):
            tensor.cpu()
        warnings.simplefilter("ignore")
        calibrator = made(name).fit(data, labels, weights)
    # So that the same rows can certify it.
    calibrator = with_fit_record(calibrator, sketch=None)
    calibrator.certify(data, labels)
    with guards():
        calibrator.predict_or_abstain(data)
        calibrator.predict_interval(data)
        calibrator.score(data, labels)


def test_a_fit_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    _, tensor, labels, weights = problem("weights")
    for name in (
        "temps",
        "ets",
        "irm",
        "irova_ts",
        "vecs",
        "hoki gaussian",
        "structured",
    ):
        whole = fitted(name, tensor, labels, weights)
        with monkeypatch.context() as patch:
            patch.setattr(type(torch_backend()), "block_size", 1000)
            cut = fitted(name, tensor, labels, weights)
        assert_same(whole, cut)


def test_classes_without_examples_fit_alike() -> None:
    array, tensor, labels, _ = problem("masked")
    few = np.where(labels < 2, labels, array.argmax(axis=1) % 2)
    array[np.arange(N_ROWS), few] = np.maximum(array[np.arange(N_ROWS), few], -1.0)
    for name in ("irova_ts", "irm", "vecs", "structured"):
        assert_same(fitted(name, array, few), fitted(name, tensor, few))


def test_an_impossible_truth_is_warned_of() -> None:
    _, tensor, labels, _ = problem("masked")
    tensor[0, labels[0]] = -torch.inf
    for name in ("temps", "structured", "irm"):
        with pytest.warns(RuntimeWarning, match="-inf"):
            made(name).fit(as_on_device(tensor), labels)


def test_a_fit_without_mistakes_ends_alike() -> None:
    array, tensor, *_ = problem("float32")
    labels = array.argmax(axis=1)
    for name in ("temps", "ets", "vecs"):
        assert_same(fitted(name, array, labels), fitted(name, tensor, labels))
    even = np.zeros((4, 3), np.float32)
    expected = fitted("temps", even, [0, 0, 0, 0])
    assert_same(expected, fitted("temps", torch.from_numpy(even), [0, 0, 0, 0]))


@pytest.mark.parametrize("name", ["temps", "hoki chosen", "vecs"])
def test_a_tensor_on_the_host_is_fitted_as_the_array(name: str) -> None:
    array, tensor, labels, _ = problem("float32")
    truth = torch.from_numpy(labels)
    found = made(name).fit(tensor.clone().requires_grad_(), truth, torch.ones(N_ROWS))
    expected = made(name).fit(array, labels)
    assert_same(expected, found)
    assert found.score(tensor, truth) == pytest.approx(expected.score(array, labels))


def test_partial_fit_takes_tensors() -> None:
    array, tensor, labels, _ = problem("float32")
    expected = Hoki(noise=Gaussian(2.0)).fit(array, labels)
    found = Hoki(noise=Gaussian(2.0)).fit(tensor[:100], labels[:100])
    found.partial_fit(as_on_device(tensor[100:]), labels[100:])
    assert_same(expected, found)


@pytest.mark.parametrize(
    "families", [["gaussian"], ["uniform"], ["gumbel", "gaussian"]]
)
def test_the_noise_chosen_is_the_same(families: list[str]) -> None:
    array, tensor, labels, _ = problem("float32")
    weights = np.arange(N_ROWS) % 3 * 1.0
    expected, found = (
        select_noise(logits, labels, families=families, sample_weight=weights)
        for logits in (array, as_on_device(tensor))
    )
    assert [trial.noise for trial in found.trials] == [
        trial.noise for trial in expected.trials
    ]
    assert found.sigma_hat == pytest.approx(expected.sigma_hat, rel=1e-9)
