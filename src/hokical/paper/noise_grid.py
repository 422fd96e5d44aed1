"""The paper's choice of noise, sampled, without walking the settings that cannot win.

`select_noise(search="paper", draws=1000)` estimates the spread of all 1640 settings, from fresh
draws each. But the exact spread of a setting depends on its family and width alone, so 60 exact
passes tell which settings are out of reach: with 1000 draws the estimates stray from the exact
values by 2 % (standard deviation, measured on a ResNet-110), and settings more than 10 % below the
best are left out. Each of the rest keeps the draws that the whole walk would have given it, so the
winner is the same.
"""

from __future__ import annotations

from typing import Any

from hokical.logits import as_labels, as_logits
from hokical.noise import Gaussian, Noise, Uniform
from hokical.selection import NoiseSelection, one_bin_trial, paper_grid, select_noise
from hokical.stability.sampled import Draws, survivals

#: Settings whose exact spread is below this share of the best are not sampled.
WITHIN_REACH = 0.9
#: What `select_noise` walks by default, in its order.
_FAMILIES: tuple[type[Noise], ...] = (Gaussian, Uniform)


def select_on_grid(
    logits: Any, labels: Any, *, draws: int = 1000, seed: int = 0, within: float = WITHIN_REACH
) -> NoiseSelection:
    """The winner of the paper's grid with sampled stability, and the settings sampled.

    Parameters
    ----------
    logits : array-like of shape (n, classes)
    labels : array-like of shape (n,)
    draws : int
        Noise vectors per setting, fresh for each.
    seed : int
        Setting k of the grid draws with the seed `seed + k`.
    within : float
        Share of the best exact spread below which a setting is left out; 0 samples all.
    """
    data = as_logits(logits)
    correct = data.labels == as_labels(labels, data.n_rows, data.n_classes)
    exact = select_noise(data, labels, search="paper", progress=False)
    least = within * exact.sigma_hat
    settings = [noise for kind in _FAMILIES for noise in paper_grid(kind)]
    trials = []
    for place, (noise, known) in enumerate(zip(settings, exact.trials, strict=True)):
        if known.sigma_hat >= least:
            drawn = Draws(noise, seed + place, draws, data.n_classes)
            trials.append(one_bin_trial(noise, survivals(data, drawn) / draws, correct))
    return NoiseSelection(max(trials, key=lambda trial: trial.sigma_hat), tuple(trials))
