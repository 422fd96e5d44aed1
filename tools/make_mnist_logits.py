"""Make the logits of a small network on MNIST (LeCun et al., 1998), for tools/study_profile.py.

A network with two hidden layers is trained on 2000 of the 60,000 training digits, far past the
point where it knows them all by heart: a small model of how networks become overconfident. The
next 5000 training digits validate, the 10,000 test digits test.

    python tools/make_mnist_logits.py FOLDER_WITH_IDX_FILES FOLDER/small_mnist.npz

The IDX files are the four of the MNIST distribution, uncompressed.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

SEED = 0
EPOCHS = 100
N_TRAIN, N_VAL = 2000, 5000


def main(folder: str, target: str) -> None:
    images, labels = read_digits(Path(folder), "train")
    network = MLPClassifier((256, 256), alpha=0.0, tol=0.0, max_iter=EPOCHS, random_state=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # EPOCHS is meant as it is
        network.fit(images[:N_TRAIN], labels[:N_TRAIN])
    rows = slice(N_TRAIN, N_TRAIN + N_VAL)
    parts = {"val": (images[rows], labels[rows]), "test": read_digits(Path(folder), "t10k")}
    stored = {}
    for name, (pictures, truth) in parts.items():
        logits = forward(network, pictures).astype(np.float16)
        accuracy = (logits.argmax(axis=1) == truth).mean()
        print(f"{name}: {truth.size} digits, accuracy {accuracy:.4f}")
        stored |= {f"{name}_logits": logits, f"{name}_labels": truth}
    np.savez_compressed(target, **stored)


def read_digits(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 784) in [0, 1] and labels (n,) of one part of MNIST."""
    images = np.fromfile(folder / f"{part}-images-idx3-ubyte", np.uint8, offset=16)
    labels = np.fromfile(folder / f"{part}-labels-idx1-ubyte", np.uint8, offset=8)
    return images.reshape(labels.size, 784).astype(np.float32) / 255.0, labels


def forward(network: MLPClassifier, images: np.ndarray) -> np.ndarray:
    """The network's logits, before its softmax."""
    values = images
    for weight, bias in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
        values = np.maximum(values @ weight + bias, 0.0)
    return values @ network.coefs_[-1] + network.intercepts_[-1]


if __name__ == "__main__":
    main(*sys.argv[1:])
