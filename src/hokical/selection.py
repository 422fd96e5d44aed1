"""Choosing the noise: the setting whose one-bin confidences differ most between examples.

With all examples in one bin, alpha and beta give the confidence alpha gamma + beta (1 - gamma),
whose standard deviation over the validation set is sigma_hat = |alpha - beta| std(gamma). The paper
searches a grid of 1640 settings; but the mean of the noise moves no label, so the family and its
width are all there is to choose, and sigma_hat is a smooth function of the width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hokical.logits import Logits, as_labels, as_logits, as_weights
from hokical.noise import NARROWEST, WIDEST, Gaussian, Noise, Uniform, family_named
from hokical.progress import progress_bar, track
from hokical.recursion import survival_rates
from hokical.stability.api import check_draw_count, draw_seed
from hokical.stability.exact import exact_stability
from hokical.stability.sampled import Draws, survivals

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: What is considered unless something else is asked for.
FAMILIES = ("gaussian", "uniform")
#: Rows on which the width is located before it is refined on all of them.
_SCOUT_ROWS = 2048
#: Up to this many logits and rows, all rows are looked at all the time.
_SCOUT_FROM, _SCOUT_FROM_ROWS = 4_000_000, 50_000
_GRID_POINTS = 12
_MATCHED_POINTS = 5
_REFINE_TO = 0.03  # relative width at which the search on the scout rows stops
_POLISH_STEP = math.log(1.2)
_WORTH_A_PASS = 1e-3
_LONGEST_WALK = 20
_USUAL_TRIALS = 17  # per family, for the progress bar
#: A family this far behind on the scout rows is not tried on all of them.
_CLEARLY_BEHIND = 0.98


@dataclass(frozen=True)
class Trial:
    """One setting and what it gave: alpha, beta and sigma_hat on `n_examples` examples."""

    noise: Noise
    alpha: float
    beta: float
    sigma_hat: float
    n_examples: int


@dataclass(frozen=True, repr=False)
class NoiseSelection:
    """The winner of a search, and every setting tried in the order in which it was."""

    best: Trial
    trials: tuple[Trial, ...]

    @property
    def noise(self) -> Noise:
        return self.best.noise

    @property
    def alpha(self) -> float:
        return self.best.alpha

    @property
    def beta(self) -> float:
        return self.best.beta

    @property
    def sigma_hat(self) -> float:
        return self.best.sigma_hat

    def __repr__(self) -> str:
        return (
            f"NoiseSelection(noise={self.noise!r}, alpha={self.alpha:.4f}, beta={self.beta:.4f}, "
            f"sigma_hat={self.sigma_hat:.4f}, {len(self.trials)} settings tried)"
        )


def select_noise(
    logits: Any,
    labels: Any,
    *,
    search: Literal["exact", "paper"] = "exact",
    families: Sequence[str] = FAMILIES,
    draws: int | None = None,
    random_state: Any = None,
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
        "exact" refines the width of each family with exact stability; above 4 million logits or
        50,000 rows it locates it on 2048 evenly spaced rows first. "paper" walks the paper's
        grid: Gaussian means -20..20 and deviations 1..20, uniform intervals with whole ends in
        [-20, 20].
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
    checked = as_logits(logits)
    correct = checked.labels == as_labels(labels, checked.n_rows, checked.n_classes)
    weights = as_weights(sample_weight, checked.n_rows)
    kinds = _checked_families(families, search)
    evaluate = Evaluator(checked, correct, weights)
    if search == "exact":
        if draws is not None:
            raise ValueError('`draws` goes with search="paper"; the exact search has none.')
        return search_widths(evaluate, _scout(evaluate), kinds, progress)
    return _paper_search(evaluate, kinds, draws, random_state, progress)


def one_bin_trial(
    noise: Noise,
    stability: FloatArray,
    correct: NDArray[np.bool_],
    weights: FloatArray | None = None,
) -> Trial:
    """alpha, beta and sigma_hat with all examples in one bin (Equations 1 to 4 of the paper)."""
    return trial_from_sums(noise, one_bin_sums(stability, correct, weights), stability.shape[0])


def one_bin_sums(
    stability: FloatArray, correct: NDArray[np.bool_], weights: FloatArray | None
) -> FloatArray:
    """Sums over the examples, (6,): of the weight, of what is kept and what is switched, of both
    for the correct ones alone, and of the squared deviations of stability from its mean.
    """
    w = np.ones_like(stability) if weights is None else weights
    hit = w * correct
    kept, switched = (w * stability).sum(), (w * (1.0 - stability)).sum()
    total = w.sum()
    mean = kept / total if total else 0.0  # a block of a stream may hold nothing that counts
    right = [(hit * stability).sum(), (hit * (1.0 - stability)).sum()]
    return np.array([total, kept, switched, *right, (w * (stability - mean) ** 2).sum()])


@singledispatch
def stability_sums(
    logits: Logits, noise: Noise, correct: NDArray[np.bool_], weights: FloatArray | None
) -> FloatArray:
    """The `one_bin_sums` of exact stability under the noise."""
    return one_bin_sums(exact_stability(logits, noise), correct, weights)


def trial_from_sums(noise: Noise, sums: FloatArray, n_examples: int) -> Trial:
    """The trial that `one_bin_sums` belong to."""
    total, kept, switched, kept_right, switched_right, squares = sums
    alpha, beta = survival_rates(kept, switched, kept_right, switched_right)
    sigma_hat = float(abs(alpha - beta)) * math.sqrt(squares / total)
    return Trial(noise, float(alpha), float(beta), sigma_hat, n_examples)


def _checked_families(families: Sequence[str], search: str) -> list[type[Noise]]:
    if search not in ("exact", "paper"):
        raise ValueError(f'`search` must be "exact" or "paper"; got {search!r}.')
    if isinstance(families, str) or not families:
        raise ValueError(f"`families` must be a non-empty sequence of names; got {families!r}.")
    kinds = [family_named(name) for name in families]
    if search == "paper" and any(kind not in (Gaussian, Uniform) for kind in kinds):
        raise ValueError(f"the paper's grid holds gaussian and uniform noise; got {families!r}.")
    return kinds


def search_widths(
    whole: Evaluator, some: Evaluator | None, kinds: Sequence[type[Noise]], progress: bool | None
) -> NoiseSelection:
    """Locate the best width per family, on some rows if there are very many, then refine it."""
    scout = whole if some is None else some
    with progress_bar("Choosing the noise", _USUAL_TRIALS * len(kinds), progress) as advance:
        whole.after_each = scout.after_each = advance
        found: list[Trial] = []
        for kind in kinds:
            grid = _matched_grid(kind, found[0].noise) if found else _width_grid(scout)
            found.append(_locate(scout, kind, grid))
        if some is None:
            return _selection(scout.trials, scout.trials)
        leader = max(trial.sigma_hat for trial in found)
        for trial in found:
            if trial.sigma_hat >= _CLEARLY_BEHIND * leader:
                _polish(whole, trial.noise)
    return _selection(whole.trials, scout.trials + whole.trials)


class Evaluator:
    """Remembers every setting it was asked about."""

    def __init__(
        self, logits: Logits, correct: NDArray[np.bool_], weights: FloatArray | None
    ) -> None:
        self.logits, self.correct, self.weights = logits, correct, weights
        self.trials: list[Trial] = []
        self.after_each: Callable[[], None] = lambda: None

    def take(self, rows: IntArray) -> Evaluator:
        weights = None if self.weights is None else self.weights[rows]
        return Evaluator(self.logits.take(rows), self.correct[rows], weights)

    def __call__(self, noise: Noise) -> Trial:
        sums = stability_sums(self.logits, noise, self.correct, self.weights)
        return self.keep(trial_from_sums(noise, sums, self.logits.n_rows))

    def judge(self, noise: Noise, stability: FloatArray) -> Trial:
        return self.keep(one_bin_trial(noise, stability, self.correct, self.weights))

    def keep(self, trial: Trial) -> Trial:
        self.trials.append(trial)
        self.after_each()
        return trial


def _scout(evaluate: Evaluator) -> Evaluator | None:
    """Evenly spaced rows among those that count, or None where all are few enough."""
    weights = evaluate.weights
    n_rows = evaluate.logits.n_rows
    counting = np.arange(n_rows) if weights is None else np.flatnonzero(weights > 0.0)
    if few_enough(evaluate.logits.size, counting.size):
        return None
    return evaluate.take(counting[evenly_spaced(counting.size)])


def few_enough(n_logits: int, n_counting: int) -> bool:
    """Whether all rows can be looked at all the time."""
    few = n_logits <= _SCOUT_FROM and n_counting <= _SCOUT_FROM_ROWS
    return few or n_counting <= 2 * _SCOUT_ROWS


def evenly_spaced(n_counting: int) -> IntArray:
    """The scout rows, as positions among those that count."""
    return np.linspace(0, n_counting - 1, _SCOUT_ROWS).astype(np.int64)


def _locate(evaluate: Evaluator, kind: type[Noise], grid: FloatArray) -> Trial:
    """The best width of a coarse grid, refined between its neighbours by Brent's search."""
    from scipy.optimize import minimize_scalar

    trials = [evaluate(_tidy(kind, width)) for width in grid]
    peak = int(np.argmax([trial.sigma_hat for trial in trials]))
    low, high = grid[max(peak - 1, 0)], grid[min(peak + 1, grid.size - 1)]

    def negative_spread(log_width: float) -> float:
        trials.append(evaluate(_tidy(kind, math.exp(log_width))))
        return -trials[-1].sigma_hat

    minimize_scalar(
        negative_spread,
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": _REFINE_TO},
    )
    return max(trials, key=lambda trial: trial.sigma_hat)


