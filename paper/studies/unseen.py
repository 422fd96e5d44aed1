"""What Hoki's extrapolation costs: test ECE with `unseen="nearest"` and to the paper's
letter.

    python paper/studies/unseen.py [folder of .npz files, default suite] [splits,
    default 20]

The noise is chosen once per file, on its first rows, which later splits use again.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

from hokical import Hoki, select_noise
from hokical.metrics import ece

RULES = ("as_printed", "nearest")


def main(folder: Path, splits: int) -> None:
    means = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as stored:
            parts = [part for part in ("val", "test") if f"{part}_logits" in stored]
            logits, labels = (
                np.concatenate([stored[f"{part}_{what}"] for part in parts])
                for what in ("logits", "labels")
            )
        some = min(labels.size // 2, 3000)
        noise = select_noise(logits[:some], labels[:some]).noise
        found = [one_split(logits, labels, noise, seed) for seed in range(splits)]
        means.append(np.mean(found, axis=0))
        print(
            f"{path.stem:32} as printed {means[-1][0]:.5f}  nearest {means[-1][1]:.5f}",
            flush=True,
        )
    table = np.array(means)
    gap = table[:, 1] - table[:, 0]
    print(
        f"mean {table.mean(axis=0).round(5)}: better on {(gap < -1e-6).sum()}, worse "
        "on",
        end=" ",
    )
    print(f"{(gap > 1e-6).sum()} of {len(gap)}, by {gap.max():.5f} at most")


def one_split(
    logits: np.ndarray, labels: np.ndarray, noise: object, seed: int
) -> list[float]:
    """The test ECE by each rule, fitted on up to 5000 random rows."""
    order = np.random.default_rng(seed).permutation(labels.size)
    n = min(labels.size // 2, 5000)
    fit, test = order[:n], order[n:]
    right = logits[test].argmax(axis=1) == labels[test]
    scores = []
    for unseen in RULES:
        cal = Hoki(noise=noise, unseen=unseen).fit(logits[fit], labels[fit])
        scores.append(ece(cal.predict_confidence(logits[test]), right))
    return scores


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(
        Path(sys.argv[1] if len(sys.argv) > 1 else "suite"),
        int(sys.argv[2]) if len(sys.argv) > 2 else 20,
    )
