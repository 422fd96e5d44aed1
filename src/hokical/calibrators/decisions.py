"""Abstention, intervals and sets of labels, by a rule and its calibration data; and actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY, AnyArray, Array, FloatArray, IntArray, backend_of, to_host
from hokical._core.groups import read_columns, take_rows
from hokical._core.logits import Logits, as_logits
from hokical._core.topk import TopK
from hokical.guarantees import scores
from hokical.guarantees.calibration_data import CalibrationData, HeldOutPart
from hokical.guarantees.control import can_be_counts, remembered
from hokical.guarantees.scores import ScoreTable, class_levels
from hokical.guarantees.selective import Evidence, ScoredLabels
from hokical.guarantees.sets import CertifiedSets, Conformity, SetOptions, prove_sets
from hokical.rules.base import Rule, labels_and_confidence, predict_on_host
from hokical.rules.wrapped import BalancedRule

#: Beyond so many classes, `certify` does not count examples by the probability of each.
_MOST_DENSE_CLASSES = 1024
#: What every error about missing examples ends with.
_CERTIFY = "Call `certify(logits, labels)` first, with examples that nothing was fitted on."


def note(
    rule: Rule, data: Logits, labels: IntArray, weights: Any, groups: Any, counts: bool
) -> HeldOutPart:
    """What the rule predicts of held-out examples: of their true classes, and of each class."""
    if counts and not can_be_counts(weights):
        raise ValueError("`sample_weight` must be whole numbers with `counts=True`.")
    columns = None if groups is None else read_columns(groups, data.n_rows)
    unit = 1.0
    if weights is not None:
        rows, unit = np.flatnonzero(weights), 1.0 if counts else float(weights.max())
        data, labels, weights = data.take(rows), labels[rows], weights[rows]
        columns = None if columns is None else take_rows(columns, rows)
    forms = _serving_forms(data)
    predictions = [labels_and_confidence(rule, form) for form in forms]
    odds = [scores.confidence_log_odds(confidence) for _, confidence in predictions]
    wrong = np.any([predicted != labels for predicted, _ in predictions], axis=0)
    level = scores.conservative_levels(odds, wrong, data.to_host(data.top))
    found = replace(Conformity.from_rows(rule, forms, labels), weights=weights, unit=unit)
    classes = None
    if not isinstance(data, TopK) and data.n_classes <= _MOST_DENSE_CLASSES:
        proba = predict_on_host(rule, "proba", data).astype(np.float64)
        classes = ScoreTable.by_class(proba, labels, weights if counts else None)
    return HeldOutPart(found, level, wrong, classes, columns)


def _serving_forms(logits: Logits) -> list[Logits]:
    """The rows as they are, and as float32 if they are wider: confidence may have steps."""
    values = logits.values
    plain = type(logits) is Logits and logits.is_numpy and values.dtype == np.float64
    if not plain or np.max(np.abs(values), where=np.isfinite(values), initial=0.0) > 3e38:
        return [logits]
    narrow = as_logits(values.astype(np.float32))
    return [logits, replace(logits, values=narrow.values, top=narrow.top)]


def scored_labels(rule: Rule, kept: CalibrationData, data: Logits, asked: str) -> ScoredLabels:
    """Labels with held-out examples that test them, or those of the fit; or an error.

    It names what was `asked` for, and says how to get examples.
    """
    labels, confidence = labels_and_confidence(rule, data)
    if kept.held_out_scores is not None:
        level = scores.score_levels(scores.confidence_log_odds(confidence))
        return ScoredLabels(labels, confidence, level, kept.held_out_scores, "held-out")
    if kept.held_out_conformity is not None:
        raise ValueError(
            f"`{asked}` needs held-out examples of equal weight; those of `certify` have "
            "unequal ones, with which only guarantees on average hold: use `predict_set`. If "
            "the weights are numbers of examples, call `certify(..., counts=True)`."
        )
    if kept.fit_scores is None:
        reason = "those of its fit, and of an earlier `certify`, have the old class frequencies"
        if not isinstance(rule, BalancedRule):
            reason = (
                "those of its fit are no test of it (unequal weights, pixels or tokens of the "
                "same items, folds of a cross-validation, or a file before 0.4 of a method "
                "that may change labels)"
            )
        raise ValueError(f"`{asked}` has no examples to go by: {reason}. {_CERTIFY}")
    level = scores.score_levels(data.to_host(scores.label_log_odds(data)))
    # Examples of a fit test the classifier's own labels, which do not depend on them.
    other = None if rule.preserves_labels else labels != data.to_host(data.labels)
    return ScoredLabels(labels, confidence, level, kept.fit_scores, "fit", other)


def accuracy_interval(rule: Rule, kept: CalibrationData, data: Logits, delta: float) -> FloatArray:
    """An interval (n, 2) on the host for the accuracy of labels with a similar score."""
    if kept.held_out_scores is None:
        own = rule.on_device_of(data).label_interval(data)
        if own is not None:
            return np.stack([data.to_host(end) for end in own], axis=1)
    rows = scored_labels(rule, kept, data, "predict_interval")
    # Examples were counted one level away where that is conservative (`conservative_levels`).
    found = rows.table.whole.intervals(rows.level, rows.confidence, delta)
    if rows.untested is not None:
        found[rows.untested] = 0.0, 1.0
    return found


def class_interval(
    rule: Rule, kept: CalibrationData, data: Logits, delta: float, label: int
) -> FloatArray:
    """An interval (n, 2) on the host for the share of a class among rows of similar probability."""
    if kept.held_out_classes is None:
        own = rule.on_device_of(data).class_interval(data, label)
        if own is not None:
            return np.stack([data.to_host(end) for end in own], axis=1)
        raise ValueError(
            "`label` has no examples to go by. Call `certify(logits, labels)` first, with logits "
            f"of all classes, at most {_MOST_DENSE_CLASSES:,}, and examples that count alike."
        )
    proba = predict_on_host(rule, "proba", data)[:, label].astype(np.float64)
    return kept.held_out_classes.rows[label].intervals(class_levels(proba), proba, delta)


def certified_sets(
    kept: CalibrationData, asked: SetOptions, n_classes: int, only: int | None = None
) -> CertifiedSets:
    """Thresholds by the best examples there are, or by those of one class."""
    source: Evidence = "fit" if kept.held_out_conformity is None else "held-out"
    known = kept.held_out_conformity or kept.fit_conformity
    if known is None:
        raise ValueError(
            "prediction sets have no examples to go by: those of the fit were not kept, or are no "
            "test of it (weights, pixels or tokens of the same items, folds of a "
            f"cross-validation). {_CERTIFY}"
        )
    if asked.by == "new group":
        known = known.unseen or known
    if only is not None:
        known = _of_class(known, only, source)
    return prove_sets(known, asked, source, n_classes)


@remembered
def _of_class(known: Conformity, label: int, source: Evidence) -> Conformity:
    """The examples of one class, which count alike: class frequencies weight classes."""
    found = known.take(known.labels == label)
    return replace(found, weights=None, unit=1.0) if source == "fit" else found


def members_by_group(
    asked: CertifiedSets, rule: Rule, data: Logits, groups: Any
) -> tuple[NDArray[Any], int]:
    """Members on the host, with a threshold for each group; and the rows of unknown groups."""
    names = asked.examples.group_names
    assert names is not None
    cells, n_unknown = names.match(groups, data.n_rows, "get every class")
    members = np.zeros((data.n_rows, data.n_classes), np.bool_)
    for cell in np.unique(cells):
        rows = np.flatnonzero(cells == cell)
        part = data.take(rows)
        with data.backend.in_float64():
            found = asked.rule(rule, int(cell)).on_device_of(part).members(part)
            members[rows] = data.to_host(found)
    return members, n_unknown


def count_members(members: Array) -> Array:
    """The number of members of each row, (n,)."""
    if isinstance(members, np.ndarray):
        return np.count_nonzero(members, axis=1)
    xp = (backend_of(members) or NUMPY).namespace(members)
    return members.sum(axis=1) if xp is np else xp.sum(xp.astype(members, xp.int64), axis=1)


@dataclass(frozen=True, eq=False)
class Decisions:
    """`actions` (n,), and the `costs` (n,) that are expected of them.

    Actions are numbers; with `names`, where the costs had some, `named` (n,) are their names.
    """

    actions: Array
    costs: Array
    names: tuple[str, ...] = ()

    @property
    def named(self) -> AnyArray:
        """The names of the actions, or their numbers where they have none."""
        actions = to_host(self.actions)
        return np.array(self.names)[actions] if self.names else actions

    def __str__(self) -> str:
        kinds, counts = np.unique(self.named, return_counts=True)
        listed = f"{kinds.size} different actions"
        if self.names:
            shares = zip(kinds.tolist(), counts / counts.sum(), strict=True)
            listed = ", ".join(f"{name} {share:.1%}" for name, share in shares)
        cost = float(self.costs.mean())
        return f"{counts.sum():,} rows, {listed}; mean expected cost {cost:.4g}."


def decide(proba: Array, costs: Any, n_classes: int) -> Decisions:
    """The action of least expected cost under probabilities (n, classes); the first of equals."""
    by_name = isinstance(costs, Mapping) and not _are_errors(costs)
    names = tuple(map(str, costs)) if by_name else ()
    table = cost_table(costs, n_classes)
    backend = backend_of(proba) or NUMPY
    xp = backend.namespace(proba)
    expected = proba @ xp.astype(backend.from_host(table, proba), proba.dtype)
    return Decisions(xp.argmin(expected, axis=1), xp.min(expected, axis=1), names)


def _are_errors(costs: Any) -> bool:
    """Whether costs are those of false positives and false negatives."""
    return isinstance(costs, Mapping) and {*costs} == {"fp", "fn"}


def cost_table(costs: Any, n_classes: int) -> FloatArray:
    """Costs (classes, actions), of two classes also from those of its two errors.

    From a mapping of actions to costs (classes,), or to one number for all classes.
    """
    if _are_errors(costs) and n_classes == 2:
        costs = (costs["fp"], costs["fn"])
    elif isinstance(costs, Mapping):
        columns = [np.asarray(cost, np.float64) for cost in costs.values()]
        shapes = {column.shape for column in columns}
        if (n_classes,) not in shapes or not shapes <= {(), (n_classes,)}:
            raise ValueError(
                "`costs` by name must be those of the errors of two classes, "
                f"{{'fp': 1, 'fn': 10}}, or {n_classes} numbers for each action, one for each true "
                "class, or one number where it does not matter, but not for all; got "
                f"{dict(costs)!r}."
            )
        costs = np.stack([np.broadcast_to(column, n_classes) for column in columns], axis=1)
    table = np.asarray(costs, np.float64)
    if table.shape == (2,) and n_classes == 2:
        table = np.array([[0.0, table[0]], [table[1], 0.0]])
    if table.ndim != 2 or table.shape[0] != n_classes or not np.isfinite(table).all():
        raise ValueError(
            f"`costs` must be finite numbers of shape ({n_classes}, actions), a row for each true "
            f"class; got shape {table.shape}. Of two classes (false_positive, false_negative) is "
            "enough, or {'fp': 1, 'fn': 10}."
        )
    return table
