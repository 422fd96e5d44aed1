"""A model's answers, and Axes that are closed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")


@pytest.fixture
def answers() -> tuple[np.ndarray, np.ndarray]:
    """800 confidences with ties, and whether each was right: a model that is too
    sure.
    """
    rng = np.random.default_rng(3)
    confidence = np.round(rng.beta(5.0, 1.5, size=800), 2)
    confidence[:2] = 0.0, 1.0
    return confidence, rng.uniform(size=800) < confidence**1.5


@pytest.fixture
def ax() -> Iterator[Any]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    yield axes
    figure.canvas.draw()  # what cannot be drawn fails here
    plt.close("all")
