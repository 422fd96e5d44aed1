"""Methods for two classes, and isotonic regression for any number of them.

Platt scaling, beta calibration and Venn-Abers prediction take 1-D scores of class 1 (log-odds, or
any score that rises with its probability), or logits (n, 2). Probabilities go through
`hokical.from_probabilities`, 1-D or two columns.

Isotonic regression is on all classes pooled, or of one class against all (Zhang et al., 2020).
"""

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._fitting.binary_isotonic import (
    binary_scores,
    fit_classwise,
    fit_logistic,
    fit_pooled_isotonic,
    fit_venn_abers,
    with_both_classes,
)
from hokical._fitting.examples import Examples
from hokical._fitting.pooled_terms import binary_losses
from hokical._fitting.temperature import best_temperature
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.scaling import MIX_N_MATCH
from hokical.calibrators.stored import Fit, MethodInfo
from hokical.rules.binary_isotonic import (
    BetaRule,
    ClasswiseIsotonicRule,
    PlattRule,
    PooledIsotonicRule,
    VennAbersRule,
)


class _Logistic(Calibrator):
    """Base of the methods that fit a logistic function."""

    def _fit_logistic(
        self, examples: Examples, features: FloatArray, *, rising: bool = False
    ) -> Fit:
        """The rule whose numbers are the coefficients of the features (n, k) and the intercept."""
        coef, found = fit_logistic(examples, features, rising=rising)
        eta = features @ coef[:-1] + coef[-1]
        log_loss = float(examples.share @ binary_losses(eta, examples.labels == 1))
        ending = self._convergence_report(found.n_iter, found.message)
        return Fit(self.method.rule(*coef.tolist()), {"log_loss": log_loss, **ending})


class PlattScaling(_Logistic):
    """A logistic function of the score: P(class 1) = 1 / (1 + exp(-(slope score + intercept))).

    For two classes. Fitted by least log loss on Platt's targets, (n1 + 1) / (n1 + 2) for the n1
    examples of class 1 and 1 / (n0 + 2) for the n0 of class 0. So a best fit always exists, even
    where the classes are separated or only one occurs. After `fit`: `slope_`, which can be
    negative, and `intercept_`; `log_loss_` (nats), `n_iter_`, `converged_` and `message_`.

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
        PlattRule,
        "Platt scaling",
        "Platt: Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized "
        "Likelihood Methods, Advances in Large Margin Classifiers, 1999; see also Lin, Lin, Weng, "
        "Machine Learning 68, 2007, doi:10.1007/s10994-007-5018-6",
        "a few Newton steps of two numbers",
    )

    slope_: float
    intercept_: float

    def _fit(self, examples: Examples) -> Fit:
        some = with_both_classes(examples)
        return self._fit_logistic(some, binary_scores(some)[:, None])


class BetaCalibration(_Logistic):
    """Log-odds rise log p - fall log(1 - p) + intercept of the probability p of class 1.

    For two classes. `rise_` and `fall_` are not negative, so that the calibrated probability
    increases with p: the best fit under this condition, by least log loss on Platt's targets. With
    both at 1 and `intercept_` 0 nothing changes. Other attributes are those of `PlattScaling`.

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
        BetaRule,
        "Beta calibration",
        "Kull, Silva Filho, Flach: Beyond sigmoids: How to obtain well-calibrated probabilities "
        "from binary classifiers with beta calibration, EJS 11, 2017, doi:10.1214/17-EJS1338SI",
        "a few Newton steps of three numbers",
    )

    rise_: float
    fall_: float
    intercept_: float

    def _fit(self, examples: Examples) -> Fit:
        some = with_both_classes(examples)
        scores = binary_scores(some)
        features = np.column_stack([-np.logaddexp(0.0, -scores), np.logaddexp(0.0, scores)])
        return self._fit_logistic(some, features, rising=True)


