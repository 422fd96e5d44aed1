"""`hokical apply`: labels and confidence for new data.

`hokical export`: a calibrator as an ONNX file, alone or behind a classifier.
"""

from __future__ import annotations

import os
import warnings
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import hokical
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.options import text
from hokical.cli.reading import UNLABELLED, Source, read_calibrator, reads, warn_of_rows_of_fit
from hokical.io.reading import list_files
from hokical.io.tables import TABLES, check_output

#: For which examples the coverage is guaranteed; see `Calibrator.predict_set`.
By = StrEnum("By", ["all", "class", "group", "label", "new group"])


@reads(*UNLABELLED)
def apply(
    calibrator: opt.CalibratorFile,
    data: opt.NewData,
    output: Annotated[Path, opt.Output],
    proba: Annotated[bool, opt.Proba] = False,
    keep: Annotated[
        str | None,
        opt.text("Columns to copy: a,b, or all, or none.", metavar="COLUMNS", show_default="id"),
    ] = None,
    risk: Annotated[
        float | None,
        opt.text("Also write `accepted`: labels with at most this error rate, e.g. 0.05."),
    ] = None,
    interval: Annotated[
        bool, opt.text("Also write `probability` of the event, `low` and `high`.", "--interval")
    ] = False,
    positive: opt.Positive = None,
    coverage: opt.Coverage = None,
    by: Annotated[
        By,
        opt.text(
            "Coverage for all examples, each class, label or group, or a 'new group' (--risk too).",
            metavar="WORD",
        ),
    ] = By.all,
    delta: Annotated[float | None, opt.Delta] = None,
    adapt: Annotated[
        bool, opt.text("First adapt to the class frequencies of these rows.", "--adapt")
    ] = False,
    as_json: opt.Json = False,
    *,
    given: Source,
) -> None:
    """Write the predicted labels and their confidence for new data.

    The output, a .csv, .csv.gz, .parquet or .npz, has one row per input row:
    columns to keep, label, confidence. Labels are names where those of the
    classes are known. With --missing drop, rows without a score stay, empty.

    --interval, after `certify` or of `venn_abers`, gives the probability of
    the event of two classes with its low and high end (95 %, or 1 - delta).

    --risk and --coverage are guaranteed by the examples of `certify`, or else
    of the fit. --delta is 0.1 with --risk; without it coverage is guaranteed
    on average.

    For a folder (or 'pattern*') of Parquet files, --output is a folder, which
    gets a file of the same name for each of them.
    """
    new = {"by": str(by)} if by == "new group" else {}
    if coverage is None and by is not By.all and not (new and risk is not None):
        raise ui.bad_option("--by", "only goes with --coverage, and 'new group' with --risk too.")
    if delta is not None and risk is None and coverage is None and not interval:
        raise ui.bad_option("--delta", "only goes with --risk, --coverage or --interval.")
    if adapt:
        ui.refuse("does not go with --adapt.", risk=risk)
    own: dict[str, Any] = {} if delta is None else {"delta": delta}
    risks = None if risk is None else {"risk": risk, **own, **new}
    sets = None if coverage is None else {"coverage": coverage, "by": str(by), **own}
    fitted = read_calibrator(calibrator)
    if fitted.name == "confidence":
        why = "needs a calibrator of logits; this one is of confidences."
        ui.refuse(why, proba=proba, coverage=coverage, adapt=adapt, interval=interval)
    event: Any = None
    if interval or positive is not None:
        event = ui.event_index(positive, fitted.class_names, fitted.n_classes_)
        if event is None or not interval:
            what = "--interval" if interval else "--positive"
            raise ui.bad_option(what, "is for two classes, and --positive goes with --interval.")
    given = given.at(data, keep=keep)
    files = _pair_files(given, output)
    done = []
    for source, target in files:
        rows = given.at(source).read(fitted, "none")
        if risks or sets:
            warn_of_rows_of_fit(fitted, rows, source)
        with ui.spinner(f"Applying {fitted.name}"):
            method = _adapt(fitted, rows) if adapt else fitted
            found, facts = _predict(method, rows, proba, risks, sets)
            if event is not None:
                found |= _event_interval(method, rows, event, 0.05 if delta is None else delta)
        columns = _columns(found, rows, target.suffix == ".npz")
        if marked := hokical.io.write_table(target, columns):
            ui.say(
                f"{marked:,} cells of text that a spreadsheet would run begin with ' in {target}."
            )
        done.append(found)
    facts |= {"arrays": list(columns)} | ({"files": len(done)} if given.in_parts else {})
    for name, share in (("confidence", "mean_confidence"), ("accepted", "accepted_share")):
        if name in found:
            values = np.concatenate([each[name] for each in done])
            facts |= {"examples": values.size, share: float(values.mean()) if values.size else None}
    _show_predictions({"method": fitted.name, "output": str(output)} | facts, as_json)


