"""The small real logits that come with the package."""

from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

#: The classes of CIFAR-10, by column.
DEMO_CLASSES = (
    "plane",
    "car",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_Arrays = tuple[NDArray[np.float16], NDArray[np.uint8]]


def demo_logits() -> tuple[_Arrays, _Arrays]:
    """Validation and test (logits, labels) of a ResNet-110 on CIFAR-10, which is
    overconfident.

    5000 and 10,000 images it was not trained on, 10 classes; float16. It was trained
    for this package (`suite/manifest.json` says how); it is not a published network.

    >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
    >>> test_logits.shape
    (10000, 10)
    """
    with (
        as_file(files("hokical") / "data" / "cifar10.npz") as path,
        np.load(path) as stored,
    ):
        validation = (stored["val_logits"], stored["val_labels"])
        test = (stored["test_logits"], stored["test_labels"])
    return validation, test
