"""Labels and confidence for many Parquet files: one output file per input file.

Every output is written as a whole or not at all, and says what it was made from. So the work can be
shared out in any way, repeated after a crash, or done twice: no row is lost or doubled.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hokical._core.files import replace_file
from hokical._core.logits import as_logits
from hokical.calibrators._calibrator import Calibrator
from hokical.io._columns import parquet_library
from hokical.io._errors import DataFileError, report_file
from hokical.io._identities import file_identity
from hokical.io._names import FileSplit
from hokical.io._opening import is_pattern, list_files, open_source
from hokical.streams._partition import report_rows

_STAMP = b"hokical"


@dataclass(frozen=True)
class PartJob:
    """An input file and where its results go."""

    input: Path
    output: Path


@dataclass(frozen=True)
class PartResult:
    """What a part came to: rows, their sum of confidence, and whether it was there already."""

    output: Path
    n_rows: int
    confidence: float
    already_done: bool


@dataclass(frozen=True)
class PartTask:
    """What to do with every part; can be sent to other machines."""

    calibrator: Calibrator
    proba: bool = False
    split: FileSplit = "test"
    #: Columns of these names, in this order, are the logits.
    classes: tuple[str, ...] = ()

    def __call__(self, job: PartJob) -> PartResult:
        stamp, about = self._stamp(job), _read_about(job.output)
        if about.get(_STAMP, b"").decode() == stamp:  # of an earlier run, from the same
            known = int(about[b"rows"]), float(about[b"confidence"])
            return PartResult(job.output, *known, already_done=True)
        rows, total = 0, 0.0
        make_writer = partial(parquet_library(job.output).ParquetWriter, write_page_checksum=True)
        arrow = import_module("pyarrow")
        fields = [("label", arrow.int64()), ("confidence", arrow.float64())]
        if self.proba:
            count = self.calibrator.n_classes_
            fields += [(f"probability_{k}", arrow.float64()) for k in range(count)]
        schema = arrow.schema(fields, metadata={_STAMP: stamp.encode()})
        with replace_file(job.output) as stream, make_writer(stream, schema) as writer:
            for batch in self._batches(job.input, schema):
                writer.write_batch(batch)
                rows += batch.num_rows
                total += float(np.sum(batch.column("confidence").to_numpy()))
            writer.add_key_value_metadata({"rows": str(rows), "confidence": repr(total)})
        return PartResult(job.output, rows, total, False)

    def _batches(self, file: Path, schema: Any) -> Iterator[Any]:
        arrow = import_module("pyarrow")
        first = 0
        for chunk in open_source(file, split=self.split, classes=self.classes).chunks():
            if not chunk.n_rows:
                continue
            with report_file(file), report_rows(first):
                logits = as_logits(chunk.logits, fitted_by=self.calibrator)
            answer = self.calibrator
            columns: list[Any] = [answer.predict(logits), answer.predict_confidence(logits)]
            columns += list(answer.predict_proba(logits).T) if self.proba else []
            yield arrow.record_batch([arrow.array(c) for c in columns], schema=schema)
            first += chunk.n_rows

    @cached_property
    def _calibrator_stamp(self) -> str:
        """Made once for all parts."""
        return self.calibrator._stamp()

    def _stamp(self, job: PartJob) -> str:
        """What the output depends on."""
        known = {
            "calibrator": self._calibrator_stamp,
            "input": file_identity(job.input),
            "proba": self.proba,
            "split": self.split,
        } | ({"classes": self.classes} if self.classes else {})
        return json.dumps(known, sort_keys=True)


def plan_parts(data: str | os.PathLike[str], folder: str | os.PathLike[str]) -> list[PartJob]:
    """One job per Parquet file of a folder or pattern; outputs keep the names, under `folder`.

    Paths are absolute, as a worker may have been started in another folder.
    """
    where, target = Path(os.path.abspath(data)), Path(os.path.abspath(folder))
    if where.is_dir():
        files, base = list_files(where), where
    elif is_pattern(where):
        files = list_files(where)
        base = Path(os.path.commonpath([file.parent for file in files]))
    else:
        files, base = [where], where.parent
        if not where.exists():
            raise DataFileError(where, "no such file or folder.", "Check the name.")
    if not files:
        raise DataFileError(where, "expected a folder with .parquet files; found none.")
    jobs = [PartJob(file, target / file.relative_to(base)) for file in files]
    _check_target(target, base, jobs, whole_folder=where.is_dir())
    return jobs


def _check_target(target: Path, base: Path, jobs: list[PartJob], *, whole_folder: bool) -> None:
    """Results must not replace input, nor be taken for input by the next run."""
    place, source = target.resolve(), base.resolve()
    inputs = {job.input.resolve() for job in jobs}
    if place.exists() and not place.is_dir():
        raise DataFileError(
            target, "is a file; results of several files go into a folder.", "Name a folder."
        )
    remedy = "Choose another output folder."
    if place == source:
        raise DataFileError(target, "is the input folder too.", remedy)
    read_again = whole_folder or any(place in file.parents for file in inputs)
    replaced = not inputs.isdisjoint(job.output.resolve() for job in jobs)
    if replaced or (read_again and source in place.parents):
        raise DataFileError(target, f"results would mix with the input files in {base}.", remedy)
    for job in jobs:
        _read_about(job.output)


def apply_parts(
    task: PartTask,
    jobs: Iterable[PartJob],
    run: Callable[[PartTask, list[PartJob]], Iterable[PartResult]] | None = None,
) -> list[PartResult]:
    """Do all jobs, one after the other, or as `run` shares them out."""
    todo = list(jobs)
    for job in todo:
        job.output.parent.mkdir(parents=True, exist_ok=True)
    return list(map(task, todo) if run is None else run(task, todo))


def _read_about(path: Path) -> dict[bytes, bytes]:
    """What a part says of itself; empty if it is not there. Files of others are left alone."""
    if not path.exists():
        return {}
    try:
        about: dict[bytes, bytes] = parquet_library(path).read_metadata(path).metadata or {}
    except (OSError, ValueError):
        about = {}
    if _STAMP not in about:
        raise DataFileError(
            path,
            "is not a result of `apply`, and would be lost.",
            "Delete it, or choose another output folder.",
        )
    return about
