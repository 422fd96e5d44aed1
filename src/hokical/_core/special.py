"""Special functions missing from the array API, for arrays of any library, in float64."""

import math

import numpy as np

from hokical._core.arrays import NUMPY, Array, Namespace, backend_of
from hokical._core.types import FloatArray

#: exp(-FAR) is as good as 0.
FAR = 700.0
_ROOT_HALF = math.sqrt(0.5)
#: Arrays of so few elements are clipped at once.
_FEW = 1000
#: (1 + 2 y) exp(y^2) erfc(y) for y >= 0, as a polynomial in (y - 3.75)/(y + 3.75), highest power
#: first; the form is that of Shepherd and Laframboise, Mathematics of Computation 36, 1981.
_ERFCX_CENTRE = 3.75
_ERFCX = (
    -2.623107347133476e-09, -1.9551358868985616e-09, 3.197926671666804e-08, 1.879082322370048e-08,
    -2.4857126248016745e-07, -5.084465378687302e-08, 1.7419821586224816e-06, -9.792625707303523e-07,
    -1.1438048033346894e-05, 2.2387565714911816e-05, 5.164652974177416e-05, -0.00029015535246077655,
    0.000293714378044958, 0.0017556261651970652, -0.009746579683265262, 0.02836227737211114,
    -0.05869339857664934, 0.09230432116428125, -0.10880393014244462, 0.08227673848999506,
    0.0035854154854790257, -0.14024059858554525, 1.2375126308378275,
)  # fmt: skip


def constant(table: FloatArray, like: Array) -> Array:
    """A NumPy table in the library and on the device of an array."""
    return (backend_of(like) or NUMPY).from_host(table, like)


def chebyshev_polynomials(t: FloatArray, degree: int) -> FloatArray:
    """T_0(t) ... T_degree(t), stacked along a new first axis.

    By doubling, T_(m+n) = 2 T_m T_n - T_(m-n): a handful of operations for all degrees.

    >>> chebyshev_polynomials(np.array([0.5]), 3)[:, 0]
    array([ 1. ,  0.5, -0.5, -1. ])
    """
    found = np.empty((degree + 1, *t.shape))
    found[0], found[1] = 1.0, t
    known = 1
    while known < degree:
        more = min(known, degree - known)
        new = found[known + 1 : known + more + 1]
        np.multiply(found[1 : more + 1], 2.0 * found[known], out=new)
        new -= found[known - more : known][::-1]
        known += more
    return found


def exponential(x: Array, xp: Namespace) -> Array:
    """exp(x); NumPy's x is overwritten."""
    return np.exp(x, out=x) if xp is np else xp.exp(x)


def logarithm(x: Array, xp: Namespace) -> Array:
    """log(x); NumPy's x is overwritten."""
    return np.log(x, out=x) if xp is np else xp.log(x)


def times(x: Array, factor: Array, xp: Namespace) -> Array:
    """x times a factor; NumPy's x is overwritten."""
    return np.multiply(x, factor, out=x) if xp is np else x * factor


def plus(x: Array, term: Array, xp: Namespace) -> Array:
    """x plus a term; NumPy's x is overwritten."""
    return np.add(x, term, out=x) if xp is np else x + term


def normalized_exponential(x: Array, xp: Namespace) -> Array:
    """exp(x) divided by its sum over each row; NumPy's x (n, classes) is overwritten.

    >>> normalized_exponential(np.array([[0.0, 0.0]]), np)
    array([[0.5, 0.5]])
    """
    weights = exponential(x, xp)
    total = row_sums(weights, xp)[:, None]
    # A product takes a quarter of the time of a division.
    return times(weights, 1.0 / total, xp) if xp is np else weights / total


def clip(x: Array, low: float, high: float, xp: Namespace) -> Array:
    """`xp.clip`, which NumPy takes four times as long for on small arrays."""
    return np.minimum(np.maximum(x, low), high) if xp is np else xp.clip(x, low, high)


def at_least(x: Array, low: float, xp: Namespace) -> Array:
    """`xp.clip` from below alone, which NumPy does only where needed: finding out is quicker."""
    if xp is not np:
        return xp.clip(x, low, None)
    return x if x.size > _FEW and x.min() >= low else np.maximum(x, low)


def at_most(x: Array, high: float, xp: Namespace) -> Array:
    """`xp.clip` from above alone, likewise."""
    if xp is not np:
        return xp.clip(x, None, high)
    return x if x.size > _FEW and x.max() <= high else np.minimum(x, high)


def row_sums(table: Array, xp: Namespace) -> Array:
    """Sums of the rows of a table, (n,). NumPy's own `sum` is slow for short rows in C order."""
    if xp is not np:
        return xp.sum(table, axis=1)
    if table.flags.f_contiguous and table.shape[0] > 1:
        return np.add.reduce(table, axis=1)
    return np.einsum("ni->n", table)


def row_dots(left: Array, right: Array, xp: Namespace) -> Array:
    """Products of the rows of two tables, (n,), likewise."""
    return np.einsum("ni,ni->n", left, right) if xp is np else xp.sum(left * right, axis=1)


def log_ndtr(x: Array, xp: Namespace) -> Array:
    """Its logarithm, precise in both tails."""
    y = xp.abs(x) * _ROOT_HALF
    scaled = 0.5 * erfcx(y)
    square = y * y
    return xp.where(x < 0.0, xp.log(scaled) - square, xp.log1p(-scaled * xp.exp(-square)))


def expit(x: Array, xp: Namespace) -> Array:
    """1 / (1 + exp(-x)) without overflow.

    >>> expit(np.array([-1000.0, 0.0]), np)
    array([0. , 0.5])
    """
    small = xp.exp(-xp.abs(x))
    return xp.where(x < 0.0, small, xp.ones_like(small)) / (1.0 + small)


def safe_log(x: Array, xp: Namespace) -> Array:
    """log; -inf at 0 or below, without a warning and with gradient 0."""
    positive = x > 0.0
    if xp is np:
        return np.log(x, out=np.full(np.shape(x), -np.inf), where=positive)
    return xp.where(positive, xp.log(xp.where(positive, x, xp.ones_like(x))), -xp.inf)


def erfcx(y: Array) -> Array:
    """exp(y^2) erfc(y) for y >= 0, with a relative error of about 1e-15."""
    own = (backend_of(y) or NUMPY).erfcx(y)
    if own is not None:
        return own
    t = (y - _ERFCX_CENTRE) / (y + _ERFCX_CENTRE)
    value = t * _ERFCX[0] + _ERFCX[1]
    for coefficient in _ERFCX[2:]:
        value = value * t + coefficient
    return value / (1.0 + 2.0 * y)


def contract(rows: Array, matrix: Array, xp: Namespace) -> Array:
    """rows (n, p) times matrix (p, q). NumPy's BLAS would sum in an order that depends on n."""
    if xp is np and rows.flags.f_contiguous:
        return np.einsum("pn,pq->qn", rows.T, matrix).T
    if xp is np:
        return np.einsum("np,pq->nq", np.ascontiguousarray(rows), matrix)
    return xp.matmul(rows, matrix)
