"""Ensemble temperature scaling: an average of three distributions (Zhang et al., 2020)."""

from hokical._core.types import FloatArray
from hokical._fitting.ensemble import fit_ensemble
from hokical._fitting.examples import Examples
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._method import Fit, MethodInfo
from hokical.rules._scaling import EnsembleRule

MIX_N_MATCH = (
    "Zhang, Kailkhura, Han: Mix-n-Match: Ensemble and Compositional Methods for Uncertainty "
    "Calibration in Deep Learning, ICML 2020, arXiv:2003.07329"
)


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
