"""What to read from a file, and which of its arrays that is, by their names."""

import codecs
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hokical._core.conversion import (
    Zeros,
    from_binary_probabilities,
    from_binary_scores,
    from_probabilities,
)
from hokical._core.types import AnyArray, BoolArray, FloatArray
from hokical.io._errors import DataFileError, report_damage

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
Arrays = Mapping[str, AnyArray]
NAMELESS = ""
#: Whole numbers up to here are exact in float64.
_EXACT = 2.0**53
#: `keep` for every column that is not a score.
ALL = ("all",)


@dataclass(frozen=True)
class ArrayNames:
    """Names of a file's arrays, and which part they are where the file has parts."""

    logits: str
    labels: str | None
    part: FileSplit | None
    weights: str | None = None


def choose_arrays(
    path: Path, names: Iterable[str], split: FileSplit, wanted: "Wanted"
) -> ArrayNames:
    """The scores and labels of the wanted part, else the only ones."""
    known, words = list(names), wanted.words
    if known == [NAMELESS]:
        return ArrayNames(NAMELESS, None, None)
    for part in (split, None):
        logits = find_name(known, words, part)
        if logits is not None:
            weights = find_name(known, (WEIGHT_ARRAY,), part)
            labels = find_name(known, wanted.label_words, part)
            return ArrayNames(logits, labels, part, weights)
    raise _no_logits(path, known, split, wanted)


def choose_labels(path: Path, names: Iterable[str], split: FileSplit) -> str:
    """The labels of a file that is read for its labels alone."""
    known = list(names)
    labels = find_name(known, LABELS, split) or find_name(known, LABELS, None)
    labels = known[0] if labels is None and len(known) == 1 else labels
    if labels is None:
        raise DataFileError(
            path, f"expected an array `labels`; found {_list(known)}.", "Rename the array."
        )
    return labels


def find_name(names: Iterable[str], words: tuple[str, ...], part: FileSplit | None) -> str | None:
    """The array of a file that is called one of the words, in a part of it if one is given."""
    known = {normalize(name): name for name in names}
    spellings = [normalize(word) for word in words]
    if part is not None:
        pairs = [(p, word) for p in PARTS[part] for word in spellings]
        spellings = [spelling for p, w in pairs for spelling in (f"{p}_{w}", f"{w}_{p}")]
    found = first_known(known, spellings)
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


def probabilities_error(
    path: Path, names: Iterable[str], *, multilabel: bool = False
) -> DataFileError:
    converter = "from_binary_probabilities" if multilabel else "from_probabilities"
    return DataFileError(
        path,
        f"expected logits; found {_list(names)}, probabilities by name.",
        f"Say that they are with --probabilities; in Python use `hokical.{converter}`.",
    )


def _no_logits(path: Path, names: list[str], split: FileSplit, asked: "Wanted") -> DataFileError:
    other: FileSplit = "test" if split == "val" else "val"
    wanted = asked.words[0]
    if find_name(names, asked.words, other) is not None:
        return DataFileError(
            path,
            f"expected `{split}_{wanted}` or `{wanted}`; found the {other} part only.",
            f"If that is what you want, choose it with --split {other}.",
        )
    if wanted in LOGITS and are_probabilities(names):
        return probabilities_error(path, names, multilabel=asked.multilabel)
    return DataFileError(
        path,
        f"expected an array `{wanted}` or `{split}_{wanted}`; found {_list(names)}.",
        "Rename the array."
        if wanted in (*LOGITS, *PROBABILITIES)
        else "Check --confidence."
        if asked.answers
        else "Name it with --binary-score, or say --binary-score none for a score per class.",
    )


def _list(names: Iterable[str]) -> str:
    shown = [f"`{name}`" for name in names]
    more = f" and {len(shown) - 6} more" if len(shown) > 6 else ""
    return ", ".join(shown[:6]) + more if shown else "no arrays"


