"""How far a correction can be trusted: fully within what was seen, and less and less beyond.

The features of the stability profile lie close to a curve, and large coefficients of opposite signs
cancel along it. Off the curve (labels surer than any in the validation set, most classes masked)
they do not cancel, and the regression says nothing about such rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

#: Added to correlations, so that columns which follow each other to the last digit do no harm.
_RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Familiar:
    """Mean (p,), inverse covariance (p, p), and the largest squared distance seen."""

    centre: FloatArray
    precision: FloatArray
    reach: float

    @classmethod
    def of(cls, features: FloatArray, weights: FloatArray) -> Familiar:
        """From the features (n, p) of the validation set, and what each example counts."""
        share = weights / weights.sum()
        centre = np.einsum("n,np->p", share, features)
        apart = features - centre
        covariance = np.einsum("np,n,nq->pq", apart, share, apart)
        size = np.sqrt(np.maximum(np.diagonal(covariance), _RIDGE))
        correlation = covariance / np.outer(size, size) + _RIDGE * np.eye(size.size)
        precision = np.linalg.inv(correlation) / np.outer(size, size)
        seen = cls(centre, precision, 0.0).squared_distance(features[weights > 0.0])
        return cls(centre, precision, float(seen.max()))

    def squared_distance(self, features: FloatArray) -> FloatArray:
        """Mahalanobis's, (n,)."""
        apart = features - self.centre
        # einsum, not matmul: BLAS sums in an order that depends on the number of rows.
        return np.asarray(np.einsum("np,pq,nq->n", apart, self.precision, apart))

    def trust(self, features: FloatArray) -> FloatArray:
        """1 within reach, then falling with the squared distance, (n,)."""
        squared = np.maximum(self.squared_distance(features), self.reach)
        return np.divide(self.reach, squared, out=np.ones_like(squared), where=squared > 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Numbers and arrays."""
        return {"centre": self.centre, "precision": self.precision, "reach": self.reach}

    @classmethod
    def from_dict(cls, stored: dict[str, Any], n_features: int) -> Familiar:
        """The inverse of `to_dict`, checked."""
        centre, precision = stored["centre"], stored["precision"]
        reach = float(stored["reach"])
        if centre.shape != (n_features,) or precision.shape != (n_features, n_features):
            raise ValueError(f"familiar must have {n_features} features; got {centre.shape}")
        if not (np.isfinite(centre).all() and np.isfinite(precision).all() and reach >= 0.0):
            raise ValueError("familiar must be finite numbers")
        return cls(centre, precision, reach)
