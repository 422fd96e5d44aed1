"""The content of a suite, measured on its logits."""

from __future__ import annotations

from typing import Any

from hokical.calibrators import Uncalibrated
from hokical.metrics import ece
from hokical_paper.core import track
from hokical_paper.suite.manifest import Pair, Suite


def overview(suite: Suite) -> list[dict[str, Any]]:
    """Per pair: data set, network, sizes, test accuracy and uncalibrated ECE (15
    bins).
    """
    names = {pair.name: pair for pair in suite.pairs}
    return [
        _facts(names[name]) for name in track(names, "Reading {}", len(names), None)
    ]


def _facts(pair: Pair) -> dict[str, Any]:
    data = pair.load()
    uncalibrated = Uncalibrated().fit(data.val_logits, data.val_labels)
    correct = data.test_correct
    return {
        "name": pair.name,
        "dataset": pair.dataset_title,
        "model": pair.title,
        "n_classes": pair.n_classes,
        "n_val": int(data.val_labels.shape[0]),
        "n_test": int(data.test_labels.shape[0]),
        "test_accuracy": float(correct.mean()),
        "uncalibrated_ece": ece(
            uncalibrated.predict_confidence(data.test_logits), correct
        ),
        "recal": pair.recal is not None,
        "views": pair.has_views,
        "sha256": dict(pair.entry["files"]),
    }
