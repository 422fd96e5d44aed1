"""Add ImageNet logits to a suite: the first half of a file's rows to learn on, the rest
to judge.

    python tools/make_imagenet_pair.py imagenet5k_efficientnet_lite0.npz suite

The source holds `test_logits` (n, 1000) float16 and `test_labels` (n,), in an order
that is already random, so the rows are cut in the middle and not shuffled.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from hokical_paper.making.export import add_entry, write_pair

NAME = "imagenet_efficientnet_lite0"
N_PARAMETERS = 4_652_008


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "source", type=Path, help=".npz with test_logits and test_labels"
    )
    parser.add_argument("suite", type=Path, help="folder with (or for) manifest.json")
    given = parser.parse_args()
    entry = add_pair(given.source, given.suite)
    add_entry(given.suite, entry)
    print(
        f"{NAME}: test accuracy {entry['test_accuracy']:.4f}, files "
        f"{list(entry['files'])}"
    )


def add_pair(source: Path, suite: Path) -> dict[str, Any]:
    """Write the files into the suite; their entry of the manifest."""
    with np.load(source) as file:
        logits, labels = file["test_logits"].astype(np.float16), file["test_labels"]
    refuse_sorted(labels)
    half = labels.shape[0] // 2
    parts = {"val": slice(0, half), "test": slice(half, None)}
    arrays: dict[str, Any] = {}
    for part, rows in parts.items():
        arrays[f"{part}_logits"] = logits[rows]
        arrays[f"{part}_labels"] = labels[rows].astype(np.int16)
    files = write_pair(suite, NAME, arrays)
    right = logits.argmax(axis=1) == labels
    return {
        "name": NAME,
        "dataset": "imagenet",
        "network": "efficientnet_lite0",
        "title": "EfficientNet-Lite0",
        "dataset_title": "ImageNet",
        "n_classes": int(logits.shape[1]),
        **{
            f"{part}_accuracy": float(right[rows].mean())
            for part, rows in parts.items()
        },
        "n_parameters": N_PARAMETERS,
        "split": {
            "train": None,
            "val": half,
            "test": labels.shape[0] - half,
            "seed": None,
        },
        "training": None,
        "how": (
            f"Public EfficientNet-Lite0 weights on {labels.shape[0]} ImageNet "
            "validation images; the first half to learn on, the rest to judge."
        ),
        "recal": None,
        "zoom_scales": None,
        "files": files,
    }


def refuse_sorted(labels: np.ndarray) -> None:
    """Halves of sorted labels would hold different classes."""
    if (np.diff(labels.astype(np.int64)) >= 0).mean() > 0.9:
        raise SystemExit(
            "test_labels are sorted: halves would hold different classes. Shuffle."
        )


if __name__ == "__main__":
    main()
