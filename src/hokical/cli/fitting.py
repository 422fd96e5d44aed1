"""`hokical fit` and `certify`: fit a calibrator, note held-out examples, and save it.

`hokical apply`: labels and confidence for new data. `hokical export`: a calibrator as
an ONNX file, alone or behind a classifier. `hokical show`: what is inside a file that
`fit` saved. `hokical methods`: the calibration methods.
"""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hokical
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.options import (
    ANY,
    LABELLED,
    UNLABELLED,
    Source,
    command,
    read_calibrator,
)
from hokical.io.tables import TABLES, check_output, list_files, report_file

#: Arrays with more numbers are not listed.
_LONGEST = 1000
#: Of the lines of `hokical show`, those that are printed after a fit.
_SHOWN = ("method", "classes", "fitted on", "noise", "chosen", "label")


@command()
def show(calibrator: Path) -> ui.Result:
    """Show what is inside a calibrator."""
    return ui.Result(*describe(read_calibrator(calibrator, for_rows=False)))


def describe(fitted: Any) -> tuple[dict[str, Any], dict[str, str | None]]:
    """What is inside a loaded calibrator as values, and in words."""
    known = dict(fitted.metadata_)
    n_classes = getattr(fitted, "n_classes_", None)
    of_logits = isinstance(fitted, hokical.Calibrator)
    counts = fitted.predictor_.fit_record.label_scores if of_logits else None
    if counts is not None:
        n = counts.total
        wrong = int(counts.wrong.sum())
        known |= {"examples": n, "accuracy": 1.0 - wrong / n}
    names = list(getattr(fitted, "class_names", ())) or known.get("classes")
    n = known.get("examples")
    right = known.get("accuracy")
    values = {"method": fitted.name, "n_classes": n_classes, "classes": names}
    values |= {name: known.get(name) for name in ("scores", "examples", "accuracy")}
    values["reason"] = getattr(fitted, "reason_", None)
    listed = f": {', '.join(names[:6])}{', ...' * (len(names) > 6)}" if names else ""
    share = "" if right is None else f", accuracy {right:.1%} before calibration"
    lines: dict[str, str | None] = {"method": fitted.name, "scores": values["scores"]}
    lines["classes"] = None if n_classes is None else f"{n_classes}{listed}"
    lines["fitted on"] = None if n is None else f"{n:,} examples{share}"
    lines["chosen"] = values["reason"]
    if not isinstance(fitted, hokical.Calibrator):
        certified = {"certified": "no" if fitted.held_out_ is None else "yes"}
        return values | certified, lines | certified
    rule = fitted.rule_
    try:  # that of `apply --risk` at its default values, or why there is none
        options = hokical.guarantees.scores.AbstentionOptions(risk=0.05, delta=0.1)
        proven = fitted.predictor_.abstention_thresholds(options)
        none = np.zeros(0)
        found = hokical.guarantees.SelectivePrediction.of(proven, none, none, none)
        facts = ("risk", "delta", "threshold", "coverage", "certified_on")
        guarantee = {name: getattr(found, name) for name in facts} | {
            "text": found.guarantee
        }
    except (TypeError, ValueError) as error:
        guarantee = {"text": str(error)}
    learned = {
        name: value for name, value in rule.own_fields().items() if value is not None
    }
    changed = "the most likely class after calibration"
    values |= {
        "label": "the classifier's own" if rule.preserves_labels else changed,
        "reference": fitted.method.reference,
        "library_version": fitted._library_version,
        "title": fitted.method.title.split(" (")[0],  # without the explanation
        "guarantee": guarantee,
        "learned": _values(learned),
    }
    lines |= {"method": f"{values['title']} ({fitted.name})", "label": values["label"]}
    lines |= {
        name: _in_words(value)
        for name, value in learned.items()
        if name != "keep_labels"
    }
    lines |= {"guarantee": guarantee["text"], "reference": values["reference"]}
    return values, lines | {"saved with": f"hokical {values['library_version']}"}


