"""All metrics at once, with bootstrap intervals and the bounds on the true calibration error."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from hokical._core.bins import check_count
from hokical._core.reading import to_numpy
from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance
from hokical.guarantees._bounds import Method, calibration_bound
from hokical.metrics._by_class import ClassSums, ClassTable
from hokical.metrics._calibration import ece
from hokical.metrics._chunked import add_chunks, is_chunked
from hokical.metrics._examples import (
    Examples,
    Predictions,
    as_examples,
    as_predictions,
    check_clip,
    check_inside,
)
from hokical.metrics._metric import METRICS, Measures, evaluate
from hokical.metrics._ranking import RankedExamples
from hokical.metrics._resample import Resampler, block_means, class_cells, top_statistics
from hokical.metrics._smooth import cells_for, smooth_ece
from hokical.metrics._sums import FullSums, MetricSums, ranked_squares, row_scores

#: Blocks x classes x bins up to which the classwise ECE gets an interval: 160 MB.
CLASSWISE_CELLS = 20_000_000


@dataclass(frozen=True)
class Estimate:
    """A metric's value and its interval, low <= value <= high; the ends are NaN if there is none.

    A calibration error measured on a sample is larger than the true one. `corrected` estimates the
    true one, and lies in the interval too; None: the value needs no correction.
    """

    value: float
    low: float
    high: float
    corrected: float | None = None


@dataclass(frozen=True)
class SummaryOptions:
    """How a summary was made."""

    n_bins: int = 15
    coverage: float = 0.8
    clip: float = 0.0
    delta: float = 0.05
    n_resamples: int = 1000
    seed: int = 0  # the parameter `random_state`; JSON has `seed`, as the command line
    ordered: bool = False

    def __post_init__(self) -> None:
        for name, least in (("n_bins", 1), ("n_resamples", 0), ("seed", 0)):
            parameter = "random_state" if name == "seed" else name
            count = check_count(getattr(self, name), name=parameter, least=least)
            object.__setattr__(self, name, count)
        check_inside("coverage", self.coverage, 0.0, 1.0)
        check_clip(self.clip)
        check_chance("delta", self.delta)


@dataclass(frozen=True)
class Summary:
    """`estimates` by metric name, `bounds` by method, the number of rows and the options.

    `classes` tells what the rows of each predicted label say, if `predicted` was given.
    `summary["ece"]` is `summary.estimates["ece"]`; `print(summary)` shows a table.
    """

    n: int
    estimates: dict[str, Estimate]
    bounds: dict[str, float]
    options: SummaryOptions
    classes: ClassTable | None = None

    @property
    def class_warning(self) -> str | None:
        """One line if the top-label numbers hide a class that is miscalibrated, else None."""
        return self.warn_of_class()

    def warn_of_class(self, names: Sequence[str] = ()) -> str | None:
        """`class_warning` with the names of the classes, by column."""
        return None if self.classes is None else self.classes.warning(self["ece"].value, names)

    def __getitem__(self, name: str) -> Estimate:
        if name not in self.estimates:
            raise KeyError(f"no metric {name!r} in this summary; it has {list(self.estimates)}.")
        return self.estimates[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts."""
        return asdict(self)

    def __str__(self) -> str:
        sure = f"{1.0 - self.options.delta:.0%}"
        lines = [f"{self.n} examples, {sure} intervals"]
        for name, e in self.estimates.items():
            ends = "" if math.isnan(e.low) else f"  [{e.low:.5f}, {e.high:.5f}]"
            lines.append(f"{name:<16} {e.value:>9.5f}{ends}")
        lines += [f"true calibration error < {b:.4f} ({sure}, {m})" for m, b in self.bounds.items()]
        return "\n".join([*lines, *([self.class_warning] if self.class_warning else [])])