def _pair_files(given: Source, output: Path) -> list[tuple[Path, Path]]:
    """Each file to read, and the file to write."""
    if not given.in_parts:
        check_output(output, suffix=(".npz", *TABLES))
        return [(given.path, output)]
    files = list_files(given.path)
    base = Path(os.path.commonpath([file.parent.resolve() for file in files]))
    place = output.resolve()
    if output.is_file() or output.suffix:
        raise ui.bad_option("--output", f"must be a folder where the input is one; got {output}.")
    if place == base or base in place.parents:
        raise hokical.io.DataFileError(
            output, f"results would mix with the input files in {base}.", "Choose another folder."
        )
    pairs = [(file, output / file.resolve().relative_to(base)) for file in files]
    for _, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
    return pairs


def _adapt(fitted: hokical.Calibrator, rows: Rows) -> Any:
    """The calibrator for the class frequencies of the rows, unless something else has changed."""
    with ui.check_options("--adapt"):
        found = fitted.estimate_shift(fitted._attach_groups(rows.scores, rows.groups))
        if not found.holds:
            raise ValueError(f"{found.verdict}. Apply the calibrator as it is, or fit it again.")
        ui.say(str(found))
        return found.adapt()


def _predict(
    fitted: Any, rows: Rows, proba: bool, risk: dict[str, Any] | None, sets: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Labels, confidence and what else is asked for; the guarantees in words.

    `risk` and `sets` are the options of `predict_or_abstain` and `predict_set`, or None.
    """
    scores, own, facts = rows.scores, {"groups": rows.groups}, dict[str, Any]()
    if rows.kind == "confidence":
        found = {"confidence": fitted.predict(scores, rows.groups)}
    else:
        with ui.check_options("--groups"):
            found = {"labels": fitted.predict(scores, **own)}
            found["confidence"] = fitted.predict_confidence(scores, **own)
    with ui.check_options("--risk / --coverage / --delta"):
        if risk:
            chosen = fitted.predict_or_abstain(scores, **risk, **own)
            found["accepted"], facts["guarantee"] = chosen.accepted, chosen.guarantee
        if sets:
            if sets["by"] == "group" and rows.groups is None:
                raise ValueError("--by group needs the column of the groups: --groups COLUMN.")
            held = fitted.predict_set(scores, **sets, **own)
            found |= {"members": held.members, "set_size": held.sizes}
            facts["sets"] = held.guarantee
    if proba:
        vectors = found["probabilities"] = fitted.predict_proba(scores, **own)
        if others := int((vectors.argmax(axis=1) != found["labels"]).sum()):
            ui.say(
                f"In {others:,} of {len(vectors):,} rows another class is more likely than the "
                "label: the calibrator keeps the classifier's own labels."
            )
    return found, facts


def _event_interval(fitted: Any, rows: Rows, event: int, delta: float) -> dict[str, Any]:
    """The probability of the event and its ends."""
    own: dict[str, Any] = {"groups": rows.groups}
    with ui.check_options("--interval"):
        ends = fitted.predict_interval(rows.scores, delta=delta, label=event, **own)
    probability = fitted.predict_proba(rows.scores, **own)[:, event]
    return {"probability": probability, "low": ends[:, 0], "high": ends[:, 1]}


def _columns(results: dict[str, Any], rows: Rows, as_arrays: bool) -> dict[str, Any]:
    """Kept columns, then results; in a table labels by name, and a column per probability."""
    added = dict(results)
    if not as_arrays and "labels" in added:
        names = np.array(rows.classes or range(rows.n_classes))
        added = {"label": names[added.pop("labels")]} | added
        if (members := added.pop("members", None)) is not None:
            texts = np.array(["|".join(map(str, names[row])) for row in members])
            added |= {"set": texts, "set_size": added.pop("set_size")}
        vectors = added.pop("probabilities", np.empty((0, 0)))
        added |= {f"probability_{names[k]}": column for k, column in enumerate(vectors.T)}
    added = {name: rows.fill(column) for name, column in added.items()}
    kept = {(f"input_{n}" if n in added else n): column for n, column in rows.kept.items()}
    for name in set(rows.kept) - set(kept):
        ui.say(f"The column `{name}` of the input is called `input_{name}`, beside the new one.")
    return kept | added


def _show_predictions(values: dict[str, Any], as_json: bool) -> None:
    """Where the results are, and what is guaranteed about them."""
    names = values["arrays"]
    shown = ", ".join([*names[:6], *([f"... {len(names)} columns"] if len(names) > 6 else [])])
    place = f"{values['files']} files in " if "files" in values else ""
    mean, accepted = values["mean_confidence"], values.get("accepted_share")
    lines = {
        "method": values["method"],
        "examples": f"{values['examples']:,}",
        "mean confidence": ui.DASH if mean is None else f"{mean:.1%}",
        "written to": f"{place}{values['output']} ({shown})",
        "accepted": None if accepted is None else f"{accepted:.1%}",
        "guarantee": values.get("guarantee"),
        "sets": values.get("sets"),
    }
    ui.show_result(values, lines, as_json)


#: What the library's words are called here.
_OPTIONS = {
    '`scores="probabilities"`': "--probabilities",
    "`output`": "--scores",
    "`calibrator`": "the calibrator",
}


def export(
    calibrator: opt.CalibratorFile,
    output: Annotated[Path, opt.Output],
    attach: Annotated[Path | None, text("ONNX classifier to put the calibrator behind.")] = None,
    scores: Annotated[str | None, text("With --attach: its tensor of scores, if unclear.")] = None,
    probabilities: opt.Probabilities = None,
    opset: Annotated[int | None, text("Version of the operators.", show_default="17")] = None,
    float32: Annotated[
        bool, text("Compute in float32, for runtimes without float64.", "--float32")
    ] = False,
    proba: Annotated[bool | None, opt.Proba] = None,
    check: Annotated[bool, text("Run the result with onnxruntime and compare with Python.")] = True,
    as_json: opt.Json = False,
) -> None:
    """Write a calibrator as an ONNX model of plain operators.

    Alone it takes `logits`; with --attach it takes what the classifier takes,
    whose scores are logits unless --probabilities says otherwise. It gives
    `labels`, `confidence` and, where they cost little or with --proba,
    `probabilities`. Calibrators of confidences give `probability`.

    A model that cannot be run here is still written, and `check` says why it
    was not run.
    """
    check_output(output, suffix=".onnx")
    fitted = read_calibrator(calibrator, for_rows=False)
    options: dict[str, Any] = {"precision": "float32" if float32 else "float64"}
    options |= {"probabilities": proba}
    if attach is not None and fitted.name in ("confidence", "multilabel"):
        raise ui.bad_option("--attach", f"takes calibrators of logits; this one is {fitted.name}.")
    with ui.spinner(f"Exporting {fitted.name}"):
        if attach is None:
            ui.refuse("only goes with --attach.", scores=scores, probabilities=probabilities)
            options |= {} if opset is None else {"opset": opset}
            if fitted.metadata_.get("scores") == "probabilities":
                ui.say("The fit had probabilities: as `logits` the model takes their logarithms.")
            with ui.check_options():
                model = hokical.integrations.onnx.export(fitted, output, **options)
        else:
            ui.refuse("does not go with --attach: the classifier has its own.", opset=opset)
            kind = "probabilities" if probabilities else "logits"
            model = _attach(attach, fitted, output, options | {"output": scores, "scores": kind})
        checked = _check(model, fitted) if check else {}
    _show_export(fitted.name, model, output, checked, as_json)


def _attach(model: Path, fitted: hokical.Calibrator, output: Path, options: dict[str, Any]) -> Any:
    if not model.is_file():
        raise hokical.io.DataFileError(model, "expected an ONNX model; there is no such file.")
    with ui.check_options("--attach", _OPTIONS), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both = hokical.integrations.onnx.attach(model, fitted, output, **options)
    for warning in caught:
        ui.warn(ui.in_options(str(warning.message), _OPTIONS))
    return both


def _check(model: Any, fitted: Any) -> dict[str, Any]:
    """How the model compares with Python, or why it was not run."""
    onnx = hokical.integrations.onnx
    try:
        found = onnx.check(model, fitted)
    except ImportError:
        return {"check": "not run: onnxruntime is not installed"}
    except onnx.NotRunnable as reason:
        return {"check": f"not run: {reason}"}
    verdict = (
        f"largest difference from Python {found.largest_difference:.1e}, "
        f"{found.labels_differing} labels differ, on {found.n_rows} rows"
    )
    if not found.agrees:
        ui.say(f"The model differs from Python: {verdict}.")
    return {
        "check": verdict,
        "largest_difference": found.largest_difference,
        "labels_differing": found.labels_differing,
    }


def _show_export(
    name: str, model: Any, output: Path, checked: dict[str, Any], as_json: bool
) -> None:
    facts = {item.key.removeprefix("hokical_"): item.value for item in model.metadata_props}
    describe = import_module("hokical.integrations.onnx.models").describe_tensor
    size, classes = output.stat().st_size, facts.get("n_classes")
    values = {"method": name, "opset": facts["opset"], "precision": facts["precision"]}
    values |= {"output": str(output), "bytes": size, "classes": classes and int(classes)}
    values |= {"inputs": [*map(describe, model.graph.input)]}
    values |= {"outputs": [*map(describe, model.graph.output)]}
    lines = {
        "method": values["method"] + (f", {classes} classes" if classes else ""),
        "inputs": ", ".join(values["inputs"]),
        "outputs": ", ".join(values["outputs"]),
        "opset": f"{values['opset']}, computed in {values['precision']}",
        "written to": f"{output} ({size:,} bytes)",
        "check": checked.get("check"),
    }
    ui.show_result(values | {"opset": int(values["opset"])} | checked, lines, as_json)
