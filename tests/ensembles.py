"""Ensembles to try things on: noisy evaluations of known scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from hokical import Ensemble

#: The noise of each member; the last is hardly worth anything.
NOISE = (1.0, 1.2, 0.8, 3.0)
NAMES = ("plain", "flipped", "shifted", "blurred")
#: Members are over-confident by this factor.
SHARPNESS = 1.5


def noisy_members(
    n: int, *, seed: int = 0, n_classes: int = 4, noise: Any = NOISE
) -> tuple[np.ndarray, np.ndarray]:
    """Logits (members, n, classes) and labels (n,)."""
    rng = np.random.default_rng(seed)
    truth = 2.0 * rng.normal(size=(n, n_classes))
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    errors = rng.normal(size=(len(noise), n, n_classes))
    members = truth + np.array(noise)[:, None, None] * errors
    return SHARPNESS * members, labels


def named(n: int, *, seed: int = 0, **options: Any) -> tuple[Ensemble, np.ndarray]:
    """The same as an ensemble with names, and labels (n,)."""
    members, labels = noisy_members(n, seed=seed, **options)
    return Ensemble(members, NAMES), labels


def log_loss(proba: Any, labels: np.ndarray) -> float:
    true = np.asarray(proba)[np.arange(labels.size), labels]
    return float(-np.log(true).mean())
