"""Torch tensors, as far as the core knows them: it meets them, and never imports torch itself.

Whoever hands in a tensor has imported torch already; only then is `hokical.integrations.torch`
loaded, which does the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])
Answer = TypeVar("Answer")


def is_tensor(data: Any) -> bool:
    """Whether this is a torch tensor.

    >>> is_tensor([1.0])
    False
    """
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return kind is not None and isinstance(data, kind)


def predict_tensor(calibrator: Any, method: str, logits: Any, **options: Any) -> Any:
    """What a calibrator's `predict...` gives for a tensor: tensors on its device."""
    from hokical.integrations.torch.predicting import predict_tensors

    return predict_tensors(calibrator, method, logits, **options)


def predicts_tensors(method: Method) -> Method:
    """Let a calibrator's `predict...` take tensors as well."""

    @wraps(method)
    def call(self: Any, logits: Any, **options: Any) -> Any:
        if is_tensor(logits):
            return predict_tensor(self, method.__name__, logits, **options)
        return method(self, logits, **options)

    return cast(Method, call)


def answers_with_tensors(method: Method) -> Method:
    """Let a method whose first argument is logits answer with tensors where these are one.

    What it gives (an array, a tuple of arrays, or a record of arrays, one entry per example) is
    then put on the logits' device.
    """

    @wraps(method)
    def call(self: Any, logits: Any, *args: Any, **options: Any) -> Any:
        answer = method(self, logits, *args, **options)
        return answer_like(logits, answer)

    return cast(Method, call)


def answer_like(logits: Any, answer: Answer) -> Answer:
    """The answer as it is, or with its arrays as tensors where the logits are a tensor."""
    if not is_tensor(logits):
        return answer
    from hokical.integrations.torch.tensors import to_tensors

    return cast(Answer, to_tensors(answer, logits.device))
