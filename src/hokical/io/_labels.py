"""Labels as files hold them: class indices, names of classes, right or wrong, or missing."""

from collections.abc import Sequence

import numpy as np

from hokical._core.types import AnyArray

#: Whole numbers up to here are exact in float64.
_EXACT = 2.0**53
#: What stands for a missing value, in lower case; `NA` is what R writes.
MISSING = ("", "na", "n/a", "nan", "null", "none")
_TRUTH = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1}


def encode_labels(labels: AnyArray, classes: Sequence[str], *, right: bool = False) -> AnyArray:
    """Labels (n,) as column indices, -1 where there is none; `right` of confidences: 1 or 0.

    Names of classes become their places. Numbers stay, unless the names are numbers; those that
    are not whole are left for the check that follows.

    >>> encode_labels(np.array(["dog", "NA", "cat"]), ["cat", "dog"])
    array([ 1, -1,  0])
    >>> encode_labels(np.array([2.0, np.nan]), [])
    array([ 2, -1])
    >>> encode_labels(np.array(["True", "0"]), [], right=True)
    array([1, 0])
    """
    labels = _whole_numbers(labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels)
    by_number = bool(classes) and all(name.isdecimal() for name in classes)
    if labels.ndim != 1 or (labels.dtype.kind in "fiubc" and not by_number):
        return labels
    words = [str(label).strip() for label in labels.tolist()]
    known = {name: place for place, name in enumerate(classes)}
    if known.keys().isdisjoint(words):
        numbers = to_numbers(np.array(words))
        if numbers.dtype.kind == "f":
            return _whole_numbers(numbers)
        known = _TRUTH if right or set(map(str.lower, words)) <= {"true", "false"} else known
    found = [known.get(word, known.get(word.lower())) for word in words]
    for row, word in enumerate(words):
        if found[row] is None and word.lower() not in (*MISSING, "-1"):
            raise ValueError(_bad_label(word, row, classes, right))
    return np.array([-1 if place is None else place for place in found], np.int64)


def _whole_numbers(labels: AnyArray) -> AnyArray:
    """Whole floats as integers, NaN as -1: files hold both, and both are safe."""
    if labels.dtype.kind == "b":
        return labels.astype(np.int64)
    if labels.dtype.kind != "f":
        return labels
    filled = np.where(np.isnan(labels), -1.0, labels)
    whole = (np.abs(filled) < _EXACT) & (np.floor(filled) == filled)
    return filled.astype(np.int64) if whole.all() else labels


def _bad_label(word: str, row: int, classes: Sequence[str], right: bool) -> str:
    if right:
        rule, remedy = "labels of confidences must be 0 or 1, true or false", "Correct or drop it."
    elif classes:
        known = ", ".join(classes[:6]) + ", ..." * (len(classes) > 6)
        rule, remedy = f"labels must be names of classes ({known})", "Correct or drop the row."
    else:
        rule = "labels must be column indices if the classes have no names"
        remedy = "Name the classes, class 0 first: --classes cat,dog,..."
    return f"{rule}; got {word!r} in row {row}. {remedy}"


def to_numbers(column: AnyArray) -> AnyArray:
    """Text or objects (n,) as numbers, NaN where a cell is empty, if all of them are numbers."""
    if column.dtype.kind not in "UTO":
        return column
    cells = ["nan" if str(cell).strip().lower() in MISSING else cell for cell in column.tolist()]
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:
        return column
