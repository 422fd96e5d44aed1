"""Fit curves of labels that do not exclude each other, by partial pooling with label = group."""

from __future__ import annotations

from typing import Any

import numpy as np

from hokical._core.arrays import NUMPY
from hokical._core.bins import sum_by
from hokical._core.parallel import one_blas_thread
from hokical._core.types import BoolArray, FloatArray
from hokical._fitting.examples import FEWEST_EXAMPLES, effective_size, mean_and_error
from hokical._fitting.partial_pooling import fit_pooled
from hokical._fitting.pooled_terms import BinaryTerms, binary_losses
from hokical.rules._multilabel import FARTHEST, MultilabelCurves, score_features

#: Without a pile of scores, odds are believed up to so many times the number of examples.
_BORNE_OUT = 10.0
#: A gain on held-out examples is clear from this many standard errors.
_CLEAR = 0.7


@one_blas_thread()
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
    hits, counts = labels[row, label] == 1.0, share[row] * effective_size(share)
    edges, ends = _find_piles(scores[row, label], hits, counts)
    odds, spread, *piled = score_features(scores[row, label], NUMPY, edges, ends)
    # Where examples tell most, so that what is known of the shift and of the slope is independent.
    centre = np.average(np.stack([odds, spread]), axis=1, weights=share[row] * np.exp(spread))
    piles = [k for k, part in enumerate(piled) if part.any()]
    columns = [np.ones(row.size), odds - centre[0], spread - centre[1], *(piled[k] for k in piles)]
    terms = BinaryTerms(np.stack(columns, axis=1, dtype=np.float64), hits, odds, counts)
    blocks = [-1, -1, -1, *(0 for _ in piles)]
    found = fit_pooled(terms, label[:, None], (n_labels,), common_blocks=blocks)
    own, left_out = binary_losses(odds, hits), terms.losses(found.scores_left_out())
    known = np.maximum(sum_by(row, np.ones(row.size), len(share)), 1.0)
    several = {"as it is": own, "pooled": left_out}
    losses = {name: sum_by(row, each, len(share)) / known for name, each in several.items()}
    gain, error = mean_and_error(losses["as it is"] - losses["pooled"], share)
    coef = found.common + found.groups[0]
    words = "curves were fitted, with corrections by label"
    few = effective_size(share) < FEWEST_EXAMPLES * (1.0 - 1e-9)
    if few or gain <= _CLEAR * error:
        coef = np.zeros_like(coef)
        why = f"{len(share)} examples are too few" if few else "nothing was clearly better"
        words = f"the probabilities were kept as they are, as {why}"
    report = found.report(words, losses, share, error)
    shift = coef[:, 0] - coef[:, 1:3] @ centre
    jumps = np.zeros((2, n_labels))
    jumps[piles] = coef[:, 3:].T
    return MultilabelCurves(shift, 1.0 + coef[:, 1], coef[:, 2].copy(), edges, ends, jumps), report


def _find_piles(
    scores: FloatArray, hits: BoolArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Edges beyond which scores (m,) pile up, and the log-odds (2,) that they are cut to.

    A largest or least score that comes more than once, as probabilities rounded to 0 and 1 do,
    shows no more than how often its labels are there. Without such a pile, scores are as
    extreme as any of the fit, or as the number of examples supports.
    """
    edges, ends = np.array([-FARTHEST, FARTHEST]), np.empty(2)
    cut = np.clip(scores, -FARTHEST, FARTHEST)
    keys = cut.astype(np.float32)
    values = np.unique(keys).astype(np.float64)
    if values.size == 1:  # beside it lies only that nothing is known
        values = np.sort(np.append(values, 0.0))
    for side, sign, (last, inner) in ((0, -1.0, values[:2]), (1, 1.0, values[:-3:-1])):
        here = keys == np.float32(last)
        if here.sum() <= 1:
            farthest = max(float((sign * cut).max()), np.log(_BORNE_OUT * cut.size))
            ends[side] = sign * min(farthest, FARTHEST)
            continue
        edges[side] = 0.5 * (last + inner)
        there = float(counts[here] @ hits[here])
        odds = np.log((there + 0.5) / (float(counts[here].sum()) - there + 0.5))
        ends[side] = np.clip(odds, min(last, inner), max(last, inner))
    return edges, np.sort(ends)
