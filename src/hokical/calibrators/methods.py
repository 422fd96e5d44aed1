"""The methods: scaled logits, functions for two classes, and isotonic regression.

Scaled logits are the softmax; temperature, vector and structured scaling (Guo et al.,
2017, for the first two); ensembles (Zhang et al., 2020); and a correction by row.

Platt scaling, beta calibration and Venn-Abers prediction take 1-D scores of class 1
(log-odds, or any score that rises with its probability), or logits (n, 2).
Probabilities go through `hokical.from_probabilities`, 1-D or two columns. Isotonic
regression is on all classes pooled, or of one class against all (Zhang et al., 2020).

The default, which chooses among them, is in `automatic`.
"""

from typing import Literal

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import check_choice, check_positive
from hokical._core.logits import per_row
from hokical._fitting import binary, default, isotonic, searches, structured
from hokical._fitting.examples import PER_NUMBER, Examples, ExamplesNeeded
from hokical._fitting.partial_pooling import (
    binary_losses,
)
from hokical._fitting.searches import StopReason, best_temperature
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import Fit, MethodInfo
from hokical.rules import binary_isotonic, scaling
from hokical.rules.base import UncalibratedRule

GUO = (
    "Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML "
    "2017, arXiv:1706.04599"
)
MIX_N_MATCH = (
    "Zhang, Kailkhura, Han: Mix-n-Match: Ensemble and Compositional Methods for "
    "Uncertainty Calibration in Deep Learning, ICML 2020, arXiv:2003.07329"
)


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
        examples_needed=None,
        accepts_top_k=True,
    )

    def _fit(self, examples: Examples) -> Fit:
        return Fit(UncalibratedRule())


class TemperatureScaling(Calibrator):
    """Divide all logits by one temperature, chosen by maximum likelihood.

    The most likely class is preserved. The fit sums in float64, whatever the precision
    of the logits, and uses Newton's method with safeguards on the log of the
    temperature.

    Temperatures lie between 1e-5 and 1e5; the upper bound grows with logits whose
    differences are huge. A validation set on which every label is right has its optimum
    at temperature 0, one on which labels are worse than chance at infinity; the fit
    then ends at a bound, with `converged_` False and a warning.

    After `fit`: `temperature_`, above 1 for an overconfident classifier; `log_loss_`,
    its mean log loss (nats) on the validation set; `n_iter_`, `converged_` and
    `message_`, how the fit ended.

    >>> import numpy as np
    >>> from hokical.calibrators import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(5000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = TemperatureScaling().fit(3 * logits, labels)
    >>> round(cal.temperature_, 1)
    3.0
    """

    method = MethodInfo(
        scaling.TemperatureRule,
        "Temperature scaling",
        GUO,
        "about four softmax passes",
        examples_needed=ExamplesNeeded(mistakes=PER_NUMBER),
        accepts_top_k=True,
    )

    temperature_: float

    def _fit(self, examples: Examples) -> Fit:
        solution = best_temperature(examples.learnable)
        return Fit(
            scaling.TemperatureRule(solution.x),
            {"log_loss": solution.value, **solution.report()},
        )


