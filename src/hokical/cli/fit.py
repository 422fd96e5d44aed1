"""`hokical fit`: fit a calibrator on validation logits and save it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

import hokical
from hokical.cli import data
from hokical.cli import options as opt
from hokical.cli.show import check_options, show_result, spinner


def fit(
    val: opt.Validation,
    output: Annotated[Path, opt.text("Output file (.json).", "-o", "--output")],
    method: opt.Method = None,
    noise: Annotated[
        str | None, opt.text("For hoki: auto, gaussian:2.0, uniform:-2,4 or gumbel:1.5.")
    ] = None,
    draws: Annotated[int | None, opt.text("For hoki: sample this many noise draws.", min=1)] = None,
    bins: Annotated[int | None, opt.text("For hoki: confidence bins (15).", min=1)] = None,
    checkpoint: Annotated[
        Path | None, opt.text("Folder from which a killed fit continues; data is read in parts.")
    ] = None,
    seed: opt.Seed = 0,
    labels: opt.Labels = None,
    probabilities: opt.Probabilities = False,
    zeros: opt.Zeros = None,
    binary_score: opt.BinaryScore = None,
    classes: opt.Classes = None,
    split: opt.Split = opt.Part.val,
    class_axis: opt.ClassAxis = None,
    ignore_label: opt.IgnoreLabel = None,
    max_positions_per_item: opt.PositionsPerItem = None,
    as_json: opt.Json = False,
) -> None:
    """Fit a calibrator on validation logits and labels, and save it.

    A folder (or 'pattern*') of Parquet files, a Zarr store, and any file with
    --checkpoint are read in parts, so they may be larger than memory.
    """
    calibrator = _make(method, noise, draws, bins, seed)
    hokical.io.check_output(output)
    dense = data.dense_options(
        val, class_axis, ignore_label, max_positions_per_item, checkpoint=checkpoint
    )
    in_parts = checkpoint is not None or data.in_many_files(val)
    scores = (probabilities, binary_score, classes, zeros)
    wanted = data.choose_scores(*scores, dense=dense, in_parts=in_parts)
    about = {"scores": "probabilities" if wanted.probabilities else "logits"}
    about |= {"zeros": wanted.zeros} if wanted.probabilities else {}
    about |= {"binary_score": wanted.binary_score} if wanted.binary_score else {}
    if dense is not None:
        model = hokical.Dense(calibrator, **dense, random_state=seed)
        arrays, part = data.load_dense(val, split, labels)
        with data.check_arrays(val):
            seconds = _time(lambda: model.fit(**arrays))
        model.save(output, metadata=about | {"data": data.sketch(val, part)})
        counts = {"examples": model.n_positions_, "accuracy": model.accuracy_}
        counts["fit_seconds"] = seconds
        _show(model.calibrator_, counts, output, as_json, "positions")
        return
    if in_parts:
        source, part = data.open_parts(val, split, labels, wanted.classes)
        seconds = _time(lambda: hokical.streams.fit(calibrator, source, checkpoint=checkpoint))
        table, names = calibrator.fit_scores_, source.classes
        counts = {"examples": source.n_rows, "accuracy": None}
        if table is not None:
            counts = {"examples": table.total, "accuracy": table.accuracy}
    else:
        examples = data.load_examples(val, split, labels, weighted=True, wanted=wanted)
        if calibrator.binary_only and examples.logits.n_classes > 2:
            raise typer.BadParameter(
                f"{calibrator.name} is for two classes; {val.name} has "
                f"{examples.logits.n_classes}. Leave it out, or try structured.",
                param_hint="--method",
            )
        # The choice of noise has its own progress bar.
        searching = getattr(calibrator, "noise", None) == "auto"
        with nullcontext() if searching else spinner(f"Fitting {calibrator.name}"):
            seconds = _time(lambda: calibrator.fit(*examples.pair, examples.weights))
        right = float((examples.logits.labels == examples.labels).mean())
        counts = {"examples": examples.logits.n_rows, "accuracy": right}
        names, part = examples.classes, examples.part
    known = {name: value for name, value in counts.items() if value is not None}
    metadata = {**known, **about, "classes": list(names), "data": data.sketch(val, part)}
    calibrator.save(output, metadata=metadata)
    _show(calibrator, counts | {"fit_seconds": seconds}, output, as_json, "examples", names)


def _make(
    method: str | None, noise: str | None, draws: int | None, bins: int | None, seed: int
) -> hokical.calibrators.BaseCalibrator:
    options: dict[str, Any] = {"noise": noise, "draws": draws, "n_bins": bins}
    options = {name: value for name, value in options.items() if value is not None}
    name = data.check_method(method or ("hoki" if options else "auto"))
    if name != "hoki" and options:
        raise typer.BadParameter("--noise, --draws and --bins are options of hoki only.")
    if noise is not None and noise != "auto":
        with check_options("--noise"):
            options["noise"] = hokical.stability.parse_noise(noise)
    return hokical.calibrators.make_seeded(name, seed, **options)


def _time(work: Callable[[], object]) -> float:
    """Seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


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
