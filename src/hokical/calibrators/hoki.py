"""Hoki: confidence from how often a label survives noise on the logits (Jang et al., 2021)."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from hokical._tensors import answers_with_tensors
from hokical._warnings import warn_user
from hokical.bins import bin_index, check_count
from hokical.calibrators._sharing import share_rest
from hokical.calibrators.base import BaseCalibrator
from hokical.guarantees.neighbours import accuracy_intervals
from hokical.guarantees.promises import merged_scores
from hokical.guarantees.score_table import ScoreTable
from hokical.logits import Logits
from hokical.noise import Gaussian, Noise, Uniform
from hokical.ranges import range_extremes
from hokical.recursion import Curve, Ending, Schedule, learn_schedule
from hokical.selection import NoiseSelection, select_noise
from hokical.stability import gumbel
from hokical.stability.api import check_draw_count, check_noise, draw_seed
from hokical.stability.exact import exact_bounds, exact_stability
from hokical.stability.sampled import Draws, survivals
from hokical.streams.blocks import Blocks, State
from hokical.streams.checking import Block
from hokical.streams.dispatch import as_blocks
from hokical.streams.noise_search import select_noise_in_passes
from hokical.streams.scored import ScoredBlocks
from hokical.sufficiency import SufficiencyGap, measure_sufficiency
from hokical.table import EXACT_LEVELS, Cells, StabilityTable, stability_levels
from hokical.topk import TopK

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Hoki(BaseCalibrator):
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
        them, as in the paper. (`noise="auto"` is chosen with exact stability all the same.)
    n_bins : int
        Number of equal-width confidence bins.
    max_iterations : int
        Most steps of the recursion.
    init : {"accuracy", "confidence"}
        Where every example starts: at the validation accuracy, or at its softmax confidence.
    random_state : int, RandomState, Generator or None
        Seed of the draws; unused when exact.

    Attributes
    ----------
    noise_ : the noise in use
    selection_ : NoiseSelection or None, what `noise="auto"` tried
    draws_ : the shared noise vectors (seed and shape), or None when exact
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
    accepts_top_k = True

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

    def partial_fit(self, logits: Any, labels: Any = None, sample_weight: Any = None) -> Self:
        """Add more validation examples; the result equals one `fit` on all of them.

        With `noise="auto"` the first call chooses the noise, from its examples alone, and the
        choice then stands. To choose on other data, pass `select_noise(...).noise`.
        """
        if not hasattr(self, "n_classes_"):
            return self.fit(logits, labels, sample_weight)
        blocks = as_blocks(logits, labels, sample_weight)
        if blocks is not None:
            return self._add_blocks(blocks)
        known = self._checked_logits(logits)
        data, truth, weights = self._checked_examples(known, labels, sample_weight)
        self._learn(self.table_ + self._tabulate(data, data.labels == truth, weights))
        scores = self._count_scores(data, truth, weights)
        self._set_fit_scores(merged_scores([self.fit_scores_, scores]))
        return self

    def merge(self, *others: Hoki) -> Hoki:
        """A new calibrator from this one and others fitted on other examples with the same noise.

        Equal to one fit on all the examples together.
        """
        check_is_fitted(self, "n_classes_")
        table = self.table_
        for other in others:
            if not isinstance(other, Hoki):
                raise TypeError(f"`merge` takes fitted Hoki calibrators; got {other!r}.")
            check_is_fitted(other, "n_classes_")
            if self._identity() != other._identity():
                raise ValueError(
                    "calibrators must agree to be merged; got "
                    f"{self._identity()} and {other._identity()}. "
                    "Fit each with the same `noise`, `draws`, `random_state`, `n_bins` and `init`."
                )
            table = table + other.table_
        merged = self._without_examples()
        merged._learn(table)
        merged._set_fit_scores(merged_scores([cal.fit_scores_ for cal in (self, *others)]))
        return merged

    @answers_with_tensors
    def stability(self, logits: Any) -> FloatArray:
        """Label stability (n,) under the fitted noise, as the calibrator sees it."""
        data = self._checked_logits(logits)
        return self._level(data) / self.table_.levels

    def sufficiency_gap(
        self, logits: Any, labels: Any, sample_weight: Any = None
    ) -> SufficiencyGap:
        """Both sides of Theorem 1 per bin, on given data."""
        known = self._checked_logits(logits)
        data, truth, weights = self._checked_examples(known, labels, sample_weight)
        return measure_sufficiency(
            self._confidence(data),
            self._level(data) / self.table_.levels,
            data.labels == truth,
            n_bins=self.n_bins_,
            weights=weights,
        )

    def predict_proba(self, logits: Any) -> FloatArray:
        """Probabilities (n, classes): the confidence for the label, the rest by switches.

        What the label leaves is shared among the other classes as noise would switch the label to
        them. Rows sum to 1 and masked classes (-inf) get 0, so a row in which one class alone is
        possible gives it 1, whatever the confidence. Where the confidence is low, another class can
        end up above the label; `predict` is the classifier's own label all the same. Uniform noise
        would rule out every class beyond its reach; Gaussian noise of the same deviation stands in.
        """
        return super().predict_proba(logits)

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        self._check_parameters()
        self.selection_ = self._select(logits, labels, weights)
        self.noise_ = check_noise(self.noise) if self.selection_ is None else self.selection_.noise
        self.draws_ = self._make_draws(logits.n_classes)
        self.init_, self.n_bins_ = self.init, int(self.n_bins)
        self._learn(self._tabulate(logits, logits.labels == labels, weights))

    def _fit_blocks(self, blocks: Blocks) -> None:
        self._check_parameters()
        auto = not self._fits_in_one_pass()
        self.selection_ = select_noise_in_passes(blocks) if auto else None
        self.noise_ = check_noise(self.noise) if self.selection_ is None else self.selection_.noise
        self.draws_ = self._make_draws(blocks.n_classes)
        self.init_, self.n_bins_ = self.init, int(self.n_bins)
        self._learn(self._tabulate_blocks(blocks))

    def _fits_in_one_pass(self) -> bool:
        return not (isinstance(self.noise, str) and self.noise == "auto")

    def _add_blocks(self, blocks: Blocks) -> Self:
        """`partial_fit` for examples that are not in memory."""
        if blocks.n_classes != self.n_classes_:
            raise ValueError(
                f"`logits` must have the {self.n_classes_} columns used in `fit`; got "
                f"{blocks.n_classes}."
            )
        scored = ScoredBlocks(blocks, self._count_scores)
        self._learn(self.table_ + self._tabulate_blocks(scored))
        self._set_fit_scores(merged_scores([self.fit_scores_, scored.table]))
        return self

    def _tabulate_blocks(self, blocks: Blocks) -> StabilityTable:
        def work(block: Block) -> State:
            table = self._tabulate(block.logits, block.correct, block.weights)
            return table.weight, table.correct

        weight, correct = blocks.total(work)
        if not weight.any():
            raise ValueError("`sample_weight` must not be zero everywhere. Give some a weight.")
        return StabilityTable(weight.shape[1] - 1, weight, correct)

    def _check_parameters(self) -> None:
        check_count(self.n_bins)
        check_count(self.max_iterations, name="max_iterations")
        if self.draws is not None:
            check_draw_count(self.draws)
        if self.init not in ("accuracy", "confidence"):
            raise ValueError(f'`init` must be "accuracy" or "confidence"; got {self.init!r}.')

    def _select(
        self, logits: Logits, labels: IntArray, weights: FloatArray | None
    ) -> NoiseSelection | None:
        if isinstance(self.noise, str) and self.noise == "auto":
            return select_noise(logits, labels, sample_weight=weights)
        return None

    def _make_draws(self, n_classes: int) -> Draws | None:
        if self.draws is None:
            return None
        return Draws(self.noise_, draw_seed(self.random_state), int(self.draws), n_classes)

    def _level(self, logits: Logits) -> IntArray:
        """Stability of each row as an integer level of the table, (n,)."""
        if self.draws_ is None:
            return stability_levels(exact_stability(logits, self.noise_))
        return survivals(logits, self.draws_)

    def _tabulate(
        self, logits: Logits, correct: NDArray[np.bool_], weights: FloatArray | None
    ) -> StabilityTable:
        from_confidence = self.init_ == "confidence"
        start = bin_index(_softmax_confidence(logits), self.n_bins_) if from_confidence else None
        return StabilityTable.from_examples(
            self._level(logits),
            correct,
            levels=EXACT_LEVELS if self.draws_ is None else self.draws_.n_draws,
            sample_weight=weights,
            start=start,
            n_starts=self.n_bins_ if from_confidence else 1,
        )

    def _learn(self, table: StabilityTable) -> None:
        """Run the recursion on the table and keep what it learned."""
        schedule = learn_schedule(table, self.n_bins_, self.max_iterations)
        self.table_ = table
        self.accuracy_ = table.accuracy
        self._keep(schedule)
        if not schedule.converged:
            warn_user(_not_converged_message(schedule), ConvergenceWarning)

    def _keep(self, schedule: Schedule) -> None:
        self._curve = Curve(schedule, self.table_.levels, self.accuracy_)
        self.alpha_, self.beta_ = schedule.alpha, schedule.beta
        self.occupied_ = schedule.occupied
        self.n_iterations_ = schedule.n_steps
        self.ending_ = schedule.ending
        self.converged_ = schedule.converged
        self.validation_ece_ = schedule.validation_ece

    def _confidence(self, logits: Logits) -> FloatArray:
        level = self._level(logits)
        if self.init_ == "accuracy":
            return self._curve.confidence[level]
        start = _softmax_confidence(logits)
        return self._curve.schedule.replay(level / self.table_.levels, start)

    def _confidence_bounds(self, logits: TopK) -> tuple[FloatArray, FloatArray]:
        """Least and greatest confidence between the levels of the least and greatest stability."""
        if self.init_ != "accuracy":
            raise ValueError(
                f'`confidence_bounds` needs `init="accuracy"`; got {self.init_!r}: the softmax '
                "confidence from which such an example starts is not known either."
            )
        low, high = (stability_levels(gamma) for gamma in exact_bounds(logits, self.noise_))
        return range_extremes(self._curve.confidence, low, high)

    def _fit_interval(self, logits: Logits, table: ScoreTable, level: float) -> FloatArray:
        """From groups of neighbouring stability, which the table has counted anyway."""
        count, correct = (
            part.sum(axis=0).astype(np.int64) for part in (self.table_.weight, self.table_.correct)
        )
        return accuracy_intervals(count, correct, self._level(logits), level)

    def _proba(self, logits: Logits) -> FloatArray:
        return share_rest(logits, self._confidence(logits), _unbounded(self.noise_))

    def _identity(self) -> dict[str, Any]:
        """What two calibrators must share for their tables to add up."""
        names = ("noise_", "draws_", "n_bins_", "init_", "n_classes_")
        return {name: getattr(self, name) for name in names}

    def _without_examples(self) -> Hoki:
        """A calibrator like this one, to be given a table."""
        twin = type(self)(**self.get_params(deep=False))
        twin.selection_ = None
        twin.noise_, twin.draws_ = self.noise_, self.draws_
        twin.n_bins_, twin.init_ = self.n_bins_, self.init_
        twin._remember_classes(self.n_classes_)
        return twin

    def _state(self) -> dict[str, Any]:
        cells = self.table_.occupied()
        return {
            "noise": self.noise_,
            "draws": self.draws_ and self.draws_.to_dict(),
            "n_bins": self.n_bins_,
            "init": self.init_,
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
        self.selection_ = None
        self.noise_ = check_noise(state["noise"])
        self.n_bins_ = check_count(state["n_bins"])
        self.init_ = "confidence" if state["init"] == "confidence" else "accuracy"
        self.draws_ = state["draws"] and Draws.from_dict(
            state["draws"], self.noise_, self.n_classes_
        )
        self.table_ = _stored_table(state["table"], self.n_bins_, self.init_, self.draws_)
        self.accuracy_ = float(state["accuracy"])
        self._keep(_stored_schedule(state, self.n_bins_))


def _unbounded(noise: Noise) -> Noise:
    """Noise of the same deviation under which no possible class has chance 0."""
    if isinstance(noise, Uniform):
        return Gaussian(noise.width * noise.unit_deviation)
    return noise


def _stored_table(
    stored: dict[str, Any], n_bins: int, init: str, draws: Draws | None
) -> StabilityTable:
    levels = EXACT_LEVELS if draws is None else draws.n_draws
    if stored["levels"] != levels:
        raise ValueError(f"table must have {levels} levels; got {stored['levels']}")
    cells = Cells(stored["start"], stored["level"], stored["weight"], stored["correct"])
    n_starts = n_bins if init == "confidence" else 1
    return StabilityTable.from_cells(cells, levels=levels, n_starts=n_starts)


def _stored_schedule(state: dict[str, Any], n_bins: int) -> Schedule:
    alpha, beta, ending = state["alpha"], state["beta"], state["ending"]
    if alpha.ndim != 2 or alpha.shape != beta.shape or alpha.shape[1] != n_bins:
        raise ValueError(f"alpha and beta must be (steps, {n_bins}); got {alpha.shape}")
    if ending not in get_args(Ending):
        raise ValueError(f"ending must be one of {get_args(Ending)}; got {ending!r}")
    return Schedule(alpha, beta, ending, float(state["validation_ece"]))


def _softmax_confidence(logits: Logits) -> FloatArray:
    """The uncalibrated confidence: the softmax is the stability under unit Gumbel noise."""
    return gumbel.stability(logits, 1.0)


def _not_converged_message(schedule: Schedule) -> str:
    left = f"its validation ECE is {schedule.validation_ece:.1e}, where a fixed point has 0"
    if schedule.ending == "cycle":
        return (
            "Hoki did not converge: some validation examples go back and forth between bins for "
            f"ever; {left}. If that matters, try another `n_bins` or `noise`."
        )
    return (
        f"Hoki did not converge in {schedule.n_steps} iterations: validation examples still change "
        f"their bins; {left}. Raise `max_iterations`, or use fewer `n_bins`."
    )