class VectorScaling(Calibrator):
    """Scale and shift every class's log-probability: softmax(scale_k log p_k + bias_k).

    Chosen by maximum likelihood with a tiny ridge. The most likely class can change.

    Guo et al. scale raw logits, so that a constant added to all logits of an example
    changes the probabilities, although the softmax is the same. Here p is the softmax
    of the logits, so constants do not matter. The objective is

        mean log loss + ridge/2 * sum_k (min(T, u)^2 (scale_k - 1/T)^2 + bias_k^2).

    T is the temperature of least log loss, and u the spread of the logits: the weighted
    median over examples of the mean distance of the possible classes' logits below the
    top one (without examples where all are equal), and at least 1e-6. A few outliers
    can make T huge, but not u. T is searched between 1e-5 u and 1e30 u; where the log
    loss decreases down to the first, T is 1, kept within a factor of 1000 of u.

    `ridge`, above 0, shrinks towards temperature scaling. The default is negligible
    wherever the data determine the parameters; without it the bias of a class that
    never occurs in the validation set would go to minus infinity.

    After `fit`: `scale_` and `bias_` (n_classes,), the biases summing to 0;
    `log_loss_`, the mean log loss (nats) on the validation set without the penalty;
    `n_iter_`, `converged_`, `message_`.

    If a class is perfectly separated from all others, as on a validation set without
    mistakes, the likelihood has no finite optimum, and only the ridge limits the scale:
    a class's part of the penalty is at least its loss, its own mean log loss against
    all other classes. Then `converged_` is False, with a warning. A class that does not
    occur in the validation set is no reason for it: it gets a probability near 0, and
    the others are fitted as if it did not exist. Memory: a few (n, classes) float64
    arrays.

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
        scaling.VectorRule,
        "Vector scaling",
        GUO,
        "about ten Newton steps of n * classes^2 operations each",
        examples_needed=ExamplesNeeded(per_class=PER_NUMBER),
        rows_per_class=25,  # 4 million logits of 1000 classes have 4
        changes_labels=True,
    )

    scale_: FloatArray
    bias_: FloatArray

    def __init__(self, *, ridge: float = 1e-8) -> None:
        self.ridge = ridge

    def _check_parameters(self) -> None:
        check_positive("ridge", self.ridge, "Use 1e-8 for a negligible penalty.")

    def _fit(self, examples: Examples) -> Fit:
        rule, separated, solution = structured.fit_vector(
            examples.learnable, float(self.ridge)
        )
        problem = ""
        if separated.size and solution.reason is not StopReason.MAX_ITER:
            shown = ", ".join(map(str, separated[:5])) + ", ..." * (separated.size > 5)
            problem = (
                f"the validation examples of class {shown} are perfectly separated from "
                "all others, so the log loss keeps falling as its scale grows, and "
                "only the ridge keeps it finite. Use more validation examples, "
                "including wrong ones, or raise `ridge`, for example to 0.01."
            )
        return Fit(
            rule, {"log_loss": solution.point.log_loss, **solution.report(problem)}
        )


class StructuredScaling(Calibrator):
    """Temperature scaling, corrected class by class as far as the examples support it.

    Fitted for the probabilities of all classes. The most likely class can change. In
    steps:

    1. Probabilities p become p + floor, so that a probability of (almost) 0 costs no more than
       the data justify. The floor is chosen together with the temperature T by log loss.
    2. With z the log-probabilities at T, class k gets the score z_k + w . [log(1 - p_k), p_k]
       + v_k z_k + b_k + sum_j M_kj z_j.
    3. w, v, b and M minimise the sum of the log losses plus strength / 2 times
       |w|^2 + K (|v|^2 + |b|^2) + K (K - 1) |M|^2 for K classes: few examples leave temperature
       scaling as it is. With two classes this contains a shrunk beta calibration.
    4. The answer is mixed with the uniform distribution over the possible classes, whose share is
       1 / (n + 1) for n examples, so no possible class gets probability 0.

    Berta et al. introduced the structured penalty for matrix and vector scaling. The
    floor, the shape terms w, the uniform share and the fixed strength are ours.

    Parameters
    ----------
    cross : "auto", True or False
        Whether there are cross terms M. "auto": up to 100 classes.
    strength : float, above 0
        Strength of the penalty, in examples: more shrinks more towards temperature
        scaling.

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
    Only ratios of `sample_weight` matter. The penalty and the uniform share depend on
    the number of examples, which is the effective one by Kish, (sum of weights)^2 / sum
    of squared weights: that of the rows if all weigh the same, and less otherwise. So a
    weight of 2 is nearly, not quite, a repeated row.

    A class without examples keeps a small probability, which the penalty on its bias
    decides. If every label has the top logit, no temperature is best, and T is 1
    (within a factor of 1000 of the typical difference of logits); if all examples are
    of one class, nothing tells how likely the others are. Both are fitted anyway, with
    `converged_` False and a warning.

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
        scaling.StructuredRule,
        "Structured scaling",
        "structured penalties: Berta, Holzmüller, Jordan, Bach: Structured Matrix "
        "Scaling for Multi-Class Calibration, 2025, arXiv:2511.03685; the floor, the "
        "shape terms and the uniform share are particular to this library",
        "about forty softmax passes for floor and temperature, then a few dozen "
        "products with M",
        fits_floor=False,  # the rule has one
        examples_needed=ExamplesNeeded(per_class=PER_NUMBER),
        changes_labels=True,
    )

    floor_: float
    temperature_: float
    shape_: FloatArray
    scale_: FloatArray
    bias_: FloatArray
    cross_: FloatArray
    even_: float

    def __init__(
        self,
        *,
        cross: Literal["auto"] | bool = "auto",
        strength: float = structured.STRENGTH,
    ) -> None:
        self.cross = cross
        self.strength = strength

    def _check_parameters(self) -> None:
        remedy = f"'auto' has cross terms up to {structured.MAX_CROSS_CLASSES} classes."
        check_choice("cross", self.cross, Literal["auto", True, False], remedy)
        check_positive(
            "strength", self.strength, f"The default is {structured.STRENGTH}."
        )

    def _fit(self, examples: Examples) -> Fit:
        few = examples.n_classes <= structured.MAX_CROSS_CLASSES
        cross = few if self.cross == "auto" else bool(self.cross)
        strength = float(self.strength)
        start = searches.choose_base(examples.learnable)
        rule, loss, solution = structured.fit_structured(
            start, cross_terms=cross, strength=strength
        )
        labels = start.examples.labels
        temperature = start.temperature
        problem = ""
        if solution.converged and labels.min() == labels.max():
            problem = (
                f"every validation example is of class {labels[0]}, so nothing tells "
                "how likely the others are, and only the penalty kept them. Use "
                "examples of every class."
            )
        elif solution.converged and not temperature.converged:
            problem = (
                "no temperature is best, because the log loss falls all the way to "
                f"temperature 0 or does not depend on it; {temperature.x:g} was taken. "
                "Use more validation examples, some of which are wrong."
            )
        return Fit(rule, {"log_loss": loss, **solution.report(problem)})


