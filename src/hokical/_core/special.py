"""Special functions missing from the array API, and random numbers that are the same
everywhere.

The functions take arrays of any library, in float64. The random numbers are
bit-identical on every machine and NumPy version: NumPy guarantees a stable stream of
raw 64-bit words from a bit generator, but not the same normal deviates across releases,
and `log` differs in its last bit between maths libraries. So the raw words are
transformed with +, -, *, / and sqrt alone, which IEEE 754 rounds exactly. A calibrator
can then be stored as (seed, shape) instead of the draws themselves.
"""

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from hokical._core.arrays import (
    NUMPY,
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    Namespace,
    backend_of,
)

#: Exponent: exp(-700) is 1e-304, as good as 0.
FAR = 700.0
#: The factor from deviations of a normal variable to arguments of erfc.
ROOT_HALF = math.sqrt(0.5)
#: Elements of an array that is clipped at once: looking first would take longer.
_FEW = 1000
#: Argument about which the polynomial below is centred, as its authors have it.
_ERFCX_CENTRE = 3.75
#: (1 + 2 y) exp(y^2) erfc(y) for y >= 0, as a polynomial in (y - 3.75)/(y + 3.75),
#: highest power first; the form is that of Shepherd and Laframboise, Mathematics of
#: Computation 36, 1981.
_ERFCX = (
    -2.623107347133476e-09,
    -1.9551358868985616e-09,
    3.197926671666804e-08,
    1.879082322370048e-08,
    -2.4857126248016745e-07,
    -5.084465378687302e-08,
    1.7419821586224816e-06,
    -9.792625707303523e-07,
    -1.1438048033346894e-05,
    2.2387565714911816e-05,
    5.164652974177416e-05,
    -0.00029015535246077655,
    0.000293714378044958,
    0.0017556261651970652,
    -0.009746579683265262,
    0.02836227737211114,
    -0.05869339857664934,
    0.09230432116428125,
    -0.10880393014244462,
    0.08227673848999506,
    0.0035854154854790257,
    -0.14024059858554525,
    1.2375126308378275,
)


def constant(table: FloatArray, like: Array) -> Array:
    """A NumPy table in the library and on the device of an array."""
    return (backend_of(like) or NUMPY).from_host(table, like)


def chebyshev_polynomials(t: FloatArray, degree: int) -> FloatArray:
    """T_0(t) ... T_degree(t), stacked along a new first axis.

    By doubling, T_(m+n) = 2 T_m T_n - T_(m-n): a handful of operations for all degrees.

    >>> chebyshev_polynomials(np.array([0.5]), 3)[:, 0]
    array([ 1. ,  0.5, -0.5, -1. ])
    """
    polynomials = np.empty((degree + 1, *t.shape))
    polynomials[0] = 1.0
    polynomials[1] = t
    highest = 1
    while highest < degree:
        more = min(highest, degree - highest)
        new = polynomials[highest + 1 : highest + more + 1]
        np.multiply(polynomials[1 : more + 1], 2.0 * polynomials[highest], out=new)
        new -= polynomials[highest - more : highest][::-1]
        highest += more
    return polynomials


def exponential(x: Array, xp: Namespace) -> Array:
    """exp(x); NumPy's x is overwritten."""
    return np.exp(x, out=x) if xp is np else xp.exp(x)


def times(x: Array, factor: Array, xp: Namespace) -> Array:
    """x times a factor; NumPy's x is overwritten."""
    return np.multiply(x, factor, out=x) if xp is np else x * factor


def divided(x: Array, divisor: Array, xp: Namespace) -> Array:
    """x divided by a divisor; NumPy's x is overwritten."""
    return np.divide(x, divisor, out=x) if xp is np else x / divisor


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
    return np.multiply(x, 1.0 / total, out=x) if xp is np else weights / total


def clip(x: Array, low: float | None, high: float | None, xp: Namespace) -> Array:
    """`xp.clip`, which NumPy takes four times as long for on small arrays.

    Large ones are clipped only where needed: finding out is quicker, and x itself is
    returned. With both bounds NumPy clips in a quarter of the time of a minimum.
    """
    if xp is not np:
        return xp.clip(x, low, high)
    is_low = low is not None and (x.size <= _FEW or not x.min() >= low)
    is_high = high is not None and (x.size <= _FEW or not x.max() <= high)
    if not (is_low or is_high):
        return x
    return x.clip(-np.inf if low is None else low, np.inf if high is None else high)


def row_sums(table: Array, xp: Namespace) -> Array:
    """Sums of the rows of a table, (n,). NumPy's own `sum` is slow for short rows in
    C order.
    """
    if xp is not np:
        return xp.sum(table, axis=1)
    if table.flags.f_contiguous and table.shape[0] > 1:
        return np.add.reduce(table, axis=1)
    return np.einsum("ni->n", table)