class VennAbers(Calibrator):
    """Isotonic regression with the new example added twice: once as class 0, once as class 1.

    For two classes. One of the two probabilities of class 1, (p0, p1), is perfectly calibrated if
    examples are exchangeable, whatever the scores. `predict_proba` merges them to
    p1 / (1 - p0 + p1), and `predict_interval` gives both ends for the predicted label: (p0, p1) for
    class 1 and (1 - p1, 1 - p0) for class 0. No class gets probability 0. After `fit`: `knots_`
    (k,), the scores at which a probability changes; `lower_` and `upper_` (k + 1,), p0 and p1.

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
        VennAbersRule,
        "Venn-Abers prediction",
        "Vovk, Petej, Fedorova: Large-scale probabilistic predictors with and without guarantees "
        "of validity, NeurIPS 2015, arXiv:1511.00213",
        "one sort of the scores",
    )

    knots_: FloatArray
    lower_: FloatArray
    upper_: FloatArray

    def _fit(self, examples: Examples) -> Fit:
        return Fit(VennAbersRule(*fit_venn_abers(with_both_classes(examples))))


class IsotonicMulticlass(Calibrator):
    """One increasing function for the probabilities of all classes, fitted to all of them pooled.

    Every probability of every row, n x classes in all, is paired with 1 if its class is the true
    one and 0 otherwise; isotonic regression on these pairs is applied to each entry of a row, and
    the row is normalised. The regression is exact (no subsampling, no grid). Log-probabilities are
    compared as float32, so values within a relative difference of 6e-8 count as equal. Between two
    steps the function is linear in the log-probability; outside the validation data it is constant.
    It is never 0 or 1: m entries that are never of their class get 1 / (m + 2), and m that always
    are get (m + 1) / (m + 2). A class that is masked in a row (-inf) is left out of the fit and
    gets 0.

    The order of the classes is preserved. Classes can share a step of the function; the authors
    separate them by 1e-9 times the probability, which is lost in float32 and lets labels change.
    Here that term is added too, and in addition every class whose logit is below the top one is
    kept at least one part in a million below it. So the most likely class is the classifier's
    label, in float32 too.

    After `fit`: `knots_` and `values_` (k,), increasing log-probabilities and the function there.

    >>> import numpy as np
    >>> from hokical.calibrators import IsotonicMulticlass
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = IsotonicMulticlass().fit(3 * logits[:2000], labels[:2000])
    >>> right = cal.predict(3 * logits[2000:]) == labels[2000:]
    >>> bool(abs(cal.predict_confidence(3 * logits[2000:]).mean() - right.mean()) < 0.03)
    True
    """

    method = MethodInfo(
        PooledIsotonicRule,
        "Isotonic regression, all classes pooled",
        MIX_N_MATCH,
        "two softmax passes and one sort of all probabilities",
    )

    knots_: FloatArray
    values_: FloatArray

    def _fit(self, examples: Examples) -> Fit:
        examples.warn_about_masked_truth()
        curve = fit_pooled_isotonic(examples)
        return Fit(PooledIsotonicRule(curve.knots, curve.values, normalize=True))


class IsotonicOneVsAllTS(Calibrator):
    """An increasing function per class, fitted to its temperature-scaled probabilities.

    For class c, isotonic regression of "the true class is c" on the probability of c; rows are
    then normalised, which the authors leave out. **The most likely class can change**, and with it
    the accuracy: `predict` gives the new one. The regressions are those of `IsotonicMulticlass`.

    Fitting classes separately has two consequences. A class that is absent from the validation set
    has a function that is lowest everywhere; `absent_classes_` lists them, and more validation
    examples help. And all functions of a row can be lowest; its classes are then nearly equal, in
    the order of their probabilities (1e-9 of which is added, as in the authors' code).

    No function is 0 or 1: of n examples, one more could be of any class, so the lowest value is 1 /
    (n + 2) / classes; and m entries that are all of the class get (m + 1) / (m + 2).

    After `fit`: `temperature_`; `knots_` and `values_`, the functions of all classes, concatenated,
    of which class c has the knots `offsets_[c]` to `offsets_[c + 1]`; and of the temperature
    `n_iter_`, `converged_` and `message_`.

    >>> import numpy as np
    >>> from hokical.calibrators import IsotonicOneVsAllTS
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> cal = IsotonicOneVsAllTS().fit(3 * logits[:2000], labels[:2000])
    >>> right = cal.predict(3 * logits[2000:]) == labels[2000:]
    >>> bool(abs(cal.predict_confidence(3 * logits[2000:]).mean() - right.mean()) < 0.03)
    True
    """

    method = MethodInfo(
        ClasswiseIsotonicRule,
        "Temperature scaling, then isotonic regression per class",
        MIX_N_MATCH,
        "temperature scaling, then one sort per class of its column",
    )

    temperature_: float
    knots_: FloatArray
    values_: FloatArray
    offsets_: IntArray
    absent_classes_: IntArray

    def _fit(self, examples: Examples) -> Fit:
        some = examples.without_weightless()
        found = best_temperature(some.learnable)
        ending = self._convergence_report(found.n_iter, found.message)
        curves = fit_classwise(some, found.x)
        rule = ClasswiseIsotonicRule(
            temperature=found.x,
            knots=np.concatenate([curve.knots for curve in curves]),
            values=np.concatenate([curve.values for curve in curves]),
            offsets=np.cumsum([0] + [curve.knots.size for curve in curves], dtype=np.int64),
        )
        absent = np.flatnonzero(np.bincount(some.labels, minlength=some.n_classes) == 0)
        return Fit(rule, {"absent_classes": absent, **ending})
