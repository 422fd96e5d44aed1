"""The public benchmark CalArena (Berta, Holzmüller, Bach and Jordan, 2026,
arXiv:2605.30188).

A benchmark is an HDF5 file with groups `DATASET/MODEL` that hold `probas_cal`,
`labels_cal`, `probas_test` and `labels_test`; of two classes, probabilities of the
second, (n,). Its published results are tables `CALIBRATOR.csv` with `dataset`, `model`,
and `CALIBRATOR_brier`, `CALIBRATOR_logloss` and `CALIBRATOR_time`, a line for each
group.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hokical import from_probabilities
from hokical.io import DataFileError
from hokical_paper.study.outcomes import Experiment, Outcome

_ARRAYS = ("probas_cal", "labels_cal", "probas_test", "labels_test")


def read_benchmark(path: Path) -> list[Experiment]:
    """The experiments of a benchmark's file."""
    try:
        import h5py
    except ImportError as error:
        raise DataFileError(
            path, "HDF5 files need h5py.", "pip install './paper[calarena]' in a clone."
        ) from error
    try:
        with h5py.File(path, "r") as stored:
            experiments = list(experiments_of(stored))
    except OSError as error:
        raise DataFileError(path, f"expected an HDF5 file; {error}.") from error
    if not experiments:
        raise DataFileError(
            path, f"expected groups DATASET/MODEL with {', '.join(_ARRAYS)}."
        )
    return experiments


def experiments_of(stored: Mapping[str, Any]) -> Iterator[Experiment]:
    """The experiments of an open file, or of mappings like it."""
    for data_set, models in stored.items():
        for model, group in models.items():
            if all(name in group for name in _ARRAYS):
                p_cal, y_cal, p_test, y_test = (
                    np.asarray(group[name]) for name in _ARRAYS
                )
                labels = (np.asarray(y, np.int64).ravel() for y in (y_cal, y_test))
                val, test = zip(map(_as_logits, (p_cal, p_test)), labels, strict=True)
                yield Experiment(f"{data_set}__{model}", data_set, *val, *test)


def _as_logits(probas: Any) -> Any:
    wide = np.asarray(probas, np.float64)
    if wide.ndim == 1 or wide.shape[1] == 1:
        wide = np.stack([1.0 - wide.ravel(), wide.ravel()], axis=1)
    return from_probabilities(wide)


def read_published(folder: Path, experiments: Iterable[Experiment]) -> list[Outcome]:
    """The published outcomes on these experiments, of all tables in a folder."""
    by_name = {experiment.name: experiment for experiment in experiments}
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        raise DataFileError(
            folder, "expected a folder of tables CALIBRATOR.csv; found none."
        )
    outcomes = []
    for path in paths:
        with path.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                experiment = by_name.get(f"{row.get('dataset')}__{row.get('model')}")
                if experiment is not None:
                    outcomes.append(_outcome(path, row, experiment))
    return outcomes


def _outcome(path: Path, row: dict[str, str], experiment: Experiment) -> Outcome:
    try:
        log_loss, brier, seconds = (
            float(row[f"{path.stem}_{name}"]) for name in ("logloss", "brier", "time")
        )
    except (KeyError, ValueError) as error:
        raise DataFileError(
            path,
            f"expected numbers in {path.stem}_logloss, _brier and _time; got {error}.",
        ) from error
    about = (
        experiment.name,
        experiment.data_set,
        *experiment.groups,
        f"CalArena {path.stem}",
    )
    unknown = float("nan")
    return Outcome(*about, log_loss, brier, unknown, unknown, unknown, 0, seconds)
