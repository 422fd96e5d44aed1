"""Fixtures shared by all tests: real logits where they are, and synthetic ones
everywhere.
"""

from __future__ import annotations

import json
import os
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from scipy.stats import binom

from hokical._core import storage
from hokical.rules import Logits, as_logits

#: Examples of a property that says no number of its own; `make test` takes the profile
#: of few.
EXAMPLES, FEW_EXAMPLES = 40, 10
# Derandomised: the same examples on every machine, and no deadline on shared ones.
for _name, _most in (("few", FEW_EXAMPLES), ("steady", EXAMPLES)):
    settings.register_profile(
        _name, derandomize=True, deadline=None, max_examples=_most
    )
settings.load_profile("steady")

#: Logits of networks that we trained; they come with the repository.
SUITE = Path(__file__).resolve().parents[1] / "suite"
#: Options by method for tests of other things than the search over penalties, which
#: takes long.
QUICK = {name: {"lambdas": [1e-2], "mus": [1e-2]} for name in ("ms_odir", "dir_odir")}


def max_examples(most: int) -> settings:
    """So many examples of a property, or as many times fewer as the chosen profile
    has.
    """
    return settings(
        max_examples=max(3, most * settings.default.max_examples // EXAMPLES)
    )


#: By night, long simulations are repeated as often as makes their shares exact.
NIGHTLY = bool(os.environ.get("HOKICAL_SIMULATE"))


def repetitions(nightly: int, otherwise: int) -> int:
    """Of a long simulation, with HOKICAL_SIMULATE=1 and without."""
    return nightly if NIGHTLY else otherwise


def hold_often(held: npt.ArrayLike, trials: int, share: float = 0.93) -> bool:
    """Whether at least this share holds; without HOKICAL_SIMULATE, as far as few trials
    can tell.

    Trials that hold with this chance come out as not holding often once in a thousand
    times.
    """
    least = share * trials if NIGHTLY else binom.ppf(1e-3, trials, share)
    return bool(np.all(np.asarray(held) >= least))


def peak_memory(call: Callable[[], object]) -> int:
    """Bytes that a call allocates at most, in Python and NumPy."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once() -> Iterator[None]:
    """Typer's runner would put all commands together for every call."""
    from typer import testing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", cache(testing._get_command))
        yield


def quiet_fit(calibrator: Any, *data: Any, **options: Any) -> Any:
    """`calibrator.fit`, without warnings about convergence or few examples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return calibrator.fit(*data, **options)


@pytest.fixture(scope="session")
def resnet110() -> dict[str, np.ndarray]:
    """Validation and test logits of a ResNet-110 on CIFAR-10."""
    return read_pair("cifar10_resnet110")


def read_pair(name: str) -> dict[str, np.ndarray]:
    """A pair of the suite: val_logits, val_labels, test_logits, test_labels."""
    with np.load(SUITE / f"{name}.npz") as file:
        wanted = ("val_logits", "val_labels", "test_logits", "test_labels")
        return {key: _widen(file[key]) for key in wanted if key in file}


def _widen(array: np.ndarray) -> np.ndarray:
    """Logits are stored as float16; labels as whatever holds them."""
    return (
        array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int64)
    )


@pytest.fixture(scope="session")
def overconfident() -> tuple[np.ndarray, np.ndarray]:
    """3000 examples of 6 classes: logits stretched by 3, so the softmax says too
    much.
    """
    return synthetic_logits(3000, 6, seed=7)


def synthetic_logits(
    n: int, n_classes: int, *, seed: int, stretch: float = 3.0, signal: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n)
    logits = rng.normal(size=(n, n_classes)) + signal * np.eye(n_classes)[labels]
    return stretch * logits, labels


def softmax_examples(
    n: int,
    n_classes: int = 6,
    *,
    seed: int = 0,
    spread: float = 1.5,
    stretch: float = 2.0,
    uneven: float = 0.0,
    masked: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Logits `stretch` times too large, those of some rows more so by `uneven`, and
    labels from the true probabilities; a share `masked` of the classes is impossible.
    """
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n, n_classes))
    if masked:
        is_masked = rng.random((n, n_classes - 1)) < masked
        logits[:, 1:][is_masked] = -np.inf
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    row_stretch = np.exp(uneven * rng.normal(size=(n, 1)))
    return stretch * row_stretch * logits, labels


def grouped_examples(
    n: int, *, seed: int, n_classes: int = 4, effect: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, labels, and sites whose sharpness and class shares differ."""
    rng = np.random.default_rng(seed)
    site = rng.integers(0, 5, n)
    of_sites = np.random.default_rng(99)
    sharpness = 1.0 + effect * of_sites.uniform(-0.7, 0.3, 5)
    bias = effect * of_sites.normal(size=(5, n_classes))
    logits = 2.0 * rng.normal(size=(n, n_classes))
    scores = sharpness[site][:, None] * logits + bias[site]
    labels = np.argmax(scores + rng.gumbel(size=logits.shape), axis=1)
    return logits, labels, np.array(["a", "b", "c", "d", "e"])[site]


def real_logits(name: str, limit: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """The first validation rows of a pair of the suite."""
    pair = read_pair(name)
    part = "val" if "val_logits" in pair else "test"
    return pair[f"{part}_logits"][:limit], pair[f"{part}_labels"][:limit]


def random_rows(n_classes: int, spread: float, seed: int, n: int = 6) -> Logits:
    """A few rows of normal logits, the first all tied and the second tied at the
    top.
    """
    values = spread * np.random.default_rng(seed).normal(size=(n, n_classes))
    values[0] = 0.0
    values[1, : max(2, n_classes // 3)] = values[1].max()
    return as_logits(values)


def topk_rows(n_classes: int, spread: float, seed: int, n: int = 8) -> np.ndarray:
    """Logits with a tie at the top in row 0 and impossible classes in row 1."""
    values = spread * np.random.default_rng(seed).normal(size=(n, n_classes))
    values[0, 1:3] = values[0].max()
    values[1, n_classes // 2 :] = -np.inf
    return values


def encoded(value: Any) -> Any:
    """A value as a file has it."""
    return storage._encode(value)


def write_encoded(path: Path, body: dict[str, Any]) -> None:
    """A file of what is encoded already, damaged or forged, with a true checksum."""
    head = {"format": storage.FORMAT, "format_version": storage.FORMAT_VERSION}
    whole = head | body
    path.write_text(json.dumps(whole | {"checksum": storage.checksum(whole)}))
