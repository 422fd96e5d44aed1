"""The rules of matrix scaling and Dirichlet calibration, row by row and from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from tests.calibrators.test_golden import CLOSE
from tests.calibrators.test_golden import rows as few_rows
from tests.fitted import fingerprint

from hokical import CalibratorFileError, load
from hokical._core import storage
from hokical.calibrators import catalog
from hokical.rules import as_logits
from hokical_paper.odir import DirichletRule, MatrixRule

FOLDER = Path(__file__).parents[1] / "golden"
NAMES = ("ms_odir", "dir_odir")


def matrix_features(row: np.ndarray) -> np.ndarray:
    return row - row[row > -np.inf].mean()


@pytest.mark.parametrize(
    ("kind", "features"), [(MatrixRule, matrix_features), (DirichletRule, log_softmax)]
)
@given(seed=st.integers(0, 2**20), n_classes=st.integers(2, 30))
def test_rows_one_at_a_time(
    kind: Any, features: Any, seed: int, n_classes: int
) -> None:
    rng = np.random.default_rng(seed)
    weight = np.eye(n_classes) + 0.2 * rng.normal(size=(n_classes, n_classes))
    rule = kind(weight, rng.normal(size=n_classes))
    logits = 3.0 * rng.normal(size=(8, n_classes))
    logits[1, 0] = -np.inf
    found = rule.proba(as_logits(logits))
    for row, proba in zip(logits, found, strict=True):
        possible, x = row > -np.inf, features(row)
        scores = weight @ np.where(possible, x, x[possible].min()) + rule.bias
        expected = np.zeros(n_classes)
        expected[possible] = softmax(scores[possible])
        np.testing.assert_allclose(proba, expected, atol=1e-12)


@pytest.mark.parametrize(
    "numbers",
    [
        (np.zeros((3, 4)), np.zeros(3)),
        (np.eye(3), np.zeros(3, np.float32)),
        (np.eye(3), np.eye(3)),
    ],
)
def test_numbers_that_no_fit_makes_are_refused(numbers: Any) -> None:
    with pytest.raises(ValueError, match="must"):
        MatrixRule(*numbers)


@pytest.mark.parametrize("name", NAMES)
def test_predictions_of_old_files_stay_the_same(name: str) -> None:
    calibrator = load(FOLDER / f"{name}.json")
    with np.load(FOLDER / f"{name}.npz") as stored:
        np.testing.assert_array_equal(calibrator.predict(few_rows()), stored["labels"])
        for what in ("confidence", "proba"):
            found = getattr(calibrator, f"predict_{what}")(few_rows())
            np.testing.assert_allclose(found, stored[what], **CLOSE)
    assert fingerprint(calibrator) == fingerprint(calibrator)


@pytest.mark.parametrize("name", NAMES)
def test_without_hokical_paper_the_error_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "_find_entry_points", lambda: None)
    monkeypatch.setattr(catalog, "_registered", {})
    for other in NAMES:
        monkeypatch.delitem(storage._records, f"rule:{other}")
    with pytest.raises(CalibratorFileError, match=rf"{name}.*`pip install \./paper`"):
        load(FOLDER / f"{name}.json")
