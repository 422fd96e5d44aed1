"""Temperature scaling, then isotonic regression one class against all (Zhang et al., 2020)."""

import numpy as np

from hokical.calibrators.base import BaseCalibrator, Fit
from hokical.core.bins import check_count
from hokical.fitting.isotonic import fit_classwise
from hokical.fitting.likelihood import count_block
from hokical.fitting.partitions import Partition
from hokical.fitting.temperature import BOUNDS, MAX_ITER, best_temperature, check_bounds
from hokical.rules.isotonic import ClasswiseIsotonicRule


class IsotonicOneVsAllTS(BaseCalibrator):
    """An increasing function per class, fitted to its temperature-scaled probabilities.

    For class c, isotonic regression of "the true class is c" on the probability of c; rows are
    then normalised, which the authors leave out. **The most likely class can change**, and with it
    the accuracy: `predict` gives the new one. The regressions are exact, with
    log-probabilities compared as float32, and linear in the log-probability between two steps.

    Fitting classes separately has two consequences. A class that is absent from the validation set
    has a function that is lowest everywhere; `absent_classes_` lists them, and more validation
    examples help. And all functions of a row can be lowest; its classes are then nearly equal, in
    the order of their probabilities (1e-9 of which is added, as in the authors' code).

    No function is 0 or 1: of n examples, one more could be of any class, so the lowest value is
    1 / (n + 2) / classes; and m entries that are all of the class say (m + 1) / (m + 2). A class
    that is masked in a row (-inf) is left out of the fit and gets 0.

    `bounds` and `max_iter` are those of `TemperatureScaling`. After `fit`: `temperature_`;
    `knots_` and `values_`, the functions of all classes, concatenated, of which class c has the
    knots `offsets_[c]` to `offsets_[c + 1]`; and of the temperature `n_iter_`, `converged_` and
    `message_`.

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

    rule_kind = ClasswiseIsotonicRule
    title = "Temperature scaling, then isotonic regression per class"
    reference = (
        "Zhang, Kailkhura, Han: Mix-n-Match: Ensemble and Compositional Methods for Uncertainty "
        "Calibration in Deep Learning, ICML 2020, arXiv:2003.07329"
    )
    cost = "temperature scaling, then one sort per class of its column"

    def __init__(self, *, bounds: tuple[float, float] = BOUNDS, max_iter: int = MAX_ITER) -> None:
        self.bounds = bounds
        self.max_iter = max_iter

    def _check_parameters(self) -> None:
        check_bounds(self.bounds)
        check_count(self.max_iter, name="max_iter")

    def _fit(self, examples: Partition) -> Fit:
        block = examples.gather(type(self).__name__).without_weightless()
        found = best_temperature(
            count_block(block), bounds=check_bounds(self.bounds), max_iter=self.max_iter
        )
        ending = self._tell_ending(found.n_iter, found.converged, found.message)
        curves = fit_classwise(block, found.temperature)
        rule = ClasswiseIsotonicRule(
            temperature=found.temperature,
            knots=np.concatenate([curve.knots for curve in curves]),
            values=np.concatenate([curve.values for curve in curves]),
            offsets=np.cumsum([0] + [curve.knots.size for curve in curves], dtype=np.int64),
        )
        absent = np.setdiff1d(np.arange(examples.n_classes), block.labels)
        return Fit(rule, {"absent_classes": absent, **ending})
