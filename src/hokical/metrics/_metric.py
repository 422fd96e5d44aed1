"""The metrics there are: what each is called, which way is better, and how it is computed.

Tables, reports and rankings read this table, and show metrics in its order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hokical._core.types import FloatArray
from hokical.metrics._binned_sums import GapSums, debiased_error, gap_norm
from hokical.metrics._ranking import RankedExamples, area_under_risk, area_under_roc, risk_at


@dataclass(frozen=True, eq=False)
class Measures:
    """What metrics are computed from; leading axes (...) are resamples of the same examples.

    `bins` are sums by equal-width bin, (..., J) each; `scores` (...) are the metrics that a sample
    and its resamples do not compute alike.
    """

    bins: GapSums
    ranked: RankedExamples
    coverage: float
    scores: dict[str, Any]


@dataclass(frozen=True)
class Metric:
    """What a metric is called, which way is better, and how it is computed.

    `detail` tells it from others of the same title; `upper` is its largest value, the least is 0.
    It is `biased` if noise makes it larger, as it does norms of noisy gaps; `ranking` if reports
    rank methods by it; of `all_classes` if it needs the probabilities of all, `ordered` if these
    must be in order, which only a `summary` can be told. `function` is None where the value is
    among the `scores`.

    >>> METRICS["auroc"].better, METRICS["ece"].biased, METRICS["ece_mass"].full_title
    ('higher', True, 'ECE, equal mass')
    """

    name: str
    title: str
    detail: str = ""
    function: Callable[[Measures], FloatArray] | None = None
    better: Literal["lower", "higher"] | None = "lower"
    upper: float = 1.0
    biased: bool = False
    ranking: bool = False
    all_classes: bool = False
    percent: bool = False
    ordered: bool = False

    @property
    def full_title(self) -> str:
        """The title, with the detail if an earlier metric has the same title."""
        first = next(other for other in METRICS.values() if other.title == self.title)
        return self.title if first is self else f"{self.title}, {self.detail}"

    def format(self, value: float | None) -> str:
        """A value as people read it; only a log loss can be infinite: a true class at 0."""
        if value is None or not math.isfinite(value):
            return "infinite"
        return f"{value:.1%}" if self.percent else f"{value:.4f}"


_TABLE = (
    Metric("accuracy", "right", "accuracy", better="higher", percent=True),
    Metric("mean_confidence", "says", "mean confidence", better=None, percent=True),
    Metric(
        "ece", "ECE", "equal width", lambda m: gap_norm(*m.bins[:2], 1.0), biased=True, ranking=True
    ),
    Metric("ece_mass", "ECE", "equal mass", biased=True, ranking=True),
    Metric("debiased_ece", "debiased ECE (L2)", "", lambda m: debiased_error(*m.bins)),
    Metric("smooth_ece", "smooth ECE", "no bins", biased=True, ranking=True),
    Metric("brier", "Brier", "of the label", ranking=True),
    Metric("log_loss", "log loss", "of the label", upper=math.inf, ranking=True),
    Metric("auroc", "AUROC", "", lambda m: area_under_roc(m.ranked), better="higher"),
    Metric("aurc", "AURC", "", lambda m: area_under_risk(m.ranked)),
    Metric("selective_risk", "selective risk", "", lambda m: risk_at(m.ranked, m.coverage)),
    Metric(
        "classwise_ece", "classwise ECE", "mean of classes",
        biased=True, ranking=True, all_classes=True,
    ),
    Metric("brier_full", "Brier", "all classes", upper=2.0, ranking=True, all_classes=True),
    Metric(
        "log_loss_full", "log loss", "all classes", upper=math.inf, ranking=True, all_classes=True
    ),
    Metric(
        "ranked_probability_score", "ranked score", upper=math.inf, all_classes=True, ordered=True
    ),
)  # fmt: skip

#: Every metric by its name.
METRICS = {metric.name: metric for metric in _TABLE}


def evaluate(measures: Measures) -> dict[str, Any]:
    """Every metric that there are measures for, (...) each."""
    found = {}
    for name, metric in METRICS.items():
        if metric.function is not None:
            found[name] = metric.function(measures)
        elif name in measures.scores:
            found[name] = measures.scores[name]
    return found
