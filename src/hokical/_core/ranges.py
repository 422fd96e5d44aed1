"""Range minima and maxima of an array, for many ranges at once."""

import numpy as np

from hokical._core.types import FloatArray, IntArray


def range_extremes(
    values: FloatArray, first: IntArray, last: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Minimum and maximum of values[first : last + 1] for each pair, (n,) each.

    Two runs whose length is a power of two cover any range; their extremes are built by doubling.

    >>> range_extremes(np.array([3.0, 1.0, 2.0]), np.array([0, 2]), np.array([1, 2]))
    (array([1., 2.]), array([3., 2.]))
    """
    low, high = np.empty(first.shape), np.empty(first.shape)
    runs = np.frexp((last - first + 1).astype(np.float64))[1] - 1  # floor of log2
    least, most = values, values
    for run in range(int(runs.max(initial=0)) + 1):
        if run:
            half = 1 << (run - 1)
            least = np.minimum(least[:-half], least[half:])
            most = np.maximum(most[:-half], most[half:])
        here = runs == run
        start, end = first[here], last[here] + 1 - (1 << run)
        low[here] = np.minimum(least[start], least[end])
        high[here] = np.maximum(most[start], most[end])
    return low, high
