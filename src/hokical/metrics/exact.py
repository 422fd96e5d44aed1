"""Sums of numbers in [0, 1] that are the same, to the bit, in whatever order they are added.

Floating-point addition is not associative: other batches would give another last digit. So each
number is rounded to 2^-54 (which leaves a confidence of 1/4 or more unchanged, and changes others
by less than 1e-16) and split into three words of 18 bits. A word's sum is a sum of small integers,
exact in float64 up to 2^35 examples in one group; beyond that, or with fractional weights, sums are
right to rounding but may depend on the order.
"""

import numpy as np

from hokical.core.types import FloatArray, IntArray

_WORD_BITS = 18
_N_WORDS = 3


def exact_sums(
    group: IntArray, values: FloatArray, n_groups: int, weight: FloatArray | None = None
) -> FloatArray:
    """Sum of values in [0, 1] by group, as three words (3, n_groups) whose total is the sum.

    >>> words = exact_sums(np.array([0, 0, 1]), np.array([0.1, 0.2, 1.0]), 2)
    >>> total(words)
    array([0.3, 1. ])
    """
    words = np.empty((_N_WORDS, n_groups))
    for place, word in enumerate(_words(values)):
        words[place] = np.bincount(group, word if weight is None else word * weight, n_groups)
    return words


def total(words: FloatArray) -> FloatArray:
    """The sums (..., n_groups), small words first so that little is lost."""
    return np.asarray(words[0] + (words[1] + words[2]))


def _words(values: FloatArray) -> list[FloatArray]:
    """Three multiples of 2^-18, 2^-36 and 2^-54 that add up to each value, largest first."""
    scale = float(1 << _WORD_BITS * _N_WORDS)
    left = np.rint(values * scale)
    words = []
    for place in range(1, _N_WORDS):
        unit = float(1 << _WORD_BITS * (_N_WORDS - place))
        word = np.floor(left / unit) * unit
        words.append(word / scale)
        left -= word
    return [*words, left / scale]
