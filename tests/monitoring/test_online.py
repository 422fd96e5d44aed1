"""`OnlineSets`: coverage by feedback under drift, against an adversary, with late
labels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import Calibrator, make
from hokical._core.storage import CalibratorFileError, checksum
from hokical.monitoring import CalibrationMonitor, OnlineSets

LATE = 200


def stream(
    temperatures: Any, seed: int, classes: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels (n,) of a classifier that is the more confident, the higher
    these are.
    """
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(len(temperatures), classes))
    noise = np.asarray(temperatures)[:, None] * rng.gumbel(size=logits.shape)
    return logits, np.argmax(logits + noise, axis=1)


@pytest.fixture(scope="module")
def cal() -> Calibrator:
    fit, held_out = stream(np.ones(500), 1), stream(np.ones(2000), 2)
    return make("temps").fit(*fit).certify(*held_out)


def covered(
    online: OnlineSets, logits: np.ndarray, labels: np.ndarray, step: int
) -> np.ndarray:
    """Which labels (n,) are covered, if labels come 200 rows late and are shuffled
    among 40.
    """
    rng, hits, late = np.random.default_rng(0), [], list[int]()
    for first in range(0, len(labels), step):
        rows = np.arange(first, min(first + step, len(labels)))
        members = online.predict_set(logits[rows], ids=rows).members
        hits.append(members[np.arange(rows.size), labels[rows]])
        late += rows.tolist()
        while len(late) >= LATE + 40:
            now, late = rng.permutation(late[:40]), late[40:]
            online.add_labels(now, labels[now])
    return np.concatenate(hits)


