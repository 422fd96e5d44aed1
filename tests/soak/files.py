"""Attacks by files: damaged bytes in every format, and calibrators with forged
numbers.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from hokical import (
    CalibratedClassifier,
    CalibrationMonitor,
    Calibrator,
    CalibratorFileError,
    Dense,
    Ensemble,
    MultilabelCalibrator,
    auto,
    calibrate_confidence,
    load,
)
from hokical._core.storage import checksum
from hokical.calibrators import SurvivalCalibrator
from hokical.io import DataFileError, read_examples
from hokical.monitoring import OnlineSets
from hokical.streams import open_source
from tests.io.samples import VAL, WRITERS, write_csv
from tests.soak.odd import stated_errors

Generator = np.random.Generator
GOLDEN = Path(__file__).parents[1] / "calibrators" / "golden"
#: Formats with checksums: what is read from them is right or refused.
CHECKED = ("npz", "packed.npz", "csv.gz")
#: What a forger may put in the place of a value.
FORGED: list[Any] = [
    0,
    1,
    -1,
    2,
    3,
    0.5,
    -0.5,
    1e-320,
    1e300,
    -1e300,
    1e9,
    -1e9,
    10**30,
    2**31,
    2**63,
    1 + 1e-10,
    {"$float": "nan"},
    {"$float": "inf"},
    {"$float": "-inf"},
    None,
    True,
    "1",
    "",
    [],
    [1.0],
    {},
    {"$array": {"dtype": "float64", "shape": [2**40], "values": []}},
    {"$tuple": [1]},
    {"$record": "rule:temps", "temperature": 2.0},
    {"$record": "draws"},
]


def _write_npy(path: Path) -> Path:
    np.save(path, VAL[0])
    np.save(path.with_name(path.name.replace("logits", "labels")), VAL[1])
    return path


def _write_packed(path: Path) -> Path:
    np.savez_compressed(path, val_logits=VAL[0], val_labels=VAL[1])
    return path


def _write_gzip(path: Path) -> Path:
    path.write_bytes(gzip.compress(write_csv(path.with_suffix(".plain")).read_bytes()))
    return path


FORMATS: dict[str, Callable[[Path], Path]] = WRITERS | {
    "npy": _write_npy,
    "packed.npz": _write_packed,
    "csv.gz": _write_gzip,
}


def damage(content: bytes, rng: Generator) -> bytes:
    """Some bits flipped, a piece cut off, out, zeroed, doubled, or bytes put in."""
    spoilt = bytearray(content)
    place, length = int(rng.integers(len(spoilt))), int(rng.integers(1, 64))
    match int(rng.integers(6)):
        case 0:
            for spot in rng.integers(len(spoilt), size=rng.integers(1, 5)):
                spoilt[spot] ^= 1 << int(rng.integers(8))
        case 1:
            del spoilt[place:]
        case 2:
            del spoilt[place : place + length]
        case 3:
            spoilt[place : place + length] = bytes(len(spoilt[place : place + length]))
        case 4:
            spoilt[place:place] = spoilt[place : place + length]
        case 5:
            spoilt[place:place] = rng.bytes(length)
    return bytes(spoilt)


def damaged_data(kind: str, rng: Generator, folder: Path) -> str:
    """A damaged file is refused, or is rows of numbers; the same ones if it has
    checksums.
    """
    path = FORMATS[kind](folder / f"logits.{kind}")
    whole = path.read_bytes()
    path.write_bytes(damage(whole, rng))
    came = set()
    for read in (partial(_read_whole, path), partial(_read_in_parts, path)):
        try:
            logits, labels = read()
        except DataFileError as error:
            came.add(
                "refused" if error.path.parent == folder else "another file blamed"
            )
            continue
        assert logits.ndim == 2, "no rows of logits"
        same = np.array_equal(logits, VAL[0]) and np.array_equal(labels, VAL[1])
        assert same or kind not in CHECKED, "other numbers from a file with checksums"
        came.add("read unharmed" if same else "read as other numbers")
    assert "another file blamed" not in came
    return max(came)


def _read_whole(path: Path) -> tuple[Any, Any]:
    found = read_examples(path)
    return found.scores.values, found.labels


def _read_in_parts(path: Path) -> tuple[Any, Any]:
    chunks = list(open_source(path))
    if not chunks or chunks[0].labels is None:  # which a fit refuses
        raise DataFileError(path, "has no rows with labels.")
    logits, labels = zip(
        *((chunk.scores, chunk.labels) for chunk in chunks), strict=True
    )
    return np.concatenate(logits), np.concatenate(labels)


def damaged_calibrator(rng: Generator, folder: Path) -> str:
    """A damaged calibrator is refused by its checksum."""
    original = _golden(rng)
    (folder / "c.json").write_bytes(damage(original.read_bytes(), rng))
    try:
        found = load(folder / "c.json")
    except CalibratorFileError:
        return "refused"
    for name, each in (("a.json", found), ("b.json", load(original))):
        each.save(folder / name)
    same = (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()
    assert same, "other numbers behind a checksum"
    return "read unharmed"


def forged_calibrator(rng: Generator, folder: Path) -> str:
    """A file with forged numbers and a matching checksum is refused, or answers
    probabilities.
    """
    _write_forged(json.loads(_golden(rng).read_text()), folder / "c.json", rng)
    try:
        found = load(folder / "c.json")
    except CalibratorFileError:
        return "refused"
    _check_answers(found, rng)
    return "harmless"


def forged_document(rng: Generator, folder: Path) -> str:
    """A forged file of an ensemble, of answers or of several labels is refused, or
    answers probabilities.
    """
    kinds = _other_documents()
    text, answer = kinds[rng.integers(len(kinds))]
    _write_forged(json.loads(text), folder / "c.json", rng)
    refusal = ""
    found: Any = None
    try:
        found = load(folder / "c.json")
    except CalibratorFileError as error:
        refusal = str(error)
    if refusal:
        assert "c.json" in refusal, "an error without the file"
        return "refused"
    with stated_errors():
        proba = answer(found)
        assert np.isfinite(proba).all(), "an answer that is no number"
        assert ((proba >= 0.0) & (proba <= 1.0 + 1e-9)).all(), (
            "an answer that is no probability"
        )
    _check_answers(found, rng)
    return "harmless"


@cache
def _other_documents() -> list[tuple[str, Callable[[Any], Any]]]:
    """Files by their text, with what a calibrator of each is asked."""
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(120, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    noisy = logits + rng.normal(size=logits.shape)
    pair = Ensemble({"first": noisy, "second": 0.5 * logits})
    passes = Ensemble(np.stack([logits, noisy]), exchangeable=True)
    signals = rng.random((120, 2))
    signals[::4, 1] = np.nan
    right = rng.random(120) < signals[:, 0]
    group = rng.choice(["u", "v"], 120)
    survived = rng.random((8, 120)) < signals[:, 0]
    several = (rng.random(logits.shape) < expit(logits)).astype(float)
    model = LogisticRegression().fit(logits, labels)
    prefit = CalibratedClassifier(model, cv="prefit").fit(noisy, labels)
    folds = CalibratedClassifier(LogisticRegression(), cv=2).fit(logits, labels)
    other_pair, other_passes = pair[::-1], passes[::-1]
    dense = Dense("temps").fit(noisy.reshape(10, 12, 3), labels.reshape(10, 12))
    confidences = calibrate_confidence(signals[:, 0], right, groups=group)
    calibrators = [
        (auto(pair, labels), lambda cal: cal.predict_proba(pair)),
        (auto(pair, labels, keep_labels=True), lambda cal: cal.predict_proba(pair)),
        (auto(passes, labels), lambda cal: cal.predict_proba(passes)),
        (auto(logits, labels, groups=group), lambda cal: cal.predict_proba(logits)),
        (calibrate_confidence(signals, right), lambda cal: cal.predict(signals)),
        (
            confidences.certify(signals[:, 0] ** 2, right, groups=group),
            lambda cal: cal.predict(signals[:, 0], groups=group),
        ),
        (
            MultilabelCalibrator().fit(logits, several).certify(noisy, several),
            lambda cal: cal.predict_proba(logits),
        ),
        (SurvivalCalibrator().fit(survived, right), lambda cal: cal.predict(survived)),
        (
            auto(pair, labels).certify(other_pair, labels[::-1], reused="ignore"),
            lambda cal: cal.predict_proba(pair),
        ),
        (
            auto(passes, labels).certify(other_passes, labels[::-1], reused="ignore"),
            lambda cal: cal.predict_proba(passes),
        ),
        (
            prefit.certify(2.0 * logits, labels),
            lambda cal: cal.predict_proba(prefit.predict_scores(logits)),
        ),
        (
            folds.certify(2.0 * logits, labels),
            lambda cal: cal.predict_proba(folds.predict_scores(logits)),
        ),
        (dense, lambda cal: cal.predict_proba(logits)),
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "c.json"
        documents = []
        for calibrator, answer in calibrators:
            calibrator.save(path)
            documents.append((path.read_text("utf-8"), answer))
    return documents


def forged_monitor(rng: Generator, folder: Path) -> str:
    """The state of a monitor with forged numbers is refused, or can be read and goes
    on.
    """
    kinds = _monitors()
    text, go_on = kinds[rng.integers(len(kinds))]
    _write_forged(json.loads(text), folder / "m.json", rng)
    came = "refused"
    with stated_errors():
        json.dumps(go_on(folder / "m.json", rng), allow_nan=False)
        came = "harmless"
    return came


@cache
def _monitors() -> list[tuple[str, Callable[[Path, Generator], Any]]]:
    """States by their text, with what goes on from each: its status."""
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(120, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    pair = Ensemble({"first": logits, "second": 0.5 * logits})
    of_pair = auto(pair, labels).certify(pair[::-1], labels[::-1], reused="ignore")
    plain = CalibrationMonitor(None, window=100)
    plain.update(rng.random(300), rng.random(300) < 0.5)
    pooled = CalibrationMonitor(of_pair, window=50, n_classes=3, coverage=0.8)
    pooled.update_logits(pair, labels).update_logits(
        pair[:9], ids=np.arange(9), again=True
    )
    sets = OnlineSets(of_pair, coverage=0.8)
    sets.predict_set(pair, ids=np.arange(120))
    sets.add_labels(np.arange(60), labels[:60])

    def go_on_plain(path: Path, rng: Generator) -> Any:
        found = CalibrationMonitor.load(path, None)
        found.update(rng.random(50), rng.random(50) < 0.7)
        return found.status().to_dict()

    def go_on_pooled(path: Path, rng: Generator) -> Any:
        found = CalibrationMonitor.load(path, of_pair)
        found.update_logits(pair, labels, again=True)
        return found.add_labels(np.arange(9), labels[:9]).status().to_dict()

    def go_on_sets(path: Path, rng: Generator) -> Any:
        found = OnlineSets.load(path, of_pair)
        found.add_labels(np.arange(60, 120), labels[60:])
        found.predict_set(pair, ids=np.arange(200, 320))
        return str(found.status())

    documents = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.json"
        for monitor, go_on in (
            (plain, go_on_plain),
            (pooled, go_on_pooled),
            (sets, go_on_sets),
        ):
            monitor.save(path)
            documents.append((path.read_text("utf-8"), go_on))
    return documents


def _write_forged(document: Any, path: Path, rng: Generator) -> None:
    """One to three forged values, and the checksum of the result."""
    for _ in range(rng.integers(1, 4)):
        _forge(document, rng)
    document.pop("checksum", None)
    path.write_text(json.dumps(document | {"checksum": checksum(document)}))


def _golden(rng: Generator) -> Path:
    files = sorted(GOLDEN.glob("*.json"))
    return files[rng.integers(len(files))]


def _forge(document: Any, rng: Generator) -> None:
    places = list(_leaves(document))
    holder, key = places[rng.integers(len(places))]
    value = holder[key]
    if isinstance(value, float) and rng.random() < 0.5:
        product = value * float(rng.choice([-1.0, 0.0, 0.99, 1.5, 1e150]))
        holder[key] = product if np.isfinite(product) else {"$float": repr(product)}
    elif isinstance(holder, list) and rng.random() < 0.2:
        holder.pop(key) if rng.random() < 0.5 else holder.insert(key, value)
    else:
        holder[key] = copy.deepcopy(FORGED[rng.integers(len(FORGED))])


def _leaves(node: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(value, (dict, list)) and value:
            yield from _leaves(value)
        yield node, key


def _check_answers(found: Any, rng: Generator) -> None:
    """Probabilities for ordinary and extreme rows, and methods that fail in the
    stated way.
    """
    if not isinstance(found, Calibrator):
        _check_others(found, rng)
        return
    if found.n_classes_ > 1000:  # only a rule that suits any number of classes
        return
    rows = _rows_for(found, rng)
    needed = found.rule_.needed_groups
    of_groups = [] if needed is None else needed.columns
    given = {"groups": {name: [None] * 6 for name in of_groups}} if of_groups else {}
    confidence, proba = (
        found.predict_confidence(rows, **given),
        found.predict_proba(rows, **given),
    )
    for answer in (confidence, proba, proba.sum(axis=1)):
        assert np.isfinite(answer).all(), "an answer that is no number"
        assert ((answer >= 0.0) & (answer <= 1.0 + 1e-9)).all(), (
            "an answer that is no probability"
        )
    for method in (
        lambda: found.predict_or_abstain(rows, risk=0.2),
        lambda: found.predict_interval(rows),
        lambda: found.predict_support(rows),
        lambda: found.predict(rows),
        lambda: found.predict_set(rows, coverage=0.8),
        lambda: found.predict_action(rows, 1.0 - np.eye(found.n_classes_)),
        lambda: found.detect(rows, 1, recall=0.8),
        lambda: found.estimate_shift(rows),
    ):
        with stated_errors():
            method()
    assert repr(found)


def _rows_for(found: Calibrator, rng: Generator) -> Any:
    """Ordinary and extreme logits (6, classes), or an Ensemble of members of the fit."""
    members = found.schema_.members
    if members is None:
        return _extreme_rows(found.n_classes_, rng)
    tables = [_extreme_rows(found.n_classes_, rng) for _ in members.names]
    for table in tables[1:]:  # the first is the classifier, and was always evaluated
        table[rng.random(6) < 0.2] = np.nan
    names = None if members.exchangeable else members.names
    return Ensemble(tables, names, exchangeable=members.exchangeable)


def _extreme_rows(n_classes: int, rng: Generator) -> Any:
    rows = rng.normal(size=(6, n_classes)) * 10.0 ** rng.integers(-3, 6)
    rows[1:, 0] = [rows[1].max(), -np.inf, 1e300, -1e300, 0.0]
    return rows


def _check_others(found: Any, rng: Generator) -> None:
    """Probabilities of a calibrator of confidences or of several labels, or a stated
    error.
    """
    several = isinstance(found, MultilabelCalibrator)
    if several and found.n_labels_ > 1000:
        return
    work = found.predict_proba if several else found.predict
    with stated_errors():
        answer = work(
            rng.normal(size=(6, found.n_labels_)) if several else rng.random(6)
        )
        assert ((answer >= 0.0) & (answer <= 1.0)).all(), (
            "an answer that is no probability"
        )
    assert repr(found)


ATTACKS = {f"damaged .{kind}": partial(damaged_data, kind) for kind in FORMATS} | {
    "damaged calibrators": damaged_calibrator,
    "forged calibrators": forged_calibrator,
    "forged documents": forged_document,
    "forged monitors": forged_monitor,
}
