"""A suite of three small synthetic pairs, in the format of the real one, and runs of
it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.conftest import synthetic_logits

from hokical_paper.running.cache import Cache
from hokical_paper.running.cells import run_suite
from hokical_paper.running.methods import METHODS, SLOW
from hokical_paper.running.results import Results
from hokical_paper.suite.manifest import open_suite

N_VAL, N_TEST, N_CLASSES = 150, 120, 4
QUICK = [name for name in METHODS if name not in SLOW]
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "imagenet": "ImageNet"}


def write_suite(folder: Path) -> Path:
    """MNIST and CIFAR-10 pairs with all arrays; an ImageNet pair in two files,
    without extras.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [
        write_pair(folder, "mnist", "lenet5", "LeNet-5", seed=1),
        write_pair(folder, "cifar10", "resnet110", "ResNet-110", seed=2),
        write_pair(folder, "imagenet", "small", "Small", seed=3, extras=False),
    ]
    write_manifest(folder, pairs)
    return folder


def write_manifest(folder: Path, pairs: list[dict[str, Any]], version: int = 1) -> None:
    (folder / "manifest.json").write_text(
        json.dumps({"format": version, "pairs": pairs})
    )


def write_pair(
    folder: Path,
    dataset: str,
    network: str,
    title: str,
    *,
    seed: int,
    extras: bool = True,
) -> dict[str, Any]:
    """Write the files of a pair; its entry of the manifest."""
    arrays = pair_arrays(seed, extras=extras)
    name = f"{dataset}_{network}"
    parts = {f"{name}.npz": arrays}
    if not extras:
        parts = {
            f"{name}_{part}.npz": {
                k: v for k, v in arrays.items() if k.startswith(part)
            }
            for part in ("val", "test")
        }
    for file, content in parts.items():
        np.savez_compressed(folder / file, **content)
    correct = arrays["test_logits"].argmax(axis=1) == arrays["test_labels"]
    return {
        "name": name,
        "dataset": dataset,
        "network": network,
        "title": title,
        "dataset_title": TITLES[dataset],
        "n_classes": N_CLASSES,
        "test_accuracy": float(correct.mean()),
        "how": "drawn at random",
        "recal": {"fit_seconds": 1.5, "device": "a computer"} if extras else None,
        "zoom_scales": [0.1, 0.9] if extras else None,
        "files": {file: sha256(folder / file) for file in parts},
    }


def pair_arrays(seed: int, *, extras: bool) -> dict[str, np.ndarray]:
    logits, labels = synthetic_logits(N_VAL + N_TEST, N_CLASSES, seed=seed)
    rng = np.random.default_rng(seed)
    correct = logits.argmax(axis=1) == labels
    kept = rng.uniform(size=(labels.size, 20)) < np.where(correct, 0.8, 0.4)[:, None]
    parts = {"val": slice(0, N_VAL), "test": slice(N_VAL, None)}
    arrays = {}
    for part, rows in parts.items():
        arrays[f"{part}_logits"] = logits[rows].astype(np.float16)
        arrays[f"{part}_labels"] = labels[rows].astype(np.uint8)
        if extras:
            arrays[f"{part}_kept"] = kept[rows]
    if extras:
        arrays["recal_confidence"] = rng.uniform(0.6, 0.9, size=N_TEST).astype(
            np.float32
        )
    return arrays


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_quick(folder: Path, cache: Path, **options: Any) -> Results:
    """All but the matrix methods."""
    methods = [*QUICK]
    settings = {"methods": methods, "jobs": 1} | options
    return run_suite(open_suite(folder), Cache(cache), **settings)
