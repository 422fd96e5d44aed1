"""`hokical fit`: fit a calibrator on validation data and save it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import hokical
from hokical.cli import options as opt
from hokical.cli.console import bad_option, refuse, show_result
from hokical.cli.reading import Source, fit_on
from hokical.cli.settings import check_method, set_options
from hokical.cli.show import describe
from hokical.io._writing import check_output

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
    counts = fit_on(calibrator, data, val)
    seconds = time.perf_counter() - start
    known = {name: value for name, value in counts.items() if value is not None}
    calibrator.save(output, metadata={**known, **data.about, "classes": list(data.classes)})
    values, lines = describe(hokical.load(output))
    shown = {name: lines.get(name) for name in _SHOWN}
    shown |= {"took": f"{seconds:.2f} s", "saved to": str(output)}
    values |= {"output": str(output), "fit_seconds": seconds}
    values["converged"] = bool(getattr(calibrator, "converged_", True))
    show_result(values, shown, as_json)
