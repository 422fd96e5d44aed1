"""Plots: each `draw_...` takes the arrays of a metric, an Axes to draw on, and
matplotlib's styles.

Reliability diagrams and histograms of confidence; of an event the calibration curve,
the distribution by outcome and the decision curve; risk-coverage curves; sizes and
coverage of prediction sets. Drawing needs matplotlib (the extra `plot`), which no other
module imports; `reliability` computes numbers without it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import (
    bin_edges,
    bin_index,
    check_bins,
    check_names,
)
from hokical._core.reading import to_floats
from hokical._core.runtime import import_optional
from hokical.guarantees.bounds import clopper_pearson
from hokical.metrics import risk_models
from hokical.metrics.calibration import aurc, ece, risk_coverage_curve
from hokical.metrics.levels import Bins, Levels, read_levels
from hokical.metrics.risk_models import binary_summary, decision_curve
from hokical.metrics.summaries import summarize_sets

__all__ = [
    "draw_calibration_curve",
    "draw_decision_curve",
    "draw_distribution",
    "draw_estimates",
    "draw_histogram",
    "draw_reliability",
    "draw_risk_coverage",
    "draw_sets",
    "reliability",
]

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distinct for color-blind readers, and readable on white and on dark backgrounds.
BLUE = "#3f74b5"
ORANGE = "#e08a3c"
GREY = "#808080"


def axes_or_new(ax: Axes | None) -> Axes:
    """The given Axes, or those of a new figure."""
    if ax is None:
        ax = import_optional("matplotlib.pyplot", "plot").subplots(
            layout="constrained"
        )[1]
    if not hasattr(ax, "errorbar"):
        raise TypeError(
            f"`ax` must be an Axes of matplotlib; got {type(ax).__name__}. Take one of "
            "`pyplot.subplots()[1]`, and name other options: `metric=`."
        )
    return ax


def ink(ax: Axes) -> Any:
    """The color of the words of the Axes: black, or white in
    `style.use("dark_background")`.
    """
    return ax.xaxis.label.get_color()


def legend_beside(ax: Axes) -> None:
    """A legend right of the Axes that is never cut, however many and long its names
    are.

    The figure grows for it if it holds nothing else; otherwise the letters get smaller.
    """
    handles, names = ax.get_legend_handles_labels()
    names = [textwrap.fill(name, 36) for name in names]
    lines = 1.3 * sum(name.count("\n") + 1 for name in names) + 0.6 * len(names) + 1
    figure: Any = ax.figure
    is_whole_figure = hasattr(figure, "set_layout_engine")
    if figure.axes == [ax] and is_whole_figure:
        figure.set_layout_engine(figure.get_layout_engine() or "constrained")
        width, height = figure.get_size_inches()
        figure.set_size_inches(max(width, 8.0), max(height, 9.0 / 72 * lines + 1.0))
    size = min(9.0, 72 * ax.get_window_extent().height / figure.dpi / lines)
    ax.legend(
        handles,
        names,
        fontsize=size,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        frameon=False,
    )


def _bars(ax: Axes, low: Any, high: Any, heights: Any, **look: Any) -> None:
    """Bars from `low` to `high`, apart by a line in the color of the background."""
    ax.bar(
        low,
        heights,
        high - low,
        align="edge",
        **({"edgecolor": ax.get_facecolor()} | look),
    )


def _points(ax: Axes, x: Any, y: Any, low: Any, high: Any, /, **look: Any) -> None:
    """Points with intervals."""
    reach = np.maximum([np.subtract(y, low), np.subtract(high, y)], 0.0)
    ax.errorbar(x, y, yerr=reach, fmt="o", **look)


def _line(
    ax: Axes, x: Any, y: Any, low: Any, high: Any, band: dict[str, Any], look: Any
) -> None:
    """A line with a band in its color."""
    (line,) = ax.plot(x, y, **look)
    ax.fill_between(x, low, high, color=line.get_color(), linewidth=0, **band)


def _finish(
    ax: Axes,
    loc: Literal["upper left", "upper center", "upper right"],
    x: str,
    y: str,
    legend: dict[str, Any] | None = None,
    **limits: Any,
) -> Axes:
    """The Axes with a legend at `loc`, names of both axes, and limits."""
    ax.set(xlabel=x, ylabel=y, **limits)
    ax.legend(loc=loc, frameon=False, **(legend or {}))
    return ax


#: Small points with caps.
_SMALL: dict[str, Any] = {"elinewidth": 1, "capsize": 2}
#: Where axes of probability may end.
_TOPS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
#: Bars of a histogram of probabilities.
_BARS = 25
#: Marks of a rug, at most.
_MARKS = 120


@dataclass(frozen=True, eq=False)
class EventPicture:
    """What diagrams of an event show, on axes from 0 to `top`.

    `curve` is None where none can be fitted. `events` and `others` (bars,) are shares
    of the rows with and without the event whose probability lies between two of the
    `edges`; `rug_events` and `rug_others` are quantiles of their probabilities.
    """

    top: float
    curve: risk_models.CalibrationCurve | None
    bands: risk_models.RiskBands
    edges: FloatArray
    events: FloatArray
    others: FloatArray
    rug_events: FloatArray
    rug_others: FloatArray
    decision: risk_models.DecisionCurve

    @classmethod
    def from_summary(
        cls,
        summary: risk_models.BinarySummary,
        edges: Any = None,
        top: float | None = None,
    ) -> Self:
        """Of a summary; `edges` are those of the bands, `top` the end of the axes."""
        levels = summary.levels
        top = axis_top(summary) if top is None else top
        bar = np.minimum((levels.confidence / top * _BARS).astype(np.int64), _BARS - 1)
        shares = []
        rugs = []
        for weight in (levels.correct, levels.errors):
            reached = np.cumsum(weight)
            shares.append(np.bincount(bar, weight, _BARS) / (reached[-1] or 1.0))
            n_marks = int(min(_MARKS, np.ceil(reached[-1])))
            quantiles = (np.arange(n_marks) + 0.5) / max(n_marks, 1) * reached[-1]
            marks = np.minimum(np.searchsorted(reached, quantiles), reached.size - 1)
            rugs.append(np.asarray(levels.confidence[marks]))
        return cls(
            top=top,
            curve=summary.curve,
            bands=summary.bands(edges),
            edges=np.linspace(0.0, top, _BARS + 1),
            events=shares[0],
            others=shares[1],
            rug_events=rugs[0],
            rug_others=rugs[1],
            decision=summary.decision_curve(top * np.arange(1, 100) / 100.0),
        )

    def draw_curve(self, ax: Axes | None, delta: float, **style: Any) -> Axes:
        """The smooth curve with its band, points of bands with intervals, and rugs."""
        ax = axes_or_new(ax)
        ax.plot(
            [0, self.top], [0, self.top], color=GREY, linestyle="--", label="calibrated"
        )
        if self.curve is not None:
            band = {"alpha": 0.18, "label": f"{1 - delta:.0%} band"}
            curve = (
                self.curve.probability,
                self.curve.observed,
                self.curve.low,
                self.curve.high,
            )
            _line(ax, *curve, band, {"color": BLUE, "label": "smooth curve"} | style)
        columns = ("mean_probability", "observed", "low", "high")
        points = ([getattr(row, name) for row in self.bands.rows] for name in columns)
        _points(ax, *points, color=ink(ax), label="bands", markersize=4, **_SMALL)
        for rug, height, color in (
            (self.rug_events, 1.02, ORANGE),
            (self.rug_others, -0.02, GREY),
        ):
            marks: dict[str, Any] = {
                "linestyle": "",
                "marker": "|",
                "markersize": 7,
                "alpha": 0.5,
            }
            ax.plot(rug, np.full(rug.size, height * self.top), color=color, **marks)
        return _finish(
            ax,
            "upper left",
            "predicted probability",
            "observed share of events",
            {"bbox_to_anchor": (0.0, 0.95)},  # below the marks of events
            xlim=(0, self.top),
            ylim=(-0.05 * self.top, 1.06 * self.top),
        )


def axis_top(summary: risk_models.BinarySummary) -> float:
    """A round number that nearly all probabilities and observed shares lie below."""
    levels = summary.levels
    reached = np.cumsum(levels.weight)
    high_quantile = levels.confidence[np.searchsorted(reached, 0.995 * levels.total)]
    observed = [band.observed for band in summary.bands().rows]
    largest = max(float(high_quantile), *observed)
    return next((top for top in _TOPS if top >= largest), 1.0)


def draw_calibration_curve(
    probability: Any,
    outcome: Any,
    ax: Axes | None = None,
    *,
    edges: Any = None,
    delta: float = 0.05,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Smooth calibration curve of an event with a band, over bands of probability with
    intervals.

    Marks above are rows with the event, marks below rows without. `edges` are those of
    `hokical.metrics.risk_bands`, other arguments those of
    `hokical.metrics.binary_summary`; `style` is that of matplotlib's lines.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> ax = draw_calibration_curve([0.1, 0.2, 0.3, 0.8, 0.9], [0, 0, 1, 1, 1], ax)
    >>> bool(ax.lines)
    True
    """
    summary = binary_summary(
        probability, outcome, delta=delta, sample_weight=sample_weight
    )
    return EventPicture.from_summary(summary, edges).draw_curve(ax, delta, **style)


