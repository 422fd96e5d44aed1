"""What a fitted calibrator knows of its inputs, and the only way in for new ones.

A schema is learned with the rule, travels with it and is stored beside it: columns,
names of the classes, what the scores were, how a probability of 0 was read, and the
groups. `InputSchema.read` turns whatever holds scores of new rows into checked
`Logits`, once; whatever follows takes these as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np

from hokical._core import arrays, reading
from hokical._core.arrays import AnyArray, BoolArray
from hokical._core.checks import show
from hokical._core.conversion import (
    SUM_SLACK,
    Zeros,
    as_two_columns,
    from_probabilities,
)
from hokical._core.ensembles import Ensemble, MemberReader
from hokical._core.groups import GroupCoding, check_rows_of, tell_unknown
from hokical._core.logits import Logits, as_logits
from hokical._core.reading import Rows
from hokical._core.storage import storable

#: What the scores of the fit were. Log-probabilities are logits whose exponentials sum
#: to 1; "probabilities" stood in columns of a table, and became logits when it was read.
ScoreKind = Literal["logits", "log-probabilities", "probabilities"]
#: More classes than this mean a damaged file.
_MAX_CLASSES = 1 << 31
#: Rows that are looked at to tell log-probabilities from logits.
_ROWS_TO_TELL = 256
#: The same of logits on a device, which are moved to the host.
_DEVICE_ROWS_TO_TELL = 64
#: By how much the logarithm of a sum of probabilities may differ from 0: float16 keeps
#: three digits.
_LOG_SUM_SLACK = 1e-2

#: Up to this many rows are told from logits by the number of their digits.
_MAX_FEW_ROWS = 3
#: Chance that a row of more has logits with a sum of 1 within `SUM_SLACK`.
_COINCIDENCE = 0.1
#: Chance that the logit of one more class lies in [0, 1] as well.
_COINCIDENCE_OF_CLASS = 0.3
#: Rows are probabilities where the chance of a coincidence is at most this.
_MAX_CHANCE = 5e-4
#: By how much sums of softmaxes in float32 differ from 1.
_SUM_ERROR = 1e-5
#: More decimals are as good as all.
_MAX_DIGITS = 6
#: Decimals of a number in [0, 1] as float16.
_DIGITS_OF_FLOAT16 = 3
#: By how much rounded numbers differ from those that are printed, in float32.
_DIGIT_ERROR = 1e-7


@storable("columns")
@dataclass(frozen=True)
class ColumnSchema:
    """The names of the columns of a fit, () if they had none."""

    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_texts("columns", self.columns)

    def order(self, data: Any, name: str, *, strict: bool = True) -> Any:
        """A frame with its columns in the order of the fit; other data as they are."""
        return reading.order_columns(data, name, self.columns, strict=strict)


@storable("schema")
@dataclass(frozen=True)
class InputSchema(ColumnSchema):
    """What is known of the logits (n, classes) of a fit.

    Attributes
    ----------
    columns : names of the columns, where the fit was on a frame or a file
    n_classes : number of classes
    class_names : their names in the order of the columns, where they are known
    scores, zeros : what the scores were, and what a probability of 0 meant
    groups : the groups that the rule needs beside logits
    saw_groups : whether the fit was given groups, used or not
    members : how the members of an ensemble are pooled, where the fit was on one
    like_probabilities : share of the rows of the fit that could be probabilities,
        numbers in [0, 1] with a sum near 1; 1 - s and s, for scores s, often are
    binary : whether 1-D scores of class 1 are taken as well
    owner : the estimator, as errors call it
    """

    n_classes: int = 0
    class_names: tuple[str, ...] = ()
    scores: ScoreKind = "logits"
    zeros: Zeros = "unlikely"
    groups: GroupCoding | None = None
    saw_groups: bool = False
    members: MemberReader | None = None
    like_probabilities: float = 0.0
    binary: bool = False
    owner: str = "Calibrator"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_texts("class_names", self.class_names)
        is_integer = isinstance(self.n_classes, int) and not isinstance(
            self.n_classes, bool
        )
        if not is_integer or not 2 <= self.n_classes < _MAX_CLASSES:
            raise ValueError(
                f"`n_classes` must be at least 2 classes; got {self.n_classes!r}."
            )
        if self.class_names and len(self.class_names) != self.n_classes:
            raise ValueError(
                f"`class_names` must name each of the {self.n_classes} classes; got "
                f"{len(self.class_names)} names."
            )
        reads = self.scores in get_args(ScoreKind) and self.zeros in get_args(Zeros)
        grouped = self.groups is None or isinstance(self.groups, GroupCoding)
        flags = (self.binary, self.saw_groups)
        plain = isinstance(self.owner, str) and all(type(f) is bool for f in flags)
        share = self.like_probabilities
        plain &= type(share) is float and 0.0 <= share <= 1.0
        if not (reads and grouped and plain):
            raise ValueError("`schema` must say what scores and groups were.")

    def read(self, logits: Any, groups: Any = None, *, late: bool = False) -> Logits:
        """Checked logits of new rows, with the codes of their groups.

        `logits` are an array of any library, a frame, a `TopK`, or checked already.
        Groups that the rule does not need are not looked at. With `late`, the caller
        calls `check_rows` when the work on them is under way.
        """
        if groups is not None and self.groups is not None:
            return self._with_groups(logits, groups, self.groups)
        scores = logits
        if not isinstance(logits, Logits):
            scores = self._to_logits(logits, groups)
        return as_logits(scores, n_classes=self.n_classes, owner=self.owner, late=late)

    def read_labelled(self, rows: Rows, *, grouped: bool = True) -> Rows:
        """Rows with checked logits, labels and weights.

        Unless `grouped`, logits have no codes of groups.
        """
        logits = self.read(rows.scores, rows.groups if grouped else None)
        return self.check_labels(replace(rows, scores=logits))

    def check_labels(self, rows: Rows) -> Rows:
        """Rows of checked logits, with checked labels and weights as well."""
        data: Logits = rows.scores
        names = self.class_names or rows.classes
        labels = reading.as_labels(
            rows.labels, data.n_rows, self.n_classes, classes=names
        )
        checked = check_rows_of(rows, data, labels, data.n_rows)
        reading.warn_of_contradiction(
            data.to_host(data.labels), labels, checked.weights
        )
        return checked

    def class_index(self, label: object) -> int:
        """The column of a class, by its name or its number."""
        choices: Sequence[object] = range(self.n_classes)
        if isinstance(label, str):
            choices = self.class_names
        with suppress(TypeError, ValueError):  # also of what cannot be compared
            return choices.index(label)
        names = ", ".join(self.class_names[:6])
        raise ValueError(
            f"`label` must be a class, its column from 0 to {self.n_classes - 1}"
            f"{', or a name: ' * bool(names)}{names}; got {show(label)}. Choose one of "
            "them."
        )

    def group_inputs(self, groups: Any, n_rows: int) -> AnyArray:
        """What the rule gets of groups (n, columns); a warning counts those not
        known.
        """
        assert self.groups is not None
        inputs: AnyArray = self.groups.inputs(groups, n_rows)
        tell_unknown(inputs, self.groups, groups)
        return inputs

    def of_log_probabilities(self) -> Self:
        """The same for scores that turned out to be log-probabilities."""
        if self.scores != "logits":
            return self
        return replace(self, scores="log-probabilities")

    def with_examples(
        self, *, log_probabilities: bool, like_probabilities: float
    ) -> Self:
        """The same with what the rows of the fit turned out to be."""
        schema = self.of_log_probabilities() if log_probabilities else self
        return replace(schema, like_probabilities=like_probabilities)

    def are_probabilities(self, data: Logits) -> bool:
        """Whether rows are probabilities where the fit had logits.

        Each row could look like probabilities by chance: as often as rows of the fit do,
        and as often as numbers with few digits have a sum of exactly 1. It is not chance
        if that is improbable for all rows together; one row with three digits is enough.
        """
        if type(data) is not Logits or not data.is_numpy:
            return False
        if not could_be_probabilities(data, SUM_SLACK).all():
            return False
        slack = SUM_SLACK
        coincidence = _COINCIDENCE
        if data.n_rows <= _MAX_FEW_ROWS:
            n_digits = count_digits(data.values)
            slack = rounding_slack(n_digits, data.n_classes)
            coincidence = 10.0 ** -(1 + n_digits)
            coincidence *= _COINCIDENCE_OF_CLASS ** (data.n_classes - 2)
        chance = (self.like_probabilities + coincidence) ** data.n_rows
        exact = slack == SUM_SLACK or could_be_probabilities(data, slack).all()
        return chance <= _MAX_CHANCE and bool(exact)

    def without_groups(self) -> Self:
        """The same for a rule that needs no groups."""
        return replace(self, groups=None)

    def _to_logits(self, scores: Any, groups: object) -> Any:
        """Scores in the order of the fit, as logits (n, classes)."""
        if isinstance(scores, Ensemble):
            return self._pool(scores, groups)
        if self.members is not None:
            raise ValueError(
                "`logits` must be a `hokical.Ensemble` of the members of the fit "
                f"({', '.join(self.members.names[:6])}); got a "
                f"{type(scores).__name__}. A fit on one evaluation of each example "
                "takes plain logits."
            )
        if type(scores) is not np.ndarray or scores.dtype.names is not None:
            names = self.columns or self.class_names
            scores = reading.order_columns(
                scores, "logits", names, strict=bool(self.columns)
            )
            scores = self.read_frame(scores)
        return as_two_columns(scores) if self.binary else scores

    def _pool(self, ensemble: Ensemble, groups: object) -> Logits:
        """One row of logits for each example of an ensemble."""
        if self.members is None:
            raise ValueError(
                "`logits` must have one row for each example, as in the fit; got "
                f"{ensemble!r}. Fit on an Ensemble to predict for one."
            )
        names = self.columns or self.class_names
        ordered = ensemble.order_columns(names, strict=bool(self.columns))
        return self.members.read(ordered, groups)

    def read_frame(self, frame: Any) -> Any:
        """The logits of a frame of probabilities, if the fit was on such a table.

        Else columns that are named as probabilities are refused.
        """
        names = reading.column_names(frame)
        if names and self.scores == "probabilities":
            values = reading.to_numpy(frame, "logits")
            sums = values.sum(axis=1)
            if values.min() >= 0.0 and np.allclose(sums, 1.0, atol=SUM_SLACK):
                return from_probabilities(values, zeros=self.zeros)
            return frame
        if names and all(map(reading.is_named_probability, names)):
            raise ValueError(
                f"`logits` must be logits, as in the fit; columns such as `{names[0]}` "
                "hold probabilities. Convert them: `hokical.from_probabilities`."
            )
        return frame

    def _with_groups(self, logits: Any, groups: Any, coding: GroupCoding) -> Logits:
        if arrays.lazy_arrays(logits) is not None:
            raise TypeError(
                "`logits` must be in memory where there are `groups`; got a Dask "
                "array. Compute it, or call the calibrator on each block: "
                "`dask.array.blockwise(lambda x, g: cal.predict_proba(x, groups=g), "
                "'ik', logits, 'ik', groups, 'i', dtype=float)`."
            )
        reading.check_row_order(logits, groups, "groups")
        with arrays.float64_scope(logits):
            data = self.read(logits)
            if type(data) is not Logits:
                return data  # refused for what it is
            codes = self.group_inputs(groups, data.n_rows)
        return replace(data, codes=codes)


def could_be_probabilities(logits: Logits, slack: float | None = None) -> BoolArray:
    """Which rows (n,) have no negative number, and a sum of 1 within `slack`, by
    default as exactly as their digits allow.
    """
    if logits.tail is not None:
        return np.zeros(logits.n_rows, np.bool_)
    top = logits.to_host(logits.top)
    could_be = (top > 0.0) & (top <= 1.0 + SUM_SLACK)
    rows = np.flatnonzero(could_be)
    if not rows.size:
        return could_be
    values = logits.to_host(logits.take(rows).values).astype(np.float64, copy=False)
    inside = values.min(axis=1) >= 0.0
    if slack is None:
        n_digits = count_digits(values[inside][:_ROWS_TO_TELL])
        slack = rounding_slack(n_digits, logits.n_classes)
    could_be[rows] = inside & (np.abs(values.sum(axis=1) - 1.0) <= slack)
    return could_be


def count_digits(values: AnyArray) -> int:
    """The number of decimals of all values, at most six; float16 holds three.

    >>> count_digits(np.array([0.25, 1.0])), count_digits(np.array([1 / 3]))
    (2, 6)
    """
    wide = values.astype(np.float64, copy=False)
    for n_digits in range(_MAX_DIGITS):
        if np.abs(wide - wide.round(n_digits)).max(initial=0.0) <= _DIGIT_ERROR:
            return n_digits
    of_float16 = np.array_equal(wide, wide.astype(np.float16))
    return _DIGITS_OF_FLOAT16 if of_float16 else _MAX_DIGITS


def rounding_slack(n_digits: int, n_classes: int) -> float:
    """By how much a sum of rounded probabilities may differ from 1."""
    rounding = 0.5 * n_classes * 10.0**-n_digits
    return min(SUM_SLACK, max(_SUM_ERROR, rounding))


def check_texts(name: str, texts: object) -> None:
    """Raise unless it is a tuple of texts."""
    if not isinstance(texts, tuple) or not all(type(text) is str for text in texts):
        raise ValueError(f"`{name}` must be a tuple of texts; got {texts!r}.")


def tell_scores(logits: Logits) -> ScoreKind:
    """Whether rows are log-probabilities: their exponentials sum to 1."""
    if type(logits) is not Logits:
        return "logits"
    n_rows = _ROWS_TO_TELL if logits.is_numpy else _DEVICE_ROWS_TO_TELL
    rows = logits.take(slice(0, min(n_rows, logits.n_rows)))
    values = rows.to_host(rows.values).astype(np.float64)
    top = rows.to_host(rows.top)
    with np.errstate(over="ignore"):  # of logits farther apart than the largest number
        below = values - top[:, None]
    log_sums = top + np.log(np.exp(below).sum(axis=1))
    alike = np.abs(log_sums) <= _LOG_SUM_SLACK
    return "log-probabilities" if alike.all() and alike.size > 1 else "logits"
