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

from hokical._core.storage import (
    lock_file,
    printable,
    replace_file,
    write_text_atomically,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks and locks")


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a child process that does the work; 0 if nothing was
    raised.
    """
    with (
        warnings.catch_warnings()
    ):  # about forks beside threads: the child only touches files
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_killed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a[1].json"
    write_text_atomically(path, "old")

    def die_while_saving() -> None:
        with replace_file(path) as stream:
            stream.write(b"ne")
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die_while_saving) == -signal.SIGKILL
    assert path.read_text() == "old"
    write_text_atomically(path, "new")
    assert path.read_text() == "new"


def test_saves_may_overlap(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with replace_file(path) as stream:
        stream.write(b"slow")
        write_text_atomically(path, "quick")
        assert path.read_text() == "quick"
    assert path.read_text() == "slow"
    assert list(tmp_path.iterdir()) == [path]


def test_many_writers_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    texts = [str(k) * 20_000 for k in range(8)]
    threads = [
        Thread(target=write_text_atomically, args=(path, text)) for text in texts * 5
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_is_held_by_one_and_ends_with_its_process(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", []

    def take() -> None:
        with lock_file(path):
            order.append("second")

    waiting = Thread(target=take)
    with lock_file(path):
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]

    def die() -> None:
        with lock_file(path):
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    take()
    assert order == ["first", "second", "second"]


FULL_DISK = """
import resource, signal, sys
from hokical._core.storage import write_text_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_text_atomically(sys.argv[1] + "/file", "x" * 1600)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["File too large"], done.stderr
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_printable() -> None:
    assert printable("naïve 日本.npz") == "naïve 日本.npz"
    assert printable("\x1b[31m\n\udcff\u202e") == r"\x1b[31m\n\udcff\u202e"
