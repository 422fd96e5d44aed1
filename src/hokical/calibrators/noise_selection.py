"""The noise of Hoki: the one whose confidences differ most between examples.

With all examples in one bin, alpha and beta give the confidence alpha gamma + beta (1 -
gamma), whose standard deviation over the validation set is sigma_hat = |alpha - beta|
std(gamma). The mean of the noise moves no label, so the family and its width are all
there is to choose, and sigma_hat is a smooth function of the width: a wide grid of
widths is tried on a few rows, then narrower ones around the best on more rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hokical._core.arrays import FloatArray, float64_scope
from hokical._core.checks import check_names
from hokical._core.logits import as_logits, per_row
from hokical._core.reading import as_labels, as_weights
from hokical._core.special import uniform_draws
from hokical._fitting.examples import Examples, sample_block
from hokical._fitting.recursion import survival_rates
from hokical.stability.noise import (
    NARROWEST,
    WIDEST,
    Noise,
    default_families,
    family_named,
)

#: The families that are considered unless others are named.
FAMILIES = default_families()
#: Maximum rows that the width is chosen on; with up to twice as many rows, all are
#: used. sigma_hat is flat around its maximum: on all rows it is within 1 % of the best.
_SAMPLE_ROWS = 8192
#: Maximum logits of these rows, which make fewer rows of many classes.
_SAMPLE_LOGITS = 1 << 23
#: Rows of the first two grids; the last one is tried on the whole sample.
_STAGE_ROWS = (256, 1024)
#: Widths of each grid, which spans a step of the grid before to both sides.
_GRID_WIDTHS = (12, 7, 5)
#: Families below this share of the best sigma_hat of a grid are not tried on the next.
_MIN_SHARES = (0.9, 0.99, 1.0)
#: Widths of the first grid, in standard deviations, where all rows have ties.
_DEFAULT_RANGE = (0.5, 2.0)
#: Quantiles of the gap between the best two logits that count as usual.
_USUAL_GAPS = (0.02, 0.98)


@dataclass(frozen=True)
class Trial:
    """One setting and what it gave: alpha, beta and sigma_hat on `n_examples`
    examples.
    """

    noise: Noise
    alpha: float
    beta: float
    sigma_hat: float
    n_examples: int


@dataclass(frozen=True)
class NoiseSelection(Trial):
    """The best setting, and all `trials` in the order in which they were made."""

    trials: tuple[Trial, ...] = field(repr=False)


def select_noise(
    logits: object,
    labels: object,
    sample_weight: object = None,
    *,
    families: Sequence[str] = FAMILIES,
) -> NoiseSelection:
    """Find the noise with the largest spread of one-bin confidences on a validation
    set.

    Widths of each family are tried with exact stability: a wide grid on 256 rows, a
    narrower one on 1024, and the last on all rows, or on 8192 of more than 16,384,
    drawn in proportion to their weights. (The paper's grid of 1640 settings is in
    hokical-paper.)

    Parameters
    ----------
    logits : array-like of shape (n, classes), or TopK
    labels : array-like of shape (n,)
        Class indices.
    sample_weight : array-like of shape (n,), optional
    families : sequence of str
        Names of the families of noise to consider, as "gumbel" (`Noise.family`).

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
    if not (names := check_names("families", families)):
        raise ValueError("`families` must have at least one name; got none.")
    with float64_scope(logits):
        data = as_logits(logits).without_gradient()
        truth = as_labels(labels, data.n_rows, data.n_classes)
        block = Examples(data, truth, as_weights(sample_weight, data.n_rows))
        return choose_noise(sample_block(block), names)


def choose_noise(
    examples: Examples, families: Sequence[str] = FAMILIES
) -> NoiseSelection:
    """The noise with the largest sigma_hat on some of the rows."""
    stages = _sample_stages(examples)
    low, high = _deviation_range(stages[1])
    ranges = {
        family: (low / family.unit_deviation, high / family.unit_deviation)
        for family in map(family_named, families)
    }
    trials: list[Trial] = []
    for stage, n_widths, min_share in zip(
        stages, _GRID_WIDTHS, _MIN_SHARES, strict=True
    ):
        best: dict[type[Noise], Trial] = {}
        for family, width_range in ranges.items():
            widths = np.geomspace(*width_range, n_widths)
            family_trials = _try_widths(stage, family, widths)
            best[family] = max(family_trials, key=lambda trial: trial.sigma_hat)
            trials += family_trials
        leader = max(best.values(), key=lambda trial: trial.sigma_hat)
        ranges = {
            family: _narrow(ranges[family], trial.noise.width, n_widths)
            for family, trial in best.items()
            if trial.sigma_hat >= min_share * leader.sigma_hat
        }
    return NoiseSelection(**vars(leader), trials=tuple(trials))