def summary(
    confidence: Any,
    correct: Any = None,
    *,
    proba: Any = None,
    labels: Any = None,
    predicted: Any = None,
    n_bins: int = 15,
    coverage: float = 0.8,
    clip: float = 0.0,
    delta: float = 0.05,
    n_resamples: int | None = None,
    random_state: int = 0,
    sample_weight: Any = None,
    ordered: bool = False,
) -> Summary:
    """All metrics, their bootstrap intervals, and bounds on the true calibration error.

    `confidence`, `correct` and `sample_weight` (n,) are as in `ece`; the bootstrap draws rows with
    their weights. `proba` (n, classes) and `labels` (n,) add `brier_full`, `log_loss_full` and
    `classwise_ece`, the last with an interval only if classes * n_bins <= 20,000, and of classes
    that are `ordered`, as grades are, `ranked_probability_score`. `predicted` (n,), the labels that
    were given as column indices, adds `classes`, see `class_table`. `n_bins`, `coverage` and `clip`
    are as in `ece`, `selective_risk` and `log_loss`.

    `delta` is the probability that an interval or a bound fails. With weights there are no bounds,
    as the proofs do not allow them. `n_resamples` is 1000 unless given; 0 for no intervals, which
    chunks do not have. The same `random_state` gives the same intervals in any order of the rows.

    Intervals are "basic": the resamples reflected at the value. The calibration error of a sample
    is biased upwards, that of a resample twice, and the reflection removes the bias; so does
    `corrected`, the reflected median. The correction is too small near perfect calibration, and the
    lower end makes up for that; the page on metrics says how often intervals held the truth. With
    more than 1000 rows, 1000 random blocks of rows are resampled. The bounds are proven.

    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1.0, size=1000)
    >>> result = summary(confidence, rng.uniform(size=1000) < confidence, n_resamples=100)
    >>> round(result["brier"].value, 4), round(result.bounds["bousquet"], 4)
    (0.1641, 0.1351)
    """
    limits: dict[str, Any] = {"n_bins": check_count(n_bins), "clip": check_clip(clip)}
    if is_chunked(confidence):
        about = {"proba": proba, "labels": labels, "predicted": predicted, "ordered": ordered}
        _refuse_for_chunks(n_resamples, random_state=random_state, **about)
        total = add_chunks(MetricSums.from_examples, confidence, correct, sample_weight, **limits)
        return summarize_sums(total, coverage=coverage, clip=clip, delta=delta)
    n_resamples = 1000 if n_resamples is None else n_resamples
    options = SummaryOptions(n_bins, coverage, clip, delta, n_resamples, random_state, ordered)
    examples = as_examples(confidence, correct, sample_weight)
    data = _as_predictions_or_none(proba, labels, sample_weight, examples.n_rows)
    if ordered and data is None:
        raise ValueError("`ordered` needs `proba` and `labels`: the order is that of the columns.")
    columns = (examples.confidence, examples.correct, examples.weight)
    sums = MetricSums.from_examples(*columns, levels=False, **limits)
    full = None if data is None else FullSums.from_rows(data, options.n_bins, clip)
    values = _values(examples, sums, full, options)
    if ordered and data is not None:
        values["ranked_probability_score"] = data.mean(ranked_squares(data))
    draws = {}
    if options.n_resamples > 0:
        draws = _resample(examples, data, options, values["smooth_ece"])
    classes = None
    if predicted is not None:
        given = to_numpy(predicted, "predicted")
        n_classes = int(given.max(initial=0)) + 1 if data is None else data.n_classes
        by_label = (given, confidence, correct, sample_weight)
        classes = ClassSums.from_examples(*by_label, n_classes=n_classes)
    return _summarize(values, draws, sums, classes, options)


def summarize_sums(
    sums: MetricSums,
    full: FullSums | None = None,
    classes: ClassSums | None = None,
    *,
    coverage: float = 0.8,
    clip: float = 0.0,
    delta: float = 0.05,
) -> Summary:
    """The summary of a stream from its sums: all metrics and bounds, without intervals.

    `full` adds `brier_full`, `log_loss_full` and `classwise_ece`, `classes` the table of classes;
    `coverage`, `clip` (that of the sums) and `delta` are as in `summary`.

    >>> chunks = [([0.9, 0.8], [True, False]), ([0.7, 0.6], [True, True])]
    >>> first, second = (MetricSums.from_examples(*chunk) for chunk in chunks)
    >>> summarize_sums(first + second)["accuracy"].value
    0.75
    """
    options = SummaryOptions(sums.binned.n_bins, coverage, clip, delta, n_resamples=0)
    values = _values(sums.rounded_examples(), sums, full, options)
    return _summarize(values, {}, sums, classes, options)


def _refuse_for_chunks(n_resamples: int | None, **options: Any) -> None:
    """Refuse what needs all rows."""
    if n_resamples:
        raise ValueError(
            "`n_resamples` must be 0 or left out for chunks, as intervals need all rows; the "
            "proven bounds are given."
        )
    for name, given in options.items():
        if not (given is None or np.array_equal(given, 0)):
            raise TypeError(
                f"`{name}` cannot be given with chunks of confidence: there are no intervals, and "
                "for `proba` see `hokical.streams.evaluate(..., full=True)`."
            )


