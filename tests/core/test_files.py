"""Files are whole or absent, whoever else writes, is killed, or fills the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from hokical._core import files
from hokical._core.files import (
    append_line,
    lock_file,
    printable,
    remove_leftovers,
    replace_file,
    write_text_atomically,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks and locks")


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a child process that does the work; 0 if nothing was raised."""
    with warnings.catch_warnings():  # about forks beside threads: the child only touches files
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_what_killed_saves_leave_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a[1].json"
    write_text_atomically(path, "old")

    def die_while_saving() -> None:
        with replace_file(path) as stream:
            stream.write(b"ne")
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die_while_saving) == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    assert path.read_text() == "old"
    write_text_atomically(path, "new")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "new"


def test_saves_that_run_are_not_taken_for_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with replace_file(path) as stream:
        stream.write(b"slow")
        assert in_child(lambda: write_text_atomically(path, "quick")) == 0
        write_text_atomically(path, "quicker")
        assert path.read_text() == "quicker"
    assert path.read_text() == "slow"
    assert list(tmp_path.iterdir()) == [path]


def test_many_writers_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    texts = [str(k) * 20_000 for k in range(8)]
    threads = [Thread(target=write_text_atomically, args=(path, text)) for text in texts * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_was_begun_anew_is_no_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened as a leftover, removed by another and written again before it is locked."""
    path = tmp_path / ".a.json.0123456789ab"
    path.touch()

    def begin_anew(stream: object, *, wait: bool) -> None:
        path.rename(tmp_path / "removed")
        path.write_text("new")

    monkeypatch.setattr(files, "_lock", begin_anew)
    remove_leftovers(tmp_path, "a.json")
    assert path.read_text() == "new"


def test_a_lock_is_held_by_one_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    def take() -> None:
        with lock_file(path):
            pass

    with lock_file(path):
        with pytest.raises(BlockingIOError):
            take()
        assert in_child(take) == 1
    take()

    def die() -> None:
        with lock_file(path):
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    take()
    assert not path.exists()


FULL_DISK = """
import resource, signal, sys
from hokical._core.files import append_line, write_text_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write, name in ((append_line, "log"), (write_text_atomically, "file")):
    try:
        write(sys.argv[1] + "/" + name, "x" * 600)
        print("written")
    except OSError as error:
        print(error.strerror)
"""


def test_a_full_disk_leaves_whole_lines_and_whole_files(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("y" * 599 + "\n")
    (tmp_path / "file").write_text("old")
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["File too large", "written"], done.stderr
    assert (tmp_path / "log").read_text() == "y" * 599 + "\n"
    assert (tmp_path / "file").read_text() == "x" * 600
    assert len(list(tmp_path.iterdir())) == 2


def test_lines_are_appended_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"a": 1}\n{"b"')  # cut short by a crash
    threads = [Thread(target=append_line, args=(path, f"{k}" * 500)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"a": 1}', '{"b"']
    assert sorted(lines[2:]) == [f"{k}" * 500 for k in range(8)]


def test_printable() -> None:
    assert printable("naïve 日本.npz") == "naïve 日本.npz"
    assert printable("\x1b[31m\n\udcff\u202e") == r"\x1b[31m\n\udcff\u202e"
