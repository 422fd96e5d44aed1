"""Several evaluations of each example: what pooling them gains, beside its rivals.

    python paper/studies/ensembles.py [--divisions 10] > table.md

Nothing is downloaded. The evaluations are

- twelve views of one network, three networks, and twelve passes with dropout of a
  fourth, on 5000 images of CIFAR-10 (`hokical.demo.demo_ensemble`; wide residual
  networks of 16 layers, trained for half a minute each on a GPU with 34,000 images);
- eight views of a wide residual network on 2500 images of CIFAR-100;
- five models of each of 27 tabular data sets (`benchmarks/tabular_probabilities.npz`).

`--prompts FILE` adds the ten prompts of `scores` (prompts, questions, options) in an
archive with `labels`, such as that of ConformalLLM (Kumar and others, 2023).

Mean log loss on examples that nothing was fitted on, with 95 % intervals over random
divisions (Student's t; of tabular data over the data sets). Rivals:

- the first member alone, calibrated by the default;
- the mean of the members' probabilities, with one temperature, or by the default;
- greedy selection (Caruana and others, 2004): members are added with replacement to a
  mean of probabilities while the log loss falls; then the default;
- stacking: a multinomial logistic regression on the log-probabilities of all members,
  up to 20 classes: with 100 it takes minutes and is far behind;
- `hokical.auto(hokical.Ensemble(...))`.

Then: the gain by the number of members and of examples, and what sets of 90 % coverage
and abstention at 10 % risk make of it when half of the examples certify. Takes about a
quarter of an hour.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import log_softmax, stdtrit
from sklearn.linear_model import LogisticRegression

import hokical
from hokical import Ensemble
from hokical.demo import EnsembleKind, demo_ensemble

ROOT = Path(__file__).resolve().parents[2]
#: Examples to fit on.
SIZES = (60, 200, 1000)
#: Rounds of greedy selection.
ROUNDS = 30
#: Inverse strength of the ridge of stacking: 1 is far worse, with 60 examples above all.
STACKING_C = 0.01
#: Classes up to which there is stacking.
MOST_STACKED = 20
#: Probabilities of 0 become this.
LEAST = 1e-6
RISK = 0.1
COVERAGE = 0.9


@dataclass(frozen=True)
class Case:
    """Logits (members, n, classes), labels (n,), and how many may be fitted on.

    Cases of one `title` are averaged. `n_fit` is None where rows are divided at random.
    """

    title: str
    logits: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]
    n_fit: int | None = None
    exchangeable: bool = False

    def ensemble(self, rows: np.ndarray, members: slice = slice(None)) -> Ensemble:
        return Ensemble(self.logits[members][:, rows], exchangeable=self.exchangeable)

    def division(self, seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows to fit on and rows to test on."""
        order = np.random.default_rng([seed, self.labels.size]).permutation
        if self.n_fit is None:
            rows = order(self.labels.size)
            return rows[:size], rows[max(SIZES) :]
        return order(self.n_fit)[:size], np.arange(self.n_fit, self.labels.size)


def network_cases() -> Iterator[Case]:
    titles: dict[EnsembleKind, str] = {
        "views": "CIFAR-10, 12 views",
        "networks": "CIFAR-10, 3 networks",
        "passes": "CIFAR-10, 12 passes",
    }
    for kind, title in titles.items():
        (validation, labels), (test, test_labels) = demo_ensemble(kind)
        logits = np.concatenate(
            [np.stack(validation.members), np.stack(test.members)], axis=1
        )
        labels = np.append(labels, test_labels)
        yield Case(
            title,
            logits.astype(np.float64),
            labels,
            validation.names,
            exchangeable=validation.exchangeable,
        )
    with np.load(ROOT / "paper" / "studies" / "data" / "cifar100_views.npz") as stored:
        yield Case(
            "CIFAR-100, 8 views",
            stored["logits"].astype(np.float64),
            stored["labels"].astype(np.int64),
            tuple(stored["names"].tolist()),
        )


