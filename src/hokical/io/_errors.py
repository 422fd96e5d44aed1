"""The one exception for files that cannot be used."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hokical._core.files import printable


class DataFileError(ValueError):
    """A file that cannot be used: which, what was expected, what was found, what to do."""

    def __init__(self, path: Path, problem: str, remedy: str = "") -> None:
        self.path, self._said = path, (path, problem, remedy)
        super().__init__(printable(" ".join(f"{path}: {problem} {remedy}".split())))

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it can be sent from another process."""
        return type(self), self._said


@contextmanager
def report_damage(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises on damaged bytes into a DataFileError.

    Parsers raise anything on bytes they do not understand (ValueError, KeyError, zlib.error), so
    everything is caught, here and nowhere else. Lack of memory or of rights is not damage.
    """
    try:
        yield
    except (DataFileError, MemoryError):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            raise DataFileError(path, f"cannot be read: {error.strerror}.") from error
        raise DataFileError(
            path,
            f"expected {kind}; found a damaged or truncated one: {reason.rstrip('.')}.",
            "Copy or save the file again.",
        ) from error


def count_from(first_row: int) -> Callable[[int], str]:
    """The place of a row of a chunk, in words."""
    return lambda row: f"row {first_row + row}"


@contextmanager
def report_file(path: Path | None, place: Callable[[int], str] = "row {}".format) -> Iterator[None]:
    """Errors about numbers name the file, if there is one; `place` says where in it a row is."""
    try:
        yield
    except DataFileError:
        raise
    except (TypeError, ValueError) as error:
        text = re.sub(r"\b[Rr]ow (\d+)", lambda found: place(int(found[1])), str(error))
        raise (type(error)(text) if path is None else DataFileError(path, text)) from error
