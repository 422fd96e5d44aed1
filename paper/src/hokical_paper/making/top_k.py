"""Pairs from anyone's top-k export: the best probabilities of each row and their
classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.io import DataFileError
from hokical_paper.core.files import report_damage
from hokical_paper.making.export import Arrays, add_entry, write_pair
from hokical_paper.suite.pair_data import portable_permutation, top_k_logits

#: What rounding to half precision can add to a sum of probabilities.
_ROUNDING = 1e-3
_REMEDY = "Fix or drop the row."


@dataclass(frozen=True)
class TopKFile:
    """An .npz file with `probs` (n, k), descending, `classes` (n, k) and `labels` (n,).

    A file with several networks has `KEY/probs` and `KEY/classes` for each, and common
    labels.
    """

    path: Path
    key: str | None = None

    def read(self, n_classes: int) -> Arrays:
        """The arrays, if every row is a valid one."""
        with (
            report_damage(self.path, "an .npz file of plain arrays"),
            np.load(self.path) as file,
        ):
            arrays = {
                name: self._array(file, name) for name in ("probs", "classes", "labels")
            }
        check_top_k(self.path, arrays, n_classes)
        return arrays

    def _array(self, file: Any, name: str) -> NDArray[Any]:
        wanted = name if self.key is None else f"{self.key}/{name}"
        for key in dict.fromkeys((wanted, name) if name == "labels" else (wanted,)):
            if key in file.files:
                return np.asarray(file[key])
        raise DataFileError(
            self.path,
            f"expected an array {wanted!r}; found {', '.join(file.files) or 'none'}.",
            "Save it with the file, or name the network's arrays with --key.",
        )


def check_top_k(path: Path, arrays: Arrays, n_classes: int) -> None:
    """Refuse shapes that do not belong together, and the first row that cannot be
    right.
    """
    probs, classes, labels = (arrays[name] for name in ("probs", "classes", "labels"))
    if (
        probs.ndim != 2
        or classes.shape != probs.shape
        or not 1 <= probs.shape[1] <= n_classes
    ):
        raise DataFileError(
            path,
            f"`probs` and `classes` must be (n, k) with k at most {n_classes}; got "
            f"{probs.shape} and {classes.shape}.",
            "Save one row per example.",
        )
    if labels.ndim != 1 or labels.shape[0] != probs.shape[0]:
        raise DataFileError(
            path,
            f"`labels` must have one entry for each of {probs.shape[0]} rows; got "
            f"{labels.shape}; row {min(labels.size, probs.shape[0])} is the first "
            "without a label or scores.",
            "Save the label of every row.",
        )
    if probs.shape[0] < 2:
        raise DataFileError(
            path,
            "must have at least two rows, one to fit on and one to test on; got "
            f"{probs.shape[0]}.",
            "Save more examples.",
        )
    if probs.dtype.kind != "f":
        raise DataFileError(
            path,
            f"`probs` must be floats; got {probs.dtype}.",
            "Convert them and save again.",
        )
    for name in ("classes", "labels"):
        _check_integers(path, name, arrays[name])
    values = probs.astype(np.float64)
    sums = values.sum(axis=1)
    ranked = np.sort(classes, axis=1)
    rules = [
        (
            ~((values >= 0.0) & (values <= 1.0 + _ROUNDING)).all(axis=1),
            "probabilities must lie in [0, 1]",
            values,
        ),
        (
            (np.diff(values, axis=1) > 0.0).any(axis=1),
            "probabilities must descend",
            values,
        ),
        (values[:, 0] == 0.0, "the best probability must be above 0", values),
        (sums > 1.0 + _ROUNDING, "probabilities must not exceed 1 in sum", sums),
        (
            (ranked[:, 1:] == ranked[:, :-1]).any(axis=1),
            "a row must have each class once",
            classes,
        ),
        (
            ((classes < 0) | (classes >= n_classes)).any(axis=1),
            f"classes must be in 0..{n_classes - 1}",
            classes,
        ),
        (
            (labels < 0) | (labels >= n_classes),
            f"labels must be in 0..{n_classes - 1}",
            labels,
        ),
    ]
    for wrong, rule, shown in rules:
        _refuse(path, wrong, rule, shown)
    with report_damage(path, "probabilities over all classes"):
        top_k_logits(probs, classes, n_classes)


def _check_integers(path: Path, name: str, values: NDArray[Any]) -> None:
    """Refuse other types; a missing label is often a NaN, and then the row is named."""
    if values.dtype.kind == "f":
        rows = values.reshape(values.shape[0], -1)
        _refuse(
            path,
            (rows != np.floor(rows)).any(axis=1),
            f"`{name}` must be integers",
            values,
        )
    if values.dtype.kind not in "iu":
        raise DataFileError(
            path,
            f"`{name}` must be integers; got {values.dtype}.",
            "Convert them and save again.",
        )


def _refuse(path: Path, wrong: Any, rule: str, values: NDArray[Any]) -> None:
    """Name the first row for which `wrong` (n,) is true."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataFileError(
            path, f"{rule}; row {row} has {values[row].tolist()}.", _REMEDY
        )


def add_top_k_pair(
    folder: Path,
    name: str,
    file: TopKFile,
    *,
    n_classes: int,
    n_val: int | None = None,
    seed: int = 0,
    title: str | None = None,
    dataset_title: str | None = None,
) -> dict[str, Any]:
    """Add a pair to the suite in `folder`, which is created if it is not there; returns
    its entry.

    The rows are shuffled with `seed` (exports are often ordered by class); the first
    `n_val`, by default half of them, are for calibration.
    """
    dataset, _, network = name.partition("_")
    if not network or not name.replace("_", "").isalnum():
        raise ValueError(
            "`name` must be DATASET_NETWORK in letters, digits and underscores; got "
            f"{name!r}."
        )
    stored = file.read(n_classes)
    n = stored["labels"].shape[0]
    n_val = n // 2 if n_val is None else n_val
    if not 0 < n_val < n:
        raise ValueError(
            f"`n_val` must be between 1 and {n - 1}, so that both parts have rows; got "
            f"{n_val}."
        )
    order = portable_permutation(n, seed)
    rows_of = {"val": order[:n_val], "test": order[n_val:]}
    arrays = {
        f"{subset}_{key}": a[rows]
        for subset, rows in rows_of.items()
        for key, a in stored.items()
    }
    right = stored["classes"][:, 0] == stored["labels"]
    entry = {
        "name": name,
        "dataset": dataset,
        "network": network,
        "title": title or network,
        "dataset_title": dataset_title or dataset,
        "n_classes": n_classes,
        "top_k": int(stored["probs"].shape[1]),
        **{
            f"{subset}_accuracy": float(right[rows].mean())
            for subset, rows in rows_of.items()
        },
        "split": {"train": None, "val": n_val, "test": n - n_val, "seed": seed},
        "training": None,
        "how": f"The best {stored['probs'].shape[1]} probabilities of each row of {file.path.name}"
        f"{'' if file.key is None else f', {file.key}'}, in random order.",
        "recal": None,
        "zoom_scales": None,
        "files": write_pair(folder, name, arrays),
    }
    add_entry(folder, entry)
    return entry
