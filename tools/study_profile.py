"""The study behind `profile`: which widths, features, links and penalties, on real logits.

    python tools/study_profile.py --data FOLDER [FOLDER ...] --splits 20 --out tables.md

FOLDER holds .npz files with `test_logits` and `test_labels` and perhaps `val_logits` and
`val_labels`. Both parts are pooled and split anew by every seed: 5000 examples, or half if there
are fewer than 10,000, to learn from, the rest to measure on. Results are kept in --cache, line by
line, so an interrupted run resumes. The tables are Markdown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from profile_study_data import Data, Kept, LogitSet, Method, Plan, Scores, read_sets
from scipy.special import expit, log_expit
from scipy.stats import rankdata
from sklearn.isotonic import IsotonicRegression

from hokical import label_distribution, select_noise
from hokical._core.blocks import by_blocks
from hokical._core.logits import Logits, as_logits
from hokical._fitting import profile_link as link
from hokical._fitting.likelihood import count_block
from hokical._fitting.partitions import Block
from hokical._fitting.temperature import best_temperature
from hokical.calibrators import StabilityProfile, make, methods_from_logits
from hokical.metrics import brier, classwise_ece, ece, log_loss, log_loss_full, smooth_ece
from hokical.rules._sharing import distribute_remainder
from hokical.stability._noise import Gaussian, Gumbel
from hokical.stability._profile import gumbel_log_odds, log_odds_and_profile, runner_up_gaps

#: Some methods say exactly 0 or 1. Without a bound, one such mistake makes a log loss infinite.
CLIP = 1e-6
METRICS = ("brier", "log_loss", "ece_mass", "smooth_ece")
Results = dict[str, dict[str, list[Scores]]]


# --- methods


def scores(confidence: np.ndarray, right: np.ndarray, begun: float) -> Scores:
    return {
        "seconds": time.process_time() - begun,
        "brier": brier(confidence, right),
        "log_loss": log_loss(confidence, right, clip=CLIP),
        "ece_mass": ece(confidence, right, bins="mass"),
        "smooth_ece": smooth_ece(confidence, right),
    }


def from_registry(name: str, **options: Any) -> Method:
    def run(val: Data, test: Data) -> Scores:
        begun = time.process_time()
        cal = make(name, **options).fit(*val)
        return scores(cal.predict_confidence(test[0]), cal.predict(test[0]) == test[1], begun)

    return run


Columns = Callable[[Any, float, Any], np.ndarray]


def with_columns(columns: Columns, isotonic: bool = False) -> Method:
    """The profile's link over other columns, made of logits, temperature and the selected noise."""

    def run(val: Data, test: Data) -> Scores:
        begun = time.process_time()
        logits, new = as_logits(val[0]), as_logits(test[0])
        right = logits.labels == val[1]
        temperature = fit_temperature(logits, val[1])
        offset, offset_new = (log_odds(data, temperature) for data in (logits, new))
        found = link.fit_link(columns(logits, temperature, val), offset, right, np.ones(right.size))
        added = found.intercept + columns(new, temperature, val) @ found.coef
        confidence = expit(offset_new + added)
        if isotonic:
            seen = expit(offset + found.intercept + columns(logits, temperature, val) @ found.coef)
            rising = IsotonicRegression(out_of_bounds="clip").fit(seen, right)
            confidence = rising.predict(confidence)
        return scores(confidence, new.labels == test[1], begun)

    return run


def fit_temperature(logits: Logits, labels: np.ndarray) -> float:
    return best_temperature(count_block(Block(logits, labels, None))).x


def log_odds(logits: Logits, temperature: float) -> np.ndarray:
    def of_block(block: Logits) -> np.ndarray:
        return gumbel_log_odds(block, runner_up_gaps(block), temperature)

    return np.clip(by_blocks(of_block, logits), -34.0, 34.0)


def gaussian(*widths: float, part: slice = slice(None), odds: bool = True) -> Columns:
    """The profile's columns at these widths; `part` takes log gamma or log(1 - gamma) alone."""

    def columns(logits: Any, temperature: float, _: Data) -> np.ndarray:
        if not widths:
            return log_odds(logits, temperature)[:, None]
        scales = [width * temperature for width in widths]
        own, profile = log_odds_and_profile(logits, temperature, scales)
        chosen = np.maximum(profile, -25.0)[:, part]
        return np.column_stack([np.clip(own, -34.0, 34.0), chosen]) if odds else chosen

    return columns


