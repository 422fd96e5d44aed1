"""Available memory, checked before large data is read."""

from pathlib import Path


def check_memory(needed: int, who: str, what: str = "all logits") -> None:
    """Raise MemoryError with advice if the memory is insufficient."""
    free = available_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"{who} needs {what} in memory, about {needed / 1e9:.1f} GB more, and "
            f"{free / 1e9:.1f} GB are free. Give fewer rows, or use a method that streams: hoki, "
            "temps, vecs, ets."
        )


def available_memory() -> int | None:
    """Bytes available without swapping, or None if the system does not tell.

    A container may have a lower limit than the machine.
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
