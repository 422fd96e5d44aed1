"""The metrics there are: what each is called, which way is better, and how it is computed.

Tables, reports and rankings read this table, and show metrics in its order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hokical._core.bins import check_count
from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance
from hokical.metrics._calibration import debiased_error, gap_norm, log_losses, squared_errors
from hokical.metrics._examples import check_clip, check_inside
from hokical.metrics._levels import Levels
from hokical.metrics._ranking import area_under_risk, area_under_roc, risk_at
from hokical.metrics._smooth import smooth_error


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
class Metric:
    """What a metric is called, which way is better, and how it is computed.

    `detail` distinguishes it from others of the same title; `upper` is its largest value, the least
    is 0. `interval` is how its interval is found: by the bootstrap, of a norm of noisy gaps with
    its upward bias removed ("biased"), by inverting a test, or not at all (None). `ranking` metrics
    rank methods in reports; `vectors` need the probabilities of all classes, `ordered` ones in the
    order of the columns. `function` computes it, of one table of levels or of many resamples; None
    if it is a mean of scores of rows.

    >>> METRICS["auroc"].better, METRICS["ece"].interval, METRICS["ece_mass"].full_title
    ('higher', 'biased', 'ECE, equal mass')
    """

    name: str
    title: str
    detail: str = ""
    function: Callable[[Levels, SummaryOptions], FloatArray] | None = None
    better: Literal["lower", "higher"] | None = "lower"
    upper: float = 1.0
    interval: Literal["bootstrap", "biased", "inversion"] | None = "bootstrap"
    ranking: bool = False
    vectors: bool = False
    percent: bool = False
    ordered: bool = False

    @property
    def full_title(self) -> str:
        """The title, with the detail if an earlier metric has the same title."""
        first = next(other for other in METRICS.values() if other.title == self.title)
        return self.title if first is self else f"{self.title}, {self.detail}"

    def format(self, value: float | None) -> str:
        """A value for readers; only a log loss can be infinite, with a true class at 0."""
        if value is None or not math.isfinite(value):
            return "infinite"
        return f"{value:.1%}" if self.percent else f"{value:.4f}"


_TABLE = (
    Metric(
        "accuracy", "accuracy", "", lambda t, _: t.mean(t.correct), better="higher", percent=True
    ),
    Metric(
        "mean_confidence", "confidence", "mean", lambda t, _: t.mean(t.weight * t.confidence),
        better=None, percent=True,
    ),
    Metric(
        "ece", "ECE", "equal width", lambda t, o: gap_norm(t.by_bin(o.n_bins)),
        interval="biased", ranking=True,
    ),
    Metric(
        "ece_mass", "ECE", "equal mass", lambda t, o: gap_norm(t.by_bin(o.n_bins, "mass")),
        interval="biased", ranking=True,
    ),
    Metric(
        "debiased_ece", "debiased ECE (L2)", "", lambda t, o: debiased_error(t.by_bin(o.n_bins)),
        interval=None,
    ),
    Metric(
        "smooth_ece", "smooth ECE", "no bins", lambda t, _: np.asarray(smooth_error(t)),
        interval=None, ranking=True,
    ),
    Metric("brier", "Brier", "", lambda t, _: t.mean(squared_errors(t)), upper=2.0, ranking=True),
    Metric(
        "log_loss", "log loss", "", lambda t, o: t.mean(log_losses(t, o.clip)),
        upper=math.inf, ranking=True,
    ),
    Metric("auroc", "AUROC", "", lambda t, _: area_under_roc(t), better="higher"),
    Metric("aurc", "AURC", "", lambda t, _: area_under_risk(t)),
    Metric("selective_risk", "selective risk", "", lambda t, o: risk_at(t, o.coverage)),
    Metric(
        "classwise_ece", "classwise ECE", "mean of classes",
        interval="biased", ranking=True, vectors=True,
    ),
    Metric(
        "ranked_probability_score", "ranked score", upper=math.inf, vectors=True, ordered=True
    ),
)  # fmt: skip

#: Every metric by its name.
METRICS = {metric.name: metric for metric in _TABLE}