def gumbel(*widths: float) -> Columns:
    """log gamma and log(1 - gamma) under Gumbel noise: the softmax at several temperatures."""

    def columns(logits: Any, temperature: float, _: Data) -> np.ndarray:
        odds = [log_odds(logits, width * temperature) for width in widths]
        return np.column_stack([f(x) for x in odds for f in (log_expit, lambda x: log_expit(-x))])

    return columns


def cheap(logits: Any, temperature: float, _: Data) -> np.ndarray:
    """The gaps to the second and third class, and the entropy at two temperatures."""
    margins = np.sort(logits.margins, axis=1) / temperature
    columns = [
        log_odds(logits, temperature),
        margins[:, 1],
        margins[:, min(2, logits.n_classes - 1)],
    ]
    for flatter in (1.0, 3.0):
        weights = np.exp(-margins / flatter)
        proba = weights / weights.sum(axis=1, keepdims=True)
        columns.append(-(proba * np.log(np.maximum(proba, 1e-300))).sum(axis=1))
    return np.column_stack(columns)


def selected(logits: Any, temperature: float, val: Data) -> np.ndarray:
    """Widths around the one that `select_noise` takes, as Hoki does."""
    width = select_noise(*val, families=("gaussian",), progress=False).noise.width
    return gaussian(*(f * width / temperature for f in (0.5, 1.0, 2.0)))(logits, temperature, val)


def together(*parts: Columns) -> Columns:
    return lambda *given: np.column_stack([part(*given) for part in parts])


FEATURES: dict[str, Method] = {
    "temperature scaling": from_registry("temps"),
    "profile: log-odds, both logs, widths 1, 3, 10": from_registry("profile"),
    "log-odds alone (slope and intercept)": with_columns(gaussian()),
    "without the log-odds": with_columns(gaussian(1, 3, 10, odds=False)),
    "log gamma only": with_columns(gaussian(1, 3, 10, part=slice(0, None, 2))),
    "log(1 - gamma) only": with_columns(gaussian(1, 3, 10, part=slice(1, None, 2))),
    "width 1": with_columns(gaussian(1)),
    "width 3": with_columns(gaussian(3)),
    "widths 1, 10": with_columns(gaussian(1, 10)),
    "widths 1, 2, 4": with_columns(gaussian(1, 2, 4)),
    "widths 0.5, 1, 2, 4": with_columns(gaussian(0.5, 1, 2, 4)),
    "widths 1, 3, 10, 30": with_columns(gaussian(1, 3, 10, 30)),
    "widths 0.5, 1, 2 of the selected noise": with_columns(selected),
    "Gumbel widths 1, 3, 10 instead": with_columns(gumbel(1, 3, 10)),
    "profile and Gumbel width 3": with_columns(together(gaussian(1, 3, 10), gumbel(3))),
    "cheap: gaps and entropies": with_columns(cheap),
    "profile and cheap": with_columns(together(gaussian(1, 3, 10), cheap)),
    "profile, then isotonic": with_columns(gaussian(1, 3, 10), isotonic=True),
}


# --- rules for the penalty


