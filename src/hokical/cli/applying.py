"""`hokical apply`: labels and confidence for new data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hokical
from hokical._core.arrays import AnyArray, BoolArray, FloatArray
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.options import UNLABELLED, Source, command, read_calibrator
from hokical.io.tables import TABLES, check_output, list_files

#: Decimals of probabilities in tables of text.
_DECIMALS = 6
#: Significant digits of a probability, or of its distance to 1, if that takes more.
_DIGITS = 4
#: Nearer to 0 or 1 than this, numbers are written whole.
_MIN_DISTANCE = 1e-12
#: Columns whose names are listed after `apply`.
_MAX_LISTED = 6


#: What --by can ask of --risk.
_BY_WITH_RISK = (opt.Coverages.group, opt.Coverages["new group"])


@dataclass(frozen=True)
class Wanted:
    """What is written beside label and confidence.

    `risk`, `sets` and `interval` are the options of `predict_or_abstain`,
    `predict_set` and `predict_interval`; None leaves these out.
    """

    proba: bool = False
    adapt: bool = False
    risk: Mapping[str, Any] | None = None
    sets: Mapping[str, Any] | None = None
    interval: Mapping[str, Any] | None = None

    @property
    def guaranteed(self) -> bool:
        """Whether anything is guaranteed by examples of the fit or of `certify`."""
        return self.risk is not None or self.sets is not None


@dataclass
class Predictions:
    """Columns of results by name, and the guarantees in words."""

    columns: dict[str, AnyArray]
    guarantees: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WrittenFile:
    """What was written to a file: names of columns, and what is summed up."""

    columns: tuple[str, ...]
    confidence: FloatArray
    accepted: BoolArray | None
    guarantees: Mapping[str, str]


@command(
    *UNLABELLED,
    "ensemble",
    data=opt.argument("FILE...", "New logits; labels are not needed."),
)
def apply(
    calibrator: Path,
    data: list[Path],
    output: Path,
    proba: bool = False,
    keep: str | None = None,
    risk: float | None = None,
    interval: bool = False,
    positive: str | None = None,
    coverage: float | None = None,
    by: opt.Coverages = opt.Coverages.all,
    delta: float | None = None,
    adapt: bool = False,
    *,
    source_options: Source,
) -> ui.Result:
    """Write the predicted labels and their confidence for new data.

    The output, a .csv, .csv.gz, .parquet, .jsonl or .npz, has one row per
    input row: columns to keep, label, confidence. Labels are names where those
    of the classes are known. With --missing drop, rows without a score stay,
    empty.

    --interval, after `certify` or of `venn_abers`, gives the probability of
    the event of two classes with its low and high end (95 %, or 1 - delta).

    --risk and --coverage are guaranteed by the examples of `certify`, or else
    of the fit. --delta is 0.1 with --risk; without it coverage is guaranteed
    on average.

    For a folder (or 'pattern*') of Parquet files, --output is a folder, which
    gets a file of the same name for each of them.

    Example: hokical apply cal.json new.npz -o predictions.csv
    """
    _check_combination(risk, coverage, by, delta, interval)
    if adapt:
        ui.refuse("does not go with --adapt.", risk=risk)
    fitted = read_calibrator(calibrator, beside=data[0])
    own_delta = {} if delta is None else {"delta": delta}
    if fitted.name == "confidence":
        ui.refuse(
            "needs a calibrator of logits; this one is of confidences.",
            proba=proba,
            coverage=coverage,
            adapt=adapt,
            interval=interval,
            positive=positive,
        )
    wanted = Wanted(
        proba=proba,
        adapt=adapt,
        risk=_risk_options(risk, by, own_delta),
        sets=_set_options(coverage, by, own_delta),
        interval=_interval_options(fitted, interval, positive, own_delta),
    )
    files = source_options.at_files(data, fitted)
    source = files.at(files.path, keep=keep)
    written = [
        _apply_to_file(fitted, source.at(file), target, wanted)
        for file, target in _pair_files(source, output)
    ]
    return _summarize(fitted.name, output, written, in_parts=source.in_parts)


def _check_combination(
    risk: float | None,
    coverage: float | None,
    by: opt.Coverages,
    delta: float | None,
    interval: bool,
) -> None:
    """Refuse options without the option that they are for."""
    for_risk = risk is not None and by in _BY_WITH_RISK
    if coverage is None and by is not opt.Coverages.all and not for_risk:
        raise ui.bad_option(
            "--by",
            "only goes with --coverage, and 'group' and 'new group' with --risk too.",
        )
    if delta is not None and risk is None and coverage is None and not interval:
        raise ui.bad_option(
            "--delta", "only goes with --risk, --coverage or --interval."
        )


def _risk_options(
    risk: float | None, by: opt.Coverages, own_delta: dict[str, float]
) -> dict[str, Any] | None:
    """Options of selective prediction, if that is wanted."""
    if risk is None:
        return None
    apart = {"by": str(by)} if by in _BY_WITH_RISK else {}
    return {"risk": risk, **own_delta, **apart}


def _set_options(
    coverage: float | None, by: opt.Coverages, own_delta: dict[str, float]
) -> dict[str, Any] | None:
    """Options of prediction sets, if these are wanted."""
    if coverage is None:
        return None
    return {"coverage": coverage, "by": str(by), **own_delta}


def _interval_options(
    fitted: Any, interval: bool, positive: str | None, own_delta: dict[str, float]
) -> dict[str, Any] | None:
    """Options of the probability interval of the event, if that is wanted."""
    if not interval and positive is None:
        return None
    event = opt.event_index(positive, fitted.class_names, fitted.n_classes_)
    if event is None or not interval:
        raise ui.bad_option(
            "--interval" if interval else "--positive",
            "is for two classes, and --positive goes with --interval.",
        )
    return {"label": event, **own_delta}


def _pair_files(source: Source, output: Path) -> list[tuple[Path, Path]]:
    """Each file to read, and the file to write."""
    if not source.in_parts:
        check_output(output, suffix=(".npz", *TABLES))
        return [(source.path, output)]
    files = list_files(source.path)
    base = Path(os.path.commonpath([file.parent.resolve() for file in files]))
    if output.is_file() or output.suffix:
        raise ui.bad_option(
            "--output", f"must be a folder where the input is one; got {output}."
        )
    if base in (output.resolve(), *output.resolve().parents):
        raise hokical.io.DataFileError(
            output,
            f"results would mix with the input files in {base}.",
            "Choose another folder.",
        )
    pairs = [(file, output / file.resolve().relative_to(base)) for file in files]
    for _, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
    return pairs


def _apply_to_file(
    fitted: Any, source: Source, target: Path, wanted: Wanted
) -> WrittenFile:
    """Predict the rows of a file and write the results."""
    rows = source.read(fitted, "none")
    if wanted.guaranteed:
        source.check_new(fitted, rows)
    with ui.spinner(f"Applying {fitted.name}"):
        calibrator = _adapt(fitted, rows) if wanted.adapt else fitted
        predictions = _predict(calibrator, rows, wanted)
    columns = _table_columns(predictions.columns, rows, target)
    n_marked = hokical.io.write_table(target, columns)
    if n_marked:
        ui.say(
            f"{n_marked:,} cells of text that a spreadsheet would run begin with ' in "
            f"{target}."
        )
    return WrittenFile(
        columns=tuple(columns),
        confidence=predictions.columns["confidence"],
        accepted=predictions.columns.get("accepted"),
        guarantees=predictions.guarantees,
    )


def _adapt(fitted: Any, rows: Rows) -> Any:
    """The calibrator for the class frequencies of these rows."""
    with ui.check_options("--adapt"):
        shift = fitted.estimate_shift(rows.scores, groups=rows.groups)
        if not shift.holds:
            raise ValueError(
                f"{shift.verdict}. Apply the calibrator as it is, or fit it again."
            )
        ui.say(str(shift))
        return shift.adapt()


def _predict(fitted: Any, rows: Rows, wanted: Wanted) -> Predictions:
    """Labels, confidence and what else is wanted."""
    scores = rows.scores
    groups = rows.groups
    if rows.kind == "confidence":
        columns = {"confidence": fitted.predict(scores, groups=groups)}
    else:
        has_groups = groups is not None or fitted.needed_groups is not None
        with ui.check_options("--groups" if has_groups else None):
            columns = {
                "labels": fitted.predict(scores, groups=groups),
                "confidence": fitted.predict_confidence(scores, groups=groups),
            }
    predictions = Predictions(columns)
    with ui.check_options("--risk / --coverage / --delta"):
        _add_guaranteed(predictions, fitted, rows, wanted)
    if wanted.proba:
        probabilities = fitted.predict_proba(scores, groups=groups)
        columns["probabilities"] = probabilities
        _say_contradictions(probabilities, columns["labels"])
    if wanted.interval is not None:
        with ui.check_options("--interval"):
            low_high = fitted.predict_interval(scores, **wanted.interval, groups=groups)
        probabilities = fitted.predict_proba(scores, groups=groups)
        columns["probability"] = probabilities[:, wanted.interval["label"]]
        columns["low"] = low_high[:, 0]
        columns["high"] = low_high[:, 1]
    return predictions


def _add_guaranteed(
    predictions: Predictions, fitted: Any, rows: Rows, wanted: Wanted
) -> None:
    """Which labels are accepted, and prediction sets, with their guarantees."""
    asked = [options.get("by") for options in (wanted.risk, wanted.sets) if options]
    if "group" in asked and rows.groups is None:
        raise ValueError("--by group needs the column of the groups: --groups COLUMN.")
    if wanted.risk is not None:
        selective = fitted.predict_or_abstain(
            rows.scores, **wanted.risk, groups=rows.groups
        )
        predictions.columns["accepted"] = selective.accepted
        predictions.guarantees["guarantee"] = selective.guarantee
    if wanted.sets is not None:
        sets = fitted.predict_set(rows.scores, **wanted.sets, groups=rows.groups)
        predictions.columns |= {"members": sets.members, "set_size": sets.sizes}
        predictions.guarantees["sets"] = sets.guarantee


def _say_contradictions(probabilities: FloatArray, labels: AnyArray) -> None:
    """Say in how many rows the label is not the most likely class."""
    n_different = int((probabilities.argmax(axis=1) != labels).sum())
    if n_different:
        ui.say(
            f"In {n_different:,} of {len(probabilities):,} rows another class is more "
            "likely than the label: the calibrator keeps the classifier's own labels."
        )


def _table_columns(
    results: dict[str, AnyArray], rows: Rows, target: Path
) -> dict[str, Any]:
    """Columns of the input, then results; in a table labels by name, and a column per
    probability.
    """
    added = dict(results)
    if target.suffix != ".npz" and "labels" in added:
        added = _name_labels(added, rows)
    if target.name.endswith((".csv", ".csv.gz")):
        added = {
            name: round_probabilities(column) if column.dtype.kind == "f" else column
            for name, column in added.items()
        }
    added = {name: rows.fill(column) for name, column in added.items()}
    columns = {}
    for name, column in rows.kept.items():
        if name in added:
            ui.say(
                f"The column `{name}` of the input is called `input_{name}`, beside "
                "the new one."
            )
        columns[f"input_{name}" if name in added else name] = column
    return columns | added


def _name_labels(results: dict[str, AnyArray], rows: Rows) -> dict[str, AnyArray]:
    """The same with names of classes: a label, a set as one text, and a column for
    each probability.
    """
    names = np.array(rows.classes or range(rows.n_classes))
    unnamed = dict(results)
    named = {"label": names[unnamed.pop("labels")]}
    members = unnamed.pop("members", None)
    set_size = unnamed.pop("set_size", None)
    probabilities = unnamed.pop("probabilities", np.empty((0, 0)))
    named |= unnamed
    if members is not None and set_size is not None:
        texts = ["|".join(map(str, names[row])) for row in members]
        named |= {"set": np.array(texts), "set_size": set_size}
    for name, column in zip(names, probabilities.T, strict=False):
        named[f"probability_{name}"] = column
    return named


def round_probabilities(values: FloatArray) -> FloatArray:
    """Probabilities with six decimals, or with four digits of a smaller distance to 0
    or 1.

    >>> round_probabilities(np.array([2 / 3, 1 - 1.23456e-7, 0.0, 1.0])).tolist()
    [0.666667, 0.9999998765, 0.0, 1.0]
    """
    values = np.asarray(values, np.float64)
    rounded = values.copy()
    distance = np.minimum(values, 1.0 - values)
    inside = distance >= _MIN_DISTANCE
    decimals = np.full(values.shape, _DECIMALS)
    digits = _DIGITS - 1 - np.floor(np.log10(distance[inside])).astype(np.int64)
    decimals[inside] = np.maximum(digits, _DECIMALS)
    for n in np.unique(decimals[inside]):
        rows = inside & (decimals == n)
        rounded[rows] = np.round(values[rows], n)
    return rounded


def _summarize(
    method: str, output: Path, written: list[WrittenFile], *, in_parts: bool
) -> ui.Result:
    """What was written, over all files."""
    last = written[-1]
    confidence = np.concatenate([file.confidence for file in written])
    mean = float(confidence.mean()) if confidence.size else None
    values: dict[str, Any] = {
        "method": method,
        "output": str(output),
        **last.guarantees,
        "arrays": list(last.columns),
        **({"files": len(written)} if in_parts else {}),
        "examples": confidence.size,
        "mean_confidence": mean,
    }
    share = None
    if last.accepted is not None:
        accepted = np.concatenate(
            [file.accepted for file in written if file.accepted is not None]
        )
        share = float(accepted.mean()) if accepted.size else None
        values["accepted_share"] = share
    listed = list(last.columns)
    if len(listed) > _MAX_LISTED:
        listed = [*listed[:_MAX_LISTED], f"... {len(last.columns)} columns"]
    target = f"{len(written)} files in {output}" if in_parts else f"{output}"
    lines = {
        "method": method,
        "examples": f"{confidence.size:,}",
        "mean confidence": ui.DASH if mean is None else f"{mean:.1%}",
        "written to": f"{target} ({', '.join(listed)})",
        "accepted": None if share is None else f"{share:.1%}",
        "guarantee": last.guarantees.get("guarantee"),
        "sets": last.guarantees.get("sets"),
    }
    return ui.Result(values, lines)
