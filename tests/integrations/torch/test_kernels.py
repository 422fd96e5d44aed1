"""The portable functions give on tensors what they give on arrays, on all sorts of
logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import Gaussian, Gumbel, Uniform
from hokical.guarantees.scores import label_log_odds
from hokical.rules import Logits, as_logits
from hokical.stability import gaussian, gumbel, uniform
from hokical.stability.sampled import Draws, survivals
from hokical.stability.tables import gaussian_quadrature
from tests.conftest import random_rows
from tests.integrations.torch.examples import (
    as_on_device,
    extreme_rows,
    off,
    suite_arrays,
    torch_backend,
)

torch = pytest.importorskip("torch")


SCALES = (0.7, 2.0, 8.0)
SMOOTH = [
    gaussian.stability,
    gaussian.distribution,
    gumbel.stability,
    gumbel.distribution,
]


def real(name: str, n: int) -> np.ndarray:
    return suite_arrays(name)["val_logits"][:n]


def awkward() -> np.ndarray:
    values = extreme_rows()
    values[6] *= 1e300
    return values


CASES = {
    "cifar10": lambda: real("cifar10_resnet110", 1000).astype(np.float32),
    "cifar100": lambda: real("cifar100_wrn28_10", 300).astype(np.float64),
    "imagenet": lambda: real("imagenet_efficientnet_lite0_val", 200).astype(np.float16),
    "awkward": awkward,
    "two classes": lambda: 3.0 * np.random.default_rng(1).normal(size=(50, 2)),
    "many classes": lambda: 0.2 * np.random.default_rng(2).normal(size=(12, 5000)),
}


@pytest.fixture(params=list(CASES))
def pair(request: pytest.FixtureRequest) -> tuple[Logits, Logits]:
    """The same rows as an array and as a tensor."""
    values = CASES[request.param]()
    return as_logits(values), as_on_device(torch.from_numpy(values))


@pytest.mark.parametrize("scale", SCALES)
def test_stability(pair: tuple[Logits, Logits], scale: float) -> None:
    host, there = pair
    assert (
        off(gaussian.stability(host, scale), gaussian.stability(there, scale)) < 1e-12
    )
    assert off(gumbel.stability(host, scale), gumbel.stability(there, scale)) < 1e-14
    limit = 1e-12 if host.n_columns <= 16 else 2e-7
    assert off(uniform.stability(host, scale), uniform.stability(there, scale)) < limit


def test_distributions(pair: tuple[Logits, Logits]) -> None:
    for function in (gaussian.distribution, gumbel.distribution):
        assert off(*(function(logits, 2.0) for logits in pair)) < 1e-13


def test_log_products(pair: tuple[Logits, Logits]) -> None:
    rule = gaussian_quadrature(-8.1)
    assert off(*(gaussian.log_products(logits, 2.0, rule) for logits in pair)) < 1e-9


def test_scores(pair: tuple[Logits, Logits]) -> None:
    assert off(*(label_log_odds(logits) for logits in pair)) < 1e-6


@pytest.mark.parametrize("noise", [Gaussian(2.0), Uniform(-3.0, 1.0), Gumbel(1.0)])
def test_sampled_counts_are_the_same(pair: tuple[Logits, Logits], noise: Any) -> None:
    draws = Draws(noise, 5, 37, pair[0].n_classes)
    assert off(*(survivals(logits, draws) for logits in pair)) == 0


@given(
    n_classes=st.integers(2, 90),
    spread=st.floats(0.01, 30.0),
    scale=st.floats(0.05, 50.0),
    seed=st.integers(0, 99),
)
def test_random_rows(n_classes: int, spread: float, scale: float, seed: int) -> None:
    host = random_rows(n_classes, spread, seed)
    there = as_on_device(torch.from_numpy(host.values))
    assert (
        off(gaussian.stability(host, scale), gaussian.stability(there, scale)) < 1e-12
    )
    assert off(gumbel.stability(host, scale), gumbel.stability(there, scale)) < 1e-14
    assert off(uniform.stability(host, scale), uniform.stability(there, scale)) < 1e-7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_dtypes_are_widened(dtype: torch.dtype) -> None:
    narrow = torch.randn(50, 20, generator=torch.Generator().manual_seed(0)).to(dtype)
    host, there = as_logits(narrow.float().numpy()), as_on_device(narrow)
    draws = Draws(Gaussian(1.0), 5, 37, 20)
    assert off(gaussian.stability(host, 1.0), gaussian.stability(there, 1.0)) < 1e-12
    assert off(uniform.stability(host, 1.0), uniform.stability(there, 1.0)) < 1e-7
    assert off(survivals(host, draws), survivals(there, draws)) == 0
    assert there.labels.tolist() == host.labels.tolist()
    assert there.top.tolist() == host.top.tolist()


def every_result(values: torch.Tensor) -> list[torch.Tensor]:
    logits = as_on_device(values)
    return [
        gaussian.stability(logits, 1.3),
        gumbel.stability(logits, 1.3),
        uniform.stability(logits, 2.5),
        gaussian.distribution(logits, 1.3),
        gumbel.distribution(logits, 1.3),
        survivals(logits, Draws(Gaussian(1.0), 5, 9, values.shape[1])),
        label_log_odds(logits),
        logits.possible_counts,
    ]


@pytest.fixture
def some_rows() -> torch.Tensor:
    return torch.randn(53, 80, generator=torch.Generator().manual_seed(4)) * 1.5


def test_blocks_do_not_show(
    some_rows: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = every_result(some_rows)
    monkeypatch.setattr(type(torch_backend()), "block_size", 500)
    for expected, got in zip(whole, every_result(some_rows), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


def test_strides_do_not_show(some_rows: torch.Tensor) -> None:
    wide = torch.zeros(53, 160)
    wide[:, ::2] = some_rows
    for strided in (some_rows.T.contiguous().T, wide[:, ::2]):
        for expected, got in zip(
            every_result(some_rows), every_result(strided), strict=True
        ):
            torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


def test_autocast_changes_nothing(some_rows: torch.Tensor) -> None:
    expected = every_result(some_rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = every_result(some_rows)
    for a, b in zip(expected, got, strict=True):
        assert torch.equal(a, b)


def test_scale_may_be_a_tensor(some_rows: torch.Tensor) -> None:
    scale, logits = torch.tensor(1.3, dtype=torch.float64), as_on_device(some_rows)
    for function in (*SMOOTH, uniform.stability):
        torch.testing.assert_close(function(logits, scale), function(logits, 1.3))


def of_tensors(function: Any) -> Any:
    return lambda values, scale: function(as_on_device(values), scale)


@pytest.mark.parametrize("function", SMOOTH)
def test_gradients(function: Any) -> None:
    values = torch.randn(
        5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    values[0] *= 20.0  # some classes out of reach
    scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        of_tensors(function), (values.requires_grad_(), scale)
    )


def test_second_gradient() -> None:
    values = torch.randn(
        3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    function = of_tensors(gaussian.stability)
    assert torch.autograd.gradgradcheck(function, (values.requires_grad_(), scale))


@pytest.mark.parametrize("function", SMOOTH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_impossible_classes_have_gradient_zero(
    function: Any, dtype: torch.dtype
) -> None:
    values = torch.tensor(
        [[1.0, -torch.inf, 0.5], [0.0, -torch.inf, -torch.inf]], dtype=dtype
    )
    values.requires_grad_()
    scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    of_tensors(function)(values, scale).square().sum().backward()
    assert values.grad.dtype == dtype
    assert torch.isfinite(values.grad).all()
    assert torch.isfinite(scale.grad)
    assert not values.grad[values == -torch.inf].any()
    assert values.grad[0, 0] != 0.0


def test_uniform_stability_has_the_gradient_that_would_be_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = torch.randn(
        30, 80, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )
    values.requires_grad_()
    width = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    weights = torch.linspace(-1.0, 1.0, 30, dtype=torch.float64)
    (expected,) = torch.autograd.grad(
        uniform.portable_stability(as_on_device(values), width) @ weights,
        values,
        retain_graph=True,
    )
    monkeypatch.setattr(type(torch_backend()), "block_size", 1_000_000)
    found, by_width = torch.autograd.grad(
        uniform.stability(as_on_device(values), width) @ weights, (values, width)
    )
    torch.testing.assert_close(found, expected)
    assert torch.isfinite(by_width)
    few = values[:3, :6].detach().requires_grad_()
    assert torch.autograd.gradcheck(
        of_tensors(uniform.stability), (few, width), eps=1e-7
    )


@pytest.mark.parametrize(
    "function", [gaussian.stability, gumbel.stability, uniform.stability]
)
def test_a_gradient_keeps_few_arrays_of_the_size_of_the_logits(function: Any) -> None:
    values = torch.randn(40, 1000, dtype=torch.float64, requires_grad=True)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        function(as_on_device(values), 1.3)
    assert sum(kept.values()) < 4 * values.nbytes


def test_exported_graphs_take_any_number_of_rows() -> None:
    draws = Draws(Gaussian(1.0), 2, 9, 70)

    def some_results(values: torch.Tensor) -> list[torch.Tensor]:
        logits = as_on_device(values)
        return [
            gaussian.stability(logits, 1.3),
            uniform.stability(logits, 2.5),
            survivals(logits, draws),
        ]

    class Some(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> list[torch.Tensor]:
            return some_results(values)

    values, more = (
        torch.randn(n, 70, generator=torch.Generator().manual_seed(n)) for n in (6, 11)
    )
    rows_axis = {0: torch.export.Dim("rows", min=1)}
    program = torch.export.export(
        Some(), (values,), dynamic_shapes=(rows_axis,), strict=False
    )
    for expected, got in zip(some_results(more), program.module()(more), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-8)
