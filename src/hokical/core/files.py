"""Atomic writing of files."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file so that a crash leaves either the old file or the new one."""
    with replace_file(path) as stream:
        stream.write(text.encode("utf-8"))


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream to a temporary file, which replaces the target when it is complete."""
    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
    try:
        with _naming(path), open(temporary, "xb") as stream:
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o777)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        with _naming(path):
            os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Report the user's path in OS errors, not that of the temporary file."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