class EnsembleTemperatureScaling(Calibrator):
    """Average the softmax at a temperature, the softmax as it is, and the uniform
    distribution.

    p = w_1 softmax(z/T) + w_2 softmax(z) + w_3 uniform, with non-negative weights that
    sum to 1. The order of the classes is preserved. The uniform part is over the
    possible classes (logit above -inf). As in Zhang et al., T is fitted first, as if it
    stood alone, and then the weights.

    The loss is the squared distance to the one-hot truth. It can have several minima in
    T; the one next to the temperature of least log loss is used.

    After `fit`: `temperature_`; `weights_` (3,), in the order above; `loss_`, the mean
    on the validation set; `n_iter_`, `converged_` and `message_`, how the search for T
    ended.

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
        scaling.EnsembleRule,
        "Ensemble temperature scaling",
        MIX_N_MATCH,
        "about twelve softmax passes, or forty where the temperature gets no weight",
        accepts_top_k=True,
    )

    temperature_: float
    weights_: FloatArray
    loss_: float

    def _fit(self, examples: Examples) -> Fit:
        solution, weights = searches.fit_ensemble(examples.learnable)
        return Fit(
            scaling.EnsembleRule(solution.x, weights),
            {"loss": solution.value, **solution.report()},
        )


class AdaptiveTemperatureScaling(Calibrator):
    """Temperature scaling with a temperature and a shift of the label for each row.

    The temperature is fitted as by `temps`. Then a correction of each row is fitted:
    the logits are divided by a temperature of the row's own, and a number is added to
    the label's. The log of the one and the other are linear in a few features of the
    row: the log-odds that its label survives Gumbel noise of four widths (label
    stability), the entropy of its softmax, and the mean and the standard deviation of
    its margins. So the number of coefficients does not depend on the number of classes.
    They minimise the log loss of all classes with a ridge; three strengths of the ridge and
    no correction at all are averaged by their leave-one-out log loss. Labels are kept.

    After `fit`: `temperature_`; `correction_`, or None if no correction is clearly
    better, which is temperature scaling; `log_loss_`, `n_iter_`, `converged_` and
    `message_` of the temperature.

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
        scaling.AdaptiveRule,
        "Adaptive temperature scaling (a temperature and a shift of the label for each "
        "row)",
        "hokical: temperature scaling corrected by label stabilities under Gumbel "
        "noise",
        "temperature scaling, then some fifteen passes of the same cost",
        accepts_top_k=True,
        simpler_rule=scaling.TemperatureRule,
    )

    temperature_: float
    correction_: scaling.RowCorrection | None

    def _fit(self, examples: Examples) -> Fit:
        examples = examples.learnable
        solution = best_temperature(examples)
        report = {"log_loss": solution.value, **solution.report()}
        # Without a mistake the temperature is not determined, and there is nothing to
        # correct.
        correction = (
            default.fit_row_correction(examples, solution.x)[0]
            if solution.converged
            else None
        )
        if correction is not None:
            return Fit(scaling.AdaptiveRule(solution.x, correction), report)
        return Fit(scaling.TemperatureRule(solution.x), report | {"correction": None})


