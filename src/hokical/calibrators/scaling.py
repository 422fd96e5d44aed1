"""Scaled logits: the softmax; temperature, vector and structured scaling; ensembles; by row.

Guo et al. (2017) for temperature and vector scaling, Zhang et al. (2020) for the ensemble.
"""

from typing import Literal

import numpy as np

from hokical._core.arrays import FloatArray
from hokical._core.checks import check_positive
from hokical._fitting.default import fit_row_correction
from hokical._fitting.examples import Examples
from hokical._fitting.newton import StopReason
from hokical._fitting.structured import (
    MAX_CROSS_CLASSES,
    STRENGTH,
    StructuredFit,
    VectorFit,
    fit_structured,
    fit_vector,
)
from hokical._fitting.temperature import best_temperature, choose_base, fit_ensemble
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import Fit, MethodInfo
from hokical.rules.automatic import AdaptiveRule, RowCorrection
from hokical.rules.scaling import (
    EnsembleRule,
    StructuredRule,
    TemperatureRule,
    UncalibratedRule,
    VectorRule,
)

GUO = (
    "Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML 2017, "
    "arXiv:1706.04599"
)
MIX_N_MATCH = (
    "Zhang, Kailkhura, Han: Mix-n-Match: Ensemble and Compositional Methods for Uncertainty "
    "Calibration in Deep Learning, ICML 2020, arXiv:2003.07329"
)
#: Most Newton steps; about ten are needed. Those of structured scaling end when one is expected to
#: lower the mean log loss by no more than the tolerance.
_MAX_ITER, _TOLERANCE = 200, 1e-8


class Uncalibrated(Calibrator):
    """The classifier's own softmax. `fit` learns only the number of classes.

    >>> from hokical.calibrators import Uncalibrated
    >>> cal = Uncalibrated().fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> cal.predict_confidence([[2.0, 0.0], [1.0, 1.0]]).round(4)
    array([0.8808, 0.5   ])
    """

    method = MethodInfo(
        UncalibratedRule,
        "Uncalibrated softmax",
        "the classifier itself",
        "nothing",
        fits_floor=False,  # nothing is learned
    )

    def _fit(self, examples: Examples) -> Fit:
        return Fit(UncalibratedRule())


class TemperatureScaling(Calibrator):
    """Divide all logits by one temperature, chosen by maximum likelihood.

    The most likely class is preserved. The fit sums in float64, whatever the precision of the
    logits, and uses Newton's method with safeguards on the log of the temperature.

    Temperatures lie between 1e-5 and 1e5; the upper bound grows with logits whose differences are
    huge. A validation set on which every label is right has its optimum at temperature 0, one on
    which labels are worse than chance at infinity; the fit then ends at a bound, with `converged_`
    False and a warning.

    After `fit`: `temperature_`, above 1 for an overconfident classifier; `log_loss_`, its mean log
    loss (nats) on the validation set; `n_iter_`, `converged_` and `message_`, how the fit ended.

    >>> import numpy as np
    >>> from hokical.calibrators import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(5000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = TemperatureScaling().fit(3 * logits, labels)
    >>> round(cal.temperature_, 1)
    3.0
    """

    method = MethodInfo(TemperatureRule, "Temperature scaling", GUO, "about four softmax passes")

    temperature_: float

    def _fit(self, examples: Examples) -> Fit:
        found = best_temperature(examples.learnable)
        ending = self._convergence_report(found.n_iter, found.message)
        return Fit(TemperatureRule(found.x), {"log_loss": found.value, **ending})


class VectorScaling(Calibrator):
    """Scale and shift every class's log-probability: softmax(scale_k log p_k + bias_k).

    Chosen by maximum likelihood with a tiny ridge. The most likely class can change.

    Guo et al. scale raw logits, so that a constant added to all logits of an example changes the
    probabilities, although the softmax is the same. Here p is the softmax of the logits, so
    constants do not matter. The objective is

        mean log loss + ridge/2 * sum_k (min(T, u)^2 (scale_k - 1/T)^2 + bias_k^2).

    T is the temperature of least log loss, and u the spread of the logits: the weighted median over
    examples of the mean distance of the possible classes' logits below the top one (without
    examples where all are equal), and at least 1e-6. A few outliers can make T huge, but not u. T
    is searched between 1e-5 u and 1e30 u; where the log loss decreases down to the first, T is 1,
    kept within a factor of 1000 of u.

    `ridge`, above 0, shrinks towards temperature scaling. The default is negligible wherever the
    data determine the parameters; without it the bias of a class that never occurs in the
    validation set would go to minus infinity.

    After `fit`: `scale_` and `bias_` (n_classes,), the biases summing to 0; `log_loss_`, the mean
    log loss (nats) on the validation set without the penalty; `n_iter_`, `converged_`, `message_`.

    If a class is perfectly separated from all others, as on a validation set without mistakes, the
    likelihood has no finite optimum, and only the ridge limits the scale: a class's part of the
    penalty is at least its loss, its own mean log loss against all other classes. Then `converged_`
    is False, with a warning. A class that does not occur in the validation set is no reason for it:
    it gets a probability near 0, and the others are fitted as if it did not exist. Memory: a few
    (n, classes) float64 arrays.

    >>> import numpy as np
    >>> from hokical.calibrators import VectorScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 3))
    >>> shifted = logits + [1.0, 0.0, 0.0]
    >>> labels = np.argmax(shifted + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = VectorScaling().fit(logits, labels)
    >>> bool(abs(cal.bias_[0] - cal.bias_[1] - 1.0) < 0.2)
    True
    """

    method = MethodInfo(
        VectorRule,
        "Vector scaling",
        GUO,
        "about ten Newton steps of n * classes^2 operations each",
        rows_per_class=25,  # 4 million logits of 1000 classes have 4
    )

    scale_: FloatArray
    bias_: FloatArray

    def __init__(self, *, ridge: float = 1e-8) -> None:
        self.ridge = ridge

    def _check_parameters(self) -> None:
        check_positive("ridge", self.ridge, "Use 1e-8 for a negligible penalty.")

    def _fit(self, examples: Examples) -> Fit:
        found = fit_vector(examples.learnable, float(self.ridge), _MAX_ITER)
        ending = self._convergence_report(found.solution.n_iter, _vector_message(found))
        return Fit(VectorRule(found.scale, found.bias), {"log_loss": found.log_loss, **ending})


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
        ending = self._convergence_report(found.minimum.n_iter, _structured_message(found))
        return Fit(found.rule, {"log_loss": found.log_loss, **ending})


