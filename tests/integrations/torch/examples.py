"""Fitted calibrators of every method, and rows on which modules and the core must
agree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import Gaussian, Gumbel, Uniform
from hokical.calibrators import Calibrator, make
from hokical.rules import Logits
from tests.conftest import quiet_fit

SUITE = Path(__file__).resolve().parents[3] / "suite"

#: What to call a calibrator, and how to make it.
MAKERS: dict[str, Callable[[], Calibrator]] = {
    **{
        name: (lambda name=name: make(name))
        for name in ("uncalibrated", "temps", "vecs", "ets", "irm", "irova_ts", "auto")
    },
    "structured": lambda: make("structured"),
    "hoki gaussian": lambda: make("hoki", noise=Gaussian(2.0)),
    "hoki uniform": lambda: make("hoki", noise=Uniform(-3.0, 3.0)),
    "hoki gumbel": lambda: make("hoki", noise=Gumbel(1.5)),
    "hoki sampled": lambda: make(
        "hoki", noise=Gaussian(2.0), draws=100, random_state=3
    ),
}
NAMES = list(MAKERS)


def synthetic_logits(
    n: int, n_classes: int, *, seed: int, stretch: float = 3.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of an overconfident classifier, and true classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n)
    logits = rng.normal(size=(n, n_classes)) + 2.0 * np.eye(n_classes)[labels]
    return stretch * logits, labels


def torch_backend() -> Any:
    """What is particular to tensors; torch is imported when it is asked for."""
    from hokical.integrations.torch.backend import BACKEND

    return BACKEND


def as_on_device(values: Any) -> Logits:
    """Checked logits of a tensor on the host, treated as if it were on another
    device.
    """
    return Logits(values, values.amax(dim=1).double(), torch_backend())


def fitted_on(name: str, logits: np.ndarray, labels: np.ndarray) -> Calibrator:
    calibrator = MAKERS[name]()
    return quiet_fit(calibrator, logits, labels)


@cache
def fitted(name: str, seed: int = 0, n_classes: int = 5) -> Calibrator:
    """On synthetic logits; do not change it."""
    return fitted_on(name, *synthetic_logits(800, n_classes, seed=seed))


def awkward(logits: np.ndarray) -> np.ndarray:
    """The rows (20 or more), some now masked, tied, huge, tiny, shifted, with one
    class left.
    """
    rng = np.random.default_rng(1)
    rows = logits.astype(np.float64)
    masked = rng.random((8, rows.shape[1])) < 0.5
    masked[np.arange(8), np.arange(8) % rows.shape[1]] = False
    rows[:8][masked] = -np.inf
    rows[8] = 0.0
    rows[9, :3] = rows[9].max()
    rows[10, 1:] = -np.inf
    rows[11, :-1] = -np.inf
    rows[12] *= 1e3
    rows[13] *= 1e-12
    rows[14] += 1e4
    rows[15, 0], rows[15, 1:] = 0.0, -1e300
    return rows


def suite_arrays(name: str) -> dict[str, np.ndarray]:
    """The arrays of a file of the suite; skips where it is not there."""
    path = SUITE / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    with np.load(path) as file:
        return dict(file)


def extreme_rows() -> np.ndarray:
    """Ties of all, of some, near ties, impossible classes, one possible class, a
    huge spread.
    """
    values = np.random.default_rng(3).normal(size=(40, 300))
    values[0] = 0.0
    values[1, :100] = values[1].max()
    values[2] *= 1e-4
    values[3, 5:] = -np.inf
    values[4, 1:] = -np.inf
    values[5] *= 50.0
    return values


def data_parallel(network: Any) -> Any:
    """The network in `DataParallel`, on the host also where there are GPUs: it would
    move there, and its answers with it.
    """
    import torch

    wrapped = torch.nn.DataParallel(network)
    wrapped.device_ids = []
    wrapped.module.cpu()
    return wrapped


def off(expected: np.ndarray, got: Any) -> float:
    """Between an array and a tensor; equal infinities differ by 0."""
    array = got.detach().cpu().numpy()
    assert array.shape == expected.shape
    with np.errstate(invalid="ignore"):
        return float(np.where(array == expected, 0.0, np.abs(array - expected)).max())
