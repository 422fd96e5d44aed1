"""A fitted method is a rule: a few frozen numbers and one pure function of logits.

A rule defines the labels, the confidence and the probabilities of logits, once, for arrays of
every library: the estimator's `fit` makes it, files store it, the torch module wraps it, ONNX
traces it. It is a frozen dataclass whose `__post_init__` checks its numbers, so that a file can
hold only what a fit can make.

Its methods see a block of checked rows. They must not look at values to decide what to do next
(`if bool(...)`), because graphs are traced through them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np

from hokical._core.arrays import Array
from hokical._core.logits import Logits, at_label
from hokical._core.storage import storable


class Rule:
    """Base of all rules; a subclass is a frozen dataclass, and is stored under its `name`."""

    #: The method's name in the registry, in files, in tables and on the command line.
    name: ClassVar[str]
    #: True: the predicted label is the classifier's own. False: it is the most likely class, the
    #: first maximum of the probabilities, which can be another.
    preserves_labels: ClassVar[bool] = True
    #: True for methods that make do with the best logits of each row, as a `TopK`.
    accepts_top_k: ClassVar[bool] = False
    #: The checked logits it takes; a subclass of `Logits` for methods that need more than those.
    logits_kind: ClassVar[type[Logits]] = Logits
    #: The groups whose codes it needs beside logits, if it does (`GroupCoding`).
    needed_groups: Any = None
    #: True for methods that take two classes and no more.
    binary_only: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            storable(f"rule:{cls.name}")(cls)

    @property
    def n_classes(self) -> int | None:
        """How many classes the numbers are for; None where they suit any number."""
        return 2 if self.binary_only else None

    @property
    def core(self) -> Rule:
        """The rule that the method's own fit made; what is in front of it left out."""
        return self

    def labels(self, logits: Logits) -> Array:
        """The predicted labels, (n,) integers."""
        if self.preserves_labels:
            return logits.labels
        return logits.xp.argmax(self.proba(logits), axis=1)

    def confidence(self, logits: Logits) -> Array:
        """The probability that each predicted label is right, (n,) float64."""
        proba = self.proba(logits)
        return at_label(proba, logits) if self.preserves_labels else logits.xp.max(proba, axis=1)

    def proba(self, logits: Logits) -> Array:
        """Probabilities (n, classes) float64; rows sum to 1, masked classes get 0."""
        raise TypeError(f"{type(self).__name__} has no predictions.")

    def label_interval(self, logits: Logits) -> tuple[Array, Array] | None:
        """Lower and upper ends (n,) of the label's probability, if the rule itself has them."""
        return None

    def class_interval(self, logits: Logits, label: int) -> tuple[Array, Array] | None:
        """Lower and upper ends (n,) of the probability of a class, if the rule itself has them."""
        return None

    def own_fields(self) -> dict[str, Any]:
        """Its numbers as attributes of a calibrator, by name."""
        return {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}  # type: ignore[arg-type]

    @property
    def n_parameters(self) -> int:
        """How many numbers a fit chooses without a penalty on their size; 0 if that is no limit."""
        return 0

    @property
    def cheap_proba(self) -> bool:
        """Whether all probabilities cost little more than the confidence."""
        return True

    def numbers(self) -> dict[str, Any]:
        """The arrays and floats it computes with, by field, those of nested records with a dot."""
        return {name: value for name, value in _leaves(self) if not _is_index(value)}

    def indices(self) -> dict[str, Any]:
        """Its integer arrays, which say where numbers belong and stay on the host."""
        return {name: value for name, value in _leaves(self) if _is_index(value)}

    def with_numbers(self, numbers: dict[str, Any], *, check: bool = False) -> Self:
        """The same rule with other values for these fields, unchecked by default: tensors, say."""
        twin: Self = _rebuild(self, numbers.get, check=check)
        return twin

    def on_device_of(self, logits: Logits) -> Self:
        """The same rule with its arrays in the library and on the device of the logits."""
        if logits.is_numpy:
            return self

        def move(_: str, value: Any) -> Any:
            is_array = isinstance(value, np.ndarray) and not _is_index(value)
            return logits.from_host(value) if is_array else value

        twin: Self = _rebuild(self, move, check=False)
        return twin


def _leaves(record: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Arrays and floats of a record and of those in it."""
    for field in dataclasses.fields(record):
        name, value = prefix + field.name, getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{name}.")
        elif value is not None and not isinstance(value, (str, int, tuple)):
            yield name, value


def _is_index(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu"


def _rebuild(
    record: Any, change: Callable[[str, Any], Any], *, check: bool, prefix: str = ""
) -> Any:
    """A copy of a record and of those in it, with `change(name, value)` for each field."""
    twin = object.__new__(type(record))
    for name in record.__dataclass_fields__:
        value, full = getattr(record, name), prefix + name
        if hasattr(type(value), "__dataclass_fields__"):
            value = _rebuild(value, change, check=check, prefix=f"{full}.")
        object.__setattr__(twin, name, change(full, value))
    if check and hasattr(twin, "__post_init__"):
        twin.__post_init__()
    return twin