class LazyArrays(Mapping[str, AnyArray]):
    """The arrays of a file, of which only the wanted ones are ever read.

    A file may hold other things (images, objects), which must neither cost time nor cause errors.
    `read` gets the file and a name, and may raise anything if the file is not of its kind.
    """

    def __init__(
        self, path: Path, kind: str, names: Iterable[str], read: Callable[[Path, str], AnyArray]
    ) -> None:
        self._path, self._kind, self._names, self._read = path, kind, list(names), read

    def __getitem__(self, name: str) -> AnyArray:
        if name not in self._names:
            raise KeyError(name)
        with report_damage(self._path, self._kind):
            return self._read(self._path, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Wanted:
    """How to read a file; the default is logits, labels and weights.

    Attributes
    ----------
    probabilities : the scores are probabilities: rows that sum to 1, or of class 1 if binary
    binary_score : name of the one column, or array (n,), with the score of class 1 of two
    classes : names of the classes; columns of these names, in this order, are the scores
    keep : other columns to read; None for those called `id`, `ALL` for all
    groups : columns with the groups of rows, which are kept too
    scores : False for a file that is read for its labels alone
    unlabelled : rows may have no label, which is then -1
    zeros : what a probability of 0 means, as in `hokical.from_probabilities`
    label_column : name of the labels' column or array, if it is none of the usual ones
    score_columns : names of the scores' columns; or a pattern with `{class}`, such as "P({class})"
    decimal, encoding : of text tables: the decimal sign, and the encoding if not UTF-8
    missing : "drop" to leave out rows without a score or label, which are errors otherwise
    multilabel : scores (n, labels) are of labels that do not exclude each other; `label_column` is
        a pattern with `{class}` too, and labels (n, labels) are 0, 1 or NaN
    answers : the binary score is a confidence, and labels say whether answers are right
    """

    probabilities: bool = False
    binary_score: str | None = None
    classes: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = ()
    scores: bool = True
    unlabelled: bool = False
    zeros: Zeros = "unlikely"
    label_column: str | None = None
    score_columns: tuple[str, ...] = ()
    decimal: str = "."
    encoding: str | None = None
    missing: Literal["error", "drop"] = "error"
    groups: tuple[str, ...] = ()
    multilabel: bool = False
    answers: bool = False

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise ValueError(f"`decimal` must be a point or a comma; got {self.decimal!r}.")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                raise ValueError(
                    f"`encoding` must be one that Python knows; got {self.encoding!r}. For "
                    "example latin-1, cp1252 or utf-16."
                ) from error

    @property
    def array(self) -> str:
        """The name of the scores of a table, among its arrays."""
        return self.binary_score or ("probabilities" if self.probabilities else "logits")

    @property
    def words(self) -> tuple[str, ...]:
        """Names under which a file may have the scores."""
        if self.binary_score is not None:
            return (self.binary_score,)
        return (*PROBABILITIES, *LOGITS) if self.probabilities else (*LOGITS, *TOP_K)

    @property
    def label_words(self) -> tuple[str, ...]:
        """Names under which a file may have the labels; a table gives them the first of all."""
        return LABELS if self.label_column is None else (self.label_column, LABELS[0])

    def to_logits(self, scores: Any, name: str) -> Any:
        """The logits that are meant by the scores of a file."""
        if self.binary_score is not None and scores.ndim == 2 and scores.shape[1] == 1:
            scores = scores[:, 0]
        elif not (self.binary_score or self.probabilities) and getattr(scores, "ndim", 2) == 1:
            raise ValueError(
                f"`{name}` must be 2-D (n, classes); got shape {scores.shape}. If it is the score "
                f"of class 1 of two, add `--binary-score {name}`."
            )
        if self.multilabel:
            return from_binary_probabilities(scores, name=name) if self.probabilities else scores
        if self.probabilities:
            return from_probabilities(scores, zeros=self.zeros, name=name)
        return scores if self.binary_score is None else from_binary_scores(scores, name=name)


LOGITS_AND_LABELS = Wanted()


def tidy_labels(array: AnyArray) -> AnyArray:
    """A column (n, 1) as (n,), and whole floats as integers: files hold both, and both are safe."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind != "f":
        return array
    whole = np.isfinite(array) & (np.abs(array) < _EXACT) & (np.floor(array) == array)
    return array.astype(np.int64) if whole.all() else array


def has_label(labels: AnyArray) -> BoolArray:
    """Whether a row (n,) has a label: neither -1 nor NaN, nothing or an empty cell.

    >>> has_label(np.array([0.0, np.nan, -1.0, 2.0]))
    array([ True, False, False,  True])
    """
    if labels.dtype.kind in "iub":
        return np.asarray(labels != -1)
    absent = ("", "-1", "-1.0", "nan", "None")
    return np.array([str(label).strip() not in absent for label in labels.tolist()], np.bool_)


def as_marks(labels: AnyArray) -> FloatArray:
    """Cells of 0, 1, true or false as numbers; empty ones, which are not known, as NaN.

    >>> as_marks(np.array([["1", "true"], ["", "0"]]))
    array([[ 1.,  1.],
           [nan,  0.]])
    """
    if labels.dtype.kind in "fiub":
        return labels.astype(np.float64)
    words = {"true": "1", "false": "0", "": "nan", "none": "nan"}
    cells = [str(cell).strip().lower() for cell in labels.ravel().tolist()]
    try:
        return np.array([float(words.get(cell, cell)) for cell in cells]).reshape(labels.shape)
    except ValueError as error:
        raise ValueError(
            f"`labels` must be 0 or 1, true or false, or empty where not known: {error}."
        ) from error


def as_right(labels: AnyArray) -> AnyArray:
    """Cells of true, false, 1 or 0 as numbers (n,); numbers stay.

    >>> as_right(np.array(["True", "0"]))
    array([1, 0])
    """
    if labels.dtype.kind not in "OUT":
        return labels
    words = [str(cell).strip().lower() for cell in labels.ravel().tolist()]
    for row, word in enumerate(words):
        if word not in ("0", "1", "false", "true"):
            got = repr(word) if word not in ("", "none", "nan") else "an empty cell"
            raise ValueError(
                f"`right` must be 0 or 1, true or false; got {got} in row {row}. Write one of "
                "these, or drop rows without a value (--missing drop)."
            )
    return np.array([word in ("1", "true") for word in words], np.int64).reshape(labels.shape)


def check_classes(names: tuple[str, ...], n_classes: int) -> tuple[str, ...]:
    """Names of all classes, or none."""
    if names and (len(names) != n_classes or len(set(names)) < len(names)):
        raise ValueError(
            f"`classes` must name each of the {n_classes} columns of scores once; got "
            f"{len(names)}: {', '.join(names[:6])}. Check --classes."
        )
    return names


def _booleans_as_numbers(labels: AnyArray, classes: Container[str]) -> AnyArray:
    """False and True as the classes 0 and 1, unless the classes are called so."""
    if labels.dtype.kind == "b":
        return labels.astype(np.int64)
    if labels.dtype.kind not in "OUT" or not labels.size:
        return labels
    words = [str(label).strip() for label in labels.tolist()]
    plain = all(word.lower() in ("true", "false") and word not in classes for word in words)
    return np.array([word.lower() == "true" for word in words], np.int64) if plain else labels


def encode_labels(
    labels: AnyArray, classes: Sequence[str], set_aside: Container[str] = ()
) -> AnyArray:
    """Names of classes as column indices (n,); numbers stay, unless the names are numbers.

    Columns `set_aside` were not taken for classes, which a label may show to be wrong.

    >>> encode_labels(np.array(["dog", "cat"]), ["cat", "dog"])
    array([1, 0])
    """
    labels = _booleans_as_numbers(labels, classes)
    words = labels.dtype.kind in "OUT" and any(isinstance(v, str) for v in labels[:1].tolist())
    named_by_numbers = bool(classes) and all(name.isdigit() for name in classes)
    numbers = labels.dtype.kind in "iu" and named_by_numbers
    if not words and not numbers:
        return labels
    if words and not named_by_numbers and all(str(v).strip().isdigit() for v in labels.tolist()):
        return labels.astype(np.int64)
    if not classes:
        raise ValueError(
            f"`labels` must be integers, column indices, if the classes have no names; got "
            f"{str(labels[0])!r} in row 0. Name the classes, class 0 first: --classes "
            "cat,dog,..."
        )
    places = {name: place for place, name in enumerate(classes)}
    found = [places.get(str(label).strip(), -1) for label in labels.tolist()]
    if -1 in found:
        row = found.index(-1)
        more = len(classes) > 6
        shown = ", ".join(classes[:6]) + ", ..." * more
        got = repr(str(labels[row])) if has_label(labels[row : row + 1])[0] else "an empty cell"
        remedy = "Fix or drop the row."
        if (name := str(labels[row]).strip()) in set_aside:
            remedy = f"The column `{name}` was not taken for a class; if it is one, name all "
            remedy += f"classes: --classes {','.join([*classes[:6], name])}{',...' * more}."
        raise ValueError(
            f"`labels` must be names of classes ({shown}); got {got} in row {row}. {remedy}"
        )
    return np.array(found, np.int64)
