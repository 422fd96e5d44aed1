"""The small real logits that come with the package, and what `hokical demo` makes of them."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

from hokical.bounds import calibration_bound
from hokical.comparison import MethodResult

Examples = tuple[NDArray[np.float16], NDArray[np.uint8]]


def demo_logits() -> tuple[Examples, Examples]:
    """Validation and test (logits, labels) of a small, overconfident network on MNIST.

    5000 and 10,000 examples, 10 classes; made by `tools/make_demo_logits.py`.

    >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
    >>> test_logits.shape
    (10000, 10)
    """
    with as_file(files("hokical") / "data" / "mnist.npz") as path, np.load(path) as stored:
        validation = (stored["val_logits"], stored["val_labels"])
        test = (stored["test_logits"], stored["test_labels"])
    return validation, test


def headline(before: MethodResult, after: MethodResult) -> str:
    """What calibration changed, in words, with a guarantee."""
    bound = calibration_bound(after.ece, after.correct.size, method="bousquet", brier=after.brier)
    return (
        f"The model says {before.mean_confidence:.1%} and is right {before.accuracy:.1%} of the "
        f"time. After calibration with {after.name} it says {after.mean_confidence:.1%}. Its "
        f"calibration error fell from {before.ece:.4f} to {after.ece:.4f} and is, with 95% "
        f"certainty, below {bound:.4f} on new data of the same kind."
    )