def _values(
    examples: Examples, sums: MetricSums, full: FullSums | None, options: SummaryOptions
) -> dict[str, float]:
    """All metrics; only those of the order of confidences use the examples."""
    data, bins = (examples.confidence, examples.correct), sums.binned
    scores = {
        "accuracy": bins.overall_accuracy,
        "mean_confidence": bins.overall_confidence,
        "ece_mass": ece(*data, n_bins=bins.n_bins, bins="mass", sample_weight=examples.weight),
        "smooth_ece": smooth_ece(*data, sample_weight=examples.weight),
        "brier": bins.brier(),
        "log_loss": sums.log_loss(),
        **({} if full is None else full.scores()),
    }
    ranked = RankedExamples.from_examples(examples)
    found = evaluate(Measures(bins.gap_sums, ranked, options.coverage, scores))
    return {name: float(value) for name, value in found.items()}


def _resample(
    examples: Examples,
    data: Predictions | None,
    options: SummaryOptions,
    bandwidth: float,
) -> dict[str, FloatArray]:
    """Every metric of every resample, (n_resamples,) each."""
    drawn = Resampler.from_examples(examples, options.seed, options.n_bins)
    weight, n_classes = examples.filled_weight(), 0 if data is None else data.n_classes
    cells = None
    if data is not None and drawn.n_blocks * n_classes * options.n_bins <= CLASSWISE_CELLS:
        cells = class_cells(data, drawn.rows_by_block(), options.n_bins)
    rows: dict[str, Any] = {
        "accuracy": examples.correct,
        "mean_confidence": examples.confidence,
        **row_scores(examples, data, options.clip, options.ordered),
    }
    sums = {name: drawn.sums(weight * scores) for name, scores in rows.items()}
    blocks = (drawn.sums(weight), sums, cells, n_classes)
    # The smooth ECE of an interval needs a coarser grid than its value.
    grid = min(cells_for(bandwidth, per_bandwidth=8, least=256), 2048)
    limits: Any = {"n_bins": options.n_bins, "coverage": options.coverage, "cells": grid}
    batches: dict[str, list[FloatArray]] = {}
    for ranked, counts in drawn.batches(options.n_resamples, options.seed):
        found = top_statistics(ranked, **limits) | block_means(counts, *blocks)
        for name, values in found.items():
            batches.setdefault(name, []).append(values)
    return {name: np.concatenate(parts) for name, parts in batches.items()}


def _summarize(
    values: dict[str, float],
    draws: dict[str, FloatArray],
    sums: MetricSums,
    classes: ClassSums | None,
    options: SummaryOptions,
) -> Summary:
    """Add intervals, bounds where the proofs allow them (not with weights), and classes."""
    estimates = {
        name: estimate(name, value, draws.get(name), options) for name, value in values.items()
    }
    bounds = {} if sums.weighted else proven_bounds(values, sums.n_rows, options)
    table = None if classes is None else classes.table(ece=values["ece"], delta=options.delta)
    return Summary(sums.n_rows, estimates, bounds, options, table)


def estimate(
    name: str, value: float, draws: FloatArray | None, options: SummaryOptions
) -> Estimate:
    """A metric with the interval that its resamples give."""
    if not math.isfinite(value):
        return Estimate(value, value, value)
    if draws is None or np.isnan(draws).all():
        return Estimate(value, math.nan, math.nan)
    tail = 0.5 * options.delta
    # NaN: an AUROC without any errors.
    least, middle, most = np.nanquantile(draws, [tail, 0.5, 1.0 - tail])
    metric = METRICS[name]
    bias = max(0.0, float(middle) - value) if metric.biased else 0.0
    ends = (2.0 * value - most - 2.0 * bias, 2.0 * value - least)
    low, high = np.clip([min(ends[0], value), max(ends[1], value)], 0.0, metric.upper)
    corrected = max(0.0, value - bias) if metric.biased else None
    # Clipping must not push the value out: a Brier score may exceed its limit by rounding.
    return Estimate(value, min(float(low), value), max(float(high), value), corrected)


def proven_bounds(values: dict[str, float], n: int, options: SummaryOptions) -> dict[str, float]:
    """Every bound on the calibration error, from `ece` and `brier` of n independent examples."""
    error, brier = min(values["ece"], 1.0), min(values["brier"], 1.0)
    given = (error, n, options.n_bins, options.delta)
    with_brier: tuple[Method, ...] = ("mcdiarmid", "bousquet")
    return {
        name: calibration_bound(*given, method=name, brier=brier if name in with_brier else None)
        for name in get_args(Method)
    }


def _as_predictions_or_none(
    proba: Any, labels: Any, sample_weight: Any, n_rows: int
) -> Predictions | None:
    if proba is None and labels is None:
        return None
    if proba is None or labels is None:
        missing = "proba" if proba is None else "labels"
        raise ValueError(f"`proba` and `labels` go together; `{missing}` is missing.")
    data = as_predictions(proba, labels, sample_weight)
    if data.n_rows != n_rows:
        raise ValueError(
            f"`proba` must have one row per confidence; got {data.n_rows} for {n_rows}."
        )
    return data
