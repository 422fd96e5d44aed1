"""What the numbers of a rule must be. Files may lie, so every rule checks all it is given.

Within the limits no prediction can overflow, vanish or become NaN: margins are at most 1e150, and
float64 ends at 1e308.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.bins import check_count

#: Temperatures and noise widths; margins divided by them stay finite, and masked classes far.
LEAST_TEMPERATURE, LARGEST_TEMPERATURE = 1e-140, 1e140
#: Coefficients; products with margins stay finite.
LARGEST_COEFFICIENT = 1e100
#: Steps of a recorded recursion, more than any fit is allowed.
MOST_STEPS = 100_000


def store_float(record: Any, name: str, low: float, high: float) -> None:
    """Check a field that is a number from `low` to `high`, and keep it as a float."""
    value = getattr(record, name)
    number = isinstance(value, (int, float, np.integer, np.floating))
    if isinstance(value, bool) or not number or not low <= value <= high:
        raise ValueError(f"`{name}` must be a number from {low:g} to {high:g}; got {value!r}.")
    object.__setattr__(record, name, float(value))


def store_temperature(record: Any, name: str = "temperature") -> None:
    """`store_float` for what margins are divided by."""
    store_float(record, name, LEAST_TEMPERATURE, LARGEST_TEMPERATURE)


def store_count(record: Any, name: str, least: int, most: int) -> None:
    """Check a field that is a whole number from `least` to `most`, and keep it as an int."""
    count = check_count(getattr(record, name), name=name, least=least, most=most)
    object.__setattr__(record, name, count)


def check_array(
    name: str,
    array: Any,
    shape: tuple[int | None, ...],
    low: float = -LARGEST_COEFFICIENT,
    high: float = LARGEST_COEFFICIENT,
    *,
    dtype: Any = np.float64,
    nan_allowed: bool = False,
) -> None:
    """An array of this shape (None: one or more) with numbers from `low` to `high`."""
    fits = (
        isinstance(array, np.ndarray)
        and array.dtype == dtype
        and array.ndim == len(shape)
        and all(
            has >= 1 if want is None else has == want
            for want, has in zip(shape, array.shape, strict=True)
        )
    )
    if not fits:
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else repr(array)
        raise ValueError(f"`{name}` must be {np.dtype(dtype)} of shape {shape}; got {got}.")
    inside = (array >= low) & (array <= high)
    if not (inside | np.isnan(array) if nan_allowed else inside).all():
        raise ValueError(f"`{name}` must hold numbers from {low:g} to {high:g}.")


def check_rising(name: str, array: NDArray[Any]) -> None:
    """Numbers (k,) of which each is larger than the one before."""
    if not (np.diff(array) > 0).all():
        raise ValueError(f"`{name}` must rise from each number to the next.")
