"""What every calibrator can promise: abstaining at a proven risk, and intervals for confidence.

A threshold tested on the examples that a score was fitted on proves nothing, as the score has seen
their labels. So `fit` keeps a table of the classifier's own softmax score, which has seen no label,
and `certify` makes one of the calibrated confidence from examples that nothing was fitted on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hokical._tensors import answers_with_tensors
from hokical.answers import confidence_of, labels_of
from hokical.guarantees.binomial import check_chance
from hokical.guarantees.neighbours import accuracy_intervals
from hokical.guarantees.risk import Source, choose_threshold, starting_levels
from hokical.guarantees.score_table import ScoreTable, can_be_counts
from hokical.guarantees.scores import confidence_log_odds, label_log_odds, score_levels
from hokical.guarantees.selective import SelectivePrediction, selective_prediction
from hokical.logits import Logits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Promises:
    """The part of a calibrator that gives guarantees; `docs/guarantees.md` explains them."""

    if TYPE_CHECKING:  # what a calibrator brings along
        name: ClassVar[str]
        preserves_labels: ClassVar[bool]

        def _checked_logits(self, logits: Any) -> Logits: ...
        def _checked_examples(
            self, logits: Any, labels: Any, sample_weight: Any
        ) -> tuple[Logits, IntArray, FloatArray | None]: ...

    #: The classifier's own score on the examples of the fit; None where it could not be counted.
    fit_scores_: ScoreTable | None = None
    #: The calibrated confidence on the examples given to `certify`.
    held_out_scores_: ScoreTable | None = None

    def certify(self, logits: Any, labels: Any, *, transformed: Any = None) -> Self:
        """Count how often the calibrated confidence is right on examples used for nothing else.

        `predict_or_abstain` and `predict_interval` then go by these, until the next fit.

        Parameters
        ----------
        logits : array-like of shape (n, classes)
            The classifier's scores on examples that neither it nor this calibrator was fitted on.
        labels : array-like of shape (n,)
            The true class of each example.
        transformed : array-like, optional
            As in `fit`, for methods that need it.
        """
        known = self._checked_logits(logits)
        data, truth, _ = self._checked_examples(known, labels, None)
        level = score_levels(confidence_log_odds(self._confidence_given(data, transformed)))
        self.held_out_scores_ = ScoreTable.from_examples(level, labels_of(data, self) != truth)
        return self

    @answers_with_tensors
    def predict_or_abstain(
        self, logits: Any, *, risk: float = 0.05, delta: float = 0.1, transformed: Any = None
    ) -> SelectivePrediction:
        """Labels, and which of them are sure enough to be wrong at most at the rate `risk`.

        With probability 1 - delta over the examples it was tested on, the error rate among
        accepted examples of the same kind is at most `risk`. After `fit` alone the rule goes by
        the classifier's own softmax score, after `certify` by the calibrated confidence.

        Parameters
        ----------
        logits : array-like of shape (n, classes)
        risk : float
            The largest error rate among accepted examples.
        delta : float
            The chance, over the examples of the fit or of `certify`, that the rate is larger.
        transformed : array-like, optional
            As in `fit`, for methods that need it.

        Returns
        -------
        prediction : SelectivePrediction
            `labels`, `confidence`, `accepted` and the threshold. If nothing can be accepted,
            `accepted` is False everywhere and `guarantee` says why.

        Examples
        --------
        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
        >>> found = Hoki().fit(val_logits, val_labels).predict_or_abstain(test_logits, risk=0.02)
        >>> wrong = found.labels[found.accepted] != test_labels[found.accepted]
        >>> bool(found.accepted.mean() > 0.5), bool(wrong.mean() < 0.02)
        (True, True)
        """
        risk, delta = check_chance("risk", risk), check_chance("delta", delta)
        data = self._checked_logits(logits)
        source, table = self._evidence("predict_or_abstain")
        confidence = self._confidence_given(data, transformed)
        starts = starting_levels(risk, source)
        return selective_prediction(
            labels_of(data, self),
            confidence,
            _levels(source, data, confidence),
            choose_threshold(table, risk, delta, starts),
            risk=risk,
            delta=delta,
            certified_on=source,
            n_starts=starts.size,
        )

    @answers_with_tensors
    def predict_interval(
        self, logits: Any, *, level: float = 0.95, transformed: Any = None
    ) -> FloatArray:
        """How often labels of about the same score are right, as an interval (n, 2) per example.

        The examples of the fit, or of `certify`, are cut into groups of neighbouring scores; the
        interval holds the true accuracy of the example's group with probability `level`
        (Clopper-Pearson). The confidence itself is finer than a group and may lie outside.

        Parameters
        ----------
        logits : array-like of shape (n, classes)
        level : float
            The chance, over the examples counted, that an interval holds its group's accuracy.
        transformed : array-like, optional
            As in `fit`, for methods that need it.

        Examples
        --------
        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
        >>> interval = Hoki().fit(val_logits, val_labels).predict_interval(test_logits)
        >>> interval.shape
        (10000, 2)
        """
        level = check_chance("level", level)
        data = self._checked_logits(logits)
        source, table = self._evidence("predict_interval")
        if source == "fit":
            return self._fit_interval(data, table, level)
        wanted = _levels(source, data, self._confidence_given(data, transformed))
        return accuracy_intervals(table.count, table.count - table.wrong, wanted, level)

    def _fit_interval(self, logits: Logits, table: ScoreTable, level: float) -> FloatArray:
        """Intervals (n, 2) from the examples of the fit."""
        wanted = score_levels(label_log_odds(logits))
        return accuracy_intervals(table.count, table.count - table.wrong, wanted, level)

    def _confidence_given(self, logits: Logits, transformed: Any) -> FloatArray:
        """The confidence (n,), for methods that can do with the logits."""
        if transformed is not None:
            raise TypeError(f"`transformed` is not used by {self.name!r}; leave it out.")
        return confidence_of(logits, self)

    def _evidence(self, asked: str) -> tuple[Source, ScoreTable]:
        """The table to go by, or an error that says how to get one."""
        if self.held_out_scores_ is not None:
            return "held-out", self.held_out_scores_
        if self.fit_scores_ is not None:
            return "fit", self.fit_scores_
        reason = (
            "it was fitted with weights that are not whole numbers of examples, or saved by an "
            "earlier version"
            if self.preserves_labels
            else f"{self.name!r} may change labels, so the examples it was fitted on cannot test it"
        )
        raise ValueError(
            f"`{asked}` has no examples to go by: {reason}. Call `certify(logits, labels)` first, "
            "with examples that nothing was fitted on."
        )

    def _keep_fit_scores(self, logits: Logits, truth: IntArray, weights: FloatArray | None) -> None:
        """Count the examples of a fit."""
        self._set_fit_scores(self._count_scores(logits, truth, weights))

    def _set_fit_scores(self, table: ScoreTable | None) -> None:
        """Take the record of a new fit, which ends what `certify` proved of the last."""
        self.fit_scores_, self.held_out_scores_ = table, None

    def _count_scores(
        self, logits: Logits, truth: IntArray, weights: FloatArray | None
    ) -> ScoreTable | None:
        """The classifier's own scores, if the labels are its own and weights count examples."""
        if not self.preserves_labels or not can_be_counts(weights):
            return None
        level = score_levels(label_log_odds(logits))
        return ScoreTable.from_examples(level, logits.labels != truth, weights)

    def _stored_scores(self) -> dict[str, Any]:
        """Both tables, for a file."""
        fitted, held_out = self.fit_scores_, self.held_out_scores_
        return {
            "fit": None if fitted is None else fitted.to_dict(),
            "held_out": None if held_out is None else held_out.to_dict(),
        }

    def _restore_scores(self, stored: dict[str, Any] | None) -> None:
        """Set both tables from a file; files of earlier versions have none."""
        stored = {"fit": None, "held_out": None} if stored is None else stored
        self.fit_scores_, self.held_out_scores_ = (
            None if stored[name] is None else ScoreTable.from_dict(stored[name])
            for name in ("fit", "held_out")
        )


def merged_scores(tables: list[ScoreTable | None]) -> ScoreTable | None:
    """All tables added, or None where one is missing."""
    total = tables[0]
    for table in tables[1:]:
        total = None if total is None or table is None else total + table
    return total


def _levels(source: Source, logits: Logits, confidence: FloatArray) -> IntArray:
    """The level (n,) of each example's score."""
    held_out = source == "held-out"
    return score_levels(confidence_log_odds(confidence) if held_out else label_log_odds(logits))
