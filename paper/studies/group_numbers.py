"""Numbers beside the logits: as numbers, cut into deciles, or left out.

    python paper/studies/group_numbers.py suite [--divisions 5] [--sizes 1000 5000]
    python paper/studies/group_numbers.py simulated [--divisions 20] [--sizes 300 1000 5000]

`suite`: the number is the share of 20 zoomed-out copies of an image that keep its label,
for every network of `suite/` that has them. `simulated`: the agreement of ten coarse
copies of a classifier, the distance to its training data, both, and a number without
meaning.

Log loss of `hokical.auto` on new examples: without the number; with it cut into deciles,
passed as text, which is what every number was until 0.5; and with the number itself.
Positive gains are better. Intervals are 95 % over random divisions (Student's t). Takes
about five minutes, and three.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import t

import hokical
from hokical.metrics import log_loss

ROOT = Path(__file__).resolve().parents[2]
#: New examples of each division.
N_NEW = 6000
N_CLASSES = 5
N_COPIES = 10

Columns = dict[str, np.ndarray]


def cut(numbers: np.ndarray, fit: np.ndarray) -> np.ndarray:
    """The decile of each number among those of the fit, as text."""
    points = np.unique(np.quantile(numbers[fit], np.arange(1, 10) / 10))
    return np.char.add("bin ", np.searchsorted(points, numbers, "right").astype(str))


def gains(
    logits: np.ndarray, labels: np.ndarray, numbers: Columns, n_fit: int, seed: int
) -> tuple[float, float, float]:
    """Log loss without numbers, and by how much bins and numbers lower it."""
    rows = np.random.default_rng(seed).permutation(labels.size)
    fit, new = rows[:n_fit], rows[n_fit : n_fit + N_NEW]
    bins = {name: cut(column, fit) for name, column in numbers.items()}
    losses = []
    for columns in (None, bins, numbers):
        groups = [
            columns and {name: column[subset] for name, column in columns.items()}
            for subset in (fit, new)
        ]
        with warnings.catch_warnings():  # of bins that are not in the fit
            warnings.simplefilter("ignore", UserWarning)
            cal = hokical.auto(logits[fit], labels[fit], groups=groups[0])
            proba = cal.predict_proba(logits[new], groups=groups[1])
        losses.append(log_loss(proba, labels[new]))
    plain, by_bins, by_numbers = losses
    return plain, plain - by_bins, plain - by_numbers


def interval(values: Sequence[float]) -> str:
    """The mean in units of .0001, with its 95 % interval."""
    scaled = 1e4 * np.asarray(values)
    half = t.ppf(0.975, scaled.size - 1) * scaled.std(ddof=1) / np.sqrt(scaled.size)
    return f"{scaled.mean():.1f} ± {half:.1f}"


def read_networks() -> Iterator[tuple[str, np.ndarray, np.ndarray, Columns]]:
    """Logits, labels and the share that keeps the label, of each network."""
    for path in sorted((ROOT / "suite").glob("*.npz")):
        data = np.load(path)
        if "val_kept" in data:
            logits, labels, kept = (
                np.concatenate([data[f"val_{name}"], data[f"test_{name}"]])
                for name in ("logits", "labels", "kept")
            )
            share = {"share": kept.mean(axis=1)}
            yield path.stem, logits.astype(np.float32), labels.astype(int), share


def simulate(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, Columns]:
    """A classifier that errs more far from its training data, ten coarse copies of it,
    and numbers beside its logits.
    """
    rng = np.random.default_rng(seed)
    truth = 2.0 * rng.normal(size=(n, N_CLASSES))
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    distance = np.abs(rng.normal(size=n))
    errors = (0.5 + 0.5 * distance[:, None]) * rng.normal(size=truth.shape)
    logits = 1.5 * (truth + errors)
    predicted = logits.argmax(axis=1)
    copies = truth + 4.0 * rng.normal(size=(N_COPIES, *truth.shape))
    agreement = (copies.argmax(axis=2) == predicted).mean(axis=0)
    noise = rng.normal(size=n)
    return (
        logits,
        labels,
        {"agreement": agreement, "distance": distance, "noise": noise},
    )


def report(title: str, rows: Sequence[tuple[float, float, float]]) -> None:
    plain, by_bins, by_numbers = zip(*rows, strict=True)
    print(
        f"| {title} | {np.mean(plain):.4f} | {interval(by_bins)} | "
        f"{interval(by_numbers)} | {np.mean(np.greater(by_numbers, by_bins)):.0%} |",
        flush=True,
    )


def report_suite(sizes: Sequence[int], divisions: int) -> None:
    for size in sizes:
        means = []
        for name, logits, labels, numbers in read_networks():
            rows = [gains(logits, labels, numbers, size, k) for k in range(divisions)]
            report(f"{name} | {size}", rows)
            means.append(np.mean(rows, axis=0))
        report(f"mean of {len(means)} networks | {size}", [*map(tuple, means)])


def report_simulated(sizes: Sequence[int], divisions: int) -> None:
    for size in sizes:
        for names in (
            ("agreement",),
            ("distance",),
            ("agreement", "distance"),
            ("noise",),
        ):
            rows = []
            for seed in range(divisions):
                logits, labels, numbers = simulate(size + N_NEW, seed)
                columns = {name: numbers[name] for name in names}
                rows.append(gains(logits, labels, columns, size, seed))
            report(f"{', '.join(names)} | {size}", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("suite", "simulated"))
    parser.add_argument("--divisions", type=int)
    parser.add_argument("--sizes", type=int, nargs="+")
    options = parser.parse_args()
    print("| number | examples | log loss | deciles gain | number gains | ahead |")
    print("|---|---|---|---|---|---|")
    if options.what == "suite":
        report_suite(options.sizes or (1000, 5000), options.divisions or 5)
    else:
        report_simulated(options.sizes or (300, 1000, 5000), options.divisions or 20)


if __name__ == "__main__":
    main()
