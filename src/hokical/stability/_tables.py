"""Quadrature tables for exact stability under Gaussian noise, made once.

The log product at a quadrature node u is a sum over classes of log Phi(u + d_i). On 0 <= d <= REACH
that function of d is nearly a Chebyshev series in t, the line that carries [0, REACH] to [-1, 1].
It is fitted to a *relative* error: where log Phi is small, many classes can share a place before
the product vanishes, and their errors add up.
"""

from dataclasses import dataclass

import numpy as np

from hokical._core.properties import memoize
from hokical._core.special import chebyshev_polynomials, log_ndtr
from hokical._core.types import FloatArray

DEGREE = 24  # the compiled kernels are unrolled for this degree
REACH = 9.0
NODE_LIMIT = 5.5  # the normal mass outside is 4e-8
TAIL_LIMIT = 8.1  # where the label loses to a far class, its own noise is far down
#: Distance of the nodes up to a number of classes, and beyond: the more classes there are, the
#: narrower is the peak of the integrand. Each leaves an error of less than 4e-8.
_STEPS = ((20, 0.4), (200, 0.25))
SHORTEST_STEP = 0.2
_FIT_POINTS = 256


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Nodes and weights (K,), and the series at the nodes, `series` (R + 1, K)."""

    nodes: FloatArray
    weights: FloatArray
    series: FloatArray
    own: FloatArray  # log Phi(u) as the series has it: the top's own factor, to be left out


def node_step(n_classes: int) -> float:
    """The distance of the nodes that suits this many classes."""
    return next((step for most, step in _STEPS if n_classes <= most), SHORTEST_STEP)


@memoize
def gaussian_quadrature(lowest: float = -NODE_LIMIT, step: float = SHORTEST_STEP) -> Quadrature:
    """The tables for nodes from `lowest` up."""
    nodes = np.arange(lowest, NODE_LIMIT + step / 4, step)
    series = np.ascontiguousarray(_log_phi_series(nodes).T)
    signs = (-1.0) ** np.arange(DEGREE + 1)
    weights = step * normal_density(nodes)
    return Quadrature(nodes, weights, series, signs @ series)


def _log_phi_series(nodes: FloatArray) -> FloatArray:
    """Chebyshev coefficients (K, R + 1) of d -> log Phi(u + d), 0 at REACH, for nodes (K,)."""
    t, _ = chebyshev_points(_FIT_POINTS - 1)
    values = log_ndtr(nodes[:, None] + (t + 1.0) * (REACH / 2.0), np)
    basis = chebyshev_polynomials(t, DEGREE)[1:].T - 1.0
    weight = 1.0 / (np.abs(values) + 1e-3)
    q, r = np.linalg.qr(basis * weight[:, :, None])
    right = np.einsum("kpr,kp->kr", q, values * weight)
    higher = np.linalg.solve(r, right[:, :, None])[:, :, 0]
    return np.concatenate([-higher.sum(axis=1, keepdims=True), higher], axis=1)


@memoize
def switch_tables(step: float) -> tuple[FloatArray, FloatArray]:
    """hazard (K, Q): weighted phi/Phi at Q interpolation points; and points to powers (Q, Q)."""
    nodes = gaussian_quadrature(-TAIL_LIMIT, step).nodes
    t, matrix = chebyshev_points(DEGREE)
    x = nodes[:, None] + (t + 1.0) * (REACH / 2.0)
    log_hazard = np.log(normal_density(x)) - log_ndtr(x, np)
    return step * np.exp(log_hazard), matrix.T @ series_to_powers()


#: Where the coefficients of P_0 ... P_3 stand among those of `series_to_powers`.
POWER_PARTS = ((0, 7), (7, 13), (13, 19), (19, 25))


def series_to_powers() -> FloatArray:
    """From a series in T_r(t) to powers of w = T_4(t), (R + 1, R + 1).

    sum_r c_r T_r(t) = sum_j T_j(t) P_j(w), j = 0 ... 3: T_4k(t) = T_k(w), and T_(4k+j) + T_(4k-j) =
    2 T_4k T_j. Powers of t itself, up to the 24th, would lose many digits; these lose two.
    """
    in_w = np.eye(7)
    for k in range(2, 7):
        in_w[k] = -in_w[k - 2]
        in_w[k, 1:] += 2.0 * in_w[k - 1, :-1]
    found = np.zeros((DEGREE + 1, DEGREE + 1))
    for r in range(DEGREE + 1):
        k, j = divmod(r, 4)
        first, end = POWER_PARTS[j]
        found[r, first:end] = (2.0 if j and k else 1.0) * in_w[k, : end - first]
        if j and k:
            found[r] -= found[4 * k - j]
    return found


def chebyshev_points(degree: int) -> tuple[FloatArray, FloatArray]:
    """Chebyshev points of the first kind, and the matrix from values there to coefficients."""
    count = degree + 1
    angles = (np.arange(count) + 0.5) * np.pi / count
    matrix = (2.0 / count) * np.cos(np.outer(np.arange(count), angles))
    matrix[0] /= 2.0
    return np.cos(angles), matrix


def normal_density(x: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi))
