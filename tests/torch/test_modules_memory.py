"""What modules hold at a time is a matter of the chunk, not of the number of rows."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from tests.torch.examples import fitted, synthetic_logits, views

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from hokical.integrations.torch import as_module  # noqa: E402
from hokical.integrations.torch.kernels import rows  # noqa: E402
from hokical.integrations.torch.modules.recal import ReCalModule  # noqa: E402
from hokical.integrations.torch.tensors import TensorLogits  # noqa: E402


class Largest(TorchDispatchMode):
    """The largest number of elements that an operation allocated."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        places = {place(x) for x in args if isinstance(x, torch.Tensor)}
        answer = func(*args, **(kwargs or {}))
        if isinstance(answer, torch.Tensor) and place(answer) not in places:  # not a view
            self.numel = max(self.numel, answer.numel())
        return answer


def place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_possible_classes_are_counted_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.tensor(synthetic_logits(60, 50, seed=0)[0])
    values[values < 0.0] = -torch.inf
    monkeypatch.setattr(rows, "CHUNK_SIZE", 500)
    with Largest() as largest:
        counts = TensorLogits(values).all_possible_counts
    np.testing.assert_array_equal(counts, np.isfinite(values.numpy()).sum(axis=1))
    assert 0 < largest.numel <= 500


@pytest.mark.parametrize("name", ["temps", "ets", "vecs", "hoki gumbel"])
def test_confidence_is_computed_in_chunks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = as_module(fitted(name))
    logits = torch.tensor(synthetic_logits(400, 5, seed=9)[0])
    monkeypatch.setattr(rows, "CHUNK_SIZE", 500)
    with Largest() as largest, torch.no_grad():
        module(logits)
    assert 0 < largest.numel <= 500


def test_recal_lets_go_of_a_chunk_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    module = as_module(fitted("recal"))
    logits = synthetic_logits(60, 5, seed=9)[0]
    tensor, transformed = torch.tensor(logits), torch.tensor(views(logits))
    monkeypatch.setattr(rows, "CHUNK_SIZE", 100)
    replay, made, alive = ReCalModule._replay, [], []

    def watched(self: Any, *given: Any) -> Any:
        alive.append(sum(one() is not None for one in made))
        scaled = replay(self, *given)
        made.append(weakref.ref(scaled.raw))
        return scaled

    monkeypatch.setattr(ReCalModule, "_replay", watched)
    with torch.no_grad():
        module(tensor, transformed=transformed)
        module.proba(tensor, transformed=transformed)
    assert len(made) > 10
    assert max(alive) <= 1
