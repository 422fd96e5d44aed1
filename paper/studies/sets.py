"""Prediction sets: their size by calibrator, and what `predict_set` costs beside
`predict_proba`.

    python paper/studies/sets.py [FILE.npz ...] [--top5 imagenet_top5.npz] [--speed]

Files hold `val_logits`, `val_labels`, `test_logits`, `test_labels` (or the last two
alone, which are split). The calibrator is fitted on one half of the validation set,
thresholds come from the other half, and sets are measured on the test set. Without
files those of `suite/` are used.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import hokical

METHODS = ("uncalibrated", "temps", "auto")
SUITE = Path(__file__).parents[2] / "suite"


def read(path: Path, rng: np.random.Generator) -> tuple[Any, ...]:
    """Fit, certify and test parts, (logits, labels) each."""
    arrays = np.load(path)
    names = [
        f"{part}_{what}" for part in ("val", "test") for what in ("logits", "labels")
    ]
    if "val_logits" in arrays:
        val_logits, val_labels, logits, labels = (arrays[name] for name in names)
    else:
        logits, labels = arrays["test_logits"], arrays["test_labels"]
        order = rng.permutation(len(labels))
        half, rest = np.array_split(order, 2)
        val_logits, val_labels, logits, labels = (
            logits[half],
            labels[half],
            logits[rest],
            labels[rest],
        )
    order = rng.permutation(len(val_labels))
    fit, certify = np.array_split(order, 2)
    return (
        (val_logits[fit], val_labels[fit]),
        (val_logits[certify], val_labels[certify]),
        (logits, labels),
    )


def measure(path: Path, seed: int) -> list[dict[str, Any]]:
    fit, held_out, (logits, labels) = read(path, np.random.default_rng(seed))
    rows = []
    for name in METHODS:
        cal = hokical.make(name).fit(*fit).certify(*held_out)
        for coverage in (0.9, 0.95):
            for kind in ("smallest", "adaptive"):
                options = {"coverage": coverage, "kind": kind, "allow_empty": True}
                sets = cal.predict_set(logits, **options)
                inside = sets.members[np.arange(len(labels)), labels]
                classes = [inside[labels == k] for k in np.unique(labels)]
                worst = min(
                    (one.mean() for one in classes if one.size >= 20), default=np.nan
                )
                about = {
                    "data": path.stem,
                    "method": name,
                    "coverage": coverage,
                    "kind": kind,
                }
                rows.append(
                    about
                    | {
                        "covered": inside.mean(),
                        "size": sets.sizes.mean(),
                        "worst": worst,
                    }
                )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Means over all files, and temperature scaling's size beside the default's."""
    print("| coverage | sets | method | covered | mean size | worst class |")
    print("|---|---|---|---|---|---|")
    for coverage in (0.9, 0.95):
        for kind in ("smallest", "adaptive"):
            for method in METHODS:
                key = (coverage, kind, method)
                own = [
                    r for r in rows if (r["coverage"], r["kind"], r["method"]) == key
                ]
                covered, size, worst = (
                    np.nanmean([r[n] for r in own])
                    for n in ("covered", "size", "worst")
                )
                numbers = f"{covered:.4f} | {size:.3f} | {worst:.3f}"
                print(f"| {coverage:.0%} | {kind} | {method} | {numbers} |")
    print("\nSize of the default's smallest sets over temperature scaling's:")
    for coverage in (0.9, 0.95):
        for data in dict.fromkeys(r["data"] for r in rows):
            own = [
                r
                for r in rows
                if (r["data"], r["coverage"], r["kind"]) == (data, coverage, "smallest")
            ]
            ours, theirs = (
                sum(r["size"] for r in own if r["method"] == name)
                for name in ("auto", "temps")
            )
            print(f"  {coverage:.0%} {data}: {ours / theirs:.4f}")


def imagenet(path: Path, seeds: int) -> None:
    """ResNet-152 on ImageNet from its best five probabilities, at 90 %.

    The 50,000 images are split into 10,000 to fit on, 10,000 to certify with and the
    rest.
    """
    arrays = np.load(path)
    probs, classes = (
        arrays[f"resnet152_pytorch/{name}"] for name in ("probs", "classes")
    )
    probs = np.minimum(probs.astype(np.float64), 1.0)
    probs /= np.maximum(1.0, probs.sum(axis=1, keepdims=True))
    classes = np.where(probs > 0.0, classes, -1)
    logs = np.log(np.where(probs > 0.0, probs, 1.0))
    rows, labels = (
        hokical.TopK.from_log_probabilities(logs, classes, 1000),
        arrays["labels"],
    )
    print("| method | sets | covered | mean size of what is seen | 'or another' |")
    print("|---|---|---|---|---|")
    for method in ("uncalibrated", "temps"):
        for kind in ("smallest", "adaptive"):
            found = np.array(
                [_split(rows, labels, method, kind, seed) for seed in range(seeds)]
            )
            covered, size, other = found.mean(axis=0)
            print(
                f"| {method} | {kind} | {covered:.4f} | {size:.2f} | {other:.2%} |",
                flush=True,
            )


def _split(
    rows: Any, labels: Any, method: str, kind: str, seed: int
) -> tuple[float, ...]:
    order = np.random.default_rng(seed).permutation(labels.size)
    fit, certify, test = order[:10_000], order[10_000:20_000], order[20_000:]
    cal = hokical.make(method).fit(rows[fit], labels[fit].astype(int))
    cal.certify(rows[certify], labels[certify].astype(int))
    found = cal.predict_set(rows[test], coverage=0.9, kind=kind, allow_empty=True)
    covered = found.members[np.arange(test.size), labels[test]].mean()
    seen = np.take_along_axis(found.members, rows[test].indices, axis=1).sum(axis=1)
    return float(covered), float(seen.mean()), float(found.other.mean())


def speed() -> None:
    """`predict_set` over `predict_proba`, the median of 15 alternating calls."""
    rng = np.random.default_rng(0)
    for classes, n in ((10, 100_000), (100, 20_000), (1000, 4000)):
        logits = 3.0 * rng.normal(size=(n, classes)).astype(np.float32)
        labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)
        for method in ("temps", "auto"):
            if classes == 1000 and method == "auto":
                continue
            cal = hokical.make(method).fit(logits[:2000], labels[:2000])
            cal.certify(logits[2000:4000], labels[2000:4000])
            times: dict[str, list[float]] = {"proba": [], "set": []}
            for _ in range(15):
                for name in times:
                    start = time.perf_counter()
                    cal.predict_proba(logits) if name == "proba" else cal.predict_set(
                        logits, coverage=0.9
                    )
                    times[name].append(time.perf_counter() - start)
            proba, sets = (float(np.median(times[name])) for name in ("proba", "set"))
            print(
                f"{method}, {n:,} x {classes}: predict_set / predict_proba = "
                f"{sets / proba:.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--top5", type=Path)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    if given.speed:
        speed()
        return
    if given.top5:
        imagenet(given.top5, given.seeds)
        return
    files = given.files or sorted(
        path for path in SUITE.glob("*.npz") if "imagenet" not in path.name
    )
    rows = []
    for path in files:
        for seed in range(given.seeds):
            rows += measure(path, seed)
        print(f"# {path.stem}", flush=True)
    show(rows)


if __name__ == "__main__":
    main()
