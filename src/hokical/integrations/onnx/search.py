"""Finding the place of numbers among sorted ones, and functions that are linear between knots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.integrations.onnx.builder import Graph, Value

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Up to this many edges are compared one by one.
_FEW = 64


def place(graph: Graph, edges: FloatArray, x: Value) -> Value:
    """How many of the rising edges (k,) are at most x (n, 1): `searchsorted(..., side="right")`."""
    if edges.size == 0:
        return (x < x).count()
    if edges.size <= _FEW:
        return (x >= edges[None, :]).count()
    first, last = np.array([0]), np.array([edges.size - 1])
    found = last_at_most(graph, graph.constant(edges), first, last, x)
    return (x < float(edges[0])).where(np.array(0), found + np.array(1))


def interpolate(
    graph: Graph, knots: FloatArray, values: FloatArray, offsets: IntArray, x: Value
) -> Value:
    """numpy.interp of x (n, columns), by a function for each column or one for all.

    Function c has the knots and values from offsets[c] to offsets[c + 1].
    """
    first, last = offsets[:-1], offsets[1:] - 1
    heights, places = graph.constant(values), graph.constant(knots)
    x = x.clipped(knots[first], knots[last])
    left = last_at_most(graph, places, first, last, x)
    right = (left + np.array(1)).at_most(last)
    x0, y0 = graph.take(places, left), graph.take(heights, left)
    run = graph.take(places, right) - x0
    rise = graph.take(heights, right) - y0
    flat = run.equals(0.0)
    return y0 + rise * flat.where(0.0, (x - x0) / flat.where(1.0, run))


def last_at_most(graph: Graph, knots: Value, first: IntArray, last: IntArray, x: Value) -> Value:
    """Index of the last knot at most x between `first` and `last` (columns,), by bisection.

    `first` where none is. Steps are powers of two, the same for all, so there is no loop.
    """
    most = int((last - first).max())
    found = (x < x).cast(np.int64) + first
    step = 1 << max(most.bit_length() - 1, 0)
    while step and most:
        trial = (found + np.array(step)).at_most(last)
        found = (graph.take(knots, trial) <= x).where(trial, found)
        step >>= 1
    return found
