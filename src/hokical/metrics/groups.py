"""Calibration by group, for a good average can hide people or classes; accuracy of few
labels.

A group's number of events is tested against what their probabilities predict. Without
weights the distribution of the sum is exact. A weighted sum is tested by Lugannani and
Rice's saddlepoint approximation with a correction for its steps, which is conservative
for few rows: in simulations of 3 to 3000 rows a test had at most its level of false
alarms.

Prediction-powered inference finds an accuracy, of all rows and by group, from a few
labels and the confidences of many rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, product
from typing import Any, Self

import numpy as np

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.groups import GroupCoding, GroupNames, count_rows
from hokical._core.reading import as_labels, as_weights, refuse, shape_of, to_floats
from hokical._core.runtime import warn_user
from hokical.guarantees.bounds import check_chance
from hokical.metrics.intervals import share_ends
from hokical.metrics.levels import Outcomes, as_examples, as_predictions

#: More events than this are merged if their probabilities agree to 1/256.
_EVENTS = 1024
_PROBABILITIES = 256
#: p-values below this are rounding.
LEAST_P = 1e-10


def sum_distribution(probabilities: FloatArray) -> tuple[int, FloatArray]:
    """Of the number of independent events that happen: k, and P(number = k + 0, 1,
    ...).

    Of up to 1024 events by adding one after the other. Of more, those whose
    probabilities agree to 1/256 have their mean, which can only widen the distribution
    (Hoeffding, 1956, doi:10.1214/aoms/1177728178), by about 1e-5; all numbers that are
    left out are together as likely as rounding, 1e-10.

    >>> sum_distribution(np.array([0.5, 0.5]))
    (0, array([0.25, 0.5 , 0.25]))
    """
    if probabilities.size <= _EVENTS:
        chances = np.zeros(probabilities.size + 1)
        chances[0] = 1.0
        for k, p in enumerate(probabilities.tolist()):
            happened = p * chances[: k + 1]
            chances[: k + 1] *= 1.0 - p
            chances[1 : k + 2] += happened
        return 0, chances
    cell = np.minimum(
        (probabilities * _PROBABILITIES).astype(np.int64), _PROBABILITIES - 1
    )
    counts = np.bincount(cell, minlength=_PROBABILITIES).astype(np.float64)
    sums = np.bincount(cell, probabilities, _PROBABILITIES)
    used = counts > 0
    p = np.clip(sums[used] / counts[used], 0.0, 1.0)
    counts = counts[used]
    spread = math.sqrt(float(counts @ (p * (1.0 - p))))
    # The probability beyond is negligible.
    width = 1 << math.ceil(math.log2(24.0 * spread + 64.0))
    first = math.floor(float(counts @ p)) - width // 2
    angle = 2.0 * np.pi / width * np.arange(width // 2 + 1)
    # The modulus and the argument of the characteristic function.
    log_size = np.zeros(angle.size)
    turn = first * angle
    for probability, count in zip(p.tolist(), counts.tolist(), strict=True):
        factor = 1.0 + probability * (np.exp(-1j * angle) - 1.0)
        with np.errstate(divide="ignore"):  # a factor can be 0, and the product then is
            log_size += count * np.log(np.abs(factor))
        turn += count * np.angle(factor)
    return first, np.clip(np.fft.irfft(np.exp(log_size + 1j * turn), width), 0.0, 1.0)


def event_p_value(p: FloatArray, counts: FloatArray, events: float) -> float:
    """Exact two-sided p-value of a number of events, if probabilities are `p` (n,).

    Each probability is that of `counts` (n,) rows, in whole numbers.
    """
    rows = np.repeat(p, np.rint(counts).astype(np.int64))
    return tail_p_value(sum_distribution(rows), events)


def tail_p_value(distribution: tuple[int, FloatArray], events: float) -> float:
    """Two-sided p-value of a number of events with such a `sum_distribution`."""
    first, chances = distribution
    index = min(max(round(events) - first, 0), chances.size - 1)
    tail = min(float(chances[: index + 1].sum()), float(chances[index:].sum()))
    return min(max(2.0 * tail, LEAST_P), 1.0)


def sum_p_value(p: FloatArray, correct: BoolArray, weight: FloatArray | None) -> float:
    """Two-sided p-value of the (weighted) number of events, if their probabilities are
    `p` (n,).

    With weights by Lugannani and Rice (1980, doi:10.2307/1426607): the sum is moved
    towards its mean by half the weight of a typical event, as for a lattice.
    """
    if weight is None:
        return event_p_value(p, np.ones(p.size), float(correct.sum()))
    from scipy.optimize import minimize_scalar
    from scipy.special import ndtr

    weight = weight / weight.max()
    unsure = p * (1.0 - p)
    sign = math.copysign(1.0, float(weight @ (correct - p)))
    if (correct != p)[unsure == 0.0].any():  # a certainty was wrong
        return LEAST_P
    variance = float(weight**2 @ unsure)
    turned = sign * weight
    half = 0.5 * variance / float(weight @ unsure) if variance > 0.0 else 0.0
    size = float(turned @ (correct - p)) - half
    # Where the formula has no digits, and nothing is found.
    if size <= 0.1 * math.sqrt(variance):
        return 1.0
    with np.errstate(divide="ignore"):  # of a certainty
        log_p = np.log(p)
        log_q = np.log1p(-p)

    def exponent(t: float) -> float:
        return (
            float(np.logaddexp(log_q, log_p + t * turned).sum() - t * (turned @ p))
            - t * size
        )

    least = minimize_scalar(exponent, bounds=(0.0, 64.0), options={"xatol": 1e-9})
    t = float(least.x)
    r = math.sqrt(max(-2.0 * least.fun, 1e-12))
    tilted = p / (p + (1.0 - p) * np.exp(-t * turned))
    u = t * math.sqrt(float(weight**2 @ (tilted * (1.0 - tilted))))
    density = math.exp(-0.5 * r * r) / math.sqrt(2.0 * math.pi)
    return min(
        max(2.0 * (float(ndtr(-r)) + density * (1.0 / u - 1.0 / r)), LEAST_P), 1.0
    )


def mean_p_values(
    n: FloatArray, predicted: FloatArray, observed: FloatArray
) -> FloatArray:
    """Upper bounds of p-values from means alone: Chernoff's bound, for rows of any
    probabilities.

    (Hoeffding, 1963, doi:10.1080/01621459.1963.10500830.)
    """
    from scipy.special import rel_entr

    distance = rel_entr(observed, predicted) + rel_entr(1.0 - observed, 1.0 - predicted)
    return np.asarray(np.minimum(1.0, 2.0 * np.exp(-n * distance)))


def holm(p_values: FloatArray) -> FloatArray:
    """Holm's adjusted p-values, in the given order; NaN stays and does not count.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    adjusted = np.full(p_values.shape, np.nan)
    order = np.argsort(p_values)[: int((~np.isnan(p_values)).sum())]
    factors = np.arange(order.shape[0], 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    return adjusted


#: Pairs of groups with fewer examples are left out: they can prove next to nothing.
LEAST_OF_PAIR = 20
#: What is asked of every table: is the predicted label right?
LABEL = "label"
#: Segments of confidence inside which groups are tested too, and their share of
#: `delta`.
SEGMENTS = 4
SEGMENT_SHARE = 0.2


@dataclass(frozen=True)
class GroupRow:
    """The `n` rows of a group: mean predicted probability, observed share with
    interval, and test.

    `z` is the sum of what happened less what was predicted, in standard deviations;
    `p_value` the probability of such a sum if every prediction were right. It is
    `flagged` if that is ruled out, allowing for the number of groups. `asked` is
    "label" if predicted and observed are of the predicted label being right, or the
    class whose probability was tested.
    """

    name: str
    n: int
    predicted: float
    observed: float
    low: float
    high: float
    z: float
    p_value: float
    flagged: bool
    asked: str = LABEL

    @property
    def gap(self) -> float:
        """Predicted less observed; above 0 where the predictions are over-confident."""
        return self.predicted - self.observed

    @property
    def oe_ratio(self) -> float:
        """Observed to expected; above 1 where the predictions are too low. NaN if
        none expected.
        """
        return self.observed / self.predicted if self.predicted > 0.0 else math.nan

    @property
    def full_name(self) -> str:
        """The name, with the class that was asked about."""
        return self.name if self.asked == LABEL else f"{self.name} ({self.asked})"


@dataclass(frozen=True)
class GroupTable:
    """One row per group, and per pair of groups of different columns; see
    `group_table`.

    `segments` are the parts of groups, by confidence, that are certainly miscalibrated.
    """

    rows: tuple[GroupRow, ...]
    delta: float
    segments: tuple[GroupRow, ...] = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """What was asked of each group: "label", and the positive class of two."""
        return tuple(dict.fromkeys(row.asked for row in self.rows))

    @property
    def flagged(self) -> tuple[GroupRow, ...]:
        """The groups that are certainly miscalibrated, the smallest p-value first."""
        return tuple(row for row in self.worst() if row.flagged)

    def worst(self, limit: int | None = None) -> tuple[GroupRow, ...]:
        """The rows by p-value, the smallest first."""
        return tuple(
            sorted(self.rows, key=lambda row: (row.p_value, -abs(row.z)))[:limit]
        )

    def __getitem__(self, name: str | float) -> GroupRow:
        rows = {row.full_name: row for row in self.rows}
        key = str(name).removesuffix(".0") if isinstance(name, float) else str(name)
        if key not in rows:
            raise KeyError(
                f"no group is called {name!r}; there are {', '.join([*rows][:20])}"
            )
        return rows[key]

    @property
    def verdict(self) -> str:
        """In words, for all groups at once."""
        bad = self.flagged
        segments = self.segments
        n_groups = len({row.name for row in self.rows})
        if not bad and not segments:
            return f"no group of {n_groups} is clearly miscalibrated"
        row = (bad or segments)[0]
        ratio = "" if row.asked == LABEL else f" (O:E {row.oe_ratio:.2f})"
        shares = f"predicted {row.predicted:.1%}, observed {row.observed:.1%}{ratio}"
        worst = f"{row.full_name}: {row.n:,} rows, {shares}"
        if not bad:
            return f"no whole group is clearly miscalibrated, but a part is, {worst}"
        n_bad = len({row.name for row in bad})
        return f"{n_bad} of {n_groups} groups are miscalibrated, most clearly {worst}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {"verdict": self.verdict, "asked": list(self.asked), **asdict(self)}

    def __str__(self) -> str:
        width = max(len("group"), *(len(row.full_name) for row in self.rows))
        lines = [
            f"{row.full_name:{width}} {row.n:>8,} {row.predicted:>9.1%} "
            f"{row.observed:>9.1%} ({row.low:.1%} to "
            f"{row.high:.1%}){'  miscalibrated' if row.flagged else ''}"
            for row in self.rows
        ]
        head = f"{'group':{width}} {'rows':>8} {'predicted':>9} {'observed':>9}"
        events = ", and ".join(name for name in self.asked if name != LABEL)
        questions = f"Asked: is the label right, and {events}?"
        verdict = f"{self.verdict[0].upper()}{self.verdict[1:]}."
        if len(self.asked) > 1:
            lines.append(questions)
        return "\n".join([head, *lines, verdict])


def group_table(
    proba: object,
    labels: object,
    groups: object,
    *,
    sample_weight: object = None,
    delta: float = 0.05,
    classes: Sequence[str] = (),
    class_names: Sequence[str] | None = None,
) -> GroupTable:
    """Which groups are miscalibrated? A row for each: predicted, observed, and a test.

    Parameters
    ----------
    proba : array of shape (n, classes), or confidence of shape (n,)
        Of probabilities, the label is the likeliest class, and its probability the
        confidence. Of two classes the probability of the second is tested as well, in
        rows of their own: a risk can be wrong where the label is right as often as
        predicted.
    labels : array of shape (n,)
        The true classes; with a confidence (n,), whether each prediction was right.
    groups : array of shape (n,), or several columns
        Text or numbers; a mapping, a DataFrame, a structured array or (n, columns) for
        several columns, whose groups overlap. Then pairs of groups of two columns, of
        at least 20 rows, are tested too. So is each group within each quarter of the
        confidences. Numbers with more than 20 different values are cut at deciles, but
        for whole numbers (n,) alone, which are names, such as the predicted labels.
    sample_weight : array of shape (n,), optional
        How much each row counts, as in a survey. Shares and tests are weighted;
        intervals are those of as many rows as the weights are worth, which is
        approximate.
    delta : float
        Probability that anything is flagged if every prediction is right (Holm's method
        on exact p-values, which holds however groups overlap): four fifths of it for
        groups and pairs, one fifth for parts of them by confidence. Intervals of the
        observed share (Clopper and Pearson's) are at 1 - delta each.
    classes : sequence of str
        Names of the classes, by column.
    class_names : sequence of str, optional
        Deprecated, see `classes`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> site = rng.choice(["north", "south", "west"], size=3000)
    >>> confidence = rng.uniform(0.6, 1.0, size=3000)
    >>> right = rng.uniform(size=3000) < confidence - 0.1 * (site == "west")
    >>> table = group_table(confidence, right, site)
    >>> [row.name for row in table.flagged], table.segments[0].name
    (['west'], 'west, confidence 0.90 to 1.00')
    """
    classes = renamed_classes(classes, class_names)
    weights = (
        None if sample_weight is None else as_weights(sample_weight, count_rows(labels))
    )
    if len(shape_of(proba)) != 2:
        return audit({LABEL: as_examples(proba, labels)}, groups, weights, delta)
    if len(shape_of(labels)) == 2:
        raise ValueError(
            "`labels` must be one per row (n,), for tests of groups; got votes of "
            f"shape {shape_of(labels)}."
        )
    data = as_predictions(proba, labels)
    questions = {LABEL: data.top_label}
    if data.proba.shape[1] == 2:
        names = check_names(classes, 2)
        questions[names[1] if names else "class 1"] = data.event()
    return audit(questions, groups, weights, delta)


def renamed_classes(
    classes: Sequence[str], class_names: Sequence[str] | None
) -> Sequence[str]:
    """The `classes`, under the name that they had up to 0.5 as well."""
    if class_names is None:
        return classes
    warn_user("`class_names` is `classes` now; it goes with 0.7.", FutureWarning)
    return class_names


def check_names(names: Sequence[str] | None, n_classes: int) -> tuple[str, ...]:
    """Names of all classes, or none."""
    if names is None:
        return ()
    if isinstance(names, str) or len(names) not in (0, n_classes):
        raise ValueError(
            f"`classes` must have a name for each of the {n_classes} columns, in their "
            f"order; got {names!r}."
        )
    return tuple(map(str, names))


def audit(
    questions: dict[str, Outcomes],
    groups: object,
    weights: FloatArray | None,
    delta: float,
) -> GroupTable:
    """The table of checked rows, one or several questions about the same ones."""
    check_chance("delta", delta)
    n = next(iter(questions.values())).n_rows
    coding, codes = GroupCoding.read(groups, n, weights)
    cells = list(_cells(coding, codes if weights is None else codes[weights > 0.0]))
    tests = []
    segment_tests = []
    for question, outcomes in questions.items():
        rows = Outcomes(outcomes.confidence, outcomes.correct, weights).counted()
        tests += [_test(rows, name, members, question) for name, members in cells]
        segment_tests += [
            _test(rows, name, members, question)
            for name, members in _segments(rows, cells)
        ]
    segments: tuple[GroupRow, ...] = ()
    if segment_tests:
        segments = _make_rows(segment_tests, delta, SEGMENT_SHARE * delta)
    flagged = [row for row in segments if row.flagged]
    return GroupTable(
        _make_rows(tests, delta, (1.0 - SEGMENT_SHARE) * delta),
        delta,
        tuple(sorted(flagged, key=lambda row: row.p_value)),
    )


def _segments(
    rows: Outcomes, cells: Sequence[tuple[str, IntArray]]
) -> Iterator[tuple[str, IntArray]]:
    """The rows of each group within each quarter of all confidences: name, numbers."""
    cuts = np.quantile(rows.confidence, np.arange(1, SEGMENTS) / SEGMENTS)
    quarter = np.searchsorted(cuts, rows.confidence, side="right")
    edges = [f"{edge:.2f}" for edge in (0.0, *cuts, 1.0)]
    for (name, members), k in product(cells, range(SEGMENTS)):
        inside = members[quarter[members] == k]
        if LEAST_OF_PAIR <= inside.size < members.size:
            yield f"{name}, confidence {edges[k]} to {edges[k + 1]}", inside


def label_table(names: Sequence[str], sums: FloatArray, delta: float) -> GroupTable:
    """A table from sums by group: rows, weight, its squares, confidence and correct,
    (5, groups).

    p-values are bounds, as single rows are not known.
    """
    occurring = np.flatnonzero(sums[1] > 0.0)
    count, weight, squares, confidence, correct = sums[:, occurring]
    predicted, observed = (np.clip(s / weight, 0.0, 1.0) for s in (confidence, correct))
    worth = weight**2 / squares
    z = (observed - predicted) / np.sqrt(
        np.maximum(predicted * (1.0 - predicted), 1e-12) / worth
    )
    p = mean_p_values(worth, predicted, observed)
    columns = (count.astype(np.int64), worth, predicted, observed, z, p)
    group_names = [names[k] for k in occurring.tolist()]
    questions = [LABEL] * occurring.size
    values = (column.tolist() for column in columns)
    tests = list(zip(group_names, questions, *values, strict=True))
    return GroupTable(_make_rows(tests, delta, delta), delta)


def label_rows(
    rows: Outcomes, predicted: IntArray, names: Sequence[str], delta: float
) -> GroupTable:
    """The table of the groups that got each predicted label, with exact tests."""
    tests = [
        _test(rows, str(names[k] if names else k), members)
        for k, members in _split(predicted)
    ]
    return GroupTable(_make_rows(tests, delta, delta), delta)


def count_items(table: GroupTable, n_items: int) -> GroupTable:
    """The table with tests for which rows of one item are one example."""
    shares = ((row.n, row.predicted, row.observed) for row in table.rows)
    n, predicted, observed = np.array([*shares]).T
    p = mean_p_values(np.minimum(n, n_items), predicted, observed)
    tested = zip(table.rows, p.tolist(), (holm(p) <= table.delta).tolist(), strict=True)
    return replace(
        table, rows=tuple(replace(r, p_value=k, flagged=f) for r, k, f in tested)
    )


def _make_rows(
    tests: list[tuple[Any, ...]], delta: float, level: float
) -> tuple[GroupRow, ...]:
    """Rows with intervals, and flags at `level` that allow for the number of tests."""
    names, questions, n, worth, predicted, observed, z, p = zip(*tests, strict=True)
    low, high = zip(*share_ends(observed, worth, delta), strict=True)
    flags = (holm(np.array(p)) <= level).tolist()
    columns = (names, n, predicted, observed, low, high, z, p, flags, questions)
    return tuple(GroupRow(*row) for row in zip(*columns, strict=True))


def _cells(coding: GroupCoding, codes: IntArray) -> Iterator[tuple[str, IntArray]]:
    """The groups that occur, then pairs of groups of two columns: name, and numbers
    of rows.
    """
    names = [coding.full_names(k) for k in range(len(coding.columns))]
    for k, group_names in enumerate(names):
        yield from (
            (group_names[c], rows) for c, rows in _split(codes[:, k]) if rows.size
        )
    for i, j in combinations(range(len(names)), 2):
        for cell, rows in _split(codes[:, i] * len(names[j]) + codes[:, j]):
            if rows.size >= LEAST_OF_PAIR:
                first, second = divmod(cell, len(names[j]))
                yield f"{names[i][first]}, {names[j][second]}", rows


def _split(codes: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Each code that occurs, with the numbers of its rows."""
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield int(codes[rows[0]]), rows


def _test(
    rows: Outcomes, name: str, members: IntArray, asked: str = LABEL
) -> tuple[Any, ...]:
    """Of some rows: name, what was asked, rows, how many they are worth, shares, z
    and p-value.
    """
    confidence = rows.confidence[members]
    correct = rows.correct[members]
    weight = None if rows.weight is None else rows.weight[members]
    share = np.ones(members.size) if weight is None else weight / weight.mean()
    predicted = float((share * confidence).mean())
    observed = float((share * correct).mean())
    spread = float(
        np.sqrt((share**2 * confidence * (1.0 - confidence)).mean() / members.size)
    )
    gap = observed - predicted
    # Infinite where a certainty was wrong.
    certain = 0.0 if abs(gap) < 1e-9 else math.copysign(math.inf, gap)
    z = gap / spread if spread > 0.0 else certain
    worth = members.size / float((share**2).mean())
    p = sum_p_value(confidence, correct, weight)
    return name, asked, members.size, worth, predicted, observed, z, p


#: Distance from 0 and 1 to which confidences are clipped before their log-odds.
_MIN_DISTANCE = 0.01
#: Ridge on each standardized column.
_RIDGE = 1.0
#: Right and wrong labels below which the labels' own exact interval is given.
_MIN_OF_EACH = 10
#: The confidences are used where they reduce the variance by 1 %, ...
_MAX_VARIANCE_SHARE = 0.99
#: ... and where the interval is at most 2 % wider than that of the labels.
_MAX_WIDTH_RATIO = 1.02


@dataclass(frozen=True)
class PredictionPowered:
    """An accuracy with its interval at 1 - delta, from `n` labels and `n_unlabelled`
    rows.

    `labels_alone` is the accuracy of the labelled rows with its exact interval.
    `effective` is how many labels alone would be as precise: n where the confidences
    were of no use. `by_group` has the same for each group that has labels.
    """

    accuracy: float
    low: float
    high: float
    n: int
    n_unlabelled: int
    effective: float
    labels_alone: tuple[float, float, float]
    by_group: dict[Any, PredictionPowered] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        worth = f"as precise as {self.effective:,.0f} labels alone"
        if self.effective == self.n:
            worth = "the confidences were of no use"
        estimate = f"{self.accuracy:.1%} ({self.low:.1%} to {self.high:.1%})"
        return (
            f"{estimate}, from {self.n:,} labels and {self.n_unlabelled:,} rows without: "
            f"{worth}"
        )


def prediction_powered_accuracy(
    confidence: object,
    correct: object,
    unlabelled: object,
    *,
    delta: float = 0.05,
    groups: object = None,
    unlabelled_groups: object = None,
) -> PredictionPowered:
    """The accuracy of today's rows, from some labels and the confidences of the other
    rows.

    The labelled rows must be a random sample of the rows. Then the interval holds,
    however bad the confidences are; good ones make it narrower. What is estimated is a
    mean of yes or no: with probabilities of an event and whether it occurred, the share
    of events; with a judge's scores and human labels, a pass rate.

    Parameters
    ----------
    confidence : array of shape (n,) or (n, signals)
        Numbers in [0, 1] of the labelled rows. They need not be calibrated: a
        regression on them predicts the labels, each label by a fit without it.
    correct : array of shape (n,)
        Whether each of them is right.
    unlabelled : array of shape (m,) or (m, signals)
        Of the rows without a label.
    delta : float
        Probability that the interval misses (approximately: it is exact where the
        confidences are not used).
    groups, unlabelled_groups : array-like of shape (n,) and (m,), or several columns,
        optional For `by_group`.

    Notes
    -----
    With the prediction h_i of label y_i by the others, the estimate is the mean of h
    over the m rows plus the mean of y_i - h_i (Angelopoulos et al., 2023,
    doi:10.1126/science.adi6000). Its variance is turned into a number of labels, whose
    Clopper-Pearson interval is given. With fewer than 10 right or wrong labels, and
    where the confidences hardly help, it is that of the labels.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.beta(2.0, 1.0, size=20_000)
    >>> right = rng.random(20_000) < confidence**2
    >>> print(
    ...     prediction_powered_accuracy(confidence[:200], right[:200], confidence[200:])
    ... )
    48.8% (42.7% to 54.9%), from 200 labels and 19,800 rows without: as precise as 270 labels alone
    """
    check_chance("delta", delta)
    labelled = _columns(confidence, "confidence")
    unlabelled_columns = _columns(unlabelled, "unlabelled")
    if labelled.shape[1] != unlabelled_columns.shape[1]:
        raise ValueError(
            f"`unlabelled` must have the {labelled.shape[1] // 2} signals of "
            f"`confidence`; got {unlabelled_columns.shape[1] // 2}. Pass the same "
            "columns."
        )
    right = as_labels(correct, len(labelled), 2, name="correct", right=True)
    regression = _LabelRegression.fit(
        right.astype(np.float64), labelled, unlabelled_columns
    )
    every_row = regression.estimate(slice(None), slice(None), delta)
    if (groups is None) != (unlabelled_groups is None):
        missing = "groups" if groups is None else "unlabelled_groups"
        raise ValueError(
            f"`{missing}` must be given too: both kinds of rows need their groups."
        )
    if groups is None:
        return every_row
    names, group = GroupNames.from_rows(groups, len(labelled))
    other_groups = names.places(unlabelled_groups, len(unlabelled_columns))
    by_group = {
        name[0] if len(name) == 1 else name: regression.estimate(
            group == k, other_groups == k, delta
        )
        for k, name in enumerate(names.names)
    }
    return replace(every_row, by_group=by_group)


@dataclass(frozen=True, eq=False)
class _LabelRegression:
    """A ridge regression of labels on standardized columns, each label left out of its
    own fit.

    Attributes
    ----------
    labels : (n,)
    gaps : (n,), labels less the predictions of fits without them
    x, others : (n, k) and (m, k), the columns of rows with and without labels
    coefficients : (k,), of all labels
    inverse : (k, k), of the Hessian
    """

    labels: FloatArray
    gaps: FloatArray
    x: FloatArray
    others: FloatArray
    coefficients: FloatArray
    inverse: FloatArray

    @classmethod
    def fit(cls, labels: FloatArray, labelled: FloatArray, others: FloatArray) -> Self:
        """The regression on columns of the rows with and without labels."""
        columns = np.vstack([labelled, others])
        mean = columns.mean(axis=0)
        spread = np.maximum(columns.std(axis=0), 1e-9)
        x, x_others = (
            np.column_stack([np.ones(len(table)), (table - mean) / spread])
            for table in (labelled, others)
        )
        ridge = np.append(0.0, np.full(mean.size, _RIDGE))
        inverse = np.asarray(np.linalg.inv(x.T @ x + np.diag(ridge)), np.float64)
        projected = x @ inverse
        pull = x.T @ labels
        leverage = np.minimum((projected * x).sum(axis=1), 0.999)
        gaps = (labels - projected @ pull) / (1.0 - leverage)
        return cls(labels, gaps, x, x_others, inverse @ pull, inverse)

    def estimate(self, rows: Any, others: Any, delta: float) -> PredictionPowered:
        """The mean label of some rows with labels and some of the others."""
        labels = self.labels[rows]
        gaps = self.gaps[rows]
        x_others = self.others[others]
        n = len(labels)
        m = len(x_others)
        alone = float(labels.mean())
        low, high = share_ends(alone, n, delta)
        by_labels = PredictionPowered(
            accuracy=alone,
            low=low,
            high=high,
            n=n,
            n_unlabelled=m,
            effective=float(n),
            labels_alone=(alone, low, high),
        )
        if min(labels.sum(), n - labels.sum()) < _MIN_OF_EACH or not m:
            return by_labels
        left_out = self.coefficients - self.inverse @ (self.x[rows].T @ gaps) / n
        estimated = float(x_others.mean(axis=0) @ left_out + gaps.mean())
        predicted_variance = (x_others @ self.coefficients).var()
        variance = gaps.var(ddof=1) / n + predicted_variance / m
        variance_alone = labels.var(ddof=1) / n
        helps = variance < _MAX_VARIANCE_SHARE * variance_alone
        if not (helps and 0.0 < estimated < 1.0):
            return by_labels
        effective = float(n * variance_alone / variance)
        low, high = share_ends(estimated, effective, delta)
        if high - low > _MAX_WIDTH_RATIO * (by_labels.high - by_labels.low):
            return by_labels
        return replace(
            by_labels, accuracy=estimated, low=low, high=high, effective=effective
        )


def _columns(values: object, name: str) -> FloatArray:
    """Each of the confidences (n, signals) and its log-odds, (n, 2 signals)."""
    array = to_floats(values, name, "fiub")
    table = array[:, None] if array.ndim == 1 else array
    if table.ndim != 2 or not table.size:
        raise ValueError(
            f"`{name}` must be numbers (n,), or several signals (n, k), of at least one "
            f"entry; got shape {array.shape}."
        )
    refuse(
        ~((table >= 0.0) & (table <= 1.0)),
        table,
        f"`{name}` must lie in [0, 1]",
        "Divide percentages by 100, and drop rows without a confidence.",
    )
    clipped = np.clip(table, _MIN_DISTANCE, 1.0 - _MIN_DISTANCE)
    return np.hstack([table, np.log(clipped / (1.0 - clipped))])
