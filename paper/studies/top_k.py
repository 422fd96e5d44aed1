"""How much is lost when only the k best logits of each row are kept?

    python paper/studies/top_k.py LOGITS.npz [LOGITS.npz ...] [--splits 10] > table.md

Each file's examples (both parts, if it has two) are cut into halves several times, with
fixed seeds: one half fits, the other tests. Each method is fitted on all logits, and on
the best 5, 10 and 20 of each row, without and with the rest of the row as one number
(`TopK.rest`, which log-probabilities give for free). Printed are means over the splits.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hokical import TopK
from hokical._core.logits import Logits, as_logits
from hokical.calibrators import make
from hokical.calibrators.catalog import BUILT_IN
from hokical.metrics import brier, ece, log_loss

KEPT = (5, 10, 20)
#: A confidence of exactly 0 or 1 that is wrong would make a mean log loss infinite.
CLIP = 1e-3

Scores = tuple[float, float, float]


@dataclass(frozen=True)
class Setting:
    """How many logits are kept per row (None: all), and whether the rest is known in
    sum.
    """

    k: int | None
    keep_rest: bool

    def cut(self, logits: np.ndarray) -> Logits:
        if self.k is None:
            return as_logits(logits)
        return TopK.from_logits(logits, self.k, keep_rest=self.keep_rest)

    def __str__(self) -> str:
        if self.k is None:
            return "all"
        return f"{self.k} and the rest" if self.keep_rest else str(self.k)


def settings(n_classes: int) -> list[Setting]:
    """All logits first, then fewer and fewer."""
    few = [
        Setting(k, rest)
        for k in reversed(KEPT)
        if k < n_classes
        for rest in (True, False)
    ]
    return [Setting(None, False), *few]


def examples(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """All logits and labels of a file."""
    with np.load(path) as stored:
        parts = [part for part in ("val", "test") if f"{part}_logits" in stored]
        names = [f"{part}_" for part in parts] or [""]
        logits = np.concatenate([stored[f"{name}logits"] for name in names])
        labels = np.concatenate([stored[f"{name}labels"] for name in names])
    return logits.astype(np.float32), labels.astype(np.int64)


def halves(n_rows: int, n_splits: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for seed in range(n_splits):
        order = np.random.default_rng(seed).permutation(n_rows)
        yield order[: n_rows // 2], order[n_rows // 2 :]


def score(kind: Any, logits: Logits, labels: np.ndarray, fit: Any, test: Any) -> Scores:
    """ECE, Brier score and log loss on the test half."""
    calibrator = kind().fit(logits.take(fit), labels[fit])
    tested = logits.take(test)
    confidence = calibrator.predict_confidence(tested)
    right = tested.labels == labels[test]
    return (
        ece(confidence, right),
        brier(confidence, right),
        log_loss(np.clip(confidence, CLIP, 1.0 - CLIP), right),
    )


def study(path: Path, n_splits: int) -> None:
    logits, labels = examples(path)
    print(f"\n{path.stem}: {labels.size:,} examples, {logits.shape[1]:,} classes\n")
    print("| method | logits kept | ECE | Brier | log loss |")
    print("|---|---|--:|--:|--:|")
    cuts = {setting: setting.cut(logits) for setting in settings(logits.shape[1])}
    methods = [name for name in BUILT_IN if make(name).method.accepts_top_k]
    for method, (setting, kept) in product(methods, cuts.items()):
        pairs = halves(labels.size, n_splits)
        rows = [
            score(type(make(method)), kept, labels, fit, test) for fit, test in pairs
        ]
        shown = " | ".join(f"{value:.4f}" for value in np.mean(rows, axis=0))
        print(f"| {method} | {setting} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="LOGITS.npz")
    parser.add_argument("--splits", type=int, default=10)
    options = parser.parse_args()
    for path in options.files:
        study(path, options.splits)


if __name__ == "__main__":
    main()
