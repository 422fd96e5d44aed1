"""What a fitted calibrator is: a schema, a rule and evidence, all of them frozen.

A `Predictor` reads new rows by its schema, predicts by its rule, and proves guarantees
from its evidence. Other class frequencies, sets, or rows without groups make another
predictor. `Calibrator` is the estimator around one; the PyTorch module, ONNX, maps,
monitors and streams take one, and need nothing else of a calibrator.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np

from hokical._core import arrays, runtime
from hokical._core.arrays import NUMPY, Array, BoolArray, backend_of, float64_scope
from hokical._core.conversion import SUM_SLACK
from hokical._core.ensembles import Ensemble
from hokical._core.groups import GroupNames, count_rows
from hokical._core.logits import Logits, TopK, check_rows
from hokical._core.runtime import WarningLog
from hokical._core.schema import InputSchema
from hokical._core.storage import fingerprint
from hokical._fitting.examples import probability_scale
from hokical.guarantees import scores
from hokical.guarantees.control import percent
from hokical.guarantees.evidence import (
    MAX_COUNTED_CLASSES,
    Evidence,
    FitRecord,
)
from hokical.guarantees.scores import (
    AbstentionOptions,
    AbstentionThresholds,
    SelectivePrediction,
    Support,
    match_groups,
    score_levels,
)
from hokical.guarantees.sets import (
    CertifiedSets,
    Detections,
    PredictionSets,
    SetOptions,
)
from hokical.rules import base
from hokical.rules.base import BalancedRule, Rule
from hokical.rules.sets import SetRule

#: What a predictor gives for each row, or for each class of it.
Prediction = Literal["labels", "confidence", "proba", "members", "support"]
#: Fewer rows may sum to nearly 100 by coincidence: their sums must be 100 as exactly as
#: float32 has them.
_MIN_ROWS_TO_SUM = 4
_SUM_SLACK_OF_FEW = 1e-5
#: Percentages reach up to here.
_MAX_PERCENTAGE = 100.0
#: Why the examples of a fit can prove nothing.
_NO_TEST = (
    "are no test of it (unequal weights, an ensemble whose members were weighted on them, "
    "pixels or tokens of the same items, or folds "
    "of a cross-validation)"
)
#: What every error about missing examples ends with.
_CERTIFY = (
    "Call `certify(logits, labels)` first, with examples that nothing was fitted on."
)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A fitted rule with all that is needed to use it.

    Attributes
    ----------
    schema : how new rows are read
    rule : how they are predicted
    fit_record : statistics of the examples of the fit
    held_out : what the examples of `certify` prove, if there are any
    held_out_without_groups : the same of the predictions that a group gets which the
        fit does not know, where these differ
    warned : what was warned of already, shared by the predictors made of this one
    """

    schema: InputSchema
    rule: Rule
    fit_record: FitRecord = field(default_factory=FitRecord)
    held_out: Evidence | None = None
    held_out_without_groups: Evidence | None = None
    warned: WarningLog = field(default_factory=WarningLog.current, repr=False)

    @property
    def n_classes(self) -> int:
        return self.schema.n_classes

    @property
    def evidence(self) -> Evidence:
        """That of the best examples there are."""
        return self.fit_record.evidence if self.held_out is None else self.held_out

    def fingerprint(self) -> str:
        """A hash of the rule: equal ones, equal predictions."""
        body: dict[str, Any] = {"n_classes": self.n_classes, "rule": self.rule}
        if self.schema.members is not None:
            body["members"] = self.schema.members
        return fingerprint(body)

    # Reading and predicting

    def read(self, logits: Any, groups: Any = None, *, late: bool = False) -> Logits:
        """Checked logits for the rule, with the codes of their groups."""
        with self.warned.once():
            data = self.schema.read(logits, groups, late=late)
            warn_of_probabilities(data, self.schema, self.fit_record.support)
        check_accepted(self.rule, data)
        return data

    def predict(
        self, what: Prediction, logits: Any, groups: Any = None, *, narrow: bool = False
    ) -> Array:
        """Labels (n,), confidence (n,), probabilities or set members (n, classes).

        In the library of the logits. Probabilities of other libraries than NumPy are
        float32 if the logits are floats but not float64; those of NumPy if `narrow`.
        """
        if what == "members" and not isinstance(self.rule, SetRule):
            raise ValueError(
                "sets need a coverage: use `predict_set`, or pass "
                "`hokical.calibrators.with_sets(cal, coverage=0.9)` for the "
                "calibrator."
            )
        like = input_of(logits)
        backend = backend_of(like)
        if backend is not None and backend.lazy is not None:
            if groups is not None and self.schema.groups is not None:
                self.schema.read(logits, groups)  # which refuses lazy arrays
            return backend.lazy.map_rows(partial(self.predict, what), logits)
        with float64_scope(like):
            data = self.read(logits, groups, late=True)
            if backend not in (None, NUMPY):
                wide = like.dtype == backend.namespace(like).float64
                narrow = data.is_numpy and not wide and backend.kind(like) == "float"
            values = self._predict_checked(what, data, narrow)
            if not data.is_numpy and data.backend.queues_work(data.values):
                check_rows(data)
            if type(like) is np.ndarray:
                return values
            return arrays.to_input_library(values, like)

    def _predict_checked(self, what: Prediction, data: Logits, narrow: bool) -> Array:
        if what == "support":
            return scores.is_within(data, self.support.edges)
        return base.predict_blocks(self.rule, what, data, narrow=narrow)

    @property
    def support(self) -> Support:
        """The range of the rows of the fit."""
        if self.fit_record.support is None:
            raise ValueError(_not_kept("support"))
        return self.fit_record.support

    def class_statistics(self) -> Any:
        """The features of the rows of the fit by true class."""
        if self.fit_record.class_scores is None:
            raise ValueError(_not_kept("class_scores"))
        return self.fit_record.class_scores

    # Guarantees

    def certified_sets(
        self, options: SetOptions, *, label: int | None = None
    ) -> CertifiedSets:
        """The thresholds that are proven for sets, or by the examples of one label."""
        evidence = self.evidence
        if evidence.conformity is None:
            raise ValueError(
                "prediction sets have no examples to go by: those of the fit were not "
                f"kept, or {_NO_TEST}. {_CERTIFY}"
            )
        return evidence.set_thresholds(options, self.n_classes, label=label)

    def predict_set(
        self, logits: Any, options: SetOptions, groups: Any = None
    ) -> PredictionSets:
        """Sets of classes for each row; see `Calibrator.predict_set`."""
        predictor = self.for_new_groups() if options.by == "new group" else self
        certified = predictor.certified_sets(options)
        self._check_set_groups(certified, groups)
        n_unknown = 0
        if options.by == "group":
            members, n_unknown = self._members_by_group(certified, logits, groups)
        else:
            sets = replace(predictor, rule=certified.rule(predictor.rule))
            members = sets.predict("members", logits, groups)
        like = input_of(logits)
        with float64_scope(like):
            xp = (backend_of(members) or NUMPY).namespace(members)
            counted = members if xp is np else xp.astype(members, xp.int64)
            sizes = xp.sum(counted, axis=1)
        hidden_member = None
        shown = None
        if isinstance(logits, TopK) and logits.hidden.any():
            hidden_member = (members & ~logits.mark_seen()).any(axis=1)
            shown = logits.indices
        return PredictionSets(
            members,
            sizes,
            options,
            certified.certified_on,
            certified.guarantee(),
            certified.probability_thresholds(),
            other=hidden_member,
            classes=self.schema.class_names or None,
            seen=shown,
            n_unknown=n_unknown,
        )

    def _check_set_groups(self, certified: CertifiedSets, groups: Any) -> None:
        """Raise unless groups are given where they are needed; warn of unknown ones."""
        by_group = certified.options.by == "group"
        names = certified.examples.group_names
        usable = by_group or self.schema.saw_groups or names is not None
        if (groups is None and by_group) or (groups is not None and not usable):
            raise ValueError(
                '`groups` must be given with `by="group"`, or to a calibrator that '
                "learned from them or was certified with them, and with nothing else."
            )
        if groups is None or names is None or certified.options.by == "new group":
            return
        if not by_group:
            message = "may be covered less than the guarantee says"
            names.match(groups, count_rows(groups), message)

    def _members_by_group(
        self, certified: CertifiedSets, logits: Any, groups: Any
    ) -> tuple[Array, int]:
        """Members (n, classes), by a threshold for each group, and the number of rows of
        unknown groups.
        """
        data = self.read(logits, groups)
        names = certified.examples.group_names
        assert isinstance(names, GroupNames)  # or there are no thresholds by group
        cells, n_unknown = names.match(groups, data.n_rows, "get every class")
        members = np.zeros((data.n_rows, data.n_classes), np.bool_)
        for cell in np.unique(cells):
            rows = np.flatnonzero(cells == cell)
            rule = certified.rule(self.rule, int(cell))
            members[rows] = base.predict_on_host(rule, "members", data.take(rows))
        like = input_of(logits)
        return arrays.to_input_library(members, like), n_unknown

    def detect(
        self, logits: Any, label: int, options: SetOptions, groups: Any = None
    ) -> Detections:
        """Rows that may be of one class; see `Calibrator.detect`."""
        certified = self.certified_sets(options, label=label)
        sets = replace(self, rule=certified.rule(self.rule))
        members = sets.predict("members", logits, groups)
        names = self.schema.class_names
        name = names[label] if names else label
        claim = f"Recall of class {name} at least {percent(options.coverage)}"
        message = certified.guarantee(claim, true=f"true class is {name} and")
        thresholds = certified.probability_thresholds()
        return Detections(members[..., label], thresholds, message)

    @property
    def predicts_tested_labels(self) -> bool:
        """Whether the labels are those that the examples behind a guarantee test.

        Examples of a fit test the classifier's own labels, which do not depend on them.
        """
        return self.held_out is not None or self.rule.preserves_labels

    def abstention_thresholds(self, options: AbstentionOptions) -> AbstentionThresholds:
        """The thresholds that are proven for abstention."""
        predictor = self.for_new_groups() if options.by == "new group" else self
        predictor.check_counted("predict_or_abstain")
        return predictor.evidence.abstention_thresholds(
            options, tested=predictor.predicts_tested_labels
        )

    def predict_or_abstain(
        self, logits: Any, options: AbstentionOptions, groups: Any = None
    ) -> SelectivePrediction:
        """Labels, and which to accept; see `Calibrator.predict_or_abstain`."""
        lazy = arrays.lazy_arrays(logits)
        if options.by == "all" and groups is None and lazy is not None:
            return SelectivePrediction.of(
                self.abstention_thresholds(options),
                self.predict("labels", logits),
                self.predict("confidence", logits),
                lazy.map_rows(partial(self._accepted, options), logits),
            )
        predictor = self.for_new_groups() if options.by == "new group" else self
        data = predictor.read(logits, groups)
        labels = predictor.score_labels(data, "predict_or_abstain")
        evidence = predictor.evidence
        assert evidence.label_scores is not None
        cells = match_groups(evidence.label_scores, options.by, groups, data.n_rows)
        proven = predictor.abstention_thresholds(options)
        accepted = proven.accepts(labels.level, cells)
        if labels.untested is not None:
            accepted &= ~labels.untested
        rows = (labels.labels, labels.confidence, accepted)
        return SelectivePrediction.of(
            proven,
            *(arrays.to_input_library(array, input_of(logits)) for array in rows),
        )

    def _accepted(self, options: AbstentionOptions, logits: Any) -> Array:
        return self.predict_or_abstain(logits, options).accepted

    def predict_interval(
        self,
        logits: Any,
        delta: float,
        label: int | None = None,
        groups: Any = None,
    ) -> Array:
        """Intervals (n, 2) of the accuracy; see `Calibrator.predict_interval`."""
        lazy = arrays.lazy_arrays(logits)
        if groups is None and lazy is not None:
            work = partial(self._interval_of, delta, label)
            return lazy.map_rows(work, logits)
        data = self.read(logits, groups)
        evidence = self.evidence
        table = evidence.label_scores if label is None else evidence.class_scores
        by_rule = None
        if evidence.source == "fit" or table is None:
            by_rule = self.rule.on_device_of(data).interval(data, label)
        if by_rule is not None:
            low_high = np.stack([data.to_host(end) for end in by_rule], axis=1)
        elif label is None:
            low_high = self._accuracy_intervals(data, delta)
        elif table is None:
            raise ValueError(
                "`predict_interval` with a `label` has no examples to go by: they must "
                "count alike, and have all logits, of at most "
                f"{MAX_COUNTED_CLASSES:,} classes. {_CERTIFY}"
            )
        else:
            proba = base.predict_on_host(self.rule, "proba", data)[:, label]
            proba = proba.astype(np.float64)
            levels = scores.class_levels(proba)
            low_high = table.cells()[label].intervals(levels, proba, delta)
        return arrays.to_input_library(low_high, input_of(logits))

    def _interval_of(self, delta: float, label: int | None, logits: Any) -> Array:
        return self.predict_interval(logits, delta, label)

    def _accuracy_intervals(self, data: Logits, delta: float) -> Array:
        labels = self.score_labels(data, "predict_interval")
        table = self.evidence.label_scores
        assert table is not None
        # Examples were counted one level away where that is conservative.
        low_high = table.pooled().intervals(labels.level, labels.confidence, delta)
        if labels.untested is not None:
            low_high[labels.untested] = 0.0, 1.0
        return low_high

    def score_labels(self, data: Logits, method: str) -> ScoredLabels:
        """Labels with the scores by which examples test them.

        Errors name the `method` that needs them, and say how to get examples.
        """
        self.check_counted(method)
        labels, confidence = base.labels_and_confidence(self.rule, data)
        if self.held_out is not None:
            level = score_levels(scores.confidence_log_odds(confidence))
            return ScoredLabels(labels, confidence, level)
        level = score_levels(data.to_host(scores.label_log_odds(data)))
        untested = None
        if not self.rule.preserves_labels:
            untested = labels != data.to_host(data.labels)
        return ScoredLabels(labels, confidence, level, untested)

    def check_counted(self, method: str) -> None:
        """Raise if no examples count labels by score."""
        if self.evidence.label_scores is not None:
            return
        if self.held_out is not None:
            raise ValueError(
                f"`{method}` needs held-out examples of equal weight; those of "
                "`certify` have unequal ones, with which only guarantees on average "
                "hold: use `predict_set`. If the weights are numbers of examples, call "
                "`certify(..., counts=True)`."
            )
        reason = f"of its fit {_NO_TEST}"
        if isinstance(self.rule, BalancedRule):
            reason = (
                "of its fit and of an earlier `certify` have the old class frequencies"
            )
        raise ValueError(
            f"`{method}` has no examples to go by: those {reason}. {_CERTIFY}"
        )

    # Other predictors

    def for_new_groups(self) -> Self:
        """One that predicts for all groups alike, with what `certify` noted of that."""
        evidence = self.held_out_without_groups or self.held_out
        if self.schema.groups is None and evidence is self.held_out:
            return self
        return replace(
            self,
            schema=self.schema.without_groups(),
            rule=self.rule.without_groups(),
            held_out=evidence,
            held_out_without_groups=None,
        )

    def without_groups(self) -> Self:
        """One that predicts for all groups alike; itself, if it learned from none.

        Sets go by the classifier's own scores of the fit, which do not depend on
        groups; for abstention and intervals it has no examples: those of the fit were
        of other predictions.
        """
        if self.schema.groups is None:
            return self
        record = self.fit_record
        return replace(
            self.for_new_groups(),
            fit_record=replace(record.without_evidence(), conformity=record.conformity),
            held_out=None,
        )

    def without_evidence(self) -> Self:
        """One that predicts the same, and proves nothing."""
        return replace(
            self,
            fit_record=FitRecord(),
            held_out=None,
            held_out_without_groups=None,
        )

    def with_sets(self, options: SetOptions) -> Self:
        """One that also predicts the members of sets."""
        predictor = self.for_new_groups() if options.by == "new group" else self
        certified = predictor.certified_sets(options)
        return replace(predictor, rule=certified.rule(predictor.rule))

    def reweighted(self, ratio: Any) -> Self:
        """One for rows among which each class is `ratio` (classes,) times as frequent.

        What `certify` counted is dropped.
        """
        rule = self.rule
        if isinstance(rule, SetRule):
            raise ValueError(
                "class frequencies must be set before sets: `with_sets` comes last."
            )
        total = ratio
        if isinstance(rule, BalancedRule):
            total = rule.weights * ratio
            rule = rule.rule
        return replace(
            self,
            rule=BalancedRule(rule, total),
            fit_record=self.fit_record.reweighted(ratio),
            held_out=None,
            held_out_without_groups=None,
        )


