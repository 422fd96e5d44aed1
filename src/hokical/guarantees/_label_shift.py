"""A new balance from unlabelled rows, and how sure it is.

Under label shift p'(k | x) is proportional to p(k | x) w_k with w = new balance / old balance. The
new balance is the mean of p', which EM finds, with pseudo-counts along the old balance: without
them classes that are not seen get a weight of 0, and the first row of such a class an infinite
loss. How sure it is comes from its expansion to first order: how each new row, and each example of
the fit, moves the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hokical._core.bins import sum_by
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.guarantees._chi_square import chi_square_tail, merge_cells
from hokical.guarantees._class_scores import N_LEVELS, ClassScores
from hokical.guarantees._scores import middle_log_odds

#: Pseudo-counts of each class, on average (chosen from .01 to 1 on CIFAR's networks).
_PRIOR = 0.1
#: When EM has converged: the change of the balance in one step (sum over classes); and its steps.
_TOLERANCE, _MOST_STEPS = 1e-6, 500
#: Matrices of classes by classes are sums over so many rows at most, 10^9 products in each.
_LEAST_ROWS, _MOST_PRODUCTS = 1000, 1e9
#: More rows than this are as good as this many: what only they would show is let pass.
_MOST_ROWS = 20_000.0
#: Rows that a cell of the test is to hold at least.
_IN_CELL = 20.0
#: By how much of itself a class's share may be off because the calibrator is no perfect model.
_MISFIT = 0.05
#: Standard errors that unexplained rows are allowed for beyond what they seem to be.
_REACH = 0.5
#: A standard error of class frequencies from which on they are taken for unknown, and the most
#: classes for which such directions are looked for.
_FREE, _MOST_FREE = 0.1, 64
#: How many times the variance that labels of the rows would leave makes a direction unknown.
_BLURRED = 4.0
#: Directions in which the cells vary less than this share of the largest are left out.
_FLAT = 1e-3


@dataclass(frozen=True, eq=False)
class NewRows:
    """Unlabelled rows: probabilities (n, classes), labels, cells (n, looks), weights that sum to 1.

    Rows that came several times may be one of them; `count` is how many came. `own_labels` are the
    classifier's, None if they are not known; `labels` are those that are predicted.
    """

    proba: FloatArray
    labels: IntArray
    looks: IntArray
    weights: FloatArray
    count: int
    own_labels: IntArray | None = None

    @cached_property
    def effective(self) -> float:
        """How many equally weighted rows they are as good as."""
        return float(1.0 / (self.weights**2).sum())


class Balance:
    """The balance of new rows by EM, and its expansion.

    `share` (classes,) is the new balance, `ratio` that to the old one, `doubt` (classes,) what the
    variance of a class's examples adds to that of a mean over the new rows.
    """

    def __init__(self, rows: NewRows, known: ClassScores, around: FloatArray | None = None) -> None:
        """Pseudo-counts lie along the balance `around`, or along the old one."""
        self.rows, self.old = rows, known.smoothed_balance
        self.prior = _PRIOR * self.old.size * (self.old if around is None else around)
        odds = rows.proba / self.old
        self.share = _maximize(odds, rows.weights * rows.count, self.old, self.prior)
        self.ratio = self.share / self.old
        mixed = odds @ self.share
        self.log_ratio = float(rows.weights @ np.log(mixed))
        self.score = odds / mixed[:, None]
        self.posterior = self.score * self.share
        self.doubt = self.share**2 / (known.effective + 1.0)

    @cached_property
    def few(self) -> slice:
        """Rows for large matrices; rows come in no order."""
        return slice(0, max(_LEAST_ROWS, int(_MOST_PRODUCTS / self.share.size**2)))

    @cached_property
    def _solve(self) -> Callable[[FloatArray], FloatArray]:
        """Multiplies rows (r, classes) by the inverse of the information of a row on the simplex.

        The information is a diagonal plus a product of the rows with themselves: a solve of the
        size of the rows, if they are fewer than the classes (Woodbury).
        """
        weights, score = self.rows.weights[self.few], self.score[self.few]
        own = score * np.sqrt(weights / weights.sum())[:, None]
        prior = self.prior / (self.rows.effective * self.share**2)
        if len(own) < self.share.size:
            small = np.eye(len(own)) + (own / prior) @ own.T
            pull = np.linalg.solve(small, own / prior)

            def invert(rows: FloatArray) -> FloatArray:
                return np.asarray(rows / prior - (rows / prior) @ own.T @ pull)
        else:
            whole = own.T @ own
            whole[np.diag_indices_from(whole)] += prior
            inverse = np.linalg.inv(whole)

            def invert(rows: FloatArray) -> FloatArray:
                return np.asarray(rows @ inverse)

        along = invert(np.ones((1, self.share.size)))[0]

        def solve(rows: FloatArray) -> FloatArray:
            return np.asarray(invert(rows) - np.outer(rows @ along, along) / along.sum())

        return solve

    @cached_property
    def _pull(self) -> FloatArray:
        """How each row moves the class frequencies, (few, classes)."""
        return self._solve(self.score[self.few] - 1.0)

    def _parts_of_variance(
        self, moved: FloatArray, slopes: FloatArray, common: FloatArray | float
    ) -> list[FloatArray]:
        """Factors (r, m) each: the covariance is the sum of their squares, the third subtracted."""
        given, posterior = self.rows.weights[self.few], self.posterior[self.few]
        weights, square = given * common, given**2 * common
        weights, square = weights / weights.sum(), square / square.sum()
        share = weights @ posterior
        n = min(self.rows.effective, _MOST_ROWS)
        means = (posterior * weights[:, None]).T @ moved / share[:, None]
        spread = np.sqrt(weights * (posterior @ (self.doubt / share)))
        tilt = (slopes - (slopes @ self.share)[:, None]) * (_MISFIT * self.share)
        chance = (moved - weights @ moved) * np.sqrt(square / n)[:, None]
        return [chance, moved * spread[:, None], means * np.sqrt(self.doubt)[:, None], tilt.T]

    def covariance(
        self, moved: FloatArray, slopes: FloatArray, common: FloatArray | float = 1.0
    ) -> FloatArray:
        """Of numbers (m,) with `slopes` (m, classes), which each row moves by `moved` (few, m).

        The chance of rows and of examples, and what the calibrator may be off by; of rows that are
        each `common` (few,) times as common as they came.
        """
        chance, spread, means, tilt = self._parts_of_variance(moved, slopes, common)
        return np.asarray(chance.T @ chance + spread.T @ spread - means.T @ means + tilt.T @ tilt)

    def variances(self, moved: FloatArray, slopes: FloatArray) -> FloatArray:
        """The diagonal (m,) of the `covariance`."""
        sums = [(part**2).sum(axis=0) for part in self._parts_of_variance(moved, slopes, 1.0)]
        return np.asarray(sums[0] + sums[1] - sums[2] + sums[3])

    def moves(self, slopes: FloatArray) -> FloatArray:
        """How each row moves numbers (few, m) whose slopes by the balance are (m, classes)."""
        return np.asarray(self._pull @ slopes.T)

    @cached_property
    def free(self) -> FloatArray:
        """Directions (classes, m) of class frequencies that the rows hardly determine.

        The expansion to first order does not hold there; they are taken for unknown.
        """
        if self.share.size > _MOST_FREE:  # then hardly any class has so large a share
            return np.zeros((self.share.size, 0))
        values, vectors = np.linalg.eigh(self._uncertainty)
        return np.asarray(vectors[:, self._is_free(values, vectors)])

    def _is_free(self, values: FloatArray, vectors: FloatArray) -> BoolArray:
        """Of directions with these variances: if labels of the rows would tell much more."""
        told = (self.share @ vectors**2 - (self.share @ vectors) ** 2) / self.rows.effective
        return np.asarray((values > _FREE**2) & (values > _BLURRED * told))

    @cached_property
    def _uncertainty(self) -> FloatArray:
        """The covariance of the class frequencies, (classes, classes)."""
        return self.covariance(self._pull, np.eye(self.share.size))

    def variance(self) -> FloatArray:
        """Of the balance, (classes,); by one row at least, which a class without any may have."""
        found = self.variances(self._pull, np.eye(self.share.size))
        return np.asarray(found + self.rows.effective**-2.0)

    def accuracy(self) -> tuple[FloatArray, FloatArray]:
        """Of all labels, and of each label's rows, (1 + classes,): as expected, and its variance.

        NaN for labels that no row has.
        """
        rows, classes, labelled = self.rows, self.share.size, self._labelled
        own, hit, noise = self._hits(self.posterior)
        recall = np.clip(hit / self.share, 0.0, 1.0)
        noise = noise + self.doubt * recall * (1.0 - recall)
        few, weights = rows.labels[self.few], rows.weights[self.few]
        part = sum_rows_by(few, self.score[self.few] * (own[self.few] * weights)[:, None], classes)
        slopes = np.diag(hit / self.share) - part / weights.sum()
        slopes = np.concatenate([slopes.sum(axis=0, keepdims=True), slopes])
        spread = self.variances(self.moves(slopes), slopes)
        gain = self._hindsight(own)
        gain, sure = np.append(gain.sum(), gain), spread + np.append(gain.sum(), gain) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            value = (np.append(hit.sum(), hit) - gain) / np.append(1.0, labelled)
            variance = (np.append(noise.sum(), noise) + sure) / np.append(1.0, labelled) ** 2
        return np.clip(value, 0.0, 1.0), variance

    def mean_confidence(self, known: ClassScores) -> tuple[FloatArray, FloatArray]:
        """The same if scores mean what they meant, however common each is now.

        So it is if other rows came of classes than before, not only more or fewer of them.
        """
        _, hit, noise = self._hits(self.rows.proba)
        hit, noise = np.append(hit.sum(), hit), np.append(noise.sum(), noise)
        labelled = np.append(1.0, self._labelled)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = hit / labelled
            examples = value * (1.0 - value) / (known.effective.sum() * labelled)
            return value, noise / labelled**2 + examples + (_MISFIT * (1.0 - value)) ** 2

    @cached_property
    def _labelled(self) -> FloatArray:
        """The share of rows with each label, (classes,)."""
        return sum_by(self.rows.labels, self.rows.weights, self.share.size)

    def _hits(self, proba: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Each label's probability (n,); by label, the share of rows it is right in, its chance."""
        rows, classes = self.rows, self.share.size
        own = proba[np.arange(len(rows.labels)), rows.labels]
        hit = sum_by(rows.labels, rows.weights * own, classes)
        return own, hit, sum_by(rows.labels, rows.weights**2 * own * (1.0 - own), classes)

    @property
    def evidence(self) -> float:
        """How much of the change in balance is more than chance, from 0 to 1 (James and Stein)."""
        statistic = 2.0 * self.rows.effective * self.log_ratio
        return max(0.0, 1.0 - (self.old.size - 1) / max(statistic, 1e-300))

    def accuracy_by_recall(self, known: ClassScores) -> float:
        """The accuracy of the classifier's labels, by how often each class got its own."""
        seen = known.count > 0.0
        recall = np.where(seen, known.hit / np.where(seen, known.count, 1.0), 0.0)
        return float(self.share @ recall)

    def _hindsight(self, own: FloatArray) -> FloatArray:
        """By how much each row's part in the balance raises its own label's hits, (classes,).

        To first order, what the balance would be without the row is known, as for leave-one-out.
        """
        few, labels = self.few, self.rows.labels[self.few]
        score, square = self.score[few], self.rows.weights[few] ** 2
        pull = self._pull
        here = np.arange(len(labels))
        rise = own[few] * (pull[here, labels] / self.share[labels] - (score * pull).sum(axis=1))
        return sum_by(labels, square / square.sum() * rise, self.share.size) / self.rows.effective

    def change_p_value(self) -> float:
        """The probability of so different a balance if it is the old one.

        By the likelihood ratio and, of few classes, also by the uncertainty of the balance (Wald):
        the larger one, as weak scores amplify the errors of a calibrator.
        """
        n, classes = self.rows.effective, self.old.size
        doubt = float((self.old**2 * self.doubt / self.share**2).sum())
        given = self.rows.weights[self.few]
        trace = float((given / given.sum()) @ (self._pull**2).sum(axis=1))
        misfit = float(_MISFIT**2 * (self.share**2).sum() / max(trace, 1e-300))
        statistic = 2.0 * n * self.log_ratio / (1.0 + n * (doubt + misfit + 1.0 / _MOST_ROWS))
        found = chi_square_tail(classes - 1, statistic)
        if classes > _MOST_FREE:
            return found
        values, vectors = np.linalg.eigh(self._uncertainty)
        known = (values > _FLAT * values[-1]) & ~self._is_free(values, vectors)
        wald = ((self.share - self.old) @ vectors)[known] ** 2 / values[known]
        return max(
            found, chi_square_tail(int(known.sum()), float(wald.sum())) if wald.size else 1.0
        )

    def fit_p_value(self, known: ClassScores) -> float:
        """The probability of so different rows if only the balance changed.

        The shares of rows in the cells of a look, against those of the examples of the fit with
        each class as common as it is now; the smallest of the looks, times their number.
        """
        n_looks = self.rows.looks.shape[1]
        found = [self._look_p_value(*self._look(known, k)) for k in range(n_looks)]
        return float(min(1.0, n_looks * min(found)))

    def unsureness(self, known: ClassScores) -> tuple[float, FloatArray]:
        """The probability of labels that are so unsure if only the balance changed; what it costs.

        A class that the fit has not seen shows in the mean log-odds of labels first. The cost
        (1 + classes,) is the share of rows, and of those with each label, whose labels are wrong if
        rows of new kinds explain the log-odds: as unsure as rows that are expected to get wrong
        ones, and all taken for right.
        """
        shares, place = self._look(known, 0)
        score = -np.resize(middle_log_odds(N_LEVELS), len(shares))
        slopes, unsure = (score @ shares)[None], score[place]
        spread = self.covariance(unsure[self.few, None] - self.moves(slopes), slopes)
        gap = float(self.rows.weights @ unsure - slopes[0] @ self.share)
        # Few rows that are unsure by chance are alike, too: at least as uncertain as in the fit.
        within = float((score**2 @ shares - slopes[0] ** 2) @ self.share) / self.rows.effective
        error = math.sqrt(max(float(spread[0, 0]), within, 1e-300))
        gap -= self._explained(gap, slopes[0])
        wrong = self.rows.weights * (1.0 - self.posterior[np.arange(len(place)), self.rows.labels])
        wrong /= max(wrong.sum(), 1e-300)
        apart = max(float((wrong - self.rows.weights) @ unsure), 1e-300)
        new_kinds = min(max(gap + _REACH * error, 0.0) / apart, 1.0)
        lost = sum_by(self.rows.labels, new_kinds * wrong, self.share.size)
        return 0.5 * math.erfc(gap / error / math.sqrt(2.0)), np.append(lost.sum(), lost)

    def _explained(self, gap: float, slopes: FloatArray) -> float:
        """The part of a gap that class frequencies explain along `free` directions."""
        found = 0.0
        for way in self.free.T:
            steps = -self.share[way != 0.0] / way[way != 0.0]  # where a share becomes 0
            ends = (
                np.max(steps[steps <= 0.0], initial=-1.0),
                np.min(steps[steps > 0.0], initial=1.0),
            )
            reach = sorted(float(slopes @ way) * end for end in ends)
            found += float(np.clip(gap - found, *reach))
        return found

    def _look(self, known: ClassScores, k: int) -> tuple[FloatArray, IntArray]:
        """The share of each class's examples in the cells of a look, and the cells of rows."""
        span = 2 * N_LEVELS if self.share.size == 2 else N_LEVELS
        cells = known.cells[k * span : (k + 1) * span]
        held, pooled = cells.sum(axis=0), cells.sum(axis=1, keepdims=True) / cells.sum()
        unit = self._weight_of_example(held)
        return (cells + unit * pooled) / (held + unit), self.rows.looks[:, k] - k * span

    def _look_p_value(self, shares: FloatArray, place: IntArray) -> float:
        expected = shares @ self.share
        n = min(self.rows.effective, 1.0 / self.doubt.sum())
        group = merge_cells(expected * n, max(5.0, min(_IN_CELL, n / 10.0)))
        n_groups = int(group[-1]) + 1
        if n_groups < 2:
            return 1.0
        joined = np.zeros((n_groups, len(group)))
        joined[group, np.arange(len(group))] = 1.0
        expected, seen = joined @ expected, sum_by(group[place], self.rows.weights, n_groups)
        gap, slopes = seen - expected, joined @ shares
        moved = joined.T[place[self.few]] - self.moves(slopes)
        # By the shares of rows and examples together, as in Pearson's test: by those of the rows
        # alone, cells with too few of them would look more certain than they are.
        trust = self.rows.effective / (self.rows.effective + 1.0 / self.doubt.sum())
        both = trust * seen + (1.0 - trust) * expected
        common = np.divide(both, seen, out=np.ones_like(seen), where=seen > 0.0)
        spread = self.covariance(moved, slopes, common[group[place[self.few]]])
        free, _ = np.linalg.qr(slopes @ self.free)
        rest = np.eye(n_groups) - free @ free.T
        gap, spread = rest @ gap, rest @ spread @ rest
        values, vectors = np.linalg.eigh(spread)
        # Directions that the balance has used up; of few rows also those within a row's share.
        kept = values > np.maximum(_FLAT * values[-1], self.rows.effective**-2.0)
        statistic = float(((gap @ vectors)[kept] ** 2 / values[kept]).sum())
        return chi_square_tail(int(kept.sum()), statistic) if kept.any() else 1.0

    def _weight_of_example(self, held: FloatArray) -> FloatArray:
        """What one example counts for, (classes,): the unit of a pseudo-count."""
        effective = self.share**2 / self.doubt - 1.0
        unit = np.divide(held, effective, out=np.ones_like(held), where=effective > 0.5)
        return np.where(held > 0.0, unit, 1.0)


