"""Two tables: the quadrature of exact Gaussian stability, and the sufficient statistic
of Hoki.

The quadrature is made once. The log product at a quadrature node u is a sum over
classes of log Phi(u + d_i). On 0 <= d <= REACH that function of d is nearly a Chebyshev
series in t, the line that carries [0, REACH] to [-1, 1]. It is fitted to a *relative*
error: where log Phi is small, many classes can share a place before the product
vanishes, and their errors add up.

`StabilityTable` has the weights and correct predictions per level of label stability.
Two examples with the same stability and the same starting bin share their bin in every
step, so the whole design-time algorithm needs only this table. Stability is kept as an
integer level, gamma = level / levels: with M draws the levels are the M + 1 possible
counts, and exact stability is rounded to 2^-16. All sums are then sums of integers (as
long as weights are), so tables add up to the same bits in whatever order. An example
halfway between two levels may be counted at either, because small and large inputs are
computed in forms that differ in the last digits.

Files hold this table, and `load` reads them: the module needs NumPy alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import ArrayOf, Checked, check_array, sum_by
from hokical._core.runtime import memoize
from hokical._core.special import chebyshev_polynomials, log_ndtr
from hokical._core.storage import storable

#: Degree of the series; the compiled kernels are unrolled for it.
DEGREE = 24
#: Margin, in scales, up to which the series holds: Phi(-9) is 1e-19.
REACH = 9.0
#: Highest node, in scales: the normal mass outside is 4e-8.
NODE_LIMIT = 5.5
#: Lowest node, in scales, of a distribution: where the label loses to a far class, its
#: noise is far down.
TAIL_LIMIT = 8.1
#: Distance of the nodes, in scales, up to a number of classes: the more classes there
#: are, the narrower is the peak of the integrand. Each leaves an error of less than
#: 4e-8.
_STEPS = ((20, 0.4), (200, 0.25))
#: Distance of the nodes, in scales, beyond these numbers of classes.
SHORTEST_STEP = 0.2
#: Points of a margin at which the series is fitted: ten per degree.
_FIT_POINTS = 256


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Nodes and weights (K,), and the series at the nodes, `series` (R + 1, K).

    `log_of_top` (K,) is log Phi(u) as the series has it: the factor of the top class,
    to be left out of the product.
    """

    nodes: FloatArray
    weights: FloatArray
    series: FloatArray
    log_of_top: FloatArray


def node_step(n_classes: int) -> float:
    """The distance of the nodes that suits this many classes."""
    return next((step for most, step in _STEPS if n_classes <= most), SHORTEST_STEP)


@memoize
def gaussian_quadrature(
    lowest: float = -NODE_LIMIT, step: float = SHORTEST_STEP
) -> Quadrature:
    """The tables for nodes from `lowest` up."""
    nodes = np.arange(lowest, NODE_LIMIT + step / 4, step)
    series = np.ascontiguousarray(_log_phi_series(nodes).T)
    signs = (-1.0) ** np.arange(DEGREE + 1)
    weights = step * normal_density(nodes)
    return Quadrature(nodes, weights, series, signs @ series)


def _log_phi_series(nodes: FloatArray) -> FloatArray:
    """Chebyshev coefficients (K, R + 1) of d -> log Phi(u + d), 0 at REACH, for
    nodes (K,).
    """
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
    """hazard (K, Q): weighted phi/Phi at Q interpolation points; and points to
    powers (Q, Q).
    """
    nodes = gaussian_quadrature(-TAIL_LIMIT, step).nodes
    t, matrix = chebyshev_points(DEGREE)
    x = nodes[:, None] + (t + 1.0) * (REACH / 2.0)
    log_hazard = np.log(normal_density(x)) - log_ndtr(x, np)
    return step * np.exp(log_hazard), matrix.T @ series_to_powers()


#: Columns of the coefficients of P_0 ... P_3 in `series_to_powers`, (first, stop).
POWER_RANGES = ((0, 7), (7, 13), (13, 19), (19, 25))


def series_to_powers() -> FloatArray:
    """From a series in T_r(t) to powers of w = T_4(t), (R + 1, R + 1).

    sum_r c_r T_r(t) = sum_j T_j(t) P_j(w), j = 0 ... 3: T_4k(t) = T_k(w), and T_(4k+j)
    + T_(4k-j) = 2 T_4k T_j. Powers of t itself, up to the 24th, would lose many digits;
    these lose two.
    """
    in_w = np.eye(7)
    for k in range(2, 7):
        in_w[k] = -in_w[k - 2]
        in_w[k, 1:] += 2.0 * in_w[k - 1, :-1]
    powers = np.zeros((DEGREE + 1, DEGREE + 1))
    for r in range(DEGREE + 1):
        k, j = divmod(r, 4)
        first, stop = POWER_RANGES[j]
        powers[r, first:stop] = (2.0 if j and k else 1.0) * in_w[k, : stop - first]
        if j and k:
            powers[r] -= powers[4 * k - j]
    return powers


