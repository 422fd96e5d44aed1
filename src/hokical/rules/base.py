"""A fitted method is a rule: a few frozen numbers and one pure function of logits.

A rule defines the labels, the confidence and the probabilities of logits, once, for
arrays of every library: the estimator's `fit` makes it, files store it, the torch
module wraps it, ONNX traces it. It is a frozen dataclass whose annotations say what its
numbers must be, so that a file can hold only what a fit can make.

Its methods see a block of checked rows. They must not look at values to decide what to
do next (`if bool(...)`), because graphs are traced through them. `predict_blocks`
predicts for checked logits: in blocks of rows, in their library and type. Functions are
what several rules need: log-probabilities, a softmax and its first maximum, shares of
the rest.

At the end are rules around another rule: a floor before it; groups or class frequencies
after it. Sets are in `rules.sets`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import AnyArray, Array, FloatArray
from hokical._core.checks import ArrayOf, Checked, LogShare, Share, check_array
from hokical._core.groups import GroupCoding, combine_codes
from hokical._core.logits import Logits, TopK, by_blocks
from hokical._core.special import (
    clip,
    divided,
    exponential,
    normalized_exponential,
    row_sums,
    times,
)
from hokical._core.storage import storable
from hokical.rules.numbers import NumberEffects
from hokical.stability import gumbel


class Rule(Checked):
    """Base of all rules; a subclass is a frozen dataclass, and is stored under its
    `name`.
    """

    #: The method's name in the registry, in files, in tables and on the command line.
    name: ClassVar[str]
    #: True: the predicted label is the classifier's own. False: it is the most likely
    #: class, the first maximum of the probabilities, which can be another.
    preserves_labels: ClassVar[bool] = True
    #: True for methods that make do with the best logits of each row, as a `TopK`.
    accepts_top_k: ClassVar[bool] = False
    #: The checked logits it takes; a subclass of `Logits` for methods that need more
    #: than those.
    logits_kind: ClassVar[type[Logits]] = Logits
    #: The groups whose codes it needs beside logits, if it does (`GroupCoding`).
    needed_groups: Any = None
    #: How many numbers a fit chooses without a penalty on their size; 0 if that is no
    #: limit.
    n_parameters: int = 0
    #: True for methods that take two classes and no more.
    binary_only: ClassVar[bool] = False
    #: Whether all probabilities cost little more than the confidence.
    cheap_proba: bool = True

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
        return (
            logits.at_label(proba)
            if self.preserves_labels
            else logits.xp.max(proba, axis=1)
        )

    def proba(self, logits: Logits) -> Array:
        """Probabilities (n, classes) float64; rows sum to 1, masked classes get 0."""
        raise TypeError(f"{type(self).__name__} has no predictions.")

    def interval(
        self, logits: Logits, label: int | None = None
    ) -> tuple[Array, Array] | None:
        """Lower and upper ends (n,) of the probability of the label, or of one class.

        If the rule itself has them.
        """
        return None

    def describe(self) -> str:
        """Its numbers in a few words, for the `repr` of a calibrator."""
        numbers = self.own_fields().items()
        return ", ".join(f"{k} {v:.4g}" for k, v in numbers if isinstance(v, float))

    def without_groups(self) -> Rule:
        """The rule without what it learned from groups."""
        return self

    def own_fields(self) -> dict[str, Any]:
        """Its numbers as attributes of a calibrator, by name."""
        entries = dataclasses.fields(self)  # type: ignore[arg-type]
        return {entry.name: getattr(self, entry.name) for entry in entries}

    def numbers(self) -> dict[str, Any]:
        """The arrays and floats it computes with, by field, those of nested records
        with a dot.
        """
        return {name: value for name, value in _leaves(self) if not _is_index(value)}

    def indices(self) -> dict[str, Any]:
        """Its integer arrays, which say where numbers belong and stay on the host."""
        return {name: value for name, value in _leaves(self) if _is_index(value)}

    def with_numbers(self, numbers: dict[str, Any], *, check: bool = False) -> Self:
        """The same rule with other values for these fields, unchecked by default:
        tensors, say.
        """
        changed: Self = _rebuild(self, numbers.get, check=check)
        return changed

    def on_device_of(self, logits: Logits) -> Self:
        """The same rule with its arrays in the library and on the device of the
        logits.
        """
        if logits.is_numpy:
            return self

        def move(_: str, value: Any) -> Any:
            is_array = isinstance(value, np.ndarray) and not _is_index(value)
            return logits.from_host(value) if is_array else value

        moved: Self = _rebuild(self, move, check=False)
        return moved


def _leaves(record: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Arrays and floats of a record and of those in it."""
    for field in dataclasses.fields(record):
        name = prefix + field.name
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{name}.")
        elif value is not None and not isinstance(value, (str, int, tuple)):
            yield name, value


