"""`hokical apply`: labels and confidence for new logits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hokical.cli.data import in_many_files, load_calibrator, load_examples
from hokical.cli.options import Json, Part, Split
from hokical.cli.parts import apply_to_parts
from hokical.cli.show import options_checked, show_facts, show_json
from hokical.cli.waiting import waiting

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator


def apply(
    calibrator: Annotated[Path, typer.Argument(metavar="CALIBRATOR", help="What `fit` saved.")],
    logits: Annotated[
        Path,
        typer.Argument(
            metavar="LOGITS", help="New logits; or a folder (or 'pattern*') of .parquet files."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Where to write (.npz; a folder if LOGITS is one)."),
    ],
    proba: Annotated[
        bool, typer.Option("--proba", help="Also write `probabilities`, (n, classes).")
    ] = False,
    risk: Annotated[
        float | None,
        typer.Option(help="Also write `accepted`: labels wrong at most at this rate, say 0.05."),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="With --risk: the chance that the rate is larger after all.")
    ] = 0.1,
    scheduler: Annotated[
        str | None,
        typer.Option(help="For a folder: a Dask scheduler's address, say tcp://host:8786."),
    ] = None,
    split: Split = Part.test,
    as_json: Json = False,
) -> None:
    """Write the predicted `labels` and their `confidence` for new logits.

    For a folder of Parquet files, one file of results is written per file, with the rows in their
    order. Files that are there already, made from the same, are left alone: run it again after a
    crash and it goes on.
    """
    from hokical.files import check_output, write_npz

    if scheduler is not None or in_many_files(logits):
        if risk is not None:
            raise typer.BadParameter("--risk works on one file of logits, not on a folder.")
        apply_to_parts(
            calibrator,
            logits,
            output,
            proba=proba,
            split=split,
            scheduler=scheduler,
            as_json=as_json,
        )
        return
    check_output(output, suffix=".npz", inputs=(calibrator, logits))
    fitted = load_calibrator(calibrator)
    data = load_examples(logits, split, need_labels=False, fitted_by=fitted).logits
    facts: dict[str, Any] = {}
    with waiting(f"Applying {fitted.name}"):
        if risk is None:
            arrays = {
                "labels": fitted.predict(data),
                "confidence": fitted.predict_confidence(data),
            }
        else:
            arrays, facts = _select(fitted, data, risk, delta)
        if proba:
            arrays["probabilities"] = fitted.predict_proba(data)
        write_npz(output, **arrays)
    _show(fitted.name, arrays, facts, output, as_json)


def _select(
    fitted: BaseCalibrator, logits: Any, risk: float, delta: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to write, and what to say of it, where labels are accepted at a risk."""
    with options_checked("--risk / --delta"):
        found = fitted.predict_or_abstain(logits, risk=risk, delta=delta)
    names = ("labels", "confidence", "accepted")
    arrays = {name: getattr(found, name) for name in names}
    share = float(found.accepted.mean())
    return arrays, {"accepted_share": share, "guarantee": found.guarantee}


def _show(
    method: str, arrays: dict[str, Any], facts: dict[str, Any], output: Path, as_json: bool
) -> None:
    n_rows, mean = len(arrays["confidence"]), float(arrays["confidence"].mean())
    if as_json:
        known = {"method": method, "output": str(output), "examples": n_rows}
        show_json(known | {"mean_confidence": mean, "arrays": list(arrays)} | facts)
        return
    lines = {
        "method": method,
        "examples": f"{n_rows:,}",
        "mean confidence": f"{mean:.1%}",
        "written to": f"{output} ({', '.join(arrays)})",
    }
    if facts:
        lines |= {"accepted": f"{facts['accepted_share']:.1%}", "guarantee": facts["guarantee"]}
    show_facts(lines)
