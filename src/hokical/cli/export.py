"""`hokical export`: a calibrator as an ONNX file, alone or behind a classifier."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import hokical
from hokical.cli import options as opt
from hokical.cli.console import (
    bad_option,
    check_options,
    in_options,
    refuse,
    say,
    show_result,
    spinner,
    warn,
)
from hokical.cli.options import text
from hokical.cli.reading import read_calibrator
from hokical.io._tables import check_output

#: What the library's words are called here.
_OPTIONS = {
    '`scores="probabilities"`': "--probabilities",
    "`output`": "--scores",
    "`calibrator`": "the calibrator",
}


def export(
    calibrator: opt.CalibratorFile,
    output: Annotated[Path, opt.Output],
    attach: Annotated[Path | None, text("ONNX classifier to put the calibrator behind.")] = None,
    scores: Annotated[str | None, text("With --attach: its tensor of scores, if unclear.")] = None,
    probabilities: opt.Probabilities = None,
    opset: Annotated[int | None, text("Version of the operators.", show_default="17")] = None,
    float32: Annotated[
        bool, text("Compute in float32, for runtimes without float64.", "--float32")
    ] = False,
    proba: Annotated[bool | None, opt.Proba] = None,
    check: Annotated[bool, text("Run the result with onnxruntime and compare with Python.")] = True,
    as_json: opt.Json = False,
) -> None:
    """Write a calibrator as an ONNX model of plain operators.

    Alone it takes `logits`; with --attach it takes what the classifier takes,
    whose scores are logits unless --probabilities says otherwise. It gives
    `labels`, `confidence` and, where they cost little or with --proba,
    `probabilities`. Calibrators of confidences give `probability`.

    A model that cannot be run here is still written, and `check` says why it
    was not run.
    """
    check_output(output, suffix=".onnx")
    fitted = read_calibrator(calibrator, for_rows=False)
    options: dict[str, Any] = {"precision": "float32" if float32 else "float64"}
    options |= {"probabilities": proba}
    if attach is not None and fitted.name in ("confidence", "multilabel"):
        raise bad_option("--attach", f"takes calibrators of logits; this one is {fitted.name}.")
    with spinner(f"Exporting {fitted.name}"):
        if attach is None:
            refuse("only goes with --attach.", scores=scores, probabilities=probabilities)
            options |= {} if opset is None else {"opset": opset}
            if fitted.metadata_.get("scores") == "probabilities":
                say("The fit had probabilities: as `logits` the model takes their logarithms.")
            with check_options():
                model = hokical.integrations.onnx.export(fitted, output, **options)
        else:
            refuse("does not go with --attach: the classifier has its own.", opset=opset)
            kind = "probabilities" if probabilities else "logits"
            model = _attach(attach, fitted, output, options | {"output": scores, "scores": kind})
        checked = _check(model, fitted) if check else {}
    _show_export(fitted.name, model, output, checked, as_json)


def _attach(model: Path, fitted: hokical.Calibrator, output: Path, options: dict[str, Any]) -> Any:
    if not model.is_file():
        raise hokical.io.DataFileError(model, "expected an ONNX model; there is no such file.")
    with check_options("--attach", _OPTIONS), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both = hokical.integrations.onnx.attach(model, fitted, output, **options)
    for warning in caught:
        warn(in_options(str(warning.message), _OPTIONS))
    return both


def _check(model: Any, fitted: Any) -> dict[str, Any]:
    """How the model compares with Python, or why it was not run."""
    onnx = hokical.integrations.onnx
    try:
        found = onnx.check(model, fitted)
    except ImportError:
        return {"check": "not run: onnxruntime is not installed"}
    except onnx.NotRunnable as reason:
        return {"check": f"not run: {reason}"}
    verdict = (
        f"largest difference from Python {found.largest_difference:.1e}, "
        f"{found.labels_differing} labels differ, on {found.n_rows} rows"
    )
    if not found.agrees:
        say(f"The model differs from Python: {verdict}.")
    return {
        "check": verdict,
        "largest_difference": found.largest_difference,
        "labels_differing": found.labels_differing,
    }


def _show_export(name: str, model: Any, output: Path, checked: dict[str, Any], as_json: bool) -> None:
    facts = {item.key.removeprefix("hokical_"): item.value for item in model.metadata_props}
    describe = import_module("hokical.integrations.onnx._models").describe_tensor
    size, classes = output.stat().st_size, facts.get("n_classes")
    values = {"method": name, "opset": facts["opset"], "precision": facts["precision"]}
    values |= {"output": str(output), "bytes": size, "classes": classes and int(classes)}
    values |= {"inputs": [*map(describe, model.graph.input)]}
    values |= {"outputs": [*map(describe, model.graph.output)]}
    lines = {
        "method": values["method"] + (f", {classes} classes" if classes else ""),
        "inputs": ", ".join(values["inputs"]),
        "outputs": ", ".join(values["outputs"]),
        "opset": f"{values['opset']}, computed in {values['precision']}",
        "written to": f"{output} ({size:,} bytes)",
        "check": checked.get("check"),
    }
    show_result(values | {"opset": int(values["opset"])} | checked, lines, as_json)
