"""A fitted method is a rule: a few frozen numbers and one pure function of logits.

A rule defines the labels, the confidence and the probabilities of logits, once, for arrays of
every library: the estimator's `fit` makes it, files store it, the torch module wraps it, ONNX
traces it. It is a frozen dataclass whose annotations say what its numbers must be, so that a file
can hold only what a fit can make.

Its methods see a block of checked rows. They must not look at values to decide what to do next
(`if bool(...)`), because graphs are traced through them. `predict_blocks` predicts for checked
logits: in blocks of rows, in their library and type. Functions at the end are what several rules
need: log-probabilities, a softmax and its first maximum, shares of the rest.
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
from hokical._core.logits import (
    Logits,
    at_label,
    block_rows,
    by_blocks,
    column_numbers,
    label_mask,
    lend_room,
    put_at_label,
    put_masked,
    table_order,
    work_on_rows,
)
from hokical._core.parallel import map_slices
from hokical._core.special import at_least, exponential, normalized_exponential, row_sums
from hokical._core.storage import storable
from hokical._core.topk import TopK, mark_seen


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

    step = block_rows(logits, logits.n_classes)
    if logits.n_rows <= step:
        fill(slice(None))
    else:
        map_slices(fill, logits.n_rows, step)
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


#: No possible class gets less than this, in float64 and in float32; 0 is for masked ones.
LEAST, _LEAST_IN_FLOAT32 = 1e-300, 1e-37
#: Shares below this have lost their digits.
LEAST_SHARE = 1e-290
#: One rounding, relative, in float64 and in float32.
_ROUNDING, _ROUNDING_IN_FLOAT32 = 2.0**-52, 2.0**-23


def log_probabilities(logits: Logits) -> Array:
    """Log of the softmax, (n, columns); hugely negative where masked."""
    return -log_norms(logits.margins, logits) - logits.margins


def probabilities_and_logs(logits: Logits, temperature: Array) -> tuple[Array, Array]:
    """The softmax at a temperature and its log, (n, columns) each."""
    margins = logits.margins / temperature
    logs = -log_norms(margins, logits) - margins
    return logits.xp.exp(logs), logs


def log_norms(margins: Array, logits: Logits) -> Array:
    """Minus the log-probability of each row's label, (n, 1), from margins in temperatures.

    Precise for probabilities near 1.
    """
    odds = exponential(-margins, logits.xp)
    odds = put_at_label(odds, 0.0 * odds[:, :1], logits)
    return logits.xp.log1p(row_sums(odds, logits.xp))[:, None]


def floored_margins(logits: Logits, floor: Array, proba: Array | None = None) -> Array:
    """The distance of log(p + floor) below the label's, (n, columns), with the softmax p."""
    if logits.is_numpy and floor == 0.0:
        return logits.margins
    xp, proba = logits.xp, uncalibrated(logits) if proba is None else proba
    top = xp.max(proba, axis=1, keepdims=True)
    if logits.is_numpy:
        return np.log((top + floor) / (proba + floor))
    share = xp.ones_like(top) * floor  # not 0 + floor: onnxruntime takes 1e-50 for 0
    some = xp.where(share > 0.0, share, xp.ones_like(share))
    return xp.where(share > 0.0, xp.log((top + some) / (proba + some)), logits.margins)


def uncalibrated(logits: Logits) -> Array:
    """The softmax, (n, columns); 0 where masked."""
    return normalized_exponential(-logits.margins, logits.xp)


def add_floor(logits: Logits, floor: Array) -> Logits:
    """Logits log(p + floor) up to a constant in each row; masked classes and labels stay."""

    def work(block: Logits) -> Array:
        return put_masked(-floored_margins(block, floor), -block.xp.inf, block)

    values = by_blocks(work, logits)
    made = Logits(values, logits.xp.max(values, axis=1), logits.backend)
    made.__dict__["labels"] = logits.labels  # also where classes that differed have become equal
    return made


def softmax(scores: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) from scores; 0 where masked, whatever the score.

    NumPy's scores are overwritten.
    """
    xp = logits.xp
    scores = put_masked(scores, -xp.inf, logits)
    highest = xp.max(scores, axis=1, keepdims=True)
    below = np.subtract(scores, highest, out=scores) if xp is np else scores - highest
    return normalized_exponential(below, xp)


def as_scores(scores: Array, logits: Logits) -> Logits:
    """Scores (n, classes) as logits; the same classes are possible. NumPy's are overwritten."""
    values = put_masked(scores, -logits.xp.inf, logits)
    return Logits(values, logits.xp.max(values, axis=1), logits.backend)


def as_log_proba(proba: Array, logits: Logits) -> Logits:
    """Logits whose softmax are these probabilities (n, classes); the same classes are possible."""
    return as_scores(logits.xp.log(at_least(proba, LEAST, logits.xp)), logits)


