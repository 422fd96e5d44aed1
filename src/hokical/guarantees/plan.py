"""How many labelled examples a guarantee needs, and what it will then accept, by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical.core.bins import check_count
from hokical.core.progress import track
from hokical.core.types import FloatArray
from hokical.guarantees.binomial import check_chance
from hokical.guarantees.risk import choose_threshold, fewest_examples, starting_levels
from hokical.guarantees.score_table import ScoreTable
from hokical.guarantees.scores import confidence_log_odds, score_levels

#: Numbers of examples that are tried, and points that stand for a distribution of confidence.
SIZES = (100, 200, 500, 1000, 2000, 5000, 10_000)
_POINTS = 4000
#: Coverage is good enough from this share of the best on.
_GOOD = 0.8


@dataclass(frozen=True)
class Plan:
    """What to expect of `certify` and `predict_or_abstain`.

    Attributes
    ----------
    risk, delta, accuracy : as requested
    fewest : with fewer examples nothing can be accepted, even without a mistake
    best : coverage of the best threshold, which only unlimited examples would find
    examples : numbers of examples that were tried
    coverage : mean share of new examples accepted, for each of them
    nothing : how often nothing is accepted, for each of them
    """

    risk: float
    delta: float
    accuracy: float
    fewest: int
    best: float
    examples: tuple[int, ...]
    coverage: tuple[float, ...]
    nothing: tuple[float, ...]

    @property
    def needed(self) -> int | None:
        """The first of `examples` with 80 % of the best coverage; None if none has."""
        enough = (n for n, c in zip(self.examples, self.coverage, strict=True) if c >= self._goal)
        return next(enough, None)

    @property
    def _goal(self) -> float:
        return _GOOD * self.best

    def __str__(self) -> str:
        if self.best == 0.0:
            return (
                f"No threshold has an error rate of {self.risk:.4g} here: allow a larger `risk`, "
                "or use a classifier that knows better when it is wrong."
            )
        wanted = f"{self._goal:.0%} of new examples accepted, {_GOOD:.0%} of the best possible"
        if self.needed is None:
            return f"More than {self.examples[-1]:,} labelled examples are needed for {wanted}."
        return f"About {self.needed:,} labelled examples are needed for {wanted}."


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
    """How many labelled examples a guarantee needs, and how much it will accept.

    Draws held-out examples of a calibrated classifier again and again, applies the rule of
    `certify` and `predict_or_abstain` to them, and reports the share of new examples that it
    accepts. The examples are those for `certify` alone, apart from those of the fit.

    Parameters
    ----------
    risk, delta : float
        As in `predict_or_abstain`.
    accuracy : float
        Of the classifier on all examples.
    auroc : float
        How well its confidence ranks right above wrong answers, from 0.5 (not at all) to 1;
        `hokical evaluate` reports it. 0.85 is common for image classifiers.
    confidence : array-like of shape (m,), optional
        Calibrated confidence of your own examples, which need no labels; used instead of
        `accuracy` and `auroc`.
    examples : sequence of int
        Numbers of examples to try, rising.
    n_simulations : int
    random_state : int

    Examples
    --------
    >>> from hokical.guarantees import plan
    >>> found = plan(risk=0.05, accuracy=0.8, examples=(100, 1000), n_simulations=20)
    >>> found.coverage[0] < found.coverage[1] < found.best
    True
    """
    risk, delta = check_chance("risk", risk), check_chance("delta", delta)
    scores = np.sort(_modelled(accuracy, auroc) if confidence is None else _given(confidence))
    wrong = 1.0 / (1.0 + np.exp(scores))
    level = score_levels(scores)
    starts = starting_levels(risk, "held-out")
    rng = np.random.default_rng(random_state)
    coverages = []
    for n in track(examples, "Simulating {} examples", len(examples), None):
        drawn = np.zeros(check_count(n_simulations, name="n_simulations"))
        for i in range(drawn.size):
            rows = rng.integers(scores.size, size=check_count(n, name="examples"))
            table = ScoreTable.from_examples(level[rows], rng.random(n) < wrong[rows])
            chosen = choose_threshold(table, risk, delta, starts).level
            drawn[i] = 0.0 if chosen is None else (level >= chosen).mean()
        coverages.append(drawn)
    errors = np.cumsum(wrong[::-1]) / np.arange(1, wrong.size + 1)
    return Plan(
        risk=risk,
        delta=delta,
        accuracy=float(1.0 - wrong.mean()),
        fewest=fewest_examples(risk, delta, starts.size),
        best=float(np.flatnonzero(errors <= risk).max(initial=-1) + 1) / wrong.size,
        examples=tuple(examples),
        coverage=tuple(float(drawn.mean()) for drawn in coverages),
        nothing=tuple(float((drawn == 0.0).mean()) for drawn in coverages),
    )


def _given(confidence: Any) -> FloatArray:
    values = np.asarray(confidence, np.float64)
    if values.ndim != 1 or not values.size or not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError(
            f"`confidence` must be (m,) numbers in [0, 1]; got shape {values.shape}. Use "
            "`predict_confidence`."
        )
    return np.clip(confidence_log_odds(values), -700.0, 700.0)


def _modelled(accuracy: float, auroc: float) -> FloatArray:
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