def _matched_grid(kind: type[Noise], known: Noise) -> FloatArray:
    """Widths around the one whose standard deviation is that of another family's best."""
    centre = known.width * known.unit_deviation / kind.unit_deviation
    return np.geomspace(centre / 4.0, 4.0 * centre, _MATCHED_POINTS)


def _width_grid(evaluate: Evaluator) -> FloatArray:
    """Widths from far below the smallest usual gap between the best two logits to far above."""
    gaps, weights = evaluate.logits.gaps, evaluate.weights
    weights = np.ones_like(gaps) if weights is None else weights
    usual = np.isfinite(gaps) & (gaps > 0.0) & (weights > 0.0)
    if not usual.any():
        return np.array([0.5, 1.0, 2.0])
    low, high = np.quantile(
        gaps[usual], [0.02, 0.98], weights=weights[usual], method="inverted_cdf"
    )
    return np.geomspace(low / 4.0, 8.0 * high, _GRID_POINTS)


def _tidy(kind: type[Noise], width: float) -> Noise:
    """Noise of about that width, rounded to three digits.

    sigma_hat is flat around its maximum, so nothing is lost; and a width that people can read is
    also the same on every machine, where the last bits of a search are not.
    """
    return kind.of_width(float(f"{min(max(width, NARROWEST), WIDEST):.2e}"))


