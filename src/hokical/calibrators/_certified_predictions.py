"""What a fitted calibrator promises of its labels: abstention and intervals for the accuracy."""

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np

from hokical._core.arrays import Array, to_input_library
from hokical._core.grouped_logits import GroupedLogits
from hokical._core.groups import as_groups
from hokical._core.labels import as_weights
from hokical._core.logits import Logits, as_logits
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical.calibrators._predictions import Predictions
from hokical.guarantees import _scores as scores
from hokical.guarantees import _selective as selective
from hokical.guarantees._binomial import check_chance
from hokical.guarantees._conformity import Conformity
from hokical.guarantees._row_sketch import RowSketch, row_hashes
from hokical.guarantees._score_table import (
    NeighbourTable,
    ScoreTable,
    accuracy_intervals,
    can_be_counts,
)
from hokical.guarantees._selective import Evidence, SelectivePrediction
from hokical.rules._wrapped import BalancedRule


class CertifiedPredictions(Predictions):
    """What a `Calibrator` proves by examples: those of its fit, or those passed to `certify`."""

    #: The method's name; "auto" for the automatic choice.
    name: str
    #: Counts by the classifier's own score on the calibration examples; None if not available.
    fit_scores_: ScoreTable | None = None
    #: Counts by the calibrated confidence on a sample of them, for monitors.
    fit_confidences_: ScoreTable | None = None
    #: Counts by the calibrated confidence on the examples passed to `certify`.
    held_out_scores_: ScoreTable | None = None
    #: Right and wrong calibration examples by the rule's own levels, if it has them.
    neighbours_: NeighbourTable | None = None
    #: What the classifier's softmax says of the true classes of the fit; None if not available.
    fit_conformity_: Conformity | None = None
    #: What the calibrated probabilities say of those passed to `certify`.
    held_out_conformity_: Conformity | None = None
    #: A fingerprint of the rows of the fit, which cannot certify it.
    fit_rows_: RowSketch | None = None

    def certify(
        self, logits: Any, labels: Any, sample_weight: Any = None, *, groups: Any = None
    ) -> Self:
        """Note how the calibrated probabilities do on examples used for nothing else.

        `logits` (n, classes) and `labels` (n,) are of examples that neither the classifier nor this
        calibrator was fitted on; rows of the fit are refused. `predict_or_abstain`,
        `predict_interval` and `predict_set` then go by these, until the next fit. Whole numbers as
        `sample_weight` (n,) say how often an example was seen; others how much likelier it is among
        the examples to come, of which only `predict_set` makes use. `groups` (n,), text or numbers,
        are for `predict_set(by="group")`, and for calibrators that learned from groups.
        """
        data = self._check_logits(self.with_groups(logits, groups))
        truth = self._as_labels(labels, data)
        weights = as_weights(sample_weight, data.n_rows)
        self.refuse_rows_of_fit(row_hashes(data))
        forms = _serving_forms(data)
        odds = [
            scores.confidence_log_odds(self._output_on_host("confidence", form)) for form in forms
        ]
        wrong = np.any([self._output_on_host("labels", form) != truth for form in forms], axis=0)
        level = scores.conservative_levels(odds, wrong, data.to_host(data.top))
        counted = can_be_counts(weights)
        self.held_out_scores_ = ScoreTable.from_examples(level, wrong, weights) if counted else None
        found = Conformity.from_rows(self.rule_, forms, truth)
        if groups is not None:
            found = found.with_groups(as_groups(groups, data.n_rows))
        if weights is not None:
            counts, unit = weights[weights > 0.0], 1.0 if counted else float(weights.max())
            found = replace(found.take(weights > 0.0), weights=counts, unit=unit)
        self.held_out_conformity_ = found
        return self

    def refuse_rows_of_fit(self, hashes: FloatArray) -> None:
        """Raise if rows with these `row_hashes` are those of the fit, which learned from them."""
        # Where another method chose to learn nothing, it did so by these rows.
        learned = self.name != "uncalibrated" or bool(self.rule_.numbers())
        if learned and self.fit_rows_ is not None:
            self.fit_rows_.refuse(hashes, "logits")

    def certify_parts(self, parts: Iterable[tuple[Any, ...]]) -> Self:
        """`certify` with examples in parts: (logits, labels), with weights, and with groups."""
        twin, noted = copy(self), []
        for part in parts:
            twin.certify(*part[:3], groups=part[3] if len(part) > 3 else None)
            noted.append((twin.held_out_scores_, twin.held_out_conformity_))
        if not noted:
            raise ValueError("there must be at least one part with examples; got none.")
        tables, found = zip(*noted, strict=True)
        self.held_out_scores_ = None if None in tables else reduce(add, tables)
        self.held_out_conformity_ = reduce(add, found)
        return self

    def predict_or_abstain(
        self, logits: Any, *, risk: float = 0.05, delta: float = 0.1, groups: Any = None
    ) -> SelectivePrediction:
        """Labels, and which of them to accept so that at most a fraction `risk` is wrong.

        With probability 1 - delta over the examples it was tested on, the error rate among
        accepted examples of the same kind is at most `risk`. After `certify` the threshold is on
        the calibrated confidence, after `fit` alone on the classifier's own softmax score. The
        examples of the fit test the classifier's labels and no others: a label that calibration
        has changed is then not accepted, and the error rate counts among all rows that reach the
        threshold. If nothing can be accepted, `accepted` is False everywhere and `guarantee` says
        why.

        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
        >>> found = Hoki().fit(val_logits, val_labels).predict_or_abstain(test_logits, risk=0.02)
        >>> wrong = found.labels[found.accepted] != test_labels[found.accepted]
        >>> bool(found.accepted.mean() > 0.5), bool(wrong.mean() < 0.02)
        (True, True)
        """
        risk, delta = check_chance("risk", risk), check_chance("delta", delta)
        data = self._check_logits(self.with_groups(logits, groups))
        source, table = self._evidence("predict_or_abstain")
        confidence = self._output_on_host("confidence", data)
        labels, levels = self._output_on_host("labels", data), _levels(source, data, confidence)
        found = selective.selective_prediction(
            labels,
            confidence,
            levels,
            table,
            risk=risk,
            delta=delta,
            certified_on=source,
            untested=self._untested(source, data, labels),
        )
        return found.map_arrays(lambda array: to_input_library(array, logits))

    def predict_interval(self, logits: Any, *, delta: float = 0.05, groups: Any = None) -> Array:
        """A confidence interval (n, 2) for the accuracy of labels with a similar score.

        The calibration examples, or those of `certify`, are divided into groups of neighbouring
        scores; the interval misses the true accuracy of the example's group with probability at
        most `delta` (Clopper-Pearson). The confidence is finer than a group: where it is outside,
        the interval is extended to it. After `fit` alone the accuracy is that of the classifier's
        labels: for a label that calibration has changed, the interval is from 0 to 1. Venn-Abers
        prediction has an interval of its own for the label's probability, without a `delta`, which
        is given until `certify` is called.

        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, test_labels) = demo_logits()
        >>> Hoki().fit(val_logits, val_labels).predict_interval(test_logits).shape
        (10000, 2)
        """
        delta = check_chance("delta", delta)
        data = self._check_logits(self.with_groups(logits, groups))
        own = None
        if self.held_out_scores_ is None:
            own = self.rule_.on_device_of(data).label_interval(data)
        if own is not None:
            return to_input_library(np.stack([data.to_host(end) for end in own], axis=1), logits)
        source, table = self._evidence("predict_interval")
        confidence = self._output_on_host("confidence", data)
        if source == "fit" and self.neighbours_ is not None:
            wanted = self.rule_.on_device_of(data).neighbour_levels(data)
            wanted = data.to_host(wanted).astype(np.int64)
            found = accuracy_intervals(self.neighbours_, wanted, delta)
        else:
            wanted = _levels(source, data, confidence)
            # One level of doubt, as examples were counted (`conservative_levels`).
            found = accuracy_intervals(table, wanted, delta, doubt=1)
        ends = [np.minimum(found[:, 0], confidence), np.maximum(found[:, 1], confidence)]
        untested = self._untested(source, data)
        if untested is not None:
            ends[0][untested], ends[1][untested] = 0.0, 1.0
        return to_input_library(np.stack(ends, axis=1), logits)

    def forget_examples(self) -> None:
        """Drop what the examples of the fit would prove, where they are not independent."""
        self.fit_scores_ = self.neighbours_ = self.fit_conformity_ = self.fit_confidences_ = None

    def _untested(
        self, source: Evidence, data: Logits, labels: IntArray | None = None
    ) -> BoolArray | None:
        """Which predicted labels (n,) the examples do not test; None where they test all.

        Those of a fit test the classifier's own labels, which have not seen them.
        """
        if source == "held-out" or self.rule_.preserves_labels:
            return None
        found = self._output_on_host("labels", data) if labels is None else labels
        return np.asarray(found != data.to_host(data.labels))

    def _evidence(self, asked: str) -> tuple[Evidence, ScoreTable]:
        """The table behind a guarantee, or an error that says how to get one."""
        if self.held_out_scores_ is not None:
            return "held-out", self.held_out_scores_
        if self.fit_scores_ is not None:
            return "fit", self.fit_scores_
        if isinstance(self.rule_, BalancedRule):
            reason = "those of its fit, and of an earlier `certify`, are of the old class balance"
        else:
            reason = (
                "those of its fit are no test of it (weights that are not whole numbers of "
                "examples, pixels or tokens of the same items, folds of a cross-validation, or a "
                "file before 0.4 of a method that may change labels)"
            )
        raise ValueError(
            f"`{asked}` has no examples to go by: {reason}. Call `certify(logits, labels)` first, "
            "with examples that nothing was fitted on."
        )


def _serving_forms(logits: Logits) -> list[Logits]:
    """The rows as they are, and as float32 if they are wider: confidence may have steps."""
    values = logits.values
    known = type(logits) in (Logits, GroupedLogits)
    plain = known and logits.is_numpy and values.dtype == np.float64
    if not plain or np.max(np.abs(values), where=np.isfinite(values), initial=0.0) > 3e38:
        return [logits]
    narrow = as_logits(values.astype(np.float32))
    return [logits, replace(logits, values=narrow.values, top=narrow.top)]


def _levels(source: Evidence, logits: Logits, confidence: FloatArray) -> IntArray:
    """The level (n,) of each example's score."""
    if source == "held-out":
        return scores.score_levels(scores.confidence_log_odds(confidence))
    return scores.score_levels(logits.to_host(scores.label_log_odds(logits)))
