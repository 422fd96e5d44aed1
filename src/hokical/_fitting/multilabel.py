"""Fit curves of labels that do not exclude each other, by partial pooling with label = group."""

from __future__ import annotations

from typing import Any

import numpy as np

from hokical._core.arrays import NUMPY
from hokical._core.bins import sum_by
from hokical._core.parallel import one_blas_thread
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._core.warn import FitDataWarning, warn_user
from hokical._fitting.examples import effective_size, mean_and_error
from hokical._fitting.partial_pooling import PooledFit, fit_pooled
from hokical._fitting.pooled_terms import BinaryTerms, uncalibrated_share
from hokical.rules._multilabel import FARTHEST_SCORE, MultilabelCurves, score_features

#: Without a pile of scores, odds are believed up to so many times the number of examples.
_BORNE_OUT = 10.0
#: Before the fit: precisions of the common slope and tilt; the weight of a hit and of a miss at
#: either end of the scores, shared by the labels; and two labels that differ so little.
_CURVE_RIDGES, _AT_ENDS, _LABELS_ALIKE = np.array([3.0, 0.3]), 0.5, (2.0, 0.01)


@one_blas_thread()
def fit_multilabel(
    scores: FloatArray, labels: FloatArray, weights: FloatArray
) -> tuple[MultilabelCurves, dict[str, Any]]:
    """Curves of scores (n, labels) for labels of 0, 1 and NaN (n, labels), and a report.

    Log-odds of the curves and of the scores are averaged by held-out log loss. Weights (n,) are of
    rows; so is the standard error, as labels of a row go together.
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
    found = _fit_pooled(terms, label, n_labels)
    held_out = found.scores_left_out()[: odds.size]
    kept, _ = uncalibrated_share(odds, held_out, hits, counts, row)
    why = _nothing_learned(hits, effective_size(share), len(share))
    words = f"log-odds were averaged: {kept:.0%} uncalibrated, {1.0 - kept:.0%} curves of labels"
    if why:
        kept, words = 1.0, f"the probabilities were kept as they are: {why}"
    averaged = held_out + kept * (odds - held_out)
    several = {"uncalibrated": odds, "pooled": held_out, "average": averaged}
    known = np.maximum(sum_by(row, np.ones(row.size), len(share)), 1.0)
    losses = {
        name: sum_by(row, terms.losses(each), len(share)) / known for name, each in several.items()
    }
    _, error = mean_and_error(losses["uncalibrated"] - losses["average"], share)
    report = found.report(words, losses, share, error)
    coef = (1.0 - kept) * (found.common + found.groups[0])
    shift = coef[:, 0] - coef[:, 1:3] @ centre
    jumps = np.zeros((2, n_labels))
    jumps[piles] = coef[:, 3:].T
    return MultilabelCurves(shift, 1.0 + coef[:, 1], coef[:, 2].copy(), edges, ends, jumps), report


def _fit_pooled(terms: BinaryTerms, label: IntArray, n_labels: int) -> PooledFit:
    """Common coefficients and those of each label, with what is known before as examples."""
    width = terms.n_features
    places = np.unique([np.argmin(terms.offset), np.argmax(terms.offset)])
    own = np.eye(width)[1:3] * np.sqrt(2.0 * _CURVE_RIDGES)[:, None]
    prior = terms.with_prior(
        np.vstack([terms.features[places], own]),
        np.append(terms.offset[places], [0.0, 0.0]),
        np.repeat([_AT_ENDS / n_labels, 1.0], [places.size, 2]),
    )
    codes = np.append(label, np.full(prior.offset.size - label.size, -1))
    blocks = [-1, -1, -1, *(0 for _ in range(width - 3))]
    return fit_pooled(prior, codes[:, None], (n_labels,), common_blocks=blocks, alike=_LABELS_ALIKE)


def _nothing_learned(hits: BoolArray, n_examples: float, n_rows: int) -> str:
    """Why the probabilities are kept, with a warning; "" if they are not."""
    why = ""
    if n_examples < _FEWEST * (1.0 - 1e-9):
        why = f"{n_rows} examples are too few (at least {_FEWEST} are needed)"
    elif hits.all() or not hits.any():
        why = f"all {hits.size} labels are {int(hits[0])}"
    if why:
        warn_user(
            f"`labels` teach nothing: {why}; the probabilities are kept. Check `labels`, and use "
            "more examples, with labels of 0 and 1.",
            FitDataWarning,
        )
    return why


def _find_piles(
    scores: FloatArray, hits: BoolArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Edges beyond which scores (m,) pile up, and the log-odds (2,) that they are cut to.

    A largest or least score that comes more than once, as probabilities rounded to 0 and 1 do,
    shows no more than how often its labels are there. Without such a pile, scores are as
    extreme as any of the fit, or as the number of examples supports.
    """
    edges, ends = np.array([-FARTHEST_SCORE, FARTHEST_SCORE]), np.empty(2)
    cut = np.clip(scores, -FARTHEST_SCORE, FARTHEST_SCORE)
    keys = cut.astype(np.float32)
    values = np.unique(keys).astype(np.float64)
    if values.size == 1:  # beside it lies only that nothing is known
        values = np.sort(np.append(values, 0.0))
    for side, sign, (last, inner) in ((0, -1.0, values[:2]), (1, 1.0, values[:-3:-1])):
        here = keys == np.float32(last)
        if here.sum() <= 1:
            farthest = max(float((sign * cut).max()), np.log(_BORNE_OUT * cut.size))
            ends[side] = sign * min(farthest, FARTHEST_SCORE)
            continue
        edges[side] = 0.5 * (last + inner)
        there = float(counts[here] @ hits[here])
        odds = np.log((there + 0.5) / (float(counts[here].sum()) - there + 0.5))
        ends[side] = np.clip(odds, min(last, inner), max(last, inner))
    return edges, np.sort(ends)
