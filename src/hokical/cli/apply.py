"""`hokical apply`: labels and confidence for new logits."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import hokical
from hokical.cli.data import in_many_files, load_calibrator, load_examples
from hokical.cli.dense import check_arrays, dense_options, load_dense
from hokical.cli.options import CalibratorFile, ClassAxis, IgnoreLabel, Json, Part, Split
from hokical.cli.show import check_options, show_facts, show_json
from hokical.cli.spinner import spinner

if TYPE_CHECKING:
    from hokical.calibrators import Calibrator
    from hokical.dense import Dense

_NOT_CERTIFIED = (
    "the pixels or tokens of a fit give no guarantee, as neighbours are not independent; certify "
    "the calibrator on new items in Python: `cal = Dense.load(FILE, class_axis=...)`, "
    "`cal.certify(logits, labels)`, `cal.save(FILE)`."
)


def apply(
    calibrator: CalibratorFile,
    logits: Annotated[
        Path,
        typer.Argument(
            metavar="LOGITS", help="New logits; or a folder (or 'pattern*') of .parquet files."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Output file (.npz), or a folder if LOGITS is one."),
    ],
    proba: Annotated[
        bool, typer.Option("--proba", help="Also write `probabilities`, (n, classes).")
    ] = False,
    risk: Annotated[
        float | None,
        typer.Option(help="Also write `accepted`: labels with at most this error rate, e.g. 0.05."),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="With --risk: probability that the error rate is larger.")
    ] = 0.1,
    scheduler: Annotated[
        str | None,
        typer.Option(help="For a folder: address of a Dask scheduler, e.g. tcp://host:8786."),
    ] = None,
    split: Split = Part.test,
    class_axis: ClassAxis = None,
    ignore_label: IgnoreLabel = None,
    as_json: Json = False,
) -> None:
    """Write the predicted labels and their confidence for new logits.

    For a folder of Parquet files, one output file is written per input file,
    with the rows in the same order. Existing outputs of the same inputs are
    kept, so a rerun continues after a crash.

    With --class-axis the results have the shape of the logits without the
    classes. Labels are not read, so --ignore-label changes nothing. Where an
    array `mask` is 0, results are -1 and NaN.
    """
    dense = dense_options(logits, class_axis, ignore_label, scheduler=scheduler)
    if dense is None and (scheduler is not None or in_many_files(logits)):
        if risk is not None:
            raise typer.BadParameter("--risk works on one file of logits, not on a folder.")
        _apply_to_parts(calibrator, logits, output, proba, split, scheduler, as_json)
        return
    hokical.io.check_output(output, suffix=".npz", inputs=(calibrator, logits))
    fitted = load_calibrator(calibrator)
    model: Calibrator | Dense = fitted
    if dense is None:
        examples = load_examples(logits, split, need_labels=False, fitted_by=fitted)
        given: dict[str, Any] = {"logits": examples.logits}
    else:
        if risk is not None and fitted.held_out_scores_ is None:
            raise typer.BadParameter(_NOT_CERTIFIED, param_hint="--risk")
        arrays = load_dense(logits, split, need_labels=False)
        given = {name: array for name, array in arrays.items() if name in ("logits", "mask")}
        model = hokical.Dense(fitted, **dense)
    if risk is not None:
        with check_options("--risk / --delta"):  # with logits that are not to blame
            fitted.predict_or_abstain(np.zeros((1, fitted.n_classes_)), risk=risk, delta=delta)
    check = nullcontext() if dense is None else check_arrays(logits)
    with spinner(f"Applying {fitted.name}"), check:
        results, facts = _predict(model, given, proba, risk, delta)
        hokical.io.write_npz(output, **results)
    confidence = results["confidence"][~np.isnan(results["confidence"])]  # NaN: masked
    facts = {"arrays": list(results), **facts}
    unit = "examples" if dense is None else "positions"
    mean = float(confidence.mean()) if confidence.size else float("nan")
    _show(fitted.name, confidence.size, mean, output, facts, as_json, unit)


def _predict(
    model: Calibrator | Dense, given: dict[str, Any], proba: bool, risk: float | None, delta: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays to write, and facts to show."""
    facts: dict[str, Any] = {}
    if risk is None:
        labels, confidence = model.predict(**given), model.predict_confidence(**given)
        arrays = {"labels": labels, "confidence": confidence}
    else:
        found = model.predict_or_abstain(**given, risk=risk, delta=delta)
        arrays = {name: getattr(found, name) for name in ("labels", "confidence", "accepted")}
        known = found.accepted[~np.isnan(found.confidence)]  # NaN: masked
        share = float(known.mean()) if known.size else float("nan")
        facts = {"accepted_share": share, "guarantee": found.guarantee}
    if proba:
        arrays["probabilities"] = model.predict_proba(**given)
    return arrays, facts


def _apply_to_parts(
    calibrator: Path,
    logits: Path,
    output: Path,
    proba: bool,
    split: Part,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """One output file per input file, here or on a cluster; existing ones are kept."""
    if output.suffix == ".npz":
        raise typer.BadParameter(
            f"{output}: results of a folder, {logits}, go into a folder, not an .npz."
        )
    fitted = load_calibrator(calibrator)
    jobs = hokical.streams.plan_parts(logits, output)
    task = hokical.streams.PartTask(fitted, proba=proba, split=split.literal)
    with spinner(f"Applying {fitted.name} to {len(jobs)} files"), _cluster(scheduler) as run:
        results = hokical.streams.apply_parts(task, jobs, run)
    rows = sum(result.n_rows for result in results)
    mean = sum(result.confidence for result in results) / rows if rows else float("nan")
    facts = {"parts": len(results), "already_done": sum(each.already_done for each in results)}
    _show(fitted.name, rows, mean, output, facts, as_json)


def _cluster(scheduler: str | None) -> Any:
    if scheduler is None:
        return nullcontext()
    try:
        hokical.integrations.dask.import_dask("distributed")
    except ImportError as error:
        raise typer.BadParameter(str(error), param_hint="--scheduler") from error
    return hokical.integrations.dask.on_cluster(scheduler)


def _show(
    method: str,
    rows: int,
    mean: float,
    output: Path,
    facts: dict[str, Any],
    as_json: bool,
    unit: str = "examples",
) -> None:
    if as_json:
        common = {"method": method, "output": str(output), "examples": rows}
        show_json(common | {"mean_confidence": mean} | facts)
        return
    lines = {"method": method, unit: f"{rows:,}", "mean confidence": f"{mean:.1%}"}
    if "parts" in facts:
        already = facts["already_done"]
        kept = f" ({already} of them were there already)" if already else ""
        lines["written to"] = f"{facts['parts']} files in {output}{kept}"
    else:
        lines["written to"] = f"{output} ({', '.join(facts['arrays'])})"
    if "guarantee" in facts:
        lines |= {"accepted": f"{facts['accepted_share']:.1%}", "guarantee": facts["guarantee"]}
    show_facts(lines)
