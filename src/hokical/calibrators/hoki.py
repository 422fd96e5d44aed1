"""Hoki: confidence from how often a label survives noise on the logits (Jang et al.,
2021).

`noise_selection` chooses the noise, `_fitting.recursion` has Algorithm 1, and
`rules.hoki.Curve.from_steps` Algorithm 2. Between them is a stability table, a sum over
the examples: so tables of parts add up, and a fit needs one pass over the logits.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import Any, Literal, Self

import numpy as np

from hokical._core import arrays
from hokical._core.arrays import Array, BoolArray, FloatArray, float64_scope
from hokical._core.checks import (
    bin_index,
    check_bins,
    check_choice,
    check_count,
    sum_by,
)
from hokical._core.logits import by_blocks, per_row
from hokical._core.runtime import ConvergenceWarning, warn_user
from hokical._core.schema import InputSchema
from hokical._core.storage import fingerprint
from hokical._fitting.examples import (
    Examples,
    Partition,
    read_sample,
    warn_about_examples,
    warn_of_copies,
    with_stats,
)
from hokical._fitting.recursion import Schedule, Unseen, learn_schedule
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.noise_selection import NoiseSelection, choose_noise
from hokical.calibrators.predictor import input_of, warn_of_probabilities
from hokical.calibrators.stored import Fit, MethodInfo
from hokical.guarantees.evidence import FitRecord
from hokical.guarantees.scores import (
    LEVELS,
    ScoreTable,
    confidence_log_odds,
    score_levels,
)
from hokical.rules.hoki import Curve, HokiRule
from hokical.stability import gumbel
from hokical.stability.noise import Noise, check_noise
from hokical.stability.sampled import MOST_DRAWS, Draws, draw_seed
from hokical.stability.tables import EXACT_LEVELS, StabilityTable

_ONE_PASS = (
    '`noise` must be given for more than 4 million logits that can be read only once; got "auto", '
    "which reads them twice: to choose the noise, and to count all rows. Pass a "
    "function that returns a new iterator, or a noise such as `Gaussian(2.0)` (see "
    "`select_noise`)."
)


class Hoki(Calibrator):
    """Calibrate by label stability.

    Noise is added to the logits; the probability that the label survives is the
    example's stability. Per confidence bin the method learns how stability relates to
    being right, and repeats until no validation example changes its bin. Labels are
    never changed.

    `predict_proba` divides the remaining probability among the other classes in
    proportion to the probability that noise switches the label to each. Uniform noise
    would give 0 to classes out of its reach; Gaussian noise of the same deviation is
    used instead.

    Parameters
    ----------
    noise : "auto" or Noise
        Such as `Gaussian(2.0)`.
        "auto" chooses family and width on the validation set (`select_noise`); of more
        than 4 million logits, on the sample of rows that other methods are fitted on. A
        second pass then counts all rows. With a given noise, one pass is enough.
    draws : int, optional
        None computes stability exactly. A number M draws M noise vectors once, by
        `random_state`, and counts over them, as in the paper. (`noise="auto"` is always
        chosen exactly.)
    n_bins : int
        Number of equal-width confidence bins.
    max_iter : int
        Maximum number of steps of the recursion.
    unseen : {"nearest", "as_printed"}
        The confidence where the validation set has no example. "nearest" uses the
        nearest examples: in a gap between them confidence stays between theirs, above
        the most stable one it stays, below the least stable one it falls with stability
        towards 1 / classes. It is never 0 or 1: a bin of n examples gives at least 1 /
        (n + 2) and at most (n + 1) / (n + 2). "as_printed" does what Algorithms 1 and 2
        print, to the last of `max_iter` steps: bins without a mistake give 1, and a
        cycle of bins goes on to the end. What they leave open is decided here: the
        printed alpha of a bin without validation examples is 0 / 0; it leaves a
        confidence where it is, which can be 0.97 for equal logits.
    random_state : int, RandomState, Generator or None
        Seed of the `draws`; not used when stability is exact.

    Attributes
    ----------
    noise_, selection_ : the noise in use, and what `noise="auto"` tried
        (NoiseSelection) or None
    draws_ : the shared noise vectors (seed and shape), or None when exact
    accuracy_ : accuracy on the validation set
    alpha_, beta_ : (n_iter_, n_bins), NaN in bins without validation examples
    occupied_ : (n_iter_, n_bins) bool, the bins with validation examples
    converged_, ending_ : "converged" (no example changes its bin; every bin's mean
        confidence is its accuracy), "cycle" (a few examples go back and forth between
        bins) or "limit" (`max_iter` reached). A cycle ends at the step that fits best;
        as printed, at `max_iter`. If some validation ECE remains, or as printed, a
        warning says so
    validation_ece_ : the remaining ECE on the validation set, 0 up to rounding if
        converged, before confidences are kept away from 0 and 1 (see `unseen`), which
        adds at most 1 / n for each such bin
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
        "Jang, Ivanov, Lee, Weimer: Confidence Calibration Using Logits "
        "Transformations, 2021, arXiv:2102.12680",
        "a dozen stability passes to choose the noise, then one",
        fits_floor=False,  # it looks at whether the label was right
        accepts_top_k=True,
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
    n_bins_: int

    def __init__(
        self,
        *,
        noise: Noise | Literal["auto"] = "auto",
        draws: int | None = None,
        n_bins: int = 15,
        max_iter: int = 200,
        unseen: Unseen = "nearest",
        random_state: int | np.random.RandomState | np.random.Generator | None = 0,
    ) -> None:
        self.noise = noise
        self.draws = draws
        self.n_bins = n_bins
        self.max_iter = max_iter
        self.unseen = unseen
        self.random_state = random_state

    def partial_fit(
        self, logits: object, labels: object = None, sample_weight: object = None
    ) -> Self:
        """Add more validation examples; the result equals one `fit` on all of them.

        (An example halfway between two levels may be counted at either, see
        `StabilityTable`.) With `noise="auto"` the first call chooses the noise, from
        its examples alone, and later calls keep it. To choose on other data, pass
        `select_noise(...).noise`.
        """
        if not self.is_fitted:
            return self.fit(logits, labels, sample_weight)
        rows = self.read_pair(logits, labels, sample_weight, None, fitted_by=self)
        names = self.class_names
        with float64_scope(rows.scores):
            examples, _ = self._reader.read(rows, names, self.schema_)
            if isinstance(examples, Examples):
                warn_of_probabilities(examples.logits, self.predictor_)
            return self.partial_fit_partition(examples)

    def partial_fit_partition(self, examples: Partition) -> Self:
        """`partial_fit` on examples that need not be in memory."""
        if examples.n_classes != self.n_classes_:
            raise ValueError(
                f"`logits` must have one column per class, the {self.n_classes_} used "
                f"in `fit`; got {examples.n_classes}."
            )
        count = partial(count_stability, rule=self.rule_, n_starts=self.table_.n_starts)
        stats = examples.reduce(partial(with_stats, count)).checked()
        table = self.table_ + stats.result
        record = self.predictor_.fit_record + stats.record
        return self.learn_from_counts(self.rule_, table, record, self.schema_)

    def merge(self, *others: Self) -> Self:
        """A new calibrator from this one and others fitted on other examples with the
        same noise.

        Equal to one fit on all the examples together.
        """
        fitted = (self, *others)
        for calibrator in fitted:
            if not isinstance(calibrator, Hoki):
                raise TypeError(
                    f"`merge` takes fitted Hoki calibrators; got {calibrator!r}."
                )
            calibrator.check_fitted()
        columns_of_fits = (calibrator.schema_.columns for calibrator in fitted)
        columns = next(filter(None, columns_of_fits), ())
        first = _settings(self, columns)
        for calibrator in others:
            second = _settings(calibrator, columns)
            if first != second:
                raise ValueError(
                    f"calibrators must agree to be merged; got {first} and {second}. "
                    "Fit each with the same `noise`, `draws`, `random_state`, `n_bins` "
                    "and columns."
                )
        return copy(self).learn_from_counts(
            self.rule_,
            reduce(add, (calibrator.table_ for calibrator in fitted)),
            reduce(add, (calibrator.predictor_.fit_record for calibrator in fitted)),
            replace(self.schema_, columns=columns),
        )

    def stability(self, logits: object) -> Array:
        """Label stability (n,) under the fitted noise, rounded to the levels of the
        rule.
        """
        like = input_of(logits)
        with float64_scope(like):
            data = self.fitted.read(logits)
            level = by_blocks(self.rule_.on_device_of(data).level, data)
            return arrays.to_input_library(level / float(self.rule_.levels), like)

    def _check_parameters(self) -> None:
        check_bins(self.n_bins)
        check_count("max_iter", self.max_iter)
        if self.noise != "auto":
            check_noise(self.noise)
        if self.draws is not None:
            remedy = "None solves the integral."
            check_count("draws", self.draws, most=MOST_DRAWS, remedy=remedy)
        check_choice("unseen", self.unseen, Unseen)

    def _learn(self, examples: Partition, schema: InputSchema) -> None:
        """Choose the noise on the sample that other methods are fitted on; then count
        all rows.
        """
        n_bins = int(self.n_bins)
        sample: Examples | None = None
        if self.noise == "auto":
            refusal = None if examples.repeatable else _ONE_PASS
            sample, stats = read_sample(examples, refusal=refusal)
            self.selection_ = choose_noise(sample)
        rule = self._measuring_rule(examples.n_classes)
        count = partial(count_stability, rule=rule, n_starts=self._n_starts(n_bins))
        if sample is None:
            stats = examples.reduce(partial(with_stats, count)).checked()
            table = stats.result
        else:
            counted = sample if sample.sampled_from is None else examples
            table = counted.reduce(count)
        self.n_bins_ = n_bins
        schema = schema.with_examples(
            log_probabilities=stats.log_probabilities,
            like_probabilities=stats.like_probabilities,
        )
        self.learn_from_counts(rule, table, stats.record, schema)
        warn_about_examples(self.name, self.method.examples_needed, stats, self.rule_)
        if schema.members is None:
            sketch = stats.record.sketch
            warn_of_copies(examples if sample is None else sample, sketch)

    def _measuring_rule(self, n_classes: int) -> HokiRule:
        """A rule that measures stability; what its confidences are is not learned
        yet.
        """
        noise = self.noise if self.selection_ is None else self.selection_.noise
        noise = check_noise(noise)
        no_link = Curve(np.zeros(1), np.zeros(1), np.full(1, 0.5))
        if self.draws is None:
            return HokiRule(noise, None, EXACT_LEVELS, no_link)
        draws = Draws(noise, draw_seed(self.random_state), int(self.draws), n_classes)
        return HokiRule(noise, draws, draws.n_draws, no_link)

    def _n_starts(self, n_bins: int) -> int:
        """The number of bins that examples start in."""
        return 1

    def learn_from_counts(
        self,
        rule: HokiRule,
        table: StabilityTable,
        record: FitRecord,
        schema: InputSchema,
    ) -> Self:
        """Run the recursion on counted examples, and keep the rule that it gives.

        `rule` has measured the stability in the `table`.
        """
        n_bins = self.n_bins_
        printed = self.unseen == "as_printed"
        schedule = learn_schedule(table, n_bins, self.max_iter, as_printed=printed)
        if not schedule.is_final(self.unseen):
            _warn_not_converged(schedule)
        link = self._link(schedule, table, 1.0 / schema.n_classes)
        learned = self.method.rule(rule.noise, rule.draws, rule.levels, link)
        if record.label_scores is not None:
            confidences = _count_confidences(learned, table, n_bins)
            record = replace(record, confidences=confidences)
        self._store_fit(Fit(learned, _report(schedule, table, n_bins)), schema, record)
        return self

    def _link(self, schedule: Schedule, table: StabilityTable, chance: float) -> Curve:
        """Confidence as a function of stability."""
        return schedule.curve(table, self.unseen, chance)

    def _restore(self, document: dict[str, Any]) -> None:
        super()._restore(document)
        self.selection_ = None  # the trials are not stored
        starts = self._n_starts(check_bins(self.n_bins_))
        core = self.rule_.core
        levels = core.levels if isinstance(core, HokiRule) else None
        if (self.table_.n_starts, self.table_.levels) != (starts, levels):
            raise ValueError(
                "the stability table does not belong to the rule of this file."
            )


