"""A stream that is saved to a file and continued from it."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, TypeVar

from hokical._core import storage
from hokical._core.version import VERSION

State = TypeVar("State")


class SavedStream:
    """What is known of a stream, with a lock of its own, in a file of its `kind`."""

    kind: ClassVar[str]

    def __init__(self, state: Any) -> None:
        self._state = state
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, stored: dict[str, Any]) -> None:
        vars(self).update(stored, _lock=threading.RLock())

    def save(self, path: storage.StrPath) -> None:
        """Write the state to a JSON file, atomically; `load` continues from it.

        Of the calibrator only a stamp is stored, to recognize it.
        """
        with self._lock:
            body = {"kind": self.kind, "library_version": VERSION, "state": self._state}
            storage.write_document(path, body)

    @classmethod
    def _read_state(cls, path: storage.StrPath, expected: type[State]) -> State:
        """The state in a file that `save` wrote."""
        state = storage.read_document(path, kind=cls.kind).get("state")
        if not isinstance(state, expected):
            raise storage.CalibratorFileError(
                f"{path} does not hold a usable {cls.kind}. Make a new one."
            )
        return state

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self._state.n})"