def tabular_cases() -> Iterator[Case]:
    with np.load(ROOT / "benchmarks" / "tabular_probabilities.npz") as stored:
        keys = sorted({key.split("/")[0] for key in stored.files})
        for data in sorted({key.split("__")[0] for key in keys}):
            models = [key for key in keys if key.startswith(f"{data}__")]
            first = models[0]
            halves = ("val", "test")
            labels = np.concatenate([stored[f"{first}/{h}_labels"] for h in halves])
            proba = np.stack(
                [
                    np.concatenate([stored[f"{model}/{h}_probs"] for h in halves])
                    for model in models
                ]
            )
            logits = np.log(np.clip(proba.astype(np.float64), LEAST, 1.0))
            n_fit = stored[f"{first}/val_labels"].size
            names = tuple(model.split("__")[1] for model in models)
            yield Case("tabular, 5 models", logits, labels.astype(int), names, n_fit)


def prompt_case(path: Path) -> Case:
    with np.load(path) as stored:
        logits = np.log(np.clip(stored["scores"].astype(np.float64), LEAST, 1.0))
        names = tuple(f"prompt {k}" for k in range(len(logits)))
        return Case("MMLU, 10 prompts", logits, stored["labels"].astype(int), names)


# --- what is compared: functions of (logits, labels, new logits) -> probabilities


def first_member(fit: np.ndarray, labels: np.ndarray, new: np.ndarray) -> np.ndarray:
    return hokical.auto(fit[0], labels).predict_proba(new[0])


def mean_temperature(
    fit: np.ndarray, labels: np.ndarray, new: np.ndarray
) -> np.ndarray:
    calibrator = hokical.make("temps").fit(log_mean(fit), labels)
    return calibrator.predict_proba(log_mean(new))


def mean_auto(fit: np.ndarray, labels: np.ndarray, new: np.ndarray) -> np.ndarray:
    return hokical.auto(log_mean(fit), labels).predict_proba(log_mean(new))


def greedy_auto(fit: np.ndarray, labels: np.ndarray, new: np.ndarray) -> np.ndarray:
    weights = greedy_weights(fit, labels)
    calibrator = hokical.auto(log_mean(fit, weights), labels)
    return calibrator.predict_proba(log_mean(new, weights))


