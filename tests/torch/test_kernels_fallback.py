"""Where Triton cannot run, plain torch does: with one warning, or none if told beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hokical.integrations.torch.kernels import (  # noqa: E402
    chebyshev,
    fused,
    gaussian,
    gumbel,
    sampled,
    uniform,
)

NOISE = torch.randn(9, 6, generator=torch.Generator().manual_seed(1))
KERNELS: dict[str, Callable[..., Any]] = {
    "gaussian": lambda values, **how: gaussian.stability(values, 1.3, **how),
    "gumbel": lambda values, **how: gumbel.stability(values, 1.3, **how),
    "uniform": lambda values, **how: uniform.stability(values, 2.5, **how),
    "sampled": lambda values, **how: sampled.survivals(values, NOISE, **how),
    "sums": lambda values, **how: chebyshev.sums(values, 0.2, **how),
}


@pytest.fixture
def values() -> torch.Tensor:
    return torch.randn(7, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was tried: any tensor is taken for one on a GPU without a C compiler."""
    tried: list[tuple[str, str]] = []

    def kernel(*name: str) -> Any:
        tried.append(name)
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(fused, "usable", lambda *_: True)
    monkeypatch.setattr(fused, "_broken", False)
    monkeypatch.setattr(fused, "_kernel", kernel)
    monkeypatch.setattr(fused, "_device_of", lambda _: torch.no_grad())
    return tried


@pytest.mark.parametrize("name", KERNELS)
def test_a_failed_launch_is_told_once(
    name: str, values: torch.Tensor, launches: list[tuple[str, str]]
) -> None:
    with pytest.warns(RuntimeWarning, match=r"Failed to find C compiler.*HOKICAL_TRITON=0"):
        got = KERNELS[name](values)
    assert torch.equal(got, KERNELS[name](values, plain=True))
    for again in KERNELS.values():
        again(values)
    assert len(launches) == 1


def test_memory_that_runs_out_is_no_reason(
    values: torch.Tensor, launches: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: str) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(fused, "_kernel", full)
    with pytest.raises(torch.OutOfMemoryError):
        gumbel.stability(values, 1.0)
    assert not fused._broken


class _OnGPU:
    """As much of a tensor on a GPU as `usable` looks at."""

    is_cuda, requires_grad = True, False

    def numel(self) -> int:
        return 6


def test_the_environment_says_whether_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_installed", lambda: True)
    monkeypatch.setattr(fused, "_is_wrapped", lambda _: False)
    monkeypatch.delenv("HOKICAL_TRITON", raising=False)
    assert fused.usable(_OnGPU())
    monkeypatch.setenv("HOKICAL_TRITON", "0")
    assert not fused.usable(_OnGPU())


def test_tensors_of_torch_func_are_left_to_torch() -> None:
    seen = []

    def look(values: torch.Tensor) -> torch.Tensor:
        seen.append(fused._is_wrapped(values))
        return values

    torch.func.vmap(look)(torch.zeros(3, 2))
    look(torch.zeros(3, 2))
    assert seen == [True, False]
