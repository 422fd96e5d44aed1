"""Fixtures shared by all tests: real logits where they are, and synthetic ones everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from hokical.logits import Logits, as_logits

# Derandomised: the same examples on every machine, and no deadline on shared ones.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("steady")

LOGIT_FILES = Path(__file__).resolve().parents[2] / "shared" / "data" / "logits"


@pytest.fixture(scope="session")
def resnet110() -> dict[str, np.ndarray]:
    """Validation and test logits of a ResNet-110 on CIFAR-10."""
    path = LOGIT_FILES / "cifar10_resnet110_nncal.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not on this machine")
    with np.load(path) as file:
        return {key: file[key] for key in file}


@pytest.fixture(scope="session")
def overconfident() -> tuple[np.ndarray, np.ndarray]:
    """3000 examples of 6 classes: logits stretched by 3, so the softmax says too much."""
    return synthetic_logits(3000, 6, seed=7)


def synthetic_logits(
    n: int, n_classes: int, *, seed: int, stretch: float = 3.0, signal: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n)
    logits = rng.normal(size=(n, n_classes)) + signal * np.eye(n_classes)[labels]
    return stretch * logits, labels


def real_logits(name: str, limit: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of a file of real logits, or a skip where the file is not."""
    path = LOGIT_FILES / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"no real logits here: {path.name} is absent")
    with np.load(path) as data:
        part = "val" if "val_logits" in data else "test"
        labels = data[f"{part}_labels"][:limit].astype(np.int64)
        return data[f"{part}_logits"][:limit], labels


def random_rows(n_classes: int, spread: float, seed: int, n: int = 6) -> Logits:
    """A few rows of normal logits, the first all tied and the second tied at the top."""
    values = spread * np.random.default_rng(seed).normal(size=(n, n_classes))
    values[0] = 0.0
    values[1, : max(2, n_classes // 3)] = values[1].max()
    return as_logits(values)
