"""The metrics there are: what each is called, which way is better, and how it is computed.

Tables, reports and rankings read this table, and show metrics in its order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hokical._core.bins import check_count
from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._calibration import debiased_error, gap_norm
from hokical.metrics._intervals import Ends, confidence_ends, gap_ends, roc_ends, share_ends
from hokical.metrics._levels import Bins, Levels
from hokical.metrics._ranking import area_under_risk, area_under_roc, risk_at
from hokical.metrics._smooth import smooth_error
from hokical.metrics._vectors import Pair, log_losses, squared_errors


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

    `detail` distinguishes it from others of the same title; `upper` is its largest value, the least
    is 0. `ranking` metrics rank methods in reports; `vectors` need the probabilities of all
    classes. The mean of `scores`, those of right and of wrong rows by confidence, or `function` of
    the table of levels computes it, `interval` its interval at 1 - delta; None for none, `lacking`
    why a data set may have none.

    >>> METRICS["auroc"].better, METRICS["smooth_ece"].interval, METRICS["ece_mass"].full_title
    ('higher', None, 'ECE, equal mass')
    """

    name: str
    title: str
    detail: str = ""
    function: Callable[[Levels, SummaryOptions], float] | None = None
    interval: Callable[[Levels, SummaryOptions], Ends] | None = None
    scores: Callable[[FloatArray], Pair] | None = None
    better: Literal["lower", "higher"] | None = "lower"
    upper: float = 1.0
    ranking: bool = False
    vectors: bool = False
    percent: bool = False
    lacking: str = "fewer than three rows"

    @property
    def full_title(self) -> str:
        """The title, with the detail if an earlier metric has the same title."""
        first = next(other for other in METRICS.values() if other.title == self.title)
        return self.title if first is self else f"{self.title}, {self.detail}"

    def format(self, value: float | None) -> str:
        """A value for readers; only a log loss can be infinite, with a true class at 0.

        NaN, which the AUROC is if all rows are right, is a dash.
        """
        if value is None or math.isinf(value):
            return "infinite"
        if math.isnan(value):
            return "\N{EN DASH}"
        return f"{value:.1%}" if self.percent else f"{value:.4f}"


def _error(name: str, bins: Bins) -> Metric:
    """The calibration error over a kind of bins."""
    return Metric(
        name, "ECE", f"equal {bins}",
        lambda t, o: gap_norm(t.by_bin(o.n_bins, bins)),
        lambda t, o: gap_ends(t.by_bin(o.n_bins, bins), t.rows_per_weight, o.delta),
        ranking=True,
    )  # fmt: skip


_TABLE = (
    Metric(
        "accuracy", "accuracy", "", lambda t, _: float(t.correct.sum()) / t.total,
        lambda t, o: share_ends(
            float(t.correct.sum()) / t.total, t.total * t.rows_per_weight, o.delta
        ),
        better="higher", percent=True,
    ),
    Metric(
        "mean_confidence", "confidence", "mean",
        lambda t, _: float(t.weight @ t.confidence) / t.total,
        lambda t, o: confidence_ends(t, o.delta),
        better=None, percent=True,
    ),
    _error("ece", "width"),
    _error("ece_mass", "mass"),
    Metric(
        "debiased_ece", "debiased ECE (L2)", "", lambda t, o: debiased_error(t.by_bin(o.n_bins))
    ),
    Metric("smooth_ece", "smooth ECE", "no bins", lambda t, _: smooth_error(t), ranking=True),
    Metric("brier", "Brier", scores=squared_errors, upper=2.0, ranking=True),
    Metric("log_loss", "log loss", scores=log_losses, upper=math.inf, ranking=True),
    Metric(
        "auroc", "AUROC", "", lambda t, _: area_under_roc(t), lambda t, o: roc_ends(t, o.delta),
        better="higher",
        lacking="it takes five correct and five wrong labels, not perfectly separated",
    ),
    Metric("aurc", "AURC", "", lambda t, _: area_under_risk(t)),
    Metric("selective_risk", "selective risk", "", lambda t, _: risk_at(t, 0.8)),
    Metric("classwise_ece", "classwise ECE", "mean of classes", ranking=True, vectors=True),
)  # fmt: skip

#: Every metric by its name.
METRICS = {metric.name: metric for metric in _TABLE}
