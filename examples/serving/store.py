"""One monitor for all processes of a service: a log of what happened, in SQLite.

A process appends predictions and outcomes to the log, and reads what the others have
appended into a monitor of its own: all have the same rows in the same order, and so the
same status. From time to time the monitor is saved into the database, and the log up to
there is dropped. Nothing but the standard library and hokical is needed; the database
must be on a local disk.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hokical import CalibrationMonitor

_TABLES = """
create table if not exists log (number integer primary key autoincrement, ids text, content text);
create table if not exists prediction (id text primary key, outcome integer);
create table if not exists saved (one integer primary key check (one = 1), number integer,
    monitor text);
"""


class MonitorStore:
    """A monitor that processes share.

    Parameters
    ----------
    path : the database, which is made where it is missing
    monitor : file of the monitor to begin with
    save_every : entries of the log after which the monitor is saved
    keep : predictions whose ids are remembered
    """

    def __init__(
        self, path: str, monitor: str, *, save_every: int = 1000, keep: int = 100_000
    ) -> None:
        self._path, self._save_every, self._keep = path, save_every, keep
        self._lock = threading.Lock()
        with self._transaction() as database:
            for statement in _TABLES.split(";"):
                database.execute(statement)
            text = Path(monitor).read_text(encoding="utf-8")
            database.execute("insert or ignore into saved values (1, 0, ?)", (text,))
        self._number, self._monitor = -1, CalibrationMonitor.load(monitor)

    def add_predictions(self, ids: Sequence[str], confidence: Sequence[float]) -> None:
        """Log predictions, whose outcomes any process may add."""
        with self._transaction() as database:
            rows = [(each,) for each in ids]
            database.executemany("insert into prediction values (?, null)", rows)
            self._log(database, ids, {"confidence": list(confidence)})

    def add_outcomes(self, ids: Sequence[str], correct: Sequence[bool]) -> None:
        """Log whether predictions were right; if an id is unknown or known already,
        none is.
        """
        if len(ids) != len(correct) or not all(type(each) is bool for each in correct):
            raise ValueError("`correct` must be true or false for each of the ids.")
        with self._transaction() as database:
            for each, right in zip(ids, correct, strict=True):
                change = (
                    "update prediction set outcome = ? where id = ? and outcome is null"
                )
                if not database.execute(change, (right, each)).rowcount:
                    raise ValueError(
                        f"`ids` must wait for an outcome; {each!r} does not."
                    )
            self._log(database, ids, {"correct": list(correct)})

    def monitor(self) -> CalibrationMonitor:
        """The monitor of all that was logged so far, by any process."""
        with self._lock, self._transaction() as database:
            saved, text = database.execute(
                "select number, monitor from saved"
            ).fetchone()
            if saved > self._number:  # what is missing may be dropped from the log
                self._number, self._monitor = saved, _from_text(text)
            news = database.execute(
                "select number, ids, content from log where number > ? order by number",
                (self._number,),
            )
            for number, ids, content in news:
                _count(self._monitor, json.loads(ids), json.loads(content))
                self._number = number
            if self._number >= saved + self._save_every:
                self._save(database)
            return self._monitor

    def save(self) -> None:
        """Save the monitor now, as before a shutdown."""
        self.monitor()
        with self._lock, self._transaction() as database:
            (saved,) = database.execute("select number from saved").fetchone()
            if self._number > saved:
                self._save(database)

    def _save(self, database: sqlite3.Connection) -> None:
        text = _to_text(self._monitor)
        database.execute(
            "update saved set number = ?, monitor = ?", (self._number, text)
        )
        database.execute("delete from log where number <= ?", (self._number,))
        database.execute(
            "delete from prediction where rowid <= (select max(rowid) from prediction) "
            "- ?",
            (self._keep,),
        )

    def _log(
        self, database: sqlite3.Connection, ids: Sequence[str], content: Any
    ) -> None:
        row = json.dumps(list(ids)), json.dumps(content)
        database.execute("insert into log (ids, content) values (?, ?)", row)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, after other processes that write."""
        database = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        try:
            database.execute("pragma journal_mode = wal")
            database.execute("begin immediate")
            yield database
            database.execute("commit")
        except BaseException:
            if database.in_transaction:
                database.execute("rollback")
            raise
        finally:
            database.close()


def _count(
    monitor: CalibrationMonitor, ids: list[str], content: dict[str, Any]
) -> None:
    """Count an entry of the log."""
    if "confidence" in content:
        monitor.update(content["confidence"], ids=ids)
        return
    waits = monitor.waits_for(ids).tolist()  # some may have been given up since
    kept = [
        (each, right)
        for each, right, known in zip(ids, content["correct"], waits, strict=True)
        if known
    ]
    if kept:
        monitor.add_labels(*zip(*kept, strict=True))


def _to_text(monitor: CalibrationMonitor) -> str:
    with tempfile.TemporaryDirectory() as folder:
        monitor.save(Path(folder, "monitor.json"))
        return Path(folder, "monitor.json").read_text(encoding="utf-8")


def _from_text(text: str) -> CalibrationMonitor:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "monitor.json").write_text(text, encoding="utf-8")
        return CalibrationMonitor.load(Path(folder, "monitor.json"))