def _sample_stages(examples: Examples) -> list[Examples]:
    """The rows of each grid: evenly spaced ones of a sample, and all of it."""
    n_rows = min(_SAMPLE_ROWS, _SAMPLE_LOGITS // examples.logits.n_columns)
    sample = sample_rows(examples, max(_STAGE_ROWS[-1], n_rows))
    sizes = [min(rows, sample.n_rows) for rows in _STAGE_ROWS]
    spaced = [sample.take(np.arange(size) * sample.n_rows // size) for size in sizes]
    return [*spaced, sample]


def _deviation_range(examples: Examples) -> tuple[float, float]:
    """Standard deviations from far below the smallest usual gap of the best two logits
    to far above the largest.
    """
    gaps = per_row(lambda block: block.gaps, examples.logits)
    weights = examples.counts
    usable = np.isfinite(gaps) & (gaps > 0.0) & (weights > 0.0)
    if not usable.any():
        return _DEFAULT_RANGE
    low, high = np.quantile(
        gaps[usable], _USUAL_GAPS, weights=weights[usable], method="inverted_cdf"
    ).tolist()
    return max(low / 4.0, NARROWEST), 8.0 * min(max(high, NARROWEST), WIDEST)


def _narrow(
    width_range: tuple[float, float], width: float, n_widths: int
) -> tuple[float, float]:
    """The range of one step of a geometric grid to both sides of a width."""
    low, high = width_range
    step = (high / low) ** (1.0 / (n_widths - 1))
    return width / step, width * step


def _try_widths(
    examples: Examples, family: type[Noise], widths: FloatArray
) -> list[Trial]:
    """Trials of one family with all examples in one bin (Equations 1 to 4 of the
    paper).

    Widths are rounded to three digits: sigma_hat is flat around its maximum, so
    rounding costs nothing, and they are the same on every machine, where the last bits
    of a search are not.
    """
    possible = np.clip(widths, NARROWEST, WIDEST)
    rounded = np.array([float(f"{width:.2e}") for width in possible])
    gamma = examples.logits.to_host(family.stabilities(examples.logits, rounded))
    counts = examples.counts
    total = counts.sum()
    hits = counts * examples.correct
    survived = np.sum(counts * gamma, axis=1)
    alpha, beta = survival_rates(
        survived,
        np.sum(counts * (1.0 - gamma), axis=1),
        np.sum(hits * gamma, axis=1),
        np.sum(hits * (1.0 - gamma), axis=1),
    )
    squares = counts * (gamma - (survived / total)[:, None]) ** 2
    sigma_hat = np.abs(alpha - beta) * np.sqrt(np.sum(squares, axis=1) / total)
    columns = [column.tolist() for column in (rounded, alpha, beta, sigma_hat)]
    return [
        Trial(family.of_width(width), a, b, spread, examples.n_rows)
        for width, a, b, spread in zip(*columns, strict=True)
    ]


def sample_rows(examples: Examples, n_rows: int) -> Examples:
    """A sample of `n_rows` rows with a weight of 1 each; all that count if they are at
    most twice as many.

    One at random, always the same, in each of many equal parts of the sum of the
    weights: rows come in proportion to their weights, and no order of the rows can hide
    some of them.
    """
    if np.count_nonzero(examples.counts) <= 2 * n_rows:
        return examples.without_weightless()
    cumulative = np.cumsum(examples.counts)
    draws = uniform_draws(0, (1, n_rows))[0]
    positions = (np.arange(n_rows) + draws) * (cumulative[-1] / n_rows)
    drawn = examples.take(np.searchsorted(cumulative, positions, side="right"))
    return replace(drawn, weights=None)
