"""Structured scaling: class scales, biases, cross terms and shape terms, shrunk by a ridge."""

from typing import Literal

import numpy as np

from hokical._core.bins import check_positive
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.floor import choose_base
from hokical._fitting.structured import MAX_CROSS_CLASSES, STRENGTH, StructuredFit, fit_structured
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._method import Fit, MethodInfo
from hokical.rules._structured import StructuredRule

#: Newton steps end when one is expected to lower the mean log loss by no more than this.
_TOLERANCE = 1e-8
_MAX_ITER = 200


class StructuredScaling(Calibrator):
    """Temperature scaling, corrected class by class as far as the examples support it.

    Fitted for the probabilities of all classes. The most likely class can change. In steps:

    1. Probabilities p become p + floor, so that a probability of (almost) 0 costs no more than
       the data justify. The floor is chosen together with the temperature T by log loss.
    2. With z the log-probabilities at T, class k gets the score z_k + w . [log(1 - p_k), p_k]
       + v_k z_k + b_k + sum_j M_kj z_j.
    3. w, v, b and M minimise the sum of the log losses plus strength / 2 times
       |w|^2 + K (|v|^2 + |b|^2) + K (K - 1) |M|^2 for K classes: few examples leave temperature
       scaling as it is. With two classes this contains a shrunk beta calibration.
    4. The answer is mixed with the uniform distribution over the possible classes, whose share is
       1 / (n + 1) for n examples, so no possible class gets probability 0.

    Berta et al. introduced the structured penalty for matrix and vector scaling. The floor, the
    shape terms w, the uniform share and the fixed strength are ours.

    Parameters
    ----------
    cross : "auto", True or False
        Whether there are cross terms M. "auto": up to 100 classes.
    strength : float, above 0
        Strength of the penalty, in examples: more shrinks more towards temperature scaling.

    Attributes
    ----------
    floor_, temperature_ : what is added to probabilities, and T
    shape_ : (2,), w
    scale_ : (n_classes,), 1 + v
    bias_ : (n_classes,), b
    cross_ : (n_classes, n_classes), M; (0, 0) without cross terms
    even_ : share of the uniform distribution
    log_loss_ : mean log loss (nats) on the validation set, without the penalty
    n_iter_, converged_ : how the fit ended
    message_ : the same in words

    Notes
    -----
    Only ratios of `sample_weight` matter. The penalty and the uniform share depend on the number of
    examples, which is the effective one by Kish, (sum of weights)^2 / sum of squared weights: that
    of the rows if all weigh the same, and less otherwise. So a weight of 2 is nearly, not quite, a
    repeated row.

    A class without examples keeps a small probability, which the penalty on its bias decides. If
    every label has the top logit, no temperature is best, and T is 1 (within a factor of 1000 of
    the typical difference of logits); if all examples are of one class, nothing tells how likely
    the others are. Both are fitted anyway, with `converged_` False and a warning.

    The fit holds about eight (n, classes) float64 arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators import StructuredScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 3))
    >>> shifted = logits + [1.0, 0.0, 0.0]
    >>> labels = np.argmax(shifted + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = StructuredScaling().fit(logits, labels)
    >>> gap = cal.predict_proba(logits).mean(axis=0) - np.bincount(labels) / 5000
    >>> bool(abs(gap).max() < 0.01)
    True
    """

    method = MethodInfo(
        StructuredRule,
        "Structured scaling",
        "structured penalties: Berta, Holzmüller, Jordan, Bach: Structured Matrix Scaling for "
        "Multi-Class Calibration, 2025, arXiv:2511.03685; the floor, the shape terms and the "
        "uniform share are particular to this library",
        "about forty softmax passes for floor and temperature, then a few dozen products with M",
        fits_floor=False,  # the rule has one
    )

    floor_: float
    temperature_: float
    shape_: FloatArray
    scale_: FloatArray
    bias_: FloatArray
    cross_: FloatArray
    even_: float

    def __init__(
        self, *, cross: Literal["auto"] | bool = "auto", strength: float = STRENGTH
    ) -> None:
        self.cross = cross
        self.strength = strength

    def _check_parameters(self) -> None:
        if not (isinstance(self.cross, (bool, np.bool_)) or self.cross == "auto"):
            raise ValueError(
                f"`cross` must be 'auto', True or False; got {self.cross!r}. Use 'auto' for cross "
                f"terms up to {MAX_CROSS_CLASSES} classes."
            )
        check_positive("strength", self.strength, f"The default is {STRENGTH}.")

    def _fit(self, examples: Examples) -> Fit:
        few = examples.n_classes <= MAX_CROSS_CLASSES
        found = fit_structured(
            choose_base(examples.learnable),
            cross_terms=few if self.cross == "auto" else bool(self.cross),
            strength=float(self.strength),
            tol=_TOLERANCE,
            max_iter=_MAX_ITER,
        )
        ending = self._convergence_report(found.minimum.n_iter, _message(found))
        return Fit(found.rule, {"log_loss": found.log_loss, **ending})


def _message(found: StructuredFit) -> str:
    """How the fit ended, and what to do if it did not end well."""
    examples, base = found.base.examples, found.base.temperature
    if not found.minimum.converged:
        return f"no answer in {found.minimum.n_iter} iterations. Check the logits for outliers."
    if examples.labels.min() == examples.labels.max():
        return (
            f"every validation example is of class {examples.labels[0]}, so nothing tells how "
            "likely the others are, and only the penalty kept them. Use examples of every class."
        )
    if not base.converged:
        return (
            "no temperature is best, because the log loss falls all the way to temperature 0 or "
            f"does not depend on it; {base.x:g} was taken. Use more validation examples, "
            "some of which are wrong."
        )
    return "converged"
