"""Adaptive temperature scaling: a temperature for all rows, corrected row by row."""

from hokical._fitting.examples import Examples
from hokical._fitting.row_correction import fit_row_correction
from hokical._fitting.temperature import best_temperature
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._method import Fit, MethodInfo
from hokical.rules._adaptive import AdaptiveRule
from hokical.rules._row_correction import RowCorrection
from hokical.rules._scaling import TemperatureRule


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