def _polish(evaluate: Evaluator, noise: Noise) -> None:
    """Walk uphill on all rows; then once to the top of the parabola, if that promises more."""
    kind, centre = type(noise), math.log(noise.width)
    seen: dict[int, float] = {}

    def score(step: int) -> float:
        if step not in seen:
            width = math.exp(centre + step * _POLISH_STEP)
            seen[step] = evaluate(_tidy(kind, width)).sigma_hat
        return seen[step]

    best = 0
    for _ in range(_LONGEST_WALK):
        uphill = max((best - 1, best, best + 1), key=score)
        if uphill == best:
            break
        best = uphill
    below, at, above = score(best - 1), score(best), score(best + 1)
    curvature = below - 2.0 * at + above
    shift = 0.5 * (below - above) / curvature if curvature < 0.0 else 0.0
    if -0.5 * curvature * shift * shift > _WORTH_A_PASS * at:
        evaluate(_tidy(kind, math.exp(centre + (best + shift) * _POLISH_STEP)))


def _paper_search(
    evaluate: Evaluator,
    kinds: list[type[Noise]],
    draws: int | None,
    random_state: Any,
    progress: bool | None,
) -> NoiseSelection:
    settings = [noise for kind in kinds for noise in paper_grid(kind)]
    if draws is None:
        attempt = _once_per_width(evaluate)
    else:
        attempt = _with_fresh_draws(evaluate, check_draw_count(draws), draw_seed(random_state))
    bar = track(settings, "The paper's grid", len(settings), progress)
    trials = [attempt(noise) for noise in bar]
    return _selection(trials, trials)


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


def _once_per_width(evaluate: Evaluator) -> Callable[[Noise], Trial]:
    """Settings of one family that differ only in their mean share one computation."""
    known: dict[tuple[str, float], Trial] = {}

    def attempt(noise: Noise) -> Trial:
        key = (noise.family, noise.width)
        if key not in known:
            known[key] = evaluate(noise)
        return replace(known[key], noise=noise)

    return attempt


def _with_fresh_draws(evaluate: Evaluator, n_draws: int, seed: int) -> Callable[[Noise], Trial]:
    """As the paper does: every setting has draws of its own."""
    seeds = itertools.count(seed)

    def attempt(noise: Noise) -> Trial:
        draws = Draws(noise, next(seeds), n_draws, evaluate.logits.n_classes)
        return evaluate.judge(noise, survivals(evaluate.logits, draws) / n_draws)

    return attempt


def _selection(candidates: list[Trial], tried: list[Trial]) -> NoiseSelection:
    return NoiseSelection(max(candidates, key=lambda trial: trial.sigma_hat), tuple(tried))
