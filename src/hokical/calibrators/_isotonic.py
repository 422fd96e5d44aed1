"""Isotonic regression on all classes pooled, and one class against all (Zhang et al., 2020)."""

import numpy as np

from hokical._core.types import FloatArray, IntArray
from hokical._fitting.examples import Examples
from hokical._fitting.isotonic import fit_classwise, fit_pooled_isotonic
from hokical._fitting.temperature import best_temperature
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._method import Fit, MethodInfo
from hokical.calibrators._scaling import MIX_N_MATCH
from hokical.rules._isotonic import ClasswiseIsotonicRule, PooledIsotonicRule


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
