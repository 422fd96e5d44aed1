"""Ensemble temperature scaling: a mixture of three softmaxes (Zhang et al., 2020)."""

from typing import Literal

from hokical._core.bins import check_count
from hokical._fitting.ensemble_search import fit_ensemble
from hokical._fitting.row_sample import Sample
from hokical._fitting.temperature import BOUNDS, MAX_ITER, check_bounds
from hokical.calibrators._base import BaseCalibrator, Fit
from hokical.rules._scaling import EnsembleRule

MIX_N_MATCH = (
    "Zhang, Kailkhura, Han: Mix-n-Match: Ensemble and Compositional Methods for Uncertainty "
    "Calibration in Deep Learning, ICML 2020, arXiv:2003.07329"
)


class EnsembleTemperatureScaling(BaseCalibrator):
    """Mix the softmax at a temperature, the softmax as it is, and the uniform distribution.

    p = w_1 softmax(z/T) + w_2 softmax(z) + w_3 uniform, with non-negative weights that sum to 1.
    The order of the classes is preserved. The uniform part is over the possible classes (logit
    above -inf). Zhang et al. fit T first, as if it stood alone, and then the weights; here all are
    fitted together, so the loss on the validation set is at most theirs.

    `loss` is "mse", the squared distance to the one-hot truth, as in the paper, or "log", the log
    loss. `bounds` limits T as in `TemperatureScaling`; `max_iter` the steps of each search for it.

    After `fit`: `temperature_`, meaningless where its weight is 0; `weights_` (3,), in the order
    above; `loss_`, the mean on the validation set; `n_iter_`, the passes over it in all searches;
    `converged_` and `message_`, how the search that found the solution ended.

    The loss has several local minima in T: about 15 temperatures, from a nearly uniform to a nearly
    one-hot softmax, are tried on 500 or more evenly spaced examples (on all if there are few, or if
    no temperature gets a weight), and the best three refined on all. A minimum narrower than that,
    or seen only on examples left out, can be missed. Memory: about 20 float64 per example, and for
    less than a million logits as many again.

    >>> import numpy as np
    >>> from hokical.calibrators import EnsembleTemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(20000, 4))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> guess = rng.random(20000) < 0.2
    >>> labels[guess] = rng.integers(4, size=guess.sum())
    >>> cal = EnsembleTemperatureScaling().fit(2 * logits, labels)
    >>> round(cal.temperature_), round(float(cal.weights_[2]), 1)
    (2, 0.2)
    """

    rule_kind = EnsembleRule
    title = "Ensemble temperature scaling"
    reference = MIX_N_MATCH
    cost = "about twelve softmax passes, or forty where the temperature gets no weight"

    def __init__(
        self,
        *,
        loss: Literal["mse", "log"] = "mse",
        bounds: tuple[float, float] = BOUNDS,
        max_iter: int = MAX_ITER,
    ) -> None:
        self.loss = loss
        self.bounds = bounds
        self.max_iter = max_iter

    def _check_parameters(self) -> None:
        if self.loss not in ("mse", "log"):
            raise ValueError(f'`loss` must be "mse" or "log"; got {self.loss!r}.')
        check_bounds(self.bounds)
        check_count(self.max_iter, name="max_iter")

    def _fit(self, sample: Sample) -> Fit:
        counted = sample.examples
        found = fit_ensemble(counted, self.loss, check_bounds(self.bounds), self.max_iter)
        ending = self._convergence_report(found.n_iter, found.converged, found.message)
        rule = EnsembleRule(found.x, found.point)
        return Fit(rule, {"loss": found.value, **ending})
