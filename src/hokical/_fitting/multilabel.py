"""Fit curves of labels that do not exclude each other, by partial pooling with label = group."""

from __future__ import annotations

from typing import Any

import numpy as np

from hokical._core.arrays import NUMPY
from hokical._core.bins import sum_by
from hokical._core.types import FloatArray
from hokical._fitting.fit_warnings import FEWEST_EXAMPLES
from hokical._fitting.likelihood import effective_size, mean_and_error
from hokical._fitting.partial_pooling import fit_pooled
from hokical._fitting.pooled_terms import BinaryTerms, binary_losses
from hokical.rules._multilabel import MultilabelCurves, score_features

#: A gain on held-out examples is clear from this many standard errors.
_CLEAR = 0.7


def fit_multilabel(
    scores: FloatArray, labels: FloatArray, weights: FloatArray
) -> tuple[MultilabelCurves, dict[str, Any]]:
    """Curves of scores (n, labels) for labels of 0, 1 and NaN (n, labels), and a report.

    Weights (n,) are of rows; so is the standard error, as labels of a row go together.
    """
    n_labels = scores.shape[1]
    row, label = np.nonzero(~np.isnan(labels) & (weights > 0.0)[:, None])
    if not row.size:
        raise ValueError("`labels` must have known entries; got NaN everywhere.")
    share = weights / weights.sum()
    odds, spread = score_features(scores[row, label], NUMPY)
    # Where examples tell most, so that what is known of the shift and of the slope is independent.
    centre = np.average(np.stack([odds, spread]), axis=1, weights=share[row] * np.exp(spread))
    features = np.stack([np.ones(row.size), odds - centre[0], spread - centre[1]], axis=1)
    hits = labels[row, label] == 1.0
    terms = BinaryTerms(features, hits, odds, share[row] * effective_size(share))
    found = fit_pooled(terms, label[:, None], (n_labels,), 3)
    own = binary_losses(odds, hits)
    known = np.maximum(sum_by(row, np.ones(row.size), len(share)), 1.0)
    losses = [sum_by(row, each, len(share)) / known for each in (own, found.losses_left_out())]
    gain, error = mean_and_error(losses[0] - losses[1], share)
    told = {"as it is": float(share @ losses[0]), "pooled": float(share @ losses[1])}
    coef = found.common + found.groups[0]
    words = "curves were fitted, with corrections by label"
    few = effective_size(share) < FEWEST_EXAMPLES * (1.0 - 1e-9)
    if few or gain <= _CLEAR * error:
        coef = np.zeros((n_labels, 3))
        why = f"{len(share)} examples are too few" if few else "nothing was clearly better"
        words = f"the probabilities were kept as they are, as {why}"
    text = ", ".join(f"{name} {loss:.5f}" for name, loss in told.items())
    report = {
        "reason": f"{words} (held-out log loss: {text}; standard error of the gain {error:.5f}).",
        "held_out_log_loss": told,
        "converged": found.solution.converged,
        "n_iter": found.solution.n_iter,
    }
    shift = coef[:, 0] - coef[:, 1:] @ centre
    return MultilabelCurves(shift, 1.0 + coef[:, 1], coef[:, 2].copy()), report
