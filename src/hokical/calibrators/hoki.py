"""Hoki: confidence from how often a label survives noise on the logits (Jang et al., 2021)."""

from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import Array, BoolArray, FloatArray, float64_scope, to_input_library
from hokical._core.checks import check_choice, check_count, sum_by
from hokical._core.logits import by_blocks
from hokical._core.messages import ConvergenceWarning, warn_user
from hokical._fitting.examples import ExampleStats, InMemory, Partition, read_sample
from hokical._fitting.hoki import (
    NoiseSelection,
    Schedule,
    choose_noise,
    count_stability,
    count_with_stats,
    learn_schedule,
)
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import Fit, MethodInfo
from hokical.guarantees.calibration_data import CalibrationData
from hokical.guarantees.scores import LEVELS, ScoreTable, confidence_log_odds, score_levels
from hokical.rules.hoki import Curve, HokiRule, Steps
from hokical.stability.noise import Noise, check_noise
from hokical.stability.sampled import Draws, check_draw_count, draw_seed
from hokical.stability.tables import EXACT_LEVELS, StabilityTable

Init = Literal["accuracy", "confidence"]
Unseen = Literal["nearest", "as_printed"]
_ROUNDING = 1e-12
_ONE_PASS = (
    '`noise` must be given for more than 4 million logits that can be read only once; got "auto", '
    "which reads them twice: to choose the noise, and to count all rows. Pass a function that "
    "returns a new iterator, or a noise such as `Gaussian(2.0)` (see `select_noise`)."
)


