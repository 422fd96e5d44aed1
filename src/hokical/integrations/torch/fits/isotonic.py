"""Log-probabilities of all classes cut at the edges of an isotonic regression."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hokical.calibrators._isotonic import (
    Curve,
    KeyArray,
    Tally,
    count_rows,
    fit_curve,
    log_norms,
    own_keys,
    sum_hits,
)
from hokical.calibrators.irm import tally_all
from hokical.calibrators.irova_ts import fit_columns
from hokical.integrations.torch.fits.grouping import (
    counts_by,
    in_units,
    largest_by,
    sums_by,
    unit_of,
)
from hokical.integrations.torch.fits.likelihood import per_row
from hokical.integrations.torch.kernels.rows import CHUNK_SIZE
from hokical.integrations.torch.tensors import TensorLogits, to_device, to_host

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Numbers per entry that are alive while a chunk is cut.
_TEMPORARIES = 4


@count_rows.register
def _count_rows(
    logits: TensorLogits, labels: IntArray, weights: FloatArray | None
) -> tuple[TensorLogits, IntArray, FloatArray | None]:
    """The examples without those of weight 0; weights in whole units, see `grouping`."""
    if weights is None:
        return logits, labels, None
    if not weights.all():
        rows = np.flatnonzero(weights)
        logits, labels, weights = logits.take(rows), labels[rows], weights[rows]
    return logits, labels, in_units(weights, _unit(logits, weights))


def _unit(logits: TensorLogits, weights: FloatArray) -> float:
    return unit_of(float(weights.sum()) * logits.n_classes)


@log_norms.register
def _log_norms(logits: TensorLogits, temperature: float) -> FloatArray:
    def work(margins: Tensor) -> Tensor:
        # The label is a class at margin 0: taken off the sum as the 1 it is, nothing is lost.
        odds = torch.exp(margins / -temperature)
        odds.scatter_(1, margins.argmin(dim=1, keepdim=True), 0.0)
        return torch.log1p(odds.sum(dim=1))

    return to_host(per_row(logits, work))


@tally_all.register
def _tally_all(
    logits: TensorLogits, log_norm: FloatArray, weights: FloatArray | None, edges: KeyArray
) -> Tally:
    """All classes of all rows at the same edges."""
    closed = np.append(edges, np.float32(np.inf))  # so that there is at least one
    table, norm = to_device(closed, logits.device), to_device(log_norm, logits.device)
    total = Tally(np.zeros(edges.size + 1), np.full(edges.size + 1, -np.inf, np.float32))
    step = max(1, CHUNK_SIZE // (_TEMPORARIES * logits.n_classes))
    for start in range(0, logits.n_rows, step):
        rows = slice(start, start + step)
        keys = _keys(logits, norm, rows, slice(None), 1.0).reshape(-1)
        place = torch.searchsorted(table, keys, right=True)
        if weights is None:
            mass = counts_by(place, edges.size + 1)
        else:
            each = to_device(weights[rows], logits.device).repeat_interleave(logits.n_classes)
            mass = sums_by(place, each, edges.size + 1, _unit(logits, weights))
        total += Tally(to_host(mass), to_host(largest_by(place, keys, edges.size + 1)))
    return total


@fit_columns.register
def _fit_columns(
    logits: TensorLogits, labels: IntArray, weights: FloatArray | None, temperature: float
) -> list[Curve]:
    """One curve per class: each class has edges of its own, its true examples' keys."""
    norms = log_norms(logits, temperature)
    true_keys = own_keys(logits, norms, labels, temperature)
    by_class = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[by_class], np.arange(logits.n_classes + 1))
    ones = [
        sum_hits(true_keys[rows], None if weights is None else weights[rows])
        for rows in np.split(by_class, ends[1:-1])
    ]
    tallies = _column_tallies(logits, norms, weights, temperature, [edges for edges, _ in ones])
    return [
        fit_curve(edges, hits, counted)
        for (edges, hits), counted in zip(ones, tallies, strict=True)
    ]


def _column_tallies(
    logits: TensorLogits,
    norms: FloatArray,
    weights: FloatArray | None,
    temperature: float,
    edges: list[KeyArray],
) -> list[Tally]:
    """What lies between the edges of each class, some classes at a time."""
    norm = to_device(norms, logits.device)
    step = max(1, CHUNK_SIZE // (_TEMPORARIES * logits.n_rows))
    out: list[Tally] = []
    for start in range(0, logits.n_classes, step):
        some = edges[start : start + step]
        columns = slice(start, start + len(some))
        keys = _keys(logits, norm, slice(None), columns, temperature).T.contiguous()
        place, sizes = _places(keys, some)
        size = int(sizes.sum())
        if weights is None:
            mass = counts_by(place, size)
        else:
            each = to_device(weights, logits.device).repeat(len(some))
            mass = sums_by(place, each, size, _unit(logits, weights))
        last = largest_by(place, keys.reshape(-1), size)
        cuts = np.cumsum(sizes)[:-1]
        parts = zip(np.split(to_host(mass), cuts), np.split(to_host(last), cuts), strict=True)
        out += [Tally(*part) for part in parts]
    return out


def _places(keys: Tensor, edges: list[KeyArray]) -> tuple[Tensor, IntArray]:
    """Where keys (classes, n) fall, each class's places after those of the class before, flat.

    And how many places each class has: one more than edges.
    """
    sizes = np.array([part.size + 1 for part in edges])
    table = np.full((len(edges), int(sizes.max())), np.inf, np.float32)
    for row, part in zip(table, edges, strict=True):
        row[: part.size] = part
    first = to_device(np.cumsum(sizes) - sizes, keys.device)
    place = torch.searchsorted(to_device(table, keys.device), keys, right=True)
    return (place + first[:, None]).reshape(-1), sizes


def _keys(
    logits: TensorLogits, norm: Tensor, rows: slice, columns: slice, temperature: float
) -> Tensor:
    """Log-probabilities (rows, columns) as they are compared, float32."""
    margins = logits.device_top[rows, None] - logits.values[rows, columns].double()
    return -(margins / temperature + norm[rows, None]).float()
