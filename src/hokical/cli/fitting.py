"""`hokical fit` and `hokical certify`: fit a calibrator, note held-out examples, and save it.

`hokical show`: what is inside a file that `fit` saved.

`hokical methods`: the calibration methods.

`hokical demo`: all methods on the bundled logits.
"""

from __future__ import annotations

import time
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import hokical
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.application import check_method, set_options
from hokical.cli.evaluating import show_comparison
from hokical.cli.options import CalibratorFile, Json
from hokical.cli.reading import ANY, LABELLED, Source, read_calibrator, reads
from hokical.demo import DEMO_CLASSES, demo_logits
from hokical.io.tables import check_output, report_file

#: Arrays with more numbers are not listed.
_LONGEST = 1000


def show(calibrator: CalibratorFile, as_json: Json = False) -> None:
    """Show what is inside a calibrator."""
    ui.show_result(*describe(read_calibrator(calibrator, for_rows=False)), as_json)


def describe(fitted: Any) -> tuple[dict[str, Any], dict[str, str | None]]:
    """What is inside a loaded calibrator as values, and in words."""
    known, n_classes = dict(fitted.metadata_), getattr(fitted, "n_classes_", None)
    counts = getattr(getattr(fitted, "kept_", None), "fit_scores", None)
    if counts is not None:
        known |= {"examples": counts.total, "accuracy": counts.accuracy}
    values = {"method": fitted.name, "n_classes": n_classes}
    known["classes"] = list(getattr(fitted, "class_names", ())) or known.get("classes")
    values |= {name: known.get(name) for name in ("classes", "scores", "examples", "accuracy")}
    values["reason"] = getattr(fitted, "reason_", None)
    names, n, right = values["classes"] or (), values["examples"], values["accuracy"]
    shown = f": {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}" if names else ""
    share = "" if right is None else f", accuracy {right:.1%} before calibration"
    lines: dict[str, str | None] = {
        "method": fitted.name,
        "scores": values["scores"],
        "classes": None if n_classes is None else f"{n_classes}{shown}",
        "fitted on": None if n is None else f"{n:,} examples{share}",
        "chosen": values["reason"],
    }
    if not isinstance(fitted, hokical.Calibrator):
        certified = "no" if fitted.held_out_ is None else "yes"
        return values | {"certified": certified}, lines | {"certified": certified}
    kept = fitted.rule_.preserves_labels
    about = {
        "label": "the classifier's own" if kept else "the most likely class after calibration",
        "reference": fitted.method.reference,
        "library_version": fitted._library_version,
    }
    fields, guarantee = fitted.rule_.own_fields(), _guarantee(fitted)
    learned = {name: value for name, value in fields.items() if value is not None}
    title = fitted.method.title.split(" (")[0]  # without the explanation
    values |= about | {"title": title, "guarantee": guarantee, "learned": _values(learned)}
    lines |= {"method": f"{title} ({fitted.name})", "label": about["label"]}
    lines |= {name: _in_words(value) for name, value in learned.items() if name != "keep_labels"}
    lines |= {"guarantee": guarantee["text"], "reference": about["reference"]}
    return values, lines | {"saved with": f"hokical {about['library_version']}"}


def _values(value: Any) -> Any:
    """Plain numbers, strings, lists and dicts; of long arrays the shape."""
    if hasattr(value, "family"):  # a noise
        return value.to_dict()
    value = vars(value) if is_dataclass(value) else value
    if isinstance(value, dict):
        return {name: _values(each) for name, each in value.items()}
    if isinstance(value, np.ndarray) and value.size > _LONGEST:
        return {"shape": list(value.shape)}
    return [_values(each) for each in value] if isinstance(value, (list, tuple)) else value


