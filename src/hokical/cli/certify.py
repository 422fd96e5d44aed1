"""`hokical certify`: note held-out examples with a calibrator, for promises about new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import hokical
from hokical.cli import data
from hokical.cli import options as opt
from hokical.cli.beyond import Beyond
from hokical.cli.inputs import open_data
from hokical.cli.show import aliases, bad_option, show_result, spinner


@opt.reads(opt.Part.test, without=opt.BEYOND)
def certify(
    calibrator: opt.CalibratorFile,
    logits: Annotated[
        Path, opt.argument("HELD_OUT", "Logits and labels that nothing was fitted on.")
    ],
    given: opt.Input,
    output: Annotated[
        Path | None,
        opt.text("Output file (.json).", "-o", "--output", show_default="the calibrator's own"),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Note held-out examples, for `apply --risk` and `--coverage`.

    The file of the calibrator is replaced, whole or not at all; its answers
    stay the same. What was noted before is forgotten. Rows of the fit are
    refused: they look better than new ones.
    """
    if output is None and str(calibrator) in aliases:
        raise bad_option("--output", "is needed where CALIBRATOR is `-`.")
    target = output or calibrator
    fitted = data.read_calibrator(calibrator)
    hokical.io.check_output(target)
    found = open_data(logits, given, fitted=fitted)
    with spinner(f"Certifying {fitted.name}"):
        certified = found.certify(fitted)
    certified.save(target, metadata=fitted.metadata)
    noted: Any = getattr(certified, "held_out_conformity_", None)
    n = found.n_rows if isinstance(found, Beyond) else noted.n
    groups = None if noted is None or noted.group is None else len(noted.group_names)
    facts = {"method": fitted.name, "output": str(target), "examples": n, "groups": groups}
    lines = {
        "method": fitted.name,
        "certified on": f"{n:,} {found.unit} of {logits.name}",
        "groups": None if groups is None else f"{groups:,}",
        "saved to": str(target),
    }
    show_result(facts, lines, as_json)
