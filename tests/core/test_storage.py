"""Files: whole or absent, checked on the way in, and never code."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import (
    CalibrationMonitor,
    CalibratorFileError,
    Gaussian,
    Gumbel,
    Hoki,
    Uniform,
    calibrate_confidence,
    load,
)
from hokical._core.storage import (
    checksum,
    read_document,
    write_document,
    write_text_atomically,
)
from tests.conftest import max_examples

TAGS = ["$record", "$array", "$tuple", "$float", "$dict"]


@pytest.fixture(scope="module")
def hoki(overconfident: tuple[np.ndarray, np.ndarray]) -> Hoki:
    logits, labels = overconfident
    return Hoki(noise=Gaussian(2.0)).fit(logits[:500], labels[:500])


@pytest.fixture
def saved(tmp_path: Path, hoki: Hoki) -> Path:
    hoki.save(tmp_path / "cal.json")
    return tmp_path / "cal.json"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noise": Uniform(-2, 4), "n_bins": 7},
        {"noise": Gumbel(1.5), "draws": 200, "random_state": 5},
        {"draws": 50, "random_state": np.random.RandomState(3), "n_bins": 3},
    ],
)
def test_a_loaded_calibrator_is_the_saved_one(
    options: dict, tmp_path: Path, overconfident: tuple[np.ndarray, np.ndarray]
) -> None:
    logits, labels = overconfident
    calibrator = Hoki(**options).fit(logits[:1000], labels[:1000])
    calibrator.save(tmp_path / "cal.json")
    again = load(tmp_path / "cal.json")
    for method in ("predict", "predict_confidence", "predict_proba"):
        np.testing.assert_array_equal(
            getattr(again, method)(logits), getattr(calibrator, method)(logits)
        )
    assert again.converged_ == calibrator.converged_
    # the table came along: learning goes on where it stopped
    more = again.partial_fit(logits[1000:], labels[1000:])
    whole = calibrator.partial_fit(logits[1000:], labels[1000:])
    np.testing.assert_array_equal(more.alpha_, whole.alpha_)


def test_the_file_is_readable_json(saved: Path) -> None:
    document = json.loads(saved.read_text())
    assert document["format"] == "hokical-calibrator"
    assert document["method"] == "hoki"
    assert document["schema"]["n_classes"] == 6
    noise = {"$record": "noise:gaussian", "scale": 2.0, "mean": 0.0}
    assert document["rule"]["$record"] == "rule:hoki"
    assert document["rule"]["noise"] == noise
    assert set(document) >= {
        "library_version",
        "checksum",
        "parameters",
        "format_version",
    }


def edit(path: Path, change: object, *, sign: bool = False) -> None:
    """Change the document; with `sign`, make the checksum fit as a careful forger
    would.
    """
    document = json.loads(path.read_text())
    change(document)  # type: ignore[operator]
    if sign:
        document.pop("checksum")
        document["checksum"] = checksum(document)
    path.write_text(json.dumps(document))


def test_damage_is_noticed(saved: Path) -> None:
    whole = saved.read_text()
    for cut in (0, 1, 100, len(whole) - 3):
        saved.write_text(whole[:cut])
        with pytest.raises(
            CalibratorFileError, match=r"not a hokical calibrator file|cut short"
        ):
            load(saved)
    saved.write_bytes(b"\x80\x04\x95" + os.urandom(50))
    with pytest.raises(
        CalibratorFileError, match=r"looks like a pickle; loading never runs code"
    ):
        load(saved)
    np.savez(saved.with_suffix(".npz"), logits=np.zeros(3))
    with pytest.raises(
        CalibratorFileError, match=r"not a hokical calibrator file.*a zip archive"
    ):
        load(saved.with_suffix(".npz"))


@pytest.mark.parametrize(
    ("change", "sign", "message"),
    [
        (
            lambda d: d["report"].update(accuracy=0.1),
            False,
            "does not match its checksum",
        ),
        (lambda d: d.update(format_version=99), True, "format version 99"),
        (lambda d: d.update(format="other"), True, "not a hokical calibrator file"),
        (
            lambda d: d["rule"].update({"$record": "os.system"}),
            True,
            "'os.system' is not known",
        ),
        (lambda d: d.pop("rule"), True, "has no usable `rule`"),
        (lambda d: d.update(method=3), True, "`method` must be one of"),
        (
            lambda d: d["schema"].update(n_classes=-4),
            True,
            "at least 2 classes; got -4",
        ),
        (
            lambda d: d["schema"].update(n_classes=True),
            True,
            "at least 2 classes; got True",
        ),
        (
            lambda d: d["rule"]["link"].pop("first"),
            True,
            "does not hold a usable calibrator",
        ),
        (
            lambda d: d["rule"].update(levels=10**14),
            True,
            "`levels` must be an integer",
        ),
        (lambda d: d["rule"].update(more=1), True, "does not hold a usable calibrator"),
        (
            lambda d: d["rule"]["noise"].update(scale=-1.0),
            True,
            "`scale` must be a number from 1e-100",
        ),
        (
            lambda d: d["report"]["table"].update(levels=10**14),
            True,
            "does not hold a usable",
        ),
        (
            lambda d: d["rule"]["link"].update(
                first={"$array": {"dtype": "O", "shape": [1]}}
            ),
            True,
            "is not allowed",
        ),
    ],
)
def test_edits_are_refused(
    saved: Path, change: object, sign: bool, message: str
) -> None:
    edit(saved, change, sign=sign)
    with pytest.raises(CalibratorFileError, match=message):
        load(saved)


def test_an_edited_report_is_refused(saved: Path) -> None:
    edit(saved, lambda d: d["report"].update(table=3), sign=True)
    with pytest.raises(CalibratorFileError, match="holds no usable Hoki"):
        load(saved)


def test_numbers_that_are_no_json_are_refused(saved: Path) -> None:
    for number in ("NaN", "-Infinity", "9" * 5000):
        saved.write_text('{"format": "hokical-calibrator", "x": ' + number + "}")
        with pytest.raises(CalibratorFileError, match=r"cal.json"):
            load(saved)


def test_links_stay_links_and_errors_name_the_target(
    saved: Path, overconfident: tuple[np.ndarray, np.ndarray]
) -> None:
    link = saved.with_name("link.json")
    link.symlink_to(saved)
    calibrator = Hoki(noise=Gaussian(1.0)).fit(*overconfident)
    calibrator.save(link)
    assert link.is_symlink()
    assert load(saved).noise_ == Gaussian(1.0)
    with pytest.raises(OSError, match=r"absent.folder.cal\.json'?$"):
        calibrator.save(saved.parent / "absent folder" / "cal.json")


def test_other_json_and_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("[1, 2]", "{}", '"hokical"', "null"):
        path.write_text(text)
        with pytest.raises(CalibratorFileError, match="not a hokical calibrator file"):
            load(path)
    path.write_bytes(pickle.dumps({"format": "hokical-calibrator"}))
    with pytest.raises(CalibratorFileError):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.json")


def test_draws_that_come_out_differently_are_noticed(
    tmp_path: Path, overconfident: tuple[np.ndarray, np.ndarray]
) -> None:
    path = tmp_path / "cal.json"
    Hoki(noise=Gaussian(1.0), draws=20, random_state=0).fit(*overconfident).save(path)
    edit(path, lambda d: d["rule"]["draws"].update(seed=1), sign=True)
    with pytest.raises(CalibratorFileError, match="re-drawn from the seed"):
        load(path)


def test_a_crash_leaves_the_old_file(
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    overconfident: tuple[np.ndarray, np.ndarray],
) -> None:
    before = saved.read_text()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        Hoki(noise=Gaussian(1.0)).fit(*overconfident).save(saved)
    assert saved.read_text() == before
    assert [path.name for path in saved.parent.iterdir()] == ["cal.json"]


def test_permissions_are_those_of_an_ordinary_file(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        write_text_atomically(tmp_path / "a", "x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644
    os.chmod(tmp_path / "a", 0o600)
    write_text_atomically(tmp_path / "a", "y")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_saving_before_fitting_is_an_error(tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        Hoki().save(tmp_path / "cal.json")
    assert not (tmp_path / "cal.json").exists()


def test_numbers_out_of_range_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write_document(path, {"x": 1.0})
    path.write_text(path.read_text().replace('"x": 1.0', '"x": 1e999'))
    with pytest.raises(CalibratorFileError, match="does not match its checksum"):
        read_document(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("held_out", "label_scores", "groups"), None),
        (
            (
                "held_out",
                "label_scores",
                "groups",
                "names",
                "$tuple",
                0,
                "$tuple",
            ),
            [],
        ),
        (("fit", "class_features", "count", "$array", "values", 1), 0.0),
        (("held_out", "class_scores", "shape"), [12, 192]),
        (("fit", "label_scores", "shape"), [16, 192]),
    ],
)
def test_parts_that_contradict_each_other_are_refused(
    place: tuple,
    value: object,
    tmp_path: Path,
    overconfident: tuple[np.ndarray, np.ndarray],
) -> None:
    """Though the checksum is right."""
    logits, labels = overconfident
    groups = np.arange(300) % 3
    cal = Hoki(noise=Gaussian(2.0)).fit(logits[:300], labels[:300])
    cal.certify(logits[300:600], labels[300:600], groups=groups).save(
        tmp_path / "cal.json"
    )
    document = json.loads((tmp_path / "cal.json").read_text())
    del document["checksum"]
    part = document
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    document["checksum"] = checksum(document)
    (tmp_path / "cal.json").write_text(json.dumps(document))
    with pytest.raises(CalibratorFileError, match="usable"):
        load(tmp_path / "cal.json")


def containers(values: Any) -> Any:
    """Lists and mappings of values, with keys that the format itself uses."""
    keys = st.sampled_from(TAGS) | st.text()
    return st.lists(values, max_size=3) | st.dictionaries(keys, values, max_size=3)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
)


@pytest.mark.slow
@given(st.recursive(SCALARS, containers, max_leaves=8))
@max_examples(100)
def test_metadata_of_any_keys_comes_back(tmp_path_factory: Any, value: Any) -> None:
    path = tmp_path_factory.mktemp("metadata") / "file.json"
    write_document(path, {"beside": {"$record": value}})
    assert read_document(path)["beside"] == {"$record": value}


def test_metadata_with_the_keys_of_the_format(saved: Path, hoki: Hoki) -> None:
    metadata = {
        "$record": "mine",
        "$array": [1],
        "nested": {"$float": "x", "$dict": None},
    }
    hoki.save(saved, metadata=metadata)
    assert load(saved).metadata_ == metadata


@pytest.fixture(scope="module")
def by_subject(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of confidences that are calibrated by subject."""
    rng = np.random.default_rng(0)
    stated, subject = rng.uniform(0.5, 1.0, (2000, 2)), rng.choice(["law", "art"], 2000)
    right = rng.random(2000) < np.where(subject == "law", 0.3, 0.9) * stated[:, 0]
    path = tmp_path_factory.mktemp("subjects") / "cal.json"
    calibrate_confidence(stated, right, groups=subject).save(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    "value", ["text", "", 3, 0, [], [1, 2], {}, {"a": 1}, True, False]
)
@pytest.mark.parametrize(
    "place", [("signals",), ("coding",), ("coding", "columns"), ("coding", "levels")]
)
def test_records_of_another_type_are_refused_when_loaded(
    tmp_path: Path, by_subject: bytes, place: tuple[str, ...], value: Any
) -> None:
    path = tmp_path / "cal.json"
    path.write_bytes(by_subject)

    def change(document: dict[str, Any]) -> None:
        record = document["rule"]
        for name in place[:-1]:
            record = record[name]
        assert record[place[-1]] is not None
        record[place[-1]] = value

    edit(path, change, sign=True)
    with pytest.raises(CalibratorFileError, match="usable calibrator"):
        load(path)


