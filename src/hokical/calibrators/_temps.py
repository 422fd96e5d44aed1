"""Temperature scaling, one number that divides all logits (Guo et al., 2017); and the softmax."""

from hokical._fitting.examples import Examples
from hokical._fitting.temperature import best_temperature
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._method import Fit, MethodInfo
from hokical.rules._scaling import TemperatureRule, UncalibratedRule

GUO = (
    "Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML 2017, "
    "arXiv:1706.04599"
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
