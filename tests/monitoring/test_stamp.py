"""A monitor belongs to one calibrator, and takes only counts of examples for its reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hokical
from hokical import CalibrationMonitor, Gaussian, Hoki
from hokical.calibrators import make, methods_from_logits
from hokical.monitoring import Reference
from hokical.monitoring._watching import Stamp
from tests.conftest import QUICK, synthetic_logits
from tests.monitoring.streams import exact_state, reference

LOGITS, LABELS = synthetic_logits(600, 4, seed=1)


def hoki(width: float = 4.0, rows: int = 600) -> Hoki:
    return Hoki(noise=Gaussian(width)).fit(LOGITS[:rows], LABELS[:rows])


@pytest.mark.sample(5)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", methods_from_logits())
def test_saving_keeps_the_stamp_of_every_method(name: str, tmp_path: Path) -> None:
    made = make(name, **QUICK.get(name, {}))
    pair = slice(2) if made.rule_kind.binary_only else slice(None)
    rows = LOGITS[:, pair].shape[1] > LABELS
    cal = made.fit(LOGITS[rows, pair], LABELS[rows])
    cal.save(tmp_path / "cal.json")
    assert Stamp.of(hokical.load(tmp_path / "cal.json")) == Stamp.of(cal)


def test_only_what_predicts_is_stamped(monkeypatch: pytest.MonkeyPatch) -> None:
    cal = hoki()
    before = Stamp.of(cal)
    monkeypatch.setattr("hokical.__version__", "999.0")
    assert Stamp.of(cal.certify(LOGITS + 0.1, LABELS)) == before
    drawn = Hoki(noise=Gaussian(4.0), draws=50, random_state=np.random.default_rng(0))
    assert Stamp.of(drawn.fit(LOGITS, LABELS)).learned != before.learned


@pytest.mark.parametrize("made_by", ["hoki", "validation"])
def test_another_calibrator_is_refused(made_by: str, tmp_path: Path) -> None:
    cal, path = hoki(), tmp_path / "monitor.json"
    made = (
        CalibrationMonitor(cal)
        if made_by == "hoki"
        else CalibrationMonitor.from_validation(cal, LOGITS, LABELS)
    )
    made.update_logits(LOGITS, LABELS).save(path)
    fewer = Hoki(noise=Gaussian(4.0)).fit(LOGITS[:, :3], LOGITS[:, :3].argmax(axis=1))
    for other in (make("uncalibrated").fit(LOGITS, LABELS), hoki(3.0), hoki(rows=500), fewer):
        with pytest.raises(ValueError, match=r"made with \(hoki of 4 classes, stamp .*; got "):
            CalibrationMonitor.load(path, other)
    cal.save(tmp_path / "cal.json")
    same = CalibrationMonitor.load(path, hokical.load(tmp_path / "cal.json"))
    assert exact_state(same.update_logits(LOGITS, LABELS)) == exact_state(
        made.update_logits(LOGITS, LABELS)
    )


def test_the_stamp_outlives_restarts_without_the_calibrator(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    CalibrationMonitor(hoki()).save(path)
    CalibrationMonitor.load(path).save(path)
    CalibrationMonitor.load(path).merge(CalibrationMonitor(hoki())).save(path)
    with pytest.raises(ValueError, match="must be the one"):
        CalibrationMonitor.load(path, hoki(3.0))


def test_a_calibrator_may_come_later_but_only_one(tmp_path: Path) -> None:
    path = tmp_path / "monitor.json"
    CalibrationMonitor(reference()).save(path)
    CalibrationMonitor.load(path, hoki()).save(path)
    with pytest.raises(ValueError, match="must be the one"):
        CalibrationMonitor.load(path, hoki(3.0))


def test_replicas_watch_the_same_calibrator() -> None:
    known = Reference.from_validation(hoki(), LOGITS, LABELS)
    one, other = CalibrationMonitor(known), CalibrationMonitor(known)
    one._watch(hoki())
    other._watch(hoki(3.0))
    with pytest.raises(ValueError, match="must have the same calibrator"):
        one.merge(other)


# weights


@pytest.mark.parametrize("weight", [0.001, 0.5, 1.5])
def test_weights_that_count_nothing_make_no_reference(weight: float) -> None:
    cal = Hoki(noise=Gaussian(4.0)).fit(LOGITS, LABELS, np.full(600, weight))
    with pytest.raises(ValueError, match=r"whole numbers of examples.*`from_validation"):
        CalibrationMonitor(cal)
    made = CalibrationMonitor.from_validation(cal, LOGITS, LABELS)
    assert made.reference is not None
    assert made.reference.weight.sum() == 600


def test_whole_weights_are_examples() -> None:
    twice = Hoki(noise=Gaussian(4.0)).fit(LOGITS, LABELS, np.full(600, 2.0))
    given = Hoki(noise=Gaussian(4.0)).fit(np.tile(LOGITS, (2, 1)), np.tile(LABELS, 2))
    assert np.array_equal(Reference.from_hoki(twice).weight, Reference.from_hoki(given).weight)
