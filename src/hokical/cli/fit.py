"""`hokical fit`: fit a calibrator on validation logits and save it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

import hokical
from hokical.cli import options as opt
from hokical.cli.confidence import fit_confidence
from hokical.cli.data import make_method, sketch
from hokical.cli.inputs import open_data
from hokical.cli.show import show_result


@opt.reads()
def fit(
    val: opt.Validation,
    output: Annotated[Path, opt.text("Output file (.json).", "-o", "--output")],
    given: opt.Input,
    method: opt.Method = None,
    settings: opt.Settings = None,
    noise: Annotated[
        str | None, opt.text("For hoki: auto, gaussian:2.0, uniform:-2,4 or gumbel:1.5.")
    ] = None,
    draws: Annotated[int | None, opt.text("For hoki: sample this many noise draws.", min=1)] = None,
    bins: Annotated[int | None, opt.text("For hoki: confidence bins (15).", min=1)] = None,
    checkpoint: Annotated[
        Path | None, opt.text("Folder from which a killed fit continues; data is read in parts.")
    ] = None,
    confidence: Annotated[
        str | None, opt.text("Column of a confidence in place of logits.", metavar="COLUMN")
    ] = None,
    right: Annotated[
        str | None, opt.text("With --confidence: whether answers are right.", metavar="COLUMN")
    ] = None,
    seed: opt.Seed = 0,
    max_positions_per_item: opt.PositionsPerItem = None,
    as_json: opt.Json = False,
) -> None:
    """Fit a calibrator on validation logits and labels, and save it.

    A folder (or 'pattern*') of Parquet files, a Zarr store, and any file with
    --checkpoint are read in parts, so they may be larger than memory.

    With --confidence and --right, a calibrator of confidences without logits
    is fitted, by groups if --groups names their columns.
    """
    if confidence is not None or right is not None:
        columns = (confidence, right)
        fit_confidence(val, given, columns, settings or [], output, as_json)
        return
    for_hoki = {"noise": noise, "draws": draws, "n_bins": bins}
    for_hoki = {name: value for name, value in for_hoki.items() if value is not None}
    if for_hoki and (method or "hoki") != "hoki":
        raise typer.BadParameter("--noise, --draws and --bins are options of hoki only.")
    name = method or ("hoki" if for_hoki else "auto")
    calibrator = make_method(name, seed, settings or [], for_hoki)
    hokical.io.check_output(output)
    dense: dict[str, Any] = {"per_item": max_positions_per_item, "random_state": seed}
    found, wanted = open_data(val, given, checkpoint=checkpoint, **dense)
    start = time.perf_counter()
    model, counts = found.fit(calibrator)
    seconds = time.perf_counter() - start
    about: dict[str, Any] = {"scores": "probabilities" if wanted.probabilities else "logits"}
    about |= {"zeros": wanted.zeros} if wanted.probabilities else {}
    about |= {"binary_score": wanted.binary_score} if wanted.binary_score else {}
    about |= {"score_columns": given.score_columns} if given.score_columns else {}
    if model is calibrator:
        known = {name: value for name, value in counts.items() if value is not None}
        about = known | about | {"classes": list(found.classes)}
    model.save(output, metadata=about | {"data": sketch(val, found.part)})
    fitted = getattr(model, "calibrator_", model)
    _show(fitted, counts | {"fit_seconds": seconds}, output, as_json, found.unit, found.classes)


def _show(
    calibrator: hokical.Calibrator,
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
        "classes": calibrator.n_classes_,
        "noise": None if noise is None else noise.to_dict(),
        "converged": bool(getattr(calibrator, "converged_", True)),
        "chosen": getattr(calibrator, "chosen_", None),
        "reason": getattr(calibrator, "reason_", None),
    }
    rows, right = counts["examples"], counts["accuracy"]
    known = [] if rows is None else [f"{rows:,} {unit}"]
    known += [f"{calibrator.n_classes_} classes"]
    known += [] if right is None else [f"{right:.1%} right"]
    lines = {
        "method": calibrator.name,
        "fitted on": ", ".join(known),
        "classes": ", ".join([*names[:10], "..."][: len(names)]),
        "noise": None if noise is None else repr(noise),
        "chosen": facts["reason"],
        "took": f"{counts['fit_seconds']:.2f} s",
        "saved to": str(output),
    }
    show_result(facts, lines, as_json)
