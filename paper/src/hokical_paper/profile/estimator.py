"""The stability profile: temperature scaling, corrected by label stability at
several widths.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from hokical.calibrators import Calibrator, Examples, Fit, MethodInfo
from hokical_paper.core import LARGEST_TEMPERATURE, check_count, expit, per_row
from hokical_paper.core.fitting import Solution, best_temperature
from hokical_paper.profile.link import PENALTIES, LinkFit, fit_link
from hokical_paper.profile.novelty import Novelty
from hokical_paper.profile.rule import ProfileRule, profile_features
from hokical_paper.types import FloatArray

#: Noise widths, as multiples of the temperature.
WIDTHS = (1.0, 3.0, 10.0)
#: Tolerance of the temperature's last step: the error left is 1e-7, and a pass is
#: saved.
_TOLERANCE = 1e-3


class StabilityProfile(Calibrator):
    """Calibrate by label stability at several widths, on top of temperature scaling.

    The temperature is fitted as by `temps`. Then the log-odds that a label is right are
    modelled as those of the scaled softmax plus a linear correction in log gamma and
    log(1 - gamma), where gamma is the probability that the label survives Gaussian
    noise, at several widths. A penalty shrinks the correction towards 0, which is
    temperature scaling. Labels are never changed, and `predict_proba` divides what the
    label leaves in the proportions of the scaled softmax.

    By default no single penalty is chosen: the corrections at penalties from 1000 to
    0.1, and no correction, are averaged by their leave-one-out log loss plus the
    standard error of their gain over temperature scaling (more than one standard error
    if mistakes are few). If "no correction" has more than half of the weight, the
    confidence is that of temperature scaling.

    Parameters
    ----------
    widths : sequence of float
        Scales of the Gaussian noise as multiples of the fitted temperature.
    penalty : "auto" or float
        "auto" averages over penalties as above. A number is used as the only penalty:
        half of it times the sum of squared coefficients of standardised features is
        added to the sum of the examples' log losses. inf is temperature scaling.
        `sample_weight` counts examples here.
    max_iter : int
        Maximum number of Newton steps at each penalty.

    Attributes
    ----------
    temperature_ : as of temperature scaling; 1 if the validation set has no mistake to
        learn from
    widths_ : (W,), the scales of the noise in logits: `widths` times the temperature
    intercept_, coef_ : of the correction; `coef_` (1 + 2 W,) is of the scaled softmax's
        log-odds, then of log gamma and log(1 - gamma) at each width
    range_ : (2,), the smallest and largest correction on the validation set; others are
        clipped
    familiar_ : Novelty, the distribution of the features on the validation set: for
        features farther out, the correction fades towards the scaled softmax
    penalties_, shares_, loo_log_loss_ : (K,), the penalties tried, inf first; their
        weights in the average; and their mean leave-one-out log loss (nats) of the
        confidence
    penalty_ : the penalty with the largest weight
    n_iter_, converged_, message_ : how the fits ended, and what was chosen, in words

    Examples
    --------
    >>> from hokical_paper.profile import StabilityProfile
    >>> from hokical.demo import demo_logits
    >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
    >>> cal = StabilityProfile().fit(val_logits, val_labels)
    >>> confidence = cal.predict_confidence(test_logits)
    >>> right = cal.predict(test_logits) == test_labels
    >>> bool(abs(confidence.mean() - right.mean()) < 0.01)
    True
    """

    method = MethodInfo(
        ProfileRule,
        "Stability profile (temperature scaling and label stability at several widths)",
        "hokical: label stability at several widths over temperature scaling",
        "temperature scaling, then three stability passes and a regression on 7 "
        "features",
        accepts_top_k=True,
    )

    def __init__(
        self,
        *,
        widths: Sequence[float] = WIDTHS,
        penalty: float | Literal["auto"] = "auto",
        max_iter: int = 200,
    ) -> None:
        self.widths = widths
        self.penalty = penalty
        self.max_iter = max_iter

    def _check_parameters(self) -> None:
        check_widths(self.widths)
        check_penalty(self.penalty)
        check_count("max_iter", self.max_iter)

    def _fit(self, examples: Examples) -> Fit:
        """Fit the temperature, then the link."""
        scaling = best_temperature(examples.learnable, tol=_TOLERANCE)
        # Without a mistake the temperature is not determined.
        temperature = (
            scaling.x if (examples.counting & ~examples.correct).any() else 1.0
        )
        widths = np.minimum(
            temperature * check_widths(self.widths), LARGEST_TEMPERATURE
        )
        on_device = examples.logits.from_host(widths)
        correct = examples.correct
        counts = examples.counts
        features = per_row(
            lambda block: profile_features(block, temperature, on_device),
            examples.logits,
        )
        link = fit_link(
            features,
            features[:, 0],
            correct,
            counts,
            penalties=PENALTIES if self.penalty == "auto" else (float(self.penalty),),
            max_iter=self.max_iter,
        )
        counted = features[counts > 0.0]
        corrections = np.sum(counted * link.coef, axis=1) + link.intercept
        rule = ProfileRule(
            temperature=temperature,
            widths=widths,
            intercept=link.intercept,
            coef=link.coef,
            range=np.array([corrections.min(), corrections.max()]),
            familiar=Novelty.of(features, counts),
        )
        change = np.abs(
            rule.confidence_from(counted, np) - expit(counted[:, 0], np)
        ).mean()
        message = _message(temperature, link, scaling, float(change))
        converged = bool(link.converged and scaling.converged)
        report = {
            "penalties": link.penalties,
            "shares": link.shares,
            "loo_log_loss": link.loo_losses,
            "penalty": float(link.penalties[np.argmax(link.shares)]),
        }
        n_iter = link.n_iter + scaling.n_iter
        return Fit(
            rule,
            report | {"n_iter": n_iter, "converged": converged, "message": message},
        )


def check_widths(widths: Any) -> FloatArray:
    """Multiples of the temperature, (W,): at least one, finite, above 0, and
    distinct.
    """
    try:
        array = np.array([float(width) for width in widths])
    except (TypeError, ValueError):
        array = np.array([])
    if array.size == 0 or not ((array > 0.0) & (array < np.inf)).all():
        raise ValueError(
            "`widths` must be one or more finite numbers above 0, multiples of the "
            f"temperature; got {widths!r}. The default is {WIDTHS}."
        )
    if np.unique(array).size < array.size:
        raise ValueError(f"`widths` must differ from each other; got {widths!r}.")
    return array


def check_penalty(penalty: Any) -> None:
    """ "auto", or a number above 0."""
    if isinstance(penalty, str) and penalty == "auto":
        return
    number = isinstance(penalty, (int, float, np.number)) and not isinstance(
        penalty, bool
    )
    if not number or not penalty > 0.0:
        raise ValueError(
            f'`penalty` must be "auto" or a number above 0 (inf for temperature scaling); got '
            f"{penalty!r}."
        )


def _message(
    temperature: float, link: LinkFit, scaling: Solution[float], change: float
) -> str:
    """What was chosen, and any problems."""
    parts = [f"temperature {temperature:.4g}"]
    corrections = np.where(link.penalties < np.inf, link.shares, 0.0)
    if corrections.any():
        parts.append(
            f"a correction that moves the confidence by {change:.4f} on average, most "
            f"of it with penalty {link.penalties[np.argmax(corrections)]:.2g}"
        )
    else:
        parts.append("no correction: temperature scaling alone")
    if not scaling.converged:
        parts.append(
            "no best temperature was found: use more validation examples, some of "
            "which are wrong"
        )
    if not link.converged:
        parts.append(
            "a regression did not converge: raise `max_iter`, or use a larger `penalty`"
        )
    return "; ".join(parts)
