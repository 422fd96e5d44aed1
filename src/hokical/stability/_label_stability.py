"""The public functions: how stable is the label, and what would it switch to?"""

from typing import Any

from hokical._core.arrays import Array, float64_scope, to_input_library
from hokical._core.logits import as_logits
from hokical.stability._noise import Noise, check_noise
from hokical.stability._sampled import Draws, check_draw_count, draw_seed, survivals


def label_stability(
    logits: Any, noise: Noise, *, draws: int | None = None, random_state: Any = None
) -> Array:
    """The probability that noise added to the logits leaves each row's label unchanged.

    Parameters
    ----------
    logits : array of any library of shape (n, classes), array-like, or TopK
        -inf marks a masked class. The hidden classes of a `TopK` are taken
        as equals that share what is left.
    noise : Gaussian, Uniform or Gumbel
        Added to every logit independently.
    draws : int, optional
        None, the default, solves the integral: no randomness. A number M counts over M noise
        vectors shared by all rows, as in the paper; its standard error is at most 0.5/sqrt(M). Sums
        of logit and noise are float64 for float64 logits, else float32.
    random_state : int, RandomState, Generator or None
        Where the seed of the draws comes from.

    Returns
    -------
    gamma : array of shape (n,), of the library and on the device of the logits
        float64 for NumPy arrays and lists; for others float32, unless they are float64.

    Examples
    --------
    >>> from hokical import Gaussian, label_stability
    >>> label_stability([[3.0, 1.0, 0.0], [1.0, 1.0, -9.0]], Gaussian(1.0)).round(4)
    array([0.9115, 0.5   ])
    """
    check_noise(noise)
    with float64_scope(logits):
        checked = as_logits(logits)
        if draws is None:
            return to_input_library(noise.stability(checked), logits)
        m = check_draw_count(draws)
        shared = Draws(noise, draw_seed(random_state), m, checked.n_classes)
        counts = checked.xp.astype(survivals(checked, shared), checked.xp.float64)
        return to_input_library(counts / float(m), logits)


def label_distribution(logits: Any, noise: Noise) -> Array:
    """The probability of every class to be the label once noise is added to the logits.

    Rows (n, classes) sum to 1; the entry of the row's own label is its stability. Entries are off
    by at most about 1e-6; smaller ones have no correct digits. The
    hidden classes of a `TopK` are taken as equals that share what is left.

    >>> from hokical import Gumbel, label_distribution
    >>> label_distribution([[3.0, 1.0, 0.0]], Gumbel(1.0)).round(4)
    array([[0.8438, 0.1142, 0.042 ]])
    """
    check_noise(noise)
    with float64_scope(logits):
        return to_input_library(noise.distribution(as_logits(logits)), logits)
