"""From a path to checked logits and labels, whatever the format."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.files.delimited import open_csv
from hokical.files.errors import DataFileError
from hokical.files.lazy import NAMELESS, Arrays
from hokical.files.names import Split, choose, choose_labels
from hokical.files.npy import open_npy
from hokical.files.npz import open_npz
from hokical.files.parquet import open_parquet
from hokical.files.pickles import open_pickle
from hokical.files.safetensors import open_safetensors
from hokical.files.sniff import find_format
from hokical.files.topk import is_top_k, read_top_k
from hokical.logits import Fitted, Logits, as_labels, as_logits, as_weights

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_OPENERS: dict[str, Callable[[Path], Arrays]] = {
    "npz": open_npz,
    "npy": open_npy,
    "csv": open_csv,
    "parquet": open_parquet,
    "safetensors": open_safetensors,
    "pickle": open_pickle,
}
#: Whole numbers up to here are exact in float64.
_EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class Examples:
    """Checked logits, their labels and weights where needed and found, and the part."""

    logits: Logits
    labels: IntArray | None
    part: Split | None
    weights: FloatArray | None = None

    @property
    def pair(self) -> tuple[Logits, IntArray | None]:
        return self.logits, self.labels


def read_examples(
    path: str | os.PathLike[str],
    *,
    split: Split = "val",
    labels: str | os.PathLike[str] | None = None,
    need_labels: bool = True,
    fitted_by: Fitted | None = None,
) -> Examples:
    """Read logits and labels from a file; DataFileError says what is wrong with a bad one.

    Parameters
    ----------
    path : path
        .npz, .npy, .csv, .parquet, .safetensors, or a pickle of NumPy arrays. Where only the best
        logits of each row are known, `topk_values` (or `topk_log_probabilities`) and
        `topk_indices`, (n, k) each, with `n_classes` give a `TopK`. A column `sample_weight`,
        `weight` or `weights` of a table, or an array `sample_weight`, says how much a row counts.
    split : {"val", "test"}
        Which part, if the file has parts (`val_logits`, `test_logits`, ...).
    labels : path, optional
        Another file with the labels. Beside `NAME_logits.npy`, `NAME_labels.npy` is found by
        itself.
    need_labels : bool
        False if logits are enough.
    fitted_by : optional
        A fitted calibrator, whose number of classes the logits must have.
    """
    where = Path(path)
    arrays = _open(where)
    chosen = choose(where, arrays, split)
    logits = _checked_logits(where, arrays, chosen.logits, fitted_by)
    labels_file = labels_beside(where, labels, nameless=chosen.logits == NAMELESS)
    if not need_labels:
        return Examples(logits, None, chosen.part)
    weights = None if chosen.weights is None else arrays[chosen.weights]
    counts = None if weights is None else _checked_weights(where, weights, logits)
    if labels_file is not None:
        others = _open(labels_file)
        found = others[choose_labels(labels_file, others, split)]
        truth = _checked_labels(labels_file, found, logits)
    elif chosen.labels is None:
        raise _no_labels(where, chosen.logits)
    else:
        truth = _checked_labels(where, arrays[chosen.labels], logits)
    return Examples(logits, truth, chosen.part, counts)


def _open(path: Path) -> Arrays:
    return _OPENERS[find_format(path)](path)


def labels_beside(
    path: Path, given: str | os.PathLike[str] | None, *, nameless: bool
) -> Path | None:
    """The file named by the user, else the one beside that is called alike."""
    if given is not None:
        return Path(given)
    beside = path.with_name(path.name.replace("logits", "labels"))
    return beside if nameless and beside != path and beside.exists() else None


def _no_labels(path: Path, logits: str) -> DataFileError:
    what = f"found `{logits}` alone." if logits else "found one array."
    return DataFileError(
        path,
        f"expected labels beside the logits; {what}",
        "Name the file that has them with --labels FILE.",
    )


def _checked_logits(path: Path, arrays: Arrays, name: str, fitted_by: Fitted | None) -> Logits:
    given = read_top_k(path, arrays, name) if is_top_k(name) else arrays[name]
    try:
        return as_logits(given, name=name or "logits", fitted_by=fitted_by)
    except (TypeError, ValueError) as error:
        raise DataFileError(path, str(error)) from error


def _checked_labels(path: Path, array: Any, logits: Logits) -> IntArray:
    try:
        return as_labels(tidy_labels(array), logits.n_rows, logits.n_classes)
    except (TypeError, ValueError) as error:
        one_more = array.ndim > 0 and len(array) == logits.n_rows + 1
        remedy = "If the first is a header, call it `label`." if one_more else ""
        raise DataFileError(path, str(error), remedy) from error


def _checked_weights(path: Path, array: NDArray[Any], logits: Logits) -> FloatArray | None:
    try:
        return as_weights(array, logits.n_rows)
    except (TypeError, ValueError) as error:
        raise DataFileError(path, str(error), "Mend the weights, or drop them.") from error


def tidy_labels(array: NDArray[Any]) -> NDArray[Any]:
    """A column (n, 1) as (n,), and whole floats as integers: files hold both, and both are safe."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind != "f":
        return array
    whole = np.isfinite(array) & (np.abs(array) < _EXACT) & (np.floor(array) == array)
    return array.astype(np.int64) if whole.all() else array
