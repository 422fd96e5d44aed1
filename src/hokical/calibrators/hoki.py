"""Hoki: confidence from how often a label survives noise on the logits (Jang et al.,
2021).

The noise is the one whose confidences differ most between examples. With all examples
in one bin, alpha and beta give the confidence alpha gamma + beta (1 - gamma), whose
standard deviation over the validation set is sigma_hat = |alpha - beta| std(gamma). The
mean of the noise moves no label, so the family and its width are all there is to
choose, and sigma_hat is a smooth function of the width: a wide grid of widths is tried
on a few rows, then narrower ones around the best on more rows.

Algorithm 1 runs on a stability table, which takes one pass over the logits; Algorithm 2
is `rules.hoki.Curve.from_steps`. Each step groups the examples into confidence bins and
gives every bin two numbers: alpha, the accuracy of "the label survived", and beta, of
"the label switched". The new confidence is alpha gamma + beta (1 - gamma). When no
example changes its bin, the mean confidence of every bin is its accuracy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import cycle, islice
from operator import add
from typing import Any, Literal, Self

import numpy as np

from hokical._core import arrays
from hokical._core.arrays import Array, BoolArray, FloatArray, IntArray, float64_scope
from hokical._core.checks import bin_index, check_choice, check_count, sum_by
from hokical._core.logits import as_logits, by_blocks, per_row
from hokical._core.reading import as_labels, as_weights
from hokical._core.runtime import ConvergenceWarning, warn_user
from hokical._core.schema import InputSchema
from hokical._core.special import uniform_draws
from hokical._fitting import examples as fit_data
from hokical._fitting.examples import Examples, Partition
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import Fit, MethodInfo
from hokical.guarantees.control import can_be_counts
from hokical.guarantees.evidence import FitRecord
from hokical.guarantees.scores import (
    LEVELS,
    ScoreTable,
    confidence_log_odds,
    score_levels,
)
from hokical.rules.hoki import Curve, HokiRule
from hokical.stability import gumbel
from hokical.stability.noise import (
    NARROWEST,
    WIDEST,
    Noise,
    check_noise,
    default_families,
    family_named,
)
from hokical.stability.sampled import MOST_DRAWS, Draws, draw_seed
from hokical.stability.tables import EXACT_LEVELS, StabilityTable

#: No example changes its bin any more; or some go back and forth for ever; or steps ran
#: out.
Ending = Literal["converged", "cycle", "limit"]


@dataclass(eq=False)
class Schedule:
    """What Algorithm 1 learned: alpha and beta (steps, bins), NaN where no example was.

    `count` (bins,) are the examples of each bin at the last step.
    """

    alpha: FloatArray
    beta: FloatArray
    count: FloatArray
    ending: Ending
    validation_ece: float

    def __post_init__(self) -> None:
        self.n_steps = len(self.alpha)
        self.converged = self.ending == "converged"
        #: Which bins held validation examples at each step, (steps, bins).
        self.occupied: BoolArray = ~np.isnan(self.alpha)

    def smoothed(self) -> tuple[FloatArray, FloatArray]:
        """Alpha and beta for more than was seen: no bin is left alone, and none is
        certain.

        A bin without examples takes the numbers of the nearest one with some. Of n
        examples in a bin, however they came out, one more could be right or wrong: at
        the last step alpha and beta stay between 1 / (n + 2) and (n + 1) / (n + 2), the
        rule of succession for none and all.
        """
        alpha = self.alpha.copy()
        beta = self.beta.copy()
        least = 1.0 / (self.count + 2.0)
        for part in (alpha, beta):
            part[-1] = np.clip(part[-1], least, 1.0 - least)
        place = np.arange(alpha.shape[1])
        for step, occupied in enumerate(self.occupied):
            known = np.flatnonzero(occupied)
            nearest = known[np.abs(place[:, None] - known).argmin(axis=1)]
            alpha[step] = alpha[step, nearest]
            beta[step] = beta[step, nearest]
        return alpha, beta


def learn_schedule(
    table: StabilityTable, n_bins: int, max_iter: int, *, as_printed: bool = False
) -> Schedule:
    """Algorithm 1: repeat until no example changes its bin, at most `max_iter` times.

    A step depends on the bins alone, so once they return to an earlier state they
    repeat for ever. The recursion then ends at the step of the cycle whose bins fit
    best. The algorithm `as_printed` does not notice and goes on to the step `max_iter`,
    where the cycle happens to be by then.
    """
    cells = table.occupied_cells()
    stability = cells.level / table.levels
    bins = cells.start  # all examples have the same, unless there are several starts
    if table.n_starts == 1:
        bins = bin_index(np.full(cells.level.shape, table.accuracy), n_bins)
    # What alpha and beta are sums of: levels are integers, so the sums are exact (as
    # long as weights are whole numbers). Weights that are no counts are relative; there
    # are at least as many examples as cells.
    up = cells.level.astype(np.float64)
    down = (table.levels - cells.level).astype(np.float64)
    amount = cells.weight if can_be_counts(cells.weight) else np.ones_like(cells.weight)
    both = [
        part * each for each in (cells.weight, cells.correct) for part in (up, down)
    ]
    parts = np.stack([*both, amount])

    def fingerprint(bins: IntArray) -> bytes:  # short, as there is one for every step
        return hashlib.blake2b(bins.tobytes(), digest_size=16).digest()

    steps: list[tuple[FloatArray, FloatArray, FloatArray, float]] = []
    seen: dict[bytes, int] = {}
    mark = fingerprint(bins)
    while mark not in seen and len(steps) < max_iter:
        seen[mark] = len(steps)
        starts = np.flatnonzero(
            np.diff(bins, prepend=-1)
        )  # neighbours mostly share their bin
        runs = np.add.reduceat(parts, starts, axis=1)
        *rates, count = (sum_by(bins[starts], part, n_bins) for part in runs)
        alpha, beta = survival_rates(*rates)
        a, b = (
            alpha[bins],
            beta[bins],
        )  # none is NaN: a cell's own examples are in its bin
        confidence = np.clip((a - b) * stability + b, 0.0, 1.0)
        bins = bin_index(confidence, n_bins)
        gaps = sum_by(bins, cells.weight * confidence - cells.correct, n_bins)
        steps.append(
            (alpha, beta, count, float(np.abs(gaps).sum() / cells.weight.sum()))
        )
        mark = fingerprint(bins)
    ending: Ending = "limit"
    if mark in seen:
        first = seen[mark]
        ending = "converged" if first == len(steps) - 1 else "cycle"
    if ending == "cycle":
        best = 1 + min(range(first, len(steps)), key=lambda k: steps[k][-1])
        length = max_iter if as_printed else best
        steps = [*steps[:first], *islice(cycle(steps[first:]), length - first)]
    alphas, betas, counts, eces = zip(*steps, strict=True)
    return Schedule(np.array(alphas), np.array(betas), counts[-1], ending, eces[-1])


def survival_rates(
    kept: FloatArray,
    switched: FloatArray,
    kept_correct: FloatArray,
    switched_correct: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """alpha and beta from sums over the labels kept and switched; NaN for an empty bin.

    If nothing was kept, or nothing switched, both are the accuracy, as the paper prints
    it.
    """
    total = kept + switched
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = (kept_correct + switched_correct) / total
        one_sided = (kept == 0) | (switched == 0)
        alpha = np.where(one_sided, accuracy, kept_correct / kept)
        beta = np.where(one_sided, accuracy, switched_correct / switched)
    return alpha, beta


#: The families that are considered unless others are asked for.
FAMILIES = default_families()
#: The width is chosen on so many rows, or logits if that is fewer rows; with up to
#: twice as many rows, on all. sigma_hat is flat around its maximum: on all rows it is
#: within 1 % of the best.
_SAMPLE_ROWS = 8192
_SAMPLE_LOGITS = 1 << 23
#: Rows of the stages before, the widths of the grids, each of which spans a step of the
#: one before to both sides, and the share of the best sigma_hat below which a family is
#: tried no more.
_STAGE_ROWS = (256, 1024)
_GRID_POINTS = (12, 7, 5)
_CLEARLY_BEHIND = (0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Trial:
    """One setting and what it gave: alpha, beta and sigma_hat on `n_examples`
    examples.
    """

    noise: Noise
    alpha: float
    beta: float
    sigma_hat: float
    n_examples: int


@dataclass(frozen=True)
class NoiseSelection(Trial):
    """The best setting, and all `trials` in the order in which they were made."""

    trials: tuple[Trial, ...] = field(repr=False)


def select_noise(
    logits: Any,
    labels: Any,
    sample_weight: Any = None,
    *,
    families: Sequence[str] = FAMILIES,
) -> NoiseSelection:
    """Find the noise with the largest spread of one-bin confidences on a validation
    set.

    Widths of each family are tried with exact stability: a wide grid on 256 rows, a
    narrower one on 1024, and the last on all rows, or on 8192 of more than 16,384,
    drawn in proportion to their weights. (The paper's grid of 1640 settings is in
    hokical-paper.)

    Parameters
    ----------
    logits : array-like of shape (n, classes), or TopK
    labels : array-like of shape (n,)
        Class indices.
    sample_weight : array-like of shape (n,), optional
    families : sequence of str
        Names of the families of noise to consider, as "gumbel" (`Noise.family`).

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
    if isinstance(families, str) or not families:
        raise ValueError(
            f"`families` must be a non-empty sequence of names; got {families!r}."
        )
    with float64_scope(logits):
        data = as_logits(logits).without_gradient()
        truth = as_labels(labels, data.n_rows, data.n_classes)
        block = Examples(data, truth, as_weights(sample_weight, data.n_rows))
        return choose_noise(fit_data.sample_block(block), families)