def draw_distribution(
    probability: Any,
    outcome: Any,
    ax: Axes | None = None,
    *,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Distribution of the probabilities of rows with the event, above, and without,
    below.

    Arguments are those of `hokical.metrics.binary_summary`; `style` is that of
    matplotlib's bars.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> ax = draw_distribution([0.1, 0.2, 0.3, 0.8, 0.9], [0, 0, 1, 1, 1], ax)
    >>> len(ax.patches) > 0
    True
    """
    summary = binary_summary(probability, outcome, sample_weight=sample_weight)
    picture = EventPicture.from_summary(summary)
    ax = axes_or_new(ax)
    low = picture.edges[:-1]
    high = picture.edges[1:]
    event_style = {"color": ORANGE, "label": "event"} | style
    other_style = {"color": GREY, "label": "no event"} | style
    _bars(ax, low, high, picture.events, **event_style)
    _bars(ax, low, high, -picture.others, **other_style)
    ax.axhline(0.0, color=ink(ax), linewidth=0.8)
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0%}")
    names = ("predicted probability", "share of the outcome's rows")
    return _finish(ax, "upper right", *names, xlim=(0, picture.top))


def draw_decision_curve(
    proba: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    thresholds: Any = None,
    delta: float = 0.05,
    label: str = "model",
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Net benefit by threshold with its band, beside treating all and none.

    Call it again with the same Axes and another `label` to compare. Arguments are as in
    `hokical.metrics.decision_curve`; `style` is that of matplotlib's lines.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> ax = draw_decision_curve([0.1, 0.2, 0.3, 0.8, 0.9], [0, 0, 1, 1, 1], ax)
    >>> bool(ax.lines)
    True
    """
    ax = axes_or_new(ax)
    curve = decision_curve(
        proba, labels, thresholds, delta=delta, sample_weight=sample_weight
    )
    if not ax.lines:
        ax.plot(
            curve.threshold,
            curve.treat_all,
            color=GREY,
            linestyle="--",
            label="treat all",
        )
        ax.axhline(0.0, color=ink(ax), linewidth=0.8, label="treat none")
    columns = (curve.threshold, curve.net_benefit, curve.low, curve.high)
    _line(ax, *columns, {"alpha": 0.15}, {"label": label} | style)
    top = max(float(np.max(np.asarray(line.get_ydata()))) for line in ax.lines)
    limits: dict[str, Any] = {"xlim": (0, 1), "ylim": (-0.1 * top, 1.15 * top)}
    return _finish(ax, "upper right", "threshold of the risk", "net benefit", **limits)


@dataclass(frozen=True, eq=False)
class Reliability:
    """The occupied bins of a reliability diagram, (bins,) each, in order of confidence.

    `low` and `high` are a bin's ends (of equal-mass bins, the lowest and highest
    confidence inside), `weight` and `correct` the weight of its examples and of the
    correct ones, `count` the weight in whole examples; `accuracy_low` and
    `accuracy_high` are Clopper and Pearson's interval, one bin at a time.
    """

    low: FloatArray
    high: FloatArray
    count: IntArray
    weight: FloatArray
    correct: FloatArray
    confidence: FloatArray
    accuracy: FloatArray
    accuracy_low: FloatArray
    accuracy_high: FloatArray
    ece: float
    n_bins: int
    scheme: Bins
    delta: float

    @property
    def gap(self) -> FloatArray:
        """accuracy - confidence: below 0 in over-confident bins."""
        return self.accuracy - self.confidence

    def draw(self, ax: Axes | None = None, **style: Any) -> Axes:
        """Bars of accuracy, the gap to the confidence, bands, and a strip of counts
        below.
        """
        ax = axes_or_new(ax)
        low = self.low
        high = self.high
        bar_style = {"color": BLUE, "label": "accuracy"} | style
        _bars(ax, low, high, self.accuracy, **bar_style)
        _bars(
            ax,
            low,
            high,
            -self.gap,
            bottom=self.accuracy,
            label="gap to the confidence",
            facecolor="none",
            edgecolor=ORANGE,
            hatch="////",
        )
        _points(
            ax,
            self.confidence,
            self.accuracy,
            self.accuracy_low,
            self.accuracy_high,
            label=f"{1.0 - self.delta:.0%} interval",
            markersize=3,
            color=ink(ax),
            **_SMALL,
        )
        ax.plot(
            [0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="calibrated"
        )
        self._draw_counts(ax)
        ax.set_title(f"ECE {self.ece:.4f} ({self.n_bins} bins of equal {self.scheme})")
        limits: dict[str, Any] = {
            "xlim": (0, 1),
            "ylim": (-0.2, 1.3),
            "yticks": np.arange(6) / 5,
        }
        above = {"ncols": 2, "fontsize": 9}  # all bars
        return _finish(ax, "upper left", "confidence", "accuracy", above, **limits)

    def _draw_counts(self, ax: Axes) -> None:
        """The counts, in a strip below, the largest at full height."""
        heights = 0.11 * self.weight / self.weight.max()
        _bars(ax, self.low, self.high, heights, bottom=-0.19, color=GREY)
        ax.axhline(0.0, color=ink(ax), linewidth=0.8)
        text = f"examples per bin, most {self.count.max()}"
        ax.text(0.01, -0.04, text, fontsize=8, va="center")


def reliability(
    proba: Any,
    labels: Any,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    delta: float = 0.05,
    sample_weight: Any = None,
) -> Reliability:
    """Accuracy per confidence bin, with counts and intervals; arguments as in `ece`.

    An interval misses its bin's accuracy with probability `delta` at most; with weights
    it is that of as many rows as they are worth, which is approximate.

    >>> data = reliability(
    ...     [0.92, 0.95, 0.97, 0.55], [True, True, False, True], n_bins=10
    ... )
    >>> data.count.tolist(), data.accuracy.round(3).tolist()
    ([1, 3], [1.0, 0.667])
    """
    levels = read_levels(proba, labels, sample_weight)
    n_bins = check_bins(n_bins)
    gap, weight, hits = levels.by_bin(n_bins, bins)
    starts = levels.bin_starts(n_bins, bins)
    n_rows = weight * levels.rows_per_weight
    accuracy = hits / weight
    n_hits = np.minimum(accuracy * n_rows, n_rows)
    interval = clopper_pearson(n_hits, n_rows, delta=delta)
    stops = np.append(starts[1:], levels.confidence.size) - 1
    low = levels.confidence[starts]
    high = levels.confidence[stops]
    if bins == "width":
        edges = bin_edges(n_bins)
        index = bin_index(low, n_bins)
        low = edges[index]
        high = edges[index + 1]
    return Reliability(
        low=low,
        high=high,
        count=np.rint(weight).astype(np.int64),
        weight=weight,
        correct=hits,
        confidence=(hits - gap) / weight,
        accuracy=accuracy,
        accuracy_low=interval[:, 0],
        accuracy_high=interval[:, 1],
        ece=ece(levels, n_bins=n_bins, bins=bins),
        n_bins=n_bins,
        scheme=bins,
        delta=float(delta),
    )


def draw_reliability(
    proba: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    n_bins: int = 15,
    bins: Bins = "width",
    delta: float = 0.05,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Reliability diagram; arguments as in `reliability`, `style` is that of
    matplotlib's bars.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> ax = draw_reliability([0.92, 0.95, 0.97, 0.55], [True, True, False, True], ax)
    >>> ax.get_xlabel()
    'confidence'
    """
    diagram = reliability(
        proba,
        labels,
        n_bins=n_bins,
        bins=bins,
        delta=delta,
        sample_weight=sample_weight,
    )
    return diagram.draw(ax, **style)


def draw_histogram(
    proba: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    n_bins: int = 20,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """Histogram of confidence, correct labels and errors stacked; arguments as in
    `ece`.

    Lines mark the mean confidence and the accuracy. `style` is that of matplotlib's
    bars.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> ax = draw_histogram([0.92, 0.95, 0.97, 0.55], [True, True, False, True], ax)
    >>> ax.get_xlabel()
    'confidence'
    """
    ax = axes_or_new(ax)
    levels = read_levels(proba, labels, sample_weight)
    edges = bin_edges(check_bins(n_bins))
    index = bin_index(levels.confidence, n_bins)
    correct = np.bincount(index, levels.correct, n_bins)
    errors = np.bincount(index, levels.errors, n_bins)
    low = edges[:-1]
    high = edges[1:]
    _bars(ax, low, high, correct, **({"color": BLUE, "label": "correct"} | style))
    stacked = {"color": ORANGE, "label": "errors", "bottom": correct, "hatch": "////"}
    _bars(ax, low, high, errors, **(stacked | style))
    mean = levels.mean_confidence
    accuracy = levels.accuracy
    ax.axvline(mean, color=ink(ax), label=f"mean confidence {mean:.1%}")
    ax.axvline(accuracy, color=ink(ax), linestyle=":", label=f"accuracy {accuracy:.1%}")
    return _finish(ax, "upper left", "confidence", "examples", xlim=(0, 1))


#: At lower coverages few examples are left, and their risk does not set the axis.
_READABLE_COVERAGE = 0.05
#: Points of a curve that are drawn, at most.
_POINTS = 200


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Answering where confidence >= `threshold` covers `coverage` at `risk`; (points,)
    each.

    About 200 points at evenly spaced coverages, a subset of the curve's, not
    interpolated; `area` is the AURC of the whole curve.
    """

    threshold: FloatArray
    coverage: FloatArray
    risk: FloatArray
    area: float

    @classmethod
    def from_levels(cls, levels: Levels) -> Self:
        """The curve of a table of levels."""
        coverage, risk = risk_coverage_curve(levels)
        evenly_spaced = np.arange(1, _POINTS + 1) / _POINTS
        reached = np.searchsorted(coverage, evenly_spaced)
        points = np.unique(np.minimum(reached, coverage.shape[0] - 1))
        return cls(
            threshold=levels.confidence[::-1][points],
            coverage=coverage[points],
            risk=risk[points],
            area=aurc(levels),
        )


def draw_risk_coverage(
    proba: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    label: str | None = None,
    sample_weight: Any = None,
    **style: Any,
) -> Axes:
    """One curve; call it again with the same Axes and another `label` to compare.

    `proba`, `labels` and `sample_weight` are as in `ece`; `style` is that of
    matplotlib's lines.

    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> ax = draw_risk_coverage([0.92, 0.95, 0.97, 0.55], [True, True, True, False], ax)
    >>> bool(ax.lines)
    True
    """
    data = RiskCoverage.from_levels(read_levels(proba, labels, sample_weight))
    ax = axes_or_new(ax)
    area = f"AURC {data.area:.4f}"
    shown = area if label is None else f"{label} ({area})"
    dashes = ("-", "--", "-.", ":")[len(ax.lines) % 4]
    ax.plot(data.coverage, data.risk, **({"linestyle": dashes, "label": shown} | style))
    curves = [np.asarray(line.get_xydata()) for line in ax.lines]
    top = max(points[points[:, 0] >= _READABLE_COVERAGE, 1].max() for points in curves)
    limits: dict[str, Any] = {"xlim": (0, 1), "ylim": (0, max(1.1 * top, 1e-3))}
    names = ("coverage (most confident first)", "risk (error rate)")
    ax = _finish(ax, "upper left", *names, **limits)
    if len(ax.lines) > 6:  # more names than fit above the curves
        legend_beside(ax)
    return ax


def draw_estimates(
    names: Sequence[str],
    estimates: Sequence[tuple[float, float, float]],
    ax: Axes | None = None,
    *,
    title: str = "",
    marked: int | None = None,
    **style: Any,
) -> Axes:
    """Estimates (n, 3), each a value with the ends of its interval, one under the other.

    The name of the one that is `marked` is bold; ends may be NaN.

    >>> ax = draw_estimates(["temps", "auto"], [(0.25, 0.23, 0.27), (0.24, 0.22, 0.26)])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['temps', 'auto']
    """
    table = to_floats(estimates, "estimates")
    check_names("names", names)
    if table.shape != (len(names), 3):
        raise ValueError(
            "`estimates` must be (n, 3), a value and the ends of its interval for each "
            f"of the {len(names)} names; got shape {table.shape}."
        )
    values, low, high = table.T
    drawn = axes_or_new(ax)
    rows = np.arange(values.size)
    arms = np.nan_to_num(np.maximum([values - low, high - values], 0.0))
    look: dict[str, Any] = {"color": BLUE, "fmt": "o", **_SMALL} | style
    drawn.errorbar(values, rows, xerr=arms, **look)
    drawn.set_yticks(rows, names)
    drawn.invert_yaxis()
    drawn.set_xlabel(title)
    if marked is not None:
        drawn.get_yticklabels()[marked].set_fontweight("bold")
    return drawn


def draw_sets(
    members: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    goal: float | None = None,
    **style: Any,
) -> Axes:
    """Share of the sets of each size as bars, and their coverage with intervals as
    points.

    `members` (n, classes), bool, are those of `predict_set`, `labels` (n,) the true
    classes; `goal` is the coverage that was asked for. `style` is that of matplotlib's
    bars.

    >>> import hokical
    >>> from matplotlib.figure import Figure
    >>> from hokical.demo import demo_logits
    >>> fitted, (logits, labels) = demo_logits()
    >>> sets = hokical.make("temps").fit(*fitted).predict_set(logits, coverage=0.95)
    >>> ax = draw_sets(sets.members, labels, Figure().subplots(), goal=0.95)
    >>> len(ax.patches) > 0
    True
    """
    summary = summarize_sets(members, labels, goal=goal)
    axes = axes_or_new(ax)
    rows = summary.by_size
    n = summary.overall.n
    positions = list(range(len(rows)))
    bars: dict[str, Any] = {
        "color": BLUE,
        "alpha": 0.5,
        "label": "share of sets",
    } | style
    axes.bar(positions, [row.n / n for row in rows], **bars)
    points = (
        [getattr(row, name) for row in rows] for name in ("coverage", "low", "high")
    )
    _points(axes, positions, *points, color=ORANGE, label="coverage")
    if summary.goal is not None:
        axes.axhline(
            summary.goal, color=GREY, linestyle="--", label="requested coverage"
        )
    axes.set_xticks(positions, [row.name for row in rows])
    limits: dict[str, Any] = {"ylim": (0.0, 1.18), "yticks": np.arange(6) / 5}
    above = {"ncols": 3}  # all bars
    return _finish(axes, "upper center", "classes in the set", "share", above, **limits)
