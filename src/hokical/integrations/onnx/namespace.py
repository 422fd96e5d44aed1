"""The array API while a graph is traced (ndonnx): shapes are known but for the batch,
values not.

A rule's answer written against the array API becomes ONNX operators by being computed
with them.

Constants stay NumPy arrays until they meet a traced one, so that what is made of them
alone leaves no nodes. And ndonnx guards `max`, `matmul` and the like with branches for
arrays without elements, and searches by comparing everything with everything. Here they
are plain operators: onnxruntime handles an empty batch, and no axis but the batch is
ever empty. All else is ndonnx's own.
"""

import sys
from collections.abc import Callable
from functools import cache, partial
from inspect import isfunction
from math import inf
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import AnyArray, Array, Backend, FloatArray, Namespace
from hokical._core.runtime import import_optional

ndx = import_optional("ndonnx", "onnx")
op = import_optional("spox.opset.ai.onnx.v21", "onnx")


#: Up to this many numbers are compared one by one.
_FEW = 64


@cache
def __getattr__(name: str) -> Any:
    found = getattr(ndx, name)
    if not isfunction(found):
        return found

    def call(*args: Any, **options: Any) -> Any:
        named = {name: _as_traced(value) for name, value in options.items()}
        return found(*map(_as_traced, args), **named)

    return call


def _as_traced(given: Any) -> Any:
    """NumPy arrays, those in lists too, as constants of the graph."""
    if isinstance(given, (np.ndarray, np.generic)):
        return ndx.asarray(given)
    return (
        type(given)(map(_as_traced, given))
        if isinstance(given, (list, tuple))
        else given
    )


def _var(x: Array) -> Any:
    return _as_traced(x).unwrap_spox()


def _reduce(
    reduce: Callable[..., Any], x: Array, /, *, axis: int, keepdims: bool = False
) -> Array:
    """Reduced along an axis; with NaN among the numbers to anything."""
    # Axes counted from the end give a wrong shape for an empty batch in onnxruntime.
    axes = op.const(np.array([axis % x.ndim]))
    return ndx.asarray(reduce(_var(x), axes, keepdims=keepdims))


max = partial(_reduce, op.reduce_max)
min = partial(_reduce, op.reduce_min)


def _holds(
    reduce: Callable[..., Any], x: Array, /, *, axis: int, keepdims: bool = False
) -> Array:
    """Whether one, or every one, along an axis holds."""
    return (
        reduce(ndx.astype(_as_traced(x), ndx.int32), axis=axis, keepdims=keepdims) == 1
    )


any = partial(_holds, max)
all = partial(_holds, min)


def isfinite(x: Array, /) -> Array:
    return ndx.abs(_as_traced(x)) < inf


def matmul(x1: Array, x2: Array, /) -> Array:
    return ndx.asarray(op.matmul(_var(x1), _var(x2)))


def take(x: Array, indices: Array, /, *, axis: int = 0) -> Array:
    return ndx.asarray(op.gather(_var(x), _var(indices), axis=axis))


def _top_k(
    which: int,
    x: Array,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
) -> Array:
    """The values along an axis of known length, or their places; equals as they
    come.
    """
    count = op.const(np.array([x.shape[axis]]))
    found = op.top_k(_var(x), count, axis=axis % x.ndim, largest=int(descending))
    return ndx.asarray(found[which])


sort = partial(_top_k, 0)
argsort = partial(_top_k, 1)


def searchsorted(
    x1: Array,
    x2: Array,
    /,
    *,
    side: Literal["left", "right"] = "left",
    sorter: None = None,
) -> Array:
    """How many of the rising constants x1 (k,) lie below x2, or at x2 too for the right
    side.

    Many are searched by bisection: steps are powers of two, the same for all, so there
    is no loop.
    """

    def is_reached(edge: Array) -> Array:
        return (
            _as_traced(edge) <= values if side == "right" else _as_traced(edge) < values
        )

    edges: FloatArray = x1 if isinstance(x1, np.ndarray) else x1.unwrap_numpy()
    values = _as_traced(x2)
    if edges.size <= _FEW:
        values = values[..., None]
        return ndx.sum(ndx.astype(is_reached(edges), ndx.int64), axis=-1)
    step = 1 << (edges.size.bit_length() - 1)
    padded = np.full(2 * step, inf)
    padded[1 : 1 + edges.size] = edges
    found = ndx.astype(is_reached(padded[step]), ndx.int64) * step
    while step > 1:
        step //= 2
        trial = found + step
        found = ndx.where(is_reached(take(padded, trial)), trial, found)
    return ndx.minimum(found, _as_traced(np.array(edges.size)))


class OnnxBackend(Backend):
    """Everything is traced at once, in blocks of all rows."""

    def namespace(self, array: Array) -> Namespace:
        return sys.modules[__name__]

    def is_traced(self, array: Array) -> bool:
        return True

    def from_host(self, array: AnyArray, like: Array) -> Array:
        """The array itself: it becomes a constant of the graph when a traced one
        meets it.
        """
        return array

    def to_host(self, array: Array) -> AnyArray:
        """The numbers of a constant; others are not known."""
        return (
            array if isinstance(array, np.ndarray) else np.asarray(array.unwrap_numpy())
        )


BACKEND = OnnxBackend()