@dataclass(frozen=True, eq=False)
class ScoredLabels:
    """Labels and confidences (n,), and the level (n,) of the score that examples test.

    `untested` labels (n,) are others than those that the examples test, and are not
    accepted.
    """

    labels: Any
    confidence: Any
    level: Any
    untested: BoolArray | None = None


def input_of(logits: Array) -> Array:
    """The array that results are like: of the same library, device and type."""
    return logits.like if isinstance(logits, (Logits, Ensemble)) else logits


def check_accepted(rule: Rule, logits: Logits) -> None:
    """Raise unless a rule takes these logits."""
    if (
        type(logits) is Logits
        and rule.needed_groups is not None
        and logits.codes is None
    ):
        columns = ", ".join(rule.needed_groups.columns)
        raise ValueError(
            f"`groups` must be given, as in the fit: {columns}. Pass None where one is "
            "not known, to predict for all groups."
        )
    check_kind(rule.name, rule.logits_kind, rule.accepts_top_k, logits)


def check_kind(
    name: str, kind: type[Logits], accepts_top_k: bool, logits: Logits
) -> None:
    """Raise unless a method takes logits of this kind."""
    if type(logits) not in (kind, TopK):
        raise TypeError(
            f"`logits` must be {describe_kind(kind)} for {name!r}; got "
            f"{describe_kind(type(logits))}."
        )
    if isinstance(logits, TopK) and not accepts_top_k:
        logits.with_every_class(name, "Use auto, adaptive, temps, ets or hoki")