def _in_words(value: Any) -> str:
    """Numbers; of long arrays the shape, of records without a text the single numbers."""
    if is_dataclass(value) and not hasattr(value, "family") and not _has_text(value):
        value = {name: each for name, each in vars(value).items() if isinstance(each, float)}
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(each)}" for name, each in value.items())
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"{' x '.join(map(str, value.shape))} numbers"
    if isinstance(value, (np.ndarray, list, tuple)):
        return ", ".join(map(_in_words, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _has_text(value: Any) -> bool:
    """Whether a record has a text of its own, which is not that of all dataclasses."""
    return "__str__" in vars(type(value))


def _groups(fitted: hokical.Calibrator) -> dict[str, list[Any]] | None:
    """Groups of one row, if the calibrator needs them."""
    needed = fitted.rule_.needed_groups
    if needed is None:
        return None
    return {name: [own[0]] for name, own in zip(needed.columns, needed.levels, strict=True)}


def _guarantee(fitted: hokical.Calibrator) -> dict[str, Any]:
    """The guarantee of `apply --risk` at its default values, or why there is none."""
    try:
        found = fitted.predict_or_abstain(np.zeros((1, fitted.n_classes_)), groups=_groups(fitted))
    except (TypeError, ValueError) as error:
        return {"text": str(error)}
    names = ("risk", "delta", "threshold", "coverage", "certified_on")
    return {name: getattr(found, name) for name in names} | {"text": found.guarantee}


#: Of the lines of `hokical show`, those that are printed after a fit.
_SHOWN = ("method", "classes", "fitted on", "noise", "chosen", "label")


@reads(*ANY, split=opt.Part.val)
def fit(
    val: opt.Validation,
    output: Annotated[Path, opt.Output],
    method: opt.Method = None,
    settings: opt.Settings = None,
    keep_labels: Annotated[
        bool, opt.text("Predict the classifier's own labels.", "--keep-labels")
    ] = False,
    as_json: opt.Json = False,
    *,
    given: Source,
) -> None:
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
    if keep_labels and (method or "auto") != "auto":
        raise ui.bad_option("--keep-labels", "is for the default, auto; see `hokical methods`.")
    name = check_method(method or "auto")
    check_output(output)
    data = given.at(val).open()
    if getattr(data, "kind", "logits") == "confidence":
        ui.refuse("does not go with confidences.", method=method, keep_labels=keep_labels)
        calibrator = set_options(hokical.ConfidenceCalibrator(), settings or [])
    else:
        calibrator = set_options(hokical.make(name), settings or [])
        if keep_labels:
            calibrator.set_params(keep_labels=True)
    start = time.perf_counter()
    counts = _fit_on(calibrator, data, val)
    seconds = time.perf_counter() - start
    known = {name: value for name, value in counts.items() if value is not None}
    calibrator.save(output, metadata={**known, **data.about, "classes": list(data.classes)})
    values, lines = describe(hokical.load(output))
    shown = {name: lines.get(name) for name in _SHOWN}
    shown |= {"took": f"{seconds:.2f} s", "saved to": str(output)}
    values |= {"output": str(output), "fit_seconds": seconds}
    values["converged"] = bool(getattr(calibrator, "converged_", True))
    ui.show_result(values, shown, as_json)


@reads(*LABELLED, "cluster")
def certify(
    calibrator: opt.CalibratorFile,
    data: opt.HeldOut,
    output: Annotated[Path | None, opt.Output] = None,
    look_alike: opt.LookAlike = False,
    as_json: opt.Json = False,
    *,
    given: Source,
) -> None:
    """Store held-out examples, for `apply --risk` and `--coverage`.

    Without --output the file of the calibrator is replaced, whole or not at
    all. Its predictions stay the same; what was stored before is replaced.
    Calibration examples are refused: results on them are too good.
    """
    target = output or calibrator
    fitted = read_calibrator(calibrator)
    check_output(target)
    found = given.at(data).open(fitted)
    belongs = given.clusters(found) if isinstance(found, Rows) else None
    with ui.spinner(f"Certifying {fitted.name}"):
        certified = _certify_on(fitted, found, data, belongs, look_alike=look_alike)
    certified.save(target, metadata=fitted.metadata_)
    noted: Any = getattr(getattr(certified, "kept_", None), "held_out_conformity", None)
    n = certified.held_out_.total if noted is None else noted.n
    groups_of = getattr(noted, "group_names", None)
    n_groups = None if groups_of is None else len(groups_of.names)
    values = {"method": fitted.name, "output": str(target), "examples": n, "groups": n_groups}
    values["clusters"] = None if belongs is None else n
    one = "" if belongs is None else ", one of each cluster"
    lines = {
        "method": fitted.name,
        "certified on": f"{n:,} examples of {data.name}{one}",
        "groups": None if n_groups is None else f"{n_groups:,}",
        "saved to": str(target),
    }
    ui.show_result(values, lines, as_json)


def _fit_on(calibrator: Any, data: Any, path: Path) -> dict[str, Any]:
    """Fit a calibrator; the number of examples, and of one file the share that is right."""
    if not isinstance(data, Rows):
        with report_file(path):
            hokical.streams.fit(calibrator, data)
        return {"examples": data.n_rows}
    own = {} if data.groups is None else {"groups": data.groups}
    if own and calibrator.name not in ("auto", "confidence"):
        raise ui.bad_option(
            "--groups", f"only auto learns from groups, not {calibrator.name}: leave out --method."
        )
    with ui.check_options(), ui.spinner(f"Fitting {calibrator.name}"):
        calibrator.fit(*data[:3], **own)
    calibrator._columns = data.columns
    if data.kind == "logits":
        calibrator._name_classes(data.classes)
    right = data.labels if data.kind == "confidence" else data.scores.labels == data.labels
    return {"examples": data.n_rows, "accuracy": float(right.mean())}


def _certify_on(
    fitted: Any, data: Any, path: Path, cluster: Any = None, *, look_alike: bool = False
) -> Any:
    """The calibrator with held-out examples noted, which may `look_alike` those of the fit."""
    own: dict[str, Any] = {"reused": "ignore" if look_alike else "refuse"}
    if not isinstance(data, Rows):
        with report_file(path):
            return hokical.streams.certify(fitted, data, **own)
    own["cluster"] = cluster
    with ui.check_options(str(path), {'`reused="ignore"` (--look-alike)': "--look-alike"}):
        return fitted.certify(*data[:3], groups=data.groups, **own)


def _describe_method(cal: hokical.Calibrator) -> dict[str, Any]:
    info = cal.method
    names = ("name", "title", "reference", "changes_labels", "accepts_top_k", "binary_only", "cost")
    about = {name: getattr(info, name) for name in names}
    return about | {"kind": type(cal).__name__, "parameters": cal.get_params(deep=False)}


def methods(as_json: Json = False) -> None:
    """List the calibration methods."""
    made = map(hokical.make, hokical.calibrators.method_names())
    known = {cal.method.name: cal for cal in made}
    if as_json:
        ui.show_json([_describe_method(cal) for cal in known.values()])
        return
    shown = ui.new_table(("name", "labels", "method"))
    shown.columns[1].justify = shown.columns[2].justify = "left"
    for name, cal in known.items():
        labels = "change" if cal.method.changes_labels else "kept"
        shown.add_row(name, labels, cal.method.title.split(" (")[0])
    ui.show_table("Calibration methods; --json shows where each was published", shown)
    binary = [name for name, cal in known.items() if cal.method.binary_only]
    ui.say(f"For two classes only: {', '.join(binary)}.")
    missing = {"recal", "ms_odir", "dir_odir", "profile"} - known.keys()
    if missing:
        ui.say(f"In the package hokical-paper (`paper/` in a clone): {', '.join(sorted(missing))}.")
    ui.say(
        "Without `--method`, fit uses the default, auto: structured scaling at several ridge "
        "penalties, of which the strongest is temperature scaling, averaged by held-out log loss; "
        "from three classes on a correction of each row as in adaptive, if it helps. It predicts "
        "the most likely class, or with --keep-labels the classifier's own label."
    )


def demo(
    report: Annotated[Path, opt.text("HTML report to write.")] = Path("report.html"),
    as_json: opt.Json = False,
) -> None:
    """Compare all methods on the shipped data, and write a report."""
    title = "ResNet-110 on CIFAR-10, 10,000 test images"
    comparison = hokical.compare(*demo_logits(), class_names=DEMO_CLASSES)
    show_comparison(comparison, title, report, as_json)
