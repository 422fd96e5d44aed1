"""All metrics at once, with bootstrap intervals and the bounds on the true calibration error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hokical.bins import check_count
from hokical.bounds import Method, calibration_bound
from hokical.metrics.binned import BinnedSums, ece
from hokical.metrics.checks import (
    Examples,
    Predictions,
    as_examples,
    as_predictions,
    check_inside,
)
from hokical.metrics.chunked import chunks_too
from hokical.metrics.classwise import class_errors
from hokical.metrics.exact import total
from hokical.metrics.ks import ks_distance
from hokical.metrics.proper import check_clip, full_losses, full_squares, split_sums, top_losses
from hokical.metrics.ranked import Ranked, row_dot
from hokical.metrics.ranking import area_under_risk, area_under_roc, harmonic_numbers, risk_at
from hokical.metrics.resample import Resampler
from hokical.metrics.smooth import cells_for, smooth_ece
from hokical.metrics.statistics import (
    binned_statistics,
    class_cells,
    classwise_statistics,
    mass_statistics,
    mean_statistics,
    ranking_statistics,
    smooth_statistics,
)
from hokical.metrics.sums import FullSums, MetricSums

FloatArray = NDArray[np.float64]

Interval = Literal["basic", "percentile"]

#: Rows x classes x resamples up to which the classwise ECE gets an interval: some seconds.
CLASSWISE_WORK = 2_000_000_000

#: What each metric cannot exceed, where that is not 1.
_UPPER = {"log_loss": math.inf, "log_loss_full": math.inf, "brier_full": 2.0, "sharpness": 0.25}


@dataclass(frozen=True)
class Estimate:
    """A metric's value and its interval; NaN ends where there is none."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Options:
    """How a summary was made."""

    n_bins: int
    coverage: float
    clip: float
    level: float
    delta: float
    n_resamples: int
    seed: int
    interval: Interval


@dataclass(frozen=True)
class Summary:
    """`estimates` by metric name, `bounds` by method, the number of rows and the options.

    `summary["ece"]` is `summary.estimates["ece"]`; `print(summary)` shows a table.
    """

    n: int
    estimates: dict[str, Estimate]
    bounds: dict[str, float]
    options: Options

    def __getitem__(self, name: str) -> Estimate:
        if name not in self.estimates:
            raise KeyError(f"no metric {name!r} in this summary; it has {list(self.estimates)}.")
        return self.estimates[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and dicts."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.n} examples, {self.options.level:.0%} intervals"]
        lines += [
            f"{name:<16} {e.value:>9.5f}  [{e.low:.5f}, {e.high:.5f}]"
            for name, e in self.estimates.items()
        ]
        sure = f"{1.0 - self.options.delta:.0%}"
        lines += [f"true calibration error < {b:.4f} ({sure}, {m})" for m, b in self.bounds.items()]
        return "\n".join(lines)


@chunks_too
def summary(
    confidence: Any,
    correct: Any,
    *,
    proba: Any = None,
    labels: Any = None,
    n_bins: int = 15,
    coverage: float = 0.8,
    clip: float = 0.0,
    level: float = 0.95,
    delta: float = 0.05,
    n_resamples: int = 1000,
    seed: int = 0,
    interval: Interval = "basic",
    sample_weight: Any = None,
) -> Summary:
    """All metrics, their bootstrap intervals, and bounds on the true calibration error.

    Parameters
    ----------
    confidence, correct, sample_weight : array-like of shape (n,)
        As in `ece`. The bootstrap draws rows, weights and all; without weights it is the usual one.
    proba, labels : array-like of shape (n, classes) and (n,), optional
        Given both, adds `brier_full`, `log_loss_full` and `classwise_ece`. The last gets an
        interval only up to 2e9 = n * classes * n_resamples.
    n_bins : int
        Bins of the binned metrics.
    coverage : float
        Share kept by `selective_risk`.
    clip : float
        As in `log_loss`.
    level : float
        Coverage of the intervals, strictly between 0 and 1.
    delta : float
        Chance that a bound fails. There are none with weights, which the proofs do not allow.
    n_resamples : int
        0 leaves the intervals out.
    seed : int
        The same seed gives the same intervals, whatever the order of the rows.
    interval : {"basic", "percentile"}
        An ECE of n examples is biased upwards, and a resample's is so twice. "basic" reflects the
        resamples at the value, which takes that bias out: it aims at the true value, and may lie
        below the measured one. "percentile" shows the resamples as they are. Near perfect
        calibration neither keeps its promise for errors that are sums or maxima of sizes: with 2000
        examples, 95 % intervals held a true ECE of 0, 0.01, 0.03 and 0.08 in 50, 88, 88 and 88 %
        of trials ("basic") and 0, 0, 64 and 93 % ("percentile"). The proven bounds keep theirs.

    Returns
    -------
    result : Summary

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1.0, size=1000)
    >>> result = summary(confidence, rng.uniform(size=1000) < confidence, n_resamples=100)
    >>> round(result["brier"].value, 4), round(result.bounds["bousquet"], 4)
    (0.1641, 0.1351)
    """
    options = _checked_options(n_bins, coverage, clip, level, delta, n_resamples, seed, interval)
    examples = as_examples(confidence, correct, sample_weight)
    data = _checked_predictions(proba, labels, sample_weight, examples.n_rows)
    values = _top_values(examples, options) | _full_values(data, options)
    draws = _drawn(examples, data, options, values["smooth_ece"])
    return Summary(
        examples.n_rows,
        {name: _estimate(name, value, draws.get(name), options) for name, value in values.items()},
        _bounds(values, None if examples.weight is not None else examples.n_rows, options),
        options,
    )


