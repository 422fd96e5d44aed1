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


#: `searchsorted` compares with every edge up to this number, and bisects more.
_MAX_COMPARED = 64


@cache
def __getattr__(name: str) -> Any:
    attribute = getattr(ndx, name)
    if not isfunction(attribute):
        return attribute

    def call(*args: Any, **options: Any) -> Any:
        named = {key: _as_traced(value) for key, value in options.items()}
        return attribute(*map(_as_traced, args), **named)

    return call


def _as_traced(value: Any) -> Any:
    """NumPy arrays, those in lists too, as constants of the graph."""
    if isinstance(value, (np.ndarray, np.generic)):
        return ndx.asarray(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_traced, value))
    return value


def _var(x: Array) -> Any:
    return _as_traced(x).unwrap_spox()


def _reduce(
    reduce: Callable[..., Any], x: Array, /, *, axis: int, keepdims: bool = False
) -> Array:
    """Reduced along an axis; the result is undefined where there is a NaN."""
    # Axes counted from the end give a wrong shape for an empty batch in onnxruntime.
    axes = op.const(np.array([axis % x.ndim]))
    return ndx.asarray(reduce(_var(x), axes, keepdims=keepdims))


max = partial(_reduce, op.reduce_max)
min = partial(_reduce, op.reduce_min)


def _holds(
    reduce: Callable[..., Any], x: Array, /, *, axis: int, keepdims: bool = False
) -> Array:
    """Whether any, or all, conditions along an axis hold."""
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
    output: int,
    x: Array,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
) -> Array:
    """The sorted values along an axis of known length (output 0), or their indices (1).

    Equal values keep their order.
    """
    count = op.const(np.array([x.shape[axis]]))
    outputs = op.top_k(_var(x), count, axis=axis % x.ndim, largest=int(descending))
    return ndx.asarray(outputs[output])


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
    """The number of rising constants x1 (k,) below x2, or at x2 too for the right side.

    Bisection takes the same steps, powers of two, for all numbers: the graph has no
    loop.
    """

    def is_reached(edge: Array) -> Array:
        traced = _as_traced(edge)
        return traced <= values if side == "right" else traced < values

    edges: FloatArray = x1 if isinstance(x1, np.ndarray) else x1.unwrap_numpy()
    values = _as_traced(x2)
    if edges.size <= _MAX_COMPARED:
        values = values[..., None]
        return ndx.sum(ndx.astype(is_reached(edges), ndx.int64), axis=-1)
    step = 1 << (edges.size.bit_length() - 1)
    padded = np.full(2 * step, inf)
    padded[1 : 1 + edges.size] = edges
    index = ndx.astype(is_reached(padded[step]), ndx.int64) * step
    while step > 1:
        step //= 2
        trial = index + step
        index = ndx.where(is_reached(take(padded, trial)), trial, index)
    return ndx.minimum(index, _as_traced(np.array(edges.size)))


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
        """The numbers of a constant; those of other arrays are unknown."""
        return (
            array if isinstance(array, np.ndarray) else np.asarray(array.unwrap_numpy())
        )


BACKEND = OnnxBackend()