def first_maximum(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) with the label as first maximum, by one rounding if needed.

    At a large temperature, classes with different logits can come out with the same number, the
    more so in float32, in which other libraries than NumPy get predictions for float32 logits.
    """
    xp = logits.xp
    if logits.is_numpy and _is_first_maximum(proba, logits):
        return proba
    wide = logits.is_numpy or logits.values.dtype == xp.float64
    caps = _caps(at_label(proba, logits)[:, None], logits.label_columns, logits, wide)
    if logits.is_numpy:  # in the memory order of other blocks, which decides how sums are rounded
        return np.minimum(proba, caps, out=np.empty_like(proba))
    return xp.minimum(proba, caps)


def are_apart(logits: Logits, temperature: Array) -> bool:
    """Whether no class can come out of a softmax with the number of a label of larger logit.

    A float32 below another differs from it by 2^-24 of it or more, and a rounding is 2^-53.
    """
    short = logits.is_numpy and logits.values.dtype.itemsize < 8
    return short and bool(np.abs(logits.top).min() > 2.0**-26 * temperature)


def _is_first_maximum(proba: FloatArray, logits: Logits) -> bool:
    """Whether the label, which has a largest probability (n, columns), is the first of them."""
    if table_order(logits) == "F":  # `argmax` of short rows takes ten times as long
        return bool((proba == proba.max(axis=1, keepdims=True)).sum() == logits.n_rows)
    best = logits.values[np.arange(logits.n_rows), proba.argmax(axis=1)]
    return bool((best == logits.top).all())


def keep_first_maximum(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) whose first maximum stays the first when they become float32.

    In float32, in which other libraries than NumPy get predictions for logits that are not
    float64, an earlier class that is a little less likely can come out with the same number.
    """
    xp = logits.xp
    if logits.values.dtype == xp.float64:
        return proba
    best, own = xp.argmax(proba, axis=1), xp.max(proba, axis=1, keepdims=True)
    return xp.minimum(proba, _caps(own, best, logits, wide=False))


def _caps(own: Array, label: Array, logits: Logits, wide: bool) -> Array:
    """What classes may have, (n, columns): `own` (n, 1), those before the label (n,) less."""
    earlier = column_numbers(logits)[None, :] < label[:, None]
    # Not times 1 - rounding: onnxruntime takes a float64 that near to 1 for 1, and drops it.
    below = own - own * (_ROUNDING if wide else _ROUNDING_IN_FLOAT32)
    return logits.xp.where(earlier, below, own)


def least_probability(logits: Logits) -> float:
    """What a possible class gets at least: predictions of others than NumPy may become float32."""
    wide = logits.is_numpy and logits.values.dtype == np.float64
    return LEAST if wide else _LEAST_IN_FLOAT32


def keep_above_zero(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) in which no possible class has rounded to 0."""
    xp, least = logits.xp, least_probability(logits)
    if logits.is_numpy and proba.min() >= least:
        return proba
    lost = logits.possible & (proba < least)
    return xp.where(lost, xp.full_like(proba, least), proba)


def distribute_remainder(logits: Logits, confidence: Array, shares: Array, width: Array) -> Array:
    """Probabilities (n, classes): the confidence (n,) for the label, the rest as in `shares`.

    `shares` (n, classes) are those of each class under noise of that `width`. A row in which
    one class alone is possible gives it 1, whatever the confidence. Where no other class is within
    reach of the noise, they share as a softmax of that width would.
    """
    xp, is_label = logits.xp, label_mask(logits)
    if logits.is_numpy:
        shares = np.asarray(shares, order=table_order(logits))  # sums then round alike
    alone = logits.possible_counts[:, None] == 1.0
    own = xp.where(alone, 1.0, confidence[:, None])
    shares = xp.where(is_label, 0.0, shares)
    # In units of the largest, which is no part of the gradient: 1 / 1e-290^2 would overflow.
    unit = logits.backend.without_gradient(xp.max(shares, axis=1, keepdims=True))
    lost = (unit < LEAST_SHARE) & ~alone
    shares = shares / xp.where(lost | alone, 1.0, unit)
    if not logits.is_numpy or lost.any():
        shares = xp.where(lost, _softmax_shares(logits, width), shares)
    total = xp.where(alone, 1.0, xp.sum(shares, axis=1, keepdims=True))
    return xp.where(is_label, own, shares * ((1.0 - own) / total))


def _softmax_shares(logits: Logits, width: Array) -> Array:
    """Softmax over the classes other than the label, (n, classes), 0 at the label."""
    xp = logits.xp
    others = logits.possible & ~label_mask(logits)
    margins = xp.where(others, logits.margins, xp.inf)
    least = xp.min(margins, axis=1, keepdims=True)
    least = xp.where(least < xp.inf, least, 0.0)
    beyond = xp.where(others, logits.margins - least, 0.0)
    weights = xp.where(others, xp.exp(beyond / -width), 0.0)
    total = xp.sum(weights, axis=1, keepdims=True)
    return weights / xp.where(total > 0.0, total, 1.0)
