"""Thresholds and members of prediction sets, by a rule and its calibration data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY, Array, backend_of
from hokical._core.logits import Logits
from hokical.guarantees._calibration_data import CalibrationData
from hokical.guarantees._conformity import Conformity
from hokical.guarantees._control import remembered
from hokical.guarantees._selective import Evidence
from hokical.guarantees._sets import CertifiedSets, SetOptions, prove_sets
from hokical.rules._base import Rule


def certified_sets(
    kept: CalibrationData, asked: SetOptions, n_classes: int, only: int | None = None
) -> CertifiedSets:
    """Thresholds by the best examples there are, or by those of one class."""
    source: Evidence = "fit" if kept.held_out_conformity is None else "held-out"
    known = kept.held_out_conformity or kept.fit_conformity
    if known is None:
        raise ValueError(
            "prediction sets have no examples to go by: those of the fit were not kept, or are "
            "no test of it (weights, pixels or tokens of the same items, folds of a "
            "cross-validation). Call `certify(logits, labels)` first, with examples that "
            "nothing was fitted on."
        )
    if only is not None:
        given = (known, only, source)
        known = remembered(known, ("class", only, source), lambda: _of_class(*given))
    return prove_sets(asked, known, source, n_classes)


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
