"""`hokical certify`: store held-out examples with a calibrator, for guarantees about new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from hokical.cli import options as opt
from hokical.cli.console import show_result, spinner
from hokical.cli.reading import Source, certify_on, read_calibrator
from hokical.io._writing import check_output


def certify(
    calibrator: opt.CalibratorFile,
    data: opt.HeldOut,
    output: Annotated[Path | None, opt.Output] = None,
    labels: opt.Labels = None,
    label_column: opt.LabelColumn = None,
    score_columns: opt.ScoreColumns = None,
    probabilities: opt.Probabilities = None,
    groups: opt.Groups = None,
    missing: opt.MissingRows = opt.Missing.error,
    split: opt.Split = opt.Part.test,
    look_alike: opt.LookAlike = False,
    as_json: opt.Json = False,
) -> None:
    """Store held-out examples, for `apply --risk` and `--coverage`.

    Without --output the file of the calibrator is replaced, whole or not at
    all. Its predictions stay the same; what was stored before is replaced.
    Calibration examples are refused: results on them are too good.
    """
    target = output or calibrator
    fitted = read_calibrator(calibrator)
    check_output(target)
    found = Source(
        data, split, labels=labels, label_column=label_column, score_columns=score_columns,
        probabilities=probabilities, groups=groups, missing=missing,
    ).open(fitted)  # fmt: skip
    with spinner(f"Certifying {fitted.name}"):
        certified = certify_on(fitted, found, data, look_alike=look_alike)
    certified.save(target, metadata=fitted.metadata_)
    noted: Any = getattr(getattr(certified, "kept_", None), "held_out_conformity", None)
    n = found.n_rows if noted is None else noted.n
    groups_of = getattr(noted, "group_names", None)
    n_groups = None if groups_of is None else len(groups_of.names)
    values = {"method": fitted.name, "output": str(target), "examples": n, "groups": n_groups}
    lines = {
        "method": fitted.name,
        "certified on": f"{n:,} examples of {data.name}",
        "groups": None if n_groups is None else f"{n_groups:,}",
        "saved to": str(target),
    }
    show_result(values, lines, as_json)
