"""How many labelled examples a guarantee needs, and what it then gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import check_count
from hokical._core.runtime import warn_user
from hokical.guarantees.bounds import (
    beta_quantile,
    binomial_tail,
    check_chance,
    check_probabilities,
)
from hokical.guarantees.control import (
    check_guarantee,
    examples_to_cover,
    fewest_examples,
)
from hokical.guarantees.scores import starting_levels

#: Numbers of examples that a plan shows unless others are given.
SIZES = (100, 200, 500, 1000, 2000, 5000, 10_000)
#: Chance of each side of the range in which the true coverage is expected to lie.
_TAIL = 0.05


@dataclass(frozen=True)
class Plan:
    """What to expect of a guarantee, for each of the numbers of `examples` to certify
    with.

    With fewer than `fewest` nothing can be guaranteed: sets hold every class, and no
    label is accepted. Of sets, detection and recall, the true coverage lies between
    `low` and `high` with probability 90 % over the choice of the examples (Beta's law).
    Of abstention, `accepted` is the share of new examples that can be expected to be
    accepted, and `best` that of unlimited examples.
    """

    fewest: int
    examples: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    best: float | None = None

    def __str__(self) -> str:
        lines = [
            f"At least {self.fewest:,} labelled examples are needed, even with zero "
            "errors."
        ]
        lines += [
            f"{n:,}: true coverage from {low:.1%} to {high:.1%}"
            for n, low, high in zip(self.examples, self.low, self.high, strict=False)
        ]
        lines += [
            f"{n:,}: about {share:.0%} accepted"
            for n, share in zip(self.examples, self.accepted, strict=False)
        ]
        return "\n".join(lines)


def plan(
    *,
    coverage: float | None = None,
    risk: float | None = None,
    events: float | None = None,
    delta: float | None = None,
    confidence: Any = None,
    auroc: float | None = None,
    widths: Mapping[str, float] | None = None,
    examples: Sequence[int] = SIZES,
) -> Plan:
    """How many labelled examples a guarantee needs, and what it then gives.

    `coverage` is that of `predict_set`, the recall of `detect` and of several labels,
    or 1 minus the risk of `control_risk`; `risk` is that of `predict_or_abstain`, whose
    `delta` is 0.1 unless given. For `risk`, the calibrated `confidence` (m,) of your
    own examples, without labels, tells how much will be accepted. Examples of the fit
    are not counted.

    `events`, `auroc` and `widths` are those of `plan_validation`, which replaces them;
    here they go with 0.7.

    >>> sets = plan(coverage=0.9, examples=(100, 1000))
    >>> sets.fewest, [round(low, 3) for low in sets.low]
    (9, [0.848, 0.884])
    >>> plan(risk=0.05).fewest
    72
    """
    if events is not None and coverage is None and risk is None:
        return _plan_validation(events, auroc, confidence, widths, delta)
    if (coverage is None) == (risk is None) or events is not None:
        raise TypeError("give one of `coverage` and `risk`, such as `coverage=0.9`.")
    if not (auroc is None and widths is None):
        raise TypeError("`auroc` and `widths` go with `plan_validation`; use that.")
    sizes = np.array([check_count("examples", n) for n in np.atleast_1d(examples)])
    if coverage is None:
        return _plan_abstention(risk, delta, confidence, sizes)
    if confidence is not None:
        raise TypeError("`confidence` goes with `risk`; leave it out.")
    return _plan_coverage(coverage, delta, sizes)


def _plan_coverage(coverage: float, delta: float | None, sizes: IntArray) -> Plan:
    coverage, delta = check_guarantee(coverage, delta, "coverage")
    needed = examples_to_cover(sizes, coverage, delta)
    covered = np.minimum(needed, sizes)
    # The true coverage is distributed as Beta(covered, missed).
    missed = sizes + 1 - covered
    low = beta_quantile(covered, missed, _TAIL)
    high = 1.0 - beta_quantile(missed, covered, _TAIL)
    holds_every_class = needed > sizes
    return Plan(
        fewest_examples(1.0 - coverage, delta),
        tuple(sizes.tolist()),
        low=tuple(np.where(holds_every_class, 1.0, low).tolist()),
        high=tuple(np.where(holds_every_class, 1.0, high).tolist()),
    )


def _plan_abstention(
    risk: float | None, delta: float | None, confidence: Any, sizes: IntArray
) -> Plan:
    allowed = check_chance("risk", risk)
    delta = check_chance("delta", 0.1 if delta is None else delta)
    delta_per_level = delta / starting_levels(allowed, "held-out").size
    fewest = fewest_examples(allowed, delta_per_level)
    examples = tuple(sizes.tolist())
    if confidence is None:
        return Plan(fewest, examples)
    checked = check_probabilities("confidence", confidence, "`predict_confidence`")
    accepted, best = _accepted_shares(checked, sizes, allowed, delta_per_level)
    return Plan(fewest, examples, accepted=tuple(accepted.tolist()), best=best)


def _accepted_shares(
    confidence: FloatArray, sizes: IntArray, risk: float, delta: float
) -> tuple[FloatArray, float]:
    """Share of the rows that is accepted: with each size (k,), and without limit.

    Rows are accepted in order of falling confidence as long as the expected number of
    errors among them proves the risk.
    """
    errors = np.sort(1.0 - confidence)
    n_accepted = np.arange(1, errors.size + 1)
    shares = n_accepted / errors.size
    error_rates = np.cumsum(errors) / n_accepted
    n_tested = np.floor(sizes[:, None] * shares)
    tail = binomial_tail(np.ceil(n_tested * error_rates), n_tested, risk)
    accepted = np.where(tail <= delta, shares, 0.0).max(axis=1)
    best = np.where(error_rates <= risk, shares, 0.0).max()
    return accepted, float(best)


def _plan_validation(
    events: float,
    auroc: float | None,
    confidence: Any,
    widths: Mapping[str, float] | None,
    delta: float | None,
) -> Plan:
    from hokical.guarantees.validation import plan_validation

    warn_user(
        "`plan(events=...)` is `plan_validation(...)` now; it goes with 0.7.",
        FutureWarning,
    )
    validation = plan_validation(
        events,
        auroc=auroc,
        probability=confidence,
        widths=widths,
        delta=0.05 if delta is None else delta,
    )
    return cast(Plan, validation)  # with the attributes that its plans had
