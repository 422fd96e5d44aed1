"""`hokical fit`: fit a calibrator on validation data and save it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import hokical
from hokical.cli import options as opt
from hokical.cli.console import bad_option, refuse, show_result
from hokical.cli.reading import Source
from hokical.cli.settings import make_method, read_settings
from hokical.cli.show import describe_label


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
    column `right`). Percentages: --set scale=100.
    """
    given = Source(
        val, split, labels=labels, label_column=label_column, score_columns=score_columns,
        classes=classes, probabilities=probabilities, confidence=confidence, groups=groups,
        missing=missing,
    )  # fmt: skip
    if confidence is not None:
        refuse("does not go with --confidence.", method=method, keep_labels=keep_labels)
    if keep_labels and (method or "auto") != "auto":
        raise bad_option("--keep-labels", "is for the default, auto; see `hokical methods`.")
    calibrator = _make(method, settings or [], keep_labels, confidence is not None)
    hokical.io.check_output(output)
    data = given.open()
    start = time.perf_counter()
    counts = data.fit(calibrator)
    seconds = time.perf_counter() - start
    known = {name: value for name, value in counts.items() if value is not None}
    about = given.about(given.wanted()) | {"classes": list(data.classes)}
    calibrator.save(output, metadata=known | about)
    _show(calibrator, counts | {"fit_seconds": seconds}, output, data.classes, as_json)


def _make(method: str | None, settings: list[str], keep_labels: bool, confidences: bool) -> Any:
    if confidences:
        made = hokical.ConfidenceCalibrator()
        return made.set_params(**read_settings(settings, made.get_params(), made.name))
    own = {"keep_labels": True} if keep_labels else {}
    return make_method(method or "auto", settings, **own)


def _show(
    calibrator: Any, counts: dict[str, Any], output: Path, names: tuple[str, ...], as_json: bool
) -> None:
    noise, n_classes = (getattr(calibrator, name, None) for name in ("noise_", "n_classes_"))
    values = {
        "method": calibrator.name,
        "output": str(output),
        **counts,
        "classes": n_classes,
        "noise": None if noise is None else noise.to_dict(),
        "converged": bool(getattr(calibrator, "converged_", True)),
        "chosen": getattr(calibrator, "chosen_", None),
        "reason": getattr(calibrator, "reason_", None),
        "label": describe_label(calibrator),
    }
    rows, right = counts["examples"], counts["accuracy"]
    known = [] if rows is None else [f"{rows:,} examples"]
    known += [] if n_classes is None else [f"{n_classes} classes"]
    known += [] if right is None else [f"{right:.1%} right before calibration"]
    lines = {
        "method": calibrator.name,
        "fitted on": ", ".join(known),
        "classes": ", ".join([*names[:10], "..."][: len(names)]),
        "noise": None if noise is None else repr(noise),
        "chosen": values["reason"],
        "label": values["label"],
        "took": f"{counts['fit_seconds']:.2f} s",
        "saved to": str(output),
    }
    show_result(values, lines, as_json)
