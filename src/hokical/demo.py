"""The small real logits that come with the package."""

from importlib.resources import as_file, files
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hokical._core.checks import check_choice
from hokical._core.ensembles import Ensemble

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
#: What differs between the members of `demo_ensemble`.
EnsembleKind = Literal["views", "networks", "passes"]
#: Images of `demo_ensemble` to learn from.
_N_VALIDATION = 2000
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


def demo_ensemble(
    kind: EnsembleKind = "views",
) -> tuple[tuple[Ensemble, NDArray[np.uint8]], tuple[Ensemble, NDArray[np.uint8]]]:
    """Validation and test (ensemble, labels): several evaluations of CIFAR-10 images.

    2000 and 3000 images that the networks were not trained on; float16. "views": a wide
    residual network on twelve transformed images
    (`hokical.integrations.torch.views("image")`); "networks": that one and two of other
    seeds; "passes": twelve passes with dropout of a fourth, which are exchangeable. Each
    was trained on 34,000 images for this package; they are not published networks.

    >>> (ensemble, labels), _ = demo_ensemble()
    >>> ensemble
    Ensemble(12 members, 2,000 rows, 10 classes: identity, mirror, right, left, ...)
    """
    check_choice("kind", kind, EnsembleKind)
    with (
        as_file(files("hokical") / "data" / "cifar10_ensembles.npz") as path,
        np.load(path) as stored,
    ):
        logits = stored[kind]
        labels = stored["labels"]
        names = stored["view_names"].tolist() if kind == "views" else None
    ensemble = Ensemble(logits, names, exchangeable=kind == "passes")
    validation = slice(0, _N_VALIDATION)
    test = slice(_N_VALIDATION, None)
    return (
        (ensemble[validation], labels[validation]),
        (ensemble[test], labels[test]),
    )
