"""Small blocks, so that a few thousand rows are many of them."""

from __future__ import annotations

import numpy as np
import pytest

from hokical import streams
from tests.conftest import synthetic_logits


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of some 500 rows."""
    monkeypatch.setattr(streams, "_KERNEL_BLOCKS", 2)
    monkeypatch.setattr(streams, "_FLOATS_BESIDE", 1000)


@pytest.fixture(scope="session")
def examples() -> tuple[np.ndarray, np.ndarray]:
    return synthetic_logits(4000, 5, seed=11)


@pytest.fixture(scope="session")
def weights() -> np.ndarray:
    found = np.random.default_rng(5).exponential(size=4000)
    found[:700] = 0.0  # whole blocks that do not count
    return found
