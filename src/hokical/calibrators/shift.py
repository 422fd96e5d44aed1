"""Other class frequencies, known or estimated from rows without labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hokical._core.arrays import FloatArray, IntArray, lazy_arrays
from hokical._core.groups import GroupCoding
from hokical._core.logits import Logits
from hokical._core.messages import warn_user
from hokical._core.reading import to_numpy
from hokical.guarantees.calibration_data import CalibrationData, row_draws, row_hashes
from hokical.guarantees.class_scores import ClassScores, shift_features
from hokical.guarantees.shift import NewRows
from hokical.rules.base import Rule, predict_on_host
from hokical.rules.wrapped import BalancedRule, GroupedRule, SetRule

#: Probabilities that an estimate holds at most; of more rows a sample is taken.
MOST_NUMBERS = 1 << 24


def class_weights(
    rule: Rule, known: ClassScores, frequencies: Any, names: Sequence[Any]
) -> FloatArray:
    """New frequencies of the classes divided by those of the fit, (classes,)."""
    asked = _read_frequencies(frequencies, known.n_classes, names or range(known.n_classes))
    gone = isinstance(rule, BalancedRule) and (asked > 0.0) & (rule.weights == 0.0)
    if np.any(gone):
        raise ValueError(
            "`frequencies` must be 0 for classes that had the frequency 0 before: "
            f"{np.flatnonzero(gone).tolist()}. Start from the calibrator of the fit."
        )
    old = np.where(known.count > 0.0, known.frequencies, known.smoothed_frequencies)
    weights: FloatArray = asked / asked.sum() / old
    guessed = np.flatnonzero((known.count == 0.0) & (weights > 1.0))
    if guessed.size:
        some = [str(names[k] if names else k) for k in guessed[:5].tolist()]
        warn_user(
            f"`frequencies` give {asked[guessed].sum():.1%} to classes without an example in the "
            f"fit, such as {', '.join(some)}: their frequency in the fit is a guess, and so are "
            "all probabilities that follow. Fit with examples of them, or give them frequency 0.",
            UserWarning,
        )
    return weights


def _read_frequencies(given: Any, n_classes: int, names: Sequence[Any]) -> FloatArray:
    """Checked class frequencies (classes,)."""
    if isinstance(given, Mapping):
        given = in_order(given, names)
    array = to_numpy(given, "frequencies")
    if array.shape != (n_classes,) or array.dtype.kind not in "iuf":
        raise ValueError(
            f"`frequencies` must have one number for each class, ({n_classes},); got shape "
            f"{array.shape} of {array.dtype}."
        )
    asked: FloatArray = array.astype(np.float64)
    if not ((asked >= 0.0) & np.isfinite(asked)).all() or abs(asked.sum() - 1.0) > 1e-3:
        raise ValueError(
            f"`frequencies` must be at least 0 and sum to 1; got {asked}. Divide counts by their "
            "sum."
        )
    return asked


def in_order(frequencies: Mapping[Any, Any], names: Sequence[Any]) -> list[Any]:
    """The values of a mapping in the order of the classes, each of which must have one."""
    if set(frequencies) != set(names):
        lacking = [name for name in names if name not in frequencies][:5]
        other = [name for name in frequencies if name not in names][:5]
        raise ValueError(
            "`frequencies` must have a value for each class and for nothing else; none for "
            f"{lacking}, not classes: {other}. A class that does not occur has the frequency 0."
        )
    return [frequencies[name] for name in names]


def warn_of_other_frequencies(known: ClassScores, name: str) -> None:
    """Warn if the probabilities of the fit are not calibrated for each class."""
    k = known.farthest_off
    if k is not None:
        warn_user(
            f"`estimate_shift` needs probabilities that are calibrated for each class: those of "
            f"{name} assume {known.assumed_frequencies[k]:.1%} of class {k}, where "
            f"{known.frequencies[k]:.1%} of the labels of the fit are. Alarms may be false, and "
            "frequencies and intervals wrong. Fit `hokical.auto`.",
            UserWarning,
        )


def reweight(
    rule: Rule, kept: CalibrationData, weights: FloatArray
) -> tuple[Rule, CalibrationData]:
    """Rule and data for rows among which each class is `weights` (classes,) times as frequent."""
    known = kept.class_scores
    assert known is not None
    if isinstance(rule, SetRule):
        raise ValueError("class frequencies must be set before sets: `with_sets` comes last.")
    before = np.ones(known.n_classes)
    if isinstance(rule, BalancedRule):
        before, rule = rule.weights, rule.rule
    sample = kept.fit_conformity
    if sample is not None and (weights[sample.labels] > 0.0).any():
        own = sample.take(weights[sample.labels] > 0.0)
        # At most 1, so that a weight of 2 is not taken for two examples.
        counts = own.counts * weights[own.labels]
        most, unit = counts.max(), own.unit * weights.max() / counts.max()
        sample = replace(own, weights=counts / most, unit=float(unit))
    else:
        sample = None
    seen = weights if (weights * known.count).any() else np.ones_like(weights)
    left = kept.without_fit().without_held_out()
    groups = None if kept.group_scores is None else kept.group_scores.reweighted(weights)
    left = replace(left, fit_conformity=sample, class_scores=known.reweighted(seen))
    left = replace(left, group_scores=groups)
    return BalancedRule(rule, before * weights), left


def drop_groups(rule: Any) -> Any:
    """The rule without what it learned from groups."""
    if isinstance(rule, GroupedRule):
        return rule.rule
    return replace(rule, rule=drop_groups(rule.rule))


def read_rows(rule: Rule, kept: CalibrationData, data: Logits, counts: FloatArray) -> NewRows:
    """What an estimate needs of checked rows; duplicates as one of them, in no order."""
    order, total = _merge_twins(kept, row_hashes(data), counts)
    some = data.take(order)
    labels, own = predict_on_host(rule, "labels", some), some.to_host(some.labels)
    return NewRows(
        predict_on_host(rule, "proba", some).astype(np.float64),
        labels.astype(np.int64),
        shift_features(some),
        total / total.sum(),
        int(np.count_nonzero(counts)),
        # With other class frequencies, no labels were counted at fit time.
        None if isinstance(rule, BalancedRule) else own.astype(np.int64),
    )


def _merge_twins(
    kept: CalibrationData, hashes: FloatArray, counts: FloatArray
) -> tuple[IntArray, FloatArray]:
    """One row of each hash, in no order, and its count; if the rows of the fit differed too."""
    if kept.fit_rows is not None and kept.fit_rows.has_twins:
        order = np.argsort(hashes, kind="stable")
        total = counts[order]
    else:
        _, order, place = np.unique(hashes, return_index=True, return_inverse=True)
        total = np.bincount(place, counts).astype(np.float64)
    return order[total > 0.0], total[total > 0.0]


def rows_by_group(coding: GroupCoding, codes: IntArray) -> Iterator[tuple[str, IntArray, IntArray]]:
    """The name of each group that occurs, its codes (columns,), and the numbers of its rows."""
    cells, place = np.unique(codes, axis=0, return_inverse=True)
    names = [coding.full_names(k) for k in range(len(coding.columns))]
    for i, cell in enumerate(cells):
        title = ", ".join(own[code] for own, code in zip(names, cell, strict=True))
        yield title, cell, np.flatnonzero(place.ravel() == i)


def at_most(logits: Any, weights: Any, n_rows: int) -> tuple[Any, Any, IntArray | None]:
    """The rows, or this many of them, chosen by their numbers; a lazy array's in memory."""
    lazy = lazy_arrays(logits) is not None
    if lazy and np.isnan(logits.shape[0]):
        logits = logits.compute_chunk_sizes()
    sized = hasattr(logits, "__len__")
    total = getattr(logits, "n_rows", len(logits) if sized else n_rows)
    rows = None
    if total > n_rows:
        keys = row_draws(0, total)
        rows = np.sort(np.argpartition(keys, n_rows)[:n_rows])
        logits = logits.take(rows) if isinstance(logits, Logits) else logits[rows]
        weights = None if weights is None else np.asarray(to_numpy(weights, "sample_weight"))[rows]
    return (np.asarray(logits) if lazy else logits), weights, rows
