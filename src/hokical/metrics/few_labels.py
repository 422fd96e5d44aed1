"""Prediction-powered inference: an accuracy from a few labels and the confidences of many rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.groups import GroupNames, match_cells
from hokical._core.reading import as_labels, to_numpy
from hokical.guarantees.bounds import check_chance
from hokical.metrics.intervals import share_ends

#: Confidences are clipped here before their log-odds; the ridge on each standardized column.
_LEAST, _RIDGE = 0.01, 1.0
#: Right and wrong labels below which the labels' own exact interval is given.
_FEWEST = 10
#: The confidences are used where they reduce the variance by 1 %, and the interval is not wider
#: than that of the labels by more than 2 %.
_GAIN, _WIDER = 0.99, 1.02


@dataclass(frozen=True)
class PredictionPowered:
    """An accuracy with its interval at 1 - delta, from `n` labels and `n_unlabelled` rows.

    `labels_alone` is the accuracy of the labelled rows with its exact interval. `effective` is how
    many labels alone would be as precise: n where the confidences were of no use. `by_group` has
    the same for each group that has labels.
    """

    accuracy: float
    low: float
    high: float
    n: int
    n_unlabelled: int
    effective: float
    labels_alone: tuple[float, float, float]
    by_group: dict[Any, PredictionPowered] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        used = f"as precise as {self.effective:,.0f} labels alone"
        if self.effective == self.n:
            used = "the confidences were of no use"
        return (
            f"{self.accuracy:.1%} ({self.low:.1%} to {self.high:.1%}), from {self.n:,} labels and "
            f"{self.n_unlabelled:,} rows without: {used}"
        )


def prediction_powered_accuracy(
    confidence: Any,
    correct: Any,
    unlabelled: Any,
    *,
    delta: float = 0.05,
    groups: Any = None,
    unlabelled_groups: Any = None,
) -> PredictionPowered:
    """The accuracy of today's rows, from some labels and the confidences of the other rows.

    The labelled rows must be a random sample of the rows. Then the interval holds, however bad the
    confidences are; good ones make it narrower. What is estimated is a mean of yes or no: with
    probabilities of an event and whether it occurred, the share of events; with a judge's scores
    and human labels, a pass rate.

    Parameters
    ----------
    confidence : array of shape (n,) or (n, signals)
        Numbers in [0, 1] of the labelled rows. They need not be calibrated: a regression on them
        predicts the labels, each label by a fit without it.
    correct : array of shape (n,)
        Whether each of them is right.
    unlabelled : array of shape (m,) or (m, signals)
        Of the rows without a label.
    delta : float
        Probability that the interval misses (approximately: it is exact where the confidences are
        not used).
    groups, unlabelled_groups : array-like of shape (n,) and (m,), or several columns, optional
        For `by_group`.

    Notes
    -----
    With the prediction h_i of label y_i by the others, the estimate is the mean of h over the m
    rows plus the mean of y_i - h_i (Angelopoulos et al., 2023, doi:10.1126/science.adi6000). Its
    variance is turned into a number of labels, whose Clopper-Pearson interval is given. With fewer
    than 10 right or wrong labels, and where the confidences hardly help, it is that of the labels.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.beta(2.0, 1.0, size=20_000)
    >>> right = rng.random(20_000) < confidence**2
    >>> print(prediction_powered_accuracy(confidence[:200], right[:200], confidence[200:]))
    48.8% (42.7% to 54.9%), from 200 labels and 19,800 rows without: as precise as 270 labels alone
    """
    check_chance("delta", delta)
    known, rest = _read(confidence, "confidence"), _read(unlabelled, "unlabelled")
    if known.shape[1] != rest.shape[1]:
        raise ValueError(
            f"`unlabelled` must have the {known.shape[1]} signals of `confidence`; got "
            f"{rest.shape[1]}. Pass the same columns."
        )
    right = as_labels(correct, len(known), 2, name="correct").astype(np.float64)
    fit = _Regression.of(_columns(known), _columns(rest), right)
    everyone = np.arange(len(known)), np.arange(len(rest))
    parts = _by_group(groups, unlabelled_groups, *map(len, everyone))
    by_group = {name: fit.estimate(*rows, delta) for name, rows in parts.items()}
    return replace(fit.estimate(*everyone, delta), by_group=by_group)


@dataclass(frozen=True, eq=False)
class _Regression:
    """A linear regression of labels (n,) on columns (n, k), in which each can be left out.

    `columns` and `new` (m, k) are standardized, `inverse` (k, k) is that of the ridge regression,
    and `gaps` (n,) are labels less what the fit without each predicts.
    """

    columns: FloatArray
    new: FloatArray
    labels: FloatArray
    inverse: FloatArray
    gaps: FloatArray

    @classmethod
    def of(cls, columns: FloatArray, new: FloatArray, labels: FloatArray) -> Self:
        both = np.vstack([columns, new])
        mean, spread = both.mean(axis=0), np.maximum(both.std(axis=0), 1e-9)
        columns, new = (
            np.column_stack([np.ones(len(part)), (part - mean) / spread]) for part in (columns, new)
        )
        ridge = np.append(0.0, np.full(mean.size, _RIDGE))
        inverse = np.asarray(np.linalg.inv(columns.T @ columns + np.diag(ridge)), np.float64)
        own = columns @ inverse
        leverage = np.minimum((own * columns).sum(axis=1), 0.999)
        gaps = (labels - own @ (columns.T @ labels)) / (1.0 - leverage)
        return cls(columns, new, labels, inverse, gaps)

    def estimate(self, rows: IntArray, new: IntArray, delta: float) -> PredictionPowered:
        """The mean label of some rows and new rows."""
        labels, n, m = self.labels[rows], rows.size, new.size
        alone = float(labels.mean())
        ends = share_ends(alone, n, delta)
        plain = PredictionPowered(alone, *ends, n, m, float(n), (alone, *ends))
        if min(labels.sum(), n - labels.sum()) < _FEWEST or not m:
            return plain
        whole = self.inverse @ (self.columns.T @ self.labels)
        # What a label's own fit predicts differs from the whole fit by its gap.
        mean = whole - self.inverse @ (self.columns[rows].T @ self.gaps[rows]) / n
        gaps, predicted = self.gaps[rows], self.new[new]
        found = float(predicted.mean(axis=0) @ mean + gaps.mean())
        variance = gaps.var(ddof=1) / n + (predicted @ whole).var() / m
        before = labels.var(ddof=1) / n
        if not (variance < _GAIN * before and 0.0 < found < 1.0):
            return plain
        effective = float(n * before / variance)
        low, high = share_ends(found, effective, delta)
        if high - low > _WIDER * (ends[1] - ends[0]):
            return plain
        return PredictionPowered(found, low, high, n, m, effective, (alone, *ends))


def _read(values: Any, name: str) -> FloatArray:
    """Confidences (n, signals)."""
    array = to_numpy(values, name)
    if array.dtype.kind not in "fiub" or array.ndim not in (1, 2) or not array.size:
        raise ValueError(
            f"`{name}` must be numbers (n,), or several signals (n, k); got {array.dtype} of shape "
            f"{array.shape}."
        )
    table = array.astype(np.float64).reshape(len(array), -1)
    if not ((table >= 0.0) & (table <= 1.0)).all():
        raise ValueError(
            f"`{name}` must lie in [0, 1]; got {table.min():.6g} to {table.max():.6g}. Divide "
            "percentages by 100, and drop rows without a confidence."
        )
    return table


def _columns(table: FloatArray) -> FloatArray:
    """Each confidence and its log-odds, (n, 2 k)."""
    inside = np.clip(table, _LEAST, 1.0 - _LEAST)
    return np.hstack([table, np.log(inside / (1.0 - inside))])


def _by_group(old: Any, new: Any, n: int, m: int) -> dict[Any, tuple[IntArray, IntArray]]:
    """The labelled and the other rows of each group that has labels."""
    if old is None and new is None:
        return {}
    if old is None or new is None:
        missing = "groups" if old is None else "unlabelled_groups"
        raise ValueError(f"`{missing}` must be given too: both kinds of rows need their groups.")
    names, place = GroupNames.from_rows(old, n)
    other = match_cells(new, m, names.columns, names.names)
    return {
        name[0] if len(name) == 1 else name: (
            np.flatnonzero(place == k),
            np.flatnonzero(other == k),
        )
        for k, name in enumerate(names.names)
    }
