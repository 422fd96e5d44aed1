"""Make the logits that `hokical demo` runs on: the suite's ResNet-110 on CIFAR-10.

The network was trained by `hokical paper make` (`suite/manifest.json` says how); the
suite's file also holds what only the paper's experiments need, so logits and labels
alone are kept.

    python tools/make_demo_logits.py suite/cifar10_resnet110.npz
    src/hokical/data/cifar10.npz
"""

from __future__ import annotations

import sys

import numpy as np

PARTS = ("val_logits", "val_labels", "test_logits", "test_labels")


def main(source: str, target: str) -> None:
    with np.load(source) as file:
        stored = {name: file[name] for name in PARTS}
    np.savez_compressed(target, **stored)


if __name__ == "__main__":
    main(*sys.argv[1:])
