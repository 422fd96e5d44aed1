"""`hokical apply`: labels and confidence for new logits."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from hokical.cli.data import in_many_files, load_calibrator, load_examples
from hokical.cli.dense import dense_checked, dense_options, load_dense
from hokical.cli.options import ClassAxis, IgnoreLabel, Json, Part, Split
from hokical.cli.parts import apply_to_parts
from hokical.cli.show import options_checked, show_facts, show_json
from hokical.cli.waiting import waiting

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator
    from hokical.dense import Dense

_NOT_CERTIFIED = (
    "pixels and tokens of the fit prove nothing, as neighbours are right and wrong together; "
    "certify the calibrator on new items in Python: `cal = Dense.load(FILE, class_axis=...)`, "
    "`cal.certify(logits, labels)`, `cal.save(FILE)`."
)


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
    class_axis: ClassAxis = None,
    ignore_label: IgnoreLabel = None,
    as_json: Json = False,
) -> None:
    """Write the predicted `labels` and their `confidence` for new logits.

    For a folder of Parquet files, one file of results is written per file, with the rows in their
    order. Files that are there already, made from the same, are left alone: run it again after a
    crash and it goes on.

    With --class-axis the results have the shape of the logits without the classes. Labels are not
    looked at, so --ignore-label changes nothing; an array `mask` does: -1 and NaN where it is 0.
    """
    from hokical.files import check_output, write_npz

    dense = dense_options(logits, class_axis, ignore_label, scheduler=scheduler)
    if dense is None and (scheduler is not None or in_many_files(logits)):
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
    model: BaseCalibrator | Dense = fitted
    if dense is None:
        examples = load_examples(logits, split, need_labels=False, fitted_by=fitted)
        given: dict[str, Any] = {"logits": examples.logits}
    else:
        model, given = _dense_model(fitted, logits, split, dense, risk)
    if risk is not None:
        _check_risk(fitted, risk, delta)
    checked = nullcontext() if dense is None else dense_checked(logits)
    with waiting(f"Applying {fitted.name}"), checked:
        arrays, facts = _results(model, given, proba, risk, delta)
        write_npz(output, **arrays)
    _show(fitted.name, arrays, facts, output, as_json, "examples" if dense is None else "positions")


def _dense_model(
    fitted: BaseCalibrator, logits: Path, split: Part, dense: dict[str, Any], risk: float | None
) -> tuple[Dense, dict[str, Any]]:
    """What predicts maps, and the arguments of its predictions."""
    from hokical.dense import Dense

    if risk is not None and fitted.held_out_scores_ is None:
        raise typer.BadParameter(_NOT_CERTIFIED, param_hint="--risk")
    arrays = load_dense(logits, split, need_labels=False)
    given = {name: array for name, array in arrays.items() if name in ("logits", "mask")}
    return Dense(fitted, **dense), given


def _check_risk(fitted: BaseCalibrator, risk: float, delta: float) -> None:
    """Whether the calibrator can go by them, whatever the logits; those are not to blame."""
    with options_checked("--risk / --delta"):
        fitted.predict_or_abstain(np.zeros((1, fitted.n_classes_)), risk=risk, delta=delta)


def _results(
    fitted: BaseCalibrator | Dense,
    given: dict[str, Any],
    proba: bool,
    risk: float | None,
    delta: float,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to write, and what to say of it beside."""
    facts: dict[str, Any] = {}
    if risk is None:
        arrays = {
            "labels": fitted.predict(**given),
            "confidence": fitted.predict_confidence(**given),
        }
    else:
        arrays, facts = _select(fitted, given, risk, delta)
    if proba:
        arrays["probabilities"] = fitted.predict_proba(**given)
    return arrays, facts


def _select(
    fitted: BaseCalibrator | Dense, given: dict[str, Any], risk: float, delta: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to write, and what to say of it, where labels are accepted at a risk."""
    found = fitted.predict_or_abstain(**given, risk=risk, delta=delta)
    names = ("labels", "confidence", "accepted")
    arrays = {name: getattr(found, name) for name in names}
    known = found.accepted[~np.isnan(found.confidence)]  # NaN where a mask is 0
    share = float(known.mean()) if known.size else float("nan")
    return arrays, {"accepted_share": share, "guarantee": found.guarantee}


def _show(
    method: str,
    arrays: dict[str, Any],
    facts: dict[str, Any],
    output: Path,
    as_json: bool,
    unit: str,
) -> None:
    known = arrays["confidence"][~np.isnan(arrays["confidence"])]  # NaN where a mask is 0
    n_rows, mean = known.size, float(known.mean()) if known.size else float("nan")
    if as_json:
        done = {"method": method, "output": str(output), "examples": n_rows}
        show_json(done | {"mean_confidence": mean, "arrays": list(arrays)} | facts)
        return
    lines = {
        "method": method,
        unit: f"{n_rows:,}",
        "mean confidence": f"{mean:.1%}",
        "written to": f"{output} ({', '.join(arrays)})",
    }
    if facts:
        lines |= {"accepted": f"{facts['accepted_share']:.1%}", "guarantee": facts["guarantee"]}
    show_facts(lines)
