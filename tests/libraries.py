"""The array libraries that tests walk over, as far as they are installed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from hokical._core.arrays import backend_of, to_host
from hokical._core.logits import row_maxima
from hokical.rules import Logits, Rule, as_logits
from hokical.rules.base import Output, predict_blocks


@dataclass(frozen=True)
class Library:
    """How arrays of a library are made, read and told."""

    name: str
    make: Callable[[np.ndarray], Any]
    read: Callable[[Any], np.ndarray]
    owns: Callable[[Any], bool]
    scope: Callable[[], AbstractContextManager[Any]] = nullcontext


def _numpy() -> Library:
    return Library(
        "numpy", np.asarray, np.asarray, lambda array: isinstance(array, np.ndarray)
    )


def _strict() -> Library:
    strict = import_module("array_api_strict")
    kind = type(strict.asarray(0.0))
    return Library(
        "array_api_strict",
        strict.asarray,
        np.asarray,
        lambda array: isinstance(array, kind),
        lambda: np.errstate(
            over="ignore"
        ),  # it computes with NumPy, which remarks on infinities
    )


def _torch() -> Library:
    torch = import_module("torch")
    return Library("torch", torch.from_numpy, np.asarray, torch.is_tensor)


def _torch_with_gradient() -> Library:
    """What needs a gradient cannot go through NumPy: the portable code answers."""
    torch = import_module("torch")
    return Library(
        "torch",
        lambda array: torch.from_numpy(array).requires_grad_(),
        lambda tensor: tensor.detach().numpy(),
        torch.is_tensor,
    )


def _jax() -> Library:
    jax = import_module("jax")
    numpy = import_module("jax.numpy")
    return Library(
        "jax",
        numpy.asarray,
        np.asarray,
        lambda array: isinstance(array, jax.Array),
        lambda: jax.enable_x64(True),
    )


def _torch_cuda() -> Library:
    torch = import_module("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device")
    return Library(
        "torch",
        lambda array: torch.from_numpy(array).cuda(),
        lambda tensor: tensor.cpu().numpy(),
        lambda tensor: torch.is_tensor(tensor) and tensor.is_cuda,
    )


def _jax_cuda() -> Library:
    jax = import_module("jax")
    devices = [device for device in jax.devices() if device.platform == "gpu"]
    if not devices:
        pytest.skip("jax has no CUDA device")
    return replace(
        _jax(),
        make=lambda array: jax.device_put(array, devices[0]),
        owns=lambda array: (
            isinstance(array, jax.Array) and array.devices() == {devices[0]}
        ),
    )


def _cupy() -> Library:
    cupy = import_module("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("cupy has no CUDA device")
    return Library(
        "cupy",
        cupy.asarray,
        cupy.asnumpy,
        lambda array: isinstance(array, cupy.ndarray),
    )


_MAKERS = {
    "numpy": _numpy,
    "array_api_strict": _strict,
    "torch": _torch,
    "torch with gradient": _torch_with_gradient,
    "jax": _jax,
}
NAMES = list(_MAKERS)
_ON_DEVICES = {"torch cuda": _torch_cuda, "jax cuda": _jax_cuda, "cupy": _cupy}
#: Libraries on a GPU, for the walks that must hold there too.
DEVICES = list(_ON_DEVICES)


def get_library(name: str) -> Library:
    """A library by name, or a skip where it is not installed or has no device."""
    package = name.split()[0]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return (_MAKERS | _ON_DEVICES)[name]()


def in_library(values: Any, block_size: int | None = None) -> Logits:
    """Checked logits that stay in their library, even where NumPy could look at
    them.
    """
    home = backend_of(values)
    assert home is not None
    sizes = {} if block_size is None else {"block_size": block_size}
    backend = type("SmallBlocks", (type(home),), sizes)() if sizes else home
    return Logits(values, row_maxima(values, home), backend)


def answers(rule: Rule, given: Any) -> list[np.ndarray]:
    """Labels, confidences and probabilities of a rule, as NumPy arrays."""
    logits = as_logits(given)
    whats: tuple[Output, ...] = ("labels", "confidence", "proba")
    return [to_host(predict_blocks(rule, what, logits)) for what in whats]
