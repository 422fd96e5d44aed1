"""What `predict_or_abstain` accepts: `fit` on all examples, or on half and `certify` on the rest.

    python paper/studies/abstention.py

A simulated classifier: 10 classes, right 4 times in 5, logits 2.5 times too large. Coverage on
20,000 new examples at risk 0.05 and delta 0.1, means over seeds; `best` knows the true risk.
"""

from __future__ import annotations

import argparse

import numpy as np

import hokical

RISK, DELTA, TEMPERATURE = 0.05, 0.1, 2.5


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits (n, 10) that are overconfident by the temperature, and labels drawn from them."""
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
    found = [cal.predict_or_abstain(test, risk=RISK, delta=DELTA) for cal in (alone, split)]
    return float(found[0].accepted.mean()), float(found[1].accepted.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--method", default="temps")
    options = parser.parse_args()
    test, truth = draw(np.random.default_rng(10**6), 20_000)
    print(f"accuracy {np.mean(test.argmax(1) == truth):.3f}, best {best_coverage(test, truth):.1%}")
    print("examples   fit alone   fit and certify")
    for n in (350, 700, 1500, 3000, 6000, 12_000):
        means = np.mean(
            [coverages(seed, n, options.method, test) for seed in range(options.seeds)], axis=0
        )
        print(f"{n:8}   {means[0]:9.1%}   {means[1]:15.1%}")


if __name__ == "__main__":
    main()