class _Logistic(Calibrator):
    """Base of the methods that fit a logistic function of features of the score."""

    def _fit(self, examples: Examples) -> Fit:
        """The rule whose numbers are the coefficients of the features and the
        intercept.
        """
        usable = binary.with_both_classes(examples)
        features = self._features(
            per_row(binary_isotonic.binary_log_odds, usable.logits)
        )
        coef, solution = binary.fit_logistic(usable, features)
        eta = features @ coef[:-1] + coef[-1]
        log_loss = float(usable.share @ binary_losses(eta, usable.labels == 1))
        return Fit(
            self.method.rule(*coef.tolist()),
            {"log_loss": log_loss, **solution.report()},
        )

    def _features(self, scores: FloatArray) -> FloatArray:
        """The features (n, k) of scores (n,); of several, coefficients are not
        negative.
        """
        return scores[:, None]


class PlattScaling(_Logistic):
    """A logistic function of the score: P(class 1) = 1 / (1 + exp(-(slope score +
    intercept))).

    For two classes. Fitted by least log loss on Platt's targets, (n1 + 1) / (n1 + 2)
    for the n1 examples of class 1 and 1 / (n0 + 2) for the n0 of class 0. So a best fit
    always exists, even where the classes are separated or only one occurs. After `fit`:
    `slope_`, which can be negative, and `intercept_`; `log_loss_` (nats), `n_iter_`,
    `converged_` and `message_`.

    >>> import numpy as np
    >>> from hokical.calibrators import PlattScaling
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(size=4000)
    >>> labels = (rng.logistic(size=4000) < odds).astype(int)
    >>> cal = PlattScaling().fit(3 * odds + 1, labels)
    >>> round(cal.slope_, 1), cal.predict_proba([1.0, 4.0]).shape
    (0.3, (2, 2))
    """

    method = MethodInfo(
        binary_isotonic.PlattRule,
        "Platt scaling",
        "Platt: Probabilistic Outputs for Support Vector Machines and Comparisons to "
        "Regularized Likelihood Methods, Advances in Large Margin Classifiers, 1999; "
        "see also Lin, Lin, Weng, Machine Learning 68, 2007, "
        "doi:10.1007/s10994-007-5018-6",
        "a few Newton steps of two numbers",
        examples_needed=ExamplesNeeded(of_rarer_class=2 * PER_NUMBER),
        changes_labels=True,
        binary_only=True,
    )

    slope_: float
    intercept_: float


