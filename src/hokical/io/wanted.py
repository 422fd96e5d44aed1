"""What to read from a file: the kind of its scores, the names of the classes, columns to keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.core.conversion import Zeros, from_binary_scores, from_probabilities
from hokical.core.types import BoolArray
from hokical.io.names import LOGITS, PROBABILITIES, TOP_K

#: `keep` for every column that is not a score.
ALL = ("all",)


@dataclass(frozen=True)
class Wanted:
    """How to read a file; the default is logits, labels and weights.

    Attributes
    ----------
    probabilities : the scores are probabilities: rows that sum to 1, or of class 1 if binary
    binary_score : name of the one column, or array (n,), with the score of class 1 of two
    classes : names of the classes; columns of these names, in this order, are the scores
    keep : other columns to read; None for those called `id`, `ALL` for all
    scores : False for a file that is read for its labels alone
    unlabelled : rows may have no label, which is then -1
    zeros : what a probability of 0 means, as in `hokical.from_probabilities`
    """

    probabilities: bool = False
    binary_score: str | None = None
    classes: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = ()
    scores: bool = True
    unlabelled: bool = False
    zeros: Zeros = "unlikely"

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

    def to_logits(self, scores: Any, name: str) -> Any:
        """The logits that are meant by the scores of a file."""
        if self.binary_score is not None and scores.ndim == 2 and scores.shape[1] == 1:
            scores = scores[:, 0]
        elif self.binary_score is None and len(scores.shape) == 1 and not self.probabilities:
            raise ValueError(
                f"`{name}` must be 2-D (n, classes); got shape {scores.shape}. If it is the score "
                f"of class 1 of two, add `--binary-score {name}`."
            )
        if self.probabilities:
            return from_probabilities(scores, zeros=self.zeros, name=name)
        return scores if self.binary_score is None else from_binary_scores(scores, name=name)


LOGITS_AND_LABELS, LABELS_ALONE = Wanted(), Wanted(scores=False)


def has_label(labels: NDArray[Any]) -> BoolArray:
    """Whether a row (n,) has a label: neither -1 nor NaN, nothing or an empty cell.

    >>> has_label(np.array([0.0, np.nan, -1.0, 2.0]))
    array([ True, False, False,  True])
    """
    if labels.dtype.kind in "iub":
        return np.asarray(labels != -1)
    absent = ("", "-1", "-1.0", "nan", "None")
    return np.array([str(label).strip() not in absent for label in labels.tolist()], np.bool_)


def encode_labels(labels: NDArray[Any], classes: Sequence[str]) -> NDArray[Any]:
    """Names of classes as column indices (n,); numbers stay, unless the names are numbers.

    >>> encode_labels(np.array(["dog", "cat"]), ["cat", "dog"])
    array([1, 0])
    """
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
            f"{str(labels[0])!r} in row 0. Name the classes in the order of the columns: --classes "
            "cat,dog,..."
        )
    places = {name: place for place, name in enumerate(classes)}
    found = [places.get(str(label).strip(), -1) for label in labels.tolist()]
    if -1 in found:
        row = found.index(-1)
        shown = ", ".join(classes[:6]) + (", ..." if len(classes) > 6 else "")
        got = repr(str(labels[row])) if has_label(labels[row : row + 1])[0] else "an empty cell"
        raise ValueError(
            f"`labels` must be names of classes ({shown}); got {got} in row {row}. Fix or drop the "
            "row."
        )
    return np.array(found, np.int64)