N = 6000
STREAMS = {
    "steady": (np.ones(N), 0.87),
    "drift": (np.linspace(1.0, 2.5, N), 0.87),
    "jump": (np.where(np.arange(N) < N // 3, 1.0, 3.0), 0.8),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("seed", [3, 4])
def test_coverage_is_kept_under_drift(cal: Calibrator, name: str, seed: int) -> None:
    temperatures, worst = STREAMS[name]
    logits, labels = stream(temperatures, seed)
    hits = covered(OnlineSets(cal, coverage=0.9), logits, labels, 20)
    assert 0.885 <= hits.mean() <= 0.915
    assert np.convolve(hits, np.ones(1500) / 1500, "valid").min() >= worst
    if name != "steady":  # what the same check finds without feedback
        fixed = cal.predict_set(logits, coverage=0.9).members[np.arange(N), labels]
        assert fixed.mean() < 0.84


@pytest.mark.sample(1)
@pytest.mark.parametrize("late", [1, 150])
@pytest.mark.parametrize("coverage", [0.7, 0.95])
def test_no_adversary_exceeds_the_bound(
    cal: Calibrator, late: int, coverage: float
) -> None:
    logits = stream(np.ones(2500), 5)[0]
    online, missed, waiting = (
        OnlineSets(cal, coverage=coverage),
        0,
        list[tuple[int, int]](),
    )
    for row, one in enumerate(logits):
        members = online.predict_set(one[None], ids=[row]).members[0]
        out = np.flatnonzero(~members)
        waiting.append((row, int(out[0] if out.size else 0)))
        missed += bool(out.size)
        if len(waiting) == late:
            ids, labels = zip(*reversed(waiting), strict=True)
            online.add_labels(ids, labels)
            waiting = []
    status = online.status()
    assert missed > (1.0 - coverage) * 2500  # it is one
    assert (
        status.n - round(status.covered * status.n)
        <= (1.0 - coverage) * status.n + 100 + late
    )
    assert 1.0 - status.covered <= status.most_missed < 1.0


@pytest.mark.slow
def test_savings_are_limited(cal: Calibrator) -> None:
    """A stream that needs no second class for long does not pay for misses
    afterwards.
    """
    easy, labels = stream(np.full(8000, 0.2), 6)
    hard, truth = stream(np.full(3000, 2.0), 7)
    online = OnlineSets(cal, coverage=0.8)
    assert covered(online, easy, labels, 100).mean() > 0.9
    online = OnlineSets(cal, coverage=0.8)
    both, all_labels = np.vstack([easy, hard]), np.append(labels, truth)
    assert covered(online, both, all_labels, 100)[9000:].mean() > 0.77


def test_a_file_continues_the_stream(cal: Calibrator, tmp_path: Path) -> None:
    logits, labels = stream(np.full(600, 2.0), 8)
    online = OnlineSets(cal, coverage=0.9)
    online.predict_set(logits[:300], ids=range(300))
    online.add_labels(range(200), labels[:200])
    online.save(tmp_path / "sets.json")
    again = OnlineSets.load(tmp_path / "sets.json", cal)
    assert again.status() == online.status()
    for one in (online, again):
        one.add_labels(range(250, 300), labels[250:300])
    ids = [f"row {k}" for k in range(300)]
    found, same = (one.predict_set(logits[300:], ids=ids) for one in (online, again))
    assert (found.members == same.members).all()
    assert found.guarantee == same.guarantee
    assert "whatever the stream is" in found.guarantee
    other = make("temps").fit(*stream(np.full(500, 2.0), 9))
    with pytest.raises(
        ValueError, match="must be the one that these sets were made with"
    ):
        OnlineSets.load(tmp_path / "sets.json", other)
    CalibrationMonitor(cal).save(tmp_path / "monitor.json")
    with pytest.raises(CalibratorFileError):
        OnlineSets.load(tmp_path / "monitor.json", cal)


def recent_with(entry: object) -> list[object]:
    return [True, False, entry]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[
            ("recent", recent_with(entry))
            for entry in (None, 2.5, "True", [], {"$float": "nan"})
        ],
        ("recent", 3),
        ("rows", [1]),
        ("labelled", 2),
        ("most_waiting", "many"),
        ("n", -1),
        ("n_missed", True),
    ],
)
def test_forged_fields_are_refused(
    field: str, value: object, cal: Calibrator, tmp_path: Path
) -> None:
    logits, labels = stream(np.full(30, 2.0), 8)
    online = OnlineSets(cal, coverage=0.9)
    online.predict_set(logits, ids=range(30))
    online.add_labels(range(20), labels[:20]).save(tmp_path / "sets.json")
    document = json.loads((tmp_path / "sets.json").read_text("utf-8"))
    document["state"][field] = value
    document.pop("checksum")
    document["checksum"] = checksum(document)
    (tmp_path / "sets.json").write_text(json.dumps(document), "utf-8")
    with pytest.raises(CalibratorFileError, match=r"sets\.json"):
        OnlineSets.load(tmp_path / "sets.json", cal)


def test_mistakes_are_named(cal: Calibrator) -> None:
    logits, labels = stream(np.ones(10), 8)
    online = OnlineSets(cal, coverage=0.9, max_waiting=8)
    assert str(online.status()).startswith("no labels yet")
    online.predict_set(logits, ids=range(10))
    assert online.status().n_waiting == 8
    for call in (
        lambda: online.predict_set(logits[:2], ids=[11, 11]),
        lambda: online.add_labels([5, 5], [0, 0]),
    ):
        with pytest.raises(ValueError, match="`ids` must be different"):
            call()
    with pytest.raises(ValueError, match="`ids` must be new; '5' waits"):
        online.predict_set(logits[:1], ids=[5])
    with pytest.raises(
        ValueError, match=r"larger `max_waiting`\.$"
    ):  # none can be skipped
        online.add_labels([9, 0], labels[[9, 0]])
    assert online.status().n == 0
    online.add_labels([9], labels[9:])
    with pytest.raises(ValueError, match="has one already"):
        online.add_labels([9], labels[9:])
    with pytest.raises(ValueError, match="`labels`"):
        online.add_labels([8], [10])
    with pytest.raises(ValueError, match="must be certified"):
        OnlineSets(make("temps").fit(*stream(np.ones(300), 1)))
    with pytest.raises(TypeError, match="fitted calibrator"):
        OnlineSets(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`coverage`"):
        OnlineSets(cal, coverage=90)


def test_masked_classes_are_inside_only_if_everything_is(cal: Calibrator) -> None:
    logits = np.where(np.arange(10) < 3, 1.0, -np.inf)[None].repeat(400, axis=0)
    online = OnlineSets(cal, coverage=0.9)
    assert online.predict_set(logits[:1], ids=["a"]).members.sum() <= 3
    for row in range(200):
        online.predict_set(logits[:1], ids=[row])
        online.add_labels([row], [9])
    assert online.predict_set(logits[:1], ids=["b"]).members.all()


def test_without_a_proven_threshold_sets_begin_with_every_class() -> None:
    """Five certified rows prove nothing at 90 %; labels that arrive do."""
    cal = (
        make("temps")
        .fit(*stream(np.ones(300), 1, 3))
        .certify(*stream(np.ones(5), 2, 3))
    )
    logits, labels = stream(np.ones(6000), 3, 3)
    assert (cal.predict_set(logits[:9], coverage=0.9).sizes == 3).all()
    online, sizes = OnlineSets(cal, coverage=0.9), []
    assert online.status().threshold < 1e-9
    for first in range(0, 6000, 200):
        rows = range(first, first + 200)
        sizes.append(online.predict_set(logits[rows], ids=rows).sizes.mean())
        online.add_labels(rows, labels[rows])
    assert sizes[0] == 3.0
    assert np.mean(sizes[-5:]) < 2.0
    assert online.status().recent == pytest.approx(0.9, abs=0.04)
