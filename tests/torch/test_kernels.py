"""The plain torch kernels give what the core gives, on real, random and adversarial logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical.guarantees import scores as core_scores
from hokical.logits import Logits, as_logits
from hokical.noise import Gaussian, Gumbel, Uniform
from hokical.stability import gaussian as core_gaussian
from hokical.stability import gumbel as core_gumbel
from hokical.stability import profile as core_profile
from hokical.stability import sampled as core_sampled
from hokical.stability import uniform as core_uniform
from tests.conftest import random_rows
from tests.torch.examples import extreme_rows, off, suite_arrays

torch = pytest.importorskip("torch")

from hokical.integrations.torch.kernels import (  # noqa: E402
    gaussian,
    gumbel,
    profile,
    rows,
    sampled,
    scores,
    uniform,
)

SCALES = (0.7, 2.0, 8.0)


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
def pair(request: pytest.FixtureRequest) -> tuple[Logits, torch.Tensor]:
    values = CASES[request.param]()
    return as_logits(values), torch.from_numpy(values)


@pytest.mark.parametrize("scale", SCALES)
def test_gaussian(pair: tuple[Logits, torch.Tensor], scale: float) -> None:
    core, values = pair
    assert off(core_gaussian.stability(core, scale), gaussian.stability(values, scale)) < 1e-12


@pytest.mark.parametrize("scale", SCALES)
def test_gumbel(pair: tuple[Logits, torch.Tensor], scale: float) -> None:
    core, values = pair
    assert off(core_gumbel.stability(core, scale), gumbel.stability(values, scale)) < 1e-14


@pytest.mark.parametrize("width", SCALES)
def test_uniform(pair: tuple[Logits, torch.Tensor], width: float) -> None:
    core, values = pair
    limit = 1e-12 if core.n_columns <= 16 else 2e-7
    assert off(core_uniform.stability(core, width), uniform.stability(values, width)) < limit


def test_distributions(pair: tuple[Logits, torch.Tensor]) -> None:
    core, values = pair
    for there, here in ((core_gaussian, gaussian), (core_gumbel, gumbel)):
        assert off(there.distribution(core, 2.0), here.distribution(values, 2.0)) < 1e-13


def test_log_products(pair: tuple[Logits, torch.Tensor]) -> None:
    core, values = pair
    rule = core_gaussian.gaussian_rule(-8.1)
    expected = core_gaussian.log_products(core, slice(0, core.n_rows), 2.0, rule)
    assert off(expected, gaussian.log_products(values, 2.0, rule)) < 1e-9


def test_profile(pair: tuple[Logits, torch.Tensor]) -> None:
    core, values = pair
    log_odds, chances = core_profile.log_odds_and_profile(core, 1.5, [0.5, 1.0, 3.0])
    torch_log_odds, torch_chances = profile.log_odds_and_profile(values, 1.5, [0.5, 1.0, 3.0])
    assert off(log_odds, torch_log_odds) < 1e-12
    # Beyond exp(-700) float64 has no more digits, and the last nodes of a chance of 1e-9 few.
    assert off(np.maximum(chances, -700.0), torch_chances.clamp(min=-700.0)) < 2e-6


def test_scores(pair: tuple[Logits, torch.Tensor]) -> None:
    core, values = pair
    assert off(core_scores.label_log_odds(core), scores.label_log_odds(values)) < 1e-6


@pytest.mark.parametrize("noise", [Gaussian(2.0), Uniform(-3.0, 1.0), Gumbel(1.0)])
def test_sampled_counts_are_the_same(pair: tuple[Logits, torch.Tensor], noise: object) -> None:
    core, values = pair
    draws = core_sampled.Draws(noise, 5, 37, core.n_classes)
    np.testing.assert_array_equal(
        core_sampled.survivals(core, draws), sampled.survivals(values, draws).numpy()
    )


def test_sampled_ties_go_to_the_first_class() -> None:
    noise = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 1.0, 1.0]])
    values = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    # Row 1 of the noise ties classes 1 and 2 of the last row, and class 1 wins.
    assert sampled.survivals(values, noise).tolist() == [1, 3, 2]


@given(
    n_classes=st.integers(2, 90),
    spread=st.floats(0.01, 30.0),
    scale=st.floats(0.05, 50.0),
    seed=st.integers(0, 99),
)
def test_random_rows(n_classes: int, spread: float, scale: float, seed: int) -> None:
    core = random_rows(n_classes, spread, seed)
    values = torch.from_numpy(core.values)
    assert off(core_gaussian.stability(core, scale), gaussian.stability(values, scale)) < 1e-12
    assert off(core_gumbel.stability(core, scale), gumbel.stability(values, scale)) < 1e-14
    assert off(core_uniform.stability(core, scale), uniform.stability(values, scale)) < 1e-7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_dtypes_are_widened(dtype: torch.dtype) -> None:
    narrow = torch.randn(50, 20, generator=torch.Generator().manual_seed(0)).to(dtype)
    core = as_logits(narrow.float().numpy())
    draws = core_sampled.Draws(Gaussian(1.0), 5, 37, 20)
    assert off(core_gaussian.stability(core, 1.0), gaussian.stability(narrow, 1.0)) < 1e-12
    assert off(core_uniform.stability(core, 1.0), uniform.stability(narrow, 1.0)) < 1e-7
    np.testing.assert_array_equal(
        core_sampled.survivals(core, draws), sampled.survivals(narrow, draws)
    )
    assert rows.labels(narrow).tolist() == core.labels.tolist()
    assert rows.top(narrow).tolist() == core.top.tolist()


def every_result(values: torch.Tensor) -> list[torch.Tensor]:
    draws = core_sampled.Draws(Gaussian(1.0), 5, 9, values.shape[1])
    return [
        gaussian.stability(values, 1.3),
        gumbel.stability(values, 1.3),
        uniform.stability(values, 2.5),
        gaussian.distribution(values, 1.3),
        gumbel.distribution(values, 1.3),
        sampled.survivals(values, draws),
        *profile.log_odds_and_profile(values, 1.1, [0.5, 2.0]),
        scores.label_log_odds(values),
    ]


@pytest.fixture
def some_rows() -> torch.Tensor:
    return torch.randn(53, 80, generator=torch.Generator().manual_seed(4)) * 1.5


def test_chunks_do_not_show(some_rows: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = every_result(some_rows)
    monkeypatch.setattr(rows, "CHUNK_SIZE", 500)
    for expected, got in zip(whole, every_result(some_rows), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


def test_strides_do_not_show(some_rows: torch.Tensor) -> None:
    wide = torch.zeros(53, 160)
    wide[:, ::2] = some_rows
    for strided in (some_rows.T.contiguous().T, wide[:, ::2]):
        for expected, got in zip(every_result(some_rows), every_result(strided), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


def test_autocast_changes_nothing(some_rows: torch.Tensor) -> None:
    expected = every_result(some_rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = every_result(some_rows)
    for a, b in zip(expected, got, strict=True):
        assert torch.equal(a, b)


def test_scale_may_be_a_tensor(some_rows: torch.Tensor) -> None:
    scale = torch.tensor(1.3, dtype=torch.float64)
    for kernel in (gaussian.stability, gumbel.stability, uniform.stability, gaussian.distribution):
        torch.testing.assert_close(kernel(some_rows, scale), kernel(some_rows, 1.3))


@pytest.mark.parametrize(
    "kernel", [gaussian.stability, gaussian.distribution, gumbel.stability, gumbel.distribution]
)
def test_gradients(kernel: object) -> None:
    values = torch.randn(5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values[0] *= 20.0  # some classes out of reach
    scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(kernel, (values.requires_grad_(), scale))


def test_second_gradient() -> None:
    values = torch.randn(3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(gaussian.stability, (values.requires_grad_(), scale))


@pytest.mark.parametrize(
    "kernel", [gaussian.stability, gaussian.distribution, gumbel.stability, gumbel.distribution]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_impossible_classes_have_gradient_zero(kernel: object, dtype: torch.dtype) -> None:
    values = torch.tensor([[1.0, -torch.inf, 0.5], [0.0, -torch.inf, -torch.inf]], dtype=dtype)
    values.requires_grad_()
    scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    kernel(values, scale).square().sum().backward()
    assert values.grad.dtype == dtype
    assert torch.isfinite(values.grad).all()
    assert torch.isfinite(scale.grad)
    assert not values.grad[values == -torch.inf].any()
    assert values.grad[0, 0] != 0.0


def test_exported_graphs_take_any_number_of_rows() -> None:
    draws = torch.randn(9, 70, generator=torch.Generator().manual_seed(2))

    def some_results(values: torch.Tensor) -> list[torch.Tensor]:
        return [
            gaussian.stability(values, 1.3),
            uniform.stability(values, 2.5),
            sampled.survivals(values, draws),
        ]

    class Some(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> list[torch.Tensor]:
            return some_results(values)

    values, more = (torch.randn(n, 70, generator=torch.Generator().manual_seed(n)) for n in (6, 11))
    rows_axis = {0: torch.export.Dim("rows", min=1)}
    program = torch.export.export(Some(), (values,), dynamic_shapes=(rows_axis,), strict=False)
    for expected, got in zip(some_results(more), program.module()(more), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-8)
