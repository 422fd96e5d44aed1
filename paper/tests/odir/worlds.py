"""Data for tests of ODIR-regularised methods, and their objective written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from hokical.calibrators import Examples
from hokical.rules import as_logits
from hokical_paper.odir import DirichletODIR, MatrixScalingODIR, objective
from hokical_paper.odir.examples import MatrixExamples

METHODS = [MatrixScalingODIR, DirichletODIR]
both = pytest.mark.parametrize("method", METHODS)


def noisy(n=200, n_classes=4, seed=0, size=2.0):
    """Logits and labels with errors, so that the optimum is finite."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n)
    logits = size * (rng.normal(size=(n, n_classes)) + np.eye(n_classes)[labels])
    return logits, labels


def plain_features(method, logits):
    if method is DirichletODIR:
        return log_softmax(logits, axis=1)
    return logits - logits.mean(axis=1, keepdims=True)


def plain_loss(weight, bias, features, labels, strength, sample_weight=None):
    """The paper's objective, written out."""
    log_proba = log_softmax(features @ weight.T + bias, axis=1)
    n_classes = len(bias)
    off = ~np.eye(n_classes, dtype=bool)
    loss = -np.average(log_proba[np.arange(len(labels)), labels], weights=sample_weight)
    return (
        loss + strength[0] * np.mean(weight[off] ** 2) + strength[1] * np.mean(bias**2)
    )


def random_problem(seed, n=30, n_classes=3, masked=False):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, n_classes))
    labels = rng.integers(n_classes, size=n)
    if masked:
        impossible = rng.random((n, n_classes)) < 0.2
        impossible[np.arange(n), labels] = False
        features[impossible] = -np.inf
    examples = MatrixExamples.of(
        Examples(as_logits(features), labels, rng.random(n)), finite_values
    )
    coef = rng.normal(size=(n_classes, n_classes + 1))
    absent = np.bincount(labels, minlength=n_classes) == 0
    penalty = objective.penalty_matrix(absent, (0.3, 0.7), 1.5)
    return examples, penalty, coef


def finite_values(logits):
    return np.where(logits.possible, logits.values, -3.0)


def point_at(examples, penalty, coef):
    away = coef - objective.identity(examples.n_classes)
    return examples.objective(penalty).evaluate(away.ravel())


def counted(counts, seed=0):
    """Logits and labels with so many examples of each class, some of them wrong."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    logits = (
        rng.normal(size=(labels.size, len(counts))) * 2
        + 1.5 * np.eye(len(counts))[labels]
    )
    return logits, labels
