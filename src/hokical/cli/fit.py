"""`hokical fit`: fit a calibrator on validation logits and save it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

import hokical
from hokical.cli import options as opt
from hokical.cli.beyond import Answers, kind_of
from hokical.cli.beyond import make as make_beyond
from hokical.cli.data import make_method, sketch
from hokical.cli.inputs import open_data
from hokical.cli.show import bad_option, describe_label, show_result


@opt.reads()
def fit(
    val: opt.Validation,
    output: Annotated[Path, opt.text("Output file (.json).", "-o", "--output")],
    given: opt.Input,
    method: opt.Method = None,
    settings: opt.Settings = None,
    keep_labels: Annotated[
        bool,
        opt.text("Predict the classifier's labels, not the likeliest class.", "--keep-labels"),
    ] = False,
    noise: Annotated[
        str | None, opt.text("For hoki: auto, gaussian:2.0, uniform:-2,4 or gumbel:1.5.")
    ] = None,
    draws: Annotated[int | None, opt.text("For hoki: sample this many noise draws.", min=1)] = None,
    bins: Annotated[int | None, opt.text("For hoki: confidence bins (15).", min=1)] = None,
    scale: Annotated[
        float | None, opt.text("With --confidence: what stands for certainty, 100 for percentages.")
    ] = None,
    monotone: Annotated[
        bool, opt.text("With --confidence: more never means a lower answer.", "--monotone")
    ] = False,
    seed: opt.Seed = 0,
    max_positions_per_item: opt.PositionsPerItem = None,
    as_json: opt.Json = False,
) -> None:
    """Fit a calibrator on validation logits and labels, and save it.

    The label that `apply` writes is the most likely class after calibration;
    with --keep-labels it is the classifier's own. Other methods than the
    default have one of the two: see `hokical methods`.

    A folder (or 'pattern*') of Parquet files is read in parts, so it may
    be larger than memory.

    With --confidence and --right, a calibrator of confidences without logits
    is fitted, by groups if --groups names their columns. With --multilabel,
    one of labels with a score each: columns score_A, label_A, score_B, ...,
    or as --score-columns 'p_{label}' and --label-column 'y_{label}' say.
    """
    for_hoki = {"noise": noise, "draws": draws, "n_bins": bins}
    for_hoki = {name: value for name, value in for_hoki.items() if value is not None}
    if for_hoki and (method or "hoki") != "hoki":
        raise typer.BadParameter("--noise, --draws and --bins are options of hoki only.")
    name = method or ("hoki" if for_hoki else None)
    if keep_labels and (name or "auto") != "auto":
        raise bad_option("--keep-labels", "is for the default, auto; see `hokical methods`.")
    calibrator: Any
    own = [*([] if scale is None else [f"scale={scale}"]), *(["monotone=True"] * monotone)]
    kind = kind_of(given)
    if own and kind is not Answers:
        raise typer.BadParameter("--scale and --monotone go with --confidence.")
    if kind:
        if name is not None:
            raise bad_option("--method", f"does not go with {kind.options}.")
        if keep_labels:
            raise bad_option("--keep-labels", f"does not go with {kind.options}.")
        calibrator = make_beyond(kind, [*(settings or []), *own])
    else:
        chosen: dict[str, Any] = {"keep_labels": True} if keep_labels else for_hoki
        calibrator = make_method(name or "auto", seed, settings or [], chosen)
    hokical.io.check_output(output)
    dense: dict[str, Any] = {"per_item": max_positions_per_item, "random_state": seed}
    found = open_data(val, given, **dense)
    start = time.perf_counter()
    model, counts = found.fit(calibrator)
    seconds = time.perf_counter() - start
    about = found.about
    if model is calibrator:
        known = {name: value for name, value in counts.items() if value is not None}
        about = known | about | {"classes": list(found.classes)}
    model.save(output, metadata=about | {"data": sketch(val, found.part)})
    fitted = getattr(model, "calibrator_", model)
    _show(fitted, counts | {"fit_seconds": seconds}, output, as_json, found.unit, found.classes)


def _show(
    calibrator: Any,
    counts: dict[str, Any],
    output: Path,
    as_json: bool,
    unit: str,
    names: tuple[str, ...] = (),
) -> None:
    noise = getattr(calibrator, "noise_", None)
    facts = {
        "method": calibrator.name,
        "output": str(output),
        **counts,
        "classes": getattr(calibrator, "n_classes_", None),
        "noise": None if noise is None else noise.to_dict(),
        "converged": bool(getattr(calibrator, "converged_", True)),
        "chosen": getattr(calibrator, "chosen_", None),
        "reason": getattr(calibrator, "reason_", None),
        "label": describe_label(calibrator),
    }
    rows, right = counts["examples"], counts["accuracy"]
    known = [] if rows is None else [f"{rows:,} {unit}"]
    for what in ("classes", "labels"):
        if n := getattr(calibrator, f"n_{what}_", None):
            known += [f"{n} {what}"]
    before = "" if facts["label"] is None else " before calibration"
    known += [] if right is None else [f"{right:.1%} right{before}"]
    lines = {
        "method": calibrator.name,
        "fitted on": ", ".join(known),
        "classes": ", ".join([*names[:10], "..."][: len(names)]),
        "noise": None if noise is None else repr(noise),
        "chosen": facts["reason"],
        "label": facts["label"],
        "took": f"{counts['fit_seconds']:.2f} s",
        "saved to": str(output),
    }
    show_result(facts, lines, as_json)