def summarize_sums(
    sums: MetricSums,
    full: FullSums | None = None,
    *,
    coverage: float = 0.8,
    clip: float = 0.0,
    delta: float = 0.05,
) -> Summary:
    """The summary of a stream from its sums: all metrics and bounds, without intervals.

    Parameters
    ----------
    sums : MetricSums
    full : FullSums, optional
        Adds `brier_full`, `log_loss_full` and `classwise_ece`.
    coverage, delta : float
        As in `summary`.
    clip : float
        What the sums were made with.

    Examples
    --------
    >>> chunks = [([0.9, 0.8], [True, False]), ([0.7, 0.6], [True, True])]
    >>> total = sum((MetricSums.from_examples(*c) for c in chunks[1:]),
    ...             MetricSums.from_examples(*chunks[0]))
    >>> summarize_sums(total)["accuracy"].value
    0.75
    """
    n_bins = sums.binned.n_bins
    options = _checked_options(n_bins, coverage, clip, 0.95, delta, 0, 0, "basic")
    confidence, correct, weight = sums.rounded_examples()
    # Metrics of the order of confidences, from levels; the others are then put right.
    values = _top_values(Examples(confidence, correct, weight), options)
    values |= _sum_values(sums.binned) | {"log_loss": sums.log_loss / sums.binned.total_weight}
    if full is not None:
        values |= {"brier_full": full.brier(), "log_loss_full": full.log_loss()}
        values["classwise_ece"] = full.classwise_ece()
    estimates = {name: _estimate(name, value, None, options) for name, value in values.items()}
    bounds = _bounds(values, None if sums.weighted else sums.n_rows, options)
    return Summary(sums.n_rows, estimates, bounds, options)


def _sum_values(sums: BinnedSums) -> dict[str, float]:
    """What per-bin sums give exactly."""
    return {
        "accuracy": float(sums.correct.sum() / sums.total_weight),
        "mean_confidence": float(total(sums.confidence_words.sum(axis=1)) / sums.total_weight),
        "ece": sums.ece(),
        "mce": sums.mce(),
        "debiased_ece": sums.debiased_ece(),
        "brier": sums.brier(),
        "refinement": split_sums(sums).refinement,
        "sharpness": sums.sharpness(),
    }


def _top_values(examples: Examples, options: Options) -> dict[str, float]:
    data = (examples.confidence, examples.correct)
    weight, n_bins = examples.weight, options.n_bins
    sums = BinnedSums.from_examples(*data, n_bins=n_bins, sample_weight=weight)
    ranked = Ranked.from_examples(examples)
    return {
        "accuracy": float(sums.correct.sum() / sums.total_weight),
        "mean_confidence": examples.mean(examples.confidence),
        "ece": sums.ece(),
        "ece_mass": ece(*data, n_bins=n_bins, bins="mass", sample_weight=weight),
        "mce": sums.mce(),
        "debiased_ece": sums.debiased_ece(),
        "smooth_ece": smooth_ece(*data, sample_weight=weight),
        "ks_error": float(ks_distance(ranked)),
        "brier": sums.brier(),
        "refinement": split_sums(sums).refinement,
        "log_loss": examples.mean(top_losses(*data, options.clip)),
        "auroc": float(area_under_roc(ranked)),
        "aurc": float(area_under_risk(ranked)),
        "selective_risk": float(risk_at(ranked, options.coverage)),
        "sharpness": sums.sharpness(),
    }


def _full_values(data: Predictions | None, options: Options) -> dict[str, float]:
    if data is None:
        return {}
    return {
        "brier_full": data.mean(full_squares(data)),
        "log_loss_full": data.mean(full_losses(data, options.clip)),
        "classwise_ece": float(class_errors(data, options.n_bins, "width", 1.0).mean()),
    }


