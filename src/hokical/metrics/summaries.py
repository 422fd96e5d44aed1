"""All metrics at once, with intervals and the bounds on the true calibration error; and of sets.

`METRICS` says what each metric is called, which way is better and how it is computed; tables,
reports and rankings read it, and show metrics in its order. Prediction sets are summarized by
coverage and size, for each class and each size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.checks import check_count
from hokical._core.reading import as_clusters, as_labels, as_weights, to_numpy
from hokical._core.special import normal_quantile
from hokical.guarantees.bounds import Method, calibration_bound, check_chance, clopper_pearson
from hokical.metrics import calibration, intervals
from hokical.metrics.examples import Outcomes, Predictions, as_examples, as_predictions
from hokical.metrics.levels import Bins, Levels, LevelSums, add_chunks, add_known, is_chunked
from hokical.metrics.ranking import area_under_risk, area_under_roc, risk_at


@dataclass(frozen=True)
class SummaryOptions:
    """How a summary was made."""

    n_bins: int = 15
    delta: float = 0.05

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_bins", check_count(self.n_bins))
        check_chance("delta", self.delta)


@dataclass(frozen=True)
class Metric:
    """What a metric is called, which way is better, and how it is computed.

    `detail` distinguishes it from others of the same title; `form` is how its numbers are shown;
    `upper` is its largest value, the least is 0. `ranking` metrics rank methods in reports;
    `vectors` need the probabilities of all classes. The mean of `scores`, those of right and of
    wrong rows by confidence, or `function` of the table of levels computes it, `interval` its
    interval at 1 - delta; None for none, `lacking` why a data set may have none.

    >>> METRICS["auroc"].better, METRICS["smooth_ece"].interval, METRICS["ece_mass"].full_title
    ('higher', None, 'ECE, equal mass')
    """

    name: str
    title: str
    detail: str = ""
    function: Callable[[Levels, SummaryOptions], float] | None = None
    interval: Callable[[Levels, SummaryOptions], intervals.Ends] | None = None
    scores: Callable[[FloatArray], calibration.Pair] | None = None
    better: Literal["lower", "higher"] | None = "lower"
    upper: float = 1.0
    ranking: bool = False
    vectors: bool = False
    form: str = ".4f"
    lacking: str = "fewer than three rows"

    @property
    def full_title(self) -> str:
        """The title, with the detail if an earlier metric has the same title."""
        first = next((other for other in METRICS.values() if other.title == self.title), self)
        return f"{self.title}, {self.detail}" if self.detail and first is not self else self.title

    def format(self, value: float | None) -> str:
        """A value for readers; an infinite one may be None, as in JSON.

        A log loss is infinite with a true class at 0; NaN, as an AUROC if all rows are right, is a
        dash.
        """
        if value is None or math.isinf(value):
            return "-infinite" if value == -math.inf else "infinite"
        return "\N{EN DASH}" if math.isnan(value) else format(value, self.form)

    def show(self, found: Estimate, to: str = ", ") -> tuple[str, str]:
        """A value and its interval for readers, "" where there is none."""
        value, low, high = map(self.format, (found.value, found.low, found.high))
        return value, "" if math.isnan(found.low) else f"{low}{to}{high}"


def _error(name: str, bins: Bins) -> Metric:
    """The calibration error over a kind of bins."""
    return Metric(
        name, "ECE", f"equal {bins}",
        lambda t, o: calibration.gap_norm(t.by_bin(o.n_bins, bins)),
        lambda t, o: intervals.gap_ends(t.by_bin(o.n_bins, bins), t.rows_per_weight, o.delta),
        ranking=True,
    )  # fmt: skip


_TABLE = (
    Metric(
        "accuracy", "accuracy", "", lambda t, _: float(t.correct.sum()) / t.total,
        lambda t, o: intervals.share_ends(
            float(t.correct.sum()) / t.total, t.total * t.rows_per_weight, o.delta
        ),
        better="higher", form=".1%",
    ),
    Metric(
        "mean_confidence", "confidence", "mean",
        lambda t, _: float(t.weight @ t.confidence) / t.total,
        lambda t, o: intervals.confidence_ends(t, o.delta),
        better=None, form=".1%",
    ),
    _error("ece", "width"),
    _error("ece_mass", "mass"),
    Metric(
        "debiased_ece", "debiased ECE (L2)", "",
        lambda t, o: calibration.debiased_error(t.by_bin(o.n_bins)),
    ),
    Metric(
        "smooth_ece", "smooth ECE", "no bins", lambda t, _: calibration.smooth_error(t),
        ranking=True,
    ),
    Metric("brier", "Brier", scores=calibration.squared_errors, upper=2.0, ranking=True),
    Metric("log_loss", "log loss", scores=calibration.log_loss_pair, upper=math.inf, ranking=True),
    Metric(
        "auroc", "AUROC", "", lambda t, _: area_under_roc(t),
        lambda t, o: intervals.roc_ends(t, o.delta), better="higher",
        lacking="it takes five correct and five wrong labels, not perfectly separated",
    ),
    Metric("aurc", "AURC", "", lambda t, _: area_under_risk(t)),
    Metric("selective_risk", "selective risk", "", lambda t, _: risk_at(t, 0.8)),
    Metric("classwise_ece", "classwise ECE", "mean of classes", ranking=True, vectors=True),
)  # fmt: skip

METRICS = {metric.name: metric for metric in _TABLE}
"""Every metric by its name."""


@dataclass(frozen=True)
class Estimate:
    """A metric's value and its interval, low <= value <= high; NaN if there is none.

    `reason` says why a metric that has intervals has none here.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    reason: str = ""


