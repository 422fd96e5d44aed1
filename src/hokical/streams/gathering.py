"""All examples of a stream in memory, for the methods that need them there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._tensors import is_tensor
from hokical.logits import Logits
from hokical.streams.checking import Block, FloatArray, IntArray
from hokical.streams.chunks import joined_rows

_NO_ROWS = "a source must have at least one row; got none."
#: Maximum, label and weight of a row.
_BYTES_BESIDE = 24


def gathered(
    blocks: Iterator[Block], n_rows: int | None, who: str
) -> tuple[Logits, IntArray, FloatArray | None]:
    """Logits, labels and weights of all blocks, if memory allows.

    Where the number of rows is known, logits are there once; else twice while they are joined.
    """
    beside: list[tuple[Any, IntArray, FloatArray | None]] = []

    def logits() -> Iterator[NDArray[Any]]:
        size = 0
        for block in blocks:
            values = block.logits.values
            per_row = block.logits.n_classes * values.dtype.itemsize + _BYTES_BESIDE
            size += block.n_rows * per_row
            if n_rows is None:  # what is held already takes its room once more
                check_room(size if beside else 2 * size, who)
            elif not beside:
                check_room(n_rows * per_row, who)
            beside.append((block.logits.top, block.labels, block.weights))
            yield values

    values = stacked(logits(), n_rows)
    top = np.concatenate([part[0] for part in beside])
    labels = np.concatenate([part[1] for part in beside])
    weights = [part[2] for part in beside if part[2] is not None]
    return Logits(values, top), labels, np.concatenate(weights) if weights else None


def stacked(parts: Iterable[Any], n_rows: int | None) -> Any:
    """Rows one below the other, tensors on their device; in place if their number is known."""
    if n_rows is not None:
        return _filled(parts, n_rows)
    held = list(parts)
    if not held:
        raise ValueError(_NO_ROWS)
    return joined_rows(held)


def _filled(parts: Iterable[Any], n_rows: int) -> Any:
    whole, rows = None, 0
    for part in parts:
        whole = _room_for(part, n_rows) if whole is None else _as_wide(whole, part)
        stop = rows + part.shape[0]
        if stop <= n_rows:
            whole[rows:stop] = part
        rows = stop
    if whole is None:
        raise ValueError(_NO_ROWS)
    if rows != n_rows:
        raise ValueError(
            f"a source must give the same rows in every pass; got {rows}, expected {n_rows}."
        )
    return whole


def _room_for(part: Any, n_rows: int) -> Any:
    shape = (n_rows, *part.shape[1:])
    return part.new_empty(shape) if is_tensor(part) else np.empty(shape, part.dtype)


def _as_wide(whole: Any, part: Any) -> Any:
    """The array with a type that holds both; files of a folder may differ."""
    if is_tensor(whole) or whole.dtype == part.dtype:
        return whole
    return whole.astype(np.promote_types(whole.dtype, part.dtype), copy=False)


def check_room(needed: int, who: str, what: str = "all logits") -> None:
    """Raise MemoryError with a word of advice where so many bytes are not to be had."""
    free = available_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"{who} needs {what} in memory, about {needed / 1e9:.1f} GB more, and "
            f"{free / 1e9:.1f} GB are free. Give fewer rows, or use a method that streams: hoki, "
            "temps, vecs, ets."
        )


def available_memory() -> int | None:
    """Bytes that can be had without swapping, or None where the system does not say.

    A container may be allowed less than the machine has.
    """
    free = [_machine_memory(), _container_memory()]
    return min((size for size in free if size is not None), default=None)


def _machine_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None


def _container_memory() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (
            int((folder / name).read_text()) for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # no such file, or no limit ("max")
        return None
    return max(limit - used, 0)
