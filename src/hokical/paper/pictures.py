"""Drawn figures on disk, found again by the results and the code that they were drawn from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import hokical
from hokical.paper.results import Results
from hokical.storage import replacing


class PictureCache:
    """PNG files of one set of results in a folder."""

    def __init__(self, folder: Path, results: Results) -> None:
        self.folder, self._digest = folder, _digest_of(results)

    def get(self, name: str, draw: Callable[[], bytes]) -> bytes:
        """The stored picture, else what `draw` gives, which is then stored."""
        path = self.folder / f"{name}-{self._digest[:16]}.png"
        try:
            return path.read_bytes()
        except OSError:
            drawn = draw()
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            stream.write(drawn)
        return drawn


def _digest_of(results: Results) -> str:
    """SHA-256 of all that a figure shows, of the drawing code and of matplotlib's version."""
    import matplotlib

    pairs = [
        (pair.name, pair.title, pair.dataset_title, pair.is_quick) for pair in results.suite.pairs
    ]
    found = [result.to_dict() for _, result in sorted(results.found.items())]
    shown = json.dumps([matplotlib.__version__, _code_digest(), pairs, results.methods, found])
    return hashlib.sha256(shown.encode()).hexdigest()


@lru_cache
def _code_digest() -> str:
    package = Path(hokical.__file__).parent
    drawing = ("figures", "looks", "methods", "published", "variances")
    paths = [*(package / "plots").glob("*.py"), *(package / "paper" / f"{n}.py" for n in drawing)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(paths))).hexdigest()
