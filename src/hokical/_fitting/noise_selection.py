"""The choice of the noise whose confidences differ most between examples.

With all examples in one bin, alpha and beta give the confidence alpha gamma + beta (1 - gamma),
whose standard deviation over the validation set is sigma_hat = |alpha - beta| std(gamma). The mean
of the noise moves no label, so the family and its width are all there is to choose, and sigma_hat
is a smooth function of the width: a wide grid of widths is tried on a few rows, then narrower ones
around the best on more rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hokical._core.arrays import float64_scope
from hokical._core.blocks import per_row
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import as_logits
from hokical._core.portable import uniform_draws
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.recursion import survival_rates
from hokical._fitting.row_sample import sample_block
from hokical.stability._noise import NARROWEST, WIDEST, Noise, family_named

#: The families that are considered unless others are asked for.
FAMILIES = ("gaussian", "uniform")
#: The width is chosen on so many rows, or logits if that is fewer rows; with up to twice as many
#: rows, on all. sigma_hat is flat around its maximum: on all rows it is within 1 % of the best.
_SAMPLE_ROWS, _SAMPLE_LOGITS = 8192, 1 << 23
#: Rows of the stages before, the widths of the grids, each of which spans a step of the one before
#: to both sides, and the share of the best sigma_hat below which a family is tried no more.
_STAGE_ROWS, _GRID_POINTS, _CLEARLY_BEHIND = (256, 1024), (12, 7, 5), (0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Trial:
    """One setting and what it gave: alpha, beta and sigma_hat on `n_examples` examples."""

    noise: Noise
    alpha: float
    beta: float
    sigma_hat: float
    n_examples: int


@dataclass(frozen=True)
class NoiseSelection(Trial):
    """The best setting, and all `trials` in the order in which they were made."""

    trials: tuple[Trial, ...] = field(repr=False)

    @classmethod
    def of(cls, best: Trial, trials: Sequence[Trial]) -> NoiseSelection:
        """The selection of one of the trials."""
        return cls(**vars(best), trials=tuple(trials))


def select_noise(
    logits: Any, labels: Any, *, families: Sequence[str] = FAMILIES, sample_weight: Any = None
) -> NoiseSelection:
    """Find the noise with the largest spread of one-bin confidences on a validation set.

    Widths of each family are tried with exact stability: a wide grid on 256 rows, a narrower one on
    1024, and the last on all rows, or on 8192 of more than 16,384, drawn in proportion to their
    weights. (The paper's grid of 1640 settings is in hokical-paper.)

    Parameters
    ----------
    logits : array-like of shape (n, classes), or TopK
    labels : array-like of shape (n,)
        Class indices.
    families : sequence of str
        Which of "gaussian", "uniform" and "gumbel" to consider.
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    selection : NoiseSelection

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import select_noise
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(5, size=500)
    >>> logits = rng.normal(size=(500, 5)) + 2 * np.eye(5)[labels]
    >>> select_noise(logits, labels, families=["gaussian"]).noise.family
    'gaussian'
    """
    if isinstance(families, str) or not families:
        raise ValueError(f"`families` must be a non-empty sequence of names; got {families!r}.")
    with float64_scope(logits):
        data = as_logits(logits).without_gradient()
        truth = as_labels(labels, data.n_rows, data.n_classes)
        block = Examples(data, truth, as_weights(sample_weight, data.n_rows))
        return choose_noise(sample_block(block), families)


def choose_noise(examples: Examples, families: Sequence[str] = FAMILIES) -> NoiseSelection:
    """Find the noise on some of the rows."""
    most = max(_STAGE_ROWS[-1], min(_SAMPLE_ROWS, _SAMPLE_LOGITS // examples.logits.n_columns))
    sample = sample_rows(examples, most)
    sizes = [min(rows, sample.n_rows) for rows in _STAGE_ROWS]
    stages = [sample.take(np.arange(k) * sample.n_rows // k) for k in sizes] + [sample]
    low, high = _usual_gaps(stages[1])
    kinds = map(family_named, families)
    grids = {kind: (low / kind.unit_deviation, high / kind.unit_deviation) for kind in kinds}
    trials: list[Trial] = []
    for stage, points, behind in zip(stages, _GRID_POINTS, _CLEARLY_BEHIND, strict=True):
        best: dict[type[Noise], Trial] = {}
        for kind, ends in grids.items():
            found = _try_widths(stage, kind, np.geomspace(*ends, points))
            best[kind] = max(found, key=lambda trial: trial.sigma_hat)
            trials += found
        leader = max(best.values(), key=lambda trial: trial.sigma_hat)
        ahead = [k for k, trial in best.items() if trial.sigma_hat >= behind * leader.sigma_hat]
        step = {kind: (grids[kind][1] / grids[kind][0]) ** (1.0 / (points - 1)) for kind in ahead}
        grids = {k: (best[k].noise.width / step[k], best[k].noise.width * step[k]) for k in ahead}
    return NoiseSelection.of(leader, trials)


def _try_widths(examples: Examples, kind: type[Noise], widths: FloatArray) -> list[Trial]:
    """Trials of one family with all examples in one bin (Equations 1 to 4 of the paper).

    Widths are rounded to three digits: sigma_hat is flat around its maximum, so rounding costs
    nothing, and they are the same on every machine, where the last bits of a search are not.
    """
    tidy = np.array([float(f"{width:.2e}") for width in np.clip(widths, NARROWEST, WIDEST)])
    gamma = examples.logits.to_host(kind.stabilities(examples.logits, tidy))
    counts, hits = examples.counts, examples.counts * examples.correct
    kept, switched, kept_right, switched_right = (
        np.sum(weight * part, axis=1) for weight in (counts, hits) for part in (gamma, 1.0 - gamma)
    )
    alpha, beta = survival_rates(kept, switched, kept_right, switched_right)
    squares = counts * (gamma - (kept / counts.sum())[:, None]) ** 2
    spread = np.abs(alpha - beta) * np.sqrt(np.sum(squares, axis=1) / counts.sum())
    columns = zip(*(each.tolist() for each in (tidy, alpha, beta, spread)), strict=True)
    return [Trial(kind.of_width(w), a, b, s, examples.n_rows) for w, a, b, s in columns]


def sample_rows(examples: Examples, n_rows: int) -> Examples:
    """So many rows, with a weight of 1 each, or all that count if they are hardly more.

    One at random, always the same, in each of many equal parts of the sum of the weights: rows come
    in proportion to their weights, and no order of the rows can hide some of them.
    """
    if np.count_nonzero(examples.counts) <= 2 * n_rows:
        return examples.without_weightless()
    total = np.cumsum(examples.counts)
    places = (np.arange(n_rows) + uniform_draws(0, (1, n_rows))[0]) * (total[-1] / n_rows)
    return replace(examples.take(np.searchsorted(total, places, side="right")), weights=None)


def _usual_gaps(examples: Examples) -> tuple[float, float]:
    """From far below the smallest usual gap between the best two logits to far above."""
    gaps, weights = per_row(lambda part: part.gaps, examples.logits), examples.counts
    usual = np.isfinite(gaps) & (gaps > 0.0) & (weights > 0.0)
    if not usual.any():
        return 0.5, 2.0
    low, high = np.quantile(
        gaps[usual], [0.02, 0.98], weights=weights[usual], method="inverted_cdf"
    )
    return float(low / 4.0), float(8.0 * min(high, WIDEST))
