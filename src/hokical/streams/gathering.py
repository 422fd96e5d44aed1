"""All examples of a stream in memory, for the methods that need them there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hokical.logits import Logits
from hokical.streams.checking import Block, FloatArray, IntArray

#: Maximum, label and weight of a row.
_BYTES_BESIDE = 24


def gathered(
    blocks: Iterator[Block], n_rows: int | None, who: str
) -> tuple[Logits, IntArray, FloatArray | None]:
    """Logits, labels and weights of all blocks, if memory allows."""
    held: list[Block] = []
    size = 0
    for block in blocks:
        per_row = block.logits.n_classes * block.logits.values.dtype.itemsize + _BYTES_BESIDE
        size += block.n_rows * per_row
        # Parts are joined into a new array, so at the end everything is there twice.
        more = n_rows * per_row if n_rows is not None and not held else 0
        check_room(2 * max(more, size) - (size if held else 0), who)
        held.append(block)
    if not held:
        raise ValueError("a source must have at least one row; got none.")
    values = np.concatenate([block.logits.values for block in held])
    top = np.concatenate([block.logits.top for block in held])
    labels = np.concatenate([block.labels for block in held])
    weights = [block.weights for block in held if block.weights is not None]
    return Logits(values, top), labels, np.concatenate(weights) if weights else None


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
