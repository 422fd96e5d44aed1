"""Files of fitted calibrators: contents, writing and reading."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hokical.core.storage import CalibratorFileError, is_storable, read_document, write_document
from hokical.core.version import VERSION
from hokical.guarantees.neighbours import NeighbourTable
from hokical.guarantees.score_table import ScoreTable
from hokical.guarantees.support import Support
from hokical.rules.base import Rule

#: More classes than this mean a damaged file.
_MOST_CLASSES = 1 << 31


def write_calibrator(path: str | os.PathLike[str], body: dict[str, Any]) -> None:
    """Write the result of `Calibrator._document`."""
    write_document(path, {"library_version": VERSION, **body})


def read_calibrator(
    path: str | os.PathLike[str], find_rules: Callable[[str], None]
) -> dict[str, Any]:
    """Read and check a file; `find_rules(name)` may declare a rule that is not known yet."""
    document = read_document(path, find_rules)
    kinds = {
        "rule": Rule,
        "method": str,
        "n_classes": int,
        "fit_scores": ScoreTable | None,
        "held_out_scores": ScoreTable | None,
        "neighbours": NeighbourTable | None,
        "support": Support | None,
        "parameters": dict,
        "report": dict,
        "beside": dict,
    }
    for name, kind in kinds.items():
        value = document.setdefault(name, None)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise CalibratorFileError(f"{path} has no usable `{name}`; got {type(value).__name__}.")
    _check_classes(path, document["n_classes"], document["rule"])
    return document


def _check_classes(path: str | os.PathLike[str], n_classes: int, rule: Rule) -> None:
    if not 2 <= n_classes < _MOST_CLASSES:
        raise CalibratorFileError(f"{path} must be for at least 2 classes; got {n_classes}.")
    if rule.n_classes not in (None, n_classes):
        raise CalibratorFileError(
            f"{path} is for {n_classes} classes, and its rule for {rule.n_classes}."
        )


__all__ = ["CalibratorFileError", "is_storable", "read_calibrator", "write_calibrator"]
