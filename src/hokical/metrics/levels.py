"""Levels of confidence at which the examples of a stream are counted, fine near 0 and 1.

Over-confident networks say 1 - 1e-9 when they are right and 1 - 1e-6 when they are wrong, so the
levels must tell these apart. With d = min(c, 1 - c), the distance to the nearer end,

    d >= 2^-8:  d is rounded to a multiple of 2^-18,
    d <  2^-8:  d is rounded to 10 binary digits after its first, down to 2^-53; below, to 0.

So d is off by at most 2^-11 of itself (0.05 %) and by at most 2^-19 (2e-6). 1 - c is exact for
c >= 1/2, and bits are shifted instead of taking a logarithm: levels are the same on every machine.
"""

import numpy as np

from hokical.core.types import FloatArray, IntArray

_STEPS = 1 << 18
_DIGITS = 10
_DROPPED = 52 - _DIGITS
#: The shortened float of level 0; 2^-53, the smallest 1 - c, is level 1.
_ZEROTH = ((1023 - 53) << _DIGITS) - 1
#: Level of 2^-8, where even steps begin, and of 1/2.
_EVEN = (53 - 8 << _DIGITS) + 1
_HALF = _EVEN + _STEPS // 2 - (_STEPS >> 8)

#: Number of levels: those of c up to 1/2, and of 1 - c down to 0.
N_LEVELS = 2 * _HALF + 1


def confidence_level(confidence: FloatArray) -> IntArray:
    """Level of each confidence in [0, 1], monotone, from 0 for 0.0 to N_LEVELS - 1 for 1.0.

    >>> level = confidence_level(np.array([0.0, 0.5, 1 - 1e-9, 1 - 1e-10, 1.0]))
    >>> level.tolist()
    [0, 176129, 328629, 332066, 352258]
    """
    near = _distance_level(np.minimum(confidence, 1.0 - confidence))
    return np.asarray(np.where(confidence < 0.5, near, N_LEVELS - 1 - near))


def level_confidence(level: IntArray) -> FloatArray:
    """The confidence that represents each level.

    >>> level_confidence(np.array([0, 176129, N_LEVELS - 1]))
    array([0. , 0.5, 1. ])
    """
    low = _distance(np.minimum(level, N_LEVELS - 1 - level))
    return np.asarray(np.where(level <= _HALF, low, 1.0 - low))


def _distance_level(distance: FloatArray) -> IntArray:
    half = np.int64(1) << np.int64(_DROPPED - 1)
    short = ((distance.view(np.int64) + half) >> _DROPPED) - _ZEROTH
    even = np.rint(distance * _STEPS).astype(np.int64) - (_STEPS >> 8) + _EVEN
    return np.where(distance < 2.0**-8, np.maximum(short, 0), even)


def _distance(level: IntArray) -> FloatArray:
    short = ((level + _ZEROTH) << _DROPPED).view(np.float64)
    even = (level - _EVEN + (_STEPS >> 8)) / _STEPS
    return np.where(level < _EVEN, np.where(level > 0, short, 0.0), even)
