"""How many labelled examples a guarantee needs, and what it will then accept, by simulation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.bins import check_count
from hokical._core.progress import track
from hokical._core.types import FloatArray
from hokical.guarantees._binomial import check_chance, clopper_pearson
from hokical.guarantees._score_table import ScoreTable
from hokical.guarantees._scores import confidence_log_odds, score_levels
from hokical.guarantees._selective import choose_threshold, fewest_examples, starting_levels
from hokical.guarantees._thresholds import examples_to_cover, fewest_for_coverage

SIZES = (100, 200, 500, 1000, 2000, 5000, 10_000)
#: Points that stand for a distribution; the share of the best coverage that is good enough.
_POINTS, _GOOD = 4000, 0.8


@dataclass(frozen=True)
class Plan:
    """What to expect of `certify` and `predict_or_abstain`.

    With fewer examples than `fewest` nothing can be accepted, even without a mistake. `best` is the
    coverage of the best threshold, which only unlimited examples would find. For each of the
    numbers of `examples` that were tried, `coverage` is the mean share of new examples that is
    accepted, and `nothing` how often none is.
    """

    risk: float
    fewest: int
    best: float
    examples: tuple[int, ...]
    coverage: tuple[float, ...]
    nothing: tuple[float, ...]

    @property
    def needed(self) -> int | None:
        """The first of `examples` with 80 % of the best coverage; None if none has."""
        pairs = zip(self.examples, self.coverage, strict=True)
        return next((n for n, share in pairs if share >= _GOOD * self.best), None)

    def __str__(self) -> str:
        if self.best == 0.0:
            return (
                f"No threshold has an error rate of {self.risk:.4g} here: allow a larger `risk`, "
                "or use a classifier that knows better when it is wrong."
            )
        about = "At most" if self.needed == min(self.examples) else "About"
        number = f"{about} {self.needed:,}" if self.needed else f"More than {self.examples[-1]:,}"
        return (
            f"{number} labelled examples are needed for {_GOOD * self.best:.0%} of new examples "
            f"accepted, {_GOOD:.0%} of the best possible."
        )


def plan(
    risk: float = 0.05,
    accuracy: float = 0.8,
    *,
    delta: float = 0.1,
    auroc: float = 0.85,
    confidence: Any = None,
    examples: Sequence[int] = SIZES,
    n_simulations: int = 100,
    random_state: int = 0,
) -> Plan:
    """How many labelled examples `certify` needs, and how much will then be accepted.

    Draws held-out examples of a calibrated classifier, applies the rule of `predict_or_abstain`
    with `risk` and `delta`, and reports the share of new examples that it accepts, for each number
    of `examples`. Examples of the fit are not counted. `accuracy` and `auroc` say how often the
    classifier is right, and how well its confidence ranks right above wrong answers, from 0.5 (not
    at all) to 1; `hokical evaluate` reports both. Instead of these two, `confidence` (m,) is the
    calibrated confidence of your own examples, without labels.

    >>> from hokical.guarantees import plan
    >>> found = plan(risk=0.05, accuracy=0.8, examples=(100, 1000), n_simulations=20)
    >>> found.coverage[0] < found.coverage[1] < found.best
    True
    """
    risk, delta = check_chance("risk", risk), check_chance("delta", delta)
    scores = np.sort(
        _model_log_odds(accuracy, auroc) if confidence is None else _read_log_odds(confidence)
    )
    wrong, level = 1.0 / (1.0 + np.exp(scores)), score_levels(scores)
    starts = starting_levels(risk, "held-out")
    rng = np.random.default_rng(random_state)
    found = np.zeros((len(examples), check_count(n_simulations, name="n_simulations")))
    for k, n in enumerate(track(examples, "Simulating {} examples", len(examples), None)):
        for i in range(n_simulations):
            rows = rng.integers(scores.size, size=check_count(n, name="examples"))
            table = ScoreTable.from_examples(level[rows], rng.random(n) < wrong[rows])
            chosen = choose_threshold(table, risk, delta, starts).level
            found[k, i] = 0.0 if chosen is None else (level >= chosen).mean()
    errors = np.cumsum(wrong[::-1]) / np.arange(1, wrong.size + 1)
    return Plan(
        risk=risk,
        fewest=fewest_examples(risk, delta, starts.size),
        best=float(np.flatnonzero(errors <= risk).max(initial=-1) + 1) / wrong.size,
        examples=tuple(examples),
        coverage=tuple(found.mean(axis=1).tolist()),
        nothing=tuple((found == 0.0).mean(axis=1).tolist()),
    )


@dataclass(frozen=True)
class CoveragePlan:
    """What to expect of `predict_set`, for each of the numbers of `examples` to certify with.

    With fewer than `fewest` every set holds every class. The true coverage lies between `low` and
    `high` with probability 90 % over the choice of the examples (Beta's law).
    """

    coverage: float
    delta: float | None
    fewest: int
    examples: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def plan_coverage(
    coverage: float = 0.9, *, delta: float | None = None, examples: Sequence[int] = SIZES
) -> CoveragePlan:
    """How many labelled examples prediction sets need, and how exact their coverage then is.

    >>> found = plan_coverage(0.9, examples=(100, 1000))
    >>> found.fewest, [round(end, 3) for end in found.low]
    (9, [0.848, 0.884])
    """
    coverage = check_chance("coverage", coverage)
    if delta is not None:
        check_chance("delta", delta)
    counts = np.array([check_count(n, name="examples") for n in examples])
    needed = np.array([examples_to_cover(int(n), coverage, delta) for n in counts])
    all_of = needed > counts
    # Ends of Beta(k, n + 1 - k), as of Clopper and Pearson's intervals.
    low = clopper_pearson(np.minimum(needed, counts), counts, delta=0.1)[:, 0]
    high = 1.0 - clopper_pearson(np.clip(counts + 1 - needed, 0, counts), counts, delta=0.1)[:, 0]
    ends = (np.where(all_of, 1.0, end) for end in (low, high))
    fewest = fewest_for_coverage(coverage, delta)
    return CoveragePlan(
        coverage, delta, fewest, tuple(counts.tolist()), *(tuple(end.tolist()) for end in ends)
    )


def _read_log_odds(confidence: Any) -> FloatArray:
    values = np.asarray(confidence, np.float64)
    if values.ndim != 1 or not values.size or not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError(
            f"`confidence` must be (m,) numbers in [0, 1]; got shape {values.shape}. Use "
            "`predict_confidence`."
        )
    return np.clip(confidence_log_odds(values), -700.0, 700.0)


def _model_log_odds(accuracy: float, auroc: float) -> FloatArray:
    """Log-odds (points,) from a normal distribution with this accuracy and AUROC."""
    from scipy.optimize import brentq
    from scipy.special import expit, ndtri

    accuracy = check_chance("accuracy", accuracy)
    if not 0.5 < auroc < 1.0:
        raise ValueError(f"`auroc` must lie between 0.5 and 1, both excluded; got {auroc!r}.")
    normal = ndtri((np.arange(_POINTS) + 0.5) / _POINTS)

    def scores(spread: float) -> FloatArray:
        mean = brentq(lambda m: expit(m + spread * normal).mean() - accuracy, -1e4, 1e4)
        return np.asarray(mean + spread * normal)

    def excess(spread: float) -> float:
        right = expit(scores(spread))
        below = np.cumsum(1.0 - right) - 0.5 * (1.0 - right)
        return float((right * below).sum() / (right.sum() * (1.0 - right).sum()) - auroc)

    return scores(brentq(excess, 1e-6, 1e3, xtol=1e-6))
