"""`hokical export`: a calibrator as an ONNX file, alone or behind a classifier."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hokical
from hokical.cli import console as ui
from hokical.cli.options import command, read_calibrator
from hokical.io.tables import check_output


@command()
def export(
    calibrator: Path,
    output: Path,
    attach: Path | None = None,
    scores: str | None = None,
    probabilities: bool | None = None,
    opset: int | None = None,
    float32: bool = False,
    proba: bool | None = None,
    risk: float | None = None,
    delta: float | None = None,
    check: bool = True,
) -> ui.Result:
    """Write a calibrator as an ONNX model of plain operators.

    Alone it takes `logits`; with --attach it takes what the classifier takes,
    whose scores are logits or probabilities: --probabilities and --logits say
    which, where the classifier's graph does not show it. It gives
    `labels`, `confidence` and, where they cost little or with --proba,
    `probabilities`. Calibrators of confidences give `probability`. With --risk
    it gives `accepted`, guaranteed by the examples of `certify`, or else of
    the fit; --delta is 0.1 there.

    A model that cannot be run here is still written, and `check` says why it
    was not run.

    Example: hokical export cal.json -o cal.onnx
    """
    check_output(output, suffix=".onnx")
    fitted = read_calibrator(calibrator, for_rows=False)
    if risk is None:
        ui.refuse("only goes with --risk.", delta=delta)
    if float32:
        ui.refuse(
            "does not go with --float32, whose confidences are rounded.", risk=risk
        )
    options: dict[str, Any] = {
        "risk": risk,
        "delta": delta,
        "precision": "float32" if float32 else "float64",
        "probabilities": proba,
    }
    with ui.spinner(f"Exporting {fitted.name}"):
        if attach is None:
            ui.refuse(
                "only goes with --attach.", scores=scores, probabilities=probabilities
            )
            if opset is not None:
                options["opset"] = opset
            model = _export_alone(fitted, output, options)
        else:
            ui.refuse(
                "does not go with --attach: the classifier has its own.", opset=opset
            )
            readings = {None: None, True: "probabilities", False: "logits"}
            options |= {"scores": readings[probabilities], "output": scores}
            model = _attach(attach, fitted, output, options)
        checked = _check(model, fitted) if check else {}
    return _describe(model, fitted.name, output, checked)


def _export_alone(fitted: Any, output: Path, options: dict[str, Any]) -> Any:
    """The model of a calibrator, written to a file."""
    if fitted.metadata_.get("scores") == "probabilities":
        ui.say(
            "The fit had probabilities: as `logits` the model takes their logarithms."
        )
    with ui.check_options():
        return hokical.integrations.onnx.export(fitted, output, **options)


def _attach(
    classifier: Path, fitted: Any, output: Path, options: dict[str, Any]
) -> Any:
    """The model of a classifier with the calibrator behind it, written to a file."""
    if fitted.name in ("confidence", "multilabel"):
        raise ui.bad_option(
            "--attach", f"takes calibrators of logits; this one is {fitted.name}."
        )
    if not classifier.is_file():
        raise hokical.io.DataFileError(
            classifier, "expected an ONNX model; there is no such file."
        )
    with (
        ui.check_options("--attach"),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        model = hokical.integrations.onnx.attach(classifier, fitted, output, **options)
    for warning in caught:
        ui.warn(str(warning.message))
    return model


def _describe(
    model: Any, method: str, output: Path, checked: dict[str, Any]
) -> ui.Result:
    """What was written: inputs, outputs, operators and size."""
    describe_tensor = hokical.integrations.onnx.models.describe_tensor
    facts = {
        item.key.removeprefix("hokical_"): item.value for item in model.metadata_props
    }
    n_classes = facts.get("n_classes")
    size = output.stat().st_size
    inputs = [describe_tensor(tensor) for tensor in model.graph.input]
    outputs = [describe_tensor(tensor) for tensor in model.graph.output]
    values = {
        "method": method,
        "opset": int(facts["opset"]),
        "precision": facts["precision"],
        "output": str(output),
        "bytes": size,
        "classes": n_classes and int(n_classes),
        "inputs": inputs,
        "outputs": outputs,
        "guarantee": facts.get("guarantee"),
        **checked,
    }
    lines = {
        "method": f"{method}, {n_classes} classes" if n_classes else method,
        "inputs": ", ".join(inputs),
        "outputs": ", ".join(outputs),
        "guarantee": facts.get("guarantee"),
        "opset": f"{facts['opset']}, computed in {facts['precision']}",
        "written to": f"{output} ({size:,} bytes)",
        "check": checked.get("check"),
    }
    return ui.Result(values, lines)


def _check(model: Any, fitted: Any) -> dict[str, Any]:
    """How the model compares with Python, or why it was not run."""
    onnx = hokical.integrations.onnx
    try:
        agreement = onnx.check(model, fitted)
    except ImportError:
        return {"check": "not run: onnxruntime is not installed"}
    except onnx.NotRunnable as reason:
        return {"check": f"not run: {reason}"}
    if agreement.contradiction:
        ui.say(f"The model is wrong: {agreement.contradiction}.")
        return {
            "check": agreement.contradiction,
            "contradiction": agreement.contradiction,
        }
    numbers = asdict(agreement)
    n_rows = numbers.pop("n_rows")
    del numbers["contradiction"]
    verdict = (
        f"largest difference from Python {agreement.largest_difference:.1e}, "
        f"{agreement.labels_differing} labels differ, on {n_rows} rows"
    )
    if not agreement.agrees:
        ui.say(f"The model differs from Python: {verdict}.")
    return {"check": verdict, **numbers}