def pick(table: Array, columns: Array, xp: Namespace) -> Array:
    """The entry of each row of a table in its column (n,), (n,)."""
    if xp is np:  # a third of the time of `take_along_axis`
        return table[np.arange(len(table)), columns]
    return xp.take_along_axis(table, columns[:, None], axis=1)[:, 0]


#: Rows up to which NumPy's own `argmax` is the quickest in any memory order.
FEW_ROWS = 100
#: The most columns that a byte can number.
_MOST_IN_BYTE = 255


def row_argmax(table: Array, xp: Namespace) -> Array:
    """The first maximum of each row of a table, (n,).

    NumPy's own takes ten times as long as this for short rows in Fortran order.

    >>> row_argmax(np.array([[1.0, 3.0, 3.0]]), np)
    array([1])
    """
    if xp is not np or table.flags.c_contiguous or table.shape[0] <= FEW_ROWS:
        return xp.argmax(table, axis=1)
    top = np.maximum.reduce(table, axis=1)
    if table.shape[1] > _MOST_IN_BYTE or np.isnan(top).any():
        return table.argmax(axis=1)
    return first_marks(table == top[:, None])


def first_marks(marks: BoolArray) -> IntArray:
    """The first true column of each row, (n,), of a table of at most 255 columns.

    >>> first_marks(np.array([[False, True, True], [True, False, False]]))
    array([1, 0])
    """
    n_columns = marks.shape[1]
    from_end = np.arange(n_columns, 0, -1).astype(np.uint8)
    largest = np.maximum.reduce(marks.view(np.uint8) * from_end, axis=1)
    return np.asarray(n_columns - largest.astype(np.int64))


def row_dots(left: Array, right: Array, xp: Namespace) -> Array:
    """Products of the rows of two tables, (n,), likewise."""
    return (
        np.einsum("ni,ni->n", left, right) if xp is np else xp.sum(left * right, axis=1)
    )


def log_ndtr(x: Array, xp: Namespace) -> Array:
    """Log of the standard normal distribution function, precise in both tails."""
    y = xp.abs(x) * ROOT_HALF
    scaled = 0.5 * erfcx(y)
    square = y * y
    return xp.where(
        x < 0.0, xp.log(scaled) - square, xp.log1p(-scaled * xp.exp(-square))
    )


def log_ndtr_below(x: Array, xp: Namespace) -> Array:
    """`log_ndtr` for x <= 0, in half the time."""
    y = xp.abs(x) * ROOT_HALF
    return xp.log(0.5 * erfcx(y)) - y * y


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


def safe_sqrt(x: Array, xp: Namespace) -> Array:
    """The root; 0 at 0 or below, with gradient 0.

    >>> safe_sqrt(np.array([-1.0, 4.0]), np)
    array([0., 2.])
    """
    if xp is np:
        return np.sqrt(np.fmax(x, 0.0))
    positive = x > 0.0
    ones = xp.ones_like(x)
    return xp.where(positive, xp.sqrt(xp.where(positive, x, ones)), 0.0 * ones)


def stack_rows(rows: Sequence[Array], xp: Namespace) -> Array:
    """Arrays (n,) as the rows of a table; NumPy's own `stack` is slow for short ones."""
    return np.array(rows) if xp is np else xp.stack(rows, axis=0)


def erfcx(y: Array) -> Array:
    """exp(y^2) erfc(y) for y >= 0, with a relative error of about 1e-15."""
    native = (backend_of(y) or NUMPY).kernels.erfcx(y)
    if native is not None:
        return native
    t = (y - _ERFCX_CENTRE) / (y + _ERFCX_CENTRE)
    return horner(_ERFCX, t) / (1.0 + 2.0 * y)


#: Columns that BLAS multiplies at once: with as many as there are, it would sum in an
#: order that depends on their number.
_LANES = 16


def contract(rows: Array, matrix: Array, xp: Namespace) -> Array:
    """rows (n, p) times matrix (p, q), each row to the same bits in every batch."""
    if xp is np and rows.flags.f_contiguous and rows.shape[0] > 1:
        return _contract_columns(matrix.T, rows.T).T
    if xp is np:
        return np.einsum("np,pq->nq", np.ascontiguousarray(rows), matrix)
    return xp.matmul(rows, matrix)


def contract_row(row: list[float], matrix: FloatArray) -> list[float]:
    """`contract` of one row (p,) of a table in Fortran order, to the bit."""
    column = np.zeros((len(row), _LANES))
    column[:, 0] = row
    products: list[float] = (matrix.T @ column)[:, 0].tolist()
    return products


