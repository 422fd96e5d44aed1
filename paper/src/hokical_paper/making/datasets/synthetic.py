"""Small synthetic images, to try the whole pipeline quickly."""

from __future__ import annotations

import numpy as np

from hokical_paper.making.datasets.images import DataSet, LabelledImages


def synthetic_images(
    name: str,
    *,
    n_train: int = 400,
    n_test: int = 100,
    n_classes: int = 10,
    channels: int = 3,
) -> DataSet:
    """Noisy 32 x 32 images of one pattern per class, with a fixed seed.

    >>> data = synthetic_images("cifar10", n_train=20, n_test=10)
    >>> data.train.images.shape, data.test.labels.shape
    ((20, 32, 32, 3), (10,))
    """
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, size=(n_classes, 4, 4, channels))
    patterns = patterns.repeat(8, axis=1).repeat(8, axis=2)

    def part(n: int) -> LabelledImages:
        labels = np.arange(n) % n_classes
        noisy = patterns[labels] + rng.normal(0.0, 60.0, size=(n, 32, 32, channels))
        return LabelledImages.sort(np.clip(noisy, 0, 255).astype(np.uint8), labels)

    return DataSet(name, part(n_train), part(n_test))
