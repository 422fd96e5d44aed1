"""Files that are written as a whole or not at all, and locks between processes."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows, where files are not locked, and leftovers stay
    fcntl = None  # type: ignore[assignment]

_SUFFIX_LENGTH = 12


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

    Temporary files of the same target that a killed process left behind are removed.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = target.with_name(f".{target.name}.{os.urandom(_SUFFIX_LENGTH // 2).hex()}")
    remove_leftovers(target.parent, glob.escape(target.name))
    try:
        with _name_errors(path, temporary):
            with _open_locked(temporary, "xb") as stream:
                if target.exists():
                    os.chmod(temporary, target.stat().st_mode & 0o777)
                yield stream
                sync(stream)
                if fcntl is not None:  # while locked, so that nobody takes it for a leftover
                    os.replace(temporary, target)
            if fcntl is None:
                os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync(stream: IO[bytes]) -> None:
    """Write what is buffered to the disk."""
    stream.flush()
    os.fsync(stream.fileno())


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove temporary files of `replace_file` whose process was killed."""
    for path in folder.glob(f".{pattern}.{'[0-9a-f]' * _SUFFIX_LENGTH}"):
        with suppress(OSError), path.open("r+b") as stream:
            _lock(stream, wait=False)
            if _is_at(stream, path):  # another may have removed it, and its writer begun again
                path.unlink()


@contextmanager
def lock_file(path: str | os.PathLike[str], *, wait: bool = False) -> Iterator[None]:
    """Hold a lock, which ends with the process at the latest.

    If another process or thread has it: wait, or raise BlockingIOError.
    """
    place = Path(path)
    with _open_locked(place, "ab", wait):
        try:
            yield
        finally:
            with suppress(OSError):
                place.unlink()


def append_line(path: str | os.PathLike[str], line: str) -> None:
    """Append a line to a text file: all of it or, if the disk is full, nothing.

    A line that a crash has cut short is ended first. Lines of several processes do not mix.
    """
    with open(path, "ab+", buffering=0) as stream:
        with suppress(OSError):  # a file system without locks
            _lock(stream, wait=True)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - 1, 0))
        left = (b"" if stream.read(1) in (b"", b"\n") else b"\n") + line.encode() + b"\n"
        try:
            while left:
                left = left[stream.write(left) :]
            os.fsync(stream.fileno())
        except BaseException:
            stream.truncate(size)
            raise


def _open_locked(path: Path, mode: str, wait: bool = True) -> IO[bytes]:
    """Open and lock a file that others may remove until it is locked."""
    while True:
        stream = open(path, mode)  # noqa: SIM115, closed by the caller
        try:
            _lock(stream, wait=wait)
        except BlockingIOError:
            stream.close()
            raise
        except OSError:  # a file system without locks
            return stream
        if _is_at(stream, path):
            return stream
        stream.close()


def _is_at(stream: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one of that path."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(stream: IO[bytes], *, wait: bool) -> None:
    """Lock an open file until it is closed."""
    if fcntl is not None:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


@contextmanager
def _name_errors(path: str | os.PathLike[str], temporary: Path) -> Iterator[None]:
    """Report the user's path in OS errors, not that of the temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise  # of another file, which is read meanwhile
        raise type(error)(error.errno, error.strerror, str(path)) from error
