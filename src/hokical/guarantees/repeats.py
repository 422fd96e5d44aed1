"""Rows that are not independent examples: exact copies, and several rows of each one.

Guarantees count rows as independent. Two habits break that: examples are copied (to
balance classes, by a bootstrap), and several evaluations of each example are stacked
and reshaped to rows. Neither must be taken for the ties that rows have by themselves
(trees, few possible values) or for sorted rows, so both need evidence from labels:
copies of an example have its label, right or wrong, and ties have labels of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from hokical._core.arrays import AnyArray, Array, BoolArray, FloatArray, IntArray
from hokical._core.checks import check_choice
from hokical._core.logits import Logits
from hokical._core.reading import Rows
from hokical._core.runtime import FitDataWarning, WarningLog, warn_user
from hokical.guarantees.fingerprints import Reused, row_draws, row_hashes

#: Copies are reported from this share of the rows on, and refused from this one on:
#: natural data has a few near-identical examples.
_MIN_REPORTED_SHARE = 0.05
_MIN_REFUSED_SHARE = 0.2
#: Distinct rows that must all come equally often before this speaks for copies.
_MIN_DISTINCT_ROWS = 20
#: Rows with a wrong label that must come several times, and the share of them of which
#: all labels are equal. Ties of independent examples have equal wrong labels in at most
#: a third of the cases, unless the classifier is wrong in most of them.
_MIN_WRONG_ROWS = 8
_MIN_EQUAL_SHARE = 0.95
#: Changes of the outcome between neighbouring confidences that come several times. Ties
#: of independent answers differ as often among each other: 12 times to none with
#: probability 1e-4.
_MIN_NEIGHBOR_CHANGES = 12
#: Rows of one example up to which repeated labels are looked for.
_MAX_PER_EXAMPLE = 64
#: Examples, and changes of the label between neighbours, that a pattern of labels needs:
#: by chance, 20 changes fall on every second row with probability 1e-6.
_MIN_EXAMPLES = 30
_MIN_CHANGES = 20
#: Examples whose rows are compared.
_MAX_COMPARED = 256
#: Standard errors by which rows of an example must be nearer than others (of 256
#: independent pairs, two thirds are with a probability below 1e-6).
_MIN_ERRORS = 5.0
#: Masked classes count as so far below the label, in logits.
_MAX_MARGIN = 100.0
#: Rows with a wrong label, and labels of them, that neighbours need; and the share of
#: nearest rows that have the label too, beside that of the rows farther away. So no
#: sample of 1,973 from 149 classifiers and networks was reported (20 of two that are
#: wrong in half of their rows, without a largest share of wrong rows), and 40 to 100 %
#: of those of views of images in any order.
_MIN_WRONG = 40
_MAX_WRONG_SHARE = 0.4
_MIN_WRONG_LABELS = 5
_MIN_NEAREST_SHARE = 0.65
_MAX_AROUND_SHARE = 0.2
#: Rows whose neighbours are sought, rows among which, and columns by which.
_MAX_SOUGHT = 128
_MAX_SEARCHED = 1 << 15
_MAX_COLUMNS = 64

_ASSUMPTION = "Guarantees count rows as independent examples and would state too much"
_IN_FIT = "A fit takes each for a further example and trusts them too much"
_IN_TEST = "Intervals and tests take each for a further example"
_IN_FOLDS = (
    "and folds hold copies of what their fits have seen, so that results look better "
    "than they are"
)
_CLUSTER = "Pass `cluster=`, the example that each row belongs to"
#: Causes of warnings about copies, for `WarningLog`.
_COPIES = "copies of rows"
_TEST_COPIES = "copies of rows in a test"
#: The remedy of methods that take no clusters.
ONE_ROW = "Pass one row of each example"


@dataclass(frozen=True, eq=False)
class RowMarks:
    """What tells copies of rows: their `hashes`, `labels` and which are `wrong`, (n,)
    each.
    """

    hashes: FloatArray
    labels: AnyArray
    wrong: BoolArray

    @classmethod
    def of(cls, logits: Logits, labels: IntArray, weights: FloatArray | None) -> Self:
        """Those of the rows that count."""
        wrong = logits.to_host(logits.labels) != labels
        marks = cls(row_hashes(logits), labels, wrong)
        return marks if weights is None else marks.take(weights > 0.0)

    @classmethod
    def join(cls, blocks: Sequence[Self]) -> Self:
        """Those of all parts, one after the other."""
        return cls(
            np.concatenate([marks.hashes for marks in blocks]),
            np.concatenate([marks.labels for marks in blocks]),
            np.concatenate([marks.wrong for marks in blocks]),
        )

    def take(self, rows: BoolArray) -> Self:
        """Those of some rows."""
        return type(self)(self.hashes[rows], self.labels[rows], self.wrong[rows])

    def copies(self) -> Copies:
        """The copies among the rows."""
        ties = _Ties.of(self.hashes, self.labels)
        if (copies := ties.whole_copies()) is not None:
            return copies
        some_wrong = np.bincount(ties.index, self.wrong, ties.counts.size) > 0.0
        wrong = ties.repeated & some_wrong
        enough_wrong = int(wrong.sum()) >= _MIN_WRONG_ROWS
        if enough_wrong:
            enough_wrong = bool(ties.same_label[wrong].mean() >= _MIN_EQUAL_SHARE)
        return ties.copies(ties.equally_often or enough_wrong)


@dataclass(frozen=True, eq=False)
class AnswerMarks:
    """What tells copies of answers: their `hashes`, `confidence`, and which are
    `right`, (n,) each.

    Many answers have the same confidence, and where it is good the same outcome too.
    So outcomes of equal confidences are compared with those of neighbouring ones:
    copies differ from their neighbours and not among each other.
    """

    hashes: FloatArray
    confidence: FloatArray
    right: BoolArray

    def copies(self) -> Copies:
        """The copies among the answers."""
        ties = _Ties.of(self.hashes, self.right)
        if (copies := ties.whole_copies()) is not None:
            return copies
        first = np.unique(ties.index, return_index=True)[1]
        repeated = np.flatnonzero(ties.repeated)
        repeated = repeated[np.argsort(self.confidence[first[repeated]], kind="stable")]
        changes = int(np.count_nonzero(np.diff(self.right[first[repeated]])))
        n_mixed = int(np.count_nonzero(~ties.same_label[repeated]))
        enough = changes >= _MIN_NEIGHBOR_CHANGES
        return ties.copies(enough and n_mixed <= (1.0 - _MIN_EQUAL_SHARE) * changes)


@dataclass(frozen=True, eq=False)
class _Ties:
    """Rows that are equal.

    `index` (n,) is the number of each row among those that differ, which come as often
    as their `counts` say, all with the `same_label` or not. Rows with their labels come
    a multiple of `n_times` times.
    """

    index: IntArray
    counts: IntArray
    same_label: BoolArray
    n_times: int

    @classmethod
    def of(cls, hashes: FloatArray, labels: AnyArray) -> Self:
        """Those of rows (n,) by their hashes."""
        _, index, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        distinct, label = np.unique(labels, return_inverse=True)
        pairs, times = np.unique(index * distinct.size + label, return_counts=True)
        n_labels = np.bincount(pairs // max(distinct.size, 1), minlength=counts.size)
        enough = pairs.size >= _MIN_DISTINCT_ROWS
        n_times = int(np.gcd.reduce(times)) if enough else 1
        return cls(index, counts, n_labels == 1, n_times)

    @property
    def repeated(self) -> BoolArray:
        """Which of those that differ come several times, (distinct,)."""
        return np.asarray(self.counts > 1)

    @property
    def equally_often(self) -> bool:
        """Whether all come equally often, more than once."""
        enough = self.counts.size >= _MIN_DISTINCT_ROWS and bool(self.repeated.all())
        return enough and bool((self.counts == self.counts[:1]).all())

    def copies(self, certain: bool) -> Copies:
        """All equal rows, if it is `certain` that these are copies."""
        repeated = self.repeated
        equal = bool(repeated.any())
        if equal:
            equal = bool(self.same_label[repeated].mean() >= _MIN_EQUAL_SHARE)
        return Copies(self.index.size, self.counts.size, certain, equal)

    def whole_copies(self) -> Copies | None:
        """Copies of all rows equally often, which may have ties; None if there are none.

        Of independent rows, 20 pairs of row and label all come an even number of times
        with probability 1e-6.
        """
        if self.n_times == 1:
            return None
        n_rows = self.index.size
        return Copies(n_rows, n_rows // self.n_times, certain=True, equal_labels=True)


@dataclass(frozen=True)
class Copies:
    """Exact copies among rows.

    Attributes
    ----------
    n_rows, n_distinct : how many rows there are, and how many differ
    certain : whether they are copies, and no ties of independent examples
    equal_labels : whether rows that are equal have equal labels
    """

    n_rows: int
    n_distinct: int
    certain: bool
    equal_labels: bool

    @property
    def share(self) -> float:
        """The share of rows that copy another one; 0 if they may be ties."""
        if not self.certain:
            return 0.0
        return 1.0 - self.n_distinct / self.n_rows

    @property
    def description(self) -> str:
        """How many there are, in words."""
        labels = "the same label" if self.equal_labels else "any label"
        return (
            f"{self.share:.0%} of {self.n_rows:,} rows are exact copies of another one "
            f"with {labels}, {self.n_distinct:,} are different"
        )


def copied_inputs(hashes: FloatArray, labels: AnyArray, continuous: bool) -> Copies:
    """The exact copies among inputs of a classifier, by their hashes (n,).

    Rows of `continuous` inputs are not equal by chance.
    """
    ties = _Ties.of(hashes, labels)
    if (copies := ties.whole_copies()) is not None:
        return copies
    enough = int(ties.repeated.sum()) >= _MIN_NEIGHBOR_CHANGES
    copies = ties.copies(continuous and enough)
    return replace(copies, certain=copies.certain and copies.equal_labels)


def warn_of_copied_inputs(copies: Copies) -> None:
    """Warn if a classifier is calibrated on copies of the rows that it learned from."""
    if copies.share >= _MIN_REPORTED_SHARE:
        warn_user(
            f"`X` hold copies: {copies.description}. Models are calibrated on copies of "
            "rows that they have learned from, and look better than they are. Give "
            "each example once, with how often it counts as `sample_weight`, or keep "
            "copies together: `cv=GroupKFold()` and `groups`.",
            FitDataWarning,
            cause=_COPIES,
        )


def warn_of_copies_in_fit(copies: Copies, *, name: str = "logits") -> None:
    """Warn if many rows of a fit are copies; `name` is the argument."""
    if copies.share < _MIN_REPORTED_SHARE:
        return
    remedy = "Give each example once, with how often it counts as `sample_weight`"
    if name == "logits":
        remedy += "; several evaluations of each example are a `hokical.Ensemble`"
    warn_user(
        f"`{name}` hold copies: {copies.description}. {_IN_FIT}. {remedy}.",
        FitDataWarning,
        cause=_COPIES,
    )


def warn_of_repeats_in_fit(logits: Logits, labels: IntArray) -> None:
    """Warn if rows of a fit look like several of each example, reshaped."""
    if description := _describe_repeats(logits, labels):
        warn_user(
            f"{description} {_IN_FIT}. Pass the rows of each example as one "
            "`hokical.Ensemble`.",
            FitDataWarning,
            cause=_COPIES,
        )


def warn_of_copies_in_test(
    copies: Copies,
    *,
    name: str = "x",
    folds: int | None = None,
    clusters: bool = True,
) -> None:
    """Warn if many rows that are to measure something are copies.

    They may be held out in `folds`, or be given `clusters`.
    """
    if copies.share < _MIN_REPORTED_SHARE:
        return
    consequence = _IN_TEST if folds is None else f"{_IN_TEST}, {_IN_FOLDS}"
    remedy = f"{_CLUSTER}, or give each example once"
    if not clusters:
        remedy = "Give each example once"
    warn_user(
        f"`{name}` hold copies: {copies.description}. {consequence}. {remedy}.",
        FitDataWarning,
        cause=_TEST_COPIES,
    )


def warn_of_repeats_in_test(
    logits: Logits, labels: IntArray, *, folds: int | None = None
) -> None:
    """Warn if rows that are to measure something look like several of each example."""
    if description := _describe_repeats(logits, labels):
        consequence = _IN_TEST if folds is None else f"{_IN_TEST}, {_IN_FOLDS}"
        warn_user(
            f"{description} {consequence}. {_CLUSTER}, or the rows of each example as "
            "one `hokical.Ensemble`.",
            FitDataWarning,
            cause=_TEST_COPIES,
        )


@contextmanager
def copies_reported() -> Iterator[None]:
    """A context in which fits do not report copies, which has been done."""
    log = WarningLog.current()
    log.add(_COPIES)
    with log.once():
        yield


def refuse_copies(
    copies: Copies, reused: Reused, *, name: str = "logits", remedy: str = _CLUSTER
) -> None:
    """Raise if many rows that are to prove something are copies; warn of fewer.

    Unless `reused` allows it. `name` is the argument, and the `remedy` that of the
    method that was called.
    """
    check_choice("reused", reused, Reused)
    if reused == "ignore" or copies.share < _MIN_REPORTED_SHARE:
        return
    message = (
        f"`{name}` must be of independent examples; {copies.description}. "
        f"{_ASSUMPTION}. {remedy}, or give each example once. If new rows happen to be "
        'identical, pass `reused="ignore"` (--look-alike).'
    )
    if copies.equal_labels and copies.share >= _MIN_REFUSED_SHARE:
        raise ValueError(message)
    warn_user(message, FitDataWarning, cause=_COPIES)


def warn_of_repeats(rows: Rows, reused: Reused, *, remedy: str = _CLUSTER) -> None:
    """Warn if checked rows look like several of each example, reshaped.

    Labels then repeat, each some times in a row or all of them in the same order, and
    the rows behind equal labels are much nearer to each other than to other rows of
    that label.
    """
    if type(rows.scores) is not Logits or reused == "ignore":
        return
    if description := _describe_repeats(rows.scores, rows.labels):
        warn_user(
            f"{description} {_ASSUMPTION}. {remedy}, or the rows of each example as one "
            "`hokical.Ensemble`.",
            FitDataWarning,
            cause="several rows of each example",
        )


def _describe_repeats(logits: Logits, labels: IntArray) -> str:
    """That there are several rows of each example, in words; "" if there are not."""
    n_per_example = _rows_per_example(logits, labels)
    if n_per_example == 1:
        return _describe_neighbors(logits, labels)
    n_examples = logits.n_rows // n_per_example
    return (
        f"`logits` look like {n_per_example} rows of each of {n_examples:,} examples: "
        "their labels repeat, and rows behind one label are near to each other."
    )


#: Rows of an example follow each other, or all examples take turns.
_ORDERS: tuple[Literal["C", "F"], ...] = ("C", "F")


def _rows_per_example(logits: Logits, labels: IntArray) -> int:
    """How many rows of each example there are, by labels and distances; 1 if unclear."""
    n_rows = labels.size
    for size in range(min(_MAX_PER_EXAMPLE, n_rows // _MIN_EXAMPLES), 1, -1):
        if n_rows % size:
            continue
        shape = (n_rows // size, size)
        for order in _ORDERS:
            if not _labels_repeat(labels.reshape(shape, order=order)):
                continue
            index = np.arange(n_rows).reshape(shape, order=order)
            if _are_near(logits, labels, index):
                return size
    return 1


def _labels_repeat(labels: IntArray) -> bool:
    """Whether examples (n, rows) have one label each, and neighbours often others."""
    first = labels[:, 0]
    repeat = bool((labels == first[:, None]).all())
    return repeat and int((np.diff(first) != 0).sum()) >= _MIN_CHANGES


def _are_near(logits: Logits, labels: IntArray, index: IntArray) -> bool:
    """Whether rows of an example are nearer to each other than to another of its label.

    `index` (examples, rows) are the numbers of the rows of each example.
    """
    n_examples, n_per_example = index.shape
    draws = row_draws(0, n_examples)
    chosen = np.argsort(draws)[:_MAX_COMPARED]
    first = index[chosen, 0]
    second_column = 1 + (draws[chosen] * (n_per_example - 1)).astype(np.int64)
    second = index[chosen, second_column]
    row_of_label = _next_of_label(labels[first])
    paired = row_of_label >= 0
    if paired.sum() < _MIN_EXAMPLES // 2:
        return False
    start = _host_margins(logits, first)
    stop = _host_margins(logits, second)
    within = np.abs(start - stop).sum(axis=1)[paired]
    across = np.abs(start[paired] - stop[row_of_label[paired]]).sum(axis=1)
    # Of independent rows half are nearer, and as many farther.
    nearer = np.sign(across - within)
    return bool(nearer.mean() > _MIN_ERRORS / np.sqrt(nearer.size))


def _next_of_label(labels: IntArray) -> IntArray:
    """The place (n,) of another row of the same label; -1 where there is none."""
    following = np.full(labels.size, -1)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        if rows.size > 1:
            following[rows] = np.roll(rows, 1)
    return following


def _describe_neighbors(logits: Logits, labels: IntArray) -> str:
    """That rows with a wrong label have one like themselves beside them; "" if not.

    So have several evaluations of an example, in any order. The nearest row of another
    example seldom has the same wrong label, nor have those around it. A label counts
    as often as any other: one that is always wrong may have rows near to each other.
    """
    wrong = np.flatnonzero(logits.to_host(logits.labels) != labels)
    n_rows = labels.size
    can_tell = _MIN_WRONG <= wrong.size <= _MAX_WRONG_SHARE * n_rows
    if not can_tell or not 2 * _MAX_PER_EXAMPLE < n_rows <= _MAX_SEARCHED:
        return ""
    if np.unique(labels[wrong]).size < _MIN_WRONG_LABELS:
        return ""
    draws = row_draws(0, n_rows)[wrong]
    sought = wrong[np.argsort(draws)[:_MAX_SOUGHT]]
    alike, around_them = _alike_nearby(logits, labels, sought)
    by_label = np.unique(labels[sought], return_inverse=True)[1]
    sizes = np.bincount(by_label)
    nearest, around = (
        float((np.bincount(by_label, shares) / sizes).mean())
        for shares in (alike, around_them)
    )
    if nearest < _MIN_NEAREST_SHARE or around > _MAX_AROUND_SHARE:
        return ""
    return (
        "`logits` look like several rows of each example: the nearest row of those with "
        f"a wrong label has the same label in {nearest:.0%} of the cases, and rows "
        f"around it in {around:.0%}."
    )


def _alike_nearby(
    logits: Logits, labels: IntArray, sought: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Of some rows, (sought,): whether the nearest other row has the same label, and the
    share of those with it among the 65th to 128th.
    """
    n_kept = min(2 * _MAX_PER_EXAMPLE, logits.n_rows - 1)
    xp = logits.xp
    rows = logits.from_host(sought)
    with logits.backend.in_float64(), np.errstate(over="ignore"):
        distances = _distances_from(logits, rows)
        if logits.is_numpy:
            kept = np.argpartition(distances, n_kept - 1, axis=1)[:, :n_kept]
            places = np.argsort(np.take_along_axis(distances, kept, axis=1), axis=1)
            order = np.take_along_axis(kept, places, axis=1)
        else:
            order = xp.argsort(distances, axis=1)[:, :n_kept]
        truth = logits.from_host(labels)
        found = xp.reshape(xp.take(truth, xp.reshape(order, (-1,))), order.shape)
        alike = xp.astype(found == xp.take(truth, rows)[:, None], xp.float64)
        around = xp.mean(alike[:, _MAX_PER_EXAMPLE:], axis=1)
    return logits.to_host(alike[:, 0]), logits.to_host(around)


def _distances_from(logits: Logits, rows: Array) -> Array:
    """Squared distances (k, n) of some rows from all, but for a constant of each of the
    k; infinite from itself.
    """
    xp = logits.xp
    last = logits.n_columns - 1
    columns = np.unique(np.linspace(0, last, _MAX_COLUMNS).astype(np.int64))
    sampled = xp.take(logits.values, logits.from_host(columns), axis=1)
    top = xp.astype(logits.top, xp.float64)[:, None]
    margins = xp.clip(top - xp.astype(sampled, xp.float64), None, _MAX_MARGIN)
    products = xp.take(margins, rows, axis=0) @ margins.T
    distances = xp.sum(margins * margins, axis=1)[None, :] - 2.0 * products
    is_itself = logits.from_host(np.arange(logits.n_rows))[None, :] == rows[:, None]
    return xp.where(is_itself, np.inf, distances)


def _host_margins(logits: Logits, rows: IntArray) -> FloatArray:
    """How far logits (k, classes) of some rows lie below the best one."""
    chosen = logits.take(rows)
    margins = chosen.to_host(chosen.margins).astype(np.float64)
    return np.minimum(margins, _MAX_MARGIN)
