"""`hokical evaluate`: every metric of one set of logits, before and after calibration."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hokical.cli.data import in_many_files, load_calibrator, load_examples, say_weighted
from hokical.cli.dense import dense_checked, dense_options, load_dense
from hokical.cli.options import (
    Bins,
    ClassAxis,
    IgnoreLabel,
    Json,
    Labels,
    Part,
    Resamples,
    Seed,
    Split,
)
from hokical.cli.show import interval, new_table, say, show_json, show_table
from hokical.cli.waiting import waiting

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator
    from hokical.files import Examples
    from hokical.metrics.summaries import Summary

_TITLES = {
    "accuracy": "right",
    "mean_confidence": "says",
    "ece": "ECE",
    "ece_mass": "ECE, equal mass",
    "mce": "largest gap (MCE)",
    "debiased_ece": "debiased ECE (L2)",
    "smooth_ece": "smooth ECE",
    "ks_error": "KS error",
    "brier": "Brier",
    "refinement": "refinement",
    "log_loss": "log loss",
    "auroc": "AUROC *",
    "aurc": "AURC",
    "selective_risk": "risk at 80 % *",
    "sharpness": "sharpness",
    "brier_full": "Brier, all classes",
    "log_loss_full": "log loss, all cl.",
    "classwise_ece": "classwise ECE",
}
#: Metrics of which less is not better.
_NOT_LOWER = ("accuracy", "mean_confidence", "auroc", "sharpness")
_FOOTNOTE = "* AUROC: of being right, higher is better. Risk: errors among the surest 80 %."


def evaluate(
    logits: Annotated[Path, typer.Argument(metavar="LOGITS", help="Test logits with labels.")],
    calibrator: Annotated[
        Path | None, typer.Option(help="What `fit` saved; shown beside the plain softmax.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Also score the probabilities of all classes.")
    ] = False,
    bins: Bins = 15,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    labels: Labels = None,
    split: Split = Part.test,
    class_axis: ClassAxis = None,
    ignore_label: IgnoreLabel = None,
    as_json: Json = False,
) -> None:
    """Measure how honest confidence is, with intervals and guarantees.

    A folder (or 'pattern*') of Parquet files, or a Zarr store, is read in parts and may be larger
    than memory; there are no intervals then. Nor are there with --class-axis, where the guarantee
    is from one position per item.
    """
    dense = dense_options(logits, class_axis, ignore_label)
    fitted = None if calibrator is None else load_calibrator(calibrator)
    if dense is not None:
        arrays = load_dense(logits, split, labels)
        with dense_checked(logits):
            found = _dense_summaries(arrays, fitted, dense, n_bins=bins, full=full)
        _present(found, logits, as_json, unit="positions")
        return
    if in_many_files(logits):
        _evaluate_in_parts(logits, fitted, full, bins, split, labels, as_json)
        return
    examples = load_examples(logits, split, labels, weighted=True, fitted_by=fitted)
    summaries: dict[str, Summary] = {}
    for judged in (_softmax(examples), *([] if fitted is None else [fitted])):
        with waiting(f"Measuring {judged.name}"):
            summaries[judged.name] = _measured(judged, examples, full, bins, resamples, seed)
    _present(summaries, logits, as_json)


def _evaluate_in_parts(
    logits: Path,
    fitted: BaseCalibrator | None,
    full: bool,
    bins: int,
    split: Part,
    labels: Path | None,
    as_json: bool,
) -> None:
    from hokical.calibrators.registry import make
    from hokical.streams import evaluate as evaluate_stream
    from hokical.streams import open_source

    source = open_source(logits, split="val" if split is Part.val else "test", labels=labels)
    head = source.first_chunk().rows(slice(1))
    if head.weights is not None:
        say_weighted(logits)
    plain = make("uncalibrated").fit(head.logits, head.labels)
    summaries = {}
    for judged in (plain, *([] if fitted is None else [fitted])):
        with waiting(f"Measuring {judged.name}"):
            summaries[judged.name] = evaluate_stream(judged, source, n_bins=bins, full=full)
    _present(summaries, logits, as_json)


def _dense_summaries(
    arrays: dict[str, Any], fitted: BaseCalibrator | None, dense: dict[str, Any], **options: Any
) -> dict[str, Summary]:
    """Metrics of all positions that count; bounds, which need independence, of one per item."""
    from hokical.calibrators.registry import make
    from hokical.dense import Dense

    plain = Dense(make("uncalibrated"), **dense).fit(**arrays).calibrator_
    has_items = dense["class_axis"] % len(arrays["logits"].shape) != 0
    summaries = {}
    for judged in (plain, *([] if fitted is None else [fitted])):
        model, bounds = Dense(judged, **dense), {}
        with waiting(f"Measuring {judged.name}"):
            found = model.evaluate(**arrays, **options)
            if has_items:
                bounds = model.evaluate(**arrays, **options, max_positions_per_item=1).bounds
        summaries[judged.name] = replace(found, bounds=bounds)
    if any(found.bounds for found in summaries.values()):
        say("The guarantees are from one position per item: neighbours are not independent.")
    return summaries


def _present(
    summaries: dict[str, Summary], source: Path, as_json: bool, unit: str = "examples"
) -> None:
    if as_json:
        show_json({name: found.to_dict() for name, found in summaries.items()})
        return
    _show(summaries, source, unit)


def _softmax(examples: Examples) -> BaseCalibrator:
    from hokical.calibrators.registry import make

    return make("uncalibrated").fit(examples.logits, examples.labels)


def _measured(
    judged: BaseCalibrator, examples: Examples, full: bool, bins: int, resamples: int, seed: int
) -> Summary:
    from hokical.metrics import summary

    proba = judged.predict_proba(examples.logits) if full else None
    return summary(
        judged.predict_confidence(examples.logits),
        judged.predict(examples.logits) == examples.labels,
        proba=proba,
        labels=examples.labels if full else None,
        n_bins=bins,
        n_resamples=resamples,
        seed=seed,
        sample_weight=examples.weights,
    )


def _show(summaries: dict[str, Summary], source: Path, unit: str) -> None:
    some = next(iter(summaries.values()))
    intervals = some.options.n_resamples > 0
    columns = ["metric"]
    for name in summaries:
        columns += [name, f"{some.options.level:.0%} interval"] if intervals else [name]
    table = new_table(columns)
    for metric in some.estimates:
        table.add_row(_TITLES.get(metric, metric), *_cells(summaries, metric, intervals))
    guarantees = [_guarantee(name, found) for name, found in summaries.items() if found.bounds]
    show_table(f"{source.name}: {some.n:,} {unit}", table, _FOOTNOTE, "", *guarantees)


def _cells(summaries: dict[str, Summary], metric: str, intervals: bool) -> list[str]:
    """Value and interval per calibrator, the better value in bold where lower is better."""
    shown = [f"{found[metric].value:.4f}" for found in summaries.values()]
    # Compared as shown, but as numbers: 2.1 is less than 12.3.
    numbers = [float(value) for value in shown if not math.isnan(float(value))]
    best = min(numbers) if len(set(shown)) > 1 and numbers and metric not in _NOT_LOWER else None
    cells = []
    for value, found in zip(shown, summaries.values(), strict=True):
        cells.append(f"[bold]{value}[/bold]" if float(value) == best else value)
        if intervals:
            cells.append(interval(found[metric].low, found[metric].high))
    return cells


def _guarantee(name: str, found: Summary) -> str:
    certainty = 1.0 - found.options.delta
    return (
        f"{name}: with {certainty:.0%} certainty the true calibration error is below "
        f"{found.bounds['bousquet']:.4f}."
    )
