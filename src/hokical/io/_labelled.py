"""From a path to checked logits and labels, whatever the format."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits, as_logits
from hokical._core.topk import TopK
from hokical._core.types import AnyArray, BoolArray, FloatArray, IntArray
from hokical.io import _names as spelling
from hokical.io._columns import CLASSES, KEPT, open_parquet
from hokical.io._delimited import open_csv
from hokical.io._errors import DataFileError, report_file
from hokical.io._names import LOGITS_AND_LABELS, Arrays, FileSplit, LazyArrays, Wanted
from hokical.io._numpy_files import open_npy, open_npz
from hokical.io._plugins import find_reader
from hokical.io._sniff import find_format

Location = str | os.PathLike[str]

_OPENERS: dict[str, Callable[[Path], Arrays]] = {"npz": open_npz, "npy": open_npy}
#: Tables, whose columns are chosen before they are read.
_TABLES: dict[str, Callable[[Path, Wanted], Arrays]] = {"csv": open_csv, "parquet": open_parquet}
_TOP_K_READERS = dict(zip(spelling.TOP_K, (TopK, TopK.from_log_probabilities), strict=True))


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Checked logits, their labels and weights where needed and found, and the part.

    `classes` are the names of the classes where known, `kept` the columns asked for beside, and
    `n_dropped` counts rows that lacked a value and were to be dropped; `groups` are their columns.
    """

    logits: Logits
    labels: IntArray | None
    part: FileSplit | None
    weights: FloatArray | None = None
    classes: tuple[str, ...] = ()
    kept: dict[str, AnyArray] = field(default_factory=dict)
    n_dropped: int = 0
    groups: dict[str, AnyArray] | None = None

    @property
    def pair(self) -> tuple[Logits, IntArray | None]:
        return self.logits, self.labels


def read_examples(
    path: Location,
    *,
    split: FileSplit = "val",
    labels: Location | None = None,
    need_labels: bool = True,
    fitted_by: Any = None,
    wanted: Wanted = LOGITS_AND_LABELS,
) -> LabelledRows:
    """Read logits and labels from a file; DataFileError says what is wrong with a bad one.

    Parameters
    ----------
    path : path
        .npz, .npy, .csv or .parquet; with hokical-paper installed also a pickle of
        NumPy arrays. Where only the best logits of each row are known, `topk_values` (or
        `topk_log_probabilities`) and `topk_indices`, (n, k) each, with `n_classes` give a `TopK`. A
        column `sample_weight`, `weight` or `weights` of a table, or an array `sample_weight`, says
        how much a row counts.
    split : {"val", "test"}
        Which part, if the file has parts (`val_logits`, `test_logits`, ...).
    labels : path, optional
        Another file with the labels. `NAME_labels.npy` is found beside `NAME_logits.npy`.
    need_labels : bool
        Whether a file without labels is an error.
    fitted_by : Calibrator, optional
        The logits must have as many classes as this calibrator.
    wanted : Wanted
        What the scores are, if not logits; names of classes; columns to keep.
    """
    alone = replace(wanted, scores=False, keep=(), groups=())
    openers = [partial(_open, wanted=each) for each in (wanted, alone)]
    found = FileArrays(Path(path), split, labels, openers[0], wanted, openers[1])
    where, name = found.path, found.names.logits
    present = found.rows_present(need_labels) if wanted.missing == "drop" else None

    def take(array: Any) -> Any:
        return array if present is None or array is None else array[present]

    with report_file(where):
        given = _read_top_k(where, found.arrays, name) if is_top_k(name) else take(found.logits)
        given = wanted.to_logits(given, name or wanted.array)
        logits = as_logits(given, name=name or "logits", fitted_by=fitted_by)
        classes = _class_names(wanted, found.arrays, logits.n_classes)
        order = _order_of_classes(wanted, found.arrays, logits)
        own = logits if order is None else replace(logits, values=logits.values[:, order])
        n_rows = logits.n_rows if present is None else present.size
        kept = {each: take(column) for each, column in found.find_kept(wanted, n_rows).items()}
    groups = _groups_among(kept, wanted.groups)
    dropped = n_rows - logits.n_rows
    if not need_labels:
        return LabelledRows(own, None, found.names.part, None, classes, kept, dropped, groups)
    with report_file(where, "Fix or drop the weights."):
        weights = as_weights(take(found.weights), logits.n_rows)
    labels_path, truth = found.find_labels()
    truth = np.full(n_rows, -1) if truth is None and wanted.unlabelled else truth
    if truth is None:
        what = f"found `{name}` alone." if name else "found one array."
        raise DataFileError(
            where,
            f"expected labels beside the logits; {what}",
            "Check --right."
            if wanted.answers
            else "Call them `label` in that file, or name the file that has them: --labels FILE.",
        )
    names = classes if order is None else _names_in_file(found.arrays, logits.n_classes)
    checked = _check_labels(take(truth), labels_path, logits, wanted, (names, kept))
    if order is not None:
        checked = checked[:, order] if wanted.multilabel else _new_places(checked, order)
    return LabelledRows(own, checked, found.names.part, weights, classes, kept, dropped, groups)


