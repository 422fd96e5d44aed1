"""Results on disk, one small JSON file each, found again by everything that went into them.

The name of a file is the SHA-256 of the data, the method, its settings and the code that computes
it, so a result is never used for other data or after the code has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import hokical
from hokical.calibrators.registry import CALIBRATORS
from hokical.files.errors import DataFileError
from hokical.paper import experiments
from hokical.paper.results import Result
from hokical.paper.suite import Pair
from hokical.storage import write_text_atomically

#: Raised when the meaning of what is stored changes.
SCHEMA = 1
#: The code that decides a result, relative to the package.
_CODE = ("*.py", "calibrators/*.py", "stability/*.py", "metrics/*.py")
_EXPERIMENTS = ("experiments", "input_stability", "noise_grid")


class Cache:
    """A folder of results; `prepare` makes it."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def prepare(self) -> None:
        """Make the folder: that it cannot be made should be said before anything is computed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataFileError(
                self.folder,
                f"results need a folder, and it cannot be made: {error.strerror}.",
                "Give another one as --cache.",
            ) from error

    def get(self, pair: Pair, method: str, n_resamples: int) -> Result | None:
        """The stored result, or None; a damaged file counts as none and is computed anew."""
        path = self._path(pair, method, n_resamples)
        try:
            return Result.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, pair: Pair, result: Result, n_resamples: int) -> None:
        """Store a result; the file is whole or not there at all."""
        self.prepare()
        path = self._path(pair, result.method, n_resamples)
        write_text_atomically(path, json.dumps(result.to_dict(), indent=1) + "\n")

    def _path(self, pair: Pair, method: str, n_resamples: int) -> Path:
        key = hashlib.sha256(json.dumps(_identity(pair, method, n_resamples)).encode()).hexdigest()
        return self.folder / f"{pair.name}-{method}-{key[:16]}.json"


def default_folder() -> Path:
    """`hokical/paper` in the user's cache folder (XDG_CACHE_HOME, or ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hokical" / "paper"


def _identity(pair: Pair, method: str, n_resamples: int) -> list[Any]:
    settings = repr(CALIBRATORS[method]()) if method in CALIBRATORS else ""
    stored = pair.recal if method == "recal" else None
    constants = (experiments.SEED, experiments.N_DRAWS, n_resamples)
    return [SCHEMA, pair.name, pair.digest, method, settings, constants, stored, _code_digest()]


@lru_cache
def _code_digest() -> str:
    """SHA-256 of the package's code, less what only shows results."""
    package = Path(hokical.__file__).parent
    paths = {path for pattern in _CODE for path in package.glob(pattern)}
    paths |= {package / "paper" / f"{name}.py" for name in _EXPERIMENTS}
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
