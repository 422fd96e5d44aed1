"""How far a correction can be trusted: fully within what was seen, and less and less
beyond.

The features of the stability profile lie close to a curve, and large coefficients of
opposite signs cancel along it. Off the curve (labels surer than any in the validation
set, most classes masked) they do not cancel, and the regression says nothing about such
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from hokical_paper.core import (
    LARGEST_COEFFICIENT,
    Checked,
    Within,
    check_array,
    contract,
    storable,
)
from hokical_paper.types import Array, FloatArray, Namespace

#: Added to correlations, so that columns which follow each other to the last digit do
#: no harm.
_RIDGE = 1e-6


@storable("profile-familiar")
@dataclass(frozen=True, eq=False)
class Novelty(Checked):
    """Mean (p,), inverse covariance (p, p), and the largest squared distance seen."""

    centre: FloatArray
    precision: FloatArray
    reach: Annotated[float, Within(0.0, LARGEST_COEFFICIENT)]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_array("centre", self.centre, (None,))
        check_array("precision", self.precision, (self.centre.size,) * 2)

    @classmethod
    def of(cls, features: FloatArray, weights: FloatArray) -> Novelty:
        """From the features (n, p) of the validation set, and what each example
        counts.
        """
        share = weights / weights.sum()
        centre = np.einsum("n,np->p", share, features)
        apart = features - centre
        covariance = np.einsum("np,n,nq->pq", apart, share, apart)
        size = np.sqrt(np.maximum(np.diagonal(covariance), _RIDGE))
        correlation = covariance / np.outer(size, size) + _RIDGE * np.eye(size.size)
        precision = np.linalg.inv(correlation) / np.outer(size, size)
        squared = cls(centre, precision, 0.0).squared_distances(
            features[weights > 0.0], np
        )
        return cls(centre, precision, max(0.0, float(squared.max())))

    def squared_distances(self, features: Array, xp: Namespace) -> Array:
        """Mahalanobis's, (n,)."""
        apart = features - self.centre[None, :]
        return xp.sum(contract(apart, self.precision, xp) * apart, axis=1)

    def trust(self, features: Array, xp: Namespace) -> Array:
        """1 within reach, then falling with the squared distance, (n,)."""
        squared = self.squared_distances(features, xp)
        beyond = squared > self.reach
        return xp.where(beyond, self.reach / xp.where(beyond, squared, 1.0), 1.0)
