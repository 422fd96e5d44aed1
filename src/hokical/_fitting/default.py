"""The default: one structured rule, whose coefficients are an average, and a row
correction.

Structured scaling is fitted with several ridges, an infinitely large one included,
which is temperature scaling. Scores are linear in the coefficients, so an average of
coefficients is an average of scores, and again one rule. The weights of the ridges
minimise held-out log loss. Then the rule is moved, first towards temperature
scaling and then towards the uncalibrated scores, which have the same form, each time by
the weight

    1 / (1 + exp(gain - ERRORS * standard error of the gain))

of the held-out gain in log-likelihood: more than half without evidence for the step,
and next to nothing where the gain is clear.

The row correction is fitted on held-out probabilities, and averaged over ridges and
"none". With the margins d_k of a row, x_k = a d_k and the label's score b, the log loss
of the true class y is log(exp(b) + sum of exp(-x_k) over the others) + x_y, or - b if y
is the label. It depends on the row by two numbers, (log a, b), which are linear in a
constant and the features of the row (`rules.scaling.row_features`); so a fit has p = 2
(1 + features) coefficients whatever the number of classes. The Hessian is replaced by
its expectation (Fisher scoring).

Leaving out an example changes its own two numbers, by one Newton step, by

    S (I - W S)^-1 g,    S = F H^-1 F',

with g (2,) and W (2, 2) the derivatives of its own log loss, and F (2, p) its features.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from hokical._core.arrays import Array, FloatArray, ignore_overflow
from hokical._core.checks import effective_size
from hokical._core.logits import Logits, per_row
from hokical._core.runtime import one_blas_thread
from hokical._core.special import expit, pick, row_dots
from hokical._fitting import searches, two_classes
from hokical._fitting.examples import Examples, spaced_rows
from hokical._fitting.level import RIDGE, fit_level
from hokical._fitting.searches import DensePoint, log_losses, mean_loss, minimize_newton
from hokical._fitting.structured import fit_classes, fit_ridges
from hokical.rules import scaling
from hokical.rules.base import LEAST, as_scores, softmax, uncalibrated
from hokical.rules.scaling import StructuredRule

#: Ridges on standardised coefficients, in examples. Each fit starts from the one
#: before.
CORRECTION_RIDGES = (300.0, 30.0, 3.0)
#: A fit ends with a step that is expected to gain no more than this in the sum of all
#: log losses; Newton squares what is left.
ROW_TOLERANCE = 0.05
MAX_ITER = 50
#: No correction is used where "none" has more weight than this, or where no ridge is
#: better.
MOST_FOR_NONE = 0.5
#: Standard errors of the gain are doubled with so many examples.
FEW_TO_CORRECT = 50.0
_LIMITS = np.array([scaling.LARGEST_LOG_SCALE, scaling.LARGEST_SHIFT])


def fit_row_correction(
    examples: Examples, temperature: float = 1.0, features: FloatArray | None = None
) -> tuple[scaling.RowCorrection | None, FloatArray]:
    """A correction of logits divided by a temperature, or None.

    And each row's (log a, b) by a fit without it, (n, 2). The `features`
    (n, features) are those of the logits by default; of logits that are held out, they
    would tell their labels.
    """
    problem = CorrectionProblem(examples, temperature, features)
    point = problem.uncorrected
    coefs = []
    left_out = [point.raw]
    scores = [0.0]
    for ridge in CORRECTION_RIDGES:
        point = problem.fit(ridge, point)
        left_out.append(problem.leave_out(point))
        gain, error = problem.gain(left_out[-1])
        scores.append(examples.effective_size * (gain - error))
        coefs.append(point.coef)
    weights = np.exp(np.array(scores) - max(scores))
    weights /= weights.sum()
    if weights[0] > MOST_FOR_NONE or max(scores) <= 0.0:
        return None, left_out[0]
    mean = (weights[1:] @ np.array(coefs)).reshape(2, -1)
    correction = scaling.RowCorrection(problem.centre, problem.spread, *mean)
    return correction, np.einsum("r,rni->ni", weights, np.array(left_out))


class _Point(NamedTuple):
    """Every row's (log a, b) by coefficients (p,), not yet clipped, (n, 2); its log
    loss (n,); and the derivatives of that by the two numbers, (n, 2), and second ones,
    (n, 2, 2). With a ridge, also the penalised sum of log losses, its gradient (p,)
    and Hessian (p, p).
    """

    coef: FloatArray
    raw: FloatArray
    losses: FloatArray
    slopes: FloatArray
    curvatures: FloatArray
    value: float = np.nan
    gradient: FloatArray = np.empty(0)
    hessian: FloatArray = np.empty((0, 0))


class CorrectionProblem:
    """Rows with a `design` of features (n, 1 + features), and what each counts, (n,)."""

    def __init__(
        self, examples: Examples, temperature: float, features: Any = None
    ) -> None:
        self.examples = examples
        self.temperature = temperature
        share = examples.share
        if features is None:
            features = per_row(
                lambda b: scaling.row_features(b, temperature).T, examples.logits
            )
        self.centre = share @ features
        self.spread = np.sqrt(np.maximum(share @ (features - self.centre) ** 2, 1e-6))
        unit = scaling.standardise(features.T, self.centre, self.spread, np)
        self.design = np.vstack([np.ones(unit.shape[1]), unit]).T
        self.counts = share * examples.effective_size
        self.uncorrected = self.at(np.zeros(2 * self.design.shape[1]))

    def fit(self, ridge: float, start: _Point) -> _Point:
        """The minimum with a ridge, from that with another."""

        def evaluate(coef: FloatArray) -> _Point:
            return self.penalise(start if coef is start.coef else self.at(coef), ridge)

        def step(point: _Point) -> tuple[FloatArray, bool]:
            return np.asarray(
                np.linalg.solve(point.hessian, -point.gradient), np.float64
            ), True

        solution = minimize_newton(
            evaluate, start.coef, step, tol=ROW_TOLERANCE, max_iter=MAX_ITER
        )
        return cast(_Point, solution.point)

    def at(self, coef: FloatArray, raw: FloatArray | None = None) -> _Point:
        """The rows at coefficients (p,), or at (log a, b) (n, 2)."""
        raw = self.design @ coef.reshape(2, -1).T if raw is None else raw
        logits = self.examples.logits.with_margins()
        pair = np.clip(raw, -_LIMITS, _LIMITS)
        zeroth, first, second = searches.moment_sums(
            logits, np.exp(pair[:, 0]) / self.temperature
        )
        correct = self.examples.correct
        shift = pair[:, 1]
        odds = np.exp(pair[:, 1])
        true = np.exp(pair[:, 0]) * (self.examples.true_margins / self.temperature)
        total = odds + zeroth - 1.0  # without the label's own
        label = odds / total
        mean = first / total
        square = second / total
        log_scale_free, shift_free = (np.abs(raw) < _LIMITS).astype(np.float64).T
        curvatures = np.empty((shift.size, 2, 2))
        curvatures[:, 0, 0] = (square - mean * mean) * log_scale_free
        curvatures[:, 0, 1] = curvatures[:, 1, 0] = (
            label * mean * log_scale_free * shift_free
        )
        curvatures[:, 1, 1] = label * (1.0 - label) * shift_free
        return _Point(
            coef,
            raw,
            np.log(total) + true - shift * correct,
            np.stack(
                [(true - mean) * log_scale_free, (label - correct) * shift_free], axis=1
            ),
            curvatures,
        )

    def losses(self, pair: FloatArray) -> FloatArray:
        """The log loss of each row at (log a, b) (n, 2), as `at` has it, (n,)."""
        log_scale, shift = np.clip(pair, -_LIMITS, _LIMITS).T
        scale = np.exp(log_scale)
        sums = searches.odds_sums(self.examples.logits, scale / self.temperature)
        true = scale * (self.examples.true_margins / self.temperature)
        return np.asarray(
            np.log(np.exp(shift) + sums - 1.0) + true - shift * self.examples.correct
        )

    def penalise(self, rows: _Point, ridge: float) -> _Point:
        design = self.design
        counts = self.counts
        coef = rows.coef
        hessian = np.empty((2, 2, design.shape[1], design.shape[1]))
        for i, j in np.ndindex(2, 2):
            hessian[i, j] = design.T @ (
                design * (rows.curvatures[:, i, j] * counts)[:, None]
            )
        return rows._replace(
            value=float(counts @ rows.losses) + 0.5 * ridge * float(coef @ coef),
            gradient=((rows.slopes * counts[:, None]).T @ design).ravel()
            + ridge * coef,
            hessian=hessian.swapaxes(1, 2).reshape(coef.size, -1)
            + ridge * np.eye(coef.size),
        )

    def gain(self, pair: FloatArray) -> tuple[float, float]:
        """How much (log a, b) (n, 2) lower the mean log loss, and the standard error
        of that.
        """
        share = self.examples.share
        none = self.uncorrected
        gains = none.losses - self.losses(pair)
        # The variance of each gain if the probabilities without a correction are right.
        change = np.stack([np.exp(pair[:, 0]) - 1.0, pair[:, 1]], axis=1)
        variances = np.einsum("ni,nij,nj->n", change, none.curvatures, change)
        return float(share @ gains), standard_error(
            gains, variances, share, FEW_TO_CORRECT
        )

    def leave_out(self, point: _Point) -> FloatArray:
        """(log a, b) of each row by a fit without it, (n, 2)."""
        design = self.design
        size = self.design.shape[1]
        inverse = np.linalg.inv(point.hessian).reshape(2, size, 2, size)
        spread = np.empty_like(point.curvatures)
        for i, j in np.ndindex(2, 2):
            spread[:, i, j] = np.einsum("np,np->n", design @ inverse[i, :, j], design)
        spread *= self.counts[:, None, None]
        (a, b), (c, d) = np.moveaxis(np.eye(2) - point.curvatures @ spread, 0, -1)
        first, second = point.slopes.T
        solved = np.stack([d * first - b * second, a * second - c * first]) / (
            a * d - b * c
        )
        away = np.einsum("nij,jn->ni", spread, solved)
        return np.asarray(np.clip(point.raw + away, -_LIMITS, _LIMITS))


def standard_error(
    gains: FloatArray, variances: FloatArray, share: FloatArray, few: float = 0.0
) -> float:
    """Standard error of the mean of gains (n,) in log loss, doubled with `few`
    examples.

    It is the larger of two: by the gains themselves, and by the `variances` (n,) that
    gains have if the probabilities without the change are right, which counts mistakes
    that are yet to come.
    """
    squares = share * share
    # Of logits without any calibration, squares overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        observed = np.sum(squares * (gains - share @ gains) ** 2)
        expected = np.sum(squares * np.maximum(variances, 0.0))
    return float(
        np.sqrt(max(observed, expected)) * (1.0 + (few / effective_size(share)) ** 2)
    )


#: Structured scaling has terms between classes up to this many classes. Of more, each
#: class has a scale and a bias.
CROSS_UP_TO = 30
#: Ridges of few classes, in examples, each of whose fits starts from the one before;
#: and of many.
RIDGES = (10.0, 0.1)
CLASS_RIDGE = 0.3
#: Any ridge but the infinite one costs so many nats by class beyond two, and at most.
FOR_TEMPERATURE = 0.75
MOST_FOR_TEMPERATURE = 6.0
#: How many standard errors the held-out gain is lowered by: over temperature scaling,
#: with two and with more classes, and over the uncalibrated scores.
BINARY_ERRORS = 0.5
CLASS_ERRORS = 1.0
ERRORS = 0.6
#: A search for weights is over when its next step is expected to gain no more than the
#: first, of which about the square is left; a weight smaller than the second is left
#: out.
_GAIN = 1e-8
LEAST_WEIGHT = 0.03
#: Logits of larger temperatures are not moved back: their coefficients would be too
#: large.
LARGEST_MOVED = 1e50
ROUNDING = 1e-12
#: Ridges are weighed, and rows corrected, on rows of at most about this many logits, at
#: least this many rows: few numbers are chosen, and known well enough by then.
WEIGHED_SIZE = 1 << 17
WEIGHED_ROWS = 2500
#: The ridge on biases is multiplied by this where labels clearly contradict the mean
#: probabilities: priors are on shape and scale then, and hardly on the level.
LEVEL_RIDGE = 0.02
#: How many standard errors the gain by the level is lowered by, times the examples; and
#: by one more with more than two classes.
LEVEL_ERRORS = 200.0
#: Without evidence, two classes get the level of the labels by a weight that rises from
#: 0 to 1 between these numbers of examples, which determine one number. A need that the
#: weights of the ridges show is no condition: a small offset of scores would stay, 1.14
#: times the events at an offset of .5 (`tests/fitting/test_level.py`).
LEVEL_EXAMPLES = (200.0, 300.0)
#: The ridge of the level of more classes, in examples: one of a few examples keeps a
#: part of what the priors say.
CLASS_LEVEL_RIDGE = 2.0


class DefaultFit(NamedTuple):
    """The base and the row correction of the default, and how they were chosen.

    `held_out` are scores of `examples`, as logits, by a fit without each. `shares` and
    held-out log `losses` are of what was averaged, by name, and of the "final" scores.
    The floor is the one of all examples, for which its optimism is in the losses.
    `level` is the weight of the biases that bring the mean probabilities to the labels'
    shares.
    """

    base: StructuredRule
    correction: scaling.RowCorrection | None
    examples: Examples
    held_out: Logits
    shares: dict[str, float]
    losses: dict[str, float]
    level: float
    converged: bool


@one_blas_thread()
def fit_default(examples: Examples) -> DefaultFit:
    """Fit a floor, a temperature and structured scaling, their weights, the level, and
    a row correction.
    """
    crossed = examples.n_classes <= CROSS_UP_TO
    examples.logits.with_margins()
    base = searches.choose_base(examples, for_noise=crossed, with_prior=True)
    step = weighing_step(examples.logits) if crossed else 0
    sampled = sample_spaced(examples, step)
    floored = sample_spaced(base.examples, step)
    n_examples = examples.effective_size
    temps = _temps_without_each(base, floored)
    level = weigh_level(temps, floored, n_examples) if crossed else 0.0
    fit_crossed = two_classes.fit_ridges if examples.n_classes == 2 else fit_ridges
    rules, tables, _, converged = (
        fit_crossed(base, RIDGES, step, LEVEL_RIDGE**level)
        if crossed
        else fit_classes(base, CLASS_RIDGE)
    )
    tables = [floored.logits.in_order(table) for table in (temps, *tables)]
    weights, away, losses = _weigh(floored, tables, n_examples)
    if (1.0 - away) * weights[1:].sum() < LEAST_WEIGHT:
        weights = np.eye(weights.size)[0]
    if base.temperature.x > LARGEST_MOVED:
        away = 0.0
    scores = _mix(tables, weights)
    if away > 0.0:
        scores = (1.0 - away) * scores - away * floored.logits.margins
    rule = _average_rules(rules, weights, away)
    correction = None
    if examples.n_classes == 2:
        few, many = LEVEL_EXAMPLES
        level = max(level, min(max((n_examples - few) / (many - few), 0.0), 1.0))
    rule, scores = _set_level(rule, examples, (scores, sampled), level)
    held_out = as_scores(scores, floored.logits)
    if examples.n_classes > 2:
        correction, held_out = _correct_rows(rule, sampled, held_out)
    losses["final"] = mean_loss(held_out, sampled, rule.even)
    return DefaultFit(
        rule,
        correction,
        sampled,
        held_out,
        _positive_shares(away, (1.0 - away) * float(weights[0])),
        _whole_losses(losses, base, examples),
        level,
        converged and base.temperature.converged,
    )


def fit_temperature(examples: Examples) -> DefaultFit:
    """Fit a floor and a temperature alone, as to examples of a single class.

    The temperature has a prior, and moves back towards the uncalibrated scores as in
    `fit_default`.
    """
    base = searches.choose_base(examples, for_noise=False, with_prior=True)
    floored = base.examples
    temps = _temps_without_each(base, floored)
    temperature = base.temperature.x
    _, away, losses = _weigh(floored, [temps], examples.effective_size)
    if temperature > LARGEST_MOVED:
        away = 0.0
    scores = (1.0 - away) * temps - away * floored.logits.margins
    held_out = as_scores(scores, floored.logits)
    losses["final"] = mean_loss(held_out, examples)
    size = examples.n_classes
    none = np.zeros(0)
    scale = np.full(size, 1.0 - away + away * temperature)
    rule = StructuredRule(
        base.floor, temperature, none, scale, np.zeros(size), none.reshape(0, 0), 0.0
    )
    return DefaultFit(
        rule,
        None,
        examples,
        held_out,
        _positive_shares(away, 1.0 - away),
        _whole_losses(losses, base, examples),
        0.0,
        base.temperature.converged,
    )


def _positive_shares(uncalibrated: float, temps: float) -> dict[str, float]:
    """What the average consists of, by name."""
    shares = {"uncalibrated": uncalibrated, "temps": temps}
    shares["structured"] = 1.0 - sum(shares.values())
    return {name: share for name, share in shares.items() if share > ROUNDING}


def sample_spaced(examples: Examples, step: int) -> Examples:
    """One of every `step` examples, or all of them."""
    if step < 2:
        return examples
    return examples.take(spaced_rows(0, examples.n_rows, step))


def _temps_without_each(base: searches.Base, sampled: Examples) -> Array:
    """Scores (rows, classes) of some of the base's examples by temperature scaling
    without each.
    """
    logits = sampled.logits
    temperature = base.temperature.x
    row_share = sampled.n_rows / base.examples.n_rows
    sharper = searches.sharpen_without_each(
        sampled, temperature, row_share, centre=base.centre
    )
    return logits.margins * logits.from_host(-sharper / temperature)[:, None]


def _whole_losses(
    losses: dict[str, float], base: searches.Base, examples: Examples
) -> dict[str, float]:
    """Held-out log losses with the optimism of the floor, which "uncalibrated" has
    not.
    """
    corrected = {name: loss + base.optimism for name, loss in losses.items()}
    corrected["uncalibrated"] = losses["uncalibrated"]
    if base.floor > 0.0:
        corrected["uncalibrated"] = mean_loss(examples.logits, examples)
    return corrected


def weigh_level(temps: Array, examples: Examples, n_examples: float) -> float:
    """How clearly the labels contradict the mean probabilities of temperature scaling:
    0 without evidence, 1 with clear evidence.

    `temps` (rows, classes) are its scores without each example, of some of
    `n_examples`.
    """
    logits = examples.logits
    _, biases = fit_level(temps, examples)
    gain, error = gain_of(
        as_scores(temps + 0.0, logits), as_scores(temps + biases, logits), examples
    )
    errors = LEVEL_ERRORS / n_examples + (logits.n_classes > 2)
    evidence = n_examples * (gain - errors * error)
    weight = float(np.tanh(0.5 * evidence)) if np.isfinite(evidence) else 0.0
    return weight if weight >= LEAST_WEIGHT else 0.0


def _set_level(
    rule: StructuredRule,
    examples: Examples,
    held_out: tuple[Array, Examples],
    weight: float,
) -> tuple[StructuredRule, Array]:
    """The rule with biases that bring its mean probabilities to the labels' shares, and
    held-out scores with them.

    `held_out` are scores by fits without each of some examples, and these.
    """
    scores, sampled = held_out
    if weight == 0.0:
        return rule, scores
    logits = examples.logits
    on_device = scaling.AutoRule(rule, None, keep_labels=False).on_device_of(logits)
    ridge = RIDGE if examples.n_classes == 2 else CLASS_LEVEL_RIDGE
    fitted = on_device.base.scores(logits)
    bias, _ = fit_level(fitted, examples, rule.even, ridge=ridge)
    _, biases = fit_level(scores, sampled, rule.even, ridge=ridge)
    return replace(rule, bias=rule.bias + weight * bias), scores + weight * biases


def _correct_rows(
    base: StructuredRule, examples: Examples, held_out: Logits
) -> tuple[scaling.RowCorrection | None, Logits]:
    """The row correction, and held-out scores after it.

    Held-out scores depend on their own labels a little, and features of them would leak
    these where rows are near-duplicates: so the features are those of the whole fit.
    """

    def scores(
        block: Logits, correction: scaling.RowCorrection | None = None
    ) -> Logits:
        rule = scaling.AutoRule(base, correction, keep_labels=False).on_device_of(block)
        scored = as_scores(rule.base.scores(block), block)
        return (
            scored
            if rule.correction is None
            else as_scores(rule.correction.scores(scored), scored)
        )

    features = per_row(
        lambda block: scaling.row_features(scores(block)).T, examples.logits
    )
    correction, pairs = fit_row_correction(
        replace(examples, logits=held_out), features=features
    )
    if correction is None:
        return None, held_out
    log_scale, shift = (held_out.from_host(column) for column in pairs.T)
    scored = scaling.corrected_scores(held_out, held_out.xp.exp(log_scale), shift)
    corrected = as_scores(scored, held_out)
    rows = spaced_rows(0, examples.n_rows, max(weighing_step(corrected), 1))
    spaced = examples.take(rows)
    in_sample = mean_loss(scores(spaced.logits, correction), spaced)
    if in_sample > mean_loss(corrected.take(rows), spaced):
        return None, held_out  # labels leaked into held-out scores
    return correction, corrected


def _average_rules(
    fits: list[StructuredRule], weights: FloatArray, away: float
) -> StructuredRule:
    """The rule of averaged coefficients, moved to the uncalibrated scores by the
    share `away`.
    """
    first = fits[0]
    uncalibrated_scale = np.full(first.n_classes, away * first.temperature)
    share = (1.0 - away) * weights[1:]
    even = (1.0 - away) * float(weights[1:].sum()) * first.even
    averaged: dict[str, Any] = {
        name: sum(w * getattr(rule, name) for w, rule in zip(share, fits, strict=True))
        for name in ("shape", "scale", "bias", "cross")
    }
    averaged["scale"] = (
        averaged["scale"] + (1.0 - away) * weights[0] + uncalibrated_scale
    )
    if not share.any():
        averaged |= {"shape": np.zeros(0), "cross": np.zeros((0, 0))}
    return replace(first, even=even, **averaged)


def _weigh(
    examples: Examples, tables: list[Array], n_examples: float
) -> tuple[FloatArray, float, dict[str, float]]:
    """Weights of scores (n, classes), that of uncalibrated ones, and held-out log
    losses.

    The first scores are those of temperature scaling.
    """
    step = weighing_step(examples.logits)
    if step >= 2:
        rows = spaced_rows(0, examples.n_rows, step)
        device_rows = examples.logits.from_host(rows)
        examples = examples.take(rows)
        tables = [
            examples.logits.xp.take(table, device_rows, axis=0) for table in tables
        ]
    logits = examples.logits
    plain = as_scores(tables[0] + 0.0, examples.logits)
    before = {"uncalibrated": logits, "temps": plain}
    losses = {name: mean_loss(scores, examples) for name, scores in before.items()}
    weights = _best_weights(examples, tables)
    errors = BINARY_ERRORS if logits.n_classes == 2 else CLASS_ERRORS
    if weights[1:].any():
        mixed = as_scores(_mix(tables, weights), logits)
        gain, error = gain_of(plain, mixed, examples)
        weights = weights * (1.0 - distrust(n_examples, gain, error, errors))
        weights[0] += 1.0 - weights.sum()
        losses["structured"] = mean_loss(mixed, examples)
    gain, error = gain_of(logits, as_scores(_mix(tables, weights), logits), examples)
    return weights, distrust(n_examples, gain, error), losses


def _mix(tables: list[Array], weights: FloatArray) -> Array:
    """A weighted sum, a new array."""
    return sum(
        float(w) * table for w, table in zip(weights, tables, strict=True) if w > 0.0
    )


def _best_weights(examples: Examples, tables: list[Array]) -> FloatArray:
    """The weights that minimise the log loss of held-out scores (n, classes), the
    first preferred.
    """
    size = len(tables)
    n_classes = examples.n_classes
    most = min(FOR_TEMPERATURE * (n_classes - 2.0), MOST_FOR_TEMPERATURE)
    price = np.append(0.0, np.full(size - 1, most / examples.effective_size))
    kind = two_classes.PairMixture if n_classes == 2 else Mixture
    mixture = kind.of(tables, examples)

    def evaluate(weights: FloatArray) -> DensePoint:
        loss, slope, hessian = mixture.evaluate(weights)
        slope = slope + price
        # Along the simplex: 0 at the end, where no weight is 0.
        value = loss + float(price @ weights)
        return DensePoint(value, slope - slope @ weights, hessian, weights)

    def step(point: DensePoint) -> tuple[FloatArray, bool]:
        linear = point.gradient - point.hessian @ point.x
        return searches.least_quadratic(linear, point.hessian) - point.x, True

    # The steps start inside: where a weight is 0 and all else fails an example, a log
    # loss is so steep that Newton's method only doubles the weight in a step.
    start = np.full(size, 1.0 / size)
    units = np.ones(size)
    best = minimize_newton(
        evaluate, start, step, tol=_GAIN, max_iter=MAX_ITER, units=units
    ).x
    best = np.where(best < LEAST_WEIGHT, 0.0, best)
    return np.asarray(best / best.sum())


class Mixture(NamedTuple):
    """Averages of scores (n, classes) of examples, and the scores of their labels."""

    tables: list[Array]
    true_scores: list[Array]
    truth: Array
    share: Array
    logits: Logits

    @classmethod
    def of(cls, tables: list[Array], examples: Examples) -> Mixture:
        logits = examples.logits
        truth = logits.from_host(examples.labels)
        true_scores = [pick(table, truth, logits.xp) for table in tables]
        return cls(tables, true_scores, truth, logits.from_host(examples.share), logits)

    def evaluate(self, weights: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Mean log loss, gradient (tables,) and Hessian (tables, tables)."""
        tables = self.tables
        share = self.share
        xp = self.logits.xp
        size = len(tables)
        proba = softmax(_mix(tables, weights), self.logits)
        means = [row_dots(proba, table, xp) for table in tables]
        true = pick(proba, self.truth, xp)
        loss = -float(xp.sum(share * xp.log(xp.clip(true, LEAST, None))))
        weighted = [proba * table for table in tables]
        hessian = np.empty((size, size))
        for i, j in np.transpose(np.triu_indices(size)):
            product = row_dots(weighted[i], tables[j], xp) - means[i] * means[j]
            hessian[i, j] = hessian[j, i] = float(xp.sum(share * product))
        slope = [
            float(xp.sum(share * (mean - true_scores)))
            for mean, true_scores in zip(means, self.true_scores, strict=True)
        ]
        return loss, np.array(slope), hessian


