"""The stability profile: temperature scaling, corrected by label stability at several widths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from hokical._warnings import warn_user
from hokical.bins import check_count
from hokical.calibrators._profile_bounds import feature_ranges
from hokical.calibrators._profile_familiar import Familiar
from hokical.calibrators._profile_link import PENALTIES, LinkFit, fit_link
from hokical.calibrators._sharing import share_rest
from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.temps import TemperatureFit, best_temperature, fit_temperature
from hokical.logits import Logits
from hokical.noise import Gumbel
from hokical.stability.profile import log_odds_and_profile
from hokical.streams.blocks import Blocks, State
from hokical.streams.checking import Block
from hokical.streams.examples import StreamedExamples
from hokical.topk import TopK

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Noise widths, as multiples of the temperature.
WIDTHS = (1.0, 3.0, 10.0)
#: Of the temperature's last step; what is left is 1e-7 of it, and a pass over all logits is saved.
_TOLERANCE = 1e-3
#: log(1 - gamma) is cut here: nobody has the 10^11 examples that could tell more.
LEAST_LOG = -25.0
#: What the regression keeps of a feature of an example: itself, standardised, and work space.
_BYTES_PER_FEATURE = 43
#: Log-odds are cut here, so that a confidence is never 0 or 1.
LARGEST_LOG_ODDS = 34.0


class StabilityProfile(BaseCalibrator):
    """Calibrate by label stability at several widths, on top of temperature scaling.

    The temperature is fitted as by `temps`. Then the log-odds that a label is right are modelled as
    those of the scaled softmax plus a linear correction in log gamma and log(1 - gamma), the
    chances that the label survives Gaussian noise of several widths and that it does not. A penalty
    shrinks the correction towards nothing, which is temperature scaling. Labels are never changed.

    By default no one penalty is chosen: the corrections at penalties from 1000 to 0.1, and none at
    all, are averaged by their leave-one-out log loss plus the standard error of their gain over
    temperature scaling (more than one of it where mistakes are few). Where no correction at all has
    more than half of the weight, there is none: the confidence is that of temperature scaling.

    Parameters
    ----------
    widths : sequence of float
        Scales of the Gaussian noise as multiples of the fitted temperature.
    penalty : "auto" or float
        "auto" averages over strengths as above. A number is the one penalty used: half of it times
        the sum of squares of the coefficients of standardised features, beside the sum of the
        examples' log losses. inf is temperature scaling.
    max_iterations : int
        Most Newton steps at each penalty.

    Attributes
    ----------
    temperature_ : as of temperature scaling; 1 if the validation set has no mistake to learn from
    widths_ : (W,), the scales of the noise in logits: `widths` times the temperature
    intercept_ : the constant of the correction
    coef_ : (1 + 2 W,), the correction's coefficients: of the scaled softmax's log-odds, then of
        log gamma and log(1 - gamma) at each width
    range_ : (2,), the least and the greatest correction on the validation set; none is beyond
    familiar_ : Familiar, what the validation set was like: where features lie farther out than any
        seen there, the correction fades, so that the confidence is that of the scaled softmax
    penalties_, shares_, loo_log_loss_ : (K,), the penalties tried, inf first; how much each counts
        in the average; and its mean leave-one-out log loss (nats) of the confidence
    penalty_ : the penalty that counts most
    n_iterations_, converged_ : how the fits ended
    message_ : what was chosen, and how the fits ended, in words

    Notes
    -----
    `sample_weight` counts examples: with weights that sum to 10 the correction is shrunk as with
    ten examples.

    Examples
    --------
    >>> from hokical.calibrators import StabilityProfile
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
    >>> cal = StabilityProfile().fit(val_logits, val_labels)
    >>> confidence = cal.predict_confidence(test_logits)
    >>> right = cal.predict(test_logits) == test_labels
    >>> bool(abs(confidence.mean() - right.mean()) < 0.01)
    True
    """

    name = "profile"
    reference = "hokical: label stability at several widths over temperature scaling"
    cost = "temperature scaling, then three stability passes and a regression on 7 features"
    accepts_top_k = True

    def __init__(
        self,
        *,
        widths: Sequence[float] = WIDTHS,
        penalty: float | Literal["auto"] = "auto",
        max_iterations: int = 100,
    ) -> None:
        self.widths = widths
        self.penalty = penalty
        self.max_iterations = max_iterations

    def predict_proba(self, logits: Any) -> FloatArray:
        """Probabilities (n, classes): the confidence for the label, the rest by switches.

        What the label leaves is shared among the other classes as Gumbel noise would switch the
        label to them, that is, in the proportions of the scaled softmax. Rows sum to 1 and masked
        classes (-inf) get 0, so a row in which one class alone is possible gives it 1, whatever
        the confidence. Where the confidence is low, another class can end up above the label;
        `predict` is the classifier's own label all the same.
        """
        return super().predict_proba(logits)

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        widths = self._checked_widths()
        correct = logits.labels == labels
        found = fit_temperature(logits, labels, weights, tolerance=_TOLERANCE)
        self._set_scales(_usable(found, correct, weights), widths)
        self._fit_features(self._features(logits), correct, weights, found)

    def _fit_blocks(self, blocks: Blocks) -> None:
        """The temperature in passes; then the features, a few numbers per example, in memory."""
        widths = self._checked_widths()
        found = best_temperature(StreamedExamples(blocks), tolerance=_TOLERANCE)
        (mistakes,) = blocks.total(_count_mistakes)
        self._set_scales(found.temperature if mistakes[0] else 1.0, widths)
        row_bytes = _BYTES_PER_FEATURE * (1 + 2 * widths.size)
        features, correct, weights = blocks.collect(
            self._block_features, row_bytes, type(self).__name__
        )
        self._fit_features(features, correct, None if np.isnan(weights).any() else weights, found)

    def _checked_widths(self) -> FloatArray:
        """The widths as an array, once all parameters have been checked."""
        check_penalty(self.penalty)
        check_count(self.max_iterations, name="max_iterations")
        return check_widths(self.widths)

    def _fits_in_one_pass(self) -> bool:
        return False

    def _block_features(self, block: Block) -> State:
        weights = np.full(block.n_rows, np.nan) if block.weights is None else block.weights
        return self._features(block.logits), block.correct, weights

    def _set_scales(self, temperature: float, widths: FloatArray) -> None:
        self.temperature_ = temperature
        self.widths_ = temperature * widths

    def _features(self, logits: Logits) -> FloatArray:
        """What the confidence depends on, (n, 1 + 2 W), each row by itself and finite.

        The scaled softmax's log-odds; then log gamma and log(1 - gamma) at each width.
        """
        log_odds, profile = log_odds_and_profile(logits, self.temperature_, self.widths_.tolist())
        np.clip(log_odds, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS, out=log_odds)
        np.maximum(profile, LEAST_LOG, out=profile)
        return np.column_stack([log_odds, profile])

    def _fit_features(
        self,
        features: FloatArray,
        correct: BoolArray,
        weights: FloatArray | None,
        found: TemperatureFit,
    ) -> None:
        """Learn the correction from features (n, 1 + 2 W) and whether each label was right."""
        link = fit_link(
            features,
            features[:, 0],
            correct,
            weights,
            penalties=PENALTIES if self.penalty == "auto" else (float(self.penalty),),
            max_iterations=self.max_iterations,
        )
        self._keep(link, found.converged, found.n_iterations)
        counts = np.ones(correct.size) if weights is None else weights
        self.familiar_ = Familiar.of(features, counts)
        counted = features[counts > 0.0]
        corrections = self._linear(counted)
        self.range_ = np.array([corrections.min(), corrections.max()])
        self.message_ = _message(self, link, found, self._mean_change(counted))
        if not self.converged_:
            warn_user(f"StabilityProfile did not converge: {self.message_}", ConvergenceWarning)

    def _keep(self, link: LinkFit, temperature_converged: bool, n_iterations: int) -> None:
        self.intercept_, self.coef_ = link.intercept, link.coef
        self.penalties_, self.shares_ = link.penalties, link.shares
        self.loo_log_loss_ = link.loo_losses
        self.penalty_ = float(link.penalties[np.argmax(link.shares)])
        self.converged_ = bool(link.converged and temperature_converged)
        self.n_iterations_ = link.n_iterations + n_iterations

    def _linear(self, features: FloatArray) -> FloatArray:
        """The correction (n,) as the regression has it."""
        # einsum, not matmul: BLAS sums in an order that depends on the number of rows.
        return np.asarray(np.einsum("np,p->n", features, self.coef_) + self.intercept_)

    def _from_features(self, features: FloatArray) -> FloatArray:
        """Confidence (n,) from features (n, 1 + 2 W)."""
        correction = np.clip(self._linear(features), *self.range_)
        return _chance(features[:, 0] + correction * self.familiar_.trust(features))

    def _mean_change(self, features: FloatArray) -> float:
        """How far the correction moves the confidence on average."""
        return float(np.abs(self._from_features(features) - _chance(features[:, 0])).mean())

    def _confidence(self, logits: Logits) -> FloatArray:
        return self._from_features(self._features(logits))

    def _confidence_bounds(self, logits: TopK) -> tuple[FloatArray, FloatArray]:
        """With every feature at that end of its range which lowers or raises the correction."""
        low, high = feature_ranges(logits, self._features, self.temperature_, self.widths_)
        rises = self.coef_ > 0.0
        ends = (np.where(rises, low, high), np.where(rises, high, low))
        least, most = (np.clip(self._linear(end), *self.range_) for end in ends)
        # What is trusted less lies between nothing and the whole correction.
        return (
            _chance(low[:, 0] + np.minimum(least, 0.0)),
            _chance(high[:, 0] + np.maximum(most, 0.0)),
        )

    def _proba(self, logits: Logits) -> FloatArray:
        return share_rest(logits, self._confidence(logits), Gumbel(self.temperature_))

    def _state(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature_,
            "widths": self.widths_,
            "intercept": self.intercept_,
            "coef": self.coef_,
            "range": self.range_,
            "familiar": self.familiar_.to_dict(),
            "penalties": self.penalties_,
            "shares": self.shares_,
            "loo_log_loss": self.loo_log_loss_,
            "n_iterations": self.n_iterations_,
            "converged": self.converged_,
            "message": self.message_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        temperature = float(state["temperature"])
        if not 0.0 < temperature < math.inf:
            raise ValueError(f"temperature must be finite and above 0; got {temperature}")
        self.temperature_, self.widths_ = temperature, check_widths(state["widths"])
        link = _stored_link(state, self.widths_.size)
        self._keep(link, bool(state["converged"]), 0)
        self.range_ = _stored_range(state["range"])
        self.familiar_ = Familiar.from_dict(state["familiar"], self.coef_.size)
        self.message_ = str(state["message"])


def check_widths(widths: Any) -> FloatArray:
    """Multiples of the temperature, (W,): at least one, all finite and above 0, each once."""
    try:
        array = np.array([float(width) for width in widths])
    except (TypeError, ValueError):
        array = np.array([])
    if array.size == 0 or not ((array > 0.0) & (array < np.inf)).all():
        raise ValueError(
            "`widths` must be one or more finite numbers above 0, multiples of the temperature; "
            f"got {widths!r}. The default is {WIDTHS}."
        )
    if np.unique(array).size < array.size:
        raise ValueError(f"`widths` must differ from each other; got {widths!r}.")
    return array


def check_penalty(penalty: Any) -> None:
    """ "auto", or a number above 0."""
    if isinstance(penalty, str) and penalty == "auto":
        return
    number = isinstance(penalty, (int, float, np.number)) and not isinstance(penalty, bool)
    if not number or not penalty > 0.0:
        raise ValueError(
            f'`penalty` must be "auto" or a number above 0 (inf for temperature scaling); got '
            f"{penalty!r}."
        )


def _count_mistakes(block: Block) -> State:
    return (np.array([np.count_nonzero(block.counting & ~block.correct)]),)


def _usable(found: TemperatureFit, correct: BoolArray, weights: FloatArray | None) -> float:
    """The temperature; 1, the classifier's own, where no mistake tells what it should be."""
    counted = correct if weights is None else correct[weights > 0.0]
    return 1.0 if counted.all() else found.temperature


