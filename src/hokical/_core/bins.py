"""Equal-width bins of [0, 1]: [j/J, (j+1)/J); 1.0 falls into the last bin."""

import math
from numbers import Real
from typing import Any, get_args

import numpy as np

from hokical._core.types import FloatArray, IntArray


def bin_edges(n_bins: int) -> FloatArray:
    """The J + 1 edges, each the double nearest to j/J."""
    return np.arange(n_bins + 1) / n_bins


def bin_index(confidence: FloatArray, n_bins: int) -> IntArray:
    """Bin of each confidence, by comparison with the edges, so that j/J falls exactly into bin j.

    >>> bin_index(np.array([0.0, 0.6, 1.0]), 15)
    array([ 0,  9, 14])
    """
    return np.searchsorted(bin_edges(n_bins)[1:-1], confidence, side="right").astype(np.int64)


def sum_by(group: IntArray, values: FloatArray, n_groups: int) -> FloatArray:
    """Sum of the values in each group, (n_groups,) float64."""
    return np.bincount(group, values, n_groups).astype(np.float64, copy=False)


def check_count(value: Any, *, name: str = "n_bins", least: int = 1, most: float = math.inf) -> int:
    """Check a count (of bins by default): an integer of at least `least`, and at most `most`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        rule = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"`{name}` must be an integer {rule}; got {value!r}.")
    return int(value)


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Check that a value is one of those of a `Literal` type."""
    if value not in get_args(choices):
        raise ValueError(f"`{name}` must be one of {list(get_args(choices))}; got {value!r}.")


def check_positive(name: str, value: Any, remedy: str) -> None:
    """Check a parameter that is a finite number above 0."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and 0.0 < float(value) < np.inf):
        raise ValueError(f"`{name}` must be a finite number above 0; got {value!r}. {remedy}")