def stacking(fit: np.ndarray, labels: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Classes that the examples lack get the least probability."""

    def columns(logits: np.ndarray) -> np.ndarray:
        logs = log_softmax(logits, axis=2)
        return np.concatenate(list(logs), axis=1)

    model = LogisticRegression(C=STACKING_C, max_iter=2000).fit(columns(fit), labels)
    proba = np.full(new.shape[1:], LEAST)
    proba[:, model.classes_] = np.maximum(model.predict_proba(columns(new)), LEAST)
    return proba / proba.sum(axis=1, keepdims=True)


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "first member, auto": first_member,
    "mean of p, temperature": mean_temperature,
    "mean of p, auto": mean_auto,
    "greedy, auto": greedy_auto,
    "stacking": stacking,
}
OURS = "Ensemble, auto"


def log_mean(logits: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The logarithm (n, classes) of the mean probability of the members."""
    logs = log_softmax(logits, axis=2)
    shares = np.full(len(logs), 1.0 / len(logs)) if weights is None else weights
    return np.log(np.tensordot(shares, np.exp(logs), 1) + 1e-30)


def greedy_weights(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    proba = np.exp(log_softmax(logits, axis=2))
    true = proba[:, np.arange(labels.size), labels]
    counts = np.zeros(len(logits))
    total = np.zeros(labels.size)
    best = (np.inf, counts)
    for k in range(1, ROUNDS + 1):
        losses = -np.log((total + true) / k + 1e-30).mean(axis=1)
        chosen = int(losses.argmin())
        counts = counts + np.eye(len(logits))[chosen]
        total = total + true[chosen]
        best = min(best, (float(losses[chosen]), counts), key=lambda pair: pair[0])
    return best[1] / best[1].sum()


def log_loss(proba: np.ndarray, labels: np.ndarray) -> float:
    true = proba[np.arange(labels.size), labels]
    return float(-np.log(np.maximum(true, 1e-12)).mean())


# --- tables


def interval(values: np.ndarray, digits: int = 4) -> str:
    """Mean and half the width of Student's 95 % interval; a hyphen for NaN."""
    mean = float(np.mean(values))
    if np.isnan(mean):
        return "-"
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    half = float(stdtrit(len(values) - 1, 0.975) * error)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def compare(cases: list[Case], divisions: int, sizes: tuple[int, ...]) -> None:
    """Log loss of every method; the last column is the paired difference from the best
    rival's mean.
    """
    print(f"| | examples | {' | '.join([*METHODS, OURS])} | less than the best rival |")
    print("|---|--:|" + "--:|" * (len(METHODS) + 2))
    for title in dict.fromkeys(case.title for case in cases):
        same = [case for case in cases if case.title == title]
        for size in sizes:
            losses = np.array(
                [
                    run(case, seed, size)
                    for case in same
                    for seed in range(divisions if len(same) == 1 else 1)
                ]
            )
            rival = int(np.nanargmin(losses[:, :-1].mean(axis=0)))
            gain = losses[:, rival] - losses[:, -1]
            cells = [interval(column) for column in losses.T] + [interval(gain)]
            print(f"| {title} | {size} | {' | '.join(cells)} |", flush=True)


def run(case: Case, seed: int, size: int) -> list[float]:
    fit, new = case.division(seed, size)
    data = case.logits[:, fit], case.labels[fit], case.logits[:, new]
    losses = []
    for method in METHODS.values():
        if method is stacking and case.logits.shape[2] > MOST_STACKED:
            losses.append(np.nan)
        else:
            losses.append(log_loss(method(*data), case.labels[new]))
    pooled = hokical.auto(case.ensemble(fit), case.labels[fit])
    proba = pooled.predict_proba(case.ensemble(new))
    return [*losses, log_loss(proba, case.labels[new])]


def grow(case: Case, divisions: int, counts: tuple[int, ...]) -> None:
    """Log loss by the number of members that must be evaluated, and of examples."""
    print(f"| {case.title}: members | {' | '.join(f'{n} examples' for n in SIZES)} |")
    print("|--:|" + "--:|" * len(SIZES))
    for count in counts:
        cells = []
        for size in SIZES:
            losses = []
            for seed in range(divisions):
                fit, new = case.division(seed, size)
                calibrator = hokical.auto(
                    case.ensemble(fit), case.labels[fit], most_members=count
                )
                proba = calibrator.predict_proba(case.ensemble(new))
                losses.append(log_loss(proba, case.labels[new]))
            cells.append(interval(np.array(losses)))
        print(f"| {count} | {' | '.join(cells)} |", flush=True)


def decide(cases: list[Case], divisions: int) -> None:
    """Sets and abstention; half of 1000 examples certify."""
    print(
        "| | set size, first member | set size, Ensemble | accepted, first | Ensemble |"
    )
    print("|---|--:|--:|--:|--:|")
    for case in cases:
        rows = [decide_once(case, seed) for seed in range(divisions)]
        cells = [interval(column, 3) for column in np.array(rows).T]
        print(f"| {case.title} | {' | '.join(cells)} |", flush=True)


def decide_once(case: Case, seed: int) -> list[float]:
    rows, new = case.division(seed, max(SIZES))
    fit, held_out = np.array_split(rows, 2)
    sizes = []
    shares = []
    for members in (slice(0, 1), slice(None)):
        calibrator = hokical.auto(case.ensemble(fit, members), case.labels[fit])
        calibrator.certify(case.ensemble(held_out, members), case.labels[held_out])
        ensemble = case.ensemble(new, members)
        sizes.append(calibrator.predict_set(ensemble, coverage=COVERAGE).sizes.mean())
        selected = calibrator.predict_or_abstain(ensemble, risk=RISK)
        shares.append(selected.accepted.mean())
    return [*sizes, *shares]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--divisions", type=int, default=10)
    parser.add_argument("--prompts", type=Path, help="an archive of prompts")
    options = parser.parse_args()
    warnings.simplefilter("ignore", hokical.FitDataWarning)
    networks = list(network_cases())
    if options.prompts:
        networks.append(prompt_case(options.prompts))
    print("## Log loss\n")
    compare(networks, options.divisions, SIZES)
    print()
    compare(list(tabular_cases()), options.divisions, (60, 100_000))
    print("\n## By the number of members\n")
    grow(networks[0], options.divisions, (1, 2, 3, 4, 6, 8, 12))
    print("\n## Sets and abstention\n")
    decide(networks, options.divisions)


if __name__ == "__main__":
    main()
