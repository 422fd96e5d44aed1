"""Where Triton cannot run, plain torch does: with one warning, or none if told
beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hokical.rules import Logits
from hokical.stability import Gumbel, gaussian, gumbel, uniform
from hokical.stability.noise import FAMILIES
from tests.integrations.torch.examples import as_on_device

torch = pytest.importorskip("torch")

from hokical.integrations.torch import backend  # noqa: E402


def softmax_confidence(logits: Logits, scale: float) -> Any:
    return torch.softmax(logits.values.double() / scale, dim=1).amax(dim=1)


KERNELS = "hokical.integrations.torch.kernels"


def gaussian_of_numpy(logits: Logits, scale: float) -> Any:
    host = Logits(logits.values.numpy(), logits.top.numpy())
    return torch.from_numpy(gaussian.stability(host, scale))


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
    "gaussian": (gaussian.stability, gaussian_of_numpy, 1.3),
    "gumbel": (gumbel.stability, softmax_confidence, 1.3),
    "uniform": (uniform.stability, uniform.portable_stability, 2.5),
}


@pytest.fixture
def logits() -> Logits:
    return as_on_device(torch.randn(7, 6, generator=torch.Generator().manual_seed(0)))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was tried: any tensor is taken for one on a GPU without a C compiler."""
    tried: list[str] = []

    class Kernels:
        def __getattr__(self, name: str) -> Any:
            tried.append(name)
            raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(backend, "usable", lambda *_: not backend._broken)
    monkeypatch.setattr(backend, "_broken", False)
    monkeypatch.setitem(sys.modules, KERNELS, Kernels())
    monkeypatch.setattr(torch.cuda, "device_of", lambda _: torch.no_grad())
    return tried


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_failed_launch_is_told_once(
    name: str, logits: Logits, launches: list[str]
) -> None:
    function, portable, argument = FUNCTIONS[name]
    with pytest.warns(
        RuntimeWarning, match=r"Failed to find C compiler.*HOKICAL_TRITON=0"
    ):
        got = function(logits, argument)
    assert torch.equal(got, function(logits, argument))
    torch.testing.assert_close(got, portable(logits, argument), rtol=1e-12, atol=1e-12)
    for again, _, given in FUNCTIONS.values():
        again(logits, given)
    assert len(launches) == 1


def test_memory_that_runs_out_is_no_reason(
    logits: Logits, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setitem(sys.modules, KERNELS, SimpleNamespace(gumbel_stability=full))
    with pytest.raises(torch.OutOfMemoryError):
        gumbel.stability(logits, 1.0)
    assert not backend._broken


@pytest.mark.parametrize("kernel", [None, "plain_stability"])
def test_a_family_without_a_kernel_falls_back_alone(
    kernel: str | None,
    logits: Logits,
    launches: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it says so, or names one that is not there."""

    class Plain(Gumbel):
        exact_stability = staticmethod(softmax_confidence)

    monkeypatch.setattr(Plain, "kernel", kernel)
    monkeypatch.setitem(
        sys.modules, KERNELS, SimpleNamespace(gumbel_stability=fused_confidence)
    )
    widths = np.array([0.7, 1.3])
    expected = [softmax_confidence(logits, scale) for scale in widths.tolist()]
    assert torch.equal(Plain.stabilities(logits, widths), torch.stack(expected))
    assert torch.equal(Plain(0.7).stability(logits), expected[0])
    # The other families still have theirs.
    assert torch.equal(gumbel.stability(logits, 1.3), fused_confidence(logits))
    assert Gumbel.stabilities(logits, widths).tolist() == [2.0] * 7


def fused_confidence(values: Any, *_: Any) -> Any:
    """What no portable function gives: 2 for every row of seven."""
    return torch.full((7,), 2.0, dtype=torch.float64)


def test_every_family_that_names_a_kernel_is_sent_to_it(
    logits: Logits, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [family.kernel for family in FAMILIES.values() if family.kernel]
    assert len(names) >= 3
    stub = SimpleNamespace(**dict.fromkeys(names, fused_confidence))
    monkeypatch.setitem(sys.modules, KERNELS, stub)
    for family in FAMILIES.values():
        if family.kernel:
            assert family.of_width(1.3).stability(logits).tolist() == [2.0] * 7


def test_kernels_that_families_name_are_in_the_source() -> None:
    source = Path(backend.__file__).with_name("kernels.py").read_text(encoding="utf-8")
    names = [family.kernel for family in FAMILIES.values() if family.kernel]
    assert names
    for name in names:
        assert f"\ndef {name}(values: Tensor" in source


class _OnGPU:
    """As much of a tensor on a GPU as `usable` looks at."""

    is_cuda, requires_grad = True, False

    def numel(self) -> int:
        return 6


def test_the_environment_says_whether_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_has_triton", True)
    monkeypatch.setattr(backend, "_broken", False)
    monkeypatch.setattr(backend, "is_wrapped", lambda _: False)
    monkeypatch.setattr(backend, "is_in_graph", lambda _: False)
    monkeypatch.delenv("HOKICAL_TRITON", raising=False)
    assert backend.usable(_OnGPU())
    monkeypatch.setenv("HOKICAL_TRITON", "0")
    assert not backend.usable(_OnGPU())


def test_gradients_and_the_host_are_left_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "_has_triton", True)
    monkeypatch.setattr(backend, "_broken", False)
    monkeypatch.setattr(backend, "is_wrapped", lambda _: False)
    monkeypatch.setattr(backend, "is_in_graph", lambda _: False)
    tracked = torch.tensor(1.0, requires_grad=True)
    assert backend.usable(_OnGPU(), 1.0)
    assert not backend.usable(_OnGPU(), tracked)
    with torch.no_grad():
        assert backend.usable(_OnGPU(), tracked)
    assert not backend.usable(torch.zeros(3, 2))


def test_tensors_of_torch_func_are_left_to_torch() -> None:
    seen = []

    def look(values: torch.Tensor) -> torch.Tensor:
        seen.append(backend.is_wrapped(values))
        return values

    torch.func.vmap(look)(torch.zeros(3, 2))
    look(torch.zeros(3, 2))
    assert seen == [True, False]