def _is_index(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu"


def _rebuild(
    record: Any, change: Callable[[str, Any], Any], *, check: bool, prefix: str = ""
) -> Any:
    """A copy of a record and of those in it, with `change(name, value)` for each
    field.
    """
    copied = object.__new__(type(record))
    for name in record.__dataclass_fields__:
        value = getattr(record, name)
        full = prefix + name
        if hasattr(type(value), "__dataclass_fields__"):
            value = _rebuild(value, change, check=check, prefix=f"{full}.")
        object.__setattr__(copied, name, change(full, value))
    if check and hasattr(copied, "__post_init__"):
        copied.__post_init__()
    return copied


Output = Literal["labels", "confidence", "proba", "members"]
#: Those with a number for every class.
OF_CLASSES = frozenset({"proba", "members"})


def predict_blocks(
    rule: Rule, what: Output, logits: Logits, *, narrow: bool = False
) -> Array:
    """Labels (n,), confidence (n,) or probabilities (n, classes), float64 where they
    are floats.

    "members" (n, classes), bool, are the output of a `SetRule`. NumPy's probabilities
    are float32 if `narrow`.
    """
    if what == "labels" and rule.preserves_labels:
        return logits.labels
    local_rule = rule if logits.is_numpy else rule.on_device_of(logits)
    n_classes = logits.n_classes if what in OF_CLASSES else None
    if what != "proba":
        return by_blocks(getattr(local_rule, what), logits, n_classes)
    work = partial(probabilities, local_rule, shown=True, narrow=narrow)
    if not logits.is_numpy:
        return by_blocks(work, logits, n_classes)
    out = np.empty(
        (logits.n_rows, logits.n_classes), np.float32 if narrow else np.float64
    )
    return by_blocks(work, logits.take(slice(None)), n_classes, out=out)


def predict_on_host(rule: Rule, what: Output, logits: Logits) -> NDArray[Any]:
    """`predict_blocks` in full precision, as an array of NumPy."""
    with logits.backend.in_float64():
        return logits.to_host(predict_blocks(rule, what, logits))


def labels_and_confidence(
    rule: Rule, logits: Logits
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both (n,) in full precision, as arrays of NumPy, from one pass over the rows."""
    local_rule = rule if logits.is_numpy else rule.on_device_of(logits)

    def work(block: Logits) -> tuple[Array, Array]:
        if rule.preserves_labels:
            return block.labels, local_rule.confidence(block)
        xp = logits.xp
        proba = local_rule.proba(block)
        return xp.argmax(proba, axis=1), xp.max(proba, axis=1)

    with logits.backend.in_float64():
        labels, confidence = by_blocks(work, logits)
        return logits.to_host(labels), logits.to_host(confidence)


def predict_all(
    rule: Rule, logits: Logits
) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """Labels and confidence (n,) and probabilities (n, classes) on the host, from one
    prediction.

    A `TopK` does not determine probabilities: None.
    """
    if isinstance(logits, TopK):
        return *labels_and_confidence(rule, logits), None
    proba = predict_on_host(rule, "proba", logits)
    labels = (
        logits.to_host(logits.labels) if rule.preserves_labels else proba.argmax(axis=1)
    )
    return labels, np.take_along_axis(proba, labels[:, None], axis=1)[:, 0], proba


def probabilities(
    rule: Rule,
    block: Logits,
    *,
    shown: bool = False,
    narrow: bool = False,
    hidden: Literal["even", "most"] = "even",
) -> Array:
    """Probabilities (n, classes) of a block.

    In those that are `shown`, a label that is the likeliest class stays the first in
    float32, which other libraries than NumPy may make of them, and NumPy if `narrow`.
    The hidden classes of a `TopK` share the rest evenly, or each gets the most that it
    may have: the probability of the least likely class seen, or all that the seen ones
    leave.
    """
    if isinstance(block, TopK):
        # The label's share among the seen classes need not be its confidence, which is
        # the midpoint of two bounds for some rules. Hidden ones share as equals, or
        # each gets the most it may.
        dense = block.fill()
        shared = distribute_remainder(
            dense, rule.confidence(block), rule.proba(dense), 1.0
        )
        proba = keep_above_zero(shared, dense, LEAST)
        if hidden == "most":
            is_shown = block.mark_seen()
            least = np.min(proba, axis=1, where=is_shown & (proba > 0.0), initial=1.0)
            remainder = np.maximum(1.0 - np.sum(proba, axis=1, where=is_shown), 0.0)
            # Behind the seen ones.
            largest_hidden = np.nextafter(np.minimum(least, remainder), 0.0)
            proba = np.where(is_shown, proba, largest_hidden[:, None])
    else:
        least = least_shown(block) if shown else LEAST
        proba = keep_above_zero(rule.proba(block), block, least)
    if narrow:
        return to_float32(proba)
    if not shown or block.is_numpy or rule.preserves_labels:
        return proba
    return keep_first_maximum(proba, block)


def to_float32(values: FloatArray) -> NDArray[np.float32]:
    """As float32, in which what is above 0 stays above it, and the first maximum of a
    row (n, classes) the first.
    """
    small = values.astype(np.float32)
    if small.size and small.min() < LEAST_IN_FLOAT32:
        lost = (values > 0.0) & (values < LEAST_IN_FLOAT32)
        small[lost] = LEAST_IN_FLOAT32
    if small.ndim == 2:
        best = values.argmax(axis=1)
        for row in np.flatnonzero(small.argmax(axis=1) != best):
            earlier = small[row, : best[row]]
            best_value = small[row, best[row]]
            np.minimum(earlier, np.nextafter(best_value, np.float32(0.0)), out=earlier)
    return small


def predict_unchecked(rule: Rule, what: Output, logits: Logits) -> Array:
    """`predict_blocks` for unchecked logits: NaN for rows that `as_logits` would
    refuse.
    """
    values = predict_blocks(rule, what, logits)
    if what == "labels":
        return values
    xp = logits.xp
    sound = xp.isfinite(logits.top)
    if what == "members":
        return values & sound[:, None]
    return xp.where(sound if what == "confidence" else sound[:, None], values, xp.nan)


#: No possible class gets less than this; 0 is for masked ones. All is computed in
#: float64, whatever the type of the logits.
LEAST = 1e-300
#: The same where predictions are made float32 in the end.
LEAST_IN_FLOAT32 = 1e-37
#: Shares below this have lost their digits.
LEAST_SHARE = 1e-290
#: One rounding, relative, in float64 and in float32.
_ROUNDING = 2.0**-52
_ROUNDING_IN_FLOAT32 = 2.0**-23


def log_probabilities(logits: Logits) -> Array:
    """Log of the softmax, (n, columns); hugely negative where masked."""
    return -log_norms(logits.margins, logits) - logits.margins


def probabilities_and_logs(logits: Logits, temperature: Array) -> tuple[Array, Array]:
    """The softmax at a temperature and its log, (n, columns) each."""
    margins = logits.margins / temperature
    logs = -log_norms(margins, logits) - margins
    return logits.xp.exp(logs), logs


def log_norms(margins: Array, logits: Logits) -> Array:
    """Minus the log-probability of each row's label, (n, 1), from margins in
    temperatures.

    Precise for probabilities near 1.
    """
    odds = logits.clear_label(exponential(-margins, logits.xp))
    return logits.xp.log1p(row_sums(odds, logits.xp))[:, None]


def floored_scores(logits: Logits, floor: Array, factor: Array = 1.0) -> Array:
    """`factor` times log(p + floor) less that of the label, (n, columns), with the
    softmax p; a new array.
    """
    if logits.is_numpy and floor == 0.0:
        return logits.margins * -factor
    xp = logits.xp
    odds = exponential(-logits.margins, xp)
    floor_odds = row_sums(odds, xp)[:, None] * floor
    if logits.is_numpy:
        np.divide(np.add(odds, floor_odds, out=odds), 1.0 + floor_odds, out=odds)
        return times(np.log(odds, out=odds), factor, np)
    odds_or_one = xp.where(floor_odds > 0.0, floor_odds, xp.ones_like(floor_odds))
    logs = xp.where(
        floor_odds > 0.0,
        xp.log((odds + odds_or_one) / (1.0 + odds_or_one)),
        -logits.margins,
    )
    return logs * factor


def uncalibrated(logits: Logits) -> Array:
    """The softmax, (n, columns); 0 where masked."""
    return normalized_exponential(-logits.margins, logits.xp)


def add_floor(logits: Logits, floor: Array) -> Logits:
    """Logits log(p + floor) up to a constant in each row; masked classes and labels
    stay.
    """

    def work(block: Logits) -> Array:
        return block.put_masked(floored_scores(block, floor), -block.xp.inf)

    values = by_blocks(work, logits)
    floored = Logits(values, logits.xp.max(values, axis=1), logits.backend)
    return floored.with_labels(logits.labels)


def clip_log_probabilities(logits: Logits, lowest: Array) -> Logits:
    """Log of the softmax, raised to `lowest` where it is below; masked classes and
    labels stay.
    """

    def work(block: Logits) -> Array:
        logs = log_probabilities(block)
        clipped = block.xp.where(logs > lowest, logs, lowest)
        return block.put_masked(clipped, -block.xp.inf)

    values = by_blocks(work, logits)
    top = logits.xp.max(values, axis=1)
    clipped = dataclasses.replace(logits, values=values, top=top)
    return clipped.with_labels(logits.labels)


def softmax(scores: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) from scores, which NumPy overwrites.

    They are 0 where masked, whatever the score.
    """
    xp = logits.xp
    if not logits.all_possible:
        scores = logits.put_masked(scores, -xp.inf)
    highest = xp.max(scores, axis=1, keepdims=True)
    below = np.subtract(scores, highest, out=scores) if xp is np else scores - highest
    return normalized_exponential(below, xp)


def as_scores(scores: Array, logits: Logits) -> Logits:
    """Scores (n, classes), which NumPy overwrites, as logits of the same classes."""
    values = logits.put_masked(scores, -logits.xp.inf)
    return Logits(values, logits.xp.max(values, axis=1), logits.backend)


def as_log_proba(proba: Array, logits: Logits) -> Logits:
    """Logits whose softmax are these probabilities (n, classes); the same classes
    are possible.
    """
    return as_scores(logits.xp.log(clip(proba, LEAST, None, logits.xp)), logits)


def first_maximum(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) with the label as first maximum, by one rounding if
    needed.

    At a large temperature, classes with different logits can come out with the same
    number, the more so in float32, in which other libraries than NumPy get predictions
    for float32 logits.
    """
    xp = logits.xp
    # The label has a largest probability: is it the first of them?
    if logits.is_numpy:
        if logits.order == "F":  # `argmax` of short rows takes ten times as long
            alone = (proba == proba.max(axis=1, keepdims=True)).sum() == logits.n_rows
        else:
            best = logits.values[np.arange(logits.n_rows), proba.argmax(axis=1)]
            alone = (best == logits.top).all()
        if alone:
            return proba
    wide = logits.is_numpy or logits.values.dtype == xp.float64
    caps = _caps(logits.at_label(proba)[:, None], logits.label_columns, logits, wide)
    # In the memory order of other blocks, which decides how sums are rounded.
    if logits.is_numpy:
        return np.minimum(proba, caps, out=np.empty_like(proba))
    return xp.minimum(proba, caps)


def keep_first_maximum(proba: Array, logits: Logits) -> Array:
    """Probabilities (n, columns) whose first maximum stays the first when they become
    float32.

    In float32, in which other libraries than NumPy get predictions for logits that are
    not float64, an earlier class that is a little less likely can come out with the
    same number.
    """
    xp = logits.xp
    if logits.values.dtype == xp.float64:
        return proba
    best = xp.argmax(proba, axis=1)
    best_proba = xp.max(proba, axis=1, keepdims=True)
    return xp.minimum(proba, _caps(best_proba, best, logits, wide=False))


def _caps(label_proba: Array, label: Array, logits: Logits, wide: bool) -> Array:
    """What classes may have, (n, columns): `label_proba` (n, 1), those before the label
    (n,) less.
    """
    earlier = logits.from_host(np.arange(logits.n_columns))[None, :] < label[:, None]
    # Not times 1 - rounding: onnxruntime takes a float64 that near to 1 for 1, and
    # drops it.
    less = label_proba - label_proba * (_ROUNDING if wide else _ROUNDING_IN_FLOAT32)
    return logits.xp.where(earlier, less, label_proba)


def keep_above_zero(proba: Array, logits: Logits, least: float) -> Array:
    """Probabilities (n, columns) of at least `least` for every possible class."""
    if logits.is_numpy and proba.min() >= least:
        return proba
    xp = logits.xp
    lost = logits.possible & (proba < least)
    return xp.where(lost, xp.full_like(proba, least), proba)


def least_shown(logits: Logits) -> float:
    """The least probability of a possible class in predictions for these logits.

    NumPy's predictions are float64; those of other libraries float32, unless their
    logits are float64.
    """
    if logits.is_numpy or logits.values.dtype == logits.xp.float64:
        return LEAST
    return LEAST_IN_FLOAT32


def distribute_remainder(
    logits: Logits, confidence: Array, shares: Array, width: Array
) -> Array:
    """Probabilities (n, classes): the confidence (n,) for the label, the rest as in
    `shares`.

    `shares` (n, classes) are those of each class under noise of that `width`. A row in
    which one class alone is possible gives it 1, whatever the confidence. Where no
    other class is within reach of the noise, they share as a softmax of that width
    would. NumPy's shares are overwritten.
    """
    xp = logits.xp
    shares = logits.clear_label(logits.in_order(shares))
    alone = logits.possible_counts[:, None] == 1.0
    label_proba = xp.where(alone, 1.0, confidence[:, None])
    # In units of the largest, which is no part of the gradient: 1 / 1e-290^2 would
    # overflow.
    unit = logits.backend.without_gradient(xp.max(shares, axis=1, keepdims=True))
    lost = (unit < LEAST_SHARE) & ~alone
    unit_or_one = xp.where(lost | alone, 1.0, unit)
    shares = divided(shares, unit_or_one, xp)
    if not logits.is_numpy or lost.any():
        # A softmax over the classes other than the label.
        is_other = logits.possible & ~logits.label_mask()
        least = xp.min(
            xp.where(is_other, logits.margins, xp.inf), axis=1, keepdims=True
        )
        least = xp.where(least < xp.inf, least, 0.0)
        beyond = xp.where(is_other, logits.margins - least, 0.0)
        shares = xp.where(
            lost, xp.where(is_other, xp.exp(beyond / -width), 0.0), shares
        )
    total = xp.where(alone, 1.0, xp.sum(shares, axis=1, keepdims=True))
    rest = times(shares, (1.0 - label_proba) / total, xp)
    return logits.put_at_label(rest, label_proba)


class SoftmaxRule(Rule):
    """The softmax of logits divided by a temperature."""

    accepts_top_k: ClassVar[bool] = True
    temperature: float

    def confidence(self, logits: Logits) -> Array:
        return gumbel.stability(logits, self.temperature)

    def proba(self, logits: Logits) -> Array:
        proba = normalized_exponential(
            logits.new_margins(-1.0 / self.temperature), logits.xp
        )
        # A float32 below another differs from it by 2^-24 of it or more, and a rounding
        # is 2^-53: no class can come out with the number of a label of larger logit.
        short = logits.is_numpy and logits.values.dtype.itemsize < 8
        if short and np.abs(logits.top).min() > 2.0**-26 * self.temperature:
            return proba
        return first_maximum(proba, logits)


@dataclass(frozen=True)
class UncalibratedRule(SoftmaxRule):
    """The classifier's own softmax."""

    name: ClassVar[str] = "uncalibrated"
    temperature: ClassVar[float] = 1.0  # type: ignore[misc]


#: Log-probabilities are scaled by no less than this, so that their order stays.
LEAST_SCALE = 0.05
#: Rows of which less than this is left, all in classes of weight 0, keep their
#: probabilities.
_LEAST_TOTAL = 1e-30


class WrappedRule(Rule):
    """A rule around another: what it does not define is the inner rule's."""

    rule: Rule

    preserves_labels = property(attrgetter("rule.preserves_labels"))
    logits_kind = property(attrgetter("rule.logits_kind"))
    needed_groups = property(attrgetter("rule.needed_groups"))
    binary_only = property(attrgetter("rule.binary_only"))
    n_classes = property(attrgetter("rule.n_classes"))
    cheap_proba = property(attrgetter("rule.cheap_proba"))
    core = property(attrgetter("rule.core"))

    def describe(self) -> str:
        return self.rule.describe()

    def without_groups(self) -> Rule:
        inner = self.rule.without_groups()
        return dataclasses.replace(self, rule=inner)  # type: ignore[type-var]

    def own_fields(self) -> dict[str, Any]:
        return self.rule.own_fields()


class PreparedRule(WrappedRule):
    """A rule around another, on logits that are changed before."""

    def prepare(self, logits: Logits) -> Logits:
        """The logits that the inner rule sees."""
        raise TypeError(f"{type(self).__name__} does not change logits.")

    def labels(self, logits: Logits) -> Array:
        return self.rule.labels(self.prepare(logits))

    def confidence(self, logits: Logits) -> Array:
        return self.rule.confidence(self.prepare(logits))

    def proba(self, logits: Logits) -> Array:
        proba = self.rule.proba(self.prepare(logits))
        # The rule sees float64, whatever type its predictions will have.
        may_tie = self.preserves_labels and not logits.is_numpy
        return keep_first_maximum(proba, logits) if may_tie else proba

    def interval(
        self, logits: Logits, label: int | None = None
    ) -> tuple[Array, Array] | None:
        return self.rule.interval(self.prepare(logits), label)


@dataclass(frozen=True, eq=False)
class FlooredRule(PreparedRule):
    """`rule` on the logits log(p + floor), where p is the softmax of the logits.

    A model's probability of 0 shows its resolution (no tree voted for the class), not
    certainty. The floor is fitted together with a temperature where logits come from
    probabilities with zeros.
    """

    name: ClassVar[str] = "floored"

    floor: Share
    rule: Rule

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rule, FlooredRule):
            raise ValueError(f"`rule` must be without a floor; got {self.rule!r}.")

    def describe(self) -> str:
        inner = self.rule.describe()
        return f"floor {self.floor:.4g}{', ' * bool(inner)}{inner}"

    def own_fields(self) -> dict[str, Any]:
        return {"floor": self.floor} | self.rule.own_fields()

    def prepare(self, logits: Logits) -> Logits:
        return add_floor(logits, self.floor)


@dataclass(frozen=True, eq=False)
class ClippedRule(PreparedRule):
    """`rule` on log-probabilities that are at least `lowest`.

    The resolution of a classifier is the smallest probability that it tells from 0.
    Smaller ones, 0 among them, are raised to a number that follows from it, before a
    rule is fitted and before it is used.
    """

    name: ClassVar[str] = "clipped"

    lowest: LogShare
    rule: Rule

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rule, ClippedRule):
            raise ValueError(f"`rule` must not clip already; got {self.rule!r}.")

    def describe(self) -> str:
        inner = self.rule.describe()
        lowest = f"log-probabilities of at least {self.lowest:.4g}"
        return f"{lowest}{', ' * bool(inner)}{inner}"

    def prepare(self, logits: Logits) -> Logits:
        return clip_log_probabilities(logits, self.lowest)


