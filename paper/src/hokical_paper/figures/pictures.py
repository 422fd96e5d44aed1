"""Figures on disk, found by the results and the code that they are drawn from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from hokical_paper.core.files import replace_file
from hokical_paper.figures import figures
from hokical_paper.published import row_for
from hokical_paper.running.code import code_digest
from hokical_paper.running.results import Results


class PictureCache:
    """A folder with the PNG files of one set of results."""

    def __init__(self, folder: Path, results: Results) -> None:
        self.folder = folder
        self._digest = _digest_of(results)

    def get(self, name: str, draw: Callable[[], bytes]) -> bytes:
        """The stored picture; else what `draw` returns, which is then stored."""
        path = self.folder / f"{name}-{self._digest[:16]}.png"
        try:
            return path.read_bytes()
        except OSError:
            drawn = draw()
        self.folder.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as stream:
            stream.write(drawn)
        return drawn


def _digest_of(results: Results) -> str:
    """SHA-256 of everything that the figures show, of the code and of matplotlib's
    version.
    """
    import matplotlib

    pairs = [
        (pair.name, pair.title, pair.dataset_title, row_for(pair, "ece_15_bins"))
        for pair in results.suite.pairs
    ]
    plain = [result.to_dict() for _, result in sorted(results.by_cell.items())]
    code = [matplotlib.__version__, code_digest(figures.__name__)]
    shown = json.dumps([code, pairs, results.methods, plain])
    return hashlib.sha256(shown.encode()).hexdigest()
