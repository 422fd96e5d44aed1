"""What every kernel asks of a row: its label, its top, its margins; and rows in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

#: About how many numbers a temporary of a chunk may have.
CHUNK_SIZE = 1 << 24

#: Margins are cut here before they are divided or differentiated: as good as infinite, but
#: infinity times a weight of 0 would make the gradient NaN.
_FARTHEST = 1e150


def labels(values: Tensor) -> Tensor:
    """The classifier's own label per row, (n,) int64: the first maximum."""
    return torch.argmax(values, dim=1)


def top(values: Tensor) -> Tensor:
    """The largest logit of each row, (n,) float64; its gradient goes to the label alone."""
    if values.requires_grad:
        return values.gather(1, labels(values)[:, None])[:, 0].double()
    return values.amax(dim=1).double()


def margins(values: Tensor) -> Tensor:
    """How far each logit lies below its row's top, (n, classes) float64, inf if impossible."""
    return top(values)[:, None] - values.double()


def finite_margins(values: Tensor) -> Tensor:
    """The same, cut where it is as good as infinite."""
    return margins(values).clamp(max=_FARTHEST)


def runner_up_gaps(values: Tensor) -> Tensor:
    """How far the second largest logit lies below the largest, (n,) float64."""
    best = values.topk(2, dim=1).values.double()
    return best[:, 0] - best[:, 1]


def possible_counts(values: Tensor) -> Tensor:
    """How many classes of each row are possible (above -inf), (n,) int64."""
    return by_chunks(lambda chunk: (chunk > -torch.inf).sum(dim=1), values, values.shape[1])


def row_chunks(values: Tensor, floats_per_row: int) -> Iterator[Tensor]:
    """The rows in chunks whose temporaries, of so many numbers per row, stay bounded.

    All at once while a graph is being captured, where the number of rows may be unknown.
    """
    if torch.compiler.is_compiling():
        yield values
        return
    step = max(1, CHUNK_SIZE // max(1, floats_per_row))
    for start in range(0, max(1, values.shape[0]), step):
        yield values[start : start + step]


def by_chunks(work: Callable[[Tensor], Tensor], values: Tensor, floats_per_row: int) -> Tensor:
    """`work` on each chunk, its results one after the other."""
    parts = [work(chunk) for chunk in row_chunks(values, floats_per_row)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def at_once(chunk: Tensor, captured: int) -> int:
    """How many copies of a chunk a temporary may hold; `captured` while a graph is captured."""
    if torch.compiler.is_compiling():
        return captured
    return max(1, CHUNK_SIZE // max(1, chunk.numel()))
