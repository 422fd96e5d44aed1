"""`hokical apply`: labels and confidence for new logits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hokical.cli.data import load_calibrator, load_examples
from hokical.cli.options import Json, Part, Split
from hokical.cli.show import show_facts, show_json
from hokical.cli.waiting import waiting


def apply(
    calibrator: Annotated[Path, typer.Argument(metavar="CALIBRATOR", help="What `fit` saved.")],
    logits: Annotated[Path, typer.Argument(metavar="LOGITS", help="New logits.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write (.npz).")],
    proba: Annotated[
        bool, typer.Option("--proba", help="Also write `probabilities`, (n, classes).")
    ] = False,
    split: Split = Part.test,
    as_json: Json = False,
) -> None:
    """Write the predicted `labels` and their `confidence` for new logits."""
    from hokical.files import check_output, write_npz

    check_output(output, suffix=".npz", inputs=(calibrator, logits))
    fitted = load_calibrator(calibrator)
    data = load_examples(logits, split, need_labels=False, fitted_by=fitted).logits
    with waiting(f"Applying {fitted.name}"):
        arrays: dict[str, Any] = {
            "labels": fitted.predict(data),
            "confidence": fitted.predict_confidence(data),
        }
        if proba:
            arrays["probabilities"] = fitted.predict_proba(data)
        write_npz(output, **arrays)
    _show(fitted.name, arrays, output, as_json)


def _show(method: str, arrays: dict[str, Any], output: Path, as_json: bool) -> None:
    n_rows, mean = len(arrays["confidence"]), float(arrays["confidence"].mean())
    if as_json:
        facts = {"method": method, "output": str(output), "examples": n_rows}
        show_json(facts | {"mean_confidence": mean, "arrays": list(arrays)})
        return
    show_facts(
        {
            "method": method,
            "examples": f"{n_rows:,}",
            "mean confidence": f"{mean:.1%}",
            "written to": f"{output} ({', '.join(arrays)})",
        }
    )
