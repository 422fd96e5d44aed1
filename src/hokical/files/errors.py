"""The one exception for files that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataFileError(ValueError):
    """A file that cannot be used: which, what was expected, what was found, what to do."""

    def __init__(self, path: Path, problem: str, remedy: str = "") -> None:
        self.path, self._said = path, (path, problem, remedy)
        super().__init__(_one_line(f"{path}: {problem} {remedy}"))

    def __reduce__(self) -> tuple[type[DataFileError], tuple[Path, str, str]]:
        """So that it reaches the reader from another process."""
        return type(self), self._said


@contextmanager
def damage_reported(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises on damaged bytes into a DataFileError.

    Parsers raise anything on bytes that are not theirs (ValueError, KeyError, zlib.error,
    MemoryError for an absurd shape), so everything is caught, here and nowhere else.
    """
    try:
        yield
    except DataFileError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DataFileError(
            path,
            f"expected {kind}; found a damaged or truncated one: {reason.rstrip('.')}.",
            "Copy or save the file again.",
        ) from error


def _one_line(text: str) -> str:
    return " ".join(text.split())
