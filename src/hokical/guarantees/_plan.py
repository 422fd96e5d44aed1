"""How many labelled examples a promise needs, and what it then gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.bins import check_count
from hokical._core.types import FloatArray
from hokical.guarantees._binomial import beta_quantile, binomial_tail
from hokical.guarantees._control import check_promise, examples_to_cover, fewest_examples
from hokical.guarantees._selective import starting_levels

SIZES = (100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True)
class Plan:
    """What to expect of a promise, for each of the numbers of `examples` to certify with.

    With fewer than `fewest` nothing can be promised: sets hold every class, and no label is
    accepted. Of sets, detection and recall, the true coverage lies between `low` and `high` with
    probability 90 % over the choice of the examples (Beta's law). Of abstention, `accepted` is the
    share of new examples that can be expected to be accepted, and `best` that of unlimited
    examples.
    """

    fewest: int
    examples: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    best: float | None = None

    def __str__(self) -> str:
        words = f"At least {self.fewest:,} labelled examples are needed, even without a loss."
        for n, low, high in zip(self.examples, self.low, self.high, strict=bool(self.low)):
            words += f"\n{n:,}: true coverage from {low:.1%} to {high:.1%}"
        for n, share in zip(self.examples, self.accepted, strict=bool(self.accepted)):
            words += f"\n{n:,}: about {share:.0%} accepted"
        return words


def plan(
    *,
    coverage: float | None = None,
    risk: float | None = None,
    delta: float | None = None,
    confidence: Any = None,
    examples: Sequence[int] = SIZES,
) -> Plan:
    """How many labelled examples a promise needs, and what it then gives.

    `coverage` is that of `predict_set`, the recall of `detect` and of several labels, or 1 minus
    the risk of `control_risk`; `risk` is that of `predict_or_abstain`, whose `delta` is 0.1 unless
    given. For `risk`, the calibrated `confidence` (m,) of your own examples, without labels, tells
    how much will be accepted. Examples of the fit are not counted.

    >>> found = plan(coverage=0.9, examples=(100, 1000))
    >>> found.fewest, [round(end, 3) for end in found.low]
    (9, [0.848, 0.884])
    >>> plan(risk=0.05).fewest
    72
    """
    if (coverage is None) == (risk is None):
        raise TypeError("give either `coverage` or `risk`, such as `coverage=0.9`.")
    counts = np.array([check_count(n, name="examples") for n in examples])
    tried = tuple(counts.tolist())
    if coverage is not None:
        coverage, delta = check_promise(coverage, delta, "coverage")
        needed = examples_to_cover(counts, coverage, delta)
        hits = np.minimum(needed, counts)
        rest = counts + 1 - hits  # true coverage is distributed as Beta(hits, rest)
        ends = beta_quantile(hits, rest, 0.05), 1.0 - beta_quantile(rest, hits, 0.05)
        low, high = np.where(needed > counts, 1.0, ends).tolist()
        return Plan(fewest_examples(1.0 - coverage, delta), tried, tuple(low), tuple(high))
    allowed, sure = check_promise(risk, 0.1 if delta is None else delta)
    share = (sure or 0.1) / starting_levels(allowed, "held-out").size
    fewest = fewest_examples(allowed, share)
    if confidence is None:
        return Plan(fewest, tried)
    errors = np.sort(1.0 - _read_confidence(confidence))
    place = np.arange(1, errors.size + 1)
    rates = np.cumsum(errors) / place
    reached = np.floor(counts[:, None] * (place / errors.size))
    proven = binomial_tail(np.ceil(reached * rates), reached, allowed) <= share
    parts = np.where(np.vstack([proven, rates <= allowed]), place / errors.size, 0.0).max(axis=1)
    return Plan(fewest, tried, accepted=tuple(parts[:-1].tolist()), best=float(parts[-1]))


def _read_confidence(confidence: Any) -> FloatArray:
    values = np.asarray(confidence, np.float64)
    if values.ndim != 1 or not values.size or not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError(
            f"`confidence` must be (m,) numbers in [0, 1]; got shape {values.shape}. Use "
            "`predict_confidence`."
        )
    return values
