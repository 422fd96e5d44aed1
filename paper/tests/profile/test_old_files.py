"""Files of earlier versions that hold a stability profile: same numbers, same
predictions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.calibrators.test_golden import rows as few_rows

from hokical import CalibratorFileError, TopK, load
from hokical._core import storage
from hokical.calibrators import catalog
from hokical_paper.profile import ProfileRule

FOLDER = Path(__file__).parents[1] / "golden"
#: Written by 0.3.0 for the first 600 rows of `stretched_rows(600, 0)`; those of 0.1 and
#: 0.2 below.
CASES = ("auto_profile", "auto_groups", "auto_top_k", "profile_full", "profile_top_k")
OLDER = ("auto_0_2", "profile_0_2")


def stretched_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of 40 classes with labels from their softmax, then stretched row by
    row.
    """
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, 40))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return np.round(logits * rng.lognormal(0.0, 0.8, (n, 1)), 3), labels


def arguments(case: str) -> tuple[Any, dict[str, Any]]:
    """What the stored predictions are for: with a tie, masked classes and large
    logits.
    """
    if case in OLDER:
        return few_rows(), {}
    logits, _ = stretched_rows(30, 1)
    logits[0, :2] = logits[0].max()
    logits[1, 5:] = -np.inf
    logits[2] *= 30
    groups = (
        {"groups": np.where(np.arange(30) % 2, "a", "b")}
        if case == "auto_groups"
        else {}
    )
    return (TopK.from_logits(logits, 8) if case.endswith("top_k") else logits), groups


@pytest.mark.parametrize("case", [*CASES, *OLDER])
def test_predictions_stay_the_same(case: str, tmp_path: Path) -> None:
    logits, groups = arguments(case)
    loaded = load(FOLDER / f"{case}.json")
    loaded.save(tmp_path / "again.json")
    for cal in (loaded, loaded, load(tmp_path / "again.json")):
        assert cal.name == case.partition("_")[0]
        with np.load(FOLDER / f"{case}.npz") as stored:
            np.testing.assert_array_equal(
                cal.predict(logits, **groups), stored["labels"]
            )
            for name in ("confidence", "proba"):
                found = getattr(cal, f"predict_{name}")(logits, **groups)
                np.testing.assert_allclose(found, stored[name], rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("case", ["auto_profile", "auto_0_2", "profile_0_2"])
def test_many_rows_are_predicted_like_one(case: str) -> None:
    cal = load(FOLDER / f"{case}.json")
    logits = np.random.default_rng(0).normal(size=(300, cal.n_classes_))
    proba = cal.predict_proba(logits)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_array_equal(
        proba[:3], [cal.predict_proba(row[None])[0] for row in logits[:3]]
    )


def test_attributes_of_an_old_default(tmp_path: Path) -> None:
    for case in ("auto_profile", "auto_0_2"):
        loaded = load(FOLDER / f"{case}.json")
        for cal in (loaded, loaded):
            assert "stability profile" in cal.reason_
            assert cal.base_.weights.shape == (3,)
            assert cal.base_.structured.n_classes == loaded.n_classes_
            assert isinstance(cal.profile_, ProfileRule)
        assert loaded.get_params()["keep_labels"] is True


@pytest.mark.parametrize("case", [*CASES, *OLDER])
def test_without_hokical_paper_the_error_says_what_to_install(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(FOLDER / f"{case}.json").save(tmp_path / "again.json")
    monkeypatch.setattr(catalog, "_find_entry_points", lambda: None)
    monkeypatch.setattr(catalog, "_registered", {})
    ours = {
        name: kind
        for name, kind in storage._records.items()
        if "hokical_paper" in str(kind)
    }
    assert {"rule:profile", "rule:auto-profiled", "profile-familiar"} <= set(ours)
    for name in ours:
        monkeypatch.delitem(storage._records, name)
    said = r"holds a stability profile.*`pip install \./paper` in a clone, or fit again"
    for file in (FOLDER / f"{case}.json", tmp_path / "again.json"):
        with pytest.raises(CalibratorFileError, match=said):
            load(file)
