"""sigma_hat against the width of the noise, for the trials of a noise search."""

from dataclasses import dataclass

import numpy as np

from hokical.core.types import BoolArray, FloatArray, IntArray
from hokical.fitting.noise_selection import NoiseSelection, Trial
from hokical.plots.axes import MARKERS, SERIES, Axes, axes_or_new, ink


@dataclass(frozen=True, eq=False)
class NoiseWidths:
    """One family's trials by rising width, (trials,) each.

    Of trials with the same width and number of examples, which differ only in the mean of the noise
    or in their draws, the best is kept.
    """

    family: str
    width: FloatArray
    sigma_hat: FloatArray
    n_examples: IntArray
    is_winner: BoolArray


def noise_widths(selection: NoiseSelection) -> tuple[NoiseWidths, ...]:
    """The trials of `select_noise`, one entry per family in the order tried.

    >>> from hokical.stability.noise import Gaussian
    >>> trials = tuple(Trial(Gaussian(w), 0.9, 0.5, s, 100) for w, s in ((2, 0.2), (1, 0.1)))
    >>> data, = noise_widths(NoiseSelection(trials[0], trials))
    >>> data.width.tolist(), data.is_winner.tolist()
    ([1.0, 2.0], [False, True])
    """
    best: dict[tuple[str, float, int], Trial] = {}
    for trial in selection.trials:
        key = (trial.noise.family, trial.noise.width, trial.n_examples)
        if key not in best or trial.sigma_hat > best[key].sigma_hat:
            best[key] = trial
    families = dict.fromkeys(family for family, _, _ in best)
    return tuple(
        _of_family(family, [best[key] for key in sorted(best) if key[0] == family], selection.best)
        for family in families
    )


def draw_noise_widths(data: tuple[NoiseWidths, ...], ax: Axes | None = None) -> Axes:
    """A marker per trial, hollow if only some examples were used, and a ring at the winner."""
    ax = axes_or_new(ax)
    most = max(int(family.n_examples.max()) for family in data)
    for place, family in enumerate(data):
        color, marker = SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)]
        for full in (False, True):
            of = (family.n_examples == most) == full
            if not of.any():
                continue
            (line,) = ax.plot(family.width[of], family.sigma_hat[of], color=color, linewidth=0.8)
            line.set(marker=marker, markerfacecolor=color if full else "none")
            line.set_label(f"{family.family}, {'all' if full else 'some'} examples")
        best = (family.width[family.is_winner], family.sigma_hat[family.is_winner])
        ax.scatter(*best, marker="o", s=160, facecolors="none", edgecolors=ink(ax))
    ax.set(xscale="log", xlabel="width of the noise", ylabel=r"spread of confidence $\hat\sigma$")
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False)
    return ax


def _of_family(family: str, trials: list[Trial], winner: Trial) -> NoiseWidths:
    return NoiseWidths(
        family,
        width=np.array([trial.noise.width for trial in trials]),
        sigma_hat=np.array([trial.sigma_hat for trial in trials]),
        n_examples=np.array([trial.n_examples for trial in trials], dtype=np.int64),
        is_winner=np.array([trial == winner for trial in trials]),
    )
