"""Weights of labelled examples for new rows whose inputs are distributed otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import as_number, check_positive, effective_size, show
from hokical.guarantees.bounds import check_chance, check_probabilities


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
        uniform = np.random.default_rng(random_state).random(self.weights.size)
        return np.flatnonzero(uniform * self.most < self.weights)

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
    >>> x = rng.normal(size=1000)  # new rows are normal around 1
    >>> print(density_ratios(1.0 / (1.0 + np.exp(0.5 - x))))
    1,000 examples are worth 423 of the new kind; 0.1% of the ratios were limited to 10
    """
    check_positive("most", most, "The default is 10.")
    if not as_number(fewest) >= 0.0:
        raise ValueError(f"`fewest` must be a number, 0 or more; got {show(fewest)}.")
    is_new = check_probabilities(
        "probability", probability, "one column of probabilities"
    )
    share = check_chance("new_share", new_share)
    with np.errstate(divide="ignore"):
        ratios = is_new / (1.0 - is_new) * ((1.0 - share) / share)
    weights = np.minimum(ratios, float(most))
    effective = effective_size(weights)
    if effective < fewest:
        raise ValueError(
            f"`probability` must leave at least {fewest:,} effective examples; got "
            f"{effective:,.0f} of {is_new.size:,}: the new rows lie where few labelled "
            "ones do. Label some of the new rows and certify with those, or pass a "
            "smaller `fewest`."
        )
    return DensityRatios(weights, float(most), effective, float((ratios > most).mean()))
