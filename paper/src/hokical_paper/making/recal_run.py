"""ReCal on a pair: fitted on the zoomed-out validation images, applied to the test
images.

The logits of 20 zoomed-out copies of every image are too large for the suite, so it
only contains ReCal's confidence, the time of the fit and how it ended.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core.files import replace_file
from hokical_paper.making.export import (
    Arrays,
    add_entry,
    find_entry,
    read_pair,
    write_pair,
)
from hokical_paper.recal import ReCal, Views

_ROWS = 1000


def views_path(folder: Path, name: str) -> Path:
    """The file with the zoomed-out logits of a pair."""
    return folder / "views" / f"{name}.npz"


def save_views(folder: Path, name: str, views: Arrays) -> Path:
    """Write `val_views` and `test_views`, (scales, n, classes) float16 each."""
    path = views_path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as stream:
        np.savez(stream, **views)  # type: ignore[arg-type]
    return path


def fit_recal(suite: Path, views: Path, name: str) -> dict[str, Any]:
    """Fit and apply ReCal; returns facts for the manifest and the test confidence
    (n,).
    """
    entry = _known_entry(suite, name)
    pair = read_pair(suite, entry["files"])
    with np.load(views) as file:
        val_views = file["val_views"]
        test_views = file["test_views"]
    calibrator = ReCal()
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the facts say how it ended
        calibrator.fit(Views(pair["val_logits"], val_views), pair["val_labels"])
    seconds = time.perf_counter() - begun
    facts = {
        "fit_seconds": round(seconds, 3),
        "n_iterations": calibrator.n_iter_,
        "ending": calibrator.ending_,
        "parameters": calibrator.get_params(),
        "device": f"{os.cpu_count()} CPU cores",
    }
    return facts | {
        "confidence": _confidence(calibrator, pair["test_logits"], test_views)
    }


def add_recal(suite: Path, name: str, result: dict[str, Any]) -> None:
    """Add the result of `fit_recal` to the pair's file and the manifest."""
    entry = _known_entry(suite, name)
    confidence = result.pop("confidence").astype(np.float32)
    arrays = read_pair(suite, entry["files"]) | {"recal_confidence": confidence}
    entry["files"] = write_pair(suite, name, arrays)
    add_entry(suite, entry | {"recal": result})


def _confidence(
    calibrator: ReCal, logits: NDArray[Any], views: NDArray[Any]
) -> NDArray[np.float64]:
    """Confidence (n,), in blocks small enough that no kernels are compiled."""
    starts = range(0, len(logits), _ROWS)
    blocks = [slice(start, start + _ROWS) for start in starts]
    parts = [
        calibrator.predict_confidence(Views(logits[rows], views[:, rows]))
        for rows in blocks
    ]
    return np.concatenate(parts)


def _known_entry(suite: Path, name: str) -> dict[str, Any]:
    entry = find_entry(suite, name)
    if entry is None:
        raise DataFileError(
            suite, f"has no pair {name} in its manifest.", "Export it first."
        )
    return entry
