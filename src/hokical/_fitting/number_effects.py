"""Numbers beside the logits, as agreement, distance, length or age: linear corrections
of a row, weighed by held-out loss.

With the log-probabilities L of a row, its most likely class c and a standardised number
z, the scores of the row are

    L_k + z (shift [k = c] + scale L_k + bias_k).

Three nested forms are fitted with one ridge: the shift alone; the shift and the scale;
both and the biases of classes. Each example is predicted as if it had been left out, by
one Newton step. The forms, and none of them, are averaged with weights proportional to
exp(gain - one standard error), the gain being that of the summed held-out log loss; a
priori, none has as much as all forms together. If it has more than half, it gets all.
A column must pass this alone, then all that do are fitted together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.checks import LARGEST_COEFFICIENT
from hokical._core.groups import GroupCoding
from hokical._core.runtime import cut_rows
from hokical._fitting.examples import mean_and_error
from hokical._fitting.partial_pooling import GroupEffects, SoftmaxTerms
from hokical._fitting.searches import minimize_dense
from hokical.rules.numbers import NumberEffects, limits

#: The ridge of all coefficients, in examples: it expects them to be about 0.1.
_RIDGE = 80.0
#: Numbers that are held at a time, so that they stay in a cache.
_HELD = 1 << 17
#: Coefficients of a form at most; more would take long, and mostly learn noise.
_MAX_COEFFICIENTS = 96
_MAX_ITER = 50
#: The fewest rows with a number that a column is tried with.
_LEAST_ROWS = 10

#: The forms: how many of shift, scale and biases each has.
_FORMS = (1, 2, 3)


@dataclass(frozen=True, eq=False)
class NumberFit:
    """Effects of the columns that are used, and what they change in the scores.

    `fitted` and `left_out` (n, classes) are the changes of the scores by the fit, and
    by the fit without each example; None where no number is used. The notes tell of the
    columns that are used, and of those that are not.
    """

    effects: NumberEffects | None
    fitted: FloatArray | None
    left_out: FloatArray | None
    used_notes: tuple[str, ...]
    unused_notes: tuple[str, ...]

    def effects_among(self, columns: list[int]) -> NumberEffects | None:
        """The effects, with the indices of their columns among those of a rule."""
        if self.effects is None:
            return None
        indices = tuple(map(columns.index, self.effects.columns))
        return replace(self.effects, columns=indices)


def learn_numbers(
    terms: SoftmaxTerms, coding: GroupCoding, inputs: FloatArray
) -> NumberFit:
    """The effects of those numeric columns that help, from the `inputs` (n, columns).

    The offset of the terms is the log-probabilities, held out where possible.
    """
    columns = [k for k in range(len(coding.columns)) if coding.is_numeric(k)]
    candidates = {}
    for column in columns:
        scaling = _Scaling.of_rows(column, inputs, terms.weights)
        if scaling is not None:
            candidates[column] = scaling
    used: dict[int, _Average] = {}
    used_notes = []
    unused_notes = []
    for column, scaling in candidates.items():
        average = _fit_average(terms, [scaling], inputs, len(candidates))
        name = f"{coding.columns[column]!r} as a number"
        if average.is_clear:
            used[column] = average
            used_notes.append(f"{name} was used ({average.describe()})")
        else:
            unused_notes.append(f"{name} was left out ({average.describe()})")
    if not used:
        return NumberFit(None, None, None, (), tuple(unused_notes))
    scalings = [candidates[column] for column in used]
    average = next(iter(used.values()))
    if len(used) > 1:
        average = _fit_average(terms, scalings, inputs, 1)
        used_notes.append(f"numbers together: {average.describe()}")
    return NumberFit(
        average.effects(scalings),
        average.fitted,
        average.left_out,
        tuple(used_notes),
        tuple(unused_notes),
    )


def beside_numbers(
    terms: SoftmaxTerms, without: GroupEffects, numbers: NumberFit
) -> tuple[SoftmaxTerms, GroupEffects]:
    """Terms and held-out losses beside which groups are learned."""
    if numbers.fitted is None or numbers.left_out is None:
        return terms, without
    fitted = terms.offset + numbers.fitted
    losses = terms.losses(terms.offset + numbers.left_out)
    shift = numbers.left_out - numbers.fitted
    after = replace(without, losses=losses, shift=shift)
    return replace(terms, offset=fitted), after


@dataclass(frozen=True)
class _Scaling:
    """How a column becomes a standardised number; see `NumberEffects`."""

    column: int
    low: float
    high: float
    centre: float
    spread: float

    @classmethod
    def of_rows(
        cls, column: int, inputs: FloatArray, weights: FloatArray
    ) -> _Scaling | None:
        """That of the finite numbers; None if too few are there, if all are equal, or
        if they are too large to calculate with.
        """
        values = inputs[:, column]
        finite = np.isfinite(values) & (weights > 0.0)
        if np.count_nonzero(finite) < _LEAST_ROWS:
            return None
        counts = weights[finite]
        low, high = limits(values[finite], counts)
        if max(abs(low), abs(high)) > LARGEST_COEFFICIENT:
            return None
        inside = np.clip(values[finite], low, high)
        centre = float(np.average(inside, weights=counts))
        spread = float(np.sqrt(np.average((inside - centre) ** 2, weights=counts)))
        tiny = 1e-12 * max(abs(low), abs(high), 1e-80)
        return cls(column, low, high, centre, spread) if spread > tiny else None


def _blank_effects(scalings: Sequence[_Scaling]) -> NumberEffects:
    """Effects of 0."""
    zeros = np.zeros(len(scalings))
    return NumberEffects(
        columns=tuple(scaling.column for scaling in scalings),
        low=np.array([scaling.low for scaling in scalings]),
        high=np.array([scaling.high for scaling in scalings]),
        centre=np.array([scaling.centre for scaling in scalings]),
        spread=np.array([scaling.spread for scaling in scalings]),
        scale=zeros,
        shift=zeros,
        bias=np.zeros((len(scalings), 1)),
    )


@dataclass(frozen=True, eq=False)
class _Average:
    """Coefficients (kinds, numbers) of an average of the forms and none, and its gain.

    The kinds are shift, scale and biases; `none` is the weight of no form. The gain is
    that of the mean held-out log loss, with its standard error.
    """

    coefficients: FloatArray
    none: float
    fitted: FloatArray
    left_out: FloatArray
    gain: float
    error: float

    @property
    def is_clear(self) -> bool:
        """Whether the forms have at least half of the weight."""
        return self.none <= 0.5

    def describe(self) -> str:
        direction = "lower" if self.gain > 0.0 else "higher"
        return (
            f"held-out log loss {direction} by {abs(self.gain):.4f}, standard error "
            f"{self.error:.4f}"
        )

    def effects(self, scalings: Sequence[_Scaling]) -> NumberEffects:
        """The effects of numbers that are scaled so."""
        shift, scale, *biases = self.coefficients
        bias = np.stack(biases, axis=1) if biases else np.zeros((len(scalings), 1))
        return replace(_blank_effects(scalings), shift=shift, scale=scale, bias=bias)


def _fit_average(
    terms: SoftmaxTerms,
    scalings: Sequence[_Scaling],
    inputs: FloatArray,
    n_candidates: int,
) -> _Average:
    """The forms of numbers, averaged with none by held-out loss.

    The more candidates there are, the less each is expected to help.
    """
    blank = _blank_effects(scalings)
    units = [blank.standardise(inputs, k, np) for k in range(len(scalings))]
    fits = []
    for form in _FORMS if terms.biased else _FORMS[:2]:
        problem = _LinearProblem(terms, np.stack(units, axis=1), form)
        if form == 1 or problem.size <= _MAX_COEFFICIENTS:
            fits.append(problem.solve())
    gains = [_held_out_gain(terms, left_out) for _, _, left_out in fits]
    total = float(terms.weights.sum())
    logs = [np.log(n_candidates * len(fits))]
    logs += [total * (gain - error) for gain, error in gains]
    odds = np.exp(np.array(logs) - max(logs))
    none, *shares = odds / odds.sum()
    n_classes = terms.offset.shape[1]
    coefficients = np.zeros((2 + n_classes * terms.biased, len(scalings)))
    fitted = np.zeros(terms.offset.shape)
    left_out = np.zeros(terms.offset.shape)
    for share, (solution, change, held_out) in zip(shares, fits, strict=True):
        coefficients[: len(solution)] += share * solution
        fitted += share * change
        left_out += share * held_out
    gain, error = _held_out_gain(terms, left_out)
    return _Average(coefficients, float(none), fitted, left_out, gain, error)


def _held_out_gain(terms: SoftmaxTerms, change: FloatArray) -> tuple[float, float]:
    """By how much a change (n, classes) of the scores lowers the mean loss, and the
    standard error of that.
    """
    losses = terms.losses(terms.offset + change)
    share = terms.weights / terms.weights.sum()
    return mean_and_error(terms.losses(terms.offset) - losses, share)


class _LinearProblem:
    """The penalised log loss as a function of the coefficients (kinds * numbers,).

    A row has the features F (kinds, classes): the indicator of its likeliest class, its
    log-probabilities and the indicators of the classes. With its numbers z, its scores
    are linear in the products z F.
    """

    def __init__(self, terms: SoftmaxTerms, units: FloatArray, form: int) -> None:
        self.terms = terms
        self.units = units
        self.labels: IntArray = terms.offset.argmax(axis=1)
        n_classes = terms.offset.shape[1]
        self.n_kinds = form if form < 3 else 2 + n_classes
        self.size = self.n_kinds * units.shape[1]
        per_row = n_classes + self.n_kinds**2 + self.size**2
        self.blocks = [*cut_rows(len(units), max(1, _HELD // per_row))]

    def solve(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The coefficients (kinds, numbers) and the changes of the scores by them, and
        by those without each example, (n, classes) both.
        """
        solution = minimize_dense(self.evaluate, np.zeros(self.size), _MAX_ITER)
        total = float(self.terms.weights.sum())
        hessian = self.evaluate(solution.x)[2] * total
        fitted = np.empty(self.terms.offset.shape)
        left_out = np.empty(self.terms.offset.shape)
        table = solution.x.reshape(self.n_kinds, -1)
        for rows in self.blocks:
            units = self.units[rows]
            fitted[rows] = self._change(rows, units @ table.T)
            _, slopes, curvatures = self._derivatives(rows, fitted[rows])
            weights = self.terms.weights[rows]
            slope = (weights[:, None] * slopes)[:, :, None] * units[:, None, :]
            squares = weights[:, None, None] * units[:, :, None] * units[:, None, :]
            bent = curvatures[:, :, None, :, None] * squares[:, None, :, None, :]
            without = hessian - bent.reshape(-1, self.size, self.size)
            steps = np.linalg.solve(without, slope.reshape(-1, self.size, 1))
            by_kind = steps.reshape(-1, self.n_kinds, units.shape[1])
            moved = (by_kind * units[:, None, :]).sum(axis=2)
            left_out[rows] = fitted[rows] + self._change(rows, moved)
        return table, fitted, left_out

    def evaluate(self, x: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """The penalised mean loss, its gradient and its Hessian."""
        total = float(self.terms.weights.sum())
        n_numbers = self.units.shape[1]
        table = x.reshape(self.n_kinds, n_numbers)
        value = 0.5 * _RIDGE * float(x @ x)
        gradient = _RIDGE * table
        products = np.zeros((self.n_kinds**2, n_numbers**2))
        for rows in self.blocks:
            units = self.units[rows]
            weights = self.terms.weights[rows]
            change = self._change(rows, units @ table.T)
            losses, slopes, curvatures = self._derivatives(rows, change)
            value += float(weights @ losses)
            gradient = gradient + (weights[:, None] * slopes).T @ units
            squares = weights[:, None, None] * units[:, :, None] * units[:, None, :]
            flat = curvatures.reshape(len(units), -1)
            products += flat.T @ squares.reshape(len(units), -1)
        shape = (self.n_kinds, self.n_kinds, n_numbers, n_numbers)
        hessian = products.reshape(shape).swapaxes(1, 2).reshape(self.size, self.size)
        hessian = hessian + _RIDGE * np.eye(self.size)
        return value / total, gradient.ravel() / total, hessian / total

    def _change(self, rows: slice, factors: FloatArray) -> FloatArray:
        """The features of rows (rows, classes) times factors (rows, kinds), summed."""
        log_proba = self.terms.log_proba[rows]
        change = np.zeros(log_proba.shape)
        if self.n_kinds > 1:
            change += factors[:, 1:2] * log_proba
        if self.n_kinds > 2:
            change += factors[:, 2:]
        change[np.arange(len(change)), self.labels[rows]] += factors[:, 0]
        return change

    def _derivatives(
        self, rows: slice, change: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Losses (rows,) of changed scores; their gradients (rows, kinds) and Hessians
        (rows, kinds, kinds) by the factors of the features.
        """
        scores = self.terms.offset[rows] + change
        top = scores.max(axis=1, keepdims=True)
        odds = np.exp(scores - top)
        total = odds.sum(axis=1, keepdims=True)
        proba = odds / total
        index = np.arange(len(scores))
        truth = self.terms.labels[rows]
        label = self.labels[rows]
        losses = (np.log(total) + top)[:, 0] - scores[index, truth]
        at_label = proba[index, label]
        means = np.empty((len(scores), self.n_kinds))
        slopes = np.empty((len(scores), self.n_kinds))
        curvatures = np.zeros((len(scores), self.n_kinds, self.n_kinds))
        means[:, 0] = at_label
        slopes[:, 0] = at_label - (label == truth)
        curvatures[:, 0, 0] = at_label
        if self.n_kinds > 1:
            log_proba = self.terms.log_proba[rows]
            weighted = proba * log_proba
            means[:, 1] = weighted.sum(axis=1)
            slopes[:, 1] = means[:, 1] - log_proba[index, truth]
            curvatures[:, 0, 1] = weighted[index, label]
            curvatures[:, 1, 0] = curvatures[:, 0, 1]
            curvatures[:, 1, 1] = (weighted * log_proba).sum(axis=1)
        if self.n_kinds > 2:
            classes = np.arange(proba.shape[1])
            means[:, 2:] = proba
            slopes[:, 2:] = proba - (classes == truth[:, None])
            curvatures[index, 0, 2 + label] = at_label
            curvatures[index, 2 + label, 0] = at_label
            curvatures[:, 1, 2:] = weighted
            curvatures[:, 2:, 1] = weighted
            curvatures[:, 2 + classes, 2 + classes] = proba
        curvatures -= means[:, :, None] * means[:, None, :]
        return losses, slopes, curvatures
