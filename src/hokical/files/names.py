"""Which of a file's arrays are the logits and which the labels, by their names."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hokical.files.errors import DataFileError
from hokical.files.lazy import NAMELESS

Split = Literal["val", "test"]

#: Spellings, the most usual first.
LOGITS = ("logits", "logit", "scores", "outputs")
#: The best values of each row, in files without the others.
TOP_K = ("topk_values", "topk_log_probabilities")
LABELS = ("labels", "label", "targets", "target", "y_true", "y", "class")
#: Columns of a table that say how much a row counts, and how they are called as an array.
WEIGHTS = ("sample_weight", "weight", "weights")
WEIGHT_ARRAY = "sample_weight"
PARTS: dict[str, tuple[str, ...]] = {
    "val": ("val", "valid", "validation", "cal", "calib", "calibration", "dev"),
    "test": ("test", "eval"),
}
_PROBABILITIES = (
    "p",
    "prob",
    "probs",
    "proba",
    "probas",
    "probability",
    "probabilities",
    "softmax",
)


@dataclass(frozen=True)
class Chosen:
    """Names in the file, and which part they are where the file has parts."""

    logits: str
    labels: str | None
    part: Split | None
    weights: str | None = None


def choose(path: Path, names: Iterable[str], split: Split) -> Chosen:
    """The pair of the wanted part, else the file's only pair."""
    known = {normal(name): name for name in names}
    if set(known) == {NAMELESS}:
        return Chosen(NAMELESS, None, None)
    for part in (split, None):
        logits = first_known(known, _spellings((*LOGITS, *TOP_K), part))
        if logits is not None:
            labels = first_known(known, _spellings(LABELS, part))
            weights = first_known(known, _spellings((WEIGHT_ARRAY,), part))
            return Chosen(
                known[logits],
                None if labels is None else known[labels],
                part,
                None if weights is None else known[weights],
            )
    raise _no_logits(path, known, split)


def choose_labels(path: Path, names: Iterable[str], split: Split) -> str:
    """The labels of a file that is read for its labels alone."""
    known = {normal(name): name for name in names}
    for part in (split, None):
        labels = first_known(known, _spellings(LABELS, part))
        if labels is not None:
            return known[labels]
    if len(known) == 1:
        return next(iter(known.values()))
    raise DataFileError(
        path, f"expected an array `labels`; found {_listed(known)}.", "Rename the array."
    )


def find_name(names: Iterable[str], words: tuple[str, ...], part: Split | None) -> str | None:
    """The array of a file that is called one of the words, in the part that was chosen."""
    known = {normal(name): name for name in names}
    found = first_known(known, _spellings(words, part))
    return None if found is None else known[found]


def first_known(known: Container[str], spellings: Iterable[str]) -> str | None:
    return next((name for name in spellings if name in known), None)


def normal(name: str) -> str:
    """Lower case, with `_` for what else people put between words."""
    return re.sub(r"[-./\s]+", "_", name.strip().lower())


def probabilities_among(names: Iterable[str]) -> bool:
    words = {word for name in names for word in normal(name).split("_")}
    return any(word in _PROBABILITIES for word in words)


def probabilities_error(path: Path, names: Iterable[str]) -> DataFileError:
    return DataFileError(
        path,
        f"expected logits; found {_listed(names)}, probabilities by name.",
        "Convert with `hokical.from_probabilities` and save as `logits`.",
    )


def _spellings(words: tuple[str, ...], part: str | None) -> list[str]:
    if part is None:
        return list(words)
    parts = PARTS[part]
    return [spelling for p in parts for w in words for spelling in (f"{p}_{w}", f"{w}_{p}")]


def _no_logits(path: Path, known: Container[str], split: Split) -> DataFileError:
    names = list(known) if isinstance(known, Iterable) else []
    other: Split = "test" if split == "val" else "val"
    if first_known(known, _spellings(LOGITS, other)) is not None:
        return DataFileError(
            path,
            f"expected `{split}_logits` or `logits`; found the {other} part only.",
            f"If that is what you want, choose it with --split {other}.",
        )
    if probabilities_among(names):
        return probabilities_error(path, names)
    return DataFileError(
        path,
        f"expected an array `logits` or `{split}_logits`; found {_listed(names)}.",
        "Rename the array.",
    )


def _listed(names: Iterable[str]) -> str:
    shown = [f"`{name}`" for name in names]
    more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
    return ", ".join(shown[:6]) + more if shown else "no arrays"
