"""Files that are written as a whole or not at all, and locks between processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
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
    """A stream to a temporary file, which replaces the target when it is complete.

    What writers that were killed have left beside the target is removed.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    _remove_leftovers(target)
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
    try:
        with _open_locked(temporary) as stream:
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o777)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            if fcntl is not None:  # while it is locked
                os.replace(temporary, target)
        if fcntl is None:  # Windows replaces closed files alone
            os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise  # of another file, which is read meanwhile
        raise type(error)(error.errno, error.strerror, str(path)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _open_locked(path: Path) -> IO[bytes]:
    """A new file that `_remove_leftovers` of another process leaves alone."""
    while True:
        stream = path.open("xb")
        _lock(stream, wait=True)
        if _is_at(stream, path):
            return stream
        stream.close()  # removed before it was locked


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of the target whose lock nobody holds any more."""
    for path in target.parent.glob(f".{escape(target.name)}.{12 * '[0-9a-f]'}"):
        with suppress(OSError), path.open("rb") as stream:
            if _lock(stream, wait=False):
                path.unlink()


def _lock(stream: IO[bytes], *, wait: bool) -> bool:
    """Whether the file is locked now; on Windows, where open files cannot be removed, always."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another process has the lock, or a file system without locks
        return False
    return True


@contextmanager
def lock_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Wait for a lock and hold it; it ends with the process at the latest."""
    while True:
        with open(path, "ab") as stream:
            _lock(stream, wait=True)
            if not _is_at(stream, path):  # who had the lock has removed the file
                continue
            try:
                yield
            finally:
                with suppress(OSError):
                    os.unlink(path)
            return


def _is_at(stream: IO[bytes], path: str | os.PathLike[str]) -> bool:
    """Whether an open file is still the one of that path."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
