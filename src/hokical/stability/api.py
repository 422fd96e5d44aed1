"""The public functions: how stable is the label, how surely, and what would it switch to?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._tensors import answer_like
from hokical.logits import as_logits
from hokical.noise import Noise
from hokical.stability.exact import exact_bounds, exact_distribution, exact_stability
from hokical.stability.sampled import Draws, survivals

FloatArray = NDArray[np.float64]


def label_stability(
    logits: Any, noise: Noise, *, draws: int | None = None, random_state: Any = None
) -> FloatArray:
    """The chance that noise added to the logits leaves each row's label unchanged.

    Parameters
    ----------
    logits : array-like of shape (n, classes), or TopK
        -inf marks an impossible class. For a `TopK` the answer is the midpoint of
        `stability_bounds`.
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
    gamma : ndarray of shape (n,), float64; a tensor on the logits' device if they are one

    Examples
    --------
    >>> from hokical import label_stability
    >>> from hokical.noise import Gaussian
    >>> label_stability([[3.0, 1.0, 0.0], [1.0, 1.0, -9.0]], Gaussian(1.0)).round(4)
    array([0.9115, 0.5   ])
    """
    checked = as_logits(logits)
    check_noise(noise)
    if draws is None:
        return answer_like(logits, exact_stability(checked, noise))
    m = check_draw_count(draws)
    shared = Draws(noise, draw_seed(random_state), m, checked.n_classes)
    return answer_like(logits, survivals(checked, shared) / m)


def stability_bounds(logits: Any, noise: Noise) -> tuple[FloatArray, FloatArray]:
    """The least and the greatest label stability that the hidden classes of a `TopK` allow.

    Half their difference is how far `label_stability` can be off because of what is hidden. They
    are equal where every class is seen.

    Returns
    -------
    lower, upper : ndarrays of shape (n,), float64

    Examples
    --------
    >>> from hokical import TopK, stability_bounds
    >>> from hokical.noise import Gumbel
    >>> seen = TopK([[3.0, 1.0, 0.0]], [[2, 0, 5]], n_classes=10)
    >>> lower, upper = stability_bounds(seen, Gumbel(1.0))
    >>> lower.round(4), upper.round(4)
    (array([0.652]), array([0.8438]))
    """
    checked = as_logits(logits)
    return answer_like(logits, exact_bounds(checked, check_noise(noise)))


def label_distribution(logits: Any, noise: Noise) -> FloatArray:
    """The chance of every class to be the label once noise is added to the logits.

    The hidden classes of a `TopK` are taken as equals that share what is left.

    Returns
    -------
    pi : ndarray of shape (n, classes), float64
        Rows sum to 1; the entry of the row's own label is its stability. Entries are right to
        about 1e-6; under Gaussian noise also to about 1 % of themselves, however small.

    Examples
    --------
    >>> from hokical import label_distribution
    >>> from hokical.noise import Gumbel
    >>> label_distribution([[3.0, 1.0, 0.0]], Gumbel(1.0)).round(4)
    array([[0.8438, 0.1142, 0.042 ]])
    """
    checked = as_logits(logits)
    check_noise(noise)
    return answer_like(logits, exact_distribution(checked, noise))


def check_noise(noise: Any) -> Noise:
    """A noise object, or an error that shows how to make one."""
    if not isinstance(noise, Noise):
        raise TypeError(
            f"`noise` must be a Gaussian, Uniform or Gumbel of hokical.noise; got {noise!r}. "
            "For example `Gaussian(scale=2.0)`."
        )
    return noise


def check_draw_count(draws: Any) -> int:
    """A number of draws as an int of at least 1."""
    if isinstance(draws, bool) or not isinstance(draws, (int, np.integer)) or draws < 1:
        raise ValueError(
            f"`draws` must be None (exact) or an integer of at least 1; got {draws!r}."
        )
    return int(draws)


def draw_seed(random_state: Any) -> int:
    """A seed for the draws: an int is used as it is, anything else is asked for one."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if not 0 <= random_state < 2**64:
            raise ValueError(f"`random_state` must lie in [0, 2**64); got {random_state}.")
        return int(random_state)
    from sklearn.utils import check_random_state

    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))