def choose_noise(
    examples: Examples, families: Sequence[str] = FAMILIES
) -> NoiseSelection:
    """Find the noise on some of the rows."""
    most = max(
        _STAGE_ROWS[-1], min(_SAMPLE_ROWS, _SAMPLE_LOGITS // examples.logits.n_columns)
    )
    sample = sample_rows(examples, most)
    sizes = [min(rows, sample.n_rows) for rows in _STAGE_ROWS]
    stages = [sample.take(np.arange(k) * sample.n_rows // k) for k in sizes] + [sample]
    gaps = per_row(lambda part: part.gaps, stages[1].logits)
    weights = stages[1].counts
    usual = np.isfinite(gaps) & (gaps > 0.0) & (weights > 0.0)
    low = 0.5
    high = 2.0
    if (
        usual.any()
    ):  # from far below the smallest usual gap of the best two logits to far above
        known: dict[str, Any] = {"weights": weights[usual], "method": "inverted_cdf"}
        low, high = np.quantile(gaps[usual], [0.02, 0.98], **known).tolist()
        low = max(low / 4.0, NARROWEST)
        high = 8.0 * min(max(high, NARROWEST), WIDEST)
    kinds = map(family_named, families)
    grids = {
        kind: (low / kind.unit_deviation, high / kind.unit_deviation) for kind in kinds
    }
    trials: list[Trial] = []
    for stage, points, behind in zip(
        stages, _GRID_POINTS, _CLEARLY_BEHIND, strict=True
    ):
        best: dict[type[Noise], Trial] = {}
        for kind, ends in grids.items():
            found = _try_widths(stage, kind, np.geomspace(*ends, points))
            best[kind] = max(found, key=lambda trial: trial.sigma_hat)
            trials += found
        leader = max(best.values(), key=lambda trial: trial.sigma_hat)
        ahead = [
            k
            for k, trial in best.items()
            if trial.sigma_hat >= behind * leader.sigma_hat
        ]
        step = {
            kind: (grids[kind][1] / grids[kind][0]) ** (1.0 / (points - 1))
            for kind in ahead
        }
        grids = {
            k: (best[k].noise.width / step[k], best[k].noise.width * step[k])
            for k in ahead
        }
    return NoiseSelection(**vars(leader), trials=tuple(trials))


def _try_widths(
    examples: Examples, kind: type[Noise], widths: FloatArray
) -> list[Trial]:
    """Trials of one family with all examples in one bin (Equations 1 to 4 of the
    paper).

    Widths are rounded to three digits: sigma_hat is flat around its maximum, so
    rounding costs nothing, and they are the same on every machine, where the last bits
    of a search are not.
    """
    tidy = np.array(
        [float(f"{width:.2e}") for width in np.clip(widths, NARROWEST, WIDEST)]
    )
    gamma = examples.logits.to_host(kind.stabilities(examples.logits, tidy))
    counts = examples.counts
    hits = examples.counts * examples.correct
    kept, switched, kept_right, switched_right = (
        np.sum(weight * part, axis=1)
        for weight in (counts, hits)
        for part in (gamma, 1.0 - gamma)
    )
    alpha, beta = survival_rates(kept, switched, kept_right, switched_right)
    squares = counts * (gamma - (kept / counts.sum())[:, None]) ** 2
    spread = np.abs(alpha - beta) * np.sqrt(np.sum(squares, axis=1) / counts.sum())
    columns = zip(*(each.tolist() for each in (tidy, alpha, beta, spread)), strict=True)
    return [Trial(kind.of_width(w), a, b, s, examples.n_rows) for w, a, b, s in columns]


def sample_rows(examples: Examples, n_rows: int) -> Examples:
    """So many rows, with a weight of 1 each, or all that count if they are hardly more.

    One at random, always the same, in each of many equal parts of the sum of the
    weights: rows come in proportion to their weights, and no order of the rows can hide
    some of them.
    """
    if np.count_nonzero(examples.counts) <= 2 * n_rows:
        return examples.without_weightless()
    total = np.cumsum(examples.counts)
    places = (np.arange(n_rows) + uniform_draws(0, (1, n_rows))[0]) * (
        total[-1] / n_rows
    )
    return replace(
        examples.take(np.searchsorted(total, places, side="right")), weights=None
    )


def count_stability(block: Examples, rule: HokiRule, n_starts: int) -> StabilityTable:
    """The examples by their level; and, if `n_starts` is above 1, by the bin of
    their softmax.
    """
    logits = block.logits
    start = None
    if n_starts > 1:
        start = bin_index(logits.to_host(gumbel.stability(logits, 1.0)), n_starts)
    level = per_row(rule.on_device_of(logits).level, logits).astype(np.int64)
    cells: dict[str, Any] = {
        "levels": rule.levels,
        "start": start,
        "n_starts": n_starts,
    }
    return StabilityTable.from_examples(
        level, block.correct, sample_weight=block.weights, **cells
    )


Unseen = Literal["nearest", "as_printed"]
_ROUNDING = 1e-12
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
        random_state: Any = 0,
    ) -> None:
        self.noise = noise
        self.draws = draws
        self.n_bins = n_bins
        self.max_iter = max_iter
        self.unseen = unseen
        self.random_state = random_state

    def partial_fit(
        self, logits: Any, labels: Any = None, sample_weight: Any = None
    ) -> Self:
        """Add more validation examples; the result equals one `fit` on all of them.

        (An example halfway between two levels may be counted at either, see
        `StabilityTable`.) With `noise="auto"` the first call chooses the noise, from
        its examples alone, and later calls keep it. To choose on other data, pass
        `select_noise(...).noise`.
        """
        if not self.is_fitted:
            return self.fit(logits, labels, sample_weight)
        given = self.read_pair(logits, labels, sample_weight, None, fitted_by=self)
        names = self.class_names
        with float64_scope(given.scores):
            examples, _ = self._read_examples(given, names, self.schema_)
            return self.partial_fit_partition(examples)

    def partial_fit_partition(self, examples: Partition) -> Self:
        """`partial_fit` on examples that need not be in memory."""
        if examples.n_classes != self.n_classes_:
            raise ValueError(
                f"`logits` must have one column per class, the {self.n_classes_} used "
                f"in `fit`; got {examples.n_classes}."
            )
        count = partial(count_stability, rule=self.rule_, n_starts=self.table_.n_starts)
        stats = examples.reduce(partial(fit_data.with_stats, count)).checked()
        table = self.table_ + stats.result
        record = self.predictor_.fit_record + stats.record
        return self._run_recursion(self.rule_, table, record, self.schema_)

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
        columns = next((c.schema_.columns for c in fitted if c.schema_.columns), ())
        for calibrator in others:
            self._check_mergeable(calibrator, columns)
        merged = copy(self)
        return merged._run_recursion(
            self.rule_,
            reduce(add, (calibrator.table_ for calibrator in fitted)),
            reduce(add, (calibrator.predictor_.fit_record for calibrator in fitted)),
            replace(self.schema_, columns=columns),
        )

    def _check_mergeable(self, other: Self, columns: tuple[str, ...]) -> None:
        """Raise unless another calibrator measured the same, of the same columns."""
        first, second = (
            {
                "noise": calibrator.noise_,
                "draws": calibrator.draws_,
                "n_bins": calibrator.n_bins_,
                "n_classes": calibrator.n_classes_,
                "columns": calibrator.schema_.columns or columns,  # arrays have none
            }
            for calibrator in (self, other)
        )
        if first != second:
            raise ValueError(
                f"calibrators must agree to be merged; got {first} and {second}. Fit "
                "each with the same `noise`, `draws`, `random_state`, `n_bins` and "
                "columns."
            )

    def stability(self, logits: Any) -> Array:
        """Label stability (n,) under the fitted noise, rounded to the levels of the
        rule.
        """
        with float64_scope(logits):
            data = self.fitted.read(logits)
            level = by_blocks(self.rule_.on_device_of(data).level, data)
            return arrays.to_input_library(level / float(self.rule_.levels), logits)

    def _check_parameters(self) -> None:
        check_count("n_bins", self.n_bins)
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
        n_starts = self._n_starts(n_bins)
        sample: Examples | None = None
        if self.noise == "auto":
            refusal = None if examples.repeatable else _ONE_PASS
            sample, stats = fit_data.read_sample(examples, refusal=refusal)
            self.selection_ = choose_noise(sample)
        chosen = self.noise if self.selection_ is None else self.selection_.noise
        noise = check_noise(chosen)
        draws: Draws | None = None
        if self.draws is not None:
            seed = draw_seed(self.random_state)
            draws = Draws(noise, seed, int(self.draws), examples.n_classes)
        # It measures stability; of the link nothing is asked yet.
        link = Curve(np.zeros(1), np.zeros(1), np.full(1, 0.5))
        levels = EXACT_LEVELS if draws is None else draws.n_draws
        rule = HokiRule(noise, draws, levels, link)
        count = partial(count_stability, rule=rule, n_starts=n_starts)
        if sample is None:
            stats = examples.reduce(partial(fit_data.with_stats, count)).checked()
            table = stats.result
        else:
            counted = sample if sample.sampled_from is None else examples
            table = counted.reduce(count)
        self.n_bins_ = n_bins
        schema = schema.with_examples(
            log_probabilities=stats.log_probabilities,
            like_probabilities=stats.like_probabilities,
        )
        self._run_recursion(rule, table, stats.record, schema)
        fit_data.warn_about_examples(self.name, stats, self.rule_)
        fit_data.warn_of_copies(examples if sample is None else sample, stats.record)

    def _n_starts(self, n_bins: int) -> int:
        """How many bins examples start in."""
        return 1

    def _run_recursion(
        self,
        rule: HokiRule,
        table: StabilityTable,
        record: FitRecord,
        schema: InputSchema,
    ) -> Self:
        """Run the recursion on the table, and keep the rule with the learned link."""
        n_bins = self.n_bins_
        printed = self.unseen == "as_printed"
        schedule = learn_schedule(table, n_bins, self.max_iter, as_printed=printed)
        # A cycle that ends at a step where every bin fits needs no remedy.
        if not schedule.converged and (printed or schedule.validation_ece > _ROUNDING):
            _warn_not_converged(schedule)
        report = {
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
        link = self._link(schedule, table, 1.0 / schema.n_classes)
        learned = self.method.rule(rule.noise, rule.draws, rule.levels, link)
        if record.label_scores is not None:
            confidences = _count_confidences(learned, table, n_bins)
            record = replace(record, confidences=confidences)
        self._store_fit(Fit(learned, report), schema, record)
        return self

    def _link(self, schedule: Schedule, table: StabilityTable, chance: float) -> Any:
        """From stability to confidence."""
        if self.unseen == "as_printed":
            return Curve.from_steps(
                schedule.alpha, schedule.beta, table.levels, table.accuracy
            )
        curve = Curve.from_steps(*schedule.smoothed(), table.levels, table.accuracy)
        return curve.held_by(np.flatnonzero(table.weight[0]), table.levels, chance)

    def _restore(self, document: dict[str, Any]) -> None:
        super()._restore(document)
        self.selection_ = None  # the trials are not stored
        starts = self._n_starts(check_count("n_bins", self.n_bins_))
        levels = getattr(self.rule_.core, "levels", None)
        if (self.table_.n_starts, self.table_.levels) != (starts, levels):
            raise ValueError(
                "the stability table does not belong to the rule of this file."
            )


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
