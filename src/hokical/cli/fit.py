"""`hokical fit`: learn a calibrator from validation logits and save it."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hokical.cli.data import check_method, load_examples
from hokical.cli.options import Json, Labels, Part, Seed, Split, Validation
from hokical.cli.show import options_checked, say, show_facts, show_json
from hokical.cli.waiting import waiting

if TYPE_CHECKING:
    from hokical.calibrators.base import Calibrator
    from hokical.files import Examples


def fit(
    val: Validation,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to save it (.json).")],
    method: Annotated[str, typer.Option(help="Name from `hokical methods`.")] = "hoki",
    noise: Annotated[
        str | None, typer.Option(help="For hoki: auto, gaussian:2.0, uniform:-2,4 or gumbel:1.5.")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=1, help="For hoki: count over so many noise draws instead of exactly."),
    ] = None,
    bins: Annotated[
        int | None, typer.Option(min=1, help="For hoki: number of confidence bins (15).")
    ] = None,
    seed: Seed = 0,
    labels: Labels = None,
    split: Split = Part.val,
    as_json: Json = False,
) -> None:
    """Learn a calibrator from validation logits and labels, and save it."""
    from hokical.files import check_output

    calibrator = _make(method, noise, draws, bins, seed)
    check_output(output, inputs=(val, labels))
    examples = load_examples(val, split, labels)
    seconds = _fitted(calibrator, examples)
    calibrator.save(output)
    _show(calibrator, examples, seconds, output, as_json)


def _make(
    method: str, noise: str | None, draws: int | None, bins: int | None, seed: int
) -> Calibrator:
    from hokical.calibrators.registry import make_seeded
    from hokical.noise import parse_noise

    options: dict[str, Any] = {"noise": noise, "draws": draws, "n_bins": bins}
    options = {name: value for name, value in options.items() if value is not None}
    if check_method(method) != "hoki":
        if options:
            raise typer.BadParameter("--noise, --draws and --bins are options of hoki alone.")
        return make_seeded(method, seed)
    if noise is not None and noise != "auto":
        with options_checked("--noise"):
            options["noise"] = parse_noise(noise)
    return make_seeded(method, seed, **options)


def _fitted(calibrator: Calibrator, examples: Examples) -> float:
    """Fit, pass warnings on to stderr, and return the seconds it took."""
    # The choice of noise draws a progress bar of its own.
    searching = getattr(calibrator, "noise", None) == "auto"
    begun = time.perf_counter()
    with (
        nullcontext() if searching else waiting(f"Fitting {calibrator.name}"),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        calibrator.fit(examples.logits, examples.labels)
    for warning in caught:
        say(f"Warning: {warning.message}")
    return time.perf_counter() - begun


def _show(
    calibrator: Calibrator, examples: Examples, seconds: float, output: Path, as_json: bool
) -> None:
    noise = getattr(calibrator, "noise_", None)
    facts = {
        "method": calibrator.name,
        "output": str(output),
        "examples": examples.logits.n_rows,
        "classes": examples.logits.n_classes,
        "accuracy": float((examples.logits.labels == examples.labels).mean()),
        "noise": None if noise is None else noise.to_dict(),
        "converged": bool(getattr(calibrator, "converged_", True)),
        "fit_seconds": seconds,
    }
    if as_json:
        show_json(facts)
        return
    rows = {"method": calibrator.name, "learned from": _data_in_words(facts)}
    rows |= {} if noise is None else {"noise": repr(noise)}
    show_facts(rows | {"took": f"{seconds:.2f} s", "saved to": str(output)})


def _data_in_words(facts: dict[str, Any]) -> str:
    return (
        f"{facts['examples']:,} examples, {facts['classes']} classes, {facts['accuracy']:.1%} right"
    )
