"""What `predict_or_abstain` accepts: `fit` on all examples, or on half and `certify` on
the rest.

    python paper/studies/abstention.py

A simulated classifier: 10 classes, right 4 times in 5, logits 2.5 times too large.
Coverage on 20,000 new examples at risk 0.05 and delta 0.1, means over seeds; `best`
knows the true risk.

    python paper/studies/abstention.py FILE.npz ... [--examples 300]

How well confidence ranks right before wrong labels, on real networks (files as in
`hokical paper study`): area under the risk-coverage curve of the same labels, by the
softmax, by MaxLogit-pNorm (Cattelan, Silva: How to Fix a Broken Confidence Estimator,
2023) with p chosen on the calibration examples, and by the default. Normalised: 0 ranks
perfectly, 1 at random.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

import hokical
from hokical.metrics import aurc
from hokical_paper.study.outcomes import Experiment, choose_experiments

RISK, DELTA, TEMPERATURE = 0.05, 0.1, 2.5
#: Exponents that are tried; the softmax is kept where none ranks the calibration
#: examples better.
EXPONENTS = range(1, 11)
Score = Callable[[np.ndarray], np.ndarray]


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits (n, 10) that are overconfident by the temperature, and labels drawn
    from them.
    """
    true = rng.normal(size=(n, 10)) * rng.gamma(4.0, 1.6, size=(n, 1))
    labels = np.argmax(true + rng.gumbel(size=true.shape), axis=1)
    return TEMPERATURE * true, labels


def best_coverage(logits: np.ndarray, labels: np.ndarray) -> float:
    """Of the true confidence, the largest share with at most the risk."""
    true = logits / TEMPERATURE
    confidence = np.exp(true.max(axis=1) - np.logaddexp.reduce(true, axis=1))
    wrong = np.sort(1.0 - confidence)
    return float((np.cumsum(wrong) / np.arange(1, wrong.size + 1) <= RISK).mean())


def coverages(seed: int, n: int, method: str, test: np.ndarray) -> tuple[float, float]:
    logits, labels = draw(np.random.default_rng(seed), n)
    half = n // 2
    alone = hokical.make(method).fit(logits, labels)
    split = hokical.make(method).fit(logits[:half], labels[:half])
    split.certify(logits[half:], labels[half:])
    found = [
        cal.predict_or_abstain(test, risk=RISK, delta=DELTA) for cal in (alone, split)
    ]
    return float(found[0].accepted.mean()), float(found[1].accepted.mean())


def simulate(seeds: int, method: str) -> None:
    test, truth = draw(np.random.default_rng(10**6), 20_000)
    print(
        f"accuracy {np.mean(test.argmax(1) == truth):.3f}, best "
        f"{best_coverage(test, truth):.1%}"
    )
    print("examples   fit alone   fit and certify")
    for n in (350, 700, 1500, 3000, 6000, 12_000):
        means = np.mean(
            [coverages(seed, n, method, test) for seed in range(seeds)], axis=0
        )
        print(f"{n:8}   {means[0]:9.1%}   {means[1]:15.1%}")


# --- ranking, on networks


def softmax_score(logits: np.ndarray) -> np.ndarray:
    """The logarithm of the largest probability, without rounding to 1."""
    return np.asarray(logits.max(axis=1) - np.logaddexp.reduce(logits, axis=1))


def max_logit_score(logits: np.ndarray, p: float) -> np.ndarray:
    """The largest of the centred logits over their p-norm."""
    centred = logits - logits.mean(axis=1, keepdims=True)
    return np.asarray(centred.max(axis=1) / np.linalg.norm(centred, ord=p, axis=1))


def tuned_max_logit(logits: np.ndarray, labels: np.ndarray) -> Score:
    """The score with the p of least AURC; the softmax where it is as good."""
    choices: list[Score] = [softmax_score]
    choices += [lambda z, p=p: max_logit_score(z, p) for p in EXPONENTS]
    return min(choices, key=lambda score: ranking(score(logits), logits, labels))


def default_score(logits: np.ndarray, labels: np.ndarray) -> Score:
    """The default's confidence in the network's own label."""
    cal = hokical.make("auto", keep_labels=True).fit(logits, labels)
    return cal.predict_confidence


def ranking(score: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> float:
    """Normalised AURC; only the order of the scores counts."""
    right = logits.argmax(axis=1) == labels
    places = np.unique(score, return_inverse=True)[1]
    found, perfect = (
        aurc(values / values.max(), right) for values in (places + 1.0, right + 1.0)
    )
    return (found - perfect) / (1.0 - right.mean() - perfect)


def rank_network(network: Experiment) -> dict[str, float]:
    val, test = (
        (network.val_logits, network.val_labels),
        (network.test_logits, network.test_labels),
    )
    scores = {
        "softmax": softmax_score,
        "MaxLogit-pNorm": tuned_max_logit(*val),
        "the default": default_score(*val),
    }
    return {name: ranking(score(test[0]), *test) for name, score in scores.items()}


def compare_rankings(paths: list[Path], examples: int | None) -> None:
    networks = [
        one for path in paths for one in choose_experiments(path, limit=examples)
    ]
    found = [(network, rank_network(network)) for network in networks]
    names = list(found[0][1])
    print(f"| normalised AURC | classes | {' | '.join(names)} |\n|---|--:|--:|--:|--:|")
    for network, row in found:
        print(_line(network.name, network.n_classes, row.values()))
    for title, few in (("mean, up to 20 classes", True), ("mean, more classes", False)):
        rows = np.array(
            [[*row.values()] for one, row in found if (one.n_classes <= 20) == few]
        )
        ahead = np.mean(rows[:, -1] < rows[:, -2])
        print(
            _line(
                f"{title} ({len(rows)}; ahead of pNorm in {ahead:.0%})",
                "",
                rows.mean(axis=0),
            )
        )


def _line(title: str, classes: object, values: Iterable[float]) -> str:
    return (
        f"| {title} | {classes} | "
        + " | ".join(f"{value:.4f}" for value in values)
        + " |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", type=Path, nargs="*", metavar="FILE.npz")
    parser.add_argument(
        "--examples", type=int, help="of each network, to fit on; else all"
    )
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--method", default="temps")
    options = parser.parse_args()
    if options.networks:
        compare_rankings(options.networks, options.examples)
    else:
        simulate(options.seeds, options.method)


if __name__ == "__main__":
    main()