class EnsembleTemperatureScaling(Calibrator):
    """Average the softmax at a temperature, the softmax as it is, and the uniform distribution.

    p = w_1 softmax(z/T) + w_2 softmax(z) + w_3 uniform, with non-negative weights that sum to 1.
    The order of the classes is preserved. The uniform part is over the possible classes (logit
    above -inf). As in Zhang et al., T is fitted first, as if it stood alone, and then the weights.

    The loss is the squared distance to the one-hot truth. It can have several minima in T; the one
    next to the temperature of least log loss is used.

    After `fit`: `temperature_`; `weights_` (3,), in the order above; `loss_`, the mean on the
    validation set; `n_iter_`, `converged_` and `message_`, how the search for T ended.

    >>> import numpy as np
    >>> from hokical.calibrators import EnsembleTemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(20000, 4))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> guess = rng.random(20000) < 0.2
    >>> labels[guess] = rng.integers(4, size=guess.sum())
    >>> cal = EnsembleTemperatureScaling().fit(2 * logits, labels)
    >>> round(cal.temperature_, 1), round(float(cal.weights_[2]), 2)
    (2.8, 0.14)
    """

    method = MethodInfo(
        EnsembleRule,
        "Ensemble temperature scaling",
        MIX_N_MATCH,
        "about twelve softmax passes, or forty where the temperature gets no weight",
    )

    temperature_: float
    weights_: FloatArray
    loss_: float

    def _fit(self, examples: Examples) -> Fit:
        found, weights = fit_ensemble(examples.learnable)
        ending = self._convergence_report(found.n_iter, found.message)
        return Fit(EnsembleRule(found.x, weights), {"loss": found.value, **ending})


class AdaptiveTemperatureScaling(Calibrator):
    """Temperature scaling with a temperature and a shift of the label for each row.

    The temperature is fitted as by `temps`. Then a correction of each row is fitted: the logits
    are divided by a temperature of the row's own, and a number is added to the label's. The log of
    the one and the other are linear in seven features of the row: the log-odds that its label
    survives Gumbel noise of four widths (label stability), the entropy of its softmax, and the mean
    and the standard deviation of its margins. So 17 numbers are learned, whatever the number of
    classes. They minimise the log loss of all classes with a ridge; three strengths of the ridge
    and no correction at all are averaged by their leave-one-out log loss. Labels are kept.

    After `fit`: `temperature_`; `correction_`, or None if no correction is clearly better, which is
    temperature scaling; `log_loss_`, `n_iter_`, `converged_` and `message_` of the temperature.

    >>> import numpy as np
    >>> from hokical.calibrators import AdaptiveTemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(2000, 10))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> sharper = np.where(rng.random((2000, 1)) < 0.5, 1.0, 4.0)
    >>> cal = AdaptiveTemperatureScaling().fit(sharper * logits, labels)
    >>> cal.correction_ is not None
    True
    """

    method = MethodInfo(
        AdaptiveRule,
        "Adaptive temperature scaling (a temperature and a shift of the label for each row)",
        "hokical: temperature scaling corrected by label stabilities under Gumbel noise",
        "temperature scaling, then some fifteen passes of the same cost",
    )

    temperature_: float
    correction_: RowCorrection | None

    def _fit(self, examples: Examples) -> Fit:
        examples = examples.learnable
        found = best_temperature(examples)
        ending = self._convergence_report(found.n_iter, found.message)
        report = {"log_loss": found.value, **ending}
        # Without a mistake the temperature is not determined, and there is nothing to correct.
        correction = fit_row_correction(examples, found.x)[0] if found.converged else None
        if correction is not None:
            return Fit(AdaptiveRule(found.x, correction), report)
        return Fit(TemperatureRule(found.x), report | {"correction": None})


def _vector_message(found: VectorFit) -> str:
    """How the fit ended, with a remedy if it did not converge."""
    separated = found.separated
    if separated.size and found.solution.reason is not StopReason.MAX_ITER:
        some = ", ".join(str(k) for k in separated[:5]) + (", ..." if separated.size > 5 else "")
        return (
            f"the validation examples of class {some} are perfectly separated from all others, so "
            "the log loss keeps falling as its scale grows, and only the ridge keeps it finite. "
            "Use more validation examples, including wrong ones, or raise `ridge`, for example to "
            "0.01."
        )
    return found.solution.message


def _structured_message(found: StructuredFit) -> str:
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
