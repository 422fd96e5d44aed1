"""The prediction interface: a fitted rule with its guarantees, without scikit-learn or SciPy.

`hokical.load` gives a `FittedCalibrator`; estimators, which can also be fitted, are `Calibrator`s
too (`hokical.calibrators._base`). Both predict here: input is checked once, passed to the rule, and
the answer is converted to the library of the input.
"""

import os
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY, Array, backend_of, float64_scope, to_input_library
from hokical._core.conversion import as_two_columns
from hokical._core.grouped_logits import GroupedLogits, with_groups
from hokical._core.groups import as_groups, count_rows
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits, as_logits
from hokical._core.storage import fingerprint, write_document
from hokical._core.topk import TopK
from hokical._core.types import FloatArray, IntArray
from hokical._core.version import VERSION
from hokical._core.warn import warn_user
from hokical.calibrators._set_predictions import SetPredictions
from hokical.calibrators._shift_predictions import ShiftPredictions
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
from hokical.guarantees._support import Support
from hokical.rules._balanced import BalancedRule
from hokical.rules._base import Rule
from hokical.rules._predicting import Output, predict_blocks
from hokical.rules._sets import SetRule
from hokical.stability._noise import Noise

#: What a file holds of a fit; in the attributes of these names, with an underscore.
STORED = (
    "n_classes", "rule", "fit_scores", "held_out_scores", "neighbours", "support",
    "fit_conformity", "held_out_conformity", "fit_rows", "class_scores",
)  # fmt: skip