@dataclass(frozen=True, eq=False)
class GroupedRule(WrappedRule):
    """The softmax of (1 + scale) log p + bias, where p are the probabilities of `rule`.

    `scale` (groups,) and `bias` (groups, classes), or (groups, 1) of zeros, have a row
    for every group of every term, term after term; the terms of a row add up. A term is
    a column of `coding`, whose last group is for rows whose group is missing or
    unknown, or several, (0, 2) say, with a group for every combination. Without
    `terms`, they are the columns, unless there are `effects` of numbers, which add
    theirs; the label whose score these shift is the most likely class of p.
    """

    name: ClassVar[str] = "grouped"

    rule: Rule
    coding: GroupCoding
    scale: FloatArray
    bias: FloatArray
    keep_labels: bool
    terms: tuple[tuple[int, ...], ...] = ()
    effects: NumberEffects | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule.logits_kind is not Logits or self.rule.needed_groups is not None:
            raise ValueError(f"`rule` must be a rule for logits; got {self.rule!r}.")
        n_columns = len(self.coding.columns)
        if any(
            not term or not all(0 <= k < n_columns for k in term) for term in self.terms
        ):
            raise ValueError(
                f"`terms` must be of the {n_columns} columns; got {self.terms}."
            )
        n_groups = sum(math.prod(sizes) for _, sizes in self._parts())
        check_array("scale", self.scale, (n_groups,))
        check_array("bias", self.bias, (n_groups, self.bias.shape[-1]))
        if self.effects is not None:
            self._check_effects(self.effects)

    def _check_effects(self, effects: NumberEffects) -> None:
        """Raise unless the numbers are those of numeric columns, for these classes."""
        numeric = [
            k for k in range(len(self.coding.columns)) if self.coding.is_numeric(k)
        ]
        if sorted(effects.columns) != numeric:
            raise ValueError(
                f"`effects` must be of the numeric columns {numeric}; got "
                f"{effects.columns}."
            )
        if len({effects.bias.shape[-1], self.bias.shape[-1]}) > 1 and self.terms:
            raise ValueError("`effects` must have biases of as many classes as groups.")

    needed_groups = property(attrgetter("coding"))
    preserves_labels = property(attrgetter("keep_labels"))

    def without_groups(self) -> Rule:
        return self.rule

    @property
    def n_classes(self) -> int | None:
        n_columns = int(self.bias.shape[-1])
        if n_columns == 1 and self.effects is not None:
            n_columns = int(self.effects.bias.shape[-1])
        return n_columns if n_columns > 1 else self.rule.n_classes

    def _parts(self) -> list[tuple[tuple[int, ...], list[int]]]:
        """The columns of each term, and how many codes they have."""
        terms = self.terms
        if not terms and self.effects is None:
            terms = tuple((k,) for k in range(len(self.coding.columns)))
        return [(term, [self.coding.sizes[k] for k in term]) for term in terms]

    def proba(self, logits: Logits) -> Array:
        xp = logits.xp
        inner = as_log_proba(probabilities(self.rule, logits), logits)
        log_p = inner.values
        log_p = xp.where(logits.possible, log_p, xp.zeros_like(log_p))
        scale = 1.0
        bias = 0.0
        first = 0
        inputs = logits.codes
        inputs = logits.from_host(inputs) if isinstance(inputs, np.ndarray) else inputs
        for term, sizes in self._parts():
            codes = [self.coding.column_codes(inputs, k, xp) for k in term]
            row = combine_codes(codes, sizes, xp)
            scale = scale + xp.take(self.scale, row + first, axis=0)
            bias = bias + xp.take(self.bias, row + first, axis=0)
            first += math.prod(sizes)
        if self.effects is not None:
            by_number = self.effects.corrections(inputs, xp)
            scale = scale + by_number[0]
            bias = bias + by_number[2]
            bias = bias + xp.where(inner.label_mask(), by_number[1][:, None], 0.0)
        return softmax(
            xp.clip(scale, LEAST_SCALE, None)[:, None] * log_p + bias, logits
        )