class BetaCalibration(_Logistic):
    """Log-odds rise log p - fall log(1 - p) + intercept of the probability p of class
    1.

    For two classes. `rise_` and `fall_` are not negative, so that the calibrated
    probability increases with p: the best fit under this condition, by least log loss
    on Platt's targets. With both at 1 and `intercept_` 0 nothing changes. Other
    attributes are those of `PlattScaling`.

    >>> import numpy as np
    >>> from hokical import from_probabilities
    >>> from hokical.calibrators import BetaCalibration
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(4000)
    >>> labels = (rng.random(4000) < p**2).astype(int)
    >>> cal = BetaCalibration().fit(from_probabilities(p), labels)
    >>> cal.predict_proba(from_probabilities([0.5]))[0, 1].round(2)
    np.float64(0.25)
    """

    method = MethodInfo(
        binary_isotonic.BetaRule,
        "Beta calibration",
        "Kull, Silva Filho, Flach: Beyond sigmoids: How to obtain well-calibrated "
        "probabilities from binary classifiers with beta calibration, EJS 11, 2017, "
        "doi:10.1214/17-EJS1338SI",
        "a few Newton steps of three numbers",
        examples_needed=ExamplesNeeded(of_rarer_class=3 * PER_NUMBER),
        changes_labels=True,
        binary_only=True,
    )

    rise_: float
    fall_: float
    intercept_: float

    def _features(self, scores: FloatArray) -> FloatArray:
        return np.column_stack([-np.logaddexp(0.0, -scores), np.logaddexp(0.0, scores)])


class VennAbers(Calibrator):
    """Isotonic regression with the new example added twice: once as class 0, once as
    class 1.

    For two classes. One of the two probabilities of class 1, (p0, p1), is perfectly
    calibrated if examples are exchangeable, whatever the scores. `predict_proba` merges
    them to p1 / (1 - p0 + p1), and `predict_interval` gives both ends for the predicted
    label: (p0, p1) for class 1 and (1 - p1, 1 - p0) for class 0. No class gets
    probability 0. After `fit`: `knots_` (k,), the scores at which a probability
    changes; `lower_` and `upper_` (k + 1,), p0 and p1.

    >>> import numpy as np
    >>> from hokical.calibrators import VennAbers
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=1000)
    >>> labels = (rng.logistic(size=1000) < 2 * scores).astype(int)
    >>> cal = VennAbers().fit(scores, labels)
    >>> low, high = cal.predict_interval([1.5])[0]
    >>> bool(low <= cal.predict_confidence([1.5])[0] <= high), bool(high - low < 0.1)
    (True, True)
    """

    method = MethodInfo(
        binary_isotonic.VennAbersRule,
        "Venn-Abers prediction",
        "Vovk, Petej, Fedorova: Large-scale probabilistic predictors with and without "
        "guarantees of validity, NeurIPS 2015, arXiv:1511.00213",
        "one sort of the scores",
        examples_needed=ExamplesNeeded(of_rarer_class=PER_NUMBER),
        changes_labels=True,
        binary_only=True,
    )

    knots_: FloatArray
    lower_: FloatArray
    upper_: FloatArray

    def _fit(self, examples: Examples) -> Fit:
        usable = binary.with_both_classes(examples)
        return Fit(binary_isotonic.VennAbersRule(*binary.fit_venn_abers(usable)))


