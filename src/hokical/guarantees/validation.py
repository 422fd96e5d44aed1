"""How many examples the external validation of a model of an event needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray
from hokical.guarantees.bounds import check_chance, check_probabilities

#: Widths of 95 % intervals that a validation should reach (Riley and others, 2021).
_WIDTHS = {"oe_ratio": 0.2, "slope": 0.2, "auroc": 0.1}
#: Probabilities are held this far from 0 and 1, so that their log-odds are finite.
_PROBABILITY_MARGIN = 1e-9
#: Nodes of the Gauss-Hermite quadrature over normal log-odds.
_N_NODES = 80
#: Rounding errors below this share of an example do not ask for one more.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ValidationPlan:
    """How many examples a validation needs.

    `fewest` meets all criteria and `needed` has the number of each: an interval of O:E,
    slope or AUROC of the width in `widths`. `events` is the expected share of events,
    `auroc` the AUROC that was assumed.
    """

    fewest: int
    needed: dict[str, int]
    widths: dict[str, float]
    events: float
    auroc: float

    def __str__(self) -> str:
        n_events = math.ceil(self.fewest * self.events)
        lines = [
            f"{self.fewest:,} examples, {n_events:,} with the event "
            f"({self.events:.1%} events, AUROC {self.auroc:.3f})."
        ]
        lines += [
            f"{name}: {n:,} examples for an interval {self.widths[name]:g} wide"
            for name, n in self.needed.items()
        ]
        return "\n".join(lines)


def plan_validation(
    events: float,
    *,
    auroc: float | None = None,
    probability: Any = None,
    widths: Mapping[str, float] | None = None,
    delta: float = 0.05,
) -> ValidationPlan:
    """How many examples the external validation of a model of an event needs.

    With this number of examples, intervals at 1 - `delta` of a calibrated model have these
    `widths`, by default 0.2 for O:E, 0.2 for the slope and 0.1 for the AUROC (Riley and
    others, 2021, doi:10.1002/sim.9025: binomial events for O:E, the information of a
    logistic model for the slope, Newcombe's variance for the AUROC).

    `events` is the expected share of events. The distribution of the probabilities is
    that of `probability` (m,), probabilities of the event for examples like the new
    ones, or else follows from `auroc`, with log-odds that are normal among events and
    among the others.

    >>> plan_validation(0.1, auroc=0.8).needed
    {'oe_ratio': 3469, 'slope': 4196, 'auroc': 836}
    """
    from scipy.special import ndtri

    share = check_chance("events", events)
    z = -float(ndtri(0.5 * check_chance("delta", delta)))
    checked_widths = _check_widths(widths)
    if (auroc is None) == (probability is None):
        raise TypeError("give one of `auroc` and `probability`, such as `auroc=0.8`.")
    if auroc is None:
        log_odds, weights = _observed_log_odds(probability)
        assumed_auroc = _expected_auroc(log_odds, weights)
    else:
        log_odds, weights = _normal_log_odds(auroc, share)
        assumed_auroc = auroc
    needed = {}
    for name, width in checked_widths.items():
        if name == "oe_ratio":
            n = _examples_for_ratio(width, share, z)
        elif name == "slope":
            n = _examples_for_slope(width, log_odds, weights, z)
        else:
            n = _examples_for_auroc(width, assumed_auroc, share, z)
        needed[name] = math.ceil(n - _ROUNDING)
    fewest = max(needed.values())
    return ValidationPlan(fewest, needed, checked_widths, share, assumed_auroc)


def _check_widths(widths: Mapping[str, float] | None) -> dict[str, float]:
    """The widths by name, in the order of the results."""
    if widths is None:
        return dict(_WIDTHS)
    is_mapping = isinstance(widths, Mapping) and len(widths) > 0
    if (
        not is_mapping
        or not {*widths} <= {*_WIDTHS}
        or not all(isinstance(w, (int, float)) and w > 0.0 for w in widths.values())
    ):
        raise ValueError(
            f"`widths` must be positive, of some of {[*_WIDTHS]}; got {widths!r}."
        )
    return {name: widths[name] for name in _WIDTHS if name in widths}


def _observed_log_odds(probability: Any) -> tuple[FloatArray, FloatArray]:
    """Log-odds of probabilities (m,), each with the same weight."""
    from scipy.special import logit

    checked = check_probabilities(
        "probability", probability, "one column of probabilities"
    )
    clipped = np.clip(checked, _PROBABILITY_MARGIN, 1.0 - _PROBABILITY_MARGIN)
    return logit(clipped), np.full(checked.size, 1.0 / checked.size)


def _normal_log_odds(auroc: float, events: float) -> tuple[FloatArray, FloatArray]:
    """Log-odds and weights of a quadrature, of a calibrated model with this AUROC.

    Normal log-odds of events and others, with the same variance s^2 and means s^2
    apart, are calibrated, and have the AUROC Phi(s / sqrt 2).
    """
    from scipy.special import ndtri

    if not check_chance("auroc", auroc) > 0.5:
        raise ValueError(f"`auroc` must be above 0.5; got {auroc!r}.")
    spread = math.sqrt(2.0) * float(ndtri(auroc))
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(_N_NODES)
    node_weights = node_weights / node_weights.sum()
    middle = math.log(events / (1.0 - events))
    of_others = middle - 0.5 * spread**2 + spread * nodes
    of_events = middle + 0.5 * spread**2 + spread * nodes
    weights = np.append((1.0 - events) * node_weights, events * node_weights)
    return np.append(of_others, of_events), weights


def _expected_auroc(log_odds: FloatArray, weights: FloatArray) -> float:
    """AUROC of a calibrated model with these log-odds; ties count half."""
    from scipy.special import expit

    probability = expit(log_odds)
    order = np.argsort(probability)
    event_weights = (weights * probability)[order]
    other_weights = (weights * (1.0 - probability))[order]
    below = np.cumsum(other_weights) - 0.5 * other_weights
    return float(event_weights @ below / (event_weights.sum() * other_weights.sum()))


def _examples_for_ratio(width: float, events: float, z: float) -> float:
    """O:E with a binomial number of events; the interval is one of its logarithm."""
    standard_error = math.asinh(0.5 * width) / z
    return (1.0 - events) / (events * standard_error**2)


def _examples_for_slope(
    width: float, log_odds: FloatArray, weights: FloatArray, z: float
) -> float:
    """Slope, from the information of a logistic model with an intercept."""
    from scipy.special import expit

    standard_error = 0.5 * width / z
    variance = expit(log_odds) * expit(-log_odds)
    moments = [float(weights @ (log_odds**power * variance)) for power in range(3)]
    determinant = moments[0] * moments[2] - moments[1] ** 2
    return moments[0] / (standard_error**2 * determinant)


def _examples_for_auroc(width: float, auroc: float, events: float, z: float) -> float:
    """AUROC, by Newcombe's variance, whose equation in n is quadratic."""
    standard_error = 0.5 * width / z
    pairs = (1.0 - auroc) / (2.0 - auroc) + auroc / (1.0 + auroc)
    scale = auroc * (1.0 - auroc) / (events * (1.0 - events) * standard_error**2)
    half_linear = 0.25 * scale * pairs
    return half_linear + math.sqrt(half_linear**2 + max(scale * (1.0 - pairs), 0.0))
