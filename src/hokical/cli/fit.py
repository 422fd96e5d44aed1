"""`hokical fit`: learn a calibrator from validation logits and save it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hokical.cli.data import check_method, in_many_files, load_examples, say_weighted
from hokical.cli.dense import dense_checked, dense_options, load_dense
from hokical.cli.options import (
    ClassAxis,
    IgnoreLabel,
    Json,
    Labels,
    Part,
    PositionsPerItem,
    Seed,
    Split,
    Validation,
)
from hokical.cli.show import options_checked, say, show_facts, show_json
from hokical.cli.waiting import waiting

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator
    from hokical.files import Examples


def fit(
    val: Validation,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to save it (.json).")],
    method: Annotated[str, typer.Option(help="Name from `hokical methods`, or auto.")] = "hoki",
    noise: Annotated[
        str | None, typer.Option(help="For hoki: auto, gaussian:2.0, uniform:-2,4 or gumbel:1.5.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=1, help="For hoki: count over so many noise draws instead of exactly."),
    ] = None,
    bins: Annotated[
        int | None, typer.Option(min=1, help="For hoki: number of confidence bins (15).")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A folder from which a fit that was killed goes on; read in parts."),
    ] = None,
    seed: Seed = 0,
    labels: Labels = None,
    split: Split = Part.val,
    class_axis: ClassAxis = None,
    ignore_label: IgnoreLabel = None,
    max_positions_per_item: PositionsPerItem = None,
    as_json: Json = False,
) -> None:
    """Learn a calibrator from validation logits and labels, and save it.

    A folder (or 'pattern*') of Parquet files, a Zarr store, and any file with --checkpoint are read
    in parts, so they may be larger than memory.
    """
    from hokical.files import check_output

    calibrator = _make(method, noise, draws, bins, seed)
    check_output(output, inputs=(val, labels))
    dense = dense_options(
        val, class_axis, ignore_label, max_positions_per_item, checkpoint=checkpoint
    )
    if dense is not None:
        dense["random_state"] = seed
        _fit_dense(calibrator, load_dense(val, split, labels), dense, val, output, as_json)
        return
    if checkpoint is not None or in_many_files(val):
        _fit_in_parts(calibrator, val, split, labels, checkpoint, output, as_json)
        return
    examples = load_examples(val, split, labels, weighted=True)
    seconds = _fitted(calibrator, examples)
    calibrator.save(output)
    _show(calibrator, _counts(examples), seconds, output, as_json)


def _make(
    method: str, noise: str | None, draws: int | None, bins: int | None, seed: int
) -> BaseCalibrator:
    from hokical.calibrators.registry import make_seeded
    from hokical.noise import parse_noise

    options: dict[str, Any] = {"noise": noise, "draws": draws, "n_bins": bins}
    options = {name: value for name, value in options.items() if value is not None}
    if check_method(method) != "hoki":
        if options:
            raise typer.BadParameter("--noise, --draws and --bins are options of hoki alone.")
        return make_seeded(method, seed)
    if noise is not None and noise != "auto":
        with options_checked("--noise"):
            options["noise"] = parse_noise(noise)
    return make_seeded(method, seed, **options)


def _fit_in_parts(
    calibrator: BaseCalibrator,
    val: Path,
    split: Part,
    labels: Path | None,
    checkpoint: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    from hokical.streams import fit as fit_stream
    from hokical.streams import open_source

    source = open_source(val, split="val" if split is Part.val else "test", labels=labels)
    if source.first_chunk().weights is not None:
        say_weighted(val)
    # Every pass draws a progress bar of its own.
    seconds = _timed(lambda: fit_stream(calibrator, source, checkpoint=checkpoint))
    calibrator.save(output)
    _show(calibrator, _counted(calibrator, source.n_rows), seconds, output, as_json)


def _fit_dense(
    calibrator: BaseCalibrator,
    arrays: dict[str, Any],
    dense: dict[str, Any],
    val: Path,
    output: Path,
    as_json: bool,
) -> None:
    from hokical.dense import Dense

    model = Dense(calibrator, **dense)
    with dense_checked(val):
        seconds = _timed(lambda: model.fit(**arrays))
    model.save(output)
    fitted = model.calibrator_
    _show(fitted, _counted(fitted, None), seconds, output, as_json, unit="positions")


def _fitted(calibrator: BaseCalibrator, examples: Examples) -> float:
    """Fit, pass warnings on to stderr, and return the seconds it took."""
    # The choice of noise draws a progress bar of its own.
    searching = getattr(calibrator, "noise", None) == "auto"
    with nullcontext() if searching else waiting(f"Fitting {calibrator.name}"):
        return _timed(lambda: calibrator.fit(*examples.pair, examples.weights))


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    for warning in caught:
        say(f"Warning: {warning.message}")
    return time.perf_counter() - begun


def _counts(examples: Examples) -> dict[str, Any]:
    right = (examples.logits.labels == examples.labels).mean()
    return {"examples": examples.logits.n_rows, "accuracy": float(right)}


def _counted(calibrator: BaseCalibrator, n_rows: int | None) -> dict[str, Any]:
    """As `_counts`, from what the calibrator counted while it was fitted, if it did."""
    counted = calibrator.fit_scores_
    if counted is None:
        return {"examples": n_rows, "accuracy": None}
    return {"examples": counted.total, "accuracy": 1.0 - int(counted.wrong.sum()) / counted.total}


def _show(
    calibrator: BaseCalibrator,
    counts: dict[str, Any],
    seconds: float,
    output: Path,
    as_json: bool,
    unit: str = "examples",
) -> None:
    noise = getattr(calibrator, "noise_", None)
    facts = {
        "method": calibrator.name,
        "output": str(output),
        "examples": counts["examples"],
        "classes": calibrator.n_classes_,
        "accuracy": counts["accuracy"],
        "noise": None if noise is None else noise.to_dict(),
        "converged": bool(getattr(calibrator, "converged_", True)),
        "fit_seconds": seconds,
        "chosen": getattr(calibrator, "chosen_", None),
        "reason": getattr(calibrator, "reason_", None),
    }
    if as_json:
        show_json(facts)
        return
    rows = {"method": calibrator.name, "learned from": _data_in_words(facts, unit)}
    rows |= {} if noise is None else {"noise": repr(noise)}
    rows |= {} if facts["reason"] is None else {"chosen": facts["reason"]}
    show_facts(rows | {"took": f"{seconds:.2f} s", "saved to": str(output)})


def _data_in_words(facts: dict[str, Any], unit: str) -> str:
    rows, right = facts["examples"], facts["accuracy"]
    known = [] if rows is None else [f"{rows:,} {unit}"]
    known += [f"{facts['classes']} classes"]
    known += [] if right is None else [f"{right:.1%} right"]
    return ", ".join(known)
