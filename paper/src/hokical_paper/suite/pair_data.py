"""The arrays of a pair: logits or their best k, labels, and new divisions of the
examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical import TopK
from hokical.io import DataFileError
from hokical_paper.core import to_host

_PARTS = ("val", "test")
_SEEN = ("values", "indices")


@dataclass(frozen=True, eq=False)
class PairData:
    """The arrays of a pair: logits (n, classes) or their best k, labels (n,) and, if
    the pair has them, which views keep the label, `kept` (n, views), and
    `recal_confidence` (n_test,).

    `division` is the number of a new random division of the examples; None is the pair's own
    division.
    """

    val_logits: NDArray[np.float16] | TopK
    val_labels: NDArray[np.int64]
    test_logits: NDArray[np.float16] | TopK
    test_labels: NDArray[np.int64]
    val_kept: NDArray[np.bool_] | None = None
    test_kept: NDArray[np.bool_] | None = None
    recal_confidence: NDArray[np.float64] | None = None
    division: int | None = None

    @cached_property
    def val_correct(self) -> NDArray[np.bool_]:
        """Which validation examples the network classifies correctly, (n_val,)."""
        return np.asarray(_labels(self.val_logits) == self.val_labels)

    @cached_property
    def test_correct(self) -> NDArray[np.bool_]:
        """Which test examples the network classifies correctly, (n_test,)."""
        return np.asarray(_labels(self.test_logits) == self.test_labels)

    def divide_anew(self, seed: int) -> PairData:
        """Validation and test examples pooled and divided at random, in the same sizes.

        ReCal does not take part: it needs the images.
        """
        n_val = self.val_labels.size
        order = portable_permutation(n_val + self.test_labels.size, seed)
        labels = np.concatenate([self.val_labels, self.test_labels])[order]
        logits = _pool(self.val_logits, self.test_logits)
        kept = None
        if self.val_kept is not None and self.test_kept is not None:
            kept = np.concatenate([self.val_kept, self.test_kept])[order]
        return PairData(
            logits[order[:n_val]],
            labels[:n_val],
            logits[order[n_val:]],
            labels[n_val:],
            val_kept=None if kept is None else kept[:n_val],
            test_kept=None if kept is None else kept[n_val:],
            division=seed,
        )


def portable_permutation(n: int, seed: int) -> NDArray[np.int64]:
    """A permutation (n,), the same with every version of NumPy: the order of PCG64's
    output.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable")


def _labels(logits: NDArray[Any] | TopK) -> NDArray[Any]:
    """The class of the largest logit, (n,)."""
    return logits.labels if isinstance(logits, TopK) else to_host(logits.argmax(axis=1))


def _pool(first: NDArray[Any] | TopK, second: NDArray[Any] | TopK) -> Any:
    """The rows of both."""
    if not isinstance(first, TopK) or not isinstance(second, TopK):
        return np.concatenate([first, second])
    values, classes = (
        np.concatenate([getattr(x, n) for x in (first, second)]) for n in _SEEN
    )
    return TopK.from_log_probabilities(values, classes, first.n_classes)


def build_pair_data(
    path: Path, arrays: dict[str, NDArray[Any]], n_classes: int, top_k: int | None
) -> PairData:
    """The arrays of a pair's files, if none is missing and their shapes fit."""
    kinds = ("logits", "labels") if top_k is None else ("probs", "classes", "labels")
    missing = [
        key
        for subset in _PARTS
        for kind in kinds
        if (key := f"{subset}_{kind}") not in arrays
    ]
    if missing:
        raise DataFileError(path, f"lacks {missing}.", "Export it again.")
    fields: dict[str, Any] = {}
    for subset in _PARTS:
        labels = arrays[f"{subset}_labels"]
        scores: Any = arrays[f"{subset}_{kinds[0]}"]
        shape = (labels.shape[0], n_classes if top_k is None else top_k)
        if scores.shape != shape:
            raise DataFileError(
                path,
                f"{subset}_{kinds[0]} must be {shape}, a row per label and a column per "
                f"class; got {scores.shape}.",
                "Export it again.",
            )
        if top_k is not None:
            scores = top_k_logits(scores, arrays[f"{subset}_classes"], n_classes)
        fields |= {
            f"{subset}_logits": scores,
            f"{subset}_labels": labels.astype(np.int64),
        }
        if f"{subset}_kept" in arrays:
            fields[f"{subset}_kept"] = arrays[f"{subset}_kept"].astype(bool)
    if "recal_confidence" in arrays:
        fields["recal_confidence"] = arrays["recal_confidence"].astype(np.float64)
    return PairData(**fields)


def top_k_logits(
    probabilities: NDArray[Any], classes: NDArray[Any], n_classes: int
) -> TopK:
    """The best probabilities (n, k) of each row and their classes (n, k) as logits."""
    with np.errstate(divide="ignore"):
        values = np.log(probabilities.astype(np.float64))
    return TopK.from_log_probabilities(values, classes.astype(np.int64), n_classes)
