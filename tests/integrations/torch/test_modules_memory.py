"""What modules hold at a time is a matter of the block, not of the number of rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integrations.torch.examples import fitted, synthetic_logits, torch_backend

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from hokical.integrations.torch import as_module  # noqa: E402


class Largest(TorchDispatchMode):
    """The largest number of elements that an operation allocated."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        places = {place(x) for x in args if isinstance(x, torch.Tensor)}
        answer = func(*args, **(kwargs or {}))
        if (
            isinstance(answer, torch.Tensor) and place(answer) not in places
        ):  # not a view
            self.numel = max(self.numel, answer.numel())
        return answer


def place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "name", ["temps", "ets", "vecs", "hoki gumbel", "hoki gaussian", "irm"]
)
def test_confidence_is_computed_in_blocks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = as_module(fitted(name))
    logits = torch.tensor(synthetic_logits(2000, 5, seed=9)[0])
    monkeypatch.setattr(type(torch_backend()), "block_size", 2500)
    with Largest() as largest, torch.no_grad():
        module(logits)
    assert 0 < largest.numel <= 2500


def test_probabilities_are_narrowed_block_by_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = as_module(fitted("temps"))
    logits = torch.tensor(synthetic_logits(2000, 5, seed=9)[0]).float()
    monkeypatch.setattr(type(torch_backend()), "block_size", 2500)
    wide = 0

    class Wide(Largest):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ):
            nonlocal wide
            answer = super().__torch_dispatch__(func, types, args, kwargs)
            if isinstance(answer, torch.Tensor) and answer.dtype == torch.float64:
                wide = max(wide, answer.numel())
            return answer

    with Wide(), torch.no_grad():
        assert module.proba(logits).dtype == torch.float32
    assert 0 < wide <= 2500
