"""All metrics at once, with intervals and the bounds on the true calibration error."""

import math
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from hokical._core.types import FloatArray
from hokical.guarantees._bounds import Method, calibration_bound
from hokical.metrics._bootstrap import resample
from hokical.metrics._chunked import add_chunks, is_chunked
from hokical.metrics._examples import Examples, Predictions, as_examples, as_predictions
from hokical.metrics._levels import Levels, LevelSums
from hokical.metrics._metric import METRICS, SummaryOptions
from hokical.metrics._vectors import VectorSums


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

    def __str__(self) -> str:
        level = f"{1.0 - self.options.delta:.0%}"
        lines = [f"{self.n} examples, {level} intervals"]
        for name, e in self.estimates.items():
            ends = "" if math.isnan(e.low) else f"  [{e.low:.5f}, {e.high:.5f}]"
            lines.append(f"{name:<16} {e.value:>9.5f}{ends}")
        bounds = (
            f"true calibration error < {b:.4f} ({level}, {m})" for m, b in self.bounds.items()
        )
        return "\n".join([*lines, *bounds])


@dataclass(frozen=True, eq=False)
class SummarySums:
    """What a summary of chunks needs: `levels`, and `vectors` of all classes. They add with `+`."""

    levels: LevelSums
    vectors: VectorSums | None = None

    def __add__(self, other: "SummarySums") -> "SummarySums":
        both = self.vectors is not None and other.vectors is not None
        vectors = self.vectors + other.vectors if both else None  # type: ignore[operator]
        return SummarySums(self.levels + other.levels, vectors)

    @classmethod
    def from_rows(
        cls, rows: Examples, data: Predictions | None, options: SummaryOptions
    ) -> "SummarySums":
        """Of checked rows."""
        limits = (options.n_bins, options.clip, options.ordered)
        vectors = None if data is None else VectorSums.from_rows(data, *limits)
        return cls(LevelSums.from_rows(rows), vectors)


def summary(
    proba: Any,
    labels: Any = None,
    *,
    n_bins: int = 15,
    coverage: float = 0.8,
    clip: float = 0.0,
    delta: float = 0.05,
    n_resamples: int | None = None,
    random_state: int = 0,
    sample_weight: Any = None,
    ordered: bool = False,
) -> Summary:
    """All metrics, their intervals, and bounds on the true calibration error.

    `proba`, `labels` and `sample_weight` are as in `ece`; the bootstrap draws rows with their
    weights. Probabilities (n, classes) give the Brier score and the log loss of all classes and add
    `classwise_ece`, with an interval only if classes * n_bins <= 20,000, and of classes that are
    `ordered`, as grades are, `ranked_probability_score`. `n_bins`, `coverage` and `clip` are as in
    `ece`, `selective_risk` and `log_loss`. To evaluate a calibrator see `hokical.evaluate`.

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
    chunked = is_chunked(proba)
    if chunked and n_resamples:
        raise ValueError(
            "`n_resamples` must be 0 or left out for chunks, as intervals need all rows; the "
            "proven bounds are given."
        )
    n_resamples = (0 if chunked else 1000) if n_resamples is None else n_resamples
    options = SummaryOptions(n_bins, coverage, clip, delta, n_resamples, random_state, ordered)

    def read(*chunk: Any) -> tuple[Examples, Predictions | None]:
        if np.ndim(chunk[0]) == 2:
            data = as_predictions(*chunk)
            return data.top_label, data
        if ordered:
            raise ValueError("`ordered` needs `proba` (n, classes): the order is of the columns.")
        return as_examples(*chunk), None

    if not chunked:
        return summarize(*read(proba, labels, sample_weight), options)
    sums = add_chunks(
        lambda *chunk: SummarySums.from_rows(*read(*chunk), options), proba, labels, sample_weight
    )
    return summarize_sums(sums, options)


def summarize(examples: Examples, data: Predictions | None, options: SummaryOptions) -> Summary:
    """The summary of checked arrays; `data` has the probabilities of all classes, if known."""
    sums = SummarySums.from_rows(examples, data, options)
    draws = resample(examples, data, options) if options.n_resamples > 0 else {}
    return summarize_sums(sums, options, draws)


def summarize_sums(
    sums: SummarySums, options: SummaryOptions, draws: dict[str, FloatArray] | None = None
) -> Summary:
    """The summary of sums: all metrics, bounds where the proofs allow them (not with weights).

    `draws` are the metrics of resamples; without them there are no intervals.
    """
    levels, draws = sums.levels.levels, draws or {}
    values = top_label_values(levels, options)
    bounds = {} if sums.levels.weighted else proven_bounds(values, sums.levels.n_rows, options)
    values |= {} if sums.vectors is None else sums.vectors.values()
    estimates = {
        name: estimate(name, values[name], draws.get(name), options)
        for name in METRICS
        if name in values
    }
    return Summary(sums.levels.n_rows, estimates, bounds, options, sums.vectors is not None)


def top_label_values(levels: Levels, options: SummaryOptions) -> dict[str, float]:
    """The metrics of the predicted label."""
    known = ((name, metric.function) for name, metric in METRICS.items())
    return {name: float(found(levels, options)) for name, found in known if found is not None}


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
    biased = metric.interval == "biased"
    bias = max(0.0, float(middle) - value) if biased else 0.0
    ends = (2.0 * value - most - 2.0 * bias, 2.0 * value - least)
    low, high = np.clip([min(ends[0], value), max(ends[1], value)], 0.0, metric.upper)
    corrected = max(0.0, value - bias) if biased else None
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