class IsotonicMulticlass(Calibrator):
    """One increasing function for the probabilities of all classes, fitted to all of
    them pooled.

    Every probability of every row, n x classes in all, is paired with 1 if its class is
    the true one and 0 otherwise; isotonic regression on these pairs is applied to each
    entry of a row, and the row is normalised. The regression is exact (no subsampling,
    no grid). Log-probabilities are compared as float32, so values within a relative
    difference of 6e-8 count as equal. Between two steps the function is linear in the
    log-probability; outside the validation data it is constant. It is never 0 or 1: m
    entries that are never of their class get 1 / (m + 2), and m that always are get (m
    + 1) / (m + 2). A class that is masked in a row (-inf) is left out of the fit and
    gets 0.

    The order of the classes is preserved. Classes can share a step of the function; the
    authors separate them by 1e-9 times the probability, which is lost in float32 and
    lets labels change. Here that term is added too, and in addition every class whose
    logit is below the top one is kept at least one part in a million below it. So the
    most likely class is the classifier's label, in float32 too.

    After `fit`: `knots_` and `values_` (k,), increasing log-probabilities and the
    function there.

    >>> import numpy as np
    >>> from hokical.calibrators import IsotonicMulticlass
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = IsotonicMulticlass().fit(3 * logits[:2000], labels[:2000])
    >>> right = cal.predict(3 * logits[2000:]) == labels[2000:]
    >>> bool(
    ...     abs(cal.predict_confidence(3 * logits[2000:]).mean() - right.mean()) < 0.03
    ... )
    True
    """

    method = MethodInfo(
        binary_isotonic.PooledIsotonicRule,
        "Isotonic regression, all classes pooled",
        MIX_N_MATCH,
        "two softmax passes and one sort of all probabilities",
    )

    knots_: FloatArray
    values_: FloatArray

    def _fit(self, examples: Examples) -> Fit:
        examples.warn_about_masked_truth()
        knots, values = isotonic.fit_pooled_isotonic(examples.without_weightless())
        return Fit(binary_isotonic.PooledIsotonicRule(knots, values, normalize=True))


class IsotonicOneVsAllTS(Calibrator):
    """An increasing function per class, fitted to its temperature-scaled probabilities.

    For class c, isotonic regression of "the true class is c" on the probability of c;
    rows are then normalised, which the authors leave out. **The most likely class can
    change**, and with it the accuracy: `predict` gives the new one. The regressions are
    those of `IsotonicMulticlass`.

    Fitting classes separately has two consequences. A class that is absent from the
    validation set has a function that is lowest everywhere; `absent_classes_` lists
    them, and more validation examples help. And all functions of a row can be lowest;
    its classes are then nearly equal, in the order of their probabilities (1e-9 of
    which is added, as in the authors' code).

    No function is 0 or 1: of n examples, one more could be of any class, so the lowest
    value is 1 / (n + 2) / classes; and m entries that are all of the class get (m + 1)
    / (m + 2).

    After `fit`: `temperature_`; `knots_` and `values_`, the functions of all classes,
    concatenated, of which class c has the knots `offsets_[c]` to `offsets_[c + 1]`; and
    of the temperature `n_iter_`, `converged_` and `message_`.

    >>> import numpy as np
    >>> from hokical.calibrators import IsotonicOneVsAllTS
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = IsotonicOneVsAllTS().fit(3 * logits[:2000], labels[:2000])
    >>> right = cal.predict(3 * logits[2000:]) == labels[2000:]
    >>> bool(
    ...     abs(cal.predict_confidence(3 * logits[2000:]).mean() - right.mean()) < 0.03
    ... )
    True
    """

    method = MethodInfo(
        binary_isotonic.ClasswiseIsotonicRule,
        "Temperature scaling, then isotonic regression per class",
        MIX_N_MATCH,
        "temperature scaling, then one sort per class of its column",
        examples_needed=ExamplesNeeded(per_class=PER_NUMBER),
        changes_labels=True,
    )

    temperature_: float
    knots_: FloatArray
    values_: FloatArray
    offsets_: IntArray
    absent_classes_: IntArray

    def _fit(self, examples: Examples) -> Fit:
        weighted = examples.without_weightless()
        solution = best_temperature(weighted.learnable)
        knots, values = zip(*isotonic.fit_classwise(weighted, solution.x), strict=True)
        offsets = np.cumsum([0, *map(len, knots)], dtype=np.int64)
        numbers = [np.concatenate(knots), np.concatenate(values), offsets]
        rule = binary_isotonic.ClasswiseIsotonicRule(solution.x, *numbers)
        absent = np.flatnonzero(
            np.bincount(weighted.labels, minlength=weighted.n_classes) == 0
        )
        return Fit(rule, {"absent_classes": absent, **solution.report()})
