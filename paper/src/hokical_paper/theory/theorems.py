"""The paper's theorems on data: both sides of Theorem 1 as Hoki learns, and Theorem 2's
bounds.

`sufficiency_facts` and `bound_facts` are measured where exact Hoki is fitted and stored
with its result; `simulate_bounds` needs no data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from hokical import Hoki, calibration_bound
from hokical.metrics import brier, ece
from hokical_paper.core import Curve, Method
from hokical_paper.suite.pair_data import PairData
from hokical_paper.theory.sufficiency import SufficiencyGap, measure_sufficiency

#: After which steps of the recursion Theorem 1 is measured, besides the last.
STEPS = (1, 2, 3, 5, 10)
#: The bounds, each with whether it uses the Brier score.
BOUNDS: dict[str, tuple[Method, bool]] = {
    "paper": ("paper", False),
    "union": ("union", False),
    "McDiarmid": ("mcdiarmid", False),
    "McDiarmid, Brier": ("mcdiarmid", True),
    "Bousquet, Brier": ("bousquet", True),
}
SIZES = (1000, 5000, 10_000, 25_000)
N_BINS = 15
DELTA = 0.05


def sufficiency_facts(hoki: Hoki, data: PairData) -> dict[str, Any]:
    """Both sides of Theorem 1 per bin after some steps of a fitted Hoki, by part of
    the data.
    """
    facts: dict[str, Any] = {"n_steps": hoki.n_iter_, "ending": hoki.ending_}
    wanted = sorted({k for k in STEPS if k < hoki.n_iter_} | {hoki.n_iter_})
    subsets = {
        "validation": (hoki.stability(data.val_logits), data.val_correct),
        "test": (hoki.stability(data.test_logits), data.test_correct),
    }
    for name, (stability, correct) in subsets.items():
        gaps = [_gap_after(hoki, k, stability, correct) for k in wanted]
        facts[name] = [_plain(k, gap) for k, gap in zip(wanted, gaps, strict=True)]
    return facts


def _gap_after(
    hoki: Hoki, n_steps: int, stability: NDArray[np.float64], correct: NDArray[np.bool_]
) -> SufficiencyGap:
    """Both sides after the first `n_steps` steps, with the bins of the confidence at
    that point.
    """
    numbers = hoki.alpha_[:n_steps], hoki.beta_[:n_steps]
    curve = Curve.from_steps(*numbers, hoki.rule_.levels, hoki.accuracy_)
    levels = np.rint(stability * hoki.rule_.levels).astype(np.int64)
    confidence = curve.at(levels, hoki.rule_.levels)
    return measure_sufficiency(confidence, stability, correct, n_bins=hoki.n_bins_)


def _plain(n_steps: int, gap: SufficiencyGap) -> dict[str, Any]:
    """Occupied bins only, as lists of numbers."""
    used = gap.weight > 0
    return {
        "step": n_steps,
        "error": gap.calibration_error,
        "bins": np.flatnonzero(used).tolist(),
        "weight": gap.weight[used].tolist(),
        "confidence": gap.confidence[used].tolist(),
        "implied": gap.implied[used].tolist(),
    }


def bound_facts(hoki: Hoki, data: PairData) -> dict[str, Any]:
    """Fit on half of the validation set, bound the error on the other half, look at the
    test set.

    The noise stays that of `hoki`. The ECE on the test set stands for the true error:
    it is measured on examples that neither the fit nor the bound has seen.
    """
    n = data.val_labels.size // 2
    fitted = clone(hoki).set_params(noise=hoki.noise_)
    fitted.fit(data.val_logits[:n], data.val_labels[:n])
    rows = (fitted.predict_confidence(data.val_logits[n:]), data.val_correct[n:])
    held = (fitted.predict_confidence(data.test_logits), data.test_correct)
    return {
        "n": int(rows[1].size),
        "ece": ece(*rows, n_bins=N_BINS),
        "brier": brier(*rows),
        "n_held": int(held[1].size),
        "held_ece": ece(*held, n_bins=N_BINS),
    }


def bounds_of(error: float, square: float, n: int) -> dict[str, float]:
    """Every bound from an ECE and a Brier score measured on `n` examples.

    >>> {name: round(bound, 3) for name, bound in bounds_of(0.01, 0.05, 10_000).items()}
    {'paper': 0.454, 'union': 0.296, 'McDiarmid': 0.073, 'McDiarmid, Brier': 0.044, ...
    """
    return {
        name: calibration_bound(
            error, n, N_BINS, DELTA, method=method, brier=square if uses_brier else None
        )
        for name, (method, uses_brier) in BOUNDS.items()
    }


class Simulated(NamedTuple):
    """Test sets of one size from a model whose calibration error is known."""

    n: int
    true_error: float
    mean_ece: float
    mean_bound: dict[str, float]
    coverage: dict[str, float]


def simulate_bounds(
    sizes: tuple[int, ...] = SIZES, *, n_sets: int = 1000, overconfidence: float = 0.03
) -> list[Simulated]:
    """Coverage and mean of every bound, over simulated test sets.

    The model has 60 confidences, most of them high, and an accuracy that is lower than
    each by `overconfidence` times the sine of its distance to the ends, so its error is
    known exactly.
    """
    confidence = (np.arange(60) + 0.5) / 60
    weight = confidence**3 / (confidence**3).sum()
    accuracy = np.clip(
        confidence - overconfidence * np.sin(np.pi * confidence), 0.0, 1.0
    )
    bins = (confidence * N_BINS).astype(np.int64)
    truth = float(np.abs(_by_bin(bins, (weight * (accuracy - confidence))[None])).sum())
    rng = np.random.default_rng(0)
    return [
        _simulate(n, truth, confidence, weight, accuracy, bins, n_sets, rng)
        for n in sizes
    ]


def _simulate(
    n: int,
    truth: float,
    confidence: NDArray[np.float64],
    weight: NDArray[np.float64],
    accuracy: NDArray[np.float64],
    bins: NDArray[np.int64],
    n_sets: int,
    rng: np.random.Generator,
) -> Simulated:
    count = rng.multinomial(n, weight, size=n_sets)
    right = rng.binomial(count, accuracy)
    errors = np.abs(_by_bin(bins, right - count * confidence)).sum(axis=1) / n
    wrong = count - right
    squares = (right * (1.0 - confidence) ** 2 + wrong * confidence**2).sum(axis=1) / n
    bounds = [
        bounds_of(float(e), float(s), n) for e, s in zip(errors, squares, strict=True)
    ]
    return Simulated(
        n,
        truth,
        float(errors.mean()),
        {name: float(np.mean([row[name] for row in bounds])) for name in BOUNDS},
        {
            name: float(np.mean([row[name] >= truth for row in bounds]))
            for name in BOUNDS
        },
    )


def _by_bin(
    bins: NDArray[np.int64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sums (sets, bins) of values (sets, confidences)."""
    return np.stack([values[:, bins == j].sum(axis=1) for j in range(N_BINS)], axis=1)
