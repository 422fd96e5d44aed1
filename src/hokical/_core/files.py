"""Files that are written as a whole or not at all, and locks between processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows, where files are not locked
    fcntl = None  # type: ignore[assignment]


def printable(text: str) -> str:
    r"""The text with its control characters escaped, for names that a terminal must not obey.

    >>> print(printable("a\x1b[31m.npz"))
    a\x1b[31m.npz
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file so that a crash leaves either the old file or the new one."""
    with replace_file(path) as stream:
        stream.write(text.encode("utf-8"))


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream to a temporary file, which replaces the target when it is complete."""
    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
    try:
        with temporary.open("xb") as stream:
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o777)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise  # of another file, which is read meanwhile
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def lock_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Wait for a lock and hold it; it ends with the process at the latest. The file stays."""
    with open(path, "ab") as stream:
        if fcntl is not None:
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