@dataclass(frozen=True, eq=False)
class BalancedRule(WrappedRule):
    """p'(k | x) proportional to p(k | x) `weights`[k], where p are the probabilities of
    `rule`.

    `weights` (classes,) are how much commoner each class has become. The label is the
    likeliest class of the new probabilities.
    """

    name: ClassVar[str] = "balanced"
    preserves_labels = False
    cheap_proba = True

    rule: Rule
    weights: Annotated[FloatArray, ArrayOf((None,), 0.0)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rule, BalancedRule):
            raise ValueError(
                f"`rule` must be a rule of the old frequencies; got {self.rule!r}."
            )
        if self.rule.n_classes not in (None, self.weights.size) or not np.any(
            self.weights > 0.0
        ):
            raise ValueError(
                "`weights` must have a number for each class, some above 0."
            )

    @property
    def n_classes(self) -> int:
        return int(self.weights.shape[0])

    def describe(self) -> str:
        inner = self.rule.describe()
        return f"{inner}, classes reweighted" if inner else "classes reweighted"

    def proba(self, logits: Logits) -> Array:
        xp = logits.xp
        old = self.rule.proba(logits)
        proba = old * self.weights
        total = xp.sum(proba, axis=1, keepdims=True)
        lost = total < _LEAST_TOTAL
        return xp.where(lost, old, proba / xp.where(lost, xp.ones_like(total), total))
