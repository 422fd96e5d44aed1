"""What is reported of the probability of an event: of a risk model, a scorecard, two
classes.

Of probabilities (n, 2) the event is class 1; of numbers (n,), what is 1 or True in
`outcome`. All is computed from the table of levels, so chunks, streams and weights are
those of other metrics.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from hokical._core import reading
from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.runtime import warn_user
from hokical.guarantees import bounds
from hokical.metrics import groups, summaries
from hokical.metrics.calibration import squared_errors
from hokical.metrics.intervals import deviation_ends, mean_ends, share_ends
from hokical.metrics.levels import IMPOSSIBLE, Levels, read_levels
from hokical.metrics.summaries import Estimate, Estimates, Metric

#: With fewer true or false positives an interval of net benefit is that of both shares
#: at once: the interval of the mean held in 73 to 91 % of simulations of five rows that
#: are treated.
_MIN_OF_EACH = 5
#: The error of a slope must be made of as many rows: of one row it says nothing.
_MIN_ROWS = 1.5
#: Where it is made of fewer rows than this, a normal interval held in 66 to 92 % of the
#: simulations of sharp models that had one, and is widened.
_MANY_ROWS = 50.0
#: Log-odds of probabilities nearer to 0 or 1 are those of this distance.
_MIN_DISTANCE = 1e-12
#: Shifts of log-odds are sought up to here: log-odds are at most 28.
_MAX_SHIFT = 100.0
#: Of equal risks, squared deviations sum to those of equal risks, but for rounding.
_ROUNDED = 1.0 + 1e-9
#: Knots of the smooth curve, cells of log-odds that it is fitted to, points that it is
#: drawn at.
_KNOTS = 10
_CELLS = 512
_POINTS = 101

_NO_AUROC = "it takes five rows with the event and five without, not separated"
_HANGS_ON_ONE = "a single row with an unexpected outcome decides it"
#: With fewer expected events or others in a band, a chi-square distribution of Hosmer
#: and Lemeshow's statistic rejected 10 to 11 % of calibrated models at 5 %.
_MANY_EXPECTED = 10.0
#: Draws of the statistic; p-values are at least 1e-4.
_DRAWS = 9999
_UNKNOWN = Estimate(math.nan)
_TABLE = (
    Metric("prevalence", "share of events", form=".1%"),
    Metric("mean_probability", "mean probability", form=".1%"),
    Metric("oe_ratio", "O:E ratio", form=".3f"),
    Metric("intercept", "intercept", form=".3f"),
    Metric("slope", "slope", form=".3f"),
    Metric("auroc", "AUROC", better="higher", ranking=True),
    Metric("gini", "Gini"),
    Metric("ks", "KS"),
    Metric("brier", "Brier score", ranking=True),
    Metric("scaled_brier", "scaled Brier score"),
    Metric("log_loss", "log loss", ranking=True),
    Metric("ici", "ICI (Eavg)"),
    Metric("e50", "E50"),
    Metric("e90", "E90"),
    Metric("emax", "Emax"),
    Metric("spiegelhalter_z", "Spiegelhalter's z", form=".3f"),
    Metric("spiegelhalter_p", "p-value of z", form=".3g"),
    Metric("logistic_intercept", "intercept beside slope", form=".3f"),
    Metric("r2", "Nagelkerke's R2"),
    Metric("discrimination", "discrimination D"),
    Metric("unreliability", "unreliability U"),
    Metric("unreliability_p", "p-value of U", form=".3g"),
    Metric("quality", "quality Q"),
)
#: What a summary of an event has, in order.
EVENT_METRICS = {metric.name: metric for metric in _TABLE}
#: What small tables show of it.
EVENT_COLUMNS = (
    "mean_probability",
    "oe_ratio",
    "intercept",
    "slope",
    "auroc",
    "brier",
    "log_loss",
)
#: What evaluations show of it; the rest is that of `val.prob`.
EVENT_MAIN = tuple(EVENT_METRICS)[: list(EVENT_METRICS).index("spiegelhalter_p") + 1]


@dataclass(frozen=True)
class Recalibration:
    """`slope` and `intercept` of a logistic recalibration, with intervals; see the
    function.
    """

    slope: Estimate
    intercept: Estimate


@dataclass(frozen=True, eq=False)
class DecisionCurve:
    """Net benefit at each threshold with its interval, and that of treating all,
    (thresholds,).
    """

    threshold: FloatArray
    net_benefit: FloatArray
    low: FloatArray
    high: FloatArray
    treat_all: FloatArray


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Observed share of events by predicted probability, with a pointwise band,
    (points,) each.
    """

    probability: FloatArray
    observed: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class RiskBand:
    """The rows whose probability is at least `lower` and below `upper`.

    `observed` is the share of events with Jeffreys' interval, `p_value` of the exact
    test that the probabilities are right; it is `flagged` if that is ruled out,
    allowing for the number of bands.
    """

    lower: float
    upper: float
    n: float
    events: float
    mean_probability: float
    observed: float
    low: float
    high: float
    p_value: float
    flagged: bool

    @property
    def oe_ratio(self) -> float:
        """Observed to expected events."""
        mean = self.mean_probability
        return self.observed / mean if mean > 0.0 else math.nan