def _settings(calibrator: Hoki, columns: tuple[str, ...]) -> dict[str, object]:
    """What fits must agree in to be merged; `columns` are those of fits on arrays.

    Fits on ensembles have weights of members of their own, told by a hash of them.
    """
    members = calibrator.schema_.members
    pool = None if members is None else fingerprint({"members": members})[:8]
    return {
        "noise": calibrator.noise_,
        "draws": calibrator.draws_,
        "n_bins": calibrator.n_bins_,
        "n_classes": calibrator.n_classes_,
        "columns": calibrator.schema_.columns or columns,
        "pool": pool,
    }


def count_stability(block: Examples, rule: HokiRule, n_starts: int) -> StabilityTable:
    """The examples by their level; and, if `n_starts` is above 1, by the bin of
    their softmax.
    """
    logits = block.logits
    start = None
    if n_starts > 1:
        start = bin_index(logits.to_host(gumbel.stability(logits, 1.0)), n_starts)
    level = per_row(rule.on_device_of(logits).level, logits).astype(np.int64)
    return StabilityTable.from_examples(
        level,
        block.correct,
        sample_weight=block.weights,
        levels=rule.levels,
        start=start,
        n_starts=n_starts,
    )


def _report(
    schedule: Schedule, table: StabilityTable, n_bins: int
) -> dict[str, object]:
    """What a fit reports, as attributes and in files."""
    return {
        "alpha": schedule.alpha,
        "beta": schedule.beta,
        "occupied": schedule.occupied,
        "ending": schedule.ending,
        "converged": schedule.converged,
        "validation_ece": schedule.validation_ece,
        "accuracy": table.accuracy,
        "n_iter": schedule.n_steps,
        "n_bins": n_bins,
        "table": table,
    }


def _warn_not_converged(schedule: Schedule) -> None:
    remedy = "raise `max_iter`, or use fewer `n_bins`"
    if schedule.ending == "cycle":
        remedy = "try another `n_bins` or `noise`"
    warn_user(
        f"Hoki did not converge ({schedule.ending}): after {schedule.n_steps} "
        "iterations some validation examples still change their bins, and the "
        f"validation ECE is {schedule.validation_ece:.1e}, not 0. If that matters, "
        f"{remedy}.",
        ConvergenceWarning,
        cause="Hoki did not converge",
    )


def _count_confidences(
    rule: HokiRule, table: StabilityTable, n_bins: int
) -> ScoreTable:
    """Right and wrong examples by their calibrated confidence."""
    cells = table.occupied_cells()
    starts = (cells.start + 0.5) / n_bins
    confidence = rule.confidence_at(cells.level, starts)
    level = score_levels(confidence_log_odds(confidence))
    count = sum_by(level, cells.weight, LEVELS)
    wrong = sum_by(level, cells.weight - cells.correct, LEVELS)
    return ScoreTable(count.astype(np.int64), wrong.astype(np.int64))
