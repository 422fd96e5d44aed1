"""Gradients through the portable code: finite, and those of finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hokical.rules import as_logits
from hokical.stability import gaussian, gumbel, uniform

torch = pytest.importorskip("torch")

ROWS = np.array(
    [
        [1.0, 0.4, -0.3, 0.9, -2.0],
        [0.2, 3.0, 1.1, -np.inf, 0.7],
        [4.0, -np.inf, -np.inf, 2.5, -np.inf],
        [9.0, 1.5, 0.0, -3.0, -np.inf],
    ]
)
#: No difference of two logits, where the uniform noise's stability has a kink.
WIDTH = 1.37
#: Softly weighted sums of the answers to logits and a width, which may be tensors.
SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "gaussian": lambda x, width: _weighted(gaussian.stability(as_logits(x), width)),
    "gaussian, all": lambda x, width: _weighted(
        gaussian.distribution(as_logits(x), width)
    ),
    "gumbel": lambda x, width: _weighted(gumbel.stability(as_logits(x), width)),
    "gumbel, all": lambda x, width: _weighted(gumbel.distribution(as_logits(x), width)),
    "uniform": lambda x, width: _weighted(uniform.stability(as_logits(x), width)),
}


def _weighted(found: Any) -> Any:
    finite = torch.where(torch.isfinite(found), found, 0.0)
    return (
        finite * torch.cos(torch.arange(float(found.numel())).reshape(found.shape))
    ).sum()


def value(work: Callable[[Any, Any], Any], x: Any, width: float) -> float:
    return float(work(x, torch.tensor(width, dtype=torch.float64)).detach())


def slope(at: Callable[[float], float], step: float = 2e-3) -> float:
    """The derivative at 0 by five points, which errs by step^4 / 30 of the fifth one.

    The sums are accurate to about 1e-10: with this step that is 1e-7 in the slope, on
    any processor, and the formula's own error is smaller still.
    """
    near, far = at(step) - at(-step), at(2.0 * step) - at(-2.0 * step)
    return (8.0 * near - far) / (12.0 * step)


@pytest.mark.parametrize("name", SUMS)
def test_gradients_by_logits_are_finite_differences(name: str) -> None:
    work = SUMS[name]
    x = torch.tensor(ROWS, requires_grad=True)
    (found,) = torch.autograd.grad(work(x, torch.tensor(WIDTH, dtype=torch.float64)), x)
    assert torch.isfinite(found).all()
    assert (found[torch.isinf(x)] == 0.0).all()
    for i, k in np.argwhere(np.isfinite(ROWS)):

        def moved(change: float, i: int = i, k: int = k) -> float:
            rows = torch.tensor(ROWS, requires_grad=True)
            with torch.no_grad():
                rows[i, k] += change
            return value(work, rows, WIDTH)

        assert float(found[i, k]) == pytest.approx(slope(moved), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", SUMS)
def test_gradients_by_the_width_are_finite_differences(name: str) -> None:
    work, x = SUMS[name], torch.tensor(ROWS, requires_grad=True)
    width = torch.tensor(WIDTH, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(work(x, width), width)
    by_width = slope(lambda change: value(work, x, WIDTH + change))
    assert float(found) == pytest.approx(by_width, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", SUMS)
def test_a_row_with_one_class_and_a_far_lead(name: str) -> None:
    """Nothing to learn from either, and no NaN."""
    rows = torch.full((3, 90), -np.inf, dtype=torch.float64)
    rows[0, 4] = 1.0
    rows[1, :3] = torch.tensor([1e6, 0.0, -1e6])
    rows[2] = 0.0
    rows.requires_grad_()
    SUMS[name](rows, WIDTH).backward()
    assert torch.isfinite(rows.grad).all()
    assert (rows.grad[0] == 0.0).all()
