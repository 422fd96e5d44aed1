"""Hoki: confidence from how often a label survives noise on the logits (Jang et al., 2021)."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from hokical.bins import bin_index, check_bin_count
from hokical.calibrators.base import Calibrator
from hokical.logits import Logits
from hokical.noise import Noise
from hokical.recursion import Schedule, learn_schedule
from hokical.selection import NoiseSelection, select_noise
from hokical.stability import gumbel
from hokical.stability.api import check_draw_count, check_noise, draw_seed
from hokical.stability.exact import exact_distribution, exact_stability
from hokical.stability.sampled import Draws, survivals
from hokical.sufficiency import SufficiencyGap, measure_sufficiency
from hokical.table import EXACT_LEVELS, Cells, StabilityTable, stability_levels

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Hoki(Calibrator):
    """Calibrate by label stability.

    Noise is added to the logits; the share of noise that leaves the label alone is the example's
    stability. Per confidence bin the method learns how stability relates to being right, and
    repeats until no validation example changes its bin. Labels are never changed.

    Parameters
    ----------
    noise : "auto" or a Gaussian, Uniform or Gumbel
        "auto" picks family and width on the validation set (`select_noise`).
    draws : int, optional
        None computes stability exactly. A number M draws M noise vectors once and counts over
        them, as in the paper.
    n_bins : int
        Number of equal-width confidence bins.
    max_iterations : int
        Most steps of the recursion.
    init : {"accuracy", "confidence"}
        Where every example starts: at the validation accuracy, or at its softmax confidence.
    random_state : int, RandomState or None
        Seed of the draws; unused when exact.

    Attributes
    ----------
    noise_ : the noise in use
    selection_ : NoiseSelection or None, what `noise="auto"` tried
    accuracy_ : accuracy on the validation set
    alpha_, beta_ : (n_iterations_, n_bins), NaN in bins without validation examples
    occupied_ : (n_iterations_, n_bins) bool, the bins with validation examples
    n_iterations_, converged_ : how the recursion ended
    ending_ : "converged" (every bin's mean confidence is its accuracy), "cycle" (a few examples
        go back and forth between bins for ever) or "limit" (`max_iterations` reached)
    validation_ece_ : what is left of the validation set's ECE, 0 up to rounding if converged
    table_ : StabilityTable, the mergeable statistic that all of this was computed from

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import Hoki
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(5, size=2000)
    >>> logits = 3 * (rng.normal(size=(2000, 5)) + 2 * np.eye(5)[labels])
    >>> cal = Hoki().fit(logits[:1000], labels[:1000])
    >>> confidence = cal.predict_confidence(logits[1000:])
    >>> right = cal.predict(logits[1000:]) == labels[1000:]
    >>> bool(abs(confidence.mean() - right.mean()) < 0.03)
    True
    """

    name = "hoki"
    reference = (
        "Jang, Ivanov, Lee, Weimer: Confidence Calibration Using Logits Transformations, 2021"
    )
    cost = "a dozen stability passes to choose the noise, then one"

    def __init__(
        self,
        *,
        noise: Noise | Literal["auto"] = "auto",
        draws: int | None = None,
        n_bins: int = 15,
        max_iterations: int = 100,
        init: Literal["accuracy", "confidence"] = "accuracy",
        random_state: Any = None,
    ) -> None:
        self.noise = noise
        self.draws = draws
        self.n_bins = n_bins
        self.max_iterations = max_iterations
        self.init = init
        self.random_state = random_state

    def partial_fit(self, logits: Any, labels: Any, sample_weight: Any = None) -> Self:
        """Add more validation examples; the result equals one `fit` on all of them.

        With `noise="auto"` the first call chooses the noise, from its examples alone, and the
        choice then stands. To choose on other data, pass `select_noise(...).noise`.
        """
        if not hasattr(self, "table_"):
            return self.fit(logits, labels, sample_weight)
        data, truth, weights = self._checked_examples(
            self._checked_logits(logits), labels, sample_weight
        )
        self._learn(self.table_ + self._tabulate(data, data.labels == truth, weights))
        return self

    def merge(self, *others: Hoki) -> Hoki:
        """A new calibrator from this one and others fitted on other examples with the same noise.

        Equal to one fit on all the examples together.
        """
        check_is_fitted(self, "table_")
        merged = self._copy()
        table = self.table_
        for other in others:
            check_is_fitted(other, "table_")
            if self._identity() != other._identity():
                raise ValueError(
                    "calibrators must agree to be merged; got "
                    f"{self._identity()} and {other._identity()}. "
                    "Fit each with the same `noise`, `draws`, `random_state`, `n_bins` and `init`."
                )
            table = table + other.table_
        merged._learn(table)
        return merged

    def stability(self, logits: Any) -> FloatArray:
        """Label stability (n,) under the fitted noise, as the calibrator sees it."""
        data = self._checked_logits(logits)
        return self._level(data) / self.table_.levels

    def sufficiency_gap(
        self, logits: Any, labels: Any, sample_weight: Any = None
    ) -> SufficiencyGap:
        """Both sides of Theorem 1 per bin, on given data."""
        data, truth, weights = self._checked_examples(
            self._checked_logits(logits), labels, sample_weight
        )
        stability = self._level(data) / self.table_.levels
        confidence = self._confidence(data)
        return measure_sufficiency(
            confidence, stability, data.labels == truth, n_bins=self.n_bins, weights=weights
        )

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        self._check_parameters()
        self._choose_noise(logits, labels, weights)
        self.n_classes_ = logits.n_classes
        self.seed_ = None if self.draws is None else draw_seed(self.random_state)
        self._learn(self._tabulate(logits, logits.labels == labels, weights))

    def _check_parameters(self) -> None:
        check_bin_count(self.n_bins)
        check_bin_count(self.max_iterations, name="max_iterations")
        if self.draws is not None:
            check_draw_count(self.draws)
        if self.init not in ("accuracy", "confidence"):
            raise ValueError(f'`init` must be "accuracy" or "confidence"; got {self.init!r}.')

    def _choose_noise(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        self.selection_: NoiseSelection | None = None
        if isinstance(self.noise, str) and self.noise == "auto":
            self.selection_ = select_noise(logits, labels, sample_weight=weights)
            self.noise_ = self.selection_.noise
        else:
            self.noise_ = check_noise(self.noise)

    @property
    def _draws(self) -> Draws | None:
        """The shared noise vectors, drawn on first use; None when exact."""
        if self.draws is None or self.seed_ is None:
            return None
        wanted = Draws(self.noise_, self.seed_, self.draws, self.n_classes_)
        if getattr(self, "_drawn", None) != wanted:
            self._drawn = wanted
        return self._drawn

    def _level(self, logits: Logits) -> IntArray:
        draws = self._draws
        if draws is None:
            return stability_levels(exact_stability(logits, self.noise_))
        return survivals(logits, draws)

    def _tabulate(
        self, logits: Logits, correct: NDArray[np.bool_], weights: FloatArray | None
    ) -> StabilityTable:
        from_confidence = self.init == "confidence"
        start = bin_index(_softmax_confidence(logits), self.n_bins) if from_confidence else None
        return StabilityTable.from_examples(
            self._level(logits),
            correct,
            levels=EXACT_LEVELS if self.draws is None else self.draws,
            sample_weight=weights,
            start=start,
            n_starts=self.n_bins if from_confidence else 1,
        )

    def _learn(self, table: StabilityTable) -> None:
        """Run the recursion on the table and keep what it learned."""
        self.table_ = table
        self.accuracy_ = table.accuracy
        schedule = learn_schedule(table, self.n_bins, self.max_iterations)
        self._keep(schedule)
        if not schedule.converged:
            warnings.warn(
                _not_converged_message(schedule),
                ConvergenceWarning,
                stacklevel=4,
            )

    def _keep(self, schedule: Schedule) -> None:
        self.alpha_, self.beta_ = schedule.alpha, schedule.beta
        self.occupied_ = schedule.occupied
        self.n_iterations_ = schedule.n_steps
        self.ending_ = schedule.ending
        self.converged_ = schedule.converged
        self.validation_ece_ = schedule.validation_ece
        self._lookup = None
        if self.init == "accuracy":
            grid = np.arange(self.table_.levels + 1) / self.table_.levels
            self._lookup = schedule.replay(grid, np.full(grid.shape, self.accuracy_))

    def _confidence(self, logits: Logits) -> FloatArray:
        level = self._level(logits)
        if self._lookup is not None:
            confidence = self._lookup[level]
        else:
            schedule = Schedule(self.alpha_, self.beta_, self.ending_, self.validation_ece_)
            confidence = schedule.replay(level / self.table_.levels, _softmax_confidence(logits))
        return np.where(logits.single_choice, 1.0, confidence)

    def _proba(self, logits: Logits) -> FloatArray:
        """Confidence for the label; the rest is shared by where noise would switch the label to."""
        confidence = self._confidence(logits)
        shares = exact_distribution(logits, self.noise_)
        rows = np.arange(logits.n_rows)
        shares[rows, logits.labels] = 0.0
        total = shares.sum(axis=1)
        lost = np.flatnonzero((total == 0.0) & ~logits.single_choice)
        if lost.size:  # no other class within reach of the noise: share as a softmax would
            shares[lost] = _softmax_shares(logits.take(lost), self.noise_.width)
            total[lost] = 1.0
        total[logits.single_choice] = 1.0
        shares *= ((1.0 - confidence) / total)[:, None]
        shares[rows, logits.labels] = confidence
        return shares

    def _identity(self) -> dict[str, Any]:
        """What two calibrators must share for their tables to add up."""
        names = ("noise_", "draws", "seed_", "n_bins", "init", "n_classes_")
        return {name: getattr(self, name) for name in names}

    def _copy(self) -> Hoki:
        twin = type(self)(**self.get_params(deep=False))
        twin.noise_, twin.seed_, twin.selection_ = self.noise_, self.seed_, None
        twin._remember_classes(self.n_classes_)
        return twin

    def _state(self) -> dict[str, Any]:
        cells = self.table_.occupied()
        draws = self._draws
        return {
            "noise": self.noise_,
            "seed": self.seed_,
            "draws_sha256": None if draws is None else draws.fingerprint,
            "accuracy": self.accuracy_,
            "alpha": self.alpha_,
            "beta": self.beta_,
            "ending": self.ending_,
            "validation_ece": self.validation_ece_,
            "table": {
                "levels": self.table_.levels,
                "start": cells.start,
                "level": cells.level,
                "weight": cells.weight,
                "correct": cells.correct,
            },
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self._check_parameters()
        self.noise_ = check_noise(state["noise"])
        self.seed_ = state["seed"]
        self.selection_ = None
        draws = self._draws
        if draws is not None and draws.fingerprint != state["draws_sha256"]:
            raise ValueError("the noise re-drawn from the seed is not the noise of the fit")
        stored = state["table"]
        cells = Cells(stored["start"], stored["level"], stored["weight"], stored["correct"])
        n_starts = self.n_bins if self.init == "confidence" else 1
        self.table_ = StabilityTable.from_cells(cells, levels=stored["levels"], n_starts=n_starts)
        self.accuracy_ = state["accuracy"]
        self._keep(
            Schedule(state["alpha"], state["beta"], state["ending"], state["validation_ece"])
        )


def _softmax_confidence(logits: Logits) -> FloatArray:
    """The uncalibrated confidence: the softmax is the stability under unit Gumbel noise."""
    return gumbel.stability(logits, 1.0)


def _softmax_shares(logits: Logits, scale: float) -> FloatArray:
    """Softmax over the classes other than the label, (n, classes), 0 at the label."""
    margins = logits.margins(slice(0, logits.n_rows)) / scale
    margins[np.arange(logits.n_rows), logits.labels] = np.inf
    weights = np.exp(margins.min(axis=1, keepdims=True) - margins)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _not_converged_message(schedule: Schedule) -> str:
    left = f"leaving a validation ECE of {schedule.validation_ece:.1e} where 0 could be"
    if schedule.ending == "cycle":
        return (
            "Hoki did not converge: some validation examples go back and forth between bins for "
            f"ever, {left}. Another `n_bins` or `noise` removes it, if it matters."
        )
    return (
        f"Hoki did not converge in {schedule.n_steps} iterations: validation examples still change "
        f"their bins, {left}. Raise `max_iterations`, or use fewer `n_bins`."
    )