def _groups_among(kept: dict[str, AnyArray], names: tuple[str, ...]) -> dict[str, AnyArray] | None:
    """The columns with groups, by the names asked for; numbers where all of their text is."""
    if not names:
        return None
    known = {spelling.normalize(name): column for name, column in kept.items()}
    return {name: _as_numbers(known[spelling.normalize(name)]) for name in names}


def _as_numbers(column: AnyArray) -> AnyArray:
    if column.dtype.kind not in "UO":
        return column
    try:
        return np.array([cell or "nan" for cell in column.tolist()]).astype(np.float64)
    except ValueError:
        return column


def _check_labels(
    truth: AnyArray, path: Path, logits: Logits, wanted: Wanted, names: tuple[Any, Any]
) -> Any:
    """Labels (n,) as column indices, -1 for those that may be missing; marks (n, labels)."""
    if wanted.multilabel:
        with report_file(path):
            return spelling.as_marks(truth)
    header = truth.ndim > 0 and len(truth) == logits.n_rows + 1
    partly = wanted.unlabelled and truth.shape[:1] == (logits.n_rows,)
    known = spelling.has_label(truth) if partly else slice(None)
    checked = np.full(logits.n_rows, -1)
    with report_file(path):
        given = spelling.as_right(truth[known]) if wanted.answers else truth[known]
        truth = spelling.encode_labels(spelling.tidy_labels(given), *names)
    with report_file(path, "If the first is a header, call it `label`." if header else ""):
        checked[known] = as_labels(truth, checked[known].shape[0], logits.n_classes)
    return checked


def _class_names(wanted: Wanted, arrays: Arrays, n_classes: int) -> tuple[str, ...]:
    """The names given, else those in the file, else none."""
    if not wanted.classes:
        return _names_in_file(arrays, n_classes)
    return spelling.check_classes(wanted.classes, n_classes)


def _names_in_file(arrays: Arrays, n_classes: int) -> tuple[str, ...]:
    if CLASSES not in arrays or arrays[CLASSES].dtype.kind not in "UT":
        return ()
    names = tuple(arrays[CLASSES].tolist())
    return names if len(set(names)) == n_classes == len(names) else ()


def _order_of_classes(wanted: Wanted, arrays: Arrays, logits: Logits) -> IntArray | None:
    """The file's column (classes,) of each class that is asked for; None if that is their order.

    Columns of tables were chosen by name before they were read.
    """
    own, asked = _names_in_file(arrays, logits.n_classes), wanted.classes
    known = isinstance(arrays, LazyArrays) and own and asked and not wanted.binary_score
    if not known or own == asked:
        return None
    if set(own) != set(asked) or isinstance(logits, TopK):
        shown = [", ".join(names[:6]) + ", ..." * (len(names) > 6) for names in (asked, own)]
        raise ValueError(
            f"`classes` must be those of the calibrator or of --classes, {shown[0]}; got "
            f"{shown[1]}. Rename them or put them in that order, or leave the array out."
        )
    places = {name: place for place, name in enumerate(own)}
    return np.array([places[name] for name in asked])


def _new_places(labels: IntArray, order: IntArray) -> IntArray:
    """Labels (n,) after their columns were put in this order; -1 stays."""
    return np.append(np.argsort(order), -1)[labels]


