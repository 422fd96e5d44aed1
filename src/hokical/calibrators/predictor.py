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
from hokical._core.arrays import (
    NUMPY,
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    backend_of,
    float64_scope,
)
from hokical._core.checks import NoEvidenceError
from hokical._core.conversion import SUM_SLACK
from hokical._core.ensembles import Ensemble
from hokical._core.groups import GroupNames, count_rows
from hokical._core.logits import Logits, TopK, as_logits, check_rows
from hokical._core.runtime import WarningLog
from hokical._core.schema import InputSchema
from hokical._core.storage import fingerprint
from hokical._fitting.examples import probability_scale
from hokical.guarantees import scores
from hokical.guarantees.class_features import ClassFeatures
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

#: What a predictor gives for each row, or for each class of a row.
Prediction = Literal["labels", "confidence", "proba", "members", "support"]
#: Minimum rows whose sums are compared with 100 loosely; fewer may be near by
#: coincidence.
_MIN_ROWS_TO_SUM = 4
#: Relative difference from 100 that is allowed for fewer rows: the rounding of float32.
_SUM_SLACK_OF_FEW = 1e-5
#: The largest percentage.
_MAX_PERCENTAGE = 100.0
#: The reason why the examples of a fit can prove nothing.
_NO_TEST = (
    "are no test of it (votes, unequal weights, an ensemble whose members were weighted on them, "
    "pixels or tokens of the same items, or folds "
    "of a cross-validation)"
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
    held_out_for_new_groups : what they prove for groups that were never seen, where this
        differs: the rule predicts these without groups, and in `Dense` one position of
        each item counts
    warned : the warnings that were given, shared with the predictors made from this one
    """

    schema: InputSchema
    rule: Rule
    fit_record: FitRecord = field(default_factory=FitRecord)
    held_out: Evidence | None = None
    held_out_for_new_groups: Evidence | None = None
    warned: WarningLog = field(default_factory=WarningLog.current, repr=False)

    @property
    def n_classes(self) -> int:
        return self.schema.n_classes

    @property
    def evidence(self) -> Evidence:
        """What held-out examples prove; without them, those of the fit."""
        return self.fit_record.evidence if self.held_out is None else self.held_out

    def fingerprint(self) -> str:
        """A hash of the rule; predictors with equal ones predict the same."""
        body: dict[str, Any] = {"n_classes": self.n_classes, "rule": self.rule}
        if self.schema.members is not None:
            body["members"] = self.schema.members
        return fingerprint(body)

    # Reading and predicting

    def read(
        self, logits: object, groups: object = None, *, late: bool = False
    ) -> Logits:
        """Checked logits for the rule, with the codes of their groups."""
        with self.warned.once():
            data = self.schema.read(logits, groups, late=late)
            warn_of_probabilities(data, self)
        check_accepted(self.rule, data)
        return data

    def predict(
        self,
        output: Prediction,
        logits: object,
        groups: object = None,
        *,
        narrow: bool = False,
    ) -> Array:
        """Labels (n,), confidence (n,), probabilities or set members (n, classes).

        They are arrays of the library of the logits. Probabilities of other libraries
        than NumPy are float32 if the logits are floats but not float64; those of NumPy
        if `narrow`.
        """
        if output == "members" and not isinstance(self.rule, SetRule):
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
            return backend.lazy.map_rows(partial(self.predict, output), logits)
        with float64_scope(like):
            data = self.read(logits, groups, late=True)
            if backend not in (None, NUMPY):
                is_wide = like.dtype == backend.namespace(like).float64
                is_float = backend.kind(like) == "float"
                narrow = data.is_numpy and is_float and not is_wide
            values = self._predict_checked(output, data, narrow)
            if not data.is_numpy and data.backend.queues_work(data.values):
                check_rows(data)
            if type(like) is np.ndarray:
                return values
            return arrays.to_input_library(values, like)

    def _predict_checked(self, output: Prediction, data: Logits, narrow: bool) -> Array:
        """What is predicted of checked logits, in their library."""
        if output == "support":
            return scores.is_within(data, self.support.edges)
        return base.predict_blocks(self.rule, output, data, narrow=narrow)

    @property
    def support(self) -> Support:
        """The range of the rows of the fit."""
        if self.fit_record.support is None:
            raise ValueError(_not_kept("support"))
        return self.fit_record.support

    def class_statistics(self) -> ClassFeatures:
        """The features of the rows of the fit by true class."""
        if self.fit_record.class_features is None:
            raise ValueError(_not_kept("class_features"))
        return self.fit_record.class_features

    # Guarantees

    def certified_sets(
        self, options: SetOptions, *, label: int | None = None
    ) -> CertifiedSets:
        """The thresholds proven for sets, by all examples or those of one label."""
        evidence = self.evidence
        if evidence.conformity is None:
            raise NoEvidenceError(
                "prediction sets have no examples to go by: those of the fit were not "
                f"kept, or {_NO_TEST}."
            )
        return evidence.set_thresholds(options, self.n_classes, label=label)

    def predict_set(
        self, logits: object, options: SetOptions, groups: object = None
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
        hidden_member = None
        shown = None
        if isinstance(logits, TopK) and logits.hidden.any():
            hidden_member = (members & ~logits.mark_seen()).any(axis=1)
            shown = logits.indices
        return PredictionSets(
            members=members,
            sizes=_set_sizes(members),
            options=options,
            certified_on=certified.certified_on,
            guarantee=certified.guarantee(),
            thresholds=certified.probability_thresholds(),
            other=hidden_member,
            classes=self.schema.class_names or None,
            seen=shown,
            n_unknown=n_unknown,
        )

    def _check_set_groups(self, certified: CertifiedSets, groups: object) -> None:
        """Raise unless groups are given where they are needed; warn of unknown ones."""
        by_group = certified.options.by == "group"
        names = certified.examples.group_names
        takes_groups = by_group or self.schema.saw_groups or names is not None
        is_missing = groups is None and by_group
        if is_missing or (groups is not None and not takes_groups):
            raise ValueError(
                '`groups` must be given with `by="group"`, or to a calibrator that '
                "learned from them or was certified with them, and with nothing else."
            )
        is_guaranteed = certified.options.by in ("group", "new group")
        if groups is not None and names is not None and not is_guaranteed:
            consequence = "may be covered less than the guarantee says"
            names.tell_new(groups, count_rows(groups), consequence)

    def _members_by_group(
        self, certified: CertifiedSets, logits: object, groups: object
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
        return arrays.to_input_library(members, input_of(logits)), n_unknown

    def detect(
        self, logits: object, label: int, options: SetOptions, groups: object = None
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
        """Whether predicted labels are those that the evidence is about.

        Examples of a fit test the classifier's own labels, which do not depend on them.
        """
        return self.held_out is not None or self.rule.preserves_labels

    def abstention_thresholds(self, options: AbstentionOptions) -> AbstentionThresholds:
        """The thresholds proven for abstention."""
        predictor = self.for_new_groups() if options.by == "new group" else self
        predictor.check_counted("predict_or_abstain")
        return predictor.evidence.abstention_thresholds(
            options, tested=predictor.predicts_tested_labels
        )

    def predict_or_abstain(
        self, logits: object, options: AbstentionOptions, groups: object = None
    ) -> SelectivePrediction:
        """Labels, and which to accept; see `Calibrator.predict_or_abstain`."""
        lazy = arrays.lazy_arrays(logits)
        if lazy is not None and options.by == "all" and groups is None:
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
        like = input_of(logits)
        return SelectivePrediction.of(
            proven,
            arrays.to_input_library(labels.labels, like),
            arrays.to_input_library(labels.confidence, like),
            arrays.to_input_library(accepted, like),
        )

    def _accepted(self, options: AbstentionOptions, logits: object) -> Array:
        """Which rows (n,) are accepted, for blocks of lazy arrays."""
        return self.predict_or_abstain(logits, options).accepted

    def predict_interval(
        self,
        logits: object,
        delta: float,
        label: int | None = None,
        groups: object = None,
    ) -> Array:
        """Intervals (n, 2) of the accuracy; see `Calibrator.predict_interval`."""
        lazy = arrays.lazy_arrays(logits)
        if groups is None and lazy is not None:
            work = partial(self._interval_of, delta, label)
            return lazy.map_rows(work, logits)
        data = self.read(logits, groups)
        low_high = self._intervals_of_rule(data, label)
        if low_high is None and label is None:
            low_high = self._accuracy_intervals(data, delta)
        if low_high is None and label is not None:
            low_high = self._class_intervals(data, delta, label)
        return arrays.to_input_library(low_high, input_of(logits))

    def _interval_of(self, delta: float, label: int | None, logits: object) -> Array:
        """Intervals for blocks of lazy arrays."""
        return self.predict_interval(logits, delta, label)

    def _intervals_of_rule(self, data: Logits, label: int | None) -> FloatArray | None:
        """Intervals (n, 2) of the rule itself, where no held-out examples replace
        them.
        """
        evidence = self.evidence
        table = evidence.label_scores if label is None else evidence.class_scores
        if evidence.source != "fit" and table is not None:
            return None
        bounds = self.rule.on_device_of(data).interval(data, label)
        if bounds is None:
            return None
        return np.stack([data.to_host(bound) for bound in bounds], axis=1)

    def _class_intervals(self, data: Logits, delta: float, label: int) -> FloatArray:
        """Intervals (n, 2) for the share of a class among rows of similar
        probability.
        """
        table = self.evidence.class_scores
        if table is None:
            raise NoEvidenceError(
                "`predict_interval` with a `label` has no examples to go by: they must "
                "count alike, and have all logits, of at most "
                f"{MAX_COUNTED_CLASSES:,} classes."
            )
        proba = base.predict_on_host(self.rule, "proba", data)[:, label]
        proba = proba.astype(np.float64)
        levels = scores.class_levels(proba)
        return table.cells()[label].intervals(levels, proba, delta)

    def _accuracy_intervals(self, data: Logits, delta: float) -> FloatArray:
        """Intervals (n, 2) for the accuracy of labels of a similar score."""
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
        raise NoEvidenceError(f"`{method}` has no examples to go by: those {reason}.")

    # Other predictors

    def for_new_groups(self) -> Self:
        """One that predicts for all groups alike, with the evidence of `certify` for
        that.
        """
        evidence = self.held_out_for_new_groups or self.held_out
        if self.schema.groups is None and evidence is self.held_out:
            return self
        return replace(
            self,
            schema=self.schema.without_groups(),
            rule=self.rule.without_groups(),
            held_out=evidence,
            held_out_for_new_groups=None,
        )

    def without_groups(self) -> Self:
        """One that predicts for all groups alike; itself, if it learned from none.

        Sets use the classifier's own scores of the fit, which do not depend on groups.
        Abstention and intervals have no examples, as those of the fit tested other
        predictions.
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
            held_out_for_new_groups=None,
        )

    def with_sets(self, options: SetOptions) -> Self:
        """One that also predicts the members of sets."""
        predictor = self.for_new_groups() if options.by == "new group" else self
        certified = predictor.certified_sets(options)
        return replace(predictor, rule=certified.rule(predictor.rule))

    def reweighted(self, ratio: FloatArray) -> Self:
        """One for rows among which each class is `ratio` (classes,) times as frequent.

        What `certify` counted is dropped.
        """
        rule = self.rule
        if isinstance(rule, SetRule):
            raise ValueError(
                "class frequencies must be set before sets: `with_sets` comes last."
            )
        weights = ratio
        if isinstance(rule, BalancedRule):
            weights = rule.weights * ratio
            rule = rule.rule
        return replace(
            self,
            rule=BalancedRule(rule, weights),
            fit_record=self.fit_record.reweighted(ratio),
            held_out=None,
            held_out_for_new_groups=None,
        )


