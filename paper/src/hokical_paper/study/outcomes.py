"""Methods compared over a folder of classifiers: whole vectors, many data sets, peers
beside us.

Every classifier is an experiment: scores and labels to fit on, scores and labels to
judge on. Those of one data set are alike, so uncertainty comes from resampling data
sets, not experiments.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hokical import FitDataWarning, from_probabilities, make
from hokical.calibrators import method_names
from hokical.metrics import classwise_ece
from hokical_paper.core.files import write_text_atomically
from hokical_paper.running.code import code_digest
from hokical_paper.study.peers import PEERS
from hokical_paper.types import FloatArray, IntArray

#: A true class that was given less than this counts as impossible, and as this in the
#: log loss.
LEAST = 1e-12
#: Scores of an outcome; `error_rate` is that of the most likely class.
SCORES = (
    "log_loss",
    "brier",
    "top_log_loss",
    "top_brier",
    "error_rate",
    "classwise_ece",
)


@dataclass(frozen=True, eq=False)
class Experiment:
    """One classifier on one data set; scores (n, classes) are logits."""

    name: str
    data_set: str
    val_logits: FloatArray
    val_labels: IntArray
    test_logits: FloatArray
    test_labels: IntArray

    @property
    def n_classes(self) -> int:
        return int(self.val_logits.shape[1])

    @property
    def groups(self) -> tuple[str, str]:
        """The task and the size of the calibration set, as the tables name them."""
        k = self.n_classes
        n = self.val_labels.size
        task = (
            "binary"
            if k == 2
            else "3 to 20 classes"
            if k <= 20
            else "more than 20 classes"
        )
        size = (
            "up to 500"
            if n <= 500
            else "501 to 2000"
            if n <= 2000
            else "more than 2000"
        )
        return task, f"{size} examples to fit on"


@dataclass(frozen=True)
class Outcome:
    """A method's test scores on one experiment, and the CPU seconds of its fit.

    Where a method of another library `failed`, the scores are those of no calibration.
    """

    experiment: str
    data_set: str
    task: str
    size: str
    method: str
    log_loss: float
    brier: float
    top_log_loss: float
    top_brier: float
    error_rate: float
    impossible: int
    seconds: float
    classwise_ece: float = float("nan")
    failed: bool = False


def read_experiments(folder: Path) -> Iterator[Experiment]:
    """The experiments of a .npz file, or of all those of a folder in the order of their
    names.

    A file holds `val_logits`, `val_labels`, `test_logits`, `test_labels` (or
    `..._probs`), or many experiments under `DATASET__MODEL/val_probs` and so on. A file
    with `test_*` alone is cut in two at random.
    """
    paths = [folder] if folder.is_file() else sorted(folder.glob("*.npz"))
    if not paths:
        raise FileNotFoundError(f"{folder} has no .npz file.")
    for path in paths:
        with np.load(path, allow_pickle=False) as stored:
            names = sorted({key.rpartition("/")[0] for key in stored.files})
            for name in names:
                prefix = f"{name}/" if name else ""
                arrays = {
                    key.removeprefix(prefix): stored[key]
                    for key in stored.files
                    if key.startswith(prefix) and "/" not in key.removeprefix(prefix)
                }
                experiment = _experiment(name or path.stem, arrays)
                if experiment is not None:
                    yield experiment


def choose_experiments(
    folder: Path, half: str = "all", limit: int | None = None, draws: int = 1
) -> list[Experiment]:
    """Experiments of a folder: of all data sets or of every second one, fitted on some
    examples.

    With several `draws`, an experiment is one classifier and one random choice of its
    examples.
    """
    experiments = list(read_experiments(folder))
    names = sorted({experiment.data_set for experiment in experiments})
    data_sets = set({"all": names, "first": names[::2], "second": names[1::2]}[half])
    chosen = [
        experiment for experiment in experiments if experiment.data_set in data_sets
    ]
    return [
        _shorten(experiment, limit, draw)
        for draw in range(draws)
        for experiment in chosen
    ]


def _shorten(experiment: Experiment, limit: int | None, draw: int) -> Experiment:
    if limit is None or experiment.val_labels.size <= limit:
        return experiment
    rows = np.sort(
        np.random.default_rng(draw).permutation(experiment.val_labels.size)[:limit]
    )
    return replace(
        experiment,
        name=f"{experiment.name}, draw {draw}" if draw else experiment.name,
        val_logits=experiment.val_logits[rows],
        val_labels=experiment.val_labels[rows],
    )


def _experiment(name: str, arrays: dict[str, Any]) -> Experiment | None:
    scores = {subset: _as_logits(arrays, subset) for subset in ("val", "test")}
    labels = {subset: arrays.get(f"{subset}_labels") for subset in ("val", "test")}
    if scores["test"] is None or labels["test"] is None:
        return None
    if scores["val"] is None or labels["val"] is None:
        order = np.random.default_rng(0).permutation(labels["test"].size)
        half = order.size // 2
        cut = {"val": order[:half], "test": order[half:]}
        scores = {subset: scores["test"][rows] for subset, rows in cut.items()}
        labels = {subset: labels["test"][rows] for subset, rows in cut.items()}
    rows = [np.asarray(labels[subset], np.int64) for subset in ("val", "test")]
    return Experiment(
        name, name.split("__")[0], scores["val"], rows[0], scores["test"], rows[1]
    )


def _as_logits(arrays: dict[str, Any], part: str) -> Any:
    if f"{part}_logits" in arrays:
        return np.asarray(arrays[f"{part}_logits"], np.float64)
    if f"{part}_probs" in arrays:
        with warnings.catch_warnings():  # zeros are kept as the classifier gave them
            warnings.simplefilter("ignore", FitDataWarning)
            return from_probabilities(np.asarray(arrays[f"{part}_probs"], np.float64))
    return None


def run_study(
    experiments: Iterable[Experiment],
    methods: list[str],
    cache: Path,
    report: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Outcomes of all methods on all experiments; those in the cache folder are not
    run again.
    """
    cache.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    for experiment in experiments:
        suitable = [method for method in methods if _suits(method, experiment)]
        outcomes += [_cached(experiment, method, cache) for method in suitable]
        report(experiment.name)
    return outcomes


