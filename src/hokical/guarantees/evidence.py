"""What examples prove about a rule, for guarantees that are asked for later.

`Evidence` is what there is of the examples of a fit or of `certify`: where predictions
place their true classes, and how many labels are right by score. Whatever is asked
later (a coverage, a risk, a delta) is proven from it. `FitRecord` holds that of a fit,
and what describes its rows: their range, a fingerprint, and how their features are
distributed by class.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self, TypeVar

import numpy as np

from hokical._core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from hokical._core.checks import check_choice
from hokical._core.groups import GroupNames, read_columns, take_rows
from hokical._core.logits import Logits, TopK, as_logits
from hokical._core.reading import Rows
from hokical._core.storage import storable
from hokical.guarantees import scores
from hokical.guarantees.class_features import ClassFeatures, GroupFeatures
from hokical.guarantees.control import can_be_counts
from hokical.guarantees.fingerprints import RowSketch
from hokical.guarantees.scores import (
    CLASS_LEVELS,
    LEVELS,
    AbstentionOptions,
    AbstentionThresholds,
    ScoreTable,
    Source,
    Support,
    prove_abstention,
)
from hokical.guarantees.sets import CertifiedSets, Conformity, SetOptions, prove_sets
from hokical.rules.base import Rule, labels_and_confidence, predict_on_host

#: Examples of a fit that are kept for prediction sets: a sample, so that a fitted
#: calibrator stays small.
SAMPLE_SIZE = 2048
#: Classes up to which `certify` counts examples by the probability of each class.
MAX_COUNTED_CLASSES = 1024
#: Logits up to here are examined in float32 as well, which holds 3.4e38.
_MAX_FLOAT32 = 3e38


@dataclass(frozen=True, eq=False)
class ObservedRows:
    """What a rule predicts of some held-out examples.

    Attributes
    ----------
    conformity : where their true classes are placed
    levels, wrong : the level of each label's score (n,), and whether it is wrong
    class_scores : counts by the probability of each class; None of many classes
    groups : the columns of their groups, by name
    """

    conformity: Conformity
    levels: IntArray
    wrong: BoolArray
    class_scores: ScoreTable | None
    groups: dict[str, AnyArray] | None


def observe(rule: Rule, rows: Rows, *, counts: bool = False) -> ObservedRows:
    """What a rule predicts of checked rows.

    With `counts`, weights are whole numbers, of how often each row was seen.
    """
    if counts and not can_be_counts(rows.weights):
        fraction = max(rows.weights.tolist(), key=lambda weight: weight % 1.0)
        raise ValueError(
            "`sample_weight` must be whole numbers with `counts=True`; got "
            f"{fraction}. Leave `counts` out for importance weights."
        )
    groups = None if rows.groups is None else read_columns(rows.groups, rows.n_rows)
    unit = 1.0
    if rows.weights is not None:
        weighted = np.flatnonzero(rows.weights)
        unit = 1.0 if counts else float(rows.weights.max())
        groups = None if groups is None else take_rows(groups, weighted)
        rows = rows.take(weighted)
    data: Logits = rows.scores
    labels = rows.labels
    forms = _forms_served(data)
    conformity = Conformity.from_rows(rule, forms, labels)
    levels, wrong = _score_labels(rule, forms, labels)
    class_scores = None
    if not isinstance(data, TopK) and data.n_classes <= MAX_COUNTED_CLASSES:
        proba = predict_on_host(rule, "proba", data).astype(np.float64)
        class_scores = ScoreTable.by_class(
            proba, labels, rows.weights if counts else None
        )
    weights = rows.weights
    conformity = replace(conformity, weights=weights, unit=unit)
    return ObservedRows(conformity, levels, wrong, class_scores, groups)


def _forms_served(data: Logits) -> list[Logits]:
    """The logits, and as float32, in which they may be served: confidence may have
    steps.
    """
    values = data.values
    if type(data) is not Logits or not data.is_numpy or values.dtype != np.float64:
        return [data]
    largest = np.max(np.abs(values), where=np.isfinite(values), initial=0.0)
    if largest > _MAX_FLOAT32:
        return [data]
    narrow = as_logits(values.astype(np.float32))
    return [data, replace(data, values=narrow.values, top=narrow.top)]


def _score_labels(
    rule: Rule, forms: Sequence[Logits], labels: IntArray
) -> tuple[IntArray, BoolArray]:
    """The level (n,) at which to count each label, and whether it is wrong in any
    form.
    """
    predictions = [labels_and_confidence(rule, form) for form in forms]
    odds = [scores.confidence_log_odds(confidence) for _, confidence in predictions]
    wrong = np.any([predicted != labels for predicted, _ in predictions], axis=0)
    top = forms[0].to_host(forms[0].top)
    return scores.conservative_levels(odds, wrong, top), wrong


@storable("evidence")
@dataclass(frozen=True, eq=False)
class Evidence:
    """What examples prove about a rule; None where they prove nothing.

    Attributes
    ----------
    source : whether they are examples of the fit, or of `certify`
    conformity : where predictions place their true classes, for sets
    label_scores : right and wrong labels by score, for abstention and intervals; None
        of weights that are no counts
    class_scores : examples by the probability of each class
    """

    source: Source
    conformity: Conformity | None = None
    label_scores: ScoreTable | None = None
    class_scores: ScoreTable | None = None

    def __post_init__(self) -> None:
        check_choice("source", self.source, Source)

    @classmethod
    def collect(
        cls, observed: Sequence[ObservedRows], *, clustered: bool = False
    ) -> Self:
        """That of held-out examples in parts; `clustered`, they are one of each
        cluster.
        """
        conformity = reduce(operator.add, (rows.conformity for rows in observed))
        conformity = conformity.without_equal_weights()
        groups = _join_groups([rows.groups for rows in observed], conformity.n)
        if groups is not None:
            names, index = groups
            conformity = replace(conformity, group_names=names, group=index)
        conformity = replace(conformity, clustered=clustered)
        if not conformity.counted:
            return cls("held-out", conformity)
        label_scores = ScoreTable.from_examples(
            np.concatenate([rows.levels for rows in observed]),
            np.concatenate([rows.wrong for rows in observed]),
            conformity.counts,
            groups,
        )
        tables = [
            rows.class_scores for rows in observed if rows.class_scores is not None
        ]
        complete = len(tables) == len(observed)
        return cls(
            "held-out",
            conformity,
            replace(label_scores, clustered=clustered),
            reduce(operator.add, tables) if complete else None,
        )

    def set_thresholds(
        self, options: SetOptions, n_classes: int, *, label: int | None = None
    ) -> CertifiedSets:
        """The thresholds proven for sets: by all examples, or those of one label."""
        assert self.conformity is not None
        examples = self.conformity
        if label is not None:
            # Of a fit, class frequencies weight classes, and no examples of one.
            examples = examples.of_class(label, alike=self.source == "fit")
        return prove_sets(examples, options, self.source, n_classes)

    def abstention_thresholds(
        self, options: AbstentionOptions, *, tested: bool
    ) -> AbstentionThresholds:
        """The thresholds proven for abstention; unless `tested`, for other labels than
        those predicted.
        """
        assert self.label_scores is not None
        return prove_abstention(self.label_scores, options, self.source, tested)

    def unsuitable(self, n_classes: int) -> str | None:
        """What cannot be of this many classes, in a forged file."""
        examples = self.conformity
        if examples is not None and not _fits_classes(examples, n_classes):
            return "conformity"
        table = self.label_scores
        if table is not None and table.count.shape[-1] != LEVELS:
            return "label_scores"
        class_scores = self.class_scores
        if class_scores is not None and class_scores.count.shape != (
            n_classes,
            CLASS_LEVELS,
        ):
            return "class_scores"
        return None


def _fits_classes(examples: Conformity, n_classes: int) -> bool:
    return examples.n > 0 and bool(examples.labels.max() < n_classes)


def _join_groups(
    blocks: Sequence[dict[str, AnyArray] | None], n_rows: int
) -> tuple[GroupNames, IntArray] | None:
    """The names of the groups of all parts, and the index (n,) of each row's; None if a
    part has none.
    """
    columns = [
        columns_of_block for columns_of_block in blocks if columns_of_block is not None
    ]
    if len(columns) < len(blocks):
        return None
    if len({frozenset(columns_of_block) for columns_of_block in columns}) > 1:
        raise ValueError("`groups` must have the same columns in all parts.")
    joined = {
        name: np.concatenate([columns_of_block[name] for columns_of_block in columns])
        for name in columns[0]
    }
    return GroupNames.from_rows(joined, n_rows)


@storable("fit-record")
@dataclass(frozen=True, eq=False)
class FitRecord:
    """Statistics of the examples of a fit; None where not available.

    Attributes
    ----------
    label_scores : right and wrong labels by the classifier's own score
    confidences : the same by the calibrated confidence, of a sample, for monitors
    conformity : where the classifier's softmax places the true classes of a sample
    support : the range of the rows
    sketch : a fingerprint of the rows, which cannot certify the fit
    class_features : features of the rows by true class
    group_features : the same of groups, where the rule depends on them
    """

    label_scores: ScoreTable | None = None
    confidences: ScoreTable | None = None
    conformity: Conformity | None = None
    support: Support | None = None
    sketch: RowSketch | None = None
    class_features: ClassFeatures | None = None
    group_features: GroupFeatures | None = None

    @property
    def evidence(self) -> Evidence:
        """What the examples prove of the classifier's own scores."""
        return Evidence("fit", self.conformity, self.label_scores)

    def without_evidence(self) -> Self:
        """Without what the examples prove, where they are not independent."""
        return replace(self, label_scores=None, confidences=None, conformity=None)

    def reweighted(self, ratio: FloatArray) -> Self:
        """For rows among which each class is `ratio` (classes,) times as frequent."""
        classes = self.class_features
        assert classes is not None
        usable_ratio = ratio if (ratio * classes.count).any() else np.ones_like(ratio)
        groups = self.group_features
        if groups is not None:
            by_group = tuple(group.reweighted(ratio) for group in groups.scores)
            groups = replace(groups, scores=by_group)
        return replace(
            self.without_evidence(),
            conformity=self._reweighted_sample(ratio),
            class_features=classes.reweighted(usable_ratio),
            group_features=groups,
        )

    def _reweighted_sample(self, ratio: FloatArray) -> Conformity | None:
        if self.conformity is None:
            return None
        possible = ratio[self.conformity.labels] > 0.0
        if not possible.any():
            return None
        sample = self.conformity.take(possible)
        counts = sample.counts * ratio[sample.labels]
        # At most 1, so that a weight of 2 is not taken for two examples.
        unit = float(sample.unit * ratio.max() / counts.max())
        return replace(sample, weights=counts / counts.max(), unit=unit)

    def unsuitable(self, n_classes: int) -> str | None:
        """What cannot be of this many classes, in a forged file."""
        name = self.evidence.unsuitable(n_classes)
        if name is not None:
            return name
        if self.confidences is not None and self.confidences.count.shape != (LEVELS,):
            return "confidences"
        features = [] if self.class_features is None else [self.class_features]
        if self.group_features is not None:
            features.extend(self.group_features.scores)
        if any(classes.count.size != n_classes for classes in features):
            return "class_features"
        return None

    def __add__(self, second: Self) -> Self:
        """Of the examples of two fits; of a sample of each, shares as large as the
        fits.
        """
        label_scores = None
        conformity = None
        if _weigh_alike(self.class_features, second.class_features):
            label_scores = _add(self.label_scores, second.label_scores)
            conformity = _add(self.conformity, second.conformity)
        if conformity is not None and conformity.key is not None:
            smallest = np.argsort(conformity.key, kind="stable")[:SAMPLE_SIZE]
            conformity = conformity.take(smallest)
        return type(self)(
            label_scores=label_scores,
            conformity=conformity,
            support=_add(self.support, second.support),
            sketch=_add(self.sketch, second.sketch),
            class_features=_add(self.class_features, second.class_features),
        )


Summed = TypeVar("Summed", ScoreTable, Conformity, Support, RowSketch, ClassFeatures)


def _add(first: Summed | None, second: Summed | None) -> Summed | None:
    """The sum of both; None if one is missing."""
    return None if first is None or second is None else first + second


def _weigh_alike(first: ClassFeatures | None, second: ClassFeatures | None) -> bool:
    """Whether examples of two fits have the same weight."""
    if first is None or second is None:
        return False
    weights = [side.square.sum() / side.count.sum() for side in (first, second)]
    return math.isclose(*weights, rel_tol=1e-12)


def confidence_table(
    confidence: FloatArray, wrong: BoolArray, counts: FloatArray
) -> ScoreTable:
    """Counts of labels by their calibrated confidence (n,)."""
    level = scores.score_levels(scores.confidence_log_odds(confidence))
    return ScoreTable.from_examples(level, wrong, counts)