@dataclass(frozen=True, eq=False)
class ScoredLabels:
    """Labels and confidences (n,), and the level (n,) of the score that examples test.

    `untested` (n,) marks labels that differ from those that the examples test; they are
    not accepted.
    """

    labels: IntArray
    confidence: FloatArray
    level: IntArray
    untested: BoolArray | None = None


def input_of(logits: object) -> Array:
    """The array that results are like: of the same library, device and type."""
    return logits.like if isinstance(logits, (Logits, Ensemble)) else logits


def _set_sizes(members: Array) -> Array:
    """The number (n,) of classes in each set, in the library of the members."""
    xp = (backend_of(members) or NUMPY).namespace(members)
    with float64_scope(members):
        counted = members if xp is np else xp.astype(members, xp.int64)
        return xp.sum(counted, axis=1)


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


def warn_of_probabilities(data: Logits, predictor: Predictor) -> None:
    """Warn if rows look like probabilities or percentages, unlike those of the fit."""
    schema = predictor.schema
    support = predictor.fit_record.support
    if support is None or type(data) is not Logits or not data.is_numpy:
        return
    highest = data.top.max()
    if highest > _MAX_PERCENTAGE or data.top.min() <= 0.0:
        return
    highest_of_fit = support.top[1]  # of logarithms of probabilities at most 0
    could_be = highest <= 1.0 + SUM_SLACK  # which a quick look rules out, as a rule
    is_new = not 0.0 < highest_of_fit <= 1.0
    if could_be and is_new and schema.are_probabilities(data):
        kind = "probabilities"
        total = 1
    elif highest_of_fit < highest and _are_percentages(data, schema):
        kind = "percentages"
        total = 100
    else:
        return
    message = (
        f"`logits` look like {kind}: all rows sum to {total}, and those of the fit did "
        "not. Pass logits, as in the fit."
    )
    if isinstance(predictor.rule, base.UncalibratedRule):  # which learned nothing
        convert = (
            "Convert them" if total == 1 else "Divide them by 100 and convert them"
        )
        message = (
            f"`logits` look like {kind}: all rows sum to {total}. {convert} with "
            "`hokical.from_probabilities`, or pass the logits."
        )
    runtime.warn_user(message, cause=f"logits like {kind}")


def _are_percentages(data: Logits, schema: InputSchema) -> bool:
    """Whether all rows sum to 100, as exactly as the digits of few rows allow."""
    slack = SUM_SLACK if data.n_rows >= _MIN_ROWS_TO_SUM else _SUM_SLACK_OF_FEW
    if probability_scale(data, data.top, slack) == _MAX_PERCENTAGE:
        return True
    return schema.are_probabilities(as_logits(data.values / _MAX_PERCENTAGE))


def _not_kept(name: str) -> str:
    """The message for statistics of a fit that an older file does not have."""
    return (
        f"the `{name}` of the calibration examples was not stored with this "
        "calibrator. Fit it again."
    )
