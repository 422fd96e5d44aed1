"""Choosing the noise: the setting whose one-bin confidences differ most between examples.

The paper searches a grid of 1640 settings; the default here refines the width of each family.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal

from hokical._core.arrays import float64_scope
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import as_logits
from hokical._core.progress import track
from hokical._fitting.examples import Examples
from hokical._fitting.noise_search import (
    KINDS,
    NoiseSelection,
    Trial,
    choose_noise,
    trials_by_stability,
    try_noises,
)
from hokical._fitting.row_sample import sample_block
from hokical.stability._noise import Gaussian, Noise, Uniform, family_named
from hokical.stability._sampled import Draws, check_draw_count, draw_seed, survivals

DEFAULT_FAMILIES = tuple(kind.family for kind in KINDS)

__all__ = ["NoiseSelection", "Trial", "paper_grid", "select_noise"]


def select_noise(
    logits: Any,
    labels: Any,
    *,
    search: Literal["exact", "paper"] = "exact",
    families: Sequence[str] = DEFAULT_FAMILIES,
    draws: int | None = None,
    random_state: Any = 0,
    sample_weight: Any = None,
    progress: bool | None = None,
) -> NoiseSelection:
    """Find the noise with the largest spread of one-bin confidences on a validation set.

    Parameters
    ----------
    logits : array-like of shape (n, classes), or TopK
    labels : array-like of shape (n,)
        Class indices.
    search : {"exact", "paper"}
        "exact" tries widths of each family with exact stability: a wide grid on 256 rows, a
        narrower one on 1024, and the last on all rows, or on 8192 of more than 16,384, drawn in
        proportion to their weights. "paper" tries the paper's grid: Gaussian means -20..20 and
        deviations 1..20, uniform intervals with whole ends in [-20, 20].
    families : sequence of str
        Which of "gaussian", "uniform" and (for "exact") "gumbel" to consider.
    draws : int, optional
        For "paper": estimate stability from this many draws, fresh for every setting, as the paper
        does (it took 1000). None computes it exactly.
    random_state : int, RandomState or None
        Seed of the draws.
    sample_weight : array-like of shape (n,), optional
    progress : bool, optional
        Show a progress bar; None shows one on a terminal once a second has passed.

    Returns
    -------
    selection : NoiseSelection

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import select_noise
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(5, size=500)
    >>> logits = rng.normal(size=(500, 5)) + 2 * np.eye(5)[labels]
    >>> select_noise(logits, labels, families=["gaussian"]).noise.family
    'gaussian'
    """
    kinds = _check_families(families, search)
    if search == "exact" and draws is not None:
        raise ValueError('`draws` goes with search="paper"; the exact search has none.')
    with float64_scope(logits):
        data = as_logits(logits).without_gradient()
        truth = as_labels(labels, data.n_rows, data.n_classes)
        block = Examples(data, truth, as_weights(sample_weight, data.n_rows))
        if search == "exact":
            return choose_noise(sample_block(block), kinds, progress)
        return _paper_search(block, kinds, draws, random_state, progress)


def _check_families(families: Sequence[str], search: str) -> list[type[Noise]]:
    if search not in ("exact", "paper"):
        raise ValueError(f'`search` must be "exact" or "paper"; got {search!r}.')
    if isinstance(families, str) or not families:
        raise ValueError(f"`families` must be a non-empty sequence of names; got {families!r}.")
    kinds = [family_named(name) for name in families]
    if search == "paper" and any(kind not in (Gaussian, Uniform) for kind in kinds):
        raise ValueError(f"the paper's grid holds gaussian and uniform noise; got {families!r}.")
    return kinds


def _paper_search(
    block: Examples,
    kinds: list[type[Noise]],
    draws: int | None,
    random_state: Any,
    progress: bool | None,
) -> NoiseSelection:
    settings = [list(paper_grid(kind)) for kind in kinds]
    if draws is None:
        bar = track(settings, "The paper's grid", len(settings), progress)
        trials = [trial for family in bar for trial in try_noises(block, family)]
    else:  # every setting has draws of its own
        shape, first = (check_draw_count(draws), block.logits.n_classes), draw_seed(random_state)
        every, trials, xp = list(chain(*settings)), [], block.logits.xp
        for k, noise in enumerate(track(every, "The paper's grid", len(every), progress)):
            found = survivals(block.logits, Draws(noise, first + k, *shape))
            stability = xp.astype(found, xp.float64)[None, :] / float(draws)
            trials += trials_by_stability([noise], stability, block)
    return NoiseSelection(max(trials, key=lambda trial: trial.sigma_hat), tuple(trials))


def paper_grid(kind: type[Noise]) -> Iterator[Noise]:
    """The paper's settings of one family, 820 each."""
    if kind is Gaussian:
        for mean in range(-20, 21):
            for scale in range(1, 21):
                yield Gaussian(scale, mean)
    else:
        for low in range(-20, 20):
            for high in range(low + 1, 21):
                yield Uniform(low, high)
