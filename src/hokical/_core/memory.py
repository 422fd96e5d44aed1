"""Available memory, checked before large data is read."""

from contextlib import suppress
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def check_memory(needed: int, caller: str, what: str = "all logits") -> None:
    """Raise MemoryError with advice if the memory is insufficient."""
    free = available_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"{caller} needs {what} in memory, about {needed / 1e9:.1f} GB more, and "
            f"{free / 1e9:.1f} GB are free. Give fewer rows, or use a method that streams: hoki, "
            "temps, vecs, ets, auto."
        )


def available_memory() -> int | None:
    """Bytes available without swapping, or None if the system does not tell.

    A container may have a lower limit than the machine.
    """
    free: list[int] = []
    with suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):  # no such file, or no limit ("max")
        limit, used = (
            int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current")
        )
        free.append(max(limit - used, 0))
    return min(free, default=None)
