"""Labels and weights of examples: one of each per row of logits, on the host."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hokical._core.reading import first_true, to_numpy
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical._core.warn import FitDataWarning, warn_user

#: Labels that agree with the classifier less often than by chance, by so many standard errors,
#: are those of other columns.
_STANDARD_ERRORS = 4.0


def as_labels(
    labels: Any, n_rows: int, n_classes: int, *, name: str = "labels", classes: Sequence[Any] = ()
) -> IntArray:
    """Check class indices: 1-D integers in [0, n_classes), one per row of logits.

    Where the names of the `classes` are known, labels may be such.
    """
    array = to_numpy(labels, name)
    if classes and array.ndim == 1 and any(isinstance(label, str) for label in array[:1].tolist()):
        array = class_index(array, classes, name)
    if array.ndim != 1:
        raise ValueError(
            f"`{name}` must be 1-D (n,); got shape {array.shape}. For one-hot rows use "
            "`.argmax(axis=1)`, for a column `.ravel()`; several labels of a row are a multilabel "
            "problem, for `hokical.MultilabelCalibrator`."
        )
    array = _as_integers(array, name)
    if array.dtype.kind == "b" and n_classes > 2:
        raise TypeError(
            f"`{name}` must be integers, the class of each row; got booleans for {n_classes} "
            "classes. Whether a label is right goes with a confidence: `calibrate_confidence`."
        )
    if array.shape[0] != n_rows:
        raise ValueError(
            f"`{name}` must have one entry per row; got {array.shape[0]} for {n_rows} rows."
        )
    if place := first_true((array < 0) | (array >= n_classes)):
        raise ValueError(
            f"`{name}` must lie in [0, {n_classes - 1}], one index per column of the logits; got "
            f"{array[place]} in row {place[0]}. Drop rows that do not count; for tokens and maps "
            f"give `ignore_label={array[place]}` to `hokical.Dense` or to `calibrate`."
        )
    return array.astype(np.int64)


def class_index(labels: AnyArray, classes: Sequence[Any] | AnyArray, name: str) -> IntArray:
    """The position of each label (n,) in `classes`."""
    names, values = np.asarray(classes).tolist(), labels.tolist()
    place = {label: index for index, label in enumerate(names)}
    found = [place.get(label, -1) for label in values]
    if -1 in found:
        row = found.index(-1)
        raise ValueError(
            f"`{name}` must be names of the classes, {names[:6]}; got {values[row]!r} in "
            f"row {row}. Correct the names, or drop such rows."
        )
    return np.array(found, np.int64)


def _as_integers(array: AnyArray, name: str) -> AnyArray:
    """Integers (n,), also from an object array; anything else raises an error."""
    if array.dtype.kind in "iub":
        return array
    values: list[Any] = array.tolist()
    if all(isinstance(value, (int, np.integer)) and abs(int(value)) < 2**63 for value in values):
        return array.astype(np.int64)
    row = next((row for row, value in enumerate(values) if not _is_whole(value)), 0)
    raise TypeError(
        f"`{name}` must be integers, the index of each example's class; got {values[row]!r} in row "
        f"{row} (dtype {array.dtype}). Encode names as column indices, or name the columns: "
        "`hokical.auto(logits, labels, classes=[...])`. Drop rows without a label, and cut a "
        "regression target into classes; whole numbers become integers by `.astype(int)`."
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) or (isinstance(value, float) and value.is_integer())


def as_clusters(cluster: Any, n_rows: int) -> IntArray:
    """The number (n,) of the cluster of each row, of names or numbers (n,)."""
    array = to_numpy(cluster, "cluster")
    if array.shape != (n_rows,):
        raise ValueError(
            f"`cluster` must be 1-D with one entry per row ({n_rows}); got shape {array.shape}. "
            "Give the id of the patient, question or item that each row belongs to."
        )
    lacking = np.array([each is None or each != each for each in array.tolist()])
    if place := first_true(lacking):
        raise ValueError(
            f"`cluster` must be known; it is missing in row {place[0]}. Give rows that belong to "
            "no other an id of their own."
        )
    names, codes = np.unique(array.astype(str) if array.dtype == object else array,
                             return_inverse=True)  # fmt: skip
    if names.size < 2:
        raise ValueError(
            "`cluster` must have at least two different values; got one. Rows of one cluster say "
            "nothing about others."
        )
    return codes.ravel().astype(np.int64)


def as_weights(
    weights: Any, n_rows: int, *, name: str = "sample_weight", of_block: bool = False
) -> FloatArray | None:
    """Check example weights: None, a number for all, or (n,) finite and not negative.

    Those `of_block` may all be 0, as long as those of other blocks are not.
    """
    if weights is None:
        return None
    array = to_numpy(weights, name)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"`{name}` must be real numbers; got dtype {array.dtype}. Use `.astype(float)`, and "
            "pass groups by name: `groups=...`."
        )
    array = array.astype(np.float64)
    if array.ndim == 0:
        array = np.full(n_rows, float(array))
    if array.shape != (n_rows,):
        raise ValueError(
            f"`{name}` must be 1-D with one entry per row ({n_rows}); got shape "
            f"{array.shape}. Sample weights must be 1D array or scalar."
        )
    if place := first_true(~np.isfinite(array) | (array < 0)):
        raise ValueError(
            f"`{name}` must be finite and >= 0; got {array[place]} in row {place[0]}. Use 0 to "
            "ignore a row."
        )
    with np.errstate(over="ignore"):
        total = array.sum()
    if not (0.0 < total < np.inf or (of_block and total == 0.0)):
        raise ValueError(
            f"`{name}` must not be zero everywhere, and must have a finite sum; got {total}. "
            "Weights are relative: divide them by their largest."
        )
    return array


def warn_of_contradiction(
    predicted: AnyArray, labels: IntArray, weights: FloatArray | None = None
) -> None:
    """Warn if labels (n,) and the classifier's own agree far less often than by chance.

    By chance: as often as labels of these frequencies that have nothing to do with each other.
    """
    share = np.ones(labels.size) if weights is None else weights
    share = share / share.sum()
    n_classes = int(max(predicted.max(), labels.max())) + 1
    mine, true = (np.bincount(each, share, n_classes) for each in (predicted, labels))
    chance, agree = float(mine @ true), float(share[predicted == labels].sum())
    error = np.sqrt(max(chance * (1.0 - chance), 0.0) * (share**2).sum())
    if 0.0 < error < (chance - agree) / _STANDARD_ERRORS:
        warn_user(
            f"`labels` contradict the scores: {agree:.1%} agree with the classifier, by chance "
            f"{chance:.1%} would. Check the order of the classes (`classes`, --classes) and of the "
            "columns, and that each label stands beside its own scores.",
            FitDataWarning,
        )
