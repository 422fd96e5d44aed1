"""What a fitted calibrator says of checked logits, wherever these are."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.logits import Logits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@singledispatch
def labels_of(logits: Logits, calibrator: Any) -> IntArray:
    """The predicted labels, (n,)."""
    return np.asarray(calibrator._labels(logits))


@singledispatch
def confidence_of(logits: Logits, calibrator: Any) -> FloatArray:
    """The chance that each predicted label is right, (n,)."""
    return np.asarray(calibrator._confidence(logits))