def _contract_columns(matrix: FloatArray, columns: FloatArray) -> FloatArray:
    """matrix (q, p) times columns (p, n), `_LANES` columns at a time."""
    n_columns = columns.shape[1]
    products = np.empty((matrix.shape[0], n_columns))
    whole = n_columns - n_columns % _LANES
    if whole:
        lanes = columns[:, :whole].reshape(len(columns), -1, _LANES)
        out = products[:, :whole].reshape(len(matrix), -1, _LANES)
        np.matmul(matrix, lanes.swapaxes(0, 1), out=out.swapaxes(0, 1))
    if whole < n_columns:
        last = np.zeros((len(columns), _LANES))
        last[:, : n_columns - whole] = columns[:, whole:]
        products[:, whole:] = (matrix @ last)[:, : n_columns - whole]
    return products


#: The leading 32 bits of ln 2: products with an exponent are exact.
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
#: ln 2 - _LN2_HIGH.
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


def uniform_draws(seed: int, shape: tuple[int, int]) -> FloatArray:
    """Numbers strictly inside (0, 1), 53 random bits each, from a Philox stream of
    `seed`.
    """
    term_names = np.random.Philox(key=seed).random_raw(shape[0] * shape[1])
    return ((term_names >> np.uint64(11)).astype(np.float64) + 0.5).reshape(
        shape
    ) * 2.0**-53


def log(x: FloatArray) -> FloatArray:
    """Natural logarithm of positive numbers, to about 1e-16 relative to max(1, |log
    x|).

    x = m 2^e with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh((m - 1)/(m + 1)).
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < ROOT_HALF
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    power = exponent.astype(np.float64) - low
    s = (mantissa - 1.0) / (mantissa + 1.0)
    s2 = s * s
    series: FloatArray = horner([2.0 / (2 * k + 1) for k in range(12, -1, -1)], s2)
    return power * _LN2_HIGH + (power * _LN2_LOW + s * series)


def normal_quantile(p: FloatArray) -> FloatArray:
    """Inverse of the standard normal distribution function.

    Algorithm AS 241 (PPND16) of Wichura, Applied Statistics 37, 1988, accurate to about
    1e-16.
    """
    q = p - 0.5
    central = np.abs(q) <= 0.425
    inner = np.where(central, q, 0.0)
    r = 0.180625 - inner * inner
    middle = _rational(_CENTRE, r, q)
    tail = np.sqrt(-log(np.where(central, 0.5, np.minimum(p, 1.0 - p))))
    near = _rational(_NEAR_TAIL, tail - 1.6)
    far = _rational(_FAR_TAIL, tail - 5.0)
    outer: FloatArray = np.where(tail <= 5.0, near, far)
    return np.where(central, middle, np.where(q < 0.0, -outer, outer))


def horner(coefficients: Sequence[float], x: Array) -> Array:
    """Polynomial with the highest power first, one rounding per operation."""
    if not isinstance(x, np.ndarray):
        return reduce(lambda value, c: value * x + c, coefficients)
    highest, *others = coefficients
    value = np.full(x.shape, highest, np.float64)
    for c in others:  # without a new array for each
        np.multiply(value, x, out=value)
        np.add(value, c, out=value)
    return value


def _rational(
    pairs: Sequence[tuple[float, float]],
    x: FloatArray,
    factor: FloatArray | float = 1.0,
) -> FloatArray:
    """A factor times a polynomial, divided by another; their coefficients come in
    pairs.
    """
    above, below = zip(*pairs, strict=True)
    return np.asarray(factor * horner(above, x) / horner(below, x))


#: For a power of x each, the highest first: the coefficients of numerator and
#: denominator.
_CENTRE = (
    (2509.0809287301227, 5226.495278852854),
    (33430.57558358813, 28729.085735721943),
    (67265.7709270087, 39307.89580009271),
    (45921.95393154987, 21213.794301586597),
    (13731.69376550946, 5394.196021424751),
    (1971.5909503065513, 687.1870074920579),
    (133.14166789178438, 42.31333070160091),
    (3.3871328727963665, 1.0),
)
_NEAR_TAIL = (
    (0.0007745450142783414, 1.0507500716444169e-09),
    (0.022723844989269184, 0.0005475938084995345),
    (0.2417807251774506, 0.015198666563616457),
    (1.2704582524523684, 0.14810397642748008),
    (3.6478483247632045, 0.6897673349851),
    (5.769497221460691, 1.6763848301838038),
    (4.630337846156546, 2.053191626637759),
    (1.4234371107496835, 1.0),
)
_FAR_TAIL = (
    (2.0103343992922881e-07, 2.0442631033899397e-15),
    (2.7115555687434876e-05, 1.421511758316446e-07),
    (0.0012426609473880784, 1.8463183175100548e-05),
    (0.026532189526576124, 0.0007868691311456133),
    (0.29656057182850487, 0.014875361290850615),
    (1.7848265399172913, 0.1369298809227358),
    (5.463784911164114, 0.599832206555888),
    (6.657904643501103, 1.0),
)
