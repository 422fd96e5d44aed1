"""Quadratures and moments of label stability."""

from hokical.stability.gaussian import log_products, moments_of
from hokical.stability.gumbel import distribution, stability
from hokical.stability.tables import (
    REACH,
    TAIL_LIMIT,
    Quadrature,
    gaussian_quadrature,
    node_step,
)

__all__ = [
    "REACH",
    "TAIL_LIMIT",
    "Quadrature",
    "distribution",
    "gaussian_quadrature",
    "log_products",
    "moments_of",
    "node_step",
    "stability",
]