@dataclass(frozen=True)
class RiskBands:
    """A row per band of probability that has examples; see `risk_bands`.

    `hosmer_lemeshow` is the statistic of Hosmer and Lemeshow's test over the bands and
    `p_value` its p-value, with as many degrees of freedom as bands, as for data that
    the model did not see. Where a band expects few events, the p-value is simulated, or
    with weights approximate, and `note` says so.
    """

    rows: tuple[RiskBand, ...]
    hosmer_lemeshow: float
    p_value: float
    delta: float
    note: str = ""

    def records(self) -> list[dict[str, Any]]:
        """The numbers of each row, for a DataFrame."""
        return [asdict(row) | {"oe_ratio": row.oe_ratio} for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return asdict(self) | {"rows": self.records()}

    def __str__(self) -> str:
        head = (
            f"{'probability':<18} {'rows':>9} {'events':>8} {'mean':>8} {'observed':>9}"
        )
        lines = [f"{head}  {1.0 - self.delta:.0%} interval      p-value"]
        for row in self.rows:
            band = f"{row.lower:.4f} to {row.upper:.4f}"
            interval = f"{row.low:.2%} to {row.high:.2%}"
            counts = (
                f"{band:<18} {row.n:>9,.6g} {row.events:>8,.6g} "
                f"{row.mean_probability:>8.2%}"
            )
            test = f"{interval:<18} {row.p_value:>6.2g}{' *' * row.flagged}"
            lines.append(f"{counts} {row.observed:>9.2%}  {test}")
        test = f"Hosmer-Lemeshow {self.hosmer_lemeshow:.2f}, p {self.p_value:.2g}"
        test += f" ({self.note})" if self.note else ""
        return "\n".join(
            [*lines, f"{test}; *: miscalibrated, allowing for the number of bands."]
        )


@dataclass(frozen=True, eq=False)
class BinarySummary(Estimates):
    """What is reported of the probability of an event; `binary_summary` makes it.

    `found["slope"]` is `found.estimates["slope"]`; `print(found)` shows a table.
    `n_events` of `n` rows have the event (their weight, with weights). `curve` is the
    smooth calibration curve, None where none can be fitted; `bands()` the table by
    bands of probability, `decision_curve()` the net benefit. `n_certain` rows have a
    probability of exactly 0 or 1 and no log-odds: intercept, slope and curve are those
    of the other rows.
    """

    n: int
    n_events: float
    estimates: dict[str, Estimate]
    curve: CalibrationCurve | None
    n_certain: float
    delta: float
    event: str = "the event"
    levels: Levels = field(repr=False, kw_only=True)

    def bands(self, edges: object = None) -> RiskBands:
        """The table by bands of probability; see `risk_bands`."""
        return risk_bands(self.levels, edges=edges, delta=self.delta)

    def decision_curve(self, thresholds: object = None) -> DecisionCurve:
        """Net benefit by threshold; see `hokical.metrics.decision_curve`."""
        return decision_curve(self.levels, thresholds=thresholds, delta=self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts."""
        names = ("n", "n_events", "n_certain", "event", "delta")
        curve = self.curve
        return {name: getattr(self, name) for name in names} | {
            "estimates": {name: asdict(self[name]) for name in self.estimates},
            "curve": curve and {name: x.tolist() for name, x in vars(curve).items()},
            "bands": self.bands().to_dict(),
        }

    @property
    def title(self) -> str:
        """How many rows and events there are."""
        return f"{self.n:,} examples, {self.n_events:,.10g} events ({self.event})"

    @property
    def remark(self) -> str | None:
        """What was left out, if anything."""
        if not self.n_certain:
            return None
        return (
            f"{self.n_certain:,.10g} probabilities are exactly 0 or 1: intercept, slope "
            "and curve are those of the others."
        )

    def __str__(self) -> str:
        lines = [f"{self.title}, {1.0 - self.delta:.0%} intervals"]
        for name, estimate in self.estimates.items():
            value, interval = EVENT_METRICS[name].show(estimate)
            line = f"{name:<18} {value:>9}{f'  [{interval}]' if interval else ''}"
            if estimate.reason:
                line += f"  no interval: {estimate.reason}"
            lines.append(line)
        return "\n".join([*lines, *([self.remark] if self.remark else [])])


def binary_summary(
    probability: object,
    outcome: object = None,
    *,
    delta: float = 0.05,
    sample_weight: object = None,
    cluster: object = None,
) -> BinarySummary:
    """What clinical papers and scorecard validations report of the probability of an
    event.

    Parameters
    ----------
    probability : array of shape (n,), or (n, 2)
        Predicted probability of the event; of two columns, the second. Chunks as in
        `ece`.
    outcome : array of shape (n,)
        Whether the event happened: True and False, or 1 and 0.
    delta : float
        Probability that an interval fails.
    sample_weight : array of shape (n,), optional
        How much each row counts; intervals are those of as many rows as the weights are
        worth.
    cluster : array of shape (n,), optional
        Which rows belong together, as those of one patient; as in
        `hokical.metrics.summary`.

    Returns
    -------
    BinarySummary
        `prevalence` and `mean_probability`; `oe_ratio`, observed to expected events,
        above 1 where risks are too low; `intercept`, calibration in the large (at a
        slope of 1), and `slope`, of the log-odds; `auroc`, `gini` (2 AUROC - 1, Somers'
        Dxy) and `ks`; `brier`, `scaled_brier` (1 - Brier score / that of the
        prevalence) and `log_loss`; `ici`, `e50`, `e90` and `emax`, mean, median, 90 %
        quantile and largest distance of the smooth calibration curve from the
        predictions (Austin and Steyerberg, 2019, doi:10.1002/sim.8281); Spiegelhalter's
        z with its p-value. The rest is that of `rms::val.prob` (Harrell):
        `logistic_intercept`, the intercept fitted with the slope, `r2`,
        `discrimination`, `unreliability` with p-value, `quality`.

    Notes
    -----
    The distances of a smooth curve and KS are biased upwards by noise and have no
    interval; those of a calibrated model are about .007 on average with 4000 rows.
    Intervals of prevalence are Clopper and Pearson's. Those of O:E and intercept are of
    the number of events and allow for one more unexpected outcome, as that of the
    scaled Brier score does. Those of the slope are of the likelihood or a sandwich,
    whichever is wider, and wider where few rows with an unexpected outcome decide
    it, of AUROC DeLong's, of means Hall's.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> log_odds = rng.normal(-1.5, 1.0, size=4000)
    >>> event = rng.uniform(size=4000) < 1 / (1 + np.exp(-log_odds))
    >>> summary = binary_summary(
    ...     1 / (1 + np.exp(0.4 - log_odds)), event
    ... )  # risks are too low
    >>> slope = summary["slope"]
    >>> summary["oe_ratio"].low > 1.2, slope.low < 1.0 < slope.high
    (True, True)
    """
    bounds.check_chance("delta", delta)
    levels = summaries.clustered_levels(
        cluster, probability, outcome, sample_weight, event=True
    )
    return summarize_event(levels, delta)


#: What an event shares with the predicted label: a metric of the same table of levels.
_SHARED = {
    "prevalence": "accuracy",
    "mean_probability": "mean_confidence",
    "brier": "brier",
    "log_loss": "log_loss",
    "auroc": "auroc",
}


def summarize_event(
    levels: Levels, delta: float, event: str = "the event"
) -> BinarySummary:
    """The summary of levels of probability."""
    # Sums of outcome - probability, for which rows in clusters are worth fewer.
    gaps = levels.of("ece")
    logistic, curve = _fit_models(gaps, delta)
    estimates = (
        logistic
        | _shared_estimates(levels, delta)
        | _event_estimates(levels, gaps, delta)
    )
    return BinarySummary(
        n=levels.n_rows,
        n_events=float(levels.correct.sum()),
        estimates={name: estimates.get(name, _UNKNOWN) for name in EVENT_METRICS},
        curve=curve,
        n_certain=float(levels.weight[_are_certain(levels)].sum()),
        delta=delta,
        event=event,
        levels=levels,
    )


def _shared_estimates(levels: Levels, delta: float) -> dict[str, Estimate]:
    """Metrics that the event shares with the predicted label, and the Gini."""
    options = summaries.SummaryOptions(delta=delta)
    estimates = {
        name: summaries.metric_estimate(summaries.METRICS[metric], levels, options)
        for name, metric in _SHARED.items()
    }
    area = estimates["auroc"]
    if area.reason:
        area = replace(area, reason=_NO_AUROC)
    gini, low, high = (
        2.0 * area_k - 1.0 for area_k in (area.value, area.low, area.high)
    )
    return estimates | {"auroc": area, "gini": Estimate(gini, low, high, area.reason)}


def _event_estimates(levels: Levels, gaps: Levels, delta: float) -> dict[str, Estimate]:
    """Metrics of events alone, as far as they are determined."""
    estimates = {}
    if levels.mean_confidence > 0.0:
        estimates["oe_ratio"] = _ratio(gaps, delta)
    share = levels.accuracy
    if 0.0 < share < 1.0:
        estimates["scaled_brier"] = _scaled_brier(levels.of("brier"), share, delta)
        estimates["ks"] = Estimate(_kolmogorov_smirnov(levels))
    z = _spiegelhalter_z(gaps)
    tail = float(bounds.scipy_special().ndtr(-abs(z)))
    return estimates | {
        "spiegelhalter_z": Estimate(z),
        "spiegelhalter_p": Estimate(2.0 * tail),
    }


def _kolmogorov_smirnov(levels: Levels) -> float:
    """The largest distance between the distributions of events and of the others."""
    events = np.cumsum(levels.correct) / float(levels.correct.sum())
    non_events = np.cumsum(levels.errors) / float(levels.errors.sum())
    return float(np.abs(events - non_events).max())


def _spiegelhalter_z(levels: Levels) -> float:
    """Spiegelhalter's (1986) z: sum (y - p)(1 - 2p), 0 on average if every p is right."""
    p = levels.confidence
    lean = 1.0 - 2.0 * p
    variance = float(levels.weight @ (lean**2 * p * (1.0 - p))) / levels.rows_per_weight
    if variance <= 0.0:
        return math.nan
    return float(levels.gap @ lean) / math.sqrt(variance)


def _event_ends(
    events: FloatArray, non_events: FloatArray, risk: FloatArray, delta: float
) -> tuple[float, float]:
    """Interval of the expected number of events, from counts and risks, (levels,) each.

    The risks sum to the observed number of events. The number of rows with an
    unexpected outcome, each for 1 - risk or risk, decides how well the sum is known, not
    the number of all rows. The interval is never wider than Clopper and Pearson's for
    events of equal risks, which vary most (Hoeffding, 1956), unless the risks are wrong
    by more than that: then it matters which rows were drawn.
    """
    number = float(events.sum())
    n = number + float(non_events.sum())
    deviations = np.stack([1.0 - risk, -risk])
    counts = np.stack([events, non_events])
    worst = (float(risk.max()), max(1.0 - float(risk.min()), 0.0))
    below, above = deviation_ends(deviations, counts, worst, delta)
    low, high = 0.0, 1.0
    if float((counts * deviations**2).sum()) <= number * (1.0 - number / n) * _ROUNDED:
        low, high = share_ends(number / n, n, delta)
    return max(number - below, n * low), min(number + above, n * high)


def _ratio(levels: Levels, delta: float) -> Estimate:
    """Observed to expected events, with the interval of the number of events.

    It holds 1 unless the exact test of the number of events rules it out.
    """
    expected = float(levels.weight @ levels.confidence)
    ratio = float(levels.correct.sum()) / expected
    unit = levels.rows_per_weight
    risk = ratio * levels.confidence
    number_ends = _event_ends(levels.correct * unit, levels.errors * unit, risk, delta)
    low, high = (number / (expected * unit) for number in number_ends)
    if not low <= 1.0 <= high and not levels.weighted:
        events = float(levels.correct.sum())
        p_value = groups.event_p_value(levels.confidence, levels.weight, events)
        if p_value > delta:
            low = min(low, 1.0)
            high = max(high, 1.0)
    return Estimate(ratio, min(low, ratio), max(high, ratio))


def _scaled_brier(levels: Levels, share: float, delta: float) -> Estimate:
    """1 - Brier score / (share (1 - share)), with an interval of its linearisation.

    That is the mean of squared errors less a multiple of the outcome.
    """
    of_event, of_non_event = squared_errors(levels.confidence)
    brier = float(levels.power_means(of_event, of_non_event)[0])
    spread = share * (1.0 - share)
    value = 1.0 - brier / spread
    lean = (1.0 - value) * (1.0 - 2.0 * share)
    deviations = np.stack([of_event - lean, of_non_event]) - (brier - lean * share)
    counts = levels.rows_per_weight * np.stack([levels.correct, levels.errors])
    worst = (max(-float(deviations.min()), 0.0), max(float(deviations.max()), 0.0))
    below, above = deviation_ends(deviations, counts, worst, delta)
    unit = levels.worth * spread
    return Estimate(value, value - above / unit, min(value + below / unit, 1.0))


def calibration_slope(
    proba: object,
    labels: object = None,
    *,
    delta: float = 0.05,
    sample_weight: object = None,
) -> Recalibration:
    """Slope and intercept of the observed log-odds on the predicted log-odds (Cox,
    1958).

    `proba` (n, 2) and labels, of which the probability of class 1 is tested; or
    confidences (n,) and whether each was right; other arguments are as in `ece`. A
    slope below 1: predictions are too extreme, as those of an overfitted model; above
    1: not extreme enough. The intercept is that of a slope of 1, "calibration in the
    large": above 0, risks are too low on average. The interval of the slope is normal,
    that of the intercept that of the number of events, as in `binary_summary`, at 1 -
    delta each. Both are NaN if all outcomes are equal; the slope also where the
    predictions separate them. Predictions of exactly 0 or 1 have no log-odds: they are
    left out, with a warning.

    >>> rng = np.random.default_rng(0)
    >>> log_odds = rng.normal(-1.0, 1.0, size=2000)
    >>> event = rng.uniform(size=2000) < 1 / (1 + np.exp(-log_odds))
    >>> overfitted = 1 / (1 + np.exp(-1.5 * log_odds))
    >>> line = calibration_slope(overfitted, event)
    >>> round(line.slope.value, 2), line.slope.high < 1.0
    (0.67, True)
    """
    bounds.check_chance("delta", delta)
    levels = read_levels(proba, labels, sample_weight, event=True)
    certain = _are_certain(levels)
    if certain.any():
        warn_user(
            f"{levels.weight[certain].sum():,.10g} predictions are exactly 0 or 1, which "
            "have no log-odds: slope and intercept are those of the others.",
            UserWarning,
        )
    estimates, _ = _fit_models(levels, delta)
    return Recalibration(
        estimates.get("slope", _UNKNOWN), estimates.get("intercept", _UNKNOWN)
    )


def smooth_calibration_curve(
    probability: object,
    outcome: object = None,
    *,
    delta: float = 0.05,
    sample_weight: object = None,
) -> CalibrationCurve:
    """Observed share of events by predicted probability: a smooth curve with a
    pointwise band.

    A natural cubic spline of the log-odds in a logistic model; how smooth it is,
    between a line and ten knots, is decided by the marginal likelihood. Arguments are
    as in `binary_summary`.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=5000)
    >>> curve = smooth_calibration_curve(p, rng.uniform(size=5000) < p**2)
    >>> bool(abs(curve.observed - curve.probability**2).max() < 0.05)
    True
    """
    bounds.check_chance("delta", delta)
    _, curve = _fit_models(
        read_levels(probability, outcome, sample_weight, event=True), delta
    )
    if curve is None:
        raise ValueError(
            "`outcome` must have both outcomes, not separated by `probability`; got a "
            "curve that is not determined. Pass more examples."
        )
    return curve


def risk_bands(
    probability: object,
    outcome: object = None,
    edges: object = None,
    *,
    delta: float = 0.05,
    sample_weight: object = None,
) -> RiskBands:
    """Predicted and observed share of events by band of probability, as rating grades
    are checked.

    A band is from one of the ascending `edges` up to, not including, the next; 0 and 1
    are added. None cuts at deciles. Intervals of the observed share are Jeffreys', at 1
    - delta each; the test of each band is exact (with weights, a bound), and bands are
    flagged by Holm's method. Other arguments are as in `binary_summary`.

    >>> bands = risk_bands([0.02, 0.03, 0.2, 0.3], [0, 0, 0, 1], edges=[0.1])
    >>> [(row.n, row.events, round(row.mean_probability, 3)) for row in bands.rows]
    [(2.0, 0.0, 0.025), (2.0, 1.0, 0.25)]
    """
    bounds.check_chance("delta", delta)
    levels = read_levels(probability, outcome, sample_weight, event=True)
    starts, lower, upper = _cut_bands(levels, edges)
    sums = np.stack([levels.weight, levels.correct, levels.weight * levels.confidence])
    n, events, expected = np.add.reduceat(sums, starts, axis=1)
    predicted = expected / n
    observed = events / n
    worth = n * levels.rows_per_weight
    low, high = _jeffreys(observed * worth, worth, delta)
    distributions = None if levels.weighted else _event_distributions(levels, starts)
    if distributions is None:
        p_values = groups.mean_p_values(worth, predicted, observed)
    else:
        counted = zip(distributions, np.rint(events).tolist(), strict=True)
        p_values = np.array([groups.tail_p_value(*pair) for pair in counted])
    flags = groups.holm(p_values) <= delta
    columns = (lower, upper, n, events, predicted, observed, low, high, p_values, flags)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    bands = tuple(RiskBand(*row) for row in rows)
    statistic, p_value, remark = _hosmer_lemeshow(
        worth, predicted, observed, distributions
    )
    return RiskBands(bands, statistic, p_value, delta, remark)


def _cut_bands(
    levels: Levels, edges: object
) -> tuple[IntArray, FloatArray, FloatArray]:
    """The first level of each band that has rows, and the ends of these bands."""
    if edges is None:
        starts = levels.bin_starts(10, "mass")
        lower = levels.confidence[starts]
        return starts, lower, np.append(lower[1:], levels.confidence[-1])
    inner = _check_edges(edges, 0.0, 1.0)
    cuts = np.concatenate([[0.0], inner[(inner > 0.0) & (inner < 1.0)], [1.0]])
    band = np.searchsorted(cuts[1:-1], levels.confidence, side="right")
    used, starts = np.unique(band, return_index=True)
    return starts, cuts[used], cuts[used + 1]


def _check_edges(
    edges: object, low: float = -math.inf, high: float = math.inf
) -> FloatArray:
    """Edges (bands - 1,) as finite numbers that ascend, from `low` to `high`."""
    values = np.atleast_1d(reading.to_floats(edges, "edges", "fiu"))
    is_inside = np.isfinite(values) & (values >= low) & (values <= high)
    if values.ndim != 1 or not is_inside.all() or not (np.diff(values) > 0.0).all():
        within = f" between {low:g} and {high:g}" if math.isfinite(high) else ""
        raise ValueError(
            f"`edges` must be finite numbers that ascend{within}; got {edges!r}."
        )
    return values


def _jeffreys(
    hits: FloatArray, n: FloatArray, delta: float
) -> tuple[FloatArray, FloatArray]:
    """Jeffreys' intervals of shares, (bands,) each."""
    hits = np.clip(hits, 0.0, n)
    # The upper bound of hits is 1 less the lower bound of misses.
    counts = np.stack([hits, n - hits])
    lower = bounds.beta_quantile(counts + 0.5, counts[::-1] + 0.5, 0.5 * delta)
    low_hits, low_misses = np.where(counts > 0.0, lower, 0.0)
    return low_hits, 1.0 - low_misses


def _event_distributions(
    levels: Levels, starts: IntArray
) -> list[tuple[int, FloatArray]]:
    """The distribution of the number of events in each band, if risks are right."""
    counts = np.rint(levels.weight).astype(np.int64)
    risks = np.split(levels.confidence, starts[1:])
    sizes = np.split(counts, starts[1:])
    bands = zip(risks, sizes, strict=True)
    return [groups.sum_distribution(np.repeat(risk, size)) for risk, size in bands]


def _hosmer_lemeshow(
    n: FloatArray,
    predicted: FloatArray,
    observed: FloatArray,
    distributions: list[tuple[int, FloatArray]] | None,
) -> tuple[float, float, str]:
    """Hosmer and Lemeshow's statistic, its p-value, and how that was found.

    A chi-square distribution needs some expected events and others in each band. Where
    they are few, events are drawn from their exact distributions.
    """
    spread = n * predicted * (1.0 - predicted)
    if not (spread > 0.0).all():
        return math.nan, math.nan, ""
    statistic = float(((n * (observed - predicted)) ** 2 / spread).sum())
    expected = n * np.minimum(predicted, 1.0 - predicted)
    if expected.min() >= _MANY_EXPECTED:
        return statistic, bounds.chi_square_tail(n.size, statistic), ""
    few = f"a band expects fewer than {_MANY_EXPECTED:.0f} events or others"
    if distributions is None:
        tail = bounds.chi_square_tail(n.size, statistic)
        return statistic, tail, f"approximate, as {few}"
    rng = np.random.default_rng(0)
    drawn = np.zeros(_DRAWS)
    bands = zip(distributions, n * predicted, spread, strict=True)
    for (first, chances), mean, variance in bands:
        reached = np.cumsum(chances)
        index = np.searchsorted(reached, reached[-1] * rng.uniform(size=_DRAWS))
        drawn += (first + index - mean) ** 2 / variance
    larger = int(np.count_nonzero(drawn >= statistic * (1.0 - 1e-9)))
    return statistic, (1.0 + larger) / (1.0 + _DRAWS), f"simulated, as {few}"


def population_stability_index(
    expected: object, actual: object, edges: object = None
) -> float:
    """PSI: how far the distribution of scores or probabilities has moved since
    development.

    The sum over bands of (a - e) log(a / e), with the shares e of `expected` (n,) and a
    of `actual` (m,). Bands are cut at the deciles of `expected`, or at ascending
    `edges`; an empty band counts as half a row. By a rule of scorecards, below 0.1 is
    stable and above 0.25 a large shift.

    >>> rng = np.random.default_rng(0)
    >>> round(
    ...     population_stability_index(
    ...         rng.normal(size=5000), rng.normal(0.5, 1, size=5000)
    ...     ),
    ...     2,
    ... )
    0.27
    """
    old = reading.to_floats(expected, "expected", "biuf").ravel()
    new = reading.to_floats(actual, "actual", "biuf").ravel()
    for name, values in (("expected", old), ("actual", new)):
        if not values.size or not np.isfinite(values).all():
            raise ValueError(
                f"`{name}` must be finite numbers, at least one; got {values!r}."
            )
    if edges is None:
        cuts = np.unique(np.quantile(old, np.arange(1, 10) / 10.0))
    else:
        cuts = _check_edges(edges)
    bands = np.concatenate([[-math.inf], cuts, [math.inf]])
    e, a = (
        np.maximum(np.histogram(scores, bands)[0], 0.5) / scores.size
        for scores in (old, new)
    )
    return float(((a - e) * np.log(a / e)).sum())


def decision_curve(
    proba: object,
    labels: object = None,
    thresholds: object = None,
    *,
    delta: float = 0.05,
    sample_weight: object = None,
) -> DecisionCurve:
    """Net benefit of treating whose risk is at or above each threshold (Vickers and
    Elkin, 2006).

    The share of true positives less that of false positives times t / (1 - t), the cost
    of one relative to the benefit of the other at threshold t. `thresholds` lie between
    0 and 1; by default 0.01 to 0.99. Treating none has 0. Other arguments are as in
    `calibration_slope`. Intervals are of each threshold alone; of fewer than five true
    or false positives they are wide.

    >>> curve = decision_curve([0.9, 0.8, 0.3, 0.1], [1, 1, 0, 0], [0.2, 0.5])
    >>> curve.net_benefit.round(4).tolist(), curve.treat_all.round(4).tolist()
    ([0.4375, 0.5], [0.375, 0.0])
    """
    bounds.check_chance("delta", delta)
    levels = read_levels(proba, labels, sample_weight, event=True)
    t = (
        np.arange(1, 100) / 100
        if thresholds is None
        else np.atleast_1d(np.asarray(thresholds))
    )
    if t.ndim != 1 or not t.size or not ((t > 0.0) & (t < 1.0)).all():
        raise ValueError(
            f"`thresholds` must lie strictly between 0 and 1; got {thresholds!r}."
        )
    index = np.searchsorted(levels.confidence, t)
    n = levels.worth
    above = np.pad([levels.weight_above, levels.errors_above], ((0, 0), (0, 1)))
    treated, false = above[:, index] / levels.total
    true = treated - false
    odds = t / (1.0 - t)
    powers = np.stack([true + false * (-odds) ** k for k in (1, 2, 3)], axis=1)
    low, high = np.array([mean_ends(row, n, delta) for row in powers]).T
    few = np.minimum(true, false) * n < _MIN_OF_EACH
    hits = np.clip([true * n, false * n], 0.0, n)
    # Of shape (thresholds, 2) each.
    true_ends, false_ends = bounds.clopper_pearson(hits, n, delta=0.5 * delta)
    low = np.where(few, true_ends[:, 0] - odds * false_ends[:, 1], low)
    high = np.where(few, true_ends[:, 1] - odds * false_ends[:, 0], high)
    share = levels.accuracy
    return DecisionCurve(t, powers[:, 0], low, high, share - (1.0 - share) * odds)


#: Coefficients (k,) of a logistic model, log-odds (cells,), and the Hessian (k, k)
#: there.
_Fit = tuple[FloatArray, FloatArray, FloatArray]


class _Cells(NamedTuple):
    """Predicted log-odds, ascending, and the weight and the events there, (cells,)
    each.
    """

    x: FloatArray
    weight: FloatArray
    events: FloatArray

    def merge(self, n_cells: int) -> _Cells:
        """At most `n_cells` cells of equal width, each at its mean log-odds."""
        x = self.x
        if x.size <= n_cells:
            return self
        share = (x - x[0]) / (x[-1] - x[0])
        cell = np.minimum((share * n_cells).astype(np.int64), n_cells - 1)
        starts = np.flatnonzero(np.diff(cell, prepend=-1))
        total, weight, events = (
            np.add.reduceat(column, starts)
            for column in (self.weight * x, self.weight, self.events)
        )
        return _Cells(total / weight, weight, events)

    def likelihood(self, eta: FloatArray) -> float:
        """The log-likelihood of log-odds."""
        return float(self.events @ eta - self.weight @ np.logaddexp(0.0, eta))

    def fit(
        self,
        columns: FloatArray,
        start: FloatArray,
        offset: Any = 0.0,
        penalty: Any = 0.0,
    ) -> _Fit | None:
        """A (penalised) logistic model of columns (k, cells); None if it is not
        determined.
        """
        coefficients = start
        for _ in range(100):
            eta = offset + coefficients @ columns
            p = bounds.scipy_special().expit(eta)
            hessian = columns * (self.weight * p * (1.0 - p)) @ columns.T + penalty
            if not np.linalg.cond(hessian) < 1e12:
                return None
            pull = columns @ (self.events - self.weight * p) - np.dot(
                penalty, coefficients
            )
            step = np.linalg.solve(hessian, pull)
            if np.abs(step).max() < 1e-9:
                return coefficients, eta, hessian
            coefficients = coefficients + np.clip(step, -1.0, 1.0)
        return None

    def wald(self, fit: _Fit, columns: FloatArray, delta: float) -> list[Estimate]:
        """Coefficients with normal intervals, of the larger of two errors.

        That of the likelihood is too small where the model is wrong, that of the
        sandwich in small samples. Intervals that are made of few rows are widened; a
        coefficient that hangs on one row has none.
        """
        coefficients, eta, hessian = fit
        special = bounds.scipy_special()
        p = special.expit(eta)
        inverse = np.linalg.inv(hessian)
        non_events = self.weight - self.events
        # How far each row moves the coefficients, squared, (k, cells).
        moved = (inverse @ columns) ** 2
        squares = moved @ (self.events * (1.0 - p) ** 2 + non_events * p**2)
        fourths = moved**2 @ (self.events * (1.0 - p) ** 4 + non_events * p**4)
        # The number of rows that the error of a coefficient comes from.
        rows = squares**2 / fourths
        variance = np.maximum(np.diag(inverse), squares)
        width = -float(special.ndtri(0.5 * delta)) * np.sqrt(variance)
        width = width * _widening(rows, delta)
        return [
            Estimate(value, value - width_k, value + width_k)
            if rows_k >= _MIN_ROWS
            else Estimate(value, reason=_HANGS_ON_ONE)
            for value, width_k, rows_k in zip(
                coefficients.tolist(), width.tolist(), rows.tolist(), strict=True
            )
        ]


def _widening(rows: FloatArray, delta: float) -> FloatArray:
    """By how much normal intervals of errors that are made of `rows` (k,) are too narrow.

    Log-odds of rare outcomes are logarithms of their number. Of the logarithm of the
    mean, the exact (Poisson) lower end is farther away than the normal one.
    """
    special = bounds.scipy_special()
    exact = np.log(rows / special.gammaincinv(rows, 0.5 * delta))
    normal = -special.ndtri(0.5 * delta) / np.sqrt(rows)
    is_few = rows < _MANY_ROWS
    return np.where(is_few, np.maximum(exact / normal, 1.0), 1.0)


def _are_certain(levels: Levels) -> BoolArray:
    """Which levels are probabilities of 0 or 1, which have no log-odds."""
    return (levels.confidence <= IMPOSSIBLE) | (levels.confidence >= 1.0)


def _log_odds(p: FloatArray) -> FloatArray:
    return np.asarray(
        bounds.scipy_special().logit(np.clip(p, _MIN_DISTANCE, 1.0 - _MIN_DISTANCE))
    )


def _fit_models(
    levels: Levels, delta: float
) -> tuple[dict[str, Estimate], CalibrationCurve | None]:
    """Estimates by logistic models of the events on the predicted log-odds.

    They are of the levels strictly between 0 and 1, as far as they are determined. R2,
    D, U and Q are those of Harrell's `val.prob`; the smooth curve has the mean,
    quantiles and maximum of its distance from the predictions.
    """
    uncertain = ~_are_certain(levels)
    p = levels.confidence[uncertain]
    unit = levels.rows_per_weight
    cells = _Cells(
        _log_odds(p), levels.weight[uncertain] * unit, levels.correct[uncertain] * unit
    )
    if not 0.0 < float(cells.events.sum()) < float(cells.weight.sum()):
        return {}, None
    estimates = _linear_estimates(cells, delta)
    smooth = _fit_smooth(cells, p, delta)
    if smooth is None:
        return estimates, None
    fitted, curve = smooth
    distances = _distances(np.abs(fitted - p), levels.weight[uncertain])
    return estimates | distances, curve


def _linear_estimates(cells: _Cells, delta: float) -> dict[str, Estimate]:
    """The estimates by a line in the log-odds, or by its intercept alone."""
    estimates = {}
    line = np.stack([np.ones(cells.x.size), cells.x])
    shifted = cells.fit(line[:1], np.zeros(1), cells.x)
    if shifted is not None:
        estimates["intercept"] = _intercept(cells, float(shifted[0][0]), delta)
    linear = cells.fit(line, np.array([0.0, 1.0]))
    if linear is None:
        return estimates
    intercept, slope = cells.wald(linear, line, delta)
    n = float(cells.weight.sum())
    share = float(cells.events.sum()) / n
    likelihood = cells.likelihood(linear[1])
    null = n * (share * math.log(share) + (1.0 - share) * math.log1p(-share))
    gain = 2.0 * (likelihood - null)
    off = 2.0 * (likelihood - cells.likelihood(cells.x))
    values = {
        "r2": math.expm1(-gain / n) / math.expm1(2.0 * null / n),
        "discrimination": (gain - 1.0) / n,
        "unreliability": (off - 2.0) / n,
        "unreliability_p": bounds.chi_square_tail(2, max(off, 0.0)),
        "quality": (gain - 1.0) / n - (off - 2.0) / n,
    }
    return (
        estimates
        | {"logistic_intercept": intercept, "slope": slope}
        | {name: Estimate(value) for name, value in values.items()}
    )


def _distances(gaps: FloatArray, weight: FloatArray) -> dict[str, Estimate]:
    """Mean, quantiles and maximum of distances (n,)."""
    order = np.argsort(gaps)
    cumulative = np.cumsum(weight[order])
    total = cumulative[-1]
    median, high = np.searchsorted(cumulative, np.array([0.5, 0.9]) * total)
    return {
        "ici": Estimate(float(weight @ gaps / total)),
        "e50": Estimate(float(gaps[order[median]])),
        "e90": Estimate(float(gaps[order[high]])),
        "emax": Estimate(float(gaps.max())),
    }


def _intercept(cells: _Cells, value: float, delta: float) -> Estimate:
    """The shift of the log-odds at a slope of 1, with an interval.

    Shifted risks add up to the number of events, so its interval is that of the
    expected number, as shifts.
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    non_events = cells.weight - cells.events
    risk = np.asarray(expit(cells.x + value))

    def expected(shift: float) -> float:
        return float(cells.weight @ expit(cells.x + shift))

    least = expected(-_MAX_SHIFT)
    most = expected(_MAX_SHIFT)

    def shift(number: float) -> float:
        possible = min(max(number, least), most)

        def excess(shift: float) -> float:
            return expected(shift) - possible

        return float(brentq(excess, -_MAX_SHIFT, _MAX_SHIFT, xtol=1e-9))

    low, high = map(shift, _event_ends(cells.events, non_events, risk, delta))
    return Estimate(value, min(low, value), max(high, value))


def _fit_smooth(
    cells: _Cells, p: FloatArray, delta: float
) -> tuple[FloatArray, CalibrationCurve] | None:
    """A smooth curve at probabilities (n,), and as it is drawn, with its band.

    A natural cubic spline of the log-odds by penalised likelihood, fitted to means of
    even cells; the error is that of the posterior (Wood, 2006).
    """
    from scipy.special import expit, ndtri

    cells = cells.merge(_CELLS)
    basis = _basis(cells)
    fit = _fit_spline(cells, basis)
    if fit is None:
        return None
    coefficients, _, hessian = fit
    x = cells.x
    eta = coefficients @ basis.columns
    squares = np.einsum(
        "kn,kn->n", basis.columns, np.linalg.solve(hessian, basis.columns)
    )
    error = np.sqrt(squares)

    def curve_at(p: FloatArray, z: float = 0.0) -> FloatArray:
        """The curve, or z errors beside it, at probabilities between 0 and 1."""
        odds = _log_odds(p)
        return np.asarray(expit(odds + np.interp(odds, x, eta + z * error - x)))

    first, last = expit(x[[0, -1]]).tolist()
    points = np.linspace(first, last, _POINTS if last > first else 1)
    z = float(ndtri(0.5 * delta))
    drawn = CalibrationCurve(
        points, curve_at(points), curve_at(points, z), curve_at(points, -z)
    )
    return curve_at(p), drawn


def _fit_spline(cells: _Cells, basis: _SplineBasis) -> _Fit | None:
    """The fit with the penalty of the largest marginal likelihood (Laplace).

    Penalties go from a straight line to nearly none; each fit starts at the last.
    """
    best_fit = None
    best_evidence = -math.inf
    start = basis.start
    for penalty in basis.penalties:
        fit = cells.fit(basis.columns, start, penalty=penalty * basis.curvature)
        if fit is None:
            continue
        start, eta, hessian = fit
        bend = penalty * float(start @ basis.curvature @ start)
        determinant = float(np.linalg.slogdet(hessian)[1])
        free = (start.size - 2) * math.log(penalty) - determinant
        evidence = cells.likelihood(eta) + 0.5 * (free - bend)
        if evidence > best_evidence:
            best_fit = fit
            best_evidence = evidence
    return best_fit


class _SplineBasis(NamedTuple):
    """Functions (k, cells) whose sum is a curve, the matrix (k, k) of their curvature,
    its penalties to try, and the first coefficients (k,).
    """

    columns: FloatArray
    curvature: FloatArray
    penalties: FloatArray
    start: FloatArray


def _basis(cells: _Cells) -> _SplineBasis:
    """Natural cubic splines that are 1 at one knot.

    Of fewer than three knots they are a constant or a line.
    """
    x = cells.x
    knots = _knots(cells)
    k = knots.size
    if k < 3:
        line = np.stack([np.ones(x.size), x])
        start = np.array([0.0, 1.0])
        return _SplineBasis(line[:k], np.zeros((k, k)), np.ones(1), start[:k])
    from scipy.interpolate import CubicSpline

    spline = CubicSpline(knots, np.eye(k), bc_type="natural")
    bend = spline(knots, 2)
    h = np.diff(knots)
    first = bend[:-1]
    second = bend[1:]
    cross = np.einsum("jk,j,jl->kl", first, h / 6.0, second)
    curvature = np.einsum("jk,j,jl->kl", first, h / 3.0, first) + cross + cross.T
    curvature = curvature + np.einsum("jk,j,jl->kl", second, h / 3.0, second)
    unit = float(cells.weight.sum()) / 8.0 / float(np.trace(curvature))
    penalties = unit * 10.0 ** np.arange(4.0, -4.1, -0.5)
    return _SplineBasis(spline(x).T, curvature, penalties, knots)


def _knots(cells: _Cells) -> FloatArray:
    """The first and last log-odds, and weighted quantiles between, all different."""
    x = cells.x
    weight = cells.weight
    cumulative = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
    inner = np.interp(np.linspace(0.0, 1.0, _KNOTS)[1:-1], cumulative, x)
    knots = np.unique(np.concatenate([x[:1], inner, x[-1:]]))
    if knots.size == 1:
        return knots
    least_distance = 1e-3 * (knots[-1] - knots[0])
    is_apart = np.diff(knots, prepend=-math.inf) > least_distance
    return np.asarray(knots[is_apart])
