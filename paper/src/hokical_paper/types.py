"""Array types for signatures."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: An array of any library, and its namespace of the array API standard.
Array = Any
Namespace = Any

AnyArray = NDArray[Any]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