class Hoki(Calibrator):
    """Calibrate by label stability.

    Noise is added to the logits; the probability that the label survives is the example's
    stability. Per confidence bin the method learns how stability relates to being right, and
    repeats until no validation example changes its bin. Labels are never changed.

    `predict_proba` divides the remaining probability among the other classes in proportion to the
    probability that noise switches the label to each. Uniform noise would give 0 to classes out of
    its reach; Gaussian noise of the same deviation is used instead.

    Parameters
    ----------
    noise : "auto" or a Gaussian, Uniform or Gumbel
        "auto" chooses family and width on the validation set (`select_noise`); of more than 4
        million logits, on the sample of rows that other methods are fitted on. A second pass then
        counts all rows. With a given noise, one pass is enough.
    draws : int, optional
        None computes stability exactly. A number M draws M noise vectors once, by `random_state`,
        and counts over them, as in the paper. (`noise="auto"` is always chosen exactly.)
    n_bins : int
        Number of equal-width confidence bins.
    max_iter : int
        Maximum number of steps of the recursion.
    init : {"accuracy", "confidence"}
        Where the recursion starts: at the validation accuracy, or at each example's softmax
        confidence.
    unseen : {"nearest", "as_printed"}
        The confidence where the validation set has no example. "nearest" uses the nearest examples:
        in a gap between them confidence stays between theirs, above the most stable one it stays,
        below the least stable one it falls with stability towards 1 / classes. It is never 0 or 1:
        a bin of n examples gives at least 1 / (n + 2) and at most (n + 1) / (n + 2).
        "as_printed" does what Algorithms 1 and 2 print, to the last of `max_iter` steps: bins
        without a mistake give 1, and a cycle of bins goes on to the end. What they leave open is
        decided here: the printed alpha of a bin without validation examples is 0 / 0; it leaves a
        confidence where it is, which can be 0.97 for equal logits.
    random_state : int, RandomState, Generator or None
        Seed of the `draws`; not used when stability is exact.

    Attributes
    ----------
    noise_, selection_ : the noise in use, and what `noise="auto"` tried (NoiseSelection) or None
    draws_ : the shared noise vectors (seed and shape), or None when exact
    accuracy_ : accuracy on the validation set
    alpha_, beta_ : (n_iter_, n_bins), NaN in bins without validation examples
    occupied_ : (n_iter_, n_bins) bool, the bins with validation examples
    converged_, ending_ : "converged" (no example changes its bin; every bin's mean confidence is
        its accuracy), "cycle" (a few examples go back and forth between bins) or "limit"
        (`max_iter` reached). A cycle ends at the step that fits best; as printed, at `max_iter`.
        If some validation ECE remains, or as printed, a warning says so
    validation_ece_ : the remaining ECE on the validation set, 0 up to rounding if converged, before
        confidences are kept away from 0 and 1 (see `unseen`), which adds at most 1 / n for each
        such bin
    table_ : StabilityTable, the mergeable statistic that all of this is computed from

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

    method = MethodInfo(
        HokiRule,
        "Hoki (label stability)",
        "Jang, Ivanov, Lee, Weimer: Confidence Calibration Using Logits Transformations, 2021, "
        "arXiv:2102.12680",
        "a dozen stability passes to choose the noise, then one",
        fits_floor=False,  # it looks at whether the label was right
    )

    rule_: HokiRule
    noise_: Noise
    selection_: NoiseSelection | None = None
    draws_: Draws | None
    accuracy_: float
    alpha_: FloatArray
    beta_: FloatArray
    occupied_: BoolArray
    ending_: str
    validation_ece_: float
    table_: StabilityTable
    init_: str
    n_bins_: int

    def __init__(
        self,
        *,
        noise: Noise | Literal["auto"] = "auto",
        draws: int | None = None,
        n_bins: int = 15,
        max_iter: int = 200,
        init: Init = "accuracy",
        unseen: Unseen = "nearest",
        random_state: Any = 0,
    ) -> None:
        self.noise = noise
        self.draws = draws
        self.n_bins = n_bins
        self.max_iter = max_iter
        self.init = init
        self.unseen = unseen
        self.random_state = random_state

    def partial_fit(self, logits: Any, labels: Any = None, sample_weight: Any = None) -> Self:
        """Add more validation examples; the result equals one `fit` on all of them.

        (An example halfway between two levels may be counted at either, see `StabilityTable`.) With
        `noise="auto"` the first call chooses the noise, from its examples alone, and later
        calls keep it. To choose on other data, pass `select_noise(...).noise`.
        """
        known = self if hasattr(self, "rule_") else None
        rows = (logits, labels, sample_weight, None)
        return self._learn_from(self._partial_fit_partition, rows, known)

    def _partial_fit_partition(self, examples: Partition) -> Self:
        """`partial_fit` on examples that need not be in memory."""
        if not hasattr(self, "rule_"):
            return self._fit_partition(examples)
        if examples.n_classes != self.n_classes_:
            raise ValueError(
                f"`logits` must have one column per class, the {self.n_classes_} used in `fit`; "
                f"got {examples.n_classes}."
            )
        table, stats = count_with_stats(examples, self.rule_, self.table_.n_starts)
        kept = self.kept_ + stats.kept
        return self._learn_again(self, self.table_ + table, kept)

    def merge(self, *others: Self) -> Self:
        """A new calibrator from this one and others fitted on other examples with the same noise.

        Equal to one fit on all the examples together.
        """
        self._check_fitted()
        table = self.table_
        for other in others:
            if not isinstance(other, Hoki):
                raise TypeError(f"`merge` takes fitted Hoki calibrators; got {other!r}.")
            other._check_fitted()
            if self._identity() != other._identity():
                raise ValueError(
                    "calibrators must agree to be merged; got "
                    f"{self._identity()} and {other._identity()}. "
                    "Fit each with the same `noise`, `draws`, `random_state`, `n_bins` and `init`."
                )
            table = table + other.table_
        merged = type(self)(**self.get_params(deep=False))
        kept = reduce(add, (each.kept_ for each in (self, *others)))
        return merged._learn_again(self, table, kept)

    def _learn_again(self, known: Self, table: StabilityTable, kept: CalibrationData) -> Self:
        """Learn from a joined table with the rule of `known`."""
        found = self._learn(known.rule_, table, known.init_, known.n_bins_, known.n_classes_)
        self._keep(found, known.n_classes_, _add_counts(kept, found))
        return self

    def stability(self, logits: Any) -> Array:
        """Label stability (n,) under the fitted noise, rounded to the levels of the rule."""
        with float64_scope(logits):
            data = self._check_logits(logits)
            level = by_blocks(self.rule_.on_device_of(data).level, data)
            return to_input_library(level / float(self.rule_.levels), logits)

    def _check_parameters(self) -> None:
        check_count(self.n_bins)
        check_count(self.max_iter, name="max_iter")
        if self.noise != "auto":
            check_noise(self.noise)
        if self.draws is not None:
            check_draw_count(self.draws)
        check_choice("init", self.init, Init)
        check_choice("unseen", self.unseen, Unseen)

    def _fit_all(self, examples: Partition) -> tuple[Fit, ExampleStats]:
        """Choose the noise on the sample that other methods are fitted on; then count all rows."""
        n_bins, n_classes = int(self.n_bins), examples.n_classes
        n_starts = n_bins if self.init == "confidence" else 1
        if self.noise == "auto":
            refusal = None if examples.repeatable else _ONE_PASS
            sample, stats = read_sample(examples, refusal=refusal)
            self.selection_ = choose_noise(sample)
            rule = self._unlearned_rule(self.selection_.noise, n_classes)
            counted = InMemory(sample) if sample.sampled_from is None else examples
            count = partial(count_stability, rule=rule, n_starts=n_starts)
            table = counted.reduce(count, add)
        else:
            rule = self._unlearned_rule(check_noise(self.noise), n_classes)
            table, stats = count_with_stats(examples, rule, n_starts)
        found = self._learn(rule, table, self.init, n_bins, n_classes)
        return found, replace(stats, kept=_add_counts(stats.kept, found))

    def _unlearned_rule(self, noise: Noise, n_classes: int) -> HokiRule:
        """The rule that measures stability, with a constant link of 1/2."""
        nothing = Curve(np.zeros(1), np.zeros(1), np.full(1, 0.5))
        if self.draws is None:
            return HokiRule(noise, None, EXACT_LEVELS, nothing)
        draws = Draws(noise, draw_seed(self.random_state), int(self.draws), n_classes)
        return HokiRule(noise, draws, draws.n_draws, nothing)

    def _learn(
        self, rule: HokiRule, table: StabilityTable, init: str, n_bins: int, n_classes: int
    ) -> Fit:
        """Run the recursion on the table; return the rule with the learned link."""
        printed = self.unseen == "as_printed"
        schedule = learn_schedule(table, n_bins, self.max_iter, as_printed=printed)
        # A cycle that ends at a step where every bin fits needs no remedy.
        if not schedule.converged and (printed or schedule.validation_ece > _ROUNDING):
            remedy = "raise `max_iter`, or use fewer `n_bins`"
            if schedule.ending == "cycle":
                remedy = "try another `n_bins` or `noise`"
            warn_user(
                f"Hoki did not converge ({schedule.ending}): after {schedule.n_steps} iterations "
                "some validation examples still change their bins; its validation ECE is "
                f"{schedule.validation_ece:.1e}, where a fixed point has 0. If that matters, "
                f"{remedy}.",
                ConvergenceWarning,
            )
        link = self._link(schedule, table, rule.levels, init == "accuracy", n_classes)
        shown = ("alpha", "beta", "occupied", "ending", "converged", "validation_ece")
        report = {name: getattr(schedule, name) for name in shown}
        report |= {"accuracy": table.accuracy, "n_iter": schedule.n_steps, "init": init}
        report |= {"n_bins": n_bins, "table": table}
        return Fit(replace(rule, link=link), report)

    def _link(
        self, schedule: Schedule, table: StabilityTable, levels: int, together: bool, n_classes: int
    ) -> Curve | Steps:
        """From stability to confidence; a curve if all examples start `together`."""
        if self.unseen == "as_printed":
            steps = Steps(schedule.alpha, schedule.beta)
            return Curve.from_steps(steps, levels, table.accuracy) if together else steps
        seen = np.flatnonzero(table.weight.any(axis=0))
        ends = seen[[0, -1]] / levels
        steps = Steps(*schedule.smoothed(), ends, 1.0 / n_classes)
        if not together:
            return steps
        return Curve.from_steps(steps, levels, table.accuracy).held_by(seen, levels, steps.chance)

    def _restore(self, document: dict[str, Any]) -> None:
        super()._restore(document)
        self.selection_ = None  # the trials are not stored
        rule, starts = self.rule_.core, 1
        if self.init_ == "confidence":
            starts = check_count(self.n_bins_)
        levels = rule.levels if isinstance(rule, HokiRule) else None
        if (self.table_.n_starts, self.table_.levels) != (starts, levels):
            raise ValueError("the stability table does not belong to the rule of this file.")

    def _identity(self) -> dict[str, Any]:
        """What two calibrators must share for their tables to be added."""
        names = ("noise_", "draws_", "n_bins_", "init_", "n_classes_")
        return {name: getattr(self, name) for name in names}


def _add_counts(kept: CalibrationData, found: Fit) -> CalibrationData:
    """With right and wrong examples by their confidence, from the table of all of them."""
    if kept.fit_scores is None:
        return kept
    rule: Any = found.rule
    cells = found.report["table"].occupied_cells()
    start = (cells.start + 0.5) / found.report["n_bins"]
    level = score_levels(confidence_log_odds(rule.confidence_at(cells.level, start)))
    parts = (cells.weight, cells.weight - cells.correct)
    count, wrong = (sum_by(level, part, LEVELS).astype(np.int64) for part in parts)
    return replace(kept, fit_confidences=ScoreTable(count, wrong))