def totals(losses: list[np.ndarray], counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gain of each candidate over the offset alone, negative if it is one, and its error."""
    gains = np.array([np.sum(counts * (loss - losses[0])) for loss in losses])
    errors = np.array([np.sqrt(counts.size) * np.std(loss - losses[0]) for loss in losses])
    return gains, errors


def averaged(price: float) -> Callable[..., np.ndarray]:
    def shares(losses: list[np.ndarray], counts: np.ndarray, _: float) -> np.ndarray:
        gains, errors = totals(losses, counts)
        prices = gains + price * errors
        weights = np.exp(prices.min() - prices)
        return weights / weights.sum()

    return shares


def best_alone(losses: list[np.ndarray], counts: np.ndarray, _: float) -> np.ndarray:
    gains, _ = totals(losses, counts)
    return np.eye(len(losses))[gains.argmin()]


def one_error_rule(losses: list[np.ndarray], counts: np.ndarray, _: float) -> np.ndarray:
    """The largest penalty within one standard error of the best."""
    gains, _ = totals(losses, counts)
    best = losses[gains.argmin()]
    errors = np.array([np.sqrt(counts.size) * np.std(loss - best) for loss in losses])
    return np.eye(len(losses))[np.argmax(gains <= gains.min() + errors)]


def with_rule(rule: Callable[..., np.ndarray]) -> Method:
    def run(val: Data, test: Data) -> Scores:
        with patch.object(link, "weigh_candidates", rule):
            return from_registry("profile")(val, test)

    return run


PENALTIES: dict[str, Method] = {
    "temperature scaling": from_registry("temps"),
    "average, price 1 + 20/mistakes (profile)": from_registry("profile"),
    "average, no price": with_rule(averaged(0.0)),
    "average, price of one standard error": with_rule(averaged(1.0)),
    "average, price of two": with_rule(averaged(2.0)),
    "best leave-one-out loss": with_rule(best_alone),
    "one-standard-error rule": with_rule(one_error_rule),
    "penalty 100": from_registry("profile", penalty=100.0),
    "penalty 10": from_registry("profile", penalty=10.0),
    "penalty 1": from_registry("profile", penalty=1.0),
}


# --- whole probability vectors


def full_scores(proba: np.ndarray, labels: np.ndarray, begun: float) -> Scores:
    seconds = time.process_time() - begun
    return {
        "seconds": seconds,
        "log_loss_full": log_loss_full(proba, labels, clip=CLIP),
        "classwise_ece": classwise_ece(proba, labels),
    }


def full_from_registry(name: str) -> Method:
    def run(val: Data, test: Data) -> Scores:
        begun = time.process_time()
        return full_scores(make(name).fit(*val).predict_proba(test[0]), test[1], begun)

    return run


def shared_by(make_noise: Callable[[float], Any]) -> Method:
    """The profile's confidence, the rest shared by other noise."""

    def run(val: Data, test: Data) -> Scores:
        begun = time.process_time()
        cal = StabilityProfile().fit(*val)
        logits = as_logits(test[0])
        noise = make_noise(cal.temperature_)
        shares = label_distribution(logits, noise)
        proba = distribute_remainder(logits, cal.predict_confidence(logits), shares, noise.width)
        return full_scores(proba, test[1], begun)

    return run


def one_against_rest(val: Data, test: Data) -> Scores:
    """Every class its own log-odds from its own switch probabilities, one link for all, normalised."""
    begun = time.process_time()
    temperature = fit_temperature(as_logits(val[0]), val[1])

    def columns(logits: np.ndarray) -> np.ndarray:
        noises = [Gumbel(temperature), *(Gaussian(w * temperature) for w in (1.0, 3.0, 10.0))]
        chances = [
            np.clip(label_distribution(logits, noise).ravel(), 1e-11, None) for noise in noises
        ]
        logs = [
            part for p in chances[1:] for part in (np.log(p), np.log1p(-np.minimum(p, 1 - 1e-11)))
        ]
        odds = np.log(chances[0]) - np.log1p(-np.minimum(chances[0], 1 - 1e-11))
        return np.column_stack([odds, *logs])

    seen, new = columns(val[0]), columns(test[0])
    hit = (val[1][:, None] == np.arange(val[0].shape[1])).ravel()
    found = link.fit_link(seen, seen[:, 0], hit, np.ones(hit.size))
    proba = expit(new[:, 0] + found.intercept + new @ found.coef).reshape(test[0].shape)
    return full_scores(proba / proba.sum(axis=1, keepdims=True), test[1], begun)


FULL: dict[str, Method] = {
    **{name: full_from_registry(name) for name in ("temps", "ets", "vecs", "dir_odir", "hoki")},
    "profile": full_from_registry("profile"),
    "profile, rest by Gaussian width 1": shared_by(Gaussian),
    "profile, rest by Gaussian width 3": shared_by(lambda t: Gaussian(3.0 * t)),
    "profile, rest by Gaussian width 10": shared_by(lambda t: Gaussian(10.0 * t)),
    "one against rest": one_against_rest,
}


# --- tables


def mean_of(row: dict[str, list[Scores]], name: str, metric: str) -> float:
    """Mean over all splits: the first method's, plus the mean difference on the splits of both.

    A slow method has fewer splits; its own mean would also tell which splits those were.
    """
    base = [one[metric] for one in row.get("temps", row[next(iter(row))])]
    gaps = [one[metric] - first for one, first in zip(row[name], base, strict=False)]
    return float(np.mean(base) + np.mean(gaps))


def rank_table(results: Results, metrics: tuple[str, ...]) -> list[str]:
    """Mean rank over the sets and mean score, per method; and how many splits of each set."""
    names = list(next(iter(results.values())))
    lines = [
        "| method | " + " | ".join(f"{metric}: rank | mean" for metric in metrics) + " | splits |",
        "| --- |" + " --: | --: |" * len(metrics) + " --- |",
    ]
    means = {
        m: np.array([[mean_of(row, n, m) for n in names] for row in results.values()])
        for m in metrics
    }
    ranks = {m: np.mean([rankdata(row) for row in means[m]], axis=0) for m in metrics}
    for k in np.argsort(ranks[metrics[0]], kind="stable"):
        cells = [f"{ranks[m][k]:.2f} | {means[m][:, k].mean():.4f}" for m in metrics]
        counts = sorted({len(row[names[k]]) for row in results.values()})
        lines.append(f"| {names[k]} | " + " | ".join(cells) + f" | {', '.join(map(str, counts))} |")
    return lines


def gain_table(results: Results, method: str, metrics: tuple[str, ...]) -> list[str]:
    """A method minus temps, per set, with the standard error over the splits, in 10^-4."""
    lines = [
        "| set | " + " | ".join(f"{metric}" for metric in metrics) + " |",
        "| --- |" + " --: |" * len(metrics),
    ]
    for name, row in results.items():
        cells = [difference(row[method], row["temps"], metric) for metric in metrics]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def difference(found: list[Scores], base: list[Scores], metric: str) -> str:
    gaps = np.array([1e4 * (a[metric] - b[metric]) for a, b in zip(found, base, strict=False)])
    return f"{gaps.mean():.1f} ± {gaps.std() / np.sqrt(len(gaps)):.1f}"


def shift_table(sets: list[LogitSet], kept: Kept, methods: dict[str, Method]) -> list[str]:
    """Fitted on the file's own val, measured on its own test."""
    lines = ["| set (accuracy: val, test) | method | " + " | ".join(METRICS) + " |"]
    lines.append("| --- | --- |" + " --: |" * len(METRICS))
    for item in sets:
        if item.val is None:
            continue
        accuracy = [np.mean(part[0].argmax(axis=1) == part[1]) for part in (item.val, item.test)]
        title = f"{item.name} ({accuracy[0]:.3f}, {accuracy[1]:.3f})"
        for name, method in methods.items():
            key = ("shift", item.name, len(item.val[1]), name)
            found = kept.get(key, partial(method, item.val, item.test))
            cells = " | ".join(f"{found[metric]:.4f}" for metric in METRICS)
            lines.append(f"| {title} | {name} | {cells} |")
    return lines


def tables(
    plan: Plan, kept: Kept, sets: list[LogitSet], wanted: list[str], names: list[str]
) -> list[str]:
    lines: list[str] = []
    registry = {name: from_registry(name) for name in names}
    few = {name: from_registry(name) for name in ("temps", "ets", "profile")}
    if "registry" in wanted:
        found = plan.run(kept, "registry", sets, None, registry)
        lines += ["## Whole registry", "", *rank_table(found, METRICS), ""]
        if {"profile", "temps"} <= set(names):
            gains = gain_table(found, "profile", METRICS)
            lines += ["## profile - temps, in 10^-4", "", *gains, ""]
    if "small" in wanted:
        for n in (200, 300, 500, 1000):
            found = plan.run(kept, "small", sets, n, few)
            lines += [f"## {n} examples", "", *rank_table(found, METRICS), ""]
            lines += [*gain_table(found, "profile", METRICS), ""]
    for title, methods in (("features", FEATURES), ("penalties", PENALTIES)):
        if title in wanted:
            for n in (None, 500) if title == "features" else (None, 1000, 300):
                found = plan.run(kept, title, sets, n, methods)
                lines += [
                    f"## {title}, n = {n or 'up to 5000'}",
                    "",
                    *rank_table(found, METRICS[:3]),
                    "",
                ]
    if "full" in wanted:
        found = plan.run(kept, "full", sets, None, FULL)
        lines += ["## Vectors", "", *rank_table(found, ("log_loss_full", "classwise_ece")), ""]
    if "shift" in wanted:
        lines += ["## As the files are cut", "", *shift_table(sets, kept, few), ""]
    return lines


def main() -> None:
    known = ("registry", "small", "features", "penalties", "full", "shift")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", nargs="*", type=Path, default=[], help="folders of .npz files")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--slow-splits", type=int, default=3, help="splits of slow methods")
    parser.add_argument(
        "--limit", type=float, default=5.0, help="CPU seconds from which one is slow"
    )
    parser.add_argument("--tables", nargs="*", choices=known, default=known)
    parser.add_argument("--most-classes", type=int, default=10**9, help="leave out larger sets")
    parser.add_argument("--methods", nargs="*", default=methods_from_logits())
    parser.add_argument("--cache", type=Path, default=Path("study_profile.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("study_profile.md"))
    options = parser.parse_args()
    plan = Plan(options.splits, options.slow_splits, options.limit)
    kept, sets = Kept(options.cache), read_sets(options.data)
    sets = [item for item in sets if item.test[0].shape[1] <= options.most_classes]
    lines = tables(plan, kept, sets, options.tables, options.methods)
    options.out.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