def _values(value: Any) -> Any:
    """Plain numbers, strings, lists and dicts; of long arrays the shape."""
    if hasattr(value, "family"):  # a noise
        return value.to_dict()
    value = vars(value) if is_dataclass(value) else value
    if isinstance(value, dict):
        return {name: _values(each) for name, each in value.items()}
    if isinstance(value, np.ndarray) and value.size > _LONGEST:
        return {"shape": list(value.shape)}
    return (
        [_values(each) for each in value] if isinstance(value, (list, tuple)) else value
    )


def _in_words(value: Any) -> str:
    """Numbers; of long arrays the shape, of records without a text the single
    numbers.
    """
    has_text = "__str__" in vars(type(value))  # of its own, not that of all dataclasses
    if is_dataclass(value) and not hasattr(value, "family") and not has_text:
        value = {
            name: each for name, each in vars(value).items() if isinstance(each, float)
        }
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(each)}" for name, each in value.items())
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"{' x '.join(map(str, value.shape))} numbers"
    if isinstance(value, (np.ndarray, list, tuple)):
        return ", ".join(map(_in_words, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


@command(*ANY, split=opt.Part.val)
def fit(
    val: Path,
    output: Path,
    method: str | None = None,
    settings: list[str] | None = None,
    keep_labels: bool = False,
    *,
    given: Source,
) -> ui.Result:
    """Fit a calibrator on validation logits and labels, and save it.

    The label that `apply` writes is the most likely class after calibration;
    with --keep-labels it is the classifier's own. Methods other than the
    default have one of the two: see `hokical methods`.

    A folder (or 'pattern*') of Parquet files is read in parts, so it may
    be larger than memory.

    With --confidence, the calibrator is one of a single confidence per row,
    whose label says whether the answer was right (0 or 1; by default in a
    column `right`). For percentages add --set scale=100.
    """
    name = method or "auto"
    if keep_labels and name != "auto":
        raise ui.bad_option(
            "--keep-labels", "is for the default, auto; see `hokical methods`."
        )
    calibrator: Any = hokical.make(opt.check_method(name))
    check_output(output)
    data: Any = given.at(val).open()
    whole = isinstance(data, Rows)
    if alone := whole and data.kind == "confidence":
        ui.refuse(
            "does not go with confidences.", method=method, keep_labels=keep_labels
        )
        calibrator = hokical.ConfidenceCalibrator()
    opt.set_options(calibrator, settings or [])
    if keep_labels:
        calibrator.set_params(keep_labels=True)
    groups = data.groups if whole else None
    if groups is not None and calibrator.name not in ("auto", "confidence"):
        why = (
            f"only auto learns from groups, not {calibrator.name}: leave out --method."
        )
        raise ui.bad_option("--groups", why)
    start = time.perf_counter()
    accuracy = dict[str, float]()
    with report_file(val):
        if not whole:
            hokical.streams.fit(calibrator, data)
        else:
            with ui.spinner(f"Fitting {calibrator.name}"):
                calibrator.fit(data.scores, data.labels, data.weights, groups=groups)
            calibrator.set_columns(data.columns, data.classes)
            right = data.labels if alone else data.scores.labels == data.labels
            accuracy["accuracy"] = float(right.mean())
    seconds = time.perf_counter() - start
    about = {"examples": data.n_rows, **accuracy}
    calibrator.save(
        output, metadata={**about, **data.about, "classes": list(data.classes)}
    )
    values, lines = describe(hokical.load(output))
    values |= {"output": str(output), "fit_seconds": seconds}
    values["converged"] = bool(getattr(calibrator, "converged_", True))
    shown = {line: lines.get(line) for line in _SHOWN}
    return ui.Result(
        values, shown | {"took": f"{seconds:.2f} s", "saved to": str(output)}
    )


@command(
    *LABELLED,
    "cluster",
    data=opt.argument("FILE", "Logits and labels that nothing was fitted on."),
)
def certify(
    calibrator: Path,
    data: Path,
    output: Path | None = None,
    look_alike: bool = False,
    *,
    given: Source,
) -> ui.Result:
    """Store held-out examples, for `apply --risk` and `--coverage`.

    Without --output the file of the calibrator is replaced, whole or not at
    all. Its predictions stay the same; what was stored before is replaced.
    Calibration examples are refused: results on them are too good.
    """
    target = output or calibrator
    fitted = read_calibrator(calibrator)
    check_output(target)
    found = given.at(data).open(fitted)
    belongs = None
    own: dict[str, Any] = {"reused": "ignore" if look_alike else "refuse"}
    with ui.spinner(f"Certifying {fitted.name}"), report_file(data):
        if isinstance(found, Rows):
            belongs = given.clusters(found)
            own |= {"groups": found.groups, "cluster": belongs}
            certified = fitted.certify(found.scores, found.labels, found.weights, **own)
        else:
            certified = hokical.streams.certify(fitted, found, **own)
    certified.save(target, metadata=fitted.metadata_)
    if isinstance(certified, hokical.Calibrator):
        evidence = certified.predictor_.evidence.conformity
        n = 0 if evidence is None else evidence.n
        groups_of = None if evidence is None else evidence.group_names
    else:
        n = certified.held_out_.total
        groups_of = None
    n_groups = groups_of and len(groups_of.names)
    one = "" if belongs is None else ", one of each cluster"
    values = {
        "method": fitted.name,
        "output": str(target),
        "examples": n,
        "groups": n_groups,
    }
    lines = {
        "method": fitted.name,
        "certified on": f"{n:,} examples of {data.name}{one}",
    }
    lines |= {"groups": n_groups and f"{n_groups:,}", "saved to": str(target)}
    return ui.Result(values | {"clusters": None if belongs is None else n}, lines)


@command()
def methods() -> ui.Result:
    """List the calibration methods."""
    known = {name: hokical.make(name) for name in hokical.calibrators.method_names()}
    facts = (
        "name",
        "title",
        "reference",
        "changes_labels",
        "accepts_top_k",
        "binary_only",
        "cost",
    )
    values = []
    rows = []
    for name, cal in known.items():
        kind = {"kind": type(cal).__name__, "parameters": cal.get_params(deep=False)}
        values.append({fact: getattr(cal.method, fact) for fact in facts} | kind)
        labels = "change" if cal.method.changes_labels else "kept"
        rows.append((name, labels, cal.method.title.split(" (")[0]))

    def show() -> None:
        shown = ui.new_table(("name", "labels", "method"), rows)
        shown.columns[1].justify = shown.columns[2].justify = "left"
        ui.show_table(
            "Calibration methods; --json shows where each was published", shown
        )
        binary = [each["name"] for each in values if each["binary_only"]]
        ui.say(f"For two classes only: {', '.join(binary)}.")
        if missing := sorted(
            {"recal", "ms_odir", "dir_odir", "profile"} - known.keys()
        ):
            ui.say(
                "In the package hokical-paper (`paper/` in a clone): "
                f"{', '.join(missing)}."
            )
        ui.say(
            "Without `--method`, fit uses the default, auto: structured scaling at "
            "several ridge penalties, of which the strongest is temperature scaling, "
            "averaged by held-out log loss; from three classes on a correction of each "
            "row as in adaptive, if it helps. It predicts the most likely class, or "
            "with --keep-labels the classifier's own label."
        )

    return ui.Result(values, show)


@command(*UNLABELLED)
def apply(
    calibrator: Path,
    data: Path,
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
    given: Source,
) -> ui.Result:
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
    new = by == "new group"
    if (
        coverage is None
        and by is not opt.Coverages.all
        and not (new and risk is not None)
    ):
        raise ui.bad_option(
            "--by", "only goes with --coverage, and 'new group' with --risk too."
        )
    if delta is not None and risk is None and coverage is None and not interval:
        raise ui.bad_option(
            "--delta", "only goes with --risk, --coverage or --interval."
        )
    if adapt:
        ui.refuse("does not go with --adapt.", risk=risk)
    own: dict[str, Any] = {} if delta is None else {"delta": delta}
    asked: dict[str, Any] = {"proba": proba}
    if risk is not None:
        asked["risk"] = {"risk": risk, **own} | ({"by": str(by)} if new else {})
    if coverage is not None:
        asked["sets"] = {"coverage": coverage, "by": str(by), **own}
    fitted = read_calibrator(calibrator)
    if fitted.name == "confidence":
        why = "needs a calibrator of logits; this one is of confidences."
        ui.refuse(why, proba=proba, coverage=coverage, adapt=adapt, interval=interval)
        ui.refuse(why, positive=positive)
    if interval or positive is not None:
        event = opt.event_index(positive, fitted.class_names, fitted.n_classes_)
        if event is None or not interval:
            what = "--interval" if interval else "--positive"
            raise ui.bad_option(
                what, "is for two classes, and --positive goes with --interval."
            )
        asked["interval"] = {"label": event, **own}
    given = given.at(data, keep=keep)
    done = []
    for file, target in _pair_files(given, output):
        source = given.at(file)
        used = fitted
        rows = source.read(fitted, "none")
        if "risk" in asked or "sets" in asked:
            source.check_new(fitted, rows)
        with ui.spinner(f"Applying {fitted.name}"):
            if adapt:
                with ui.check_options("--adapt"):
                    moved = fitted.estimate_shift(rows.scores, groups=rows.groups)
                    if not moved.holds:
                        remedy = "Apply the calibrator as it is, or fit it again."
                        raise ValueError(f"{moved.verdict}. {remedy}")
                    ui.say(str(moved))
                    used = moved.adapt()
            found, facts = _predict(used, rows, asked)
        columns = _columns(found, rows, target.suffix == ".npz")
        if marked := hokical.io.write_table(target, columns):
            what = f"{marked:,} cells of text that a spreadsheet would run"
            ui.say(f"{what} begin with ' in {target}.")
        done.append(found)
    values = (
        {"method": fitted.name, "output": str(output)}
        | facts
        | {"arrays": list(columns)}
    )
    values |= {"files": len(done)} if given.in_parts else {}
    for name, share in (
        ("confidence", "mean_confidence"),
        ("accepted", "accepted_share"),
    ):
        if name in found:
            whole = np.concatenate([each[name] for each in done])
            values |= {
                "examples": whole.size,
                share: float(whole.mean()) if whole.size else None,
            }
    names = [*columns]
    mean = values["mean_confidence"]
    accepted = values.get("accepted_share")
    listed = ", ".join(
        names if len(names) <= 6 else [*names[:6], f"... {len(names)} columns"]
    )
    place = f"{len(done)} files in {output}" if given.in_parts else f"{output}"
    lines = {"method": fitted.name, "examples": f"{values['examples']:,}"}
    lines["mean confidence"] = ui.DASH if mean is None else f"{mean:.1%}"
    lines["written to"] = f"{place} ({listed})"
    lines["accepted"] = None if accepted is None else f"{accepted:.1%}"
    return ui.Result(
        values, lines | {name: facts.get(name) for name in ("guarantee", "sets")}
    )


def _pair_files(given: Source, output: Path) -> list[tuple[Path, Path]]:
    """Each file to read, and the file to write."""
    if not given.in_parts:
        check_output(output, suffix=(".npz", *TABLES))
        return [(given.path, output)]
    files = list_files(given.path)
    base = Path(os.path.commonpath([file.parent.resolve() for file in files]))
    if output.is_file() or output.suffix:
        raise ui.bad_option(
            "--output", f"must be a folder where the input is one; got {output}."
        )
    if base in (output.resolve(), *output.resolve().parents):
        why = f"results would mix with the input files in {base}."
        raise hokical.io.DataFileError(output, why, "Choose another folder.")
    pairs = [(file, output / file.resolve().relative_to(base)) for file in files]
    for _, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
    return pairs


def _predict(
    fitted: Any, rows: Rows, asked: dict[str, Any]
) -> tuple[dict[str, Any], ...]:
    """Labels, confidence and what else is `asked` for; the guarantees in words.

    "risk", "sets" and "interval" have the options of `predict_or_abstain`,
    `predict_set` and `predict_interval`; "proba" says whether probabilities are wanted.
    """
    scores = rows.scores
    own = {"groups": rows.groups}
    facts = dict[str, Any]()
    if rows.kind == "confidence":
        found = {"confidence": fitted.predict(scores, groups=rows.groups)}
    else:
        with ui.check_options("--groups"):
            found = {"labels": fitted.predict(scores, **own)}
            found["confidence"] = fitted.predict_confidence(scores, **own)
    with ui.check_options("--risk / --coverage / --delta"):
        if risk := asked.get("risk"):
            chosen = fitted.predict_or_abstain(scores, **risk, **own)
            found["accepted"] = chosen.accepted
            facts["guarantee"] = chosen.guarantee
        if sets := asked.get("sets"):
            if sets["by"] == "group" and rows.groups is None:
                raise ValueError(
                    "--by group needs the column of the groups: --groups COLUMN."
                )
            held = fitted.predict_set(scores, **sets, **own)
            found |= {"members": held.members, "set_size": held.sizes}
            facts["sets"] = held.guarantee
    if asked["proba"]:
        vectors = found["probabilities"] = fitted.predict_proba(scores, **own)
        if others := int((vectors.argmax(axis=1) != found["labels"]).sum()):
            shown = (
                f"In {others:,} of {len(vectors):,} rows another class is more likely "
                "than the"
            )
            ui.say(f"{shown} label: the calibrator keeps the classifier's own labels.")
    if interval := asked.get("interval"):
        with ui.check_options("--interval"):
            low, high = fitted.predict_interval(scores, **interval, **own).T
        proba = fitted.predict_proba(scores, **own)[:, interval["label"]]
        found |= {"probability": proba, "low": low, "high": high}
    return found, facts


def _columns(results: dict[str, Any], rows: Rows, as_arrays: bool) -> dict[str, Any]:
    """Kept columns, then results; in a table labels by name, and a column per
    probability.
    """
    added = dict(results)
    if not as_arrays and "labels" in added:
        names = np.array(rows.classes or range(rows.n_classes))
        added = {"label": names[added.pop("labels")]} | added
        if (members := added.pop("members", None)) is not None:
            texts = np.array(["|".join(map(str, names[row])) for row in members])
            added |= {"set": texts, "set_size": added.pop("set_size")}
        vectors = added.pop("probabilities", np.empty((0, 0)))
        added |= {
            f"probability_{names[k]}": column for k, column in enumerate(vectors.T)
        }
    added = {name: rows.fill(column) for name, column in added.items()}
    kept = {
        (f"input_{n}" if n in added else n): column for n, column in rows.kept.items()
    }
    for name in set(rows.kept) - set(kept):
        ui.say(
            f"The column `{name}` of the input is called `input_{name}`, beside the "
            "new one."
        )
    return kept | added


@command()
def export(
    calibrator: Path,
    output: Path,
    attach: Path | None = None,
    scores: str | None = None,
    probabilities: bool | None = None,
    opset: int | None = None,
    float32: bool = False,
    proba: bool | None = None,
    check: bool = True,
) -> ui.Result:
    """Write a calibrator as an ONNX model of plain operators.

    Alone it takes `logits`; with --attach it takes what the classifier takes,
    whose scores are logits or probabilities: --probabilities and --logits say
    which, where the classifier's graph does not show it. It gives
    `labels`, `confidence` and, where they cost little or with --proba,
    `probabilities`. Calibrators of confidences give `probability`.

    A model that cannot be run here is still written, and `check` says why it
    was not run.
    """
    check_output(output, suffix=".onnx")
    fitted = read_calibrator(calibrator, for_rows=False)
    onnx = hokical.integrations.onnx
    precision = "float32" if float32 else "float64"
    options: dict[str, Any] = {"precision": precision, "probabilities": proba}
    if attach is not None and fitted.name in ("confidence", "multilabel"):
        raise ui.bad_option(
            "--attach", f"takes calibrators of logits; this one is {fitted.name}."
        )
    with ui.spinner(f"Exporting {fitted.name}"):
        if attach is None:
            ui.refuse(
                "only goes with --attach.", scores=scores, probabilities=probabilities
            )
            options |= {} if opset is None else {"opset": opset}
            if fitted.metadata_.get("scores") == "probabilities":
                ui.say(
                    "The fit had probabilities: as `logits` the model takes their "
                    "logarithms."
                )
            with ui.check_options():
                model = onnx.export(fitted, output, **options)
        else:
            ui.refuse(
                "does not go with --attach: the classifier has its own.", opset=opset
            )
            readings = {None: None, True: "probabilities", False: "logits"}
            options |= {"scores": readings[probabilities], "output": scores}
            if not attach.is_file():
                why = "expected an ONNX model; there is no such file."
                raise hokical.io.DataFileError(attach, why)
            with (
                ui.check_options("--attach"),
                warnings.catch_warnings(record=True) as caught,
            ):
                warnings.simplefilter("always")
                model = onnx.attach(attach, fitted, output, **options)
            for warning in caught:
                ui.warn(str(warning.message))
        checked = _check(model, fitted) if check else {}
    facts = {
        item.key.removeprefix("hokical_"): item.value for item in model.metadata_props
    }
    tensor = onnx.models.describe_tensor
    classes = facts.get("n_classes")
    size = output.stat().st_size
    inputs, outputs = (
        [*map(tensor, each)] for each in (model.graph.input, model.graph.output)
    )
    values = {
        "method": fitted.name,
        "opset": int(facts["opset"]),
        "precision": facts["precision"],
    }
    values |= {
        "output": str(output),
        "bytes": size,
        "classes": classes and int(classes),
    }
    values |= {"inputs": inputs, "outputs": outputs, **checked}
    lines = {"method": fitted.name + (f", {classes} classes" if classes else "")}
    lines |= {"inputs": ", ".join(inputs), "outputs": ", ".join(outputs)}
    lines["opset"] = f"{facts['opset']}, computed in {facts['precision']}"
    lines["written to"] = f"{output} ({size:,} bytes)"
    return ui.Result(values, lines | {"check": checked.get("check")})


def _check(model: Any, fitted: Any) -> dict[str, Any]:
    """How the model compares with Python, or why it was not run."""
    onnx = hokical.integrations.onnx
    try:
        found = onnx.check(model, fitted)
    except ImportError:
        return {"check": "not run: onnxruntime is not installed"}
    except onnx.NotRunnable as reason:
        return {"check": f"not run: {reason}"}
    numbers = asdict(found)
    n_rows = numbers.pop("n_rows")
    if found.contradiction:
        ui.say(f"The model is wrong: {found.contradiction}.")
        return {"check": found.contradiction, "contradiction": found.contradiction}
    del numbers["contradiction"]
    verdict = f"largest difference from Python {found.largest_difference:.1e}, "
    verdict += f"{found.labels_differing} labels differ, on {n_rows} rows"
    if not found.agrees:
        ui.say(f"The model differs from Python: {verdict}.")
    return {"check": verdict, **numbers}
