"""`hokical monitor`: feed labelled logits to a monitor that is kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hokical.cli.data import load_calibrator, load_examples
from hokical.cli.options import Bins, Json, Labels, Part, Split
from hokical.cli.show import interval, options_checked, show_facts, show_json
from hokical.cli.waiting import waiting

if TYPE_CHECKING:
    from hokical.calibrators.base import BaseCalibrator
    from hokical.monitoring import CalibrationMonitor, Status


def monitor(
    calibrator: Annotated[Path, typer.Argument(metavar="CALIBRATOR", help="What `fit` saved.")],
    logits: Annotated[Path, typer.Argument(metavar="LOGITS", help="New logits with labels.")],
    state: Annotated[
        Path | None,
        typer.Option(help="File that keeps the monitor between runs; made if it is not there."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="Validation logits with labels; needed once, but for hoki without weights."
        ),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="File of JSON lines to append the status to.")
    ] = None,
    prometheus: Annotated[
        Path | None, typer.Option(help="File to write the status to in Prometheus' text format.")
    ] = None,
    window: Annotated[int, typer.Option(min=1, help="Labelled examples that count as now.")] = 5000,
    bins: Bins = 15,
    alpha: Annotated[float, typer.Option(help="Chance of ever raising a false alarm.")] = 0.01,
    tolerance: Annotated[
        float, typer.Option(help="By how much confidence may be off, as a share.")
    ] = 0.01,
    model: Annotated[str, typer.Option(help="Name of the model in exports.")] = "model",
    labels: Labels = None,
    split: Split = Part.test,
    as_json: Json = False,
) -> None:
    """Watch confidence in service: is it still honest, and are the inputs the same?

    The options of window and alarm count when the monitor is made; a kept one has its own.
    """
    from hokical.files import check_output

    for output in (state, log, prometheus):
        if output is not None:
            check_output(output, inputs=(calibrator, logits))
    fitted = load_calibrator(calibrator)
    examples = load_examples(logits, split, labels, fitted_by=fitted)
    options = {"window": window, "n_bins": bins, "alpha": alpha, "tolerance": tolerance}
    watching = _opened(state, fitted, reference, {**options, "model": model})
    with waiting(f"Watching {fitted.name}"):
        watching.update_logits(examples.logits, examples.labels)
    _export(watching, state, log, prometheus)
    _show(watching.status(), as_json)


def _opened(
    state: Path | None, fitted: BaseCalibrator, reference: Path | None, options: dict[str, Any]
) -> CalibrationMonitor:
    """The kept monitor, or a new one."""
    from hokical.calibrators.hoki import Hoki
    from hokical.monitoring import CalibrationMonitor

    if state is not None and state.exists():
        with options_checked("CALIBRATOR or --state"):
            return CalibrationMonitor.load(state, fitted)
    if reference is not None:
        known = load_examples(reference, Part.val, fitted_by=fitted)
        with options_checked():
            return CalibrationMonitor.from_validation(fitted, known.logits, known.labels, **options)
    if not isinstance(fitted, Hoki) or fitted.fit_scores_ is None:
        raise typer.BadParameter(
            f"this {fitted.name} does not keep a count of its fit-time examples; give them with "
            "--reference."
        )
    with options_checked():
        return CalibrationMonitor(fitted, **options)


def _export(
    watching: CalibrationMonitor, state: Path | None, log: Path | None, prometheus: Path | None
) -> None:
    """The state first: what was counted must not be lost, a status can be made again."""
    if state is not None:
        watching.save(state)
    if log is not None:
        watching.append_json_line(log)
    if prometheus is not None:
        watching.write_prometheus(prometheus)


def _show(status: Status, as_json: bool) -> None:
    if as_json:
        show_json(status.to_dict())
        return
    ece, inputs = status.ece, status.inputs
    unknown = "\N{EN DASH}"
    show_facts(
        {
            "verdict": str(status.verdict),
            "labels": f"{status.n:,} so far, {status.n_window:,} in the window",
            "says / right": f"{status.mean_confidence:.1%} / {status.accuracy:.1%}",
            "ECE": f"{ece.value:.4f} (true error in {interval(ece.low, ece.high)})",
            "ECE since start": f"{status.ece_since_start:.4f}",
            "evidence": f"{status.calibration.e_value:.3g} "
            f"(alarm at {status.calibration.threshold:.3g})",
            "inputs": unknown
            if inputs is None
            else f"PSI {inputs.psi:.3f}, p {inputs.p_value:.2g}",
        }
    )
