"""A fitted method is a rule: a few frozen numbers and one pure function of logits.

A rule defines the labels, the confidence and the probabilities of logits, once, for arrays of
every library: the estimator's `fit` makes it, files store it, the torch module wraps it, ONNX
traces it. It is a frozen dataclass whose annotations say what its numbers must be, so that a file
can hold only what a fit can make.

Its methods see a block of checked rows. They must not look at values to decide what to do next
(`if bool(...)`), because graphs are traced through them. `predict_blocks` predicts for checked
logits: in blocks of rows, in their library and type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import AnyArray, Array, FloatArray
from hokical._core.checks import Checked
from hokical._core.logits import Logits, at_label, block_rows, by_blocks, lend_room, work_on_rows
from hokical._core.parallel import map_slices
from hokical._core.storage import storable
from hokical._core.topk import TopK, mark_seen
from hokical.rules.probabilities import distribute_remainder, keep_above_zero, keep_first_maximum


class Rule(Checked):
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


Output = Literal["labels", "confidence", "proba", "members"]
#: Those with a number for every class.
OF_CLASSES = frozenset({"proba", "members"})
#: Elements of NumPy's buffers: operations on tables and columns take twice as long with its 8192,
#: into which it copies the columns.
_BUFFER = 512


def predict_blocks(rule: Rule, what: Output, logits: Logits, *, narrow: bool = False) -> Array:
    """Labels (n,), confidence (n,) or probabilities (n, classes), float64 where they are floats.

    "members" (n, classes), bool, are the output of a `SetRule`. NumPy's probabilities are float32
    if `narrow`.
    """
    if what == "labels" and rule.preserves_labels:
        return logits.labels
    here = rule.on_device_of(logits)
    if what == "proba":
        if logits.is_numpy:
            return _fill_blocks(here, logits, np.float32 if narrow else np.float64)
        return by_blocks(partial(_shown_probabilities, here), logits, logits.n_classes)
    per_row = logits.n_classes if what in OF_CLASSES else None
    return by_blocks(getattr(here, what), logits, per_row)


def predict_on_host(rule: Rule, what: Output, logits: Logits) -> NDArray[Any]:
    """`predict_blocks` in full precision, as an array of NumPy."""
    with logits.backend.in_float64():
        return logits.to_host(predict_blocks(rule, what, logits))


def labels_and_confidence(rule: Rule, logits: Logits) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both (n,) in full precision, as arrays of NumPy, from one pass over the rows."""
    here = rule.on_device_of(logits)

    def work(block: Logits) -> tuple[Array, Array]:
        if rule.preserves_labels:
            return block.labels, here.confidence(block)
        xp, proba = logits.xp, here.proba(block)
        return xp.argmax(proba, axis=1), xp.max(proba, axis=1)

    with logits.backend.in_float64():
        labels, confidence = by_blocks(work, logits)
        return logits.to_host(labels), logits.to_host(confidence)


def predict_all(rule: Rule, logits: Logits) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """Labels and confidence (n,) and probabilities (n, classes) on the host, from one prediction.

    A `TopK` does not determine probabilities: None.
    """
    if isinstance(logits, TopK):
        whats: tuple[Output, Output] = ("labels", "confidence")
        labels, confidence = (predict_on_host(rule, what, logits) for what in whats)
        return labels, confidence, None
    proba = predict_on_host(rule, "proba", logits)
    labels = logits.to_host(logits.labels) if rule.preserves_labels else proba.argmax(axis=1)
    return labels, np.take_along_axis(proba, labels[:, None], axis=1)[:, 0], proba


def _fill_blocks(rule: Rule, logits: Logits, dtype: type[np.floating[Any]]) -> AnyArray:
    """NumPy's probabilities (n, classes), written into their place."""
    out = np.empty((logits.n_rows, logits.n_classes), dtype)

    def fill(rows: slice) -> None:
        block, into = logits.take(rows), out[rows]
        if dtype is np.float64:
            lend_room(block, into)
        default = np.setbufsize(_BUFFER)
        try:
            found = work_on_rows(partial(probabilities, rule), block)
        finally:
            np.setbufsize(default)
        if found is not into:
            into[...] = to_float32(found) if dtype is np.float32 else found

    map_slices(fill, logits.n_rows, block_rows(logits, logits.n_classes))
    return out


def _shown_probabilities(rule: Rule, block: Logits) -> Array:
    """Probabilities (n, classes) in which a label that is the likeliest class stays the first."""
    found = probabilities(rule, block)
    return found if rule.preserves_labels else keep_first_maximum(found, block)


def probabilities(rule: Rule, block: Logits) -> Array:
    """Probabilities (n, classes) of a block; the hidden classes of a `TopK` share evenly."""
    if isinstance(block, TopK):
        return _proba_of_best(rule, block)
    return keep_above_zero(rule.proba(block), block)


def set_probabilities(rule: Rule, logits: Logits) -> Array:
    """Probabilities (n, classes) for sets; of hidden classes the most that each may have.

    That is the probability of the least likely class seen, or all that the seen ones leave.
    """
    proba = probabilities(rule, logits)
    if not isinstance(logits, TopK):
        return proba
    seen = mark_seen(logits)
    least = np.min(proba, axis=1, where=seen & (proba > 0.0), initial=1.0)
    left = np.maximum(1.0 - np.sum(proba, axis=1, where=seen), 0.0)
    most = np.nextafter(np.minimum(least, left), 0.0)  # behind the seen ones
    return np.where(seen, proba, most[:, None])


def to_float32(found: FloatArray) -> NDArray[np.float32]:
    """As float32, in which the first maximum of a row (n, classes) stays the first."""
    small = found.astype(np.float32)
    if small.ndim == 2:
        best = found.argmax(axis=1)
        for row in np.flatnonzero(small.argmax(axis=1) != best):
            earlier, own = small[row, : best[row]], small[row, best[row]]
            np.minimum(earlier, np.nextafter(own, np.float32(0.0)), out=earlier)
    return small


def predict_unchecked(rule: Rule, what: Output, logits: Logits) -> Array:
    """`predict_blocks` for unchecked logits: NaN for rows that `as_logits` would refuse."""
    found = predict_blocks(rule, what, logits)
    if what == "labels":
        return found
    xp = logits.xp
    sound = xp.isfinite(logits.top)
    if what == "members":
        return found & sound[:, None]
    return xp.where(sound if what == "confidence" else sound[:, None], found, xp.nan)


def _proba_of_best(rule: Rule, logits: TopK) -> Array:
    """The confidence for the label, the rest as if hidden classes were equals.

    The label's share among these need not be its confidence, the midpoint of two bounds for some.
    """
    dense = logits.fill()
    shared = distribute_remainder(dense, rule.confidence(logits), rule.proba(dense), 1.0)
    return keep_above_zero(shared, dense)
