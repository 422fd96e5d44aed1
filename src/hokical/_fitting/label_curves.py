"""Curves of labels that do not exclude each other: one for each label, partially
pooled.

The labels are the groups of `partial_pooling`: curves of rare labels are drawn to the
common one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.arrays import NUMPY, BoolArray, FloatArray, IntArray
from hokical._core.checks import effective_size, sum_by
from hokical._core.runtime import FitDataWarning, one_blas_thread, warn_user
from hokical._fitting.confidence_curves import uncalibrated_share, with_prior
from hokical._fitting.examples import FEWEST_EXAMPLES, mean_and_error
from hokical._fitting.partial_pooling import BinaryTerms, PooledFit, fit_pooled
from hokical.rules.confidence import (
    FARTHEST_SCORE,
    MultilabelCurves,
    score_features,
)

#: Without a pile of scores, odds are believed up to this many times the number of
#: examples.
_BORNE_OUT = 10.0
#: The weight, before the fit, of a hit and of a miss at either end of the scores; the
#: labels share it. Slope and tilt have the precisions of curves of confidence.
_AT_ENDS = 0.5
#: Before the fit, two labels are known to differ by this sum of squares.
_LABELS_ALIKE = (2.0, 0.01)


@dataclass(frozen=True, eq=False)
class _Entries:
    """The known labels: row, column, score, whether it is 1, and its weight, (m,) each.

    Weights count examples. `share` (n,) are the weights of the rows, whose sum is 1.
    """

    row: IntArray
    column: IntArray
    scores: FloatArray
    hits: BoolArray
    counts: FloatArray
    share: FloatArray


@dataclass(frozen=True, eq=False)
class _Design:
    """The likelihood of the entries with the features of their scores.

    The features are 1, the log-odds and the log of p (1 - p) less their `centre` (2,),
    and whether a score lies beyond one of the `edges` (2,), of those numbered in
    `piles`. Log-odds are cut to `pile_odds` (2,).
    """

    terms: BinaryTerms
    centre: FloatArray
    edges: FloatArray
    pile_odds: FloatArray
    piles: list[int]

    @property
    def log_odds(self) -> FloatArray:
        """The log-odds (m,) of the scores, which the features are added to."""
        return self.terms.offset


@one_blas_thread()
def fit_multilabel(
    scores: FloatArray, labels: FloatArray, weights: FloatArray
) -> tuple[MultilabelCurves, dict[str, Any]]:
    """Curves of scores (n, labels) for labels of 0, 1 and NaN (n, labels), and a
    report.

    Log-odds of the curves and of the scores are averaged by held-out log loss. Weights
    (n,) are of rows; so is the standard error, as labels of a row go together.
    """
    n_labels = scores.shape[1]
    entries = _read_entries(scores, labels, weights)
    design = _make_design(entries)
    fit = _fit_labels(design, entries, n_labels)
    odds = design.log_odds
    held_out = fit.scores_left_out()[: odds.size]
    uncalibrated = uncalibrated_share(
        odds, held_out, entries.hits, entries.counts, entries.row
    )
    description = (
        f"log-odds were averaged: {uncalibrated:.0%} uncalibrated, "
        f"{1.0 - uncalibrated:.0%} curves of labels"
    )
    why = _find_useless_labels(entries.hits, entries.share)
    if why:
        uncalibrated = 1.0
        description = f"the probabilities were kept as they are: {why}"
        warn_user(
            f"`labels` teach nothing: {why}; the probabilities are kept. Check "
            "`labels`, and use more examples, with labels of 0 and 1.",
            FitDataWarning,
        )
    averaged = held_out + uncalibrated * (odds - held_out)
    candidates = {"uncalibrated": odds, "pooled": held_out, "average": averaged}
    losses = _row_losses(design, entries, candidates)
    gains = losses["uncalibrated"] - losses["average"]
    _, error = mean_and_error(gains, entries.share)
    report = fit.report(description, losses, entries.share, error)
    return _make_curves(design, fit, 1.0 - uncalibrated, n_labels), report


def _read_entries(
    scores: FloatArray, labels: FloatArray, weights: FloatArray
) -> _Entries:
    """The known labels of rows with a weight."""
    row, column = np.nonzero(~np.isnan(labels) & (weights > 0.0)[:, None])
    if not row.size:
        raise ValueError("`labels` must have known entries; got NaN everywhere.")
    share = weights / weights.sum()
    return _Entries(
        row,
        column,
        scores[row, column],
        labels[row, column] == 1.0,
        share[row] * effective_size(share),
        share,
    )


def _make_design(entries: _Entries) -> _Design:
    """The features of the scores, and where scores pile up."""
    edges, pile_odds = _find_piles(entries.scores, entries.hits, entries.counts)
    odds, spread, *piled = score_features(entries.scores, NUMPY, edges, pile_odds)
    # Where examples tell most, so that what is known of the shift and of the slope is
    # independent.
    information = entries.share[entries.row] * np.exp(spread)
    centre = np.average(np.stack([odds, spread]), axis=1, weights=information)
    piles = [k for k, indicator in enumerate(piled) if indicator.any()]
    columns = [
        np.ones(odds.size),
        odds - centre[0],
        spread - centre[1],
        *(piled[k] for k in piles),
    ]
    features = np.stack(columns, axis=1, dtype=np.float64)
    terms = BinaryTerms(features, entries.hits, odds, entries.counts)
    return _Design(terms, centre, edges, pile_odds, piles)


def _fit_labels(design: _Design, entries: _Entries, n_labels: int) -> PooledFit:
    """Common coefficients and those of labels."""
    terms = design.terms
    odds = design.log_odds
    extreme_rows = np.unique([np.argmin(odds), np.argmax(odds)])
    prior = with_prior(
        terms, terms.features[extreme_rows], odds[extreme_rows], _AT_ENDS / n_labels
    )
    # The examples of the prior are of no label.
    n_added = prior.offset.size - odds.size
    codes = np.append(entries.column, np.full(n_added, -1))[:, None]
    blocks = [-1] * 3 + [0] * len(design.piles)
    return fit_pooled(
        prior, codes, (n_labels,), common_blocks=blocks, alike=_LABELS_ALIKE
    )


def _row_losses(
    design: _Design, entries: _Entries, candidates: dict[str, FloatArray]
) -> dict[str, FloatArray]:
    """The mean log loss of each row (n,) over its known labels, by candidate."""
    n_rows = len(entries.share)
    n_known = np.maximum(sum_by(entries.row, np.ones(entries.row.size), n_rows), 1.0)
    return {
        name: sum_by(entries.row, design.terms.losses(log_odds), n_rows) / n_known
        for name, log_odds in candidates.items()
    }


def _make_curves(
    design: _Design, fit: PooledFit, share: float, n_labels: int
) -> MultilabelCurves:
    """The curves of the fit, with this share in the average with the scores."""
    coef = share * (fit.common + fit.groups[0])
    jumps = np.zeros((2, n_labels))
    jumps[design.piles] = coef[:, 3:].T
    return MultilabelCurves(
        shift=coef[:, 0] - coef[:, 1:3] @ design.centre,
        slope=1.0 + coef[:, 1],
        tilt=coef[:, 2].copy(),
        edges=design.edges,
        ends=design.pile_odds,
        jumps=jumps,
    )


def _find_useless_labels(hits: BoolArray, share: FloatArray) -> str:
    """Why nothing can be learned from labels `hits` (m,) of rows with weights (n,); ""
    if something can.
    """
    if effective_size(share) < FEWEST_EXAMPLES * (1.0 - 1e-9):
        return (
            f"{len(share)} examples are too few (at least {FEWEST_EXAMPLES} are needed)"
        )
    if hits.all() or not hits.any():
        return f"all {hits.size} labels are {int(hits[0])}"
    return ""


def _find_piles(
    scores: FloatArray, hits: BoolArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Edges beyond which scores (m,) pile up, and the log-odds (2,) that they are cut
    to.

    A largest or least score that comes more than once, as probabilities rounded to 0
    and 1 do, shows no more than how often its labels are there. Without such a pile,
    scores are as extreme as any of the fit, or as the number of examples supports.
    """
    edges = np.array([-FARTHEST_SCORE, FARTHEST_SCORE])
    pile_odds = np.empty(2)
    cut = np.clip(scores, -FARTHEST_SCORE, FARTHEST_SCORE)
    keys = cut.astype(np.float32)
    values = np.unique(keys).astype(np.float64)
    if values.size == 1:  # beside it lies only that nothing is known
        values = np.sort(np.append(values, 0.0))
    for side, sign, (last, inner) in ((0, -1.0, values[:2]), (1, 1.0, values[:-3:-1])):
        in_pile = keys == np.float32(last)
        if in_pile.sum() <= 1:
            farthest = max(float((sign * cut).max()), np.log(_BORNE_OUT * cut.size))
            pile_odds[side] = sign * min(farthest, FARTHEST_SCORE)
            continue
        edges[side] = 0.5 * (last + inner)
        n_hits = float(counts[in_pile] @ hits[in_pile])
        odds = np.log((n_hits + 0.5) / (float(counts[in_pile].sum()) - n_hits + 0.5))
        pile_odds[side] = np.clip(odds, min(last, inner), max(last, inner))
    return edges, np.sort(pile_odds)
