"""`hokical fit` and `hokical certify`: fit a calibrator, note held-out examples, and save it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import hokical
from hokical.cli import options as opt
from hokical.cli.console import bad_option, check_options, refuse, show_result, spinner
from hokical.cli.reading import Source, read_calibrator
from hokical.cli.settings import check_method, set_options
from hokical.cli.show import describe
from hokical.io._examples import Examples
from hokical.io._tables import check_output, report_file

#: Of the lines of `hokical show`, those that are printed after a fit.
_SHOWN = ("method", "classes", "fitted on", "noise", "chosen", "label")


def fit(
    val: opt.Validation,
    output: Annotated[Path, opt.Output],
    method: opt.Method = None,
    settings: opt.Settings = None,
    keep_labels: Annotated[
        bool, opt.text("Predict the classifier's own labels.", "--keep-labels")
    ] = False,
    labels: opt.Labels = None,
    label_column: opt.LabelColumn = None,
    score_columns: opt.ScoreColumns = None,
    classes: opt.Classes = None,
    probabilities: opt.Probabilities = None,
    confidence: opt.Confidence = None,
    groups: opt.Groups = None,
    missing: opt.MissingRows = opt.Missing.error,
    split: opt.Split = opt.Part.val,
    as_json: opt.Json = False,
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
    given = Source(
        val, split, labels=labels, label_column=label_column, score_columns=score_columns,
        classes=classes, probabilities=probabilities, confidence=confidence, groups=groups,
        missing=missing,
    )  # fmt: skip
    if keep_labels and (method or "auto") != "auto":
        raise bad_option("--keep-labels", "is for the default, auto; see `hokical methods`.")
    name = check_method(method or "auto")
    check_output(output)
    data = given.open()
    if getattr(data, "kind", "logits") == "confidence":
        refuse("does not go with confidences.", method=method, keep_labels=keep_labels)
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
    show_result(values, shown, as_json)


def certify(
    calibrator: opt.CalibratorFile,
    data: opt.HeldOut,
    output: Annotated[Path | None, opt.Output] = None,
    labels: opt.Labels = None,
    label_column: opt.LabelColumn = None,
    score_columns: opt.ScoreColumns = None,
    probabilities: opt.Probabilities = None,
    groups: opt.Groups = None,
    missing: opt.MissingRows = opt.Missing.error,
    split: opt.Split = opt.Part.test,
    look_alike: opt.LookAlike = False,
    as_json: opt.Json = False,
) -> None:
    """Store held-out examples, for `apply --risk` and `--coverage`.

    Without --output the file of the calibrator is replaced, whole or not at
    all. Its predictions stay the same; what was stored before is replaced.
    Calibration examples are refused: results on them are too good.
    """
    target = output or calibrator
    fitted = read_calibrator(calibrator)
    check_output(target)
    found = Source(
        data, split, labels=labels, label_column=label_column, score_columns=score_columns,
        probabilities=probabilities, groups=groups, missing=missing,
    ).open(fitted)  # fmt: skip
    with spinner(f"Certifying {fitted.name}"):
        certified = _certify_on(fitted, found, data, look_alike=look_alike)
    certified.save(target, metadata=fitted.metadata_)
    noted: Any = getattr(getattr(certified, "kept_", None), "held_out_conformity", None)
    n = found.n_rows if noted is None else noted.n
    groups_of = getattr(noted, "group_names", None)
    n_groups = None if groups_of is None else len(groups_of.names)
    values = {"method": fitted.name, "output": str(target), "examples": n, "groups": n_groups}
    lines = {
        "method": fitted.name,
        "certified on": f"{n:,} examples of {data.name}",
        "groups": None if n_groups is None else f"{n_groups:,}",
        "saved to": str(target),
    }
    show_result(values, lines, as_json)


def _fit_on(calibrator: Any, data: Any, path: Path) -> dict[str, Any]:
    """Fit a calibrator; the number of examples, and of one file the share that is right."""
    if not isinstance(data, Examples):
        with report_file(path):
            hokical.streams.fit(calibrator, data)
        return {"examples": data.n_rows}
    own = {} if data.groups is None else {"groups": data.groups}
    if own and calibrator.name not in ("auto", "confidence"):
        raise bad_option(
            "--groups", f"only auto learns from groups, not {calibrator.name}: leave out --method."
        )
    with check_options(), spinner(f"Fitting {calibrator.name}"):
        calibrator.fit(data.scores, data.labels, sample_weight=data.weights, **own)
    calibrator._columns = data.columns
    if data.kind == "logits":
        calibrator._name_classes(data.classes)
    scores: Any = data.scores
    right: Any = data.labels if data.kind == "confidence" else scores.labels == data.labels
    return {"examples": data.n_rows, "accuracy": float(right.mean())}


def _certify_on(fitted: Any, data: Any, path: Path, *, look_alike: bool = False) -> Any:
    """The calibrator with held-out examples noted, which may `look_alike` those of the fit."""
    own: dict[str, Any] = {"reused": "ignore" if look_alike else "refuse"}
    if not isinstance(data, Examples):
        with report_file(path):
            return hokical.streams.certify(fitted, data, **own)
    own |= {"groups": data.groups, "sample_weight": data.weights}
    with check_options("FILE"):
        return fitted.certify(data.scores, data.labels, **own)