def _drawn(
    examples: Examples, data: Predictions | None, options: Options, bandwidth: float
) -> dict[str, FloatArray]:
    """Every metric of every resample, (n_resamples,) each."""
    batches: dict[str, list[FloatArray]] = {}
    for batch in _batch_statistics(examples, data, options, bandwidth):
        for name, values in batch.items():
            batches.setdefault(name, []).append(values)
    return {name: np.concatenate(parts) for name, parts in batches.items()}


def _batch_statistics(
    examples: Examples, data: Predictions | None, options: Options, bandwidth: float
) -> Iterator[dict[str, FloatArray]]:
    resampler = Resampler.from_examples(examples)
    harmonic = harmonic_numbers(examples.n_rows) if examples.weight is None else None
    cells = min(cells_for(bandwidth, per_bandwidth=8, least=256), 2048)
    full = _full_columns(data, options, resampler)
    for ranked, weight in resampler.batches(options.n_resamples, options.seed):
        yield {
            **mean_statistics(ranked, options.clip),
            **binned_statistics(ranked, options.n_bins),
            **mass_statistics(ranked, options.n_bins),
            **ranking_statistics(ranked, options.coverage, harmonic),
            **smooth_statistics(ranked, cells),
            **full(weight),
        }


def _full_columns(data: Predictions | None, options: Options, resampler: Resampler) -> Any:
    """A function from the weights of resampled rows (batch, n) to the full-vector metrics."""
    if data is None:
        return lambda weight: {}
    order = resampler.order
    rows = Predictions(data.proba[order], data.labels[order], None)
    squares, losses = full_squares(rows), full_losses(rows, options.clip)
    work = rows.n_rows * rows.n_classes * options.n_resamples
    cells = class_cells(rows, options.n_bins) if work <= CLASSWISE_WORK else None

    def statistics(weight: FloatArray) -> dict[str, FloatArray]:
        total = weight.sum(axis=-1)
        found = {"brier_full": row_dot(weight, squares) / total}
        if np.isfinite(losses).all():
            found["log_loss_full"] = row_dot(weight, losses) / total
        if cells is not None:
            found |= classwise_statistics(weight, cells, rows.n_classes)
        return found

    return statistics


def _estimate(name: str, value: float, draws: FloatArray | None, options: Options) -> Estimate:
    if not math.isfinite(value):
        return Estimate(value, value, value)
    if draws is None or np.isnan(draws).all():
        return Estimate(value, math.nan, math.nan)
    tail = 0.5 * (1.0 - options.level)
    low, high = np.nanquantile(draws, [tail, 1.0 - tail])  # NaN: an AUROC without any errors
    if options.interval == "basic":
        low, high = 2.0 * value - high, 2.0 * value - low
    ends = np.clip([low, high], 0.0, _UPPER.get(name, 1.0))
    return Estimate(value, float(ends[0]), float(ends[1]))


def _bounds(values: dict[str, float], n_rows: int | None, options: Options) -> dict[str, float]:
    if n_rows is None:  # weighted
        return {}
    with_brier: tuple[Method, ...] = ("mcdiarmid", "bousquet")
    return {
        method: calibration_bound(
            min(values["ece"], 1.0),
            n_rows,
            options.n_bins,
            options.delta,
            method=method,
            brier=min(values["brier"], 1.0) if method in with_brier else None,
        )
        for method in get_args(Method)
    }


def _checked_options(
    n_bins: int,
    coverage: float,
    clip: float,
    level: float,
    delta: float,
    n_resamples: int,
    seed: int,
    interval: Interval,
) -> Options:
    for name, value in (("level", level), ("delta", delta)):
        if not 0.0 < value < 1.0:
            raise ValueError(f"`{name}` must lie strictly between 0 and 1; got {value!r}.")
    if isinstance(n_resamples, bool) or not isinstance(n_resamples, int) or n_resamples < 0:
        raise ValueError(
            f"`n_resamples` must be an integer of at least 0; got {n_resamples!r}. "
            "0 leaves the intervals out."
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"`seed` must be an integer of at least 0; got {seed!r}.")
    if interval not in get_args(Interval):
        raise ValueError(f"`interval` must be one of {list(get_args(Interval))}; got {interval!r}.")
    coverage = check_inside("coverage", coverage, 0.0, 1.0)
    return Options(
        check_count(n_bins),
        coverage,
        check_clip(clip),
        float(level),
        float(delta),
        n_resamples,
        seed,
        interval,
    )


def _checked_predictions(
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