def sum_rows_by(place: IntArray, rows: FloatArray, n: int) -> FloatArray:
    """Sums (n, columns) of the rows of each place."""
    order = np.argsort(place, kind="stable")
    found, first = np.unique(place[order], return_index=True)
    out = np.zeros((n, rows.shape[1]))
    out[found] = np.add.reduceat(rows[order], first, axis=0)
    return out


def _maximize(
    odds: FloatArray, weights: FloatArray, old: FloatArray, prior: FloatArray
) -> FloatArray:
    """The most likely balance by EM, with squared extrapolation (Varadhan and Roland 2008)."""
    total = weights.sum() + prior.sum()

    def step(share: FloatArray) -> FloatArray:
        return np.asarray((share * (odds.T @ (weights / (odds @ share))) + prior) / total)

    share = old
    for _ in range(_MOST_STEPS):
        first = step(share)
        second = step(first)
        move, turn = first - share, second - 2.0 * first + share
        length = math.sqrt(float(move @ move) / max(float(turn @ turn), 1e-300))
        length = min(max(length, 1.0), 1e3)
        jump = share + 2.0 * length * move + length**2 * turn
        best = step(jump) if (jump > 0.0).all() else second
        done = np.abs(best - share).sum() < _TOLERANCE
        share = best
        if done:
            break
    return np.asarray(share / share.sum())
