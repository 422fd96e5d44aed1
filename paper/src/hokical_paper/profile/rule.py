"""The stability profile as a rule: temperature scaling, corrected by stability at
some widths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hokical.rules import Logits, Rule
from hokical_paper.core import (
    LARGEST_TEMPERATURE,
    LEAST_TEMPERATURE,
    Coefficient,
    Temperature,
    check_array,
    distribute_remainder,
)
from hokical_paper.core.stability import distribution
from hokical_paper.profile.novelty import Novelty
from hokical_paper.profile.stabilities import log_odds_and_profile
from hokical_paper.types import Array, FloatArray, Namespace

#: log(1 - gamma) is cut here: nobody has the 10^11 examples that could tell more.
LEAST_LOG = -25.0
#: Log-odds are cut here, so that a confidence is never 0 or 1.
LARGEST_LOG_ODDS = 34.0
#: Every width is a pass over the logits.
MOST_WIDTHS = 1000


def profile_features(logits: Logits, temperature: Array, widths: Array) -> Array:
    """What the confidence depends on, (n, 1 + 2 W), each row by itself and finite.

    The log-odds of the softmax at the temperature; then log gamma and log(1 - gamma) at
    each of the widths (W,) of Gaussian noise.
    """
    xp = logits.xp
    log_odds, profile = log_odds_and_profile(logits, temperature, widths)
    first = xp.clip(log_odds, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
    return xp.concat([first[:, None], xp.clip(profile, LEAST_LOG, 0.0)], axis=1)


@dataclass(frozen=True, eq=False)
class ProfileRule(Rule):
    """Log-odds of the softmax at `temperature`, plus a linear correction in all
    features.

    `coef` (1 + 2 W,) and `intercept` make the correction, which stays within `range`
    (2,) and is trusted as far as the features are `familiar`; `widths` (W,) are those
    of the noise, in logits. The label, the best of m possible classes, gets at least 1
    / m.
    """

    name: ClassVar[str] = "profile"
    accepts_top_k: ClassVar[bool] = True

    temperature: Temperature
    widths: FloatArray
    intercept: Coefficient
    coef: FloatArray
    range: FloatArray
    familiar: Novelty

    def __post_init__(self) -> None:
        super().__post_init__()
        check_array(
            "widths", self.widths, (None,), LEAST_TEMPERATURE, LARGEST_TEMPERATURE
        )
        if self.widths.size > MOST_WIDTHS:
            raise ValueError(
                f"`widths` must be at most {MOST_WIDTHS}; got {self.widths.size}."
            )
        check_array("coef", self.coef, (1 + 2 * self.widths.size,))
        check_array("range", self.range, (2,))
        if self.range[0] > self.range[1]:
            raise ValueError(
                f"`range` must be the smaller number first; got {self.range}."
            )
        if self.familiar.centre.size != self.coef.size:
            raise ValueError(f"`familiar` must have {self.coef.size} features.")

    def features(self, logits: Logits) -> Array:
        """What the confidence depends on, (n, 1 + 2 W); see `profile_features`."""
        return profile_features(logits, self.temperature, self.widths)

    def confidence(self, logits: Logits) -> Array:
        confidence = self.confidence_from(self.features(logits), logits.xp)
        return logits.xp.maximum(confidence, _guess(logits))

    def confidence_from(self, features: Array, xp: Namespace) -> Array:
        """Confidence (n,) from features (n, 1 + 2 W), before the least that a label
        gets.
        """
        correction = self._correction(features, xp)
        return _chance(
            features[:, 0] + correction * self.familiar.trust(features, xp), xp
        )

    def proba(self, logits: Logits) -> Array:
        shares = distribution(logits, self.temperature)
        return distribute_remainder(
            logits, self.confidence(logits), shares, self.temperature
        )

    def _correction(self, features: Array, xp: Namespace) -> Array:
        """The correction (n,) of the log-odds, before it is trusted."""
        linear = xp.sum(features * self.coef[None, :], axis=1) + self.intercept
        return xp.minimum(xp.maximum(linear, self.range[0]), self.range[1])


def _guess(logits: Logits) -> Array:
    """The probability (n,) of a guess among the possible classes, if there are
    several.
    """
    return 1.0 / logits.xp.clip(logits.possible_counts, 2.0, None)


def _chance(log_odds: Array, xp: Namespace) -> Array:
    """Confidence from log-odds, never 0 or 1."""
    return 1.0 / (1.0 + xp.exp(-xp.clip(log_odds, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)))
