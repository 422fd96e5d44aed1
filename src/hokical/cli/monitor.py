"""`hokical monitor`: feed labelled logits to a monitor that is kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hokical
from hokical.cli.data import load_calibrator, load_examples
from hokical.cli.options import Bins, CalibratorFile, Json, Labels, Part, Split
from hokical.cli.show import check_options, interval, show_facts, show_json
from hokical.cli.spinner import spinner

if TYPE_CHECKING:
    from hokical.calibrators import Calibrator
    from hokical.monitoring import CalibrationMonitor, Status


def monitor(
    calibrator: CalibratorFile,
    logits: Annotated[Path, typer.Argument(metavar="LOGITS", help="New logits with labels.")],
    state: Annotated[
        Path | None,
        typer.Option(help="File that keeps the monitor between runs; created if missing."),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="Validation data; needed at first, except for unweighted hoki."),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="File of JSON lines to append the status to.")
    ] = None,
    prometheus: Annotated[
        Path | None, typer.Option(help="File for the status in Prometheus' text format.")
    ] = None,
    window: Annotated[int, typer.Option(min=1, help="Labelled examples that count as now.")] = 5000,
    bins: Bins = 15,
    delta: Annotated[float, typer.Option(help="Probability of ever raising a false alarm.")] = 0.01,
    tolerance: Annotated[
        float, typer.Option(help="Tolerated gap between confidence and accuracy.")
    ] = 0.01,
    model: Annotated[str, typer.Option(help="Name of the model in exports.")] = "model",
    labels: Labels = None,
    split: Split = Part.test,
    as_json: Json = False,
) -> None:
    """Watch a model in service for drift of confidence and inputs.

    Options of window and alarm apply to a new monitor; one from --state has
    its own.
    """
    for output in (state, log, prometheus):
        if output is not None:
            hokical.io.check_output(output, inputs=(calibrator, logits))
    fitted = load_calibrator(calibrator)
    examples = load_examples(logits, split, labels, fitted_by=fitted)
    options = {"window": window, "n_bins": bins, "delta": delta, "tolerance": tolerance}
    watching = _open_monitor(state, fitted, reference, {**options, "model": model})
    with spinner(f"Watching {fitted.name}"):
        watching.update_logits(examples.logits, examples.labels)
    _export(watching, state, log, prometheus)
    _show(watching.status(), as_json)


def _open_monitor(
    state: Path | None, fitted: Calibrator, reference: Path | None, options: dict[str, Any]
) -> CalibrationMonitor:
    """The monitor from the state file, or a new one."""
    if state is not None and state.exists():
        with check_options("CALIBRATOR or --state"):
            return hokical.CalibrationMonitor.load(state, fitted)
    if reference is not None:
        known = load_examples(reference, Part.val, fitted_by=fitted)
        with check_options():
            return hokical.CalibrationMonitor.from_validation(
                fitted, known.logits, known.labels, **options
            )
    if fitted.neighbours_ is None or fitted.fit_scores_ is None:
        raise typer.BadParameter(
            f"this {fitted.name} does not keep a count of its fit-time examples; pass them with "
            "--reference."
        )
    with check_options():
        return hokical.CalibrationMonitor(fitted, **options)


def _export(
    watching: hokical.CalibrationMonitor,
    state: Path | None,
    log: Path | None,
    prometheus: Path | None,
) -> None:
    """The state first: counts must not be lost, a status can be made again."""
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
    ece, inputs, drift = status.ece, status.inputs, status.calibration
    shift = "\N{EN DASH}" if inputs is None else f"PSI {inputs.psi:.3f}, p {inputs.p_value:.2g}"
    lines = {
        "verdict": str(status.verdict),
        "labels": f"{status.n:,} so far, {status.n_window:,} in the window",
        "says / right": f"{status.mean_confidence:.1%} / {status.accuracy:.1%}",
        "ECE": f"{ece.value:.4f} (true error in {interval(ece.low, ece.high)})",
        "ECE since start": f"{status.ece_since_start:.4f}",
        "evidence": f"{drift.e_value:.3g} (alarm at {drift.threshold:.3g})",
        "inputs": shift,
    }
    show_facts(lines)
