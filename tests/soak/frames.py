"""Attacks by frames: columns of logits and groups that are reordered, renamed or
missing.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hokical
from tests.conftest import synthetic_logits

Generator = np.random.Generator
NAMES = ("cat", "dog", "cow", "hen")


@cache
def _grouped_frame() -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Logits, labels and two columns of groups, of which the first matters."""
    logits, labels = synthetic_logits(1200, 4, seed=7)
    site, ward = np.arange(1200) % 3, np.arange(1200) % 2
    labels = np.where((site == 0) & (np.arange(1200) % 5 < 3), 0, labels)
    groups = pd.DataFrame(
        {"site": np.array(["a", "b", "c"])[site], "ward": ward.astype(str)}
    )
    return pd.DataFrame(logits, columns=NAMES), labels, groups


@cache
def _fitted(grouped: bool) -> Any:
    frame, labels, groups = _grouped_frame()
    return hokical.auto(frame, labels, groups=groups if grouped else None)


def mixed_columns(rng: Generator, folder: Path) -> str:
    """The same columns in any order give the same bits; others are refused, also
    after `load`.
    """
    frame, labels, groups = _grouped_frame()
    rows = np.sort(rng.choice(1200, 50, replace=False))
    grouped = bool(rng.integers(2))
    cal = _fitted(grouped)
    cal.save(folder / "cal.json")
    cal = (cal, hokical.load(folder / "cal.json"))[int(rng.integers(2))]
    own = {"groups": groups.iloc[rows]} if grouped else {}
    expected = cal.predict_proba(frame.iloc[rows].to_numpy(), **own)
    turned = frame.iloc[rows][list(rng.permutation(NAMES))]
    given = (
        {"groups": groups.iloc[rows][list(rng.permutation(groups.columns))]}
        if grouped
        else {}
    )
    assert (cal.predict_proba(turned, **given) == expected).all(), (
        "another order, other numbers"
    )
    found = hokical.evaluate(cal, turned, labels[rows], **given).score("brier")
    same = hokical.evaluate(cal, frame.iloc[rows], labels[rows], **own).score("brier")
    assert found == same, "another order, another evaluation"
    wrong = turned.rename(columns={str(rng.choice(NAMES)): "wolf"})
    bad = [(wrong, given)]
    if grouped:
        bad.append(
            (turned, {"groups": groups.iloc[rows].rename(columns={"site": "place"})})
        )
        bad.append((turned, {}))
    for logits, others in bad:
        try:
            cal.predict_proba(logits, **others)
        except ValueError:
            continue
        raise AssertionError("other columns were taken for those of the fit")
    return "grouped" if grouped else "plain"


ATTACKS = {"mixed columns": mixed_columns}