def _chance(log_odds: FloatArray) -> FloatArray:
    """Confidence from log-odds, never 0 or 1."""
    return np.asarray(expit(np.clip(log_odds, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)))


def _message(cal: StabilityProfile, link: LinkFit, found: TemperatureFit, change: float) -> str:
    """What was chosen; and what went wrong, if anything did."""
    parts = [f"temperature {cal.temperature_:.4g}"]
    if cal.penalty_ == np.inf:
        parts.append("no correction: temperature scaling alone")
    else:
        parts.append(
            f"a correction that moves the confidence by {change:.4f} on average, most of it with "
            f"penalty {cal.penalty_:.2g}"
        )
    if not found.converged:
        parts.append(
            "no best temperature was found: use more validation examples, some of which are wrong"
        )
    if not link.converged:
        parts.append(
            "a regression was broken off: raise `max_iterations`, or give a larger `penalty`"
        )
    return "; ".join(parts)


def _stored_range(stored: FloatArray) -> FloatArray:
    if stored.shape != (2,) or not np.isfinite(stored).all() or stored[0] > stored[1]:
        raise ValueError(f"range must be two finite numbers, the smaller first; got {stored}")
    return stored


def _stored_link(state: dict[str, Any], n_widths: int) -> LinkFit:
    coef, penalties = state["coef"], state["penalties"]
    shares, losses = state["shares"], state["loo_log_loss"]
    intercept = float(state["intercept"])
    if coef.shape != (1 + 2 * n_widths,) or not np.isfinite([intercept, *coef]).all():
        raise ValueError(f"coef must be {1 + 2 * n_widths} finite numbers; got {coef}")
    if penalties.ndim != 1 or penalties.size == 0 or not (penalties > 0.0).all():
        raise ValueError(f"penalties must be one or more numbers above 0; got {penalties}")
    if not shares.shape == losses.shape == penalties.shape:
        raise ValueError(f"shares and loo_log_loss must be {penalties.shape}")
    return LinkFit(
        intercept, coef, penalties, shares, losses, True, check_count(state["n_iterations"])
    )
