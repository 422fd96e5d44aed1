"""A small way to write ONNX graphs: values with operators, and a graph that collects the nodes.

Only operators of the default domain are used, in forms that opsets 13 and later all have. Numbers
per row are columns (n, 1), so that they meet matrices (n, classes) without further ado.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hokical.integrations.onnx.package import onnx_module

#: From here on `axes` of these reductions is an input, as it always is for ReduceSum.
_AXES_ARE_INPUTS = 18


class Value:
    """A tensor of the graph. Floats and float arrays that meet it get the graph's precision."""

    __array_ufunc__ = None  # an array on the left leaves the operation to us

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Operand) -> Value:
        return self.graph.op("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.graph.op("Add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.graph.op("Sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.op("Sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.graph.op("Mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.graph.op("Mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph.op("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.graph.op("Div", other, self)

    def __matmul__(self, other: Operand) -> Value:
        return self.graph.op("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)

    def __lt__(self, other: Any) -> Value:
        return self.graph.op("Less", self, other)

    def __le__(self, other: Any) -> Value:
        return self.graph.op("LessOrEqual", self, other)

    def __gt__(self, other: Any) -> Value:
        return self.graph.op("Greater", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.graph.op("GreaterOrEqual", self, other)

    def __and__(self, other: Operand) -> Value:
        return self.graph.op("And", self, other)

    def __invert__(self) -> Value:
        return self.graph.op("Not", self)

    def equals(self, other: Operand) -> Value:
        """Where two values are the same."""
        return self.graph.op("Equal", self, other)

    def exp(self) -> Value:
        return self.graph.op("Exp", self)

    def log(self) -> Value:
        return self.graph.op("Log", self)

    def sigmoid(self) -> Value:
        return self.graph.op("Sigmoid", self)

    def rounded(self) -> Value:
        """To the nearest integer, halves to the even one, as `numpy.rint`."""
        return self.graph.op("Round", self)

    def at_least(self, least: Operand) -> Value:
        return self.graph.op("Max", self, least)

    def at_most(self, most: Operand) -> Value:
        return self.graph.op("Min", self, most)

    def clipped(self, least: Operand, most: Operand) -> Value:
        return self.at_least(least).at_most(most)

    def where(self, yes: Operand, no: Operand) -> Value:
        """`yes` where this truth value holds, else `no`."""
        return self.graph.op("Where", self, yes, no)

    def sum(self) -> Value:
        """Over the classes, (n, 1)."""
        return self.graph.reduced("ReduceSum", self)

    def sum_of_squares(self) -> Value:
        return self.graph.reduced("ReduceSumSquare", self)

    def max(self) -> Value:
        return self.graph.reduced("ReduceMax", self)

    def min(self) -> Value:
        return self.graph.reduced("ReduceMin", self)

    def prod(self) -> Value:
        return self.graph.reduced("ReduceProd", self)

    def argmax(self, axis: int = 1) -> Value:
        """The first maximum along an axis, int64; the axis is kept with length 1.

        Not to be given from the end: onnxruntime gets the shape of empty batches wrong then.
        """
        return self.graph.op("ArgMax", self, axis=axis, keepdims=1)

    def count(self) -> Value:
        """How many of a row's truth values hold, (n, 1) int64."""
        return self.cast(np.int64).sum()

    def cast(self, dtype: DTypeLike) -> Value:
        return self.graph.op("Cast", self, to=self.graph.type_of(dtype))

    def as_float(self) -> Value:
        """In the graph's precision."""
        return self.cast(self.graph.precision)

    def smallest(self, count: int) -> Value:
        """The `count` smallest of each row, rising, (n, count)."""
        return self.graph.op(
            "TopK", self, np.array([count]), axis=1, largest=0, sorted=1, n_outputs=2
        )

    def columns(self, start: int, stop: int) -> Value:
        """Some of the columns."""
        return self.graph.op("Slice", self, *(np.array([place]) for place in (start, stop, 1)))

    def squeezed(self) -> Value:
        """(n,) from (n, 1)."""
        return self.graph.op("Squeeze", self, np.array([1]))


Operand = Value | float | NDArray[Any]


class Graph:
    """The nodes and constants of a graph in the making.

    Parameters
    ----------
    opset : int
        Version of the default domain's operators.
    precision : numpy dtype
        Of the floats that are computed with.
    prefix : str
        Goes before every name, so that nothing clashes in a graph with other nodes.
    """

    def __init__(self, *, opset: int, precision: DTypeLike, prefix: str = "") -> None:
        self.opset, self.precision, self.prefix = opset, np.dtype(precision), prefix
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def value(self, name: str) -> Value:
        """An input, or anything else that has a name already."""
        return Value(self, name)

    def constant(self, data: ArrayLike, dtype: DTypeLike | None = None) -> Value:
        """A stored array; floats in the graph's precision unless `dtype` says otherwise."""
        array = np.asarray(data)
        if dtype is not None:
            array = array.astype(dtype)
        elif array.dtype.kind == "f":
            array = array.astype(self.precision)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"{self.prefix}constant_{len(self._constants)}"
            tensor = onnx_module("onnx.numpy_helper").from_array(np.ascontiguousarray(array), name)
            tensor.dims[:] = array.shape  # a scalar stays one
            self.initializers.append(tensor)
            self._constants[key] = self.value(name)
        return self._constants[key]

    def op(self, kind: str, *inputs: Operand, n_outputs: int = 1, **attributes: Any) -> Value:
        """A node of the given kind; its first output."""
        names = [self._named(item) for item in inputs]
        place = f"{self.prefix}{kind}_{len(self.nodes)}"
        outputs = [place] + [f"{place}_{k}" for k in range(1, n_outputs)]
        make_node = onnx_module("onnx.helper").make_node
        self.nodes.append(make_node(kind, names, outputs, name=place, **attributes))
        return self.value(place)

    def reduced(self, kind: str, value: Value) -> Value:
        """One number per row, (n, 1)."""
        if kind == "ReduceSum" or self.opset >= _AXES_ARE_INPUTS:
            return self.op(kind, value, np.array([1]), keepdims=1)
        return self.op(kind, value, axes=[1], keepdims=1)

    def concat(self, *columns: Value) -> Value:
        """Side by side, (n, all columns)."""
        return self.op("Concat", *columns, axis=1)

    def take(self, table: ArrayLike | Value, index: Value) -> Value:
        """table[index] for a table (k,) and an index of any shape."""
        values = table if isinstance(table, Value) else self.constant(table)
        return self.op("Gather", values, index, axis=0)

    def rename(self, value: Value, name: str) -> None:
        """Give a value the name by which users of the graph know it."""
        self.nodes.append(onnx_module("onnx.helper").make_node("Identity", [value.name], [name]))

    def type_of(self, dtype: DTypeLike) -> int:
        """ONNX's number for a dtype."""
        return int(onnx_module("onnx.helper").np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def _named(self, item: Operand) -> str:
        return item.name if isinstance(item, Value) else self.constant(item).name