def describe_kind(kind: type[Logits]) -> str:
    """A kind of logits in words."""
    if kind is Logits:
        return "logits (n, classes)"
    return f"a `{kind.__module__}.{kind.__name__}`"


def warn_of_probabilities(
    data: Logits, schema: InputSchema, support: Support | None
) -> None:
    """Warn if rows look like probabilities or percentages, and those of the fit did
    not.
    """
    if support is None or type(data) is not Logits or not data.is_numpy:
        return
    highest = data.top.max()
    if highest > _MAX_PERCENTAGE or data.top.min() <= 0.0:
        return
    highest_of_fit = support.top[1]  # of logarithms of probabilities at most 0
    if schema.are_probabilities(data) and not 0.0 < highest_of_fit <= 1.0:
        kind = "probabilities"
        total = 1
    elif highest_of_fit < highest and _are_percentages(data):
        kind = "percentages"
        total = 100
    else:
        return
    runtime.warn_user(
        f"`logits` look like {kind}: all rows sum to {total}, and those of the fit did "
        "not. Pass logits, as in the fit.",
        cause=f"logits like {kind}",
    )


def _are_percentages(data: Logits) -> bool:
    slack = SUM_SLACK if data.n_rows >= _MIN_ROWS_TO_SUM else _SUM_SLACK_OF_FEW
    return probability_scale(data, data.top, slack) == _MAX_PERCENTAGE


def _not_kept(name: str) -> str:
    return (
        f"the `{name}` of the calibration examples was not stored with this "
        "calibrator. Fit it again."
    )
