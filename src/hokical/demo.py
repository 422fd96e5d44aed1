"""The small real logits that come with the package."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

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