class Calibrator(SetPredictions, ShiftPredictions):
    """Labels, confidence and probabilities for logits, and guarantees about them."""

    #: The method's name; "auto" for the automatic choice.
    name: str
    #: The fitted rule, and the number of classes.
    rule_: Rule
    n_classes_: int
    #: Counts by the classifier's own score on the calibration examples; None if not available.
    fit_scores_: ScoreTable | None = None
    #: Counts by the calibrated confidence on the examples passed to `certify`.
    held_out_scores_: ScoreTable | None = None
    #: Right and wrong calibration examples by the rule's own levels, if it has them.
    neighbours_: NeighbourTable | None = None
    #: What the calibration examples were like; None if it was not stored.
    support_: Support | None = None
    #: A fingerprint of the rows of the fit, which cannot certify it.
    fit_rows_: RowSketch | None = None

    def predict(self, logits: Any, *, groups: Any = None) -> Array:
        """Labels (n,): the classifier's own where the method preserves labels.

        `logits` (n, classes) is an array of any library (NumPy, torch, JAX, CuPy, Dask), or a
        `TopK`; the answer has the same library and device. Files, chunks and iterators go through
        `hokical.streams`. `groups` are those of the rows, as in the fit: a calibrator that learned
        from groups needs them, and others ignore them. Rows whose group is missing or was not in
        the fit get the common answer, and a warning counts them.
        """
        return self.output("labels", self.with_groups(logits, groups))

    def predict_confidence(self, logits: Any, *, groups: Any = None) -> Array:
        """The probability (n,) that each predicted label is right."""
        return self.output("confidence", self.with_groups(logits, groups))

    def predict_proba(self, logits: Any, *, groups: Any = None, dtype: Any = None) -> Array:
        """Probabilities (n, classes); rows sum to 1 and masked classes (-inf) get 0.

        The only possible class of a row gets 1, whatever the confidence. The hidden classes of a
        `TopK` share their rest evenly. Where the confidence is low, another class can end up above
        the label; `predict` is still the label. `dtype="float32"` gives NumPy arrays of half the
        size, computed in float64 all the same; other libraries answer in the type of the logits.
        """
        given = self.with_groups(logits, groups)
        if dtype is None or backend_of(logits) not in (None, NUMPY):
            return self.output("proba", given)
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ValueError(f"`dtype` must be 'float32' or 'float64'; got {dtype!r}.")
        data = self._check_logits(given)
        return predict_blocks(self.rule_, "proba", data, narrow=np.dtype(dtype) == np.float32)

    def with_groups(self, logits: Any, groups: Any) -> Any:
        """Logits with the groups of their rows (`GroupedLogits`), if the calibrator needs them.

        What takes logits takes these too: `output`, monitors, `compare`.
        """
        self.check_fitted()
        if groups is None or self.rule_.needed_groups is None or isinstance(logits, GroupedLogits):
            return logits
        return with_groups(logits, groups, self.rule_.needed_groups, fitted_by=self)

    def group_codes(self, groups: Any) -> IntArray:
        """Integers (n, columns), which torch modules and ONNX graphs take in place of groups.

        The last of each column is for rows whose group is missing or was not in the fit.
        """
        self.check_fitted()
        coding = self.rule_.needed_groups
        if coding is None:
            raise ValueError("`groups` have no codes: this calibrator did not learn from groups.")
        codes: IntArray = coding.codes(groups, count_rows(groups))
        return codes

    def predict_support(self, logits: Any) -> Array:
        """Which rows (n,) are like the calibration examples: False where it has seen no such row.

        A row is outside if the classifier's own certainty (the softmax log-odds of its label) or
        its top logit lies beyond all those of the fit. Confidence is an extrapolation there, and
        modest at best. Of n calibration examples and one more of the same kind, the last is outside
        with probability at most 4 / (n + 1); many such rows mean that the data are of another kind.

        >>> from hokical import Hoki
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (test_logits, _) = demo_logits()
        >>> cal = Hoki().fit(val_logits, val_labels)
        >>> bool(cal.predict_support(test_logits).mean() > 0.99)
        True
        >>> bool(cal.predict_support(20 * test_logits).mean() < 0.5)
        True
        """
        return self.output("support", logits)

    def confidence_bounds(self, logits: Any) -> tuple[Array, Array]:
        """The least and the greatest confidence (n,) that the hidden classes of a `TopK` allow.

        Half their difference is the uncertainty due to the hidden classes. Both equal the
        confidence if no class is hidden.
        """
        if isinstance(logits, TopK):
            data = self._check_logits(logits)
            if isinstance(data, TopK):
                return self.rule_.confidence_bounds(data)
        confidence = self.predict_confidence(logits)
        return confidence, confidence + 0.0

    def _as_labels(self, labels: Any, data: Logits) -> IntArray:
        """Labels (n,) of rows, which may be names where those of the classes are known."""
        return as_labels(labels, data.n_rows, data.n_classes, classes=self.class_names)

    def score(
        self, logits: Any, labels: Any, sample_weight: Any = None, *, groups: Any = None
    ) -> float:
        """The negative Brier score of the confidence: larger is better, 0 is perfect."""
        data = self._check_logits(self.with_groups(logits, groups))
        truth = self._as_labels(labels, data)
        weights = as_weights(sample_weight, data.n_rows)
        error = self._output_on_host("confidence", data) - (
            self._output_on_host("labels", data) == truth
        )
        return -float(np.average(error**2, weights=weights))

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
        learned = self.fit_rows_ is not None and bool(self.rule_.numbers())
        if learned and self.fit_rows_.holds_too_many(hashes):  # type: ignore[union-attr]
            raise ValueError(
                "`logits` must be of examples that were not used in `fit`; got rows of the fit. "
                "They look better than new ones, so what they certify would not hold. Split the "
                "labelled examples: fit on one part and certify on the other."
            )

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
        accepted examples of the same kind is at most `risk`. After `fit` alone the threshold is on
        the classifier's own softmax score, after `certify` on the calibrated confidence. If nothing
        can be accepted, `accepted` is False everywhere and `guarantee` says why.

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
            labels, confidence, levels, table, risk=risk, delta=delta, certified_on=source
        )
        return found.map_arrays(lambda array: to_input_library(array, logits))

    def predict_interval(self, logits: Any, *, delta: float = 0.05, groups: Any = None) -> Array:
        """A confidence interval (n, 2) for the accuracy of labels with a similar score.

        The calibration examples, or of `certify`, are divided into groups of neighbouring scores;
        the interval misses the true accuracy of the example's group with probability at most
        `delta` (Clopper-Pearson). The confidence is finer than a group: where it is outside, the
        interval is extended to it. Venn-Abers prediction has an interval of its own for the label's
        probability, without a `delta`, which is given until `certify` is called.

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
            # One level of doubt, as examples were counted (`doubtful_levels`).
            found = accuracy_intervals(table, wanted, delta, doubt=1)
        ends = [np.minimum(found[:, 0], confidence), np.maximum(found[:, 1], confidence)]
        return to_input_library(np.stack(ends, axis=1), logits)

    @property
    def stamp(self) -> str:
        """A hash of the rule: equal stamps, equal predictions. `certify` does not change it."""
        self.check_fitted()
        return fingerprint({"n_classes": self.n_classes_, "rule": self.rule_})

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        metadata: dict[str, Any] | None = None,
        beside: dict[str, Any] | None = None,
    ) -> None:
        """Write the fitted calibrator to a JSON file, atomically; `hokical.load` reads it.

        `metadata` holds plain values to store in the file for the caller's own use; `beside` is its
        old name.
        """
        self.check_fitted()
        if beside is not None:
            warn_user("`beside` is now called `metadata`.", FutureWarning)
            metadata = beside
        if metadata is None and self.class_names:
            metadata = getattr(self, "metadata", {}) | {"classes": list(self.class_names)}
        own = {} if metadata is None else {"beside": metadata}
        write_document(path, {"library_version": VERSION, **self._document(), **own})

    def forget_examples(self) -> None:
        """Drop what the examples of the fit would prove, where they are not independent."""
        self.fit_scores_ = self.neighbours_ = self.fit_conformity_ = None

    def _document(self) -> dict[str, Any]:
        """The contents of a file, in which the metadata have been called `beside` since 0.2."""
        stored = {name: getattr(self, f"{name}_") for name in STORED}
        return {"method": self.name, **stored, "beside": {}}

    def _fit_in_words(self) -> str:
        """Classes, examples and the single numbers of the rule, for `repr`."""
        counts = self.fit_scores_
        words = [f"{self.n_classes_} classes"]
        words += [] if counts is None else [f"{counts.total:,} examples"]
        for name, value in self.rule_.own_fields().items():
            if isinstance(value, (float, Noise)):
                words.append(f"{name} {value:.4g}" if isinstance(value, float) else repr(value))
        return ", ".join(words)

    def check_fitted(self) -> None:
        """Raise if the calibrator is not fitted."""

    def output(self, what: Output | Literal["support"], logits: Any) -> Array:
        """The output of a `predict` method by name: "labels", "confidence", "proba", "support".

        "members" (n, classes), bool, is that of a calibrator `with_sets`.
        """
        self.check_fitted()
        if what == "members" and not isinstance(self.rule_, SetRule):
            raise ValueError(
                "sets need what is asked of them: use `predict_set(logits, coverage=0.9)`, or give "
                "`cal.with_sets(coverage=0.9)` in place of the calibrator."
            )
        backend = backend_of(logits)
        lazy = None if backend is None else backend.predict_lazily(self, what, logits)
        if lazy is not None:
            return lazy
        given = logits.given if isinstance(logits, Logits) else logits
        with float64_scope(given):
            data = self._check_logits(logits)
            if what == "support":
                return to_input_library(self.known_support.holds(data), given)
            return to_input_library(predict_blocks(self.rule_, what, data), given)

    @property
    def known_support(self) -> Support:
        """`support_`, or an error where it was not stored."""
        self.check_fitted()
        if self.support_ is None:
            raise ValueError(
                "what the examples of the fit were like was not stored with this calibrator. Fit "
                "it again."
            )
        return self.support_

    def _output_on_host(self, what: Output, data: Logits) -> NDArray[Any]:
        """An answer in full precision, on the host."""
        with data.backend.in_float64():
            return data.to_host(predict_blocks(self.rule_, what, data))

    def _check_logits(self, logits: Any) -> Logits:
        self.check_fitted()
        given = as_two_columns(logits) if self.rule_.binary_only else logits
        return acceptable(self.rule_, as_logits(given, fitted_by=self))

    def _evidence(self, asked: str) -> tuple[Evidence, ScoreTable]:
        """The table behind a guarantee, or an error that says how to get one."""
        if self.held_out_scores_ is not None:
            return "held-out", self.held_out_scores_
        if self.fit_scores_ is not None:
            return "fit", self.fit_scores_
        if isinstance(self.rule_, BalancedRule):
            reason = "those of its fit, and of an earlier `certify`, are of the old class balance"
        elif self.rule_.preserves_labels:
            reason = (
                "those of its fit are no test of it (weights that are not whole numbers of "
                "examples, pixels or tokens of the same items, or folds of a cross-validation)"
            )
        else:
            reason = f"{self.name!r} may change labels, so examples it was fitted on cannot test it"
        raise ValueError(
            f"`{asked}` has no examples to go by: {reason}. Call `certify(logits, labels)` first, "
            "with examples that nothing was fitted on."
        )


def acceptable(method: Any, logits: Logits) -> Logits:
    """Return the logits if the method (a rule or an estimator) accepts them, else raise."""
    if type(logits) is Logits and getattr(method, "needed_groups", None) is not None:
        columns = ", ".join(method.needed_groups.columns)
        raise ValueError(
            f"`groups` must be given, as in the fit: {columns}. A group is never guessed; for rows "
            "whose group is not known pass None, and they get the common answer."
        )
    if type(logits) not in (method.logits_kind, TopK):
        raise TypeError(
            f"`logits` must be {_in_words(method.logits_kind)} for {method.name!r}; got "
            f"{_in_words(type(logits))}."
        )
    if method.accepts_top_k:
        return logits
    return logits.with_every_class(method.name, "Use temps, ets, hoki or profile")


def check_plain_logits(method: Any, argument: str, *, with_groups: bool = False) -> None:
    """Raise if a method (a rule or an estimator) needs more than logits, which is all it gets."""
    if method.logits_kind is GroupedLogits:
        if with_groups:
            return
        raise ValueError(
            f"`{argument}` cannot be one that learned from groups here, where there are logits "
            "alone. Call its `predict` with `groups`, or fit one without."
        )
    if method.logits_kind is not Logits:
        raise ValueError(
            f"`{argument}` cannot be {method.name!r} here, where there are logits alone: it needs "
            f"{_in_words(method.logits_kind)}. Call its `fit` and `predict` with that."
        )


def _in_words(kind: type[Logits]) -> str:
    return "logits (n, classes)" if kind is Logits else f"a `{kind.__module__}.{kind.__name__}`"


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
