"""What of a module is no tensor: the kind of its rule, and its numbers as they are checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils import _pytree

from hokical.rules.base import Rule


class Frame:
    """A rule for so many classes. Graphs take it for a constant, so it is never changed.

    >>> from hokical.rules.softmax import TemperatureRule
    >>> Frame(TemperatureRule(2.0), 5)
    temps, 5 classes
    """

    def __init__(self, rule: Rule, n_classes: int) -> None:
        self.rule, self.n_classes = rule, n_classes
        #: How many transformed inputs there must be logits of.
        self.n_transforms = int(getattr(rule, "n_transforms", 0))
        #: The buffers that hold the numbers to compute with, by what the rule calls them.
        self.numbers = {name: _legal(name) for name in rule.numbers()}
        self._kind = ", ".join([rule.name, f"{n_classes} classes", *_structure(rule)])

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return self._kind

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the buffers hold, by their names; `kind` is this frame's text."""
        held = self.rule.numbers() | self.rule.indices()
        kind = np.frombuffer(self._kind.encode(), np.uint8)
        return {"kind": kind} | {_legal(name): np.asarray(value) for name, value in held.items()}

    def with_arrays(self, arrays: dict[str, NDArray[Any]]) -> Frame:
        """The same with other numbers; ValueError if they are of another kind, or of no fit."""
        kind = arrays["kind"].tobytes().decode(errors="replace")
        if kind != self._kind:
            raise ValueError(
                f"the module is for {self}; got the numbers of {kind}. Make it from a calibrator "
                'of that kind, for example from its file: `as_module(hokical.load("cal.json"))`.'
            )
        names = (*self.rule.numbers(), *self.rule.indices())
        numbers = {name: arrays[_legal(name)] for name in names}
        plain = {name: array if array.ndim else float(array) for name, array in numbers.items()}
        try:
            loaded = self.rule.with_numbers(plain, check=True)
        except ValueError as error:
            raise ValueError(f"the numbers are not those of a fit: {error}") from error
        if loaded.n_classes not in (None, self.n_classes):
            raise ValueError(
                f"the numbers must be for {self.n_classes} classes; got {loaded.n_classes}."
            )
        return Frame(loaded, self.n_classes)


if hasattr(_pytree, "register_constant"):  # from torch 2.7 on
    _pytree.register_constant(Frame)


def _legal(name: str) -> str:
    """What a buffer can be called."""
    return name.replace(".", "_")


def _structure(record: Any, prefix: str = "") -> Iterator[str]:
    """What of a rule is no number to load: kinds of records, names, counts, choices."""
    for field in dataclasses.fields(record):
        name, value = prefix + field.name, getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            yield f"{name}={type(value).__name__}"
            yield from _structure(value, f"{name}.")
        elif value is None or isinstance(value, (str, int)):
            yield f"{name}={value}"
