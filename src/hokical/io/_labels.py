"""Labels as files hold them: class indices, names of classes, right or wrong, or missing."""

from collections.abc import Container, Sequence

import numpy as np

from hokical._core.types import AnyArray, BoolArray

#: Whole numbers up to here are exact in float64.
_EXACT = 2.0**53
#: What stands for a missing value, in lower case; `NA` is what R writes.
MISSING = ("", "na", "n/a", "nan", "null", "none")
_TRUE, _FALSE = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


def tidy_labels(array: AnyArray) -> AnyArray:
    """A column (n, 1) as (n,), and whole floats as integers: files hold both, and both are safe."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind != "f":
        return array
    whole = np.isfinite(array) & (np.abs(array) < _EXACT) & (np.floor(array) == array)
    return array.astype(np.int64) if whole.all() else array


def has_label(labels: AnyArray, classes: Container[str] = ()) -> BoolArray:
    """Whether a row (n,) has a label: neither -1 nor NaN, NA, None or an empty cell.

    >>> has_label(np.array([0.0, np.nan, -1.0, 2.0]))
    array([ True, False, False,  True])
    >>> has_label(np.array(["NA", "yes"]))
    array([False,  True])
    """
    if labels.dtype.kind in "iub":
        return np.asarray(labels != -1)
    words = [str(label).strip() for label in labels.tolist()]
    absent = (*MISSING, "-1", "-1.0")
    return np.array([w in classes or w.lower() not in absent for w in words], np.bool_)


def as_right(labels: AnyArray) -> AnyArray:
    """Cells of true, false, yes, no, 1 or 0 as numbers (n,); numbers stay.

    >>> as_right(np.array(["True", "0"]))
    array([1, 0])
    """
    if labels.dtype.kind not in "OUT":
        return labels
    words = [str(cell).strip().lower() for cell in labels.tolist()]
    for row, word in enumerate(words):
        if word not in (*_TRUE, *_FALSE):
            raise ValueError(
                f"labels of confidences must be 0 or 1, true or false; got {_shown(word)} in row "
                f"{row}. Write one of these, or drop rows without a value: --missing drop."
            )
    return np.array([word in _TRUE for word in words], np.int64)


def encode_labels(labels: AnyArray, classes: Sequence[str]) -> AnyArray:
    """Names of classes as column indices (n,); numbers stay, unless the names are numbers.

    >>> encode_labels(np.array(["dog", "cat"]), ["cat", "dog"])
    array([1, 0])
    """
    labels = _plain_numbers(labels, classes)
    named = labels.dtype.kind in "OUT"
    by_number = bool(classes) and all(name.isdigit() for name in classes)
    if not named and not (labels.dtype.kind in "iu" and by_number):
        return labels
    words = [str(label).strip() for label in labels.tolist()]
    places = {name: place for place, name in enumerate(classes)}
    for row, word in enumerate(words):
        if word in places:
            continue
        if not classes:
            raise ValueError(
                f"labels must be column indices if the classes have no names; got {_shown(word)} "
                f"in row {row}. Name the classes, class 0 first: --classes cat,dog,..."
            )
        known = ", ".join(classes[:6]) + ", ..." * (len(classes) > 6)
        raise ValueError(
            f"labels must be names of classes ({known}); got {_shown(word)} in row {row}. Correct "
            "or drop the row."
        )
    return np.array([places[word] for word in words], np.int64)


def _plain_numbers(labels: AnyArray, classes: Container[str]) -> AnyArray:
    """Text as integers if all of it is numbers, or true and false for the classes 1 and 0."""
    if labels.dtype.kind == "b":
        return labels.astype(np.int64)
    if labels.dtype.kind not in "OUT" or not labels.size:
        return labels
    words = [str(label).strip() for label in labels.tolist()]
    if any(word in classes for word in words):
        return labels
    if all(word.lower() in ("true", "false") for word in words):
        return np.array([word.lower() == "true" for word in words], np.int64)
    try:
        return tidy_labels(np.array(words).astype(np.float64))
    except ValueError:
        return labels


def _shown(word: str) -> str:
    return "no label" if word.lower() in MISSING else repr(word)


def to_numbers(column: AnyArray) -> AnyArray:
    """Text or objects (n,) as numbers, NaN where a cell is empty, if all of them are numbers."""
    if column.dtype.kind not in "UTO":
        return column
    cells = ["nan" if str(cell).strip().lower() in MISSING else cell for cell in column.tolist()]
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:
        return column
