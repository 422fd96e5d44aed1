"""How many labelled examples a guarantee or a validation needs, and what it then
gives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import check_count, check_positive, effective_size
from hokical._core.reading import refuse
from hokical.guarantees.bounds import beta_quantile, binomial_tail, check_chance
from hokical.guarantees.control import (
    check_guarantee,
    examples_to_cover,
    fewest_examples,
)
from hokical.guarantees.scores import starting_levels

SIZES = (100, 200, 500, 1000, 2000, 5000, 10_000)


#: Widths of 95 % intervals that a validation should reach (Riley and others, 2021).
_WIDTHS = {"oe_ratio": 0.2, "slope": 0.2, "auroc": 0.1}


@dataclass(frozen=True)
class Plan:
    """What to expect of a guarantee, for each of the numbers of `examples` to certify
    with.

    With fewer than `fewest` nothing can be guaranteed: sets hold every class, and no
    label is accepted. Of sets, detection and recall, the true coverage lies between
    `low` and `high` with probability 90 % over the choice of the examples (Beta's law).
    Of abstention, `accepted` is the share of new examples that can be expected to be
    accepted, and `best` that of unlimited examples.

    Of the validation of a model of an event, `fewest` meets all criteria and `needed`
    has the number of each: an interval of O:E, slope or AUROC of the width in `widths`.
    `events` is the expected share of events, `auroc` the AUROC that was assumed.
    """

    fewest: int
    examples: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    best: float | None = None
    needed: dict[str, int] = field(default_factory=dict)
    widths: dict[str, float] = field(default_factory=dict)
    events: float = math.nan
    auroc: float = math.nan

    def __str__(self) -> str:
        words = (
            f"At least {self.fewest:,} labelled examples are needed, even with zero "
            "errors."
        )
        if self.needed:
            with_event = f"{math.ceil(self.fewest * self.events):,} with the event"
            words = (
                f"{self.fewest:,} examples, {with_event} ({self.events:.1%} events, "
                "AUROC "
            )
            words += f"{self.auroc:.3f})."
        for name, n in self.needed.items():
            words += (
                f"\n{name}: {n:,} examples for an interval {self.widths[name]:g} wide"
            )
        for n, low, high in zip(
            self.examples, self.low, self.high, strict=bool(self.low)
        ):
            words += f"\n{n:,}: true coverage from {low:.1%} to {high:.1%}"
        for n, share in zip(self.examples, self.accepted, strict=bool(self.accepted)):
            words += f"\n{n:,}: about {share:.0%} accepted"
        return words


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
    """How many labelled examples a guarantee or a validation needs, and what it then
    gives.

    `coverage` is that of `predict_set`, the recall of `detect` and of several labels,
    or 1 minus the risk of `control_risk`; `risk` is that of `predict_or_abstain`, whose
    `delta` is 0.1 unless given. For `risk`, the calibrated `confidence` (m,) of your
    own examples, without labels, tells how much will be accepted. Examples of the fit
    are not counted.

    `events`, the expected share of events, plans the external validation of a model of
    an event: so many examples that intervals at 1 - delta (0.05 unless given) of a
    calibrated model have these `widths`, by default 0.2 for O:E, 0.2 for the slope and
    0.1 for the AUROC (Riley and others, 2021, doi:10.1002/sim.9025: binomial events for
    O:E, the information of a logistic model for the slope, Newcombe's variance for the
    AUROC). The distribution of the probabilities is that of `confidence` (m,),
    probabilities of the event for examples like the new ones, or else follows from
    `auroc`, with log-odds that are normal among events and among the others.

    >>> plan(events=0.1, auroc=0.8).needed
    {'oe_ratio': 3469, 'slope': 4196, 'auroc': 836}
    >>> found = plan(coverage=0.9, examples=(100, 1000))
    >>> found.fewest, [round(end, 3) for end in found.low]
    (9, [0.848, 0.884])
    >>> plan(risk=0.05).fewest
    72
    """
    if sum(each is not None for each in (coverage, risk, events)) != 1:
        raise TypeError(
            "give one of `coverage`, `risk` and `events`, such as `coverage=0.9`."
        )
    if events is not None:
        return _plan_validation(
            events, auroc, confidence, widths, 0.05 if delta is None else delta
        )
    if not (auroc is None and widths is None):
        raise TypeError("`auroc` and `widths` go with `events`; leave them out.")
    if coverage is not None and confidence is not None:
        raise TypeError("`confidence` goes with `risk` or `events`; leave it out.")
    counts = np.array([check_count("examples", n) for n in np.atleast_1d(examples)])
    tried = tuple(counts.tolist())
    if coverage is not None:
        coverage, delta = check_guarantee(coverage, delta, "coverage")
        needed = examples_to_cover(counts, coverage, delta)
        hits = np.minimum(needed, counts)
        rest = counts + 1 - hits  # true coverage is distributed as Beta(hits, rest)
        ends = beta_quantile(hits, rest, 0.05), 1.0 - beta_quantile(rest, hits, 0.05)
        low, high = np.where(needed > counts, 1.0, ends).tolist()
        return Plan(
            fewest_examples(1.0 - coverage, delta), tried, tuple(low), tuple(high)
        )
    allowed = check_chance("risk", risk)
    sure = 0.1 if delta is None else delta
    share = check_chance("delta", sure) / starting_levels(allowed, "held-out").size
    fewest = fewest_examples(allowed, share)
    if confidence is None:
        return Plan(fewest, tried)
    errors = np.sort(1.0 - _read_confidence(confidence))
    place = np.arange(1, errors.size + 1)
    rates = np.cumsum(errors) / place
    reached = np.floor(counts[:, None] * (place / errors.size))
    proven = binomial_tail(np.ceil(reached * rates), reached, allowed) <= share
    parts = np.where(
        np.vstack([proven, rates <= allowed]), place / errors.size, 0.0
    ).max(axis=1)
    return Plan(
        fewest, tried, accepted=tuple(parts[:-1].tolist()), best=float(parts[-1])
    )


def _plan_validation(
    events: float, auroc: float | None, probability: Any, widths: Any, delta: float
) -> Plan:
    """The criteria of Riley and others (2021), each solved for the number of
    examples.
    """
    from scipy.special import expit, logit, ndtri

    share = check_chance("events", events)
    z = -float(ndtri(0.5 * check_chance("delta", delta)))
    wanted = _WIDTHS if widths is None else widths
    fits = isinstance(wanted, Mapping) and wanted and {*wanted} <= {*_WIDTHS}
    if not fits or not all(
        isinstance(w, (int, float)) and w > 0.0 for w in wanted.values()
    ):
        raise ValueError(
            f"`widths` must be positive, of some of {[*_WIDTHS]}; got {widths!r}."
        )
    if (auroc is None) == (probability is None):
        raise TypeError(
            "give `auroc` or `confidence`, probabilities of the event, with `events`."
        )
    if auroc is None:
        x = logit(np.clip(_read_confidence(probability), 1e-9, 1.0 - 1e-9))
        weight = np.full(x.size, 1.0 / x.size)
    else:
        # Normal log-odds of events and others, with the same variance s^2 and means s^2
        # apart, are calibrated, and have the AUROC Phi(s / sqrt 2).
        if not check_chance("auroc", auroc) > 0.5:
            raise ValueError(f"`auroc` must be above 0.5; got {auroc!r}.")
        spread = math.sqrt(2.0) * float(ndtri(auroc))
        nodes, weight = np.polynomial.hermite_e.hermegauss(80)
        weight = weight / weight.sum()
        middle = math.log(share / (1.0 - share))
        x = np.append(
            *(middle + side * 0.5 * spread**2 + spread * nodes for side in (-1.0, 1.0))
        )
        weight = np.append((1.0 - share) * weight, share * weight)
    p = expit(x)
    if auroc is None:
        order = np.argsort(p)
        with_event = (weight * p)[order]
        without = (weight * (1.0 - p))[order]
        below = np.cumsum(without) - 0.5 * without
        auroc = float(with_event @ below / (with_event.sum() * without.sum()))
    error = {name: 0.5 * width / z for name, width in wanted.items()}
    needed: dict[str, float] = {}
    if "oe_ratio" in wanted:
        ratio = math.asinh(0.5 * wanted["oe_ratio"]) / z  # on the log scale
        needed["oe_ratio"] = (1.0 - share) / (share * ratio**2)
    if "slope" in wanted:
        info = [float(weight @ (x**k * p * (1.0 - p))) for k in range(3)]
        needed["slope"] = info[0] / (
            error["slope"] ** 2 * (info[0] * info[2] - info[1] ** 2)
        )
    if "auroc" in wanted:
        both = (1.0 - auroc) / (2.0 - auroc) + auroc / (1.0 + auroc)
        spread = auroc * (1.0 - auroc) / (share * (1.0 - share) * error["auroc"] ** 2)
        needed["auroc"] = 0.25 * spread * both
        needed["auroc"] += math.sqrt(
            needed["auroc"] ** 2 + max(spread * (1.0 - both), 0.0)
        )
    whole = {name: math.ceil(n - 1e-9) for name, n in needed.items()}
    fewest = max(whole.values())
    return Plan(fewest, needed=whole, widths=wanted, events=share, auroc=auroc)


def _read_confidence(confidence: Any, name: str = "confidence") -> FloatArray:
    values = np.asarray(confidence, np.float64)
    source = (
        "`predict_confidence`"
        if name == "confidence"
        else "one column of probabilities"
    )
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"`{name}` must be (m,) numbers; got shape {values.shape}. Use {source}."
        )
    bad = ~((values >= 0.0) & (values <= 1.0))
    refuse(bad, values, f"`{name}` must lie in [0, 1]", f"Use {source}.")
    return values


@dataclass(frozen=True, eq=False)
class DensityRatios:
    """How much more likely each labelled example is among new rows: `weights` (n,).

    `effective` is the number of examples that they are worth (Kish), `clipped` the
    share of them that was limited to `most`.
    """

    weights: FloatArray
    most: float
    effective: float
    clipped: float

    def sample(self, random_state: int = 0) -> IntArray:
        """Rows (k,) that are distributed like the new ones, if the ratios are right.

        Each is kept with probability weight / `most` (rejection sampling), so that
        every guarantee of `certify` with these rows holds for new ones, those with
        `delta` too.
        """
        drawn = (
            np.random.default_rng(random_state).random(self.weights.size) * self.most
        )
        return np.flatnonzero(drawn < self.weights)

    def __str__(self) -> str:
        return (
            f"{self.weights.size:,} examples are worth {self.effective:,.0f} of the "
            f"new kind; {self.clipped:.1%} of the ratios were limited to "
            f"{self.most:.4g}"
        )


def density_ratios(
    probability: Any, *, new_share: float = 0.5, most: float = 10.0, fewest: int = 100
) -> DensityRatios:
    """Density ratios for `certify(sample_weight=...)`, from a classifier of old and new
    rows.

    `probability` (n,) is that of being a new row, for each labelled (old) example, by a
    classifier that was trained on other rows, or with each of these left out;
    `new_share` is the share of new rows among those that it was trained on. Ratios
    above `most` are clipped. Examples that are worth fewer than `fewest` of the new
    kind are refused.

    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(
    ...     size=1000
    ... )  # new rows are normal around 1: p = sigmoid(x - 1/2)
    >>> print(density_ratios(1.0 / (1.0 + np.exp(0.5 - old))))
    1,000 examples are worth 423 of the new kind; 0.1% of the ratios were limited to 10
    """
    check_positive("most", most, "The default is 10.")
    new = _read_confidence(probability, "probability")
    share = check_chance("new_share", new_share)
    with np.errstate(divide="ignore"):
        ratios = new / (1.0 - new) * ((1.0 - share) / share)
    weights = np.minimum(ratios, float(most))
    effective = effective_size(weights)
    if effective < fewest:
        raise ValueError(
            f"`probability` must leave at least {fewest:,} effective examples; got "
            f"{effective:,.0f} of {new.size:,}: the new rows lie where few labelled "
            "ones do. Label some of the new rows and certify with those, or pass a "
            "smaller `fewest`."
        )
    return DensityRatios(weights, float(most), effective, float((ratios > most).mean()))
