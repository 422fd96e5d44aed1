"""The public functions: how stable is the label, and what would it switch to?"""

from typing import Any

import numpy as np

from hokical._core.arrays import Array, float64_scope, to_input_library
from hokical._core.logits import as_logits
from hokical.stability._noise import Noise
from hokical.stability._sampled import MOST_DRAWS, Draws, survivals


def label_stability(
    logits: Any, noise: Noise, *, draws: int | None = None, random_state: Any = None
) -> Array:
    """The probability that noise added to the logits leaves each row's label unchanged.

    Parameters
    ----------
    logits : array of any library of shape (n, classes), array-like, or TopK
        -inf marks an impossible class. The hidden classes of a `TopK` are taken
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
    >>> from hokical import label_stability
    >>> from hokical.stability._noise import Gaussian
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
    by at most about 1e-6, which says nothing about smaller ones: they can be off by factors. The
    hidden classes of a `TopK` are taken as equals that share what is left.

    >>> from hokical import label_distribution
    >>> from hokical.stability._noise import Gumbel
    >>> label_distribution([[3.0, 1.0, 0.0]], Gumbel(1.0)).round(4)
    array([[0.8438, 0.1142, 0.042 ]])
    """
    check_noise(noise)
    with float64_scope(logits):
        return to_input_library(noise.distribution(as_logits(logits)), logits)


def check_noise(noise: Any) -> Noise:
    """A noise object, or an error that shows how to make one."""
    if not isinstance(noise, Noise):
        raise TypeError(
            f"`noise` must be a Gaussian, Uniform or Gumbel of hokical; got {noise!r}. "
            "For example `Gaussian(scale=2.0)`."
        )
    return noise


def check_draw_count(draws: Any) -> int:
    """A number of draws as an int from 1 to `MOST_DRAWS`."""
    whole = isinstance(draws, (int, np.integer)) and not isinstance(draws, bool)
    if not whole or not 1 <= draws <= MOST_DRAWS:
        raise ValueError(
            f"`draws` must be None (exact) or an integer from 1 to {MOST_DRAWS}; got {draws!r}."
        )
    return int(draws)


def draw_seed(random_state: Any) -> int:
    """A seed for the draws: an int is used as it is, a generator is asked for one.

    None takes a fresh one from the operating system, never from NumPy's global state.
    """
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if not 0 <= random_state < 2**64:
            raise ValueError(f"`random_state` must lie in [0, 2**64); got {random_state}.")
        return int(random_state)
    if random_state is None:
        random_state = np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    raise ValueError(
        "`random_state` must be an integer, a NumPy Generator or RandomState, or None; got "
        f"{random_state!r}."
    )
