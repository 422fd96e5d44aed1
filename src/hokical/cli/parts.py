"""`hokical apply` over many Parquet files, here or on a cluster."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hokical.cli.data import load_calibrator
from hokical.cli.options import Part
from hokical.cli.show import show_facts, show_json
from hokical.cli.waiting import waiting

if TYPE_CHECKING:
    from hokical.streams.parts import PartResult


def apply_to_parts(
    calibrator: Path,
    data: Path,
    output: Path,
    *,
    proba: bool,
    split: Part,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """One output file per input file; those that are there already are left alone."""
    from hokical.streams.parts import PartTask, apply_parts, plan_parts

    if output.suffix == ".npz":
        raise typer.BadParameter(
            f"{output}: results of a folder, {data}, go into a folder, not an .npz."
        )
    fitted = load_calibrator(calibrator)
    jobs = plan_parts(data, output)
    task = PartTask(fitted, proba=proba, split="val" if split is Part.val else "test")
    with waiting(f"Applying {fitted.name} to {len(jobs)} files"), _cluster(scheduler) as run:
        results = apply_parts(task, jobs, run)
    _show(fitted.name, results, output, as_json)


def _cluster(scheduler: str | None) -> Any:
    if scheduler is None:
        return nullcontext()
    from hokical.integrations.dask import library, on_cluster

    try:
        library("distributed")
    except ImportError as error:
        raise typer.BadParameter(str(error), param_hint="--scheduler") from error
    return on_cluster(scheduler)


def _show(method: str, results: list[PartResult], output: Path, as_json: bool) -> None:
    rows = sum(result.n_rows for result in results)
    mean = sum(result.confidence for result in results) / rows if rows else float("nan")
    already = sum(result.already_done for result in results)
    if as_json:
        facts = {"method": method, "output": str(output), "examples": rows, "parts": len(results)}
        show_json(facts | {"already_done": already, "mean_confidence": mean if rows else None})
        return
    done = f" ({already} of them were there already)" if already else ""
    show_facts(
        {
            "method": method,
            "examples": f"{rows:,}",
            "mean confidence": f"{mean:.1%}",
            "written to": f"{len(results)} files in {output}{done}",
        }
    )