def test_files_of_monitors_are_called_monitors(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    CalibrationMonitor(None).save(path)
    with pytest.raises(
        CalibratorFileError,
        match=r"must hold: calibrator; it holds: CalibrationMonitor\. Read it with",
    ):
        load(path)
    edit(path, lambda document: document["state"].update(window=3), sign=True)
    with pytest.raises(
        CalibratorFileError, match="usable CalibrationMonitor: `window` must be"
    ):
        CalibrationMonitor.load(path)
    path.write_text("{")
    with pytest.raises(
        CalibratorFileError, match="not a hokical CalibrationMonitor file"
    ):
        CalibrationMonitor.load(path)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([1.5, 2.5]), ["1.5", 2.5]),
        (np.array([1.5, 2.5]), [True, 2.5]),
        (np.array([1.5, 2.5]), [None, 2.5]),
        (np.array([1.5, 2.5]), [{"$float": "1.5"}, 2.5]),
        (np.array([1, 2]), [1.7, 2]),
        (np.array([1, 2]), [1.0, 2]),
        (np.array([1, 2]), ["1", 2]),
        (np.array([1, 2]), [[1, 2]]),
        (np.array([1, 2], np.uint8), [1, 300]),
        (np.array([1, 2], np.uint8), [-1, 2]),
        (np.array([True, False]), [1, 0]),
        (np.array([True, False]), ["", "x"]),
    ],
)
def test_numbers_of_another_kind_than_the_array_are_refused(
    tmp_path: Path, array: np.ndarray, words: list[Any]
) -> None:
    path = tmp_path / "array.json"
    write_document(path, {"numbers": array})
    np.testing.assert_array_equal(read_document(path)["numbers"], array)
    edit(
        path,
        lambda document: document["numbers"]["$array"].update(values=words),
        sign=True,
    )
    with pytest.raises(CalibratorFileError, match="does not hold a usable calibrator"):
        read_document(path)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_come_back(tmp_path: Path, number: float) -> None:
    path = tmp_path / "number.json"
    write_document(path, {"number": number, "numbers": np.array([number, 1.0])})
    found = read_document(path)
    np.testing.assert_equal(found["number"], number)
    np.testing.assert_array_equal(found["numbers"], [number, 1.0])


@pytest.mark.parametrize("version", [2.0, 3.0, True, "3", None, [3]])
def test_a_version_is_a_whole_number(saved: Path, version: Any) -> None:
    edit(saved, lambda document: document.update(format_version=version), sign=True)
    with pytest.raises(CalibratorFileError, match="has format version"):
        load(saved)
