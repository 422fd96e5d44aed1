"""Sums over classes that log-loss fits are made of, for every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hokical.calibrators.temps import uneven_rows
from hokical.integrations.torch.kernels.rows import row_chunks
from hokical.integrations.torch.tensors import TensorLogits, to_host
from hokical.likelihood import FAR, FARTHEST, Examples, mean_margins_of, moment_sums_of

FloatArray = NDArray[np.float64]

#: Temporaries of about this many (rows, classes) are alive at a time.
_TEMPORARIES = 4


def per_row(logits: TensorLogits, work: Callable[[Tensor], Tensor]) -> Tensor:
    """`work` of the margins (rows, classes) float64 of each chunk, its answers (..., rows) joined.

    Chunks bound the memory; every row is computed by itself, so they change nothing.
    """
    parts = [work(margins) for margins, _ in margin_chunks(logits)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def margin_chunks(logits: TensorLogits) -> Iterator[tuple[Tensor, Tensor]]:
    """Margins (rows, classes) float64 and logits of one chunk after the other."""
    start = 0
    for chunk in row_chunks(logits.values, _TEMPORARIES * logits.n_columns):
        top = logits.device_top[start : start + chunk.shape[0], None]
        yield top - chunk.double(), chunk
        start += chunk.shape[0]


def power_sums(term: Tensor, x: Tensor, others: list[Tensor]) -> Tensor:
    """sum_i x_i^r term_i f_i for r = 0, 1, 2 and f = 1, then each of the others, (F, 3, rows)."""
    out = []
    for power in range(3):
        term = term * x if power else term
        out.append([term.sum(dim=1), *((term * other).sum(dim=1) for other in others)])
    return torch.stack([torch.stack(column) for column in zip(*out, strict=True)])


@mean_margins_of.register
def _mean_margins(logits: TensorLogits) -> FloatArray:
    means = []
    for margins, values in margin_chunks(logits):
        possible = values > -torch.inf
        cut = margins.clamp_(max=FARTHEST / logits.n_columns)  # the sum stays finite
        means.append(cut.where(possible, 0.0).sum(dim=1) / possible.sum(dim=1))
    return to_host(torch.cat(means))


@moment_sums_of.register
def _moment_sums(logits: TensorLogits, examples: Examples, rows: slice, beta: float) -> FloatArray:
    def work(margins: Tensor) -> Tensor:
        x = (margins * beta).clamp(max=FAR)
        return power_sums(torch.exp(-x), x, [])[0]

    return to_host(per_row(part_of(logits, rows), work))


@uneven_rows.register
def _uneven_rows(logits: TensorLogits) -> NDArray[np.bool_]:
    def work(margins: Tensor) -> Tensor:
        return ((margins > 0.0) & (margins < torch.inf)).any(dim=1)

    return to_host(per_row(logits, work))


def part_of(logits: TensorLogits, rows: slice) -> TensorLogits:
    """All rows as they are, so that what is known of them is not computed again."""
    whole = (rows.start or 0) == 0 and rows.stop in (None, logits.n_rows)
    return logits if whole else logits.take(rows)