@dataclass(frozen=True)
class Summary:
    """`estimates` by metric name, `bounds` by method, the number of rows and the options.

    With `vectors` the Brier score and the log loss are of the probabilities of all classes, without
    of the predicted label. `summary["ece"]` is `summary.estimates["ece"]`; `print(summary)` shows a
    table.
    """

    n: int
    estimates: dict[str, Estimate]
    bounds: dict[str, float]
    options: SummaryOptions
    vectors: bool = False

    def __getitem__(self, name: str) -> Estimate:
        if name not in self.estimates:
            raise KeyError(f"no metric {name!r} in this summary; it has {list(self.estimates)}.")
        return self.estimates[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts."""
        return asdict(self)

    def values_alone(self) -> Summary:
        """Without intervals and bounds, which dependent rows do not have."""
        estimates = {name: Estimate(each.value) for name, each in self.estimates.items()}
        return replace(self, estimates=estimates, bounds={})

    def __str__(self) -> str:
        level = f"{1.0 - self.options.delta:.0%}"
        lines = [f"{self.n} examples, {level} intervals"]
        for name, e in self.estimates.items():
            reason = f"  no interval: {e.reason}" if e.reason else ""
            ends = reason if math.isnan(e.low) else f"  [{e.low:.5f}, {e.high:.5f}]"
            lines.append(f"{name:<16} {e.value:>9.5f}{ends}")
        bounds = (
            f"true calibration error < {b:.4f} ({level}, {m})" for m, b in self.bounds.items()
        )
        return "\n".join([*lines, *bounds])


@dataclass(frozen=True, eq=False)
class SummarySums:
    """What a summary of chunks needs: `levels`, and `vectors` of all classes. They add with `+`."""

    levels: LevelSums
    vectors: calibration.VectorSums | None = None

    def __add__(self, other: SummarySums) -> SummarySums:
        return SummarySums(self.levels + other.levels, add_known(self.vectors, other.vectors))

    @classmethod
    def from_rows(
        cls,
        rows: Outcomes,
        data: Predictions | None,
        options: SummaryOptions,
        scores: Any = None,
        codes: IntArray | None = None,
    ) -> SummarySums:
        """Of checked rows, whose `row_scores` may be known; `codes` (n,) are their clusters."""
        vectors = (
            None if data is None else calibration.VectorSums.from_rows(data, options.n_bins, scores)
        )
        return cls(clustered_levels(rows, codes, scores, data, options.n_bins), vectors)


def clustered_levels(
    rows: Outcomes,
    codes: IntArray | None,
    scores: Any = None,
    data: Predictions | None = None,
    n_bins: int = 15,
) -> LevelSums:
    """Levels of rows, with what those of clusters (n,) are worth, if there are clusters."""
    levels = LevelSums.from_rows(rows)
    if codes is None:
        return levels
    scores = calibration.row_scores(rows, data) if scores is None else scores
    return replace(levels, design=intervals.design_effects(rows, scores, codes, n_bins))


def summary(
    proba: Any,
    labels: Any = None,
    *,
    n_bins: int = 15,
    delta: float = 0.05,
    sample_weight: Any = None,
    cluster: Any = None,
) -> Summary:
    """All metrics, their intervals, and bounds on the true calibration error.

    `proba`, `labels`, `sample_weight` and `n_bins` are as in `ece`. Probabilities (n, classes) give
    the Brier score and the log loss of all classes and add `classwise_ece`. The selective risk is
    that of the most confident 80 %. To evaluate a calibrator see `hokical.evaluate`.

    `delta` is the probability that an interval or a bound fails. With weights there are no bounds,
    as the proofs do not allow them, and intervals are those of as many rows as the weights are
    worth. Accuracy has Clopper and Pearson's interval, means have Hall's for skewed scores, with
    room for one more error, the AUROC has DeLong's from five errors on. The ECE of a sample is
    biased upwards: its interval is found by inversion, reaches further down than up, and is wide
    rather than wrong. Intervals of 95 % held the true value in at least 93 % of simulations of 30
    to 20,000 rows. Debiased, smooth and classwise ECE and the risks have none. The bounds are
    proven.

    Rows are taken to be independent. `cluster` (n,) says which belong together, as several images
    of a patient or answers to a question: intervals are then those of as many rows as the clusters
    are worth for each metric (Kish's design effect, Student's quantile of the number of clusters),
    and there are no bounds. With fewer than 20 clusters they are approximate.

    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1.0, size=1000)
    >>> result = summary(confidence, rng.uniform(size=1000) < confidence)
    >>> round(result["brier"].value, 4), round(result.bounds["bousquet"], 4)
    (0.1641, 0.1351)
    """
    options = SummaryOptions(n_bins, delta)

    def make(*chunk: Any) -> SummarySums:
        pair = np.ndim(chunk[0]) == 2
        data = as_predictions(*chunk) if pair else None
        rows = as_examples(*chunk) if data is None else data.top_label
        codes = counted_clusters(cluster, *chunk[1:])
        return SummarySums.from_rows(rows, data, options, codes=codes)

    refuse_chunks(cluster, proba)
    return summarize(add_chunks(make, proba, labels, sample_weight), options)


def refuse_chunks(cluster: Any, proba: Any) -> None:
    """Refuse chunks where rows of one cluster must be known together."""
    if cluster is not None and is_chunked(proba):
        raise TypeError("`cluster` cannot be given with chunks; pass arrays of all rows.")


def counted_clusters(cluster: Any, labels: Any, sample_weight: Any = None) -> IntArray | None:
    """The clusters of rows of weight above 0, if there are clusters."""
    if cluster is None:
        return None
    codes, weight = as_clusters(cluster, len(labels)), as_weights(sample_weight, len(labels))
    return codes if weight is None else codes[weight > 0.0]


def summarize(sums: SummarySums, options: SummaryOptions) -> Summary:
    """The summary of sums: all metrics, bounds where the proofs allow them (not with weights)."""
    levels, vectors = sums.levels.levels, sums.vectors
    found = {
        name: metric_estimate(metric, levels.of(name), options)
        for name, metric in METRICS.items()
        if not metric.vectors
    }
    values = {name: each.value for name, each in found.items()}
    bounds = {} if sums.levels.weighted else proven_bounds(values, sums.levels.n_rows, options)
    if vectors is not None:
        found["classwise_ece"] = Estimate(vectors.classwise_ece())
        for name in vectors.scores:
            rows = levels.of(name)
            known = vectors.power_means(rows.rows_per_weight)[name]
            n = rows.total * rows.rows_per_weight
            found[name] = mean_estimate(name, *known, n, options.delta)
    estimates = {name: found[name] for name in METRICS if name in found}
    return Summary(sums.levels.n_rows, estimates, bounds, options, vectors is not None)


def metric_estimate(metric: Metric, levels: Levels, options: SummaryOptions) -> Estimate:
    """A metric of the predicted label."""
    n = levels.total * levels.rows_per_weight
    if metric.scores is not None:
        scores = metric.scores(levels.confidence)
        worst = intervals.worst_score(levels, *scores)
        return mean_estimate(metric.name, levels.power_means(*scores), worst, n, options.delta)
    assert metric.function is not None
    value = metric.function(levels, options)
    if metric.interval is None or not math.isfinite(value):
        return Estimate(value, reason="" if metric.interval is None else metric.lacking)
    return with_ends(metric, value, metric.interval(levels, options))


def mean_estimate(name: str, powers: FloatArray, worst: float, n: float, delta: float) -> Estimate:
    """A mean with its interval, from the means of a score, its square and its cube."""
    value = float(powers[0])
    if not math.isfinite(value):
        return Estimate(value, value, value)
    return with_ends(METRICS[name], value, intervals.mean_ends(powers, n, delta, worst))


def with_ends(metric: Metric, value: float, ends: intervals.Ends) -> Estimate:
    """The estimate, its interval clipped to what is possible, and holding the value."""
    if math.isnan(ends[0]) or math.isnan(ends[1]):
        return Estimate(value, reason=metric.lacking)
    low, high = np.clip(ends, 0.0, metric.upper)
    return Estimate(value, min(float(low), value), max(float(high), value))


def proven_bounds(values: dict[str, float], n: int, options: SummaryOptions) -> dict[str, float]:
    """Every bound on the calibration error, from `ece` and `brier` of n independent examples."""
    error, brier = min(values["ece"], 1.0), min(values["brier"], 1.0)
    given = (error, n, options.n_bins, options.delta)
    with_brier: tuple[Method, ...] = ("mcdiarmid", "bousquet")
    return {
        name: calibration_bound(*given, method=name, brier=brier if name in with_brier else None)
        for name in get_args(Method)
    }


#: Sizes up to here are rows of their own; the rest is one.
_SIZES = 10


@dataclass(frozen=True)
class SetRow:
    """Some of the rows: how many, the share covered with its interval, and the mean size."""

    name: str
    n: int
    coverage: float
    low: float
    high: float
    mean_size: float


@dataclass(frozen=True)
class SetSummary:
    """`overall`, `by_class` (true classes that occur) and `by_size` of the sets.

    The interval of the mean size is normal, those of coverage are Clopper and Pearson's; each
    misses with probability `delta`. `goal` is the coverage that was asked for; `source` says where
    thresholds come from.
    """

    overall: SetRow
    size_low: float
    size_high: float
    by_class: tuple[SetRow, ...]
    by_size: tuple[SetRow, ...]
    goal: float | None
    delta: float
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return asdict(self)


def summarize_sets(
    members: Any, labels: Any, *, goal: float | None = None, delta: float = 0.05, source: str = ""
) -> SetSummary:
    """Coverage and size of sets `members` (n, classes), bool, for true `labels` (n,).

    >>> found = summarize_sets([[True, False], [True, True]], [1, 1], goal=0.9)
    >>> found.overall.coverage, found.overall.mean_size, [row.name for row in found.by_size]
    (0.5, 1.5, ['1', '2'])
    """
    inside = np.asarray(to_numpy(members, "members"))
    if inside.ndim != 2 or inside.dtype != np.bool_ or not inside.size:
        raise ValueError(
            f"`members` must be 2-D (n, classes), bool; got shape {inside.shape}, dtype "
            f"{inside.dtype}. `predict_set(...).members` has them."
        )
    delta = check_chance("delta", delta)
    truth = as_labels(labels, *inside.shape)
    covered, sizes = inside[np.arange(truth.size), truth], inside.sum(axis=1)
    width = float(normal_quantile(np.array([1.0 - delta / 2.0]))[0] * sizes.std())
    width /= np.sqrt(sizes.size)
    return SetSummary(
        overall=_rows(np.zeros_like(truth), covered, sizes, delta)[0],
        size_low=float(sizes.mean()) - width,
        size_high=float(sizes.mean()) + width,
        by_class=_rows(truth, covered, sizes, delta),
        by_size=_rows(np.minimum(sizes, _SIZES + 1), covered, sizes, delta, most=_SIZES),
        goal=goal,
        delta=delta,
        source=source,
    )


def _rows(
    group: IntArray, covered: BoolArray, sizes: IntArray, delta: float, most: float = np.inf
) -> tuple[SetRow, ...]:
    """A row for each group that occurs; one above `most` is named so."""
    names, place = np.unique(group, return_inverse=True)
    n, hits, total = (np.bincount(place, part) for part in (None, covered, sizes))
    ends = clopper_pearson(hits, n, delta=delta)
    numbers = zip(names, n, hits / n, ends[:, 0], ends[:, 1], total / n, strict=True)
    return tuple(
        SetRow(str(name) if name <= most else f"> {most}", int(k), *map(float, rest))
        for name, k, *rest in numbers
    )
