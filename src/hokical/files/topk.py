"""`TopK` from the arrays of a file: values, indices and the number of classes, by their names."""

from __future__ import annotations

from pathlib import Path

from hokical.files.errors import DataFileError
from hokical.files.lazy import Arrays
from hokical.files.names import TOP_K, normal
from hokical.topk import TopK

_READERS = dict(zip(TOP_K, (TopK, TopK.from_log_probabilities), strict=True))


def is_top_k(name: str) -> bool:
    """Whether an array of that name holds the best values of each row."""
    return any(word in normal(name) for word in TOP_K)


def read_top_k(path: Path, arrays: Arrays, name: str) -> TopK:
    """Values called `name`, with the indices and the number of classes that go with them.

    `val_topk_values` goes with `val_topk_indices`, and with `val_n_classes` or `n_classes`.
    """
    own = normal(name)
    word = next(word for word in TOP_K if word in own)
    known = {normal(given): given for given in arrays}
    indices = _named(path, known, own.replace(word, "topk_indices"))
    count = _named(path, known, own.replace(word, "n_classes"), "n_classes")
    if arrays[count].size != 1 or arrays[count].dtype.kind not in "iu":
        raise DataFileError(path, f"expected one whole number in `{count}`.")
    try:
        return _READERS[word](arrays[name], arrays[indices], int(arrays[count].reshape(())))
    except (TypeError, ValueError) as error:
        raise DataFileError(path, str(error)) from error


def _named(path: Path, known: dict[str, str], *names: str) -> str:
    for name in names:
        if name in known:
            return known[name]
    raise DataFileError(
        path,
        f"expected `{names[0]}` beside the best values of each row; it is not there.",
        "Save `topk_values`, `topk_indices` and `n_classes`.",
    )