def _suits(method: str, experiment: Experiment) -> bool:
    if method in PEERS:
        return not PEERS[method].binary_only or experiment.n_classes == 2
    return method in [*method_names(experiment.n_classes), "auto"]


def _cached(experiment: Experiment, method: str, cache: Path) -> Outcome:
    name = (
        f"{experiment.name}-{method.replace(':', '_')}-{_key(experiment, method)}.json"
    )
    path = cache / name
    try:
        return Outcome(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        outcome = judge(experiment, method)
        write_text_atomically(path, json.dumps(asdict(outcome)))
        return outcome


def _key(experiment: Experiment, method: str) -> str:
    """A digest of the data and of the code that is executed."""
    home = "hokical_paper.study.peers"
    if method not in PEERS:
        home = type(make(method)).__module__
    digest = hashlib.sha256(code_digest("hokical_paper.study.outcomes", home).encode())
    for array in (
        experiment.val_logits,
        experiment.test_logits,
        experiment.test_labels,
    ):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def judge(experiment: Experiment, method: str) -> Outcome:
    """Fit one method on one experiment, and score it on the test set."""
    failed = False
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            proba, seconds = _apply(experiment, method)
        except Exception:
            if method not in PEERS:
                raise
            failed = True  # most need an example of every class
            proba, seconds = _apply(experiment, "uncalibrated")
    rows = np.arange(experiment.test_labels.size)
    labels = experiment.test_labels
    of_truth = proba[rows, labels]
    squares = np.sum(proba**2, axis=1) - 2.0 * of_truth + 1.0
    predicted = experiment.test_logits.argmax(axis=1)
    confidence = proba[rows, predicted]
    right = predicted == labels
    top = np.clip(np.where(right, confidence, 1.0 - confidence), LEAST, 1.0)
    return Outcome(
        experiment.name,
        experiment.data_set,
        *experiment.groups,
        method,
        log_loss=float(-np.log(np.clip(of_truth, LEAST, 1.0)).mean()),
        brier=float(squares.mean()),
        top_log_loss=float(-np.log(top).mean()),
        top_brier=float(np.mean((confidence - right) ** 2)),
        error_rate=float(np.mean(proba.argmax(axis=1) != labels)),
        impossible=int(np.count_nonzero(of_truth < LEAST)),
        seconds=seconds,
        classwise_ece=classwise_ece(proba, labels),
        failed=failed,
    )


def _apply(experiment: Experiment, method: str) -> tuple[FloatArray, float]:
    """Probabilities of the test rows, and the seconds of the fit."""
    if method in PEERS:
        peer = PEERS[method]
        val_input, new = (
            peer.to_input(z) for z in (experiment.val_logits, experiment.test_logits)
        )
        start = time.process_time()
        model = peer.fit(val_input, experiment.val_labels)
        seconds = time.process_time() - start
        proba = np.asarray(peer.proba(model, new), np.float64)
        if proba.shape != experiment.test_logits.shape or not np.isfinite(proba).all():
            raise ValueError(f"{method} gave no probabilities of all classes.")
        return np.clip(proba, 0.0, 1.0), seconds
    start = time.process_time()
    calibrator = make(method).fit(experiment.val_logits, experiment.val_labels)
    seconds = time.process_time() - start
    return calibrator.predict_proba(experiment.test_logits), seconds
