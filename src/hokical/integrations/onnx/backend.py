"""Arrays of a graph that is being traced (ndonnx): shapes are known but for the batch, values not.

A rule's answer written against the array API becomes ONNX operators by being computed with them.
"""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import Array, Backend, Namespace
from hokical._core.lazy import import_optional

#: Imports a module of the extra `onnx`.
onnx_module = partial(import_optional, extra="onnx")


class OnnxBackend(Backend):
    """Everything is traced at once, in blocks of all rows."""

    def namespace(self, array: Array) -> Namespace:
        return import_module("hokical.integrations.onnx.namespace")

    def is_traced(self, array: Array) -> bool:
        return True

    def from_host(self, array: NDArray[Any], like: Array) -> Array:
        """The array itself: it becomes a constant of the graph when a traced one meets it."""
        return array

    def to_host(self, array: Array) -> NDArray[Any]:
        """The numbers of a constant; others are not known."""
        return array if isinstance(array, np.ndarray) else np.asarray(array.unwrap_numpy())


BACKEND = OnnxBackend()