def chebyshev_points(degree: int) -> tuple[FloatArray, FloatArray]:
    """Chebyshev points of the first kind, and the matrix from values there to
    coefficients.
    """
    count = degree + 1
    angles = (np.arange(count) + 0.5) * np.pi / count
    matrix = (2.0 / count) * np.cos(np.outer(np.arange(count), angles))
    matrix[0] /= 2.0
    return np.cos(angles), matrix


def normal_density(x: FloatArray) -> FloatArray:
    """The standard normal density."""
    return np.asarray(np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi))


#: Levels for exact stability: finer than the 1e-5 to which anything is claimed.
EXACT_LEVELS = 1 << 16
#: Cells beyond this are a damaged file, not a table.
_MOST_CELLS = 1 << 28


Weights = Annotated[FloatArray, ArrayOf(("starts", "levels"), 0.0, 1e290)]


@storable("stability-table")
@dataclass(frozen=True, eq=False)
class StabilityTable(Checked):
    """`weight` and `correct`, each (starting bins, levels + 1). Tables of one shape
    add.
    """

    weight: Weights
    correct: Weights

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels < 1 or (self.correct > self.weight).any():
            raise ValueError(
                "`weight` must be (starts, levels + 1), `correct` at most `weight`."
            )

    @classmethod
    def from_examples(
        cls,
        level: IntArray,
        correct: NDArray[np.bool_],
        *,
        levels: int,
        sample_weight: FloatArray | None = None,
        start: IntArray | None = None,
        n_starts: int = 1,
    ) -> StabilityTable:
        """Count examples by stability level, and by starting bin if there are
        several.
        """
        cell = level if start is None else start * (levels + 1) + level
        shape = (n_starts, levels + 1)
        weight = np.ones(level.shape[0]) if sample_weight is None else sample_weight
        n_cells = math.prod(shape)
        weights = sum_by(cell, weight, n_cells)
        hits = sum_by(cell, weight * correct, n_cells)
        return cls(weights.reshape(shape), hits.reshape(shape))

    def __add__(self, other: object) -> StabilityTable:
        if not isinstance(other, StabilityTable):
            return NotImplemented
        if self.weight.shape != other.weight.shape:
            raise ValueError(
                "stability tables must have equal levels and starting bins; got "
                f"shapes {self.weight.shape} and {other.weight.shape}."
            )
        return StabilityTable(self.weight + other.weight, self.correct + other.correct)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the occupied cells: most are empty."""
        return type(self).from_stored, (self.to_stored(),)

    @property
    def levels(self) -> int:
        """The highest level: stability 1."""
        return int(self.weight.shape[1]) - 1

    @property
    def n_starts(self) -> int:
        """How many starting bins there are."""
        return int(self.weight.shape[0])

    @property
    def total(self) -> float:
        """Sum of the weights: the number of examples, if they were not weighted."""
        return float(self.weight.sum())

    @property
    def accuracy(self) -> float:
        """Share of correct examples."""
        return float(self.correct.sum() / self.weight.sum())

    def occupied_cells(self) -> Cells:
        """The cells that hold weight, as flat arrays."""
        weight = self.weight.ravel()
        cell = np.flatnonzero(weight > 0.0)
        start, level = np.divmod(cell, self.levels + 1)
        return Cells(start, level, weight[cell], self.correct.ravel()[cell])

    def to_stored(self) -> dict[str, Any]:
        """Shape and occupied cells."""
        cells = vars(self.occupied_cells())
        return {"n_starts": self.n_starts, "levels": self.levels, **cells}

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> StabilityTable:
        """The inverse of `to_stored`; raises ValueError if the numbers cannot be a
        table.
        """
        shape = (int(stored["n_starts"]), int(stored["levels"]) + 1)
        if min(shape) < 1 or math.prod(shape) > _MOST_CELLS:
            raise ValueError(f"a stability table cannot have shape {shape}")
        cells = Cells(*(np.asarray(stored[field.name]) for field in fields(Cells)))
        if len({array.shape for array in vars(cells).values()}) != 1:
            raise ValueError("a stability table must hold 1-D arrays of one length")
        n_starts, n_levels = shape
        n_cells = (cells.start.size,)
        check_array("start", cells.start, n_cells, 0, n_starts - 1, np.int64)
        check_array("level", cells.level, n_cells, 0, n_levels - 1, np.int64)
        weight = np.zeros(shape)
        correct = np.zeros(shape)
        weight[cells.start, cells.level] = cells.weight
        correct[cells.start, cells.level] = cells.correct
        return cls(weight, correct)


@dataclass(frozen=True, eq=False)
class Cells:
    """Occupied cells of a table, all arrays (n_cells,)."""

    start: IntArray
    level: IntArray
    weight: FloatArray
    correct: FloatArray
