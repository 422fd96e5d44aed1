"""Portable functions with faster forms: who answers, and for what."""

from __future__ import annotations

import numpy as np

from hokical._core.accelerate import accelerated
from hokical._core.logits import Logits, as_logits


def make() -> object:
    @accelerated
    def top(logits: Logits, more: float = 0.0) -> str:
        """The portable one."""
        return "portable"

    return top


def test_the_portable_form_answers_where_no_other_can() -> None:
    top, logits = make(), as_logits(np.zeros((3, 4)))
    assert top(logits) == "portable"
    top.register(lambda logits, *_: False)(lambda logits, *_: "never")
    assert top(logits) == "portable"
    assert top.__name__ == "top"
    assert top.__doc__ == "The portable one."


def test_the_latest_usable_form_is_asked_first() -> None:
    top, logits = make(), as_logits(np.zeros((3, 4)))
    top.register(lambda logits, *_: True)(lambda logits, *_: "first")
    top.register(lambda logits, more=0.0: more > 1.0)(lambda logits, *_: "second")
    assert top(logits) == "first"
    assert top(logits, 2.0) == "second"
    assert top.portable(logits, 2.0) == "portable"
