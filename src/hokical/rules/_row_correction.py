"""The row correction: a temperature and a shift of the label for each row.

With the log-probabilities L of a row, its most likely class c and margins d_k = L_c - L_k,

    scores_k = -a d_k  for k != c,    scores_c = b,    a = exp(f . log_scale),  b = f . shift,

where f are 1 and the standardised features of the row: the log-odds that its label survives Gumbel
noise of several widths (its label stabilities), the entropy, and the mean and the standard
deviation of the margins. The corrected probabilities are the softmax of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from hokical._core.arrays import Array, Namespace
from hokical._core.logits import Logits, put_at_label, put_masked
from hokical._core.special import at_most, clip, exponential, row_dots, row_sums, times
from hokical._core.storage import storable
from hokical._core.types import FloatArray
from hokical.rules._checks import check_array

#: Widths of the Gumbel noise. Each is half of the one before, so that squares of one exponential
#: serve all.
WIDTHS = (4.0, 2.0, 1.0, 0.5)
#: Label stabilities, then the entropy, and mean and standard deviation of the margins.
N_FEATURES = len(WIDTHS) + 3
#: Log-odds are clipped to the first two, and margins for their mean and deviation to the third.
LEAST_LOG_ODDS, LARGEST_LOG_ODDS, LARGEST_MARGIN = -8.0, 20.0, 50.0
#: The same for what the other classes sum to, in units of the label.
LEAST_REST, LARGEST_REST = exp(-LARGEST_LOG_ODDS), exp(-LEAST_LOG_ODDS)
#: Standardised features, the log of the scale and the shift are clipped to plus and minus these.
LARGEST_FEATURE, LARGEST_LOG_SCALE, LARGEST_SHIFT = 4.0, 3.0, 4.0
#: Where labels are kept, their score is above all others by this, which float32 can show.
LEAST_LEAD = 1e-6


@storable("row-correction")
@dataclass(frozen=True, eq=False)
class RowCorrection:
    """`centre` and `spread` (7,) standardise features; `log_scale` and `shift` (8,) weigh them."""

    centre: FloatArray
    spread: FloatArray
    log_scale: FloatArray
    shift: FloatArray

    def __post_init__(self) -> None:
        check_array("centre", self.centre, (N_FEATURES,))
        check_array("spread", self.spread, (N_FEATURES,), 1e-100)
        check_array("log_scale", self.log_scale, (1 + N_FEATURES,))
        check_array("shift", self.shift, (1 + N_FEATURES,))

    def __str__(self) -> str:
        return (
            f"a temperature and a shift of the label for each row, by {N_FEATURES} features of it"
        )

    def scores(self, logits: Logits) -> Array:
        """Scores (n, columns)."""
        return corrected_scores(logits, *self.scale_and_shift(logits))

    def scale_and_shift(self, logits: Logits, temperature: Array = 1.0) -> tuple[Array, Array]:
        """a and b, (n,) each, of logits divided by a temperature."""
        xp = logits.xp
        design = standardise(row_features(logits, temperature), self.centre, self.spread, xp)
        weights = xp.stack([self.log_scale, self.shift], axis=1)[:, :, None]
        found = weights[0, :, :]
        # Term by term, as matrix products and NumPy's sums round by the number of rows.
        for place in range(1, 1 + N_FEATURES):
            found = found + weights[place, :, :] * design[place, :]
        log_scale = clip(found[0, :], -LARGEST_LOG_SCALE, LARGEST_LOG_SCALE, xp)
        return xp.exp(log_scale), clip(found[1, :], -LARGEST_SHIFT, LARGEST_SHIFT, xp)


def corrected_scores(logits: Logits, scale: Array, shift: Array) -> Array:
    """Minus `scale` (n,) times the margins, (n, columns), and `shift` (n,) for the label."""
    return put_at_label(logits.margins * -scale[:, None], shift[:, None], logits)


def row_features(logits: Logits, temperature: Array = 1.0) -> Array:
    """The features (7, n) of logits divided by a temperature; a tail counts as classes."""
    xp, tail = logits.xp, logits.tail
    odds = exponential(logits.margins * (-1.0 / (WIDTHS[0] * temperature)), xp)
    odds = put_at_label(odds, 0.0 * odds[:, :1], logits)
    inside = at_most(logits.margins * (1.0 / temperature), LARGEST_MARGIN, xp)
    inside = put_masked(inside, 0.0, logits)
    sums = [row_sums(inside, xp), row_dots(inside, inside, xp)]
    hidden, beside = 0.0, 0.0
    if tail is not None:
        hidden = xp.exp(tail.margin * (-1.0 / (WIDTHS[0] * temperature)))
        beside = at_most(tail.margin / temperature, LARGEST_MARGIN, xp)
        sums = [s + tail.count * beside**power for power, s in enumerate(sums, 1)]
    rests, entropy = [], 0.0
    for place, width in enumerate(WIDTHS):
        if place:
            odds = times(odds, odds, xp)
            hidden = hidden * hidden
        rest = row_sums(odds, xp) + (0.0 if tail is None else tail.count * hidden)
        rests.append(rest)
        if width == 1.0:
            mean = row_dots(odds, inside, xp)
            mean = mean + (0.0 if tail is None else tail.count * hidden * beside)
            entropy = xp.log1p(rest) + mean / (1.0 + rest)
    stabilities = -xp.log(clip(xp.stack(rests, axis=0), LEAST_REST, LARGEST_REST, xp))
    mean, square = (total / logits.possible_counts for total in sums)
    others = xp.stack([entropy, mean, _root(square - mean * mean, xp)], axis=0)
    return xp.concat([stabilities, others], axis=0)


def _root(variance: Array, xp: Namespace) -> Array:
    """Square roots (n,), 0 below 0, with finite gradients."""
    positive, ones = variance > 0.0, xp.ones_like(variance)
    return xp.where(positive, xp.sqrt(xp.where(positive, variance, ones)), 0.0 * ones)


def standardise(features: Array, centre: Array, spread: Array, xp: Namespace) -> Array:
    """1 and the standardised features, (8, n)."""
    unit = (features - centre[:, None]) / spread[:, None]
    unit = clip(unit, -LARGEST_FEATURE, LARGEST_FEATURE, xp)
    return xp.concat([xp.ones_like(unit[:1, :]), unit], axis=0)
