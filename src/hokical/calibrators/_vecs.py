"""Vector scaling: one scale and one bias per class (Guo et al., 2017)."""

from hokical._core.bins import check_positive
from hokical._core.types import FloatArray
from hokical._fitting.examples import Examples
from hokical._fitting.newton import StopReason
from hokical._fitting.vector import VectorFit, fit_vector
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._method import Fit, MethodInfo
from hokical.calibrators._temps import GUO
from hokical.rules._scaling import VectorRule

#: Most Newton steps; about ten are needed.
_MAX_ITER = 200


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
        ending = self._convergence_report(found.solution.n_iter, _message(found))
        return Fit(VectorRule(found.scale, found.bias), {"log_loss": found.log_loss, **ending})


def _message(found: VectorFit) -> str:
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
