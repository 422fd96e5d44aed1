"""Arrays of a file by name, read when asked for; which are the logits and which the labels."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hokical.io.errors import DataFileError

FileSplit = Literal["val", "test"]

#: Spellings, the most usual first.
LOGITS = ("logits", "logit", "scores", "outputs")
#: The best values of each row, in files without the others.
TOP_K = ("topk_values", "topk_log_probabilities")
#: The same as probabilities, which are only read if the user says so.
PROBABILITIES = ("probabilities", "probability", "probs", "prob", "proba", "softmax", "p")
LABELS = ("labels", "label", "targets", "target", "y_true", "y", "class")
#: Columns of a table that say how much a row counts, and how they are called as an array.
WEIGHTS = ("sample_weight", "weight", "weights")
WEIGHT_ARRAY = "sample_weight"
PARTS: dict[str, tuple[str, ...]] = {
    "val": ("val", "valid", "validation", "cal", "calib", "calibration", "dev"),
    "test": ("test", "eval"),
}
_PROBABILITIES = re.compile("p|prob(s|a|as|ability|abilities)?|softmax")


#: What every format gives: its arrays by name. A file with one array and no name for it uses "".
Arrays = Mapping[str, NDArray[Any]]
NAMELESS = ""


@dataclass(frozen=True)
class ArrayNames:
    """Names of a file's arrays, and which part they are where the file has parts."""

    logits: str
    labels: str | None
    part: FileSplit | None
    weights: str | None = None


def choose_arrays(
    path: Path, names: Iterable[str], split: FileSplit, words: tuple[str, ...]
) -> ArrayNames:
    """The scores, called one of the words, and labels of the wanted part, else the only ones."""
    known = list(names)
    if known == [NAMELESS]:
        return ArrayNames(NAMELESS, None, None)
    for part in (split, None):
        logits = find_name(known, words, part)
        if logits is not None:
            labels, weights = (find_name(known, words, part) for words in (LABELS, (WEIGHT_ARRAY,)))
            return ArrayNames(logits, labels, part, weights)
    raise _no_logits(path, known, split, words)


def choose_labels(path: Path, names: Iterable[str], split: FileSplit) -> str:
    """The labels of a file that is read for its labels alone."""
    known = list(names)
    labels = find_name(known, LABELS, split) or find_name(known, LABELS, None)
    if labels is None and len(known) == 1:
        return known[0]
    if labels is None:
        raise DataFileError(
            path, f"expected an array `labels`; found {_list(known)}.", "Rename the array."
        )
    return labels


def find_name(names: Iterable[str], words: tuple[str, ...], part: FileSplit | None) -> str | None:
    """The array of a file that is called one of the words, in a part of it if one is given."""
    known = {normalize(name): name for name in names}
    found = first_known(known, _spellings([normalize(word) for word in words], part))
    return None if found is None else known[found]


def first_known(known: Container[str], spellings: Iterable[str]) -> str | None:
    """The first spelling that is there."""
    return next((name for name in spellings if name in known), None)


def normalize(name: str) -> str:
    """Lower case, with `_` for what else people put between words."""
    return re.sub(r"[-./\s]+", "_", name.strip().lower())


def are_probabilities(names: Iterable[str]) -> bool:
    """Whether a name says so."""
    words = {word for name in names for word in normalize(name).split("_")}
    return any(map(_PROBABILITIES.fullmatch, words))


def probabilities_error(path: Path, names: Iterable[str]) -> DataFileError:
    return DataFileError(
        path,
        f"expected logits; found {_list(names)}, probabilities by name.",
        "Say that they are with --probabilities; in Python use `hokical.from_probabilities`.",
    )


def _spellings(words: list[str], part: str | None) -> list[str]:
    if part is None:
        return words
    parts = PARTS[part]
    return [spelling for p in parts for w in words for spelling in (f"{p}_{w}", f"{w}_{p}")]


def _no_logits(
    path: Path, names: list[str], split: FileSplit, words: tuple[str, ...]
) -> DataFileError:
    other: FileSplit = "test" if split == "val" else "val"
    wanted = words[0]
    if find_name(names, words, other) is not None:
        return DataFileError(
            path,
            f"expected `{split}_{wanted}` or `{wanted}`; found the {other} part only.",
            f"If that is what you want, choose it with --split {other}.",
        )
    if wanted in LOGITS and are_probabilities(names):
        return probabilities_error(path, names)
    return DataFileError(
        path,
        f"expected an array `{wanted}` or `{split}_{wanted}`; found {_list(names)}.",
        "Rename the array."
        if wanted in (*LOGITS, *PROBABILITIES)
        else "Name it with --binary-score, or say --binary-score none for a score per class.",
    )


def _list(names: Iterable[str]) -> str:
    shown = [f"`{name}`" for name in names]
    more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
    return ", ".join(shown[:6]) + more if shown else "no arrays"


class LazyArrays(Mapping[str, NDArray[np.generic]]):
    """The arrays of a file, of which only the wanted ones are ever read.

    A file may hold other things (images, objects), which must neither cost time nor cause errors.
    """

    def __init__(self, names: Sequence[str], read: Callable[[str], NDArray[Any]]) -> None:
        self._names = list(names)
        self._read = read

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
