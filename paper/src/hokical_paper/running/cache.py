"""Results on disk, one small JSON file each, found by everything that went into them.

A file's name contains the SHA-256 of the data, the method, its settings, the versions
of the libraries and the source of every module that is executed, so a result is never
reused for other data or after a change of the code.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hokical.io import DataFileError
from hokical_paper.core.files import write_text_atomically
from hokical_paper.running import experiments
from hokical_paper.running.code import code_digest
from hokical_paper.running.results import Result
from hokical_paper.suite.manifest import Pair

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")


class Cache:
    """A folder of results; `prepare` creates it.

    With `reuse`, what other versions of the code have stored is found, too, the newest
    of each; a result says which version computed it.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, reuse: bool = False
    ) -> None:
        self.folder = default_folder() if folder is None else Path(folder)
        self.reuse = reuse

    def prepare(self) -> None:
        """Create the folder, so that a folder that cannot be created fails before
        any work.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataFileError(
                self.folder,
                f"cannot create the cache folder: {error.strerror}.",
                "Choose another one with --cache.",
            ) from error

    def get(
        self, pair: Pair, method: str, division: int | None = None
    ) -> Result | None:
        """The stored result, or None if there is none or its file is damaged."""
        result = _read(self._path(pair, method, division))
        return (
            self._older(pair, method, division)
            if result is None and self.reuse
            else result
        )

    def _older(self, pair: Pair, method: str, division: int | None) -> Result | None:
        """The newest result of a method on a division that any version has stored."""
        wanted = (pair.name, method, division)
        paths = self.folder.glob(f"{pair.name}-{method}-*.json")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True):
            result = _read(path)
            if (
                result is not None
                and (result.pair, result.method, result.division) == wanted
            ):
                return result
        return None

    def put(self, pair: Pair, result: Result) -> None:
        """Store a result; the file is written completely or not at all."""
        self.prepare()
        path = self._path(pair, result.method, result.division)
        write_text_atomically(path, json.dumps(result.to_dict(), indent=1) + "\n")

    def _path(self, pair: Pair, method: str, division: int | None) -> Path:
        identity = [*_identity(pair, method), division]
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        return self.folder / f"{pair.name}-{method}-{key[:16]}.json"


def _read(path: Path) -> Result | None:
    """A stored result; None if there is none or its file is damaged."""
    try:
        return Result.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def default_folder() -> Path:
    """`hokical/paper` in the user's cache folder (XDG_CACHE_HOME, or ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hokical" / "paper"


def _identity(pair: Pair, method: str) -> list[Any]:
    """Everything that a result depends on."""
    stored = pair.recal if method == "recal" else None
    settings = (experiments.SEED, experiments.N_DRAWS)
    code = [code_digest(*experiments.entry_modules(method)), *_versions()]
    return [pair.name, pair.digest, method, settings, stored, code]


@lru_cache
def _versions() -> list[str]:
    return [version(name) for name in _LIBRARIES]
