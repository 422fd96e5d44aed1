"""Files that 0.5 wrote are read: same numbers, same answers. Older ones are refused.

`python -m tests.calibrators.test_golden` writes files for methods without one. Files
that are here already stay as they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import CalibratorFileError, Gaussian, Gumbel, Uniform, load, make
from hokical._core.storage import checksum
from hokical.calibrators import method_names
from tests.conftest import quiet_fit, synthetic_logits

#: Methods of this package, without those of hokical-paper.
OWN = [
    name
    for name in method_names()
    if make(name).__module__.startswith("hokical.calibrators")
]
FOLDER = Path(__file__).parent / "golden"
#: Integrals may be computed in another way, within their stated errors.
CLOSE = {"rtol": 0.0, "atol": 1e-8}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in [*OWN, "auto"]},
    "hoki_gaussian": ("hoki", {"noise": Gaussian(2.0)}),
    "hoki_uniform": ("hoki", {"noise": Uniform(-4.0, 4.0)}),
    "hoki_gumbel": ("hoki", {"noise": Gumbel(1.5)}),
    "hoki_sampled": ("hoki", {"noise": Gaussian(2.0), "draws": 20}),
    "auto_corrected": ("auto", {}),
}
#: Whose rows need temperatures of their own.
CORRECTED = ("adaptive", "auto_corrected")


def rows() -> np.ndarray:
    """Eight rows: usual ones, a tie, a masked class."""
    logits, _ = synthetic_logits(8, 3, seed=21)
    logits[6, :2] = logits[6].max()
    logits[7, 1] = -np.inf
    return logits


def two_columns(logits: np.ndarray, calibrator: Any) -> np.ndarray:
    """What methods for two classes are given."""
    return logits[:, [0, 2]] if calibrator.method.binary_only else logits


@pytest.mark.parametrize("case", list(CASES))
def test_files_of_every_method_are_read(case: str) -> None:
    calibrator = load(FOLDER / f"{case}.json")
    assert case not in CORRECTED or calibrator.correction_ is not None
    data = two_columns(rows(), calibrator)
    with np.load(FOLDER / f"{case}.npz") as answers:
        np.testing.assert_array_equal(calibrator.predict(data), answers["labels"])
        np.testing.assert_allclose(
            calibrator.predict_confidence(data), answers["confidence"], **CLOSE
        )
        np.testing.assert_allclose(
            calibrator.predict_proba(data), answers["proba"], **CLOSE
        )


#: Sums may be rounded in another order.
SAME = {"rtol": 0.0, "atol": 1e-12}


def stored_answers(case: str) -> tuple[Any, dict[str, np.ndarray]]:
    """A calibrator that an earlier version saved, and its predictions then."""
    with np.load(FOLDER / f"{case}.npz") as stored:
        return load(FOLDER / f"{case}.json"), dict(stored)


@pytest.mark.parametrize("kind", ["auto", "auto_many", "auto_groups"])
def test_the_default_predicts_as_before(kind: str) -> None:
    """Of few and of many classes, and with groups."""
    cal, answers = stored_answers(f"{kind}_0_5")
    logits = answers.pop("logits")
    own = {"groups": {"site": answers.pop("site")}} if "site" in answers else {}
    np.testing.assert_array_equal(cal.predict(logits, **own), answers["labels"])
    for name in ("confidence", "proba"):
        found = getattr(cal, f"predict_{name}")(logits, **own)
        np.testing.assert_allclose(found, answers[name], **SAME)
    if own:
        return
    np.testing.assert_array_equal(
        cal.predict_set(logits, coverage=0.9).members, answers["members"]
    )
    accepted = cal.predict_or_abstain(logits, risk=0.3).accepted
    np.testing.assert_array_equal(accepted, answers["accepted"])
    np.testing.assert_allclose(
        cal.predict_interval(logits), answers["interval"], **SAME
    )


def test_confidences_and_labels_predict_as_before() -> None:
    stated, answers = stored_answers("confidence_0_5")
    found = stated.predict(answers["stated"], groups={"topic": answers["topic"]})
    np.testing.assert_allclose(found, answers["confidence"], **SAME)
    several, answers = stored_answers("multilabel_0_5")
    np.testing.assert_allclose(
        several.predict_proba(answers["scores"]), answers["proba"], **SAME
    )


@pytest.mark.parametrize("version", ["0.1.0", "0.4.0"])
def test_older_files_are_refused_with_the_version_that_reads_them(
    version: str, tmp_path: Path
) -> None:
    document = json.loads((FOLDER / "temps.json").read_text())
    document |= {"library_version": version}
    del document["checksum"]
    file = tmp_path / "old.json"
    file.write_text(json.dumps(document | {"checksum": checksum(document)}))
    remedy = rf"written by hokical {version}; .* Load and save it with hokical 0\.5"
    with pytest.raises(CalibratorFileError, match=remedy):
        load(file)


def write_missing() -> None:
    FOLDER.mkdir(exist_ok=True)
    for case, (name, options) in CASES.items():
        if (FOLDER / f"{case}.json").exists():
            continue
        calibrator = make(name, **options)
        logits, labels = synthetic_logits(200, 3, seed=20)
        if case in CORRECTED:
            logits, labels = synthetic_logits(600, 3, seed=20)
            logits *= np.exp(np.random.default_rng(0).normal(size=(600, 1)))
        logits = two_columns(logits, calibrator)
        quiet_fit(calibrator, logits, labels % logits.shape[1])
        calibrator.save(FOLDER / f"{case}.json")
        data = two_columns(rows(), calibrator)
        np.savez(
            FOLDER / f"{case}.npz",
            labels=calibrator.predict(data),
            confidence=calibrator.predict_confidence(data),
            proba=calibrator.predict_proba(data),
        )


if __name__ == "__main__":
    write_missing()
