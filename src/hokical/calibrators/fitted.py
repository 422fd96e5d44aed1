"""A calibrator of logits once it is fitted: a predictor, and a file that holds it.

Containers of rows and predictions (streams, maps, monitors, scikit-learn's
meta-estimator) build on it: they exchange its predictor, read labelled rows for it, and
certify it. Its subclass `Calibrator` has what users call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from hokical._core.arrays import IntArray
from hokical._core.checks import check_flag
from hokical._core.ensembles import Ensemble
from hokical._core.groups import GroupCoding
from hokical._core.reading import Rows
from hokical._core.schema import InputSchema
from hokical._core.storage import CalibratorFileError
from hokical._fitting.examples import Examples
from hokical._fitting.records import shift_record
from hokical.calibrators.averaged import CalibratedMembers
from hokical.calibrators.predictor import Predictor
from hokical.calibrators.stored import (
    Fit,
    StoredEstimator,
    check_stored,
    check_stored_or_none,
)
from hokical.guarantees.evidence import Evidence, FitRecord, ObservedRows, observe
from hokical.guarantees.fingerprints import Reused, one_of_each, row_hashes
from hokical.guarantees.repeats import RowMarks, refuse_copies, warn_of_repeats
from hokical.rules.base import Rule
from hokical.rules.members import MemberLabelsRule, PooledMembers


class FittedCalibrator(StoredEstimator):
    """An estimator whose fit is a `Predictor`: a schema, a rule and evidence."""

    #: How new rows are read and predicted, and what examples prove about it.
    predictor_: Predictor
    classes_: IntArray

    @property
    def rule_(self) -> Rule:
        """The fitted rule."""
        return self.predictor_.rule

    @property
    def schema_(self) -> InputSchema:
        """How new rows are read."""
        return self.predictor_.schema

    @property
    def needed_groups(self) -> GroupCoding | None:
        """The groups that the rule needs beside logits."""
        return self.schema_.groups

    @property
    def n_classes_(self) -> int:
        """The number of classes."""
        return self.predictor_.n_classes

    @property
    def members_(self) -> PooledMembers:
        """The members of the ensemble of the fit: their weights and their worth."""
        members = self.schema_.members
        if not isinstance(members, PooledMembers):
            raise AttributeError(
                "`members_` is there after a fit on a `hokical.Ensemble`; this fit was "
                "on one row of logits for each example."
            )
        return members

    @property
    def needed_members_(self) -> tuple[str, ...]:
        """The members of the ensemble that must be evaluated."""
        return self.members_.needed

    @property
    def n_features_in_(self) -> int:
        """The number of classes, as scikit-learn calls it."""
        return self.predictor_.n_classes

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the order of the columns, where known."""
        return self.schema_.class_names if self.is_fitted else ()

    @property
    def fitted(self) -> Predictor:
        """The predictor, or an error before the fit."""
        self.check_fitted()
        return self.predictor_

    @property
    def is_fitted(self) -> bool:
        """Whether it was fitted, or loaded from a file."""
        return "predictor_" in vars(self)

    def with_predictor(self, predictor: Predictor) -> Self:
        """A copy with another predictor."""
        if predictor is self.predictor_:
            return self
        changed = copy(self)
        changed.predictor_ = predictor
        return changed

    def set_columns(
        self, columns: tuple[str, ...], class_names: tuple[str, ...]
    ) -> None:
        """Note the columns of the fit and the names of the classes."""
        schema = replace(self.schema_, columns=columns, class_names=class_names)
        self.predictor_ = replace(self.predictor_, schema=schema)

    def note_groups(self) -> None:
        """Note that the fit was given groups, which the rule does not need."""
        schema = replace(self.schema_, saw_groups=True)
        self.predictor_ = replace(self.predictor_, schema=schema)

    def without_groups(self) -> Self:
        """A copy that predicts for all groups alike; itself, if it learned from none."""
        return self.with_predictor(self.fitted.without_groups())

    def read_labelled(
        self,
        scores: object,
        labels: object,
        sample_weight: object = None,
        groups: object = None,
        *,
        grouped: bool = True,
    ) -> Rows:
        """Checked rows with labels; unless `grouped`, without the codes of groups."""
        rows = self.read_pair(scores, labels, sample_weight, groups, fitted_by=self)
        predictor = self.fitted
        if not grouped:
            return predictor.schema.read_labelled(rows, grouped=False)
        logits = predictor.read(rows.scores, rows.groups)
        return predictor.schema.check_labels(replace(rows, scores=logits))

    def is_of_fit(self, rows: Rows) -> bool:
        """Whether checked rows are among those that it learned from."""
        # Where another method chose to learn nothing, it did so by these rows.
        learned = self.name != "uncalibrated" or bool(self.rule_.numbers())
        sketch = self.predictor_.fit_record.sketch
        if not learned or sketch is None:
            return False
        scores = rows.scores
        if isinstance(scores, Ensemble):
            scores = self.fitted.read(scores)
        return sketch.holds_too_many(row_hashes(scores))

    def certify_parts(
        self,
        blocks: Iterable[Sequence[object]],
        *,
        reused: Reused = "refuse",
        counts: bool = False,
        cluster: object = None,
    ) -> Self:
        """`certify` with blocks of examples: (logits, labels), with weights, and with
        groups.
        """
        check_flag("counts", counts)
        predictor = self.fitted
        for_new_groups = predictor.for_new_groups()
        observed: list[ObservedRows] = []
        ungrouped: list[ObservedRows] = []
        marks: list[RowMarks] = []
        for block in blocks:
            rows = self.read_held_out(reused, *block, cluster=cluster)
            warn_of_repeats(rows, reused)
            marks.append(RowMarks.of(rows.scores, rows.labels, rows.weights))
            observed.append(observe(predictor.rule, rows, counts=counts))
            if for_new_groups is not predictor and rows.groups is not None:
                rows = replace(rows, scores=replace(rows.scores, codes=None))
                ungrouped.append(observe(for_new_groups.rule, rows, counts=counts))
        if not observed:
            raise ValueError("there must be at least one part with examples; got none.")
        refuse_copies(RowMarks.join(marks).copies(), reused)
        held_out = Evidence.collect(observed, clustered=cluster is not None)
        without_groups = None
        if ungrouped:
            without_groups = Evidence.collect(ungrouped, clustered=cluster is not None)
        self.predictor_ = replace(
            predictor, held_out=held_out, held_out_for_new_groups=without_groups
        )
        return self

    def with_shift_reference(
        self,
        logits: object,
        labels: object,
        sample_weight: object = None,
        *,
        groups: object = None,
        cluster: object = None,
    ) -> Self | None:
        """A copy whose `estimate_shift` compares rows with these examples, not with
        those of the fit.

        None of fewer than 100 examples, or without one of a class of the fit.
        """
        rows = self.read_labelled(logits, labels, sample_weight, groups)
        if cluster is not None:
            rows = one_of_each(rows, cluster)
        predictor = self.fitted
        examples = Examples(
            rows.scores, rows.labels, rows.weights, coding=predictor.schema.groups
        )
        record = shift_record(predictor.fit_record, predictor.rule, examples)
        if record is None:
            return None
        return self.with_predictor(replace(predictor, fit_record=record))

    def forget_examples(self) -> None:
        """Discard what was counted of the calibration examples, where these are not
        independent.
        """
        record = self.fitted.fit_record.without_evidence()
        self.predictor_ = replace(self.predictor_, fit_record=record)

    def forget_fit(self) -> None:
        """Remove fitted attributes."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _store_fit(self, fit: Fit, schema: InputSchema, record: FitRecord) -> None:
        """Keep the result of a fit; what `certify` counted for an earlier fit is
        dropped.
        """
        schema = replace(schema, groups=fit.rule.needed_groups)
        self._keep_report(fit.report)
        self.predictor_ = Predictor(schema, fit.rule, record)
        vars(self).setdefault("metadata_", {})  # `partial_fit` keeps it
        self.classes_ = np.arange(schema.n_classes)
        for name, value in fit.rule.own_fields().items():
            if name not in fit.report:
                setattr(self, f"{name}_", value)

    # Files

    def _stored_data(self) -> dict[str, Any]:
        """The predictor, in the entries of a file."""
        predictor = self.predictor_
        return {
            "rule": predictor.rule,
            "schema": predictor.schema,
            "fit": predictor.fit_record,
            "held_out": predictor.held_out,
            "held_out_for_new_groups": predictor.held_out_for_new_groups,
        }

    def _restore(self, document: dict[str, Any]) -> None:
        """Take up the predictor of a file, which may be forged."""
        rule = check_stored(document, "rule", Rule)
        self._check_rule(rule)
        schema = self._restore_schema(document)
        n_classes = schema.n_classes
        if rule.n_classes not in (None, n_classes):
            raise CalibratorFileError(
                "the file must be for at least 2 classes, those of its rule "
                f"({rule.n_classes}); got {n_classes}."
            )
        members = schema.members
        pools_first = isinstance(members, PooledMembers) and members.keep_first
        if isinstance(rule, MemberLabelsRule) and not pools_first:
            raise CalibratorFileError(
                "the file must keep the first member in `members`, whose labels its "
                "rule predicts."
            )
        record = check_stored(document, "fit", FitRecord)
        self._store_fit(Fit(rule, document["report"]), schema, record)
        held_out = check_stored_or_none(document, "held_out", Evidence)
        without_groups = check_stored_or_none(
            document, "held_out_for_new_groups", Evidence
        )
        for evidence in (record, held_out, without_groups):
            name = None if evidence is None else evidence.unsuitable(n_classes)
            if name is not None:
                raise CalibratorFileError(
                    f"the file has no usable `{name}` for {n_classes} classes."
                )
        self.predictor_ = replace(
            self.predictor_, held_out=held_out, held_out_for_new_groups=without_groups
        )

    def _check_rule(self, rule: Rule) -> None:
        """Raise if the rule of a file is that of another method."""
        usual = self.method.rule
        if not isinstance(rule.core, (usual, self.method.simpler_rule or usual)):
            raise CalibratorFileError(
                f"the file of a {self.name} must hold its rule; got that of "
                f"{rule.core.name}."
            )

    def _restore_schema(self, document: dict[str, Any]) -> InputSchema:
        """The schema of a file, for this class."""
        schema = check_stored(document, "schema", InputSchema)
        if not isinstance(schema.members, PooledMembers | CalibratedMembers | None):
            raise CalibratorFileError(
                "the file must say in `members` how an ensemble is pooled, or hold "
                f"none; got a {type(schema.members).__name__}."
            )
        return replace(
            schema, binary=self.method.binary_only, owner=type(self).__name__
        )

    def __repr__(self) -> str:
        """The parameters, as in scikit-learn, and once fitted what was learned."""
        text = super().__repr__()
        if not self.is_fitted:
            return text
        facts = [f"{self.n_classes_} classes"]
        label_scores = self.predictor_.fit_record.label_scores
        if label_scores is not None:
            facts.append(f"{label_scores.total:,} examples")
        numbers = self.rule_.describe()
        if numbers:
            facts.append(numbers)
        if self.schema_.members is not None:
            facts.append(self.schema_.members.describe())
        return f"{text}: {', '.join(facts)}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
