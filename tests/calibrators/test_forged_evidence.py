"""A file whose checksum is right may still hold what no fit could make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import hokical
from hokical._core.storage import checksum
from hokical.calibrators.stored import StoredEstimator
from tests.conftest import softmax_examples


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a multilabel calibrator that was certified by group."""
    rng = np.random.default_rng(0)
    scores = 2.0 * rng.normal(size=(400, 3))
    labels = rng.random((400, 3)) < expit(scores)
    calibrator = hokical.MultilabelCalibrator().fit(scores[:200], labels[:200])
    calibrator.certify(
        scores[200:],
        labels[200:],
        rng.integers(1, 3, 200).astype(float),
        groups=rng.integers(0, 2, 200).astype(str),
    )
    path = tmp_path_factory.mktemp("forged") / "cal.json"
    calibrator.save(path)
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


FORGED = [
    (field, value)
    for field in ("unit",)
    for value in (None, True, 0, -1.0, "x", {"$float": "nan"}, {"$float": "inf"}, [])
]
FORGED += [("clustered", None), ("clustered", 1), ("names", None), ("group", None)]


@pytest.mark.parametrize(("field", "value"), FORGED)
def test_fields_are_checked(
    field: str, value: object, stored: dict[str, Any], tmp_path: Path
) -> None:
    document = json.loads(json.dumps(stored))
    assert document["held_out"][field] != value
    document["held_out"][field] = value
    load_refused(document, tmp_path)


@pytest.mark.parametrize(
    ("field", "change"),
    [("label", 3), ("absent_label", 3), ("group", 2), ("weights", -1.0)],
)
def test_arrays_are_checked(
    field: str, change: float, stored: dict[str, Any], tmp_path: Path
) -> None:
    document = json.loads(json.dumps(stored))
    held_out = document["held_out"]
    array = held_out["weights"][0] if field == "weights" else held_out[field]
    size = array["$array"]["shape"][0]
    del array["$array"]["base64"]
    array["$array"]["values"] = [change] * size
    load_refused(document, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"), [("dtype", None), ("dtype", "object"), ("shape", [-1])]
)
def test_arrays_say_what_they_are(
    key: str, value: object, stored: dict[str, Any], tmp_path: Path
) -> None:
    document = json.loads(json.dumps(stored))
    document["held_out"]["proba"]["$array"][key] = value
    load_refused(document, tmp_path)


def write_signed(document: dict[str, Any], folder: Path) -> None:
    document.pop("checksum")
    document["checksum"] = checksum(document)
    (folder / "cal.json").write_text(json.dumps(document), "utf-8")


def load_refused(document: dict[str, Any], folder: Path) -> None:
    write_signed(document, folder)
    with pytest.raises(hokical.CalibratorFileError):
        hokical.load(folder / "cal.json")


def test_the_document_itself_is_read(stored: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "cal.json").write_text(json.dumps(stored), "utf-8")
    assert hokical.load(tmp_path / "cal.json").name == "multilabel"


@pytest.mark.parametrize("method", ["vecs", "ets", "platt", "hoki", "adaptive"])
def test_the_rule_is_that_of_the_method(method: str, tmp_path: Path) -> None:
    rule = hokical.make("uncalibrated").fit(np.eye(3)[[0, 1, 2] * 9], [0, 1, 2] * 9)
    rule.save(tmp_path / "cal.json")
    document = json.loads((tmp_path / "cal.json").read_text("utf-8"))
    document["method"] = method
    load_refused(document, tmp_path)


@pytest.mark.parametrize("name", ["predictor", "rule", "fitted", "schema", "classes"])
def test_a_report_replaces_nothing(name: str, tmp_path: Path) -> None:
    calibrator = hokical.make("temps").fit(np.eye(3)[[0, 1, 2] * 9], [0, 1] * 13 + [2])
    calibrator.save(tmp_path / "cal.json")
    document = json.loads((tmp_path / "cal.json").read_text("utf-8"))
    document["report"][name] = {"$record": "rule:temps", "temperature": 50.0}
    write_signed(document, tmp_path)
    try:
        loaded = hokical.load(tmp_path / "cal.json")
    except hokical.CalibratorFileError:
        return
    assert loaded.fitted.fingerprint() == calibrator.fitted.fingerprint()
    assert loaded.classes_.tolist() == [0, 1, 2]


def document_of(calibrator: StoredEstimator, folder: Path) -> dict[str, Any]:
    calibrator.save(folder / "cal.json")
    document: dict[str, Any] = json.loads((folder / "cal.json").read_text("utf-8"))
    return document


@pytest.fixture
def pooled(tmp_path: Path) -> dict[str, Any]:
    """The document of a fit on an ensemble that keeps the labels of a member."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(100, 3))
    members = {"a": logits + rng.normal(size=logits.shape), "b": 2.0 * logits}
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    ensemble = hokical.Ensemble(members)
    return document_of(hokical.auto(ensemble, labels, keep_labels=True), tmp_path)


@pytest.mark.parametrize("name", [0, None, 1.5, True, [], {"$float": "nan"}])
def test_names_of_members_are_texts(
    name: object, pooled: dict[str, Any], tmp_path: Path
) -> None:
    pooled["schema"]["members"]["names"]["$tuple"][0] = name
    load_refused(pooled, tmp_path)


def test_labels_of_a_member_need_the_member(
    pooled: dict[str, Any], tmp_path: Path
) -> None:
    pooled["schema"]["members"]["keep_first"] = False
    load_refused(pooled, tmp_path)
    pooled["schema"]["members"] = None
    load_refused(pooled, tmp_path)


def test_counts_of_classes_do_not_overflow(tmp_path: Path) -> None:
    calibrator = hokical.make("temps").fit(*softmax_examples(60, 3, seed=0))
    document = document_of(calibrator, tmp_path)
    count = document["fit"]["class_features"]["count"]["$array"]["values"]
    count[-1] = 1e300
    load_refused(document, tmp_path)


@pytest.mark.parametrize("scale", [None, 0, -1.0, "1", [1.0], {"$float": "inf"}])
def test_the_scale_of_confidences_is_checked(scale: object, tmp_path: Path) -> None:
    confidence = np.linspace(0.0, 1.0, 40)
    calibrator = hokical.calibrate_confidence(confidence, confidence > 0.4)
    document = document_of(calibrator, tmp_path)
    document["parameters"]["scale"] = scale
    load_refused(document, tmp_path)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    calibrator = hokical.make("temps").fit(*softmax_examples(60, 3, seed=0))
    document = document_of(calibrator, tmp_path)
    document["method"] = "unheard"
    write_signed(document, tmp_path)
    with pytest.raises(hokical.CalibratorFileError, match=r"cal\.json is of another"):
        hokical.load(tmp_path / "cal.json")