class FileArrays:
    """Logits, labels and weights of a file, by their names; each is read when it is asked for."""

    def __init__(
        self,
        path: Path,
        split: FileSplit,
        labels: Location | None,
        open_file: Callable[[Path], Arrays],
        wanted: Wanted = LOGITS_AND_LABELS,
        open_labels: Callable[[Path], Arrays] | None = None,
    ) -> None:
        self.path, self.split, self.labels_file = path, split, labels
        self.arrays = open_file(path)
        self.names = spelling.choose_arrays(path, self.arrays, split, wanted)
        self.open_labels = open_labels or open_file

    @property
    def logits(self) -> Any:
        return self.arrays[self.names.logits]

    @property
    def weights(self) -> Any:
        return None if self.names.weights is None else self.arrays[self.names.weights]

    def rows_present(self, need_labels: bool) -> BoolArray:
        """Which rows have all scores, a weight and a label, each where there are such."""
        scores = np.asarray(self.logits)
        present = ~np.isnan(scores.reshape(len(scores), -1)).any(axis=1)
        others = [self.weights, self.find_labels()[1] if need_labels else None]
        for column in others:
            if column is not None and column.shape == present.shape:
                present &= spelling.has_label(column)
        return np.asarray(present)

    def find_kept(self, wanted: Wanted, n_rows: int) -> dict[str, AnyArray]:
        """Columns that a table kept, or the arrays (n,) of these names."""
        asked = () if wanted.keep in (None, spelling.ALL) else wanted.keep or ()
        mark = KEPT if self.names.part is None else f"{self.names.part}_{KEPT}"
        found = {n.removeprefix(mark): self.arrays[n] for n in self.arrays if n.startswith(mark)}
        for name in () if found else dict.fromkeys([*asked, *wanted.groups]):
            array = spelling.find_name(self.arrays, (name,), self.names.part)
            array = array or spelling.find_name(self.arrays, (name,), None)
            if array is None or self.arrays[array].shape != (n_rows,):
                raise ValueError(
                    f"expected an array `{name}` of shape ({n_rows},), to keep, or with groups or "
                    "timestamps."
                )
            found[name] = self.arrays[array]
        return found

    def find_labels(self) -> tuple[Path, Any]:
        """Where the labels are, and they, or None where there are none.

        They are in the file that the user names; else, beside an array without a name, in a file
        of a matching name; else in the same file.
        """
        other = labels_beside(self.path)
        if self.labels_file is not None:
            other = Path(self.labels_file)
        elif self.names.logits != spelling.NAMELESS or other == self.path or not other.exists():
            name = self.names.labels
            return self.path, None if name is None else self.arrays[name]
        others = self.open_labels(other)
        return other, others[spelling.choose_labels(other, others, self.split)]


def labels_beside(path: Path) -> Path:
    """The file in which the labels of an array without a name are looked for."""
    return path.with_name(path.name.replace("logits", "labels"))


def _open(path: Path, wanted: Wanted) -> Arrays:
    kind = find_format(path, wanted.encoding)
    if kind in _TABLES:
        return _TABLES[kind](path, wanted)
    return (_OPENERS.get(kind) or find_reader(path, kind))(path)


def is_top_k(name: str) -> bool:
    """Whether an array of that name holds the best values of each row."""
    return any(word in spelling.normalize(name) for word in spelling.TOP_K)


def _read_top_k(path: Path, arrays: Arrays, name: str) -> TopK:
    """Values called `name`, with the indices and the number of classes that go with them.

    `val_topk_values` goes with `val_topk_indices`, and with `val_n_classes` or `n_classes`.
    """
    own = spelling.normalize(name)
    word = next(word for word in spelling.TOP_K if word in own)
    known = {spelling.normalize(given): given for given in arrays}
    others = []
    for word_beside in ("topk_indices", "n_classes"):
        expected = own.replace(word, word_beside)
        names = (expected, word_beside) if word_beside == "n_classes" else (expected,)
        other = spelling.first_known(known, names)
        if other is None:
            raise DataFileError(
                path,
                f"expected `{expected}` beside the best values of each row; it is not there.",
                "Save `topk_values`, `topk_indices` and `n_classes`.",
            )
        others.append(known[other])
    indices, count = (arrays[other] for other in others)
    if count.size != 1 or count.dtype.kind not in "iu":
        raise DataFileError(path, f"expected one whole number in `{others[1]}`.")
    return _TOP_K_READERS[word](arrays[name], indices, int(count.reshape(())))