def distrust(
    n_examples: float, gain: float, error: float, errors: float = ERRORS
) -> float:
    """The weight of what a step leaves, by its gain in mean log loss and the
    standard error.
    """
    evidence = n_examples * (gain - errors * error)
    if not np.isfinite(evidence):  # of logits so large that squares overflow
        return 0.0
    away = float(expit(-evidence, np))
    return away if away >= LEAST_WEIGHT else 0.0


def weighing_step(logits: Logits) -> int:
    """One of how many rows each is enough to weigh candidates."""
    return min(
        logits.n_rows * logits.n_columns // WEIGHED_SIZE, logits.n_rows // WEIGHED_ROWS
    )


def gain_of(before: Logits, after: Logits, examples: Examples) -> tuple[float, float]:
    """The gain in mean log loss of other scores, and its standard error."""
    share = examples.share
    xp = before.xp
    gains = log_losses(before, examples.labels) - log_losses(after, examples.labels)
    # If those before are right, the gain of a row varies by its class.
    proba = uncalibrated(before)
    gaps = xp.where(
        before.possible, before.margins - after.margins, xp.zeros_like(proba)
    )
    mean = row_dots(proba, gaps, xp)
    with ignore_overflow(xp):
        variances = before.to_host(row_dots(proba, gaps * gaps, xp) - mean * mean)
    return float(share @ gains), standard_error(gains, variances, share)
