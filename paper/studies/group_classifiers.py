"""Groups in classifiers: what they gain, that they do no harm, and what their fit
costs.

    python paper/studies/group_classifiers.py [cost]
    python paper/studies/group_classifiers.py subjects mmlu_subjects.npz
    python paper/studies/group_classifiers.py people employment.npz

`subjects`: `scores` (prompts, questions, 4), `labels`, `subject`; constants were chosen
on the first half of the prompts, and the second half is reported. `people`:
`probability`, `employed`, `sex`, `race`, `age`; groups and scores with their change in
standard errors.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import hokical
from hokical.metrics import group_table

SEEDS = range(4)


def losses(proba: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return -np.log(np.maximum(proba[np.arange(labels.size), labels], 1e-12))


def worst_gap(
    proba: np.ndarray, labels: np.ndarray, group: np.ndarray, least: int = 50
) -> float:
    """The largest |says - right| of a group with enough rows."""
    gap = proba.max(axis=1) - (proba.argmax(axis=1) == labels)
    own = [gap[group == g] for g in np.unique(group)]
    return max(abs(each.mean()) for each in own if each.size >= least)


def report_subjects(path: Path, prompts: Iterable[int], sizes: Iterable[int]) -> None:
    data = np.load(path)
    labels, group = data["labels"].astype(int), data["subject"].astype(str)
    print(
        "| examples | method | log loss | worst subject's gap | better than without "
        "groups |"
    )
    print("|---|---|---|---|---|")
    for size in sizes:
        found: dict[str, list[tuple[float, float]]] = {}
        for prompt in prompts:
            logits = np.log(np.maximum(data["scores"][prompt].astype(float), 1e-12))
            for seed in SEEDS:
                rows = np.random.default_rng(seed).permutation(labels.size)
                fit, test = rows[:size], rows[size:]
                cal = hokical.auto(logits[fit], labels[fit])
                by_group = hokical.auto(logits[fit], labels[fit], groups=group[fit])
                predicted = {
                    "uncalibrated": np.exp(logits[test])
                    / np.exp(logits[test]).sum(1)[:, None],
                    "auto": cal.predict_proba(logits[test]),
                    "auto, groups": by_group.predict_proba(
                        logits[test], groups=group[test]
                    ),
                }
                for name, proba in predicted.items():
                    gap = worst_gap(proba, labels[test], group[test])
                    found.setdefault(name, []).append(
                        (losses(proba, labels[test]).mean(), gap)
                    )
        for name, pairs in found.items():
            loss, gap = np.mean(pairs, axis=0)
            base = np.array(found["auto"])
            wins = (
                (np.array(pairs) < base).mean(axis=0)
                if name == "auto, groups"
                else None
            )
            share = "" if wins is None else f"{wins[0]:.0%} / {wins[1]:.0%}"
            print(f"| {size} | {name} | {loss:.4f} | {gap:.3f} | {share} |")


def report_people(path: Path, sizes: Iterable[int]) -> None:
    data = np.load(path)
    chance, labels = data["probability"].astype(float), data["employed"].astype(int)
    logits = hokical.from_binary_scores(np.log(chance) - np.log1p(-chance))
    people = {name: data[name] for name in ("sex", "race", "age")}
    own = np.stack([1.0 - chance, chance], axis=1)
    for size in sizes:
        rows = np.random.default_rng(0).permutation(labels.size)
        fit, test = rows[:size], rows[size:]
        cal = hokical.auto(logits[fit], labels[fit], groups=take(people, fit))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # of groups that were not in the fit
            proba = cal.predict_proba(logits[test], groups=take(people, test))
        print(f"\n{size:,} examples: {cal.reason_}\n")
        brier = [
            ((p[test] if p is own else p)[:, 1] - labels[test]) ** 2
            for p in (own, proba)
        ]
        loss = [losses(own[test], labels[test]), losses(proba, labels[test])]
        for name, (before, after) in {"log loss": loss, "Brier": brier}.items():
            change, error = mean_and_error(after - before)
            print(
                f"{name}: {before.mean():.5f}, then {after.mean():.5f}: "
                f"{change / error:+.1f} SE"
            )
        tables = [
            group_table(p, labels[test], take(people, test)) for p in (own[test], proba)
        ]
        worse = []
        for name, (before, after) in group_losses(
            loss, tables, take(people, test)
        ).items():
            change, error = mean_and_error(after - before)
            worse += [f"{name} {change / error:+.1f} SE"] if change > error else []
        pairs = zip(tables[0].rows, tables[1].rows, strict=True)
        wider = [
            f"{old.name} {(abs(new.gap) - abs(old.gap)) / error:+.1f} SE"
            for old, new in pairs
            if ", " not in old.name
            and (error := np.sqrt(old.predicted * (1 - old.predicted) / old.n))
            and abs(new.gap) - abs(old.gap) > error
        ]
        print(
            "groups of one column whose gap grew beyond its SE: "
            f"{', '.join(wider) or 'none'}"
        )
        counts = [len(table.flagged) for table in tables]
        sizes_ = [max(abs(row.z) for row in table.rows) for table in tables]
        print(
            f"groups certainly off: {counts[0]}, then {counts[1]}, of "
            f"{len(tables[0].rows)}"
        )
        print(f"largest standardised gap: {sizes_[0]:.1f}, then {sizes_[1]:.1f}")
        print(
            "groups of one column whose log loss rose beyond its SE: "
            f"{', '.join(worse) or 'none'}"
        )


def group_losses(
    loss: list[np.ndarray],
    tables: list[hokical.metrics.GroupTable],
    people: dict[str, np.ndarray],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Losses before and after, of the rows of each group of one column."""
    return {
        f"{column}={value}": tuple(each[values == value] for each in loss)
        for column, values in people.items()
        for value in np.unique(values)
        if (values == value).sum() >= 20
    }


def take(columns: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: column[rows] for name, column in columns.items()}


def mean_and_error(gaps: np.ndarray) -> tuple[float, float]:
    """The mean, and its standard error, or what rounding makes of it."""
    return float(gaps.mean()), max(float(gaps.std() / np.sqrt(gaps.size)), 1e-6)


def report_cost(n: int = 12_000, n_classes: int = 10, n_groups: int = 14) -> float:
    """The ratio of the times of a fit with groups and without."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, n_groups, n)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    sharp = rng.uniform(0.4, 1.2, n_groups)[group][:, None]
    labels = np.argmax(sharp * logits + rng.gumbel(size=logits.shape), axis=1)
    times = []
    for groups in (None, group):
        runs = []
        for _ in range(5):
            start = time.process_time()
            hokical.auto(logits, labels, groups=groups)
            runs.append(time.process_time() - start)
        times.append(min(runs[1:]))
    print(
        f"{n:,} x {n_classes} classes x {n_groups} groups: {times[0]:.3f} s of "
        f"processor time without groups, {times[1]:.3f} s with: "
        f"{times[1] / times[0]:.1f} times"
    )
    return times[1] / times[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what", choices=("cost", "subjects", "people"), nargs="?", default="cost"
    )
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument(
        "--first-half", action="store_true", help="that constants were chosen on"
    )
    given = parser.parse_args()
    if given.what == "cost":
        report_cost()
    elif given.path is None:
        parser.error(f"{given.what} needs the path of its data")
    elif given.what == "subjects":
        report_subjects(
            given.path, range(5) if given.first_half else range(5, 10), (400, 800, 1443)
        )
    else:
        report_people(given.path, (2_000, 20_000, 140_000))


if __name__ == "__main__":
    main()
