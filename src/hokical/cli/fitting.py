"""`hokical fit` and `certify`: fit a calibrator, note held-out examples, and save it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import hokical
from hokical._core.reading import Rows
from hokical.cli import console as ui
from hokical.cli import options as opt
from hokical.cli.inspecting import describe
from hokical.cli.options import ANY, LABELLED, Source, command, read_calibrator
from hokical.io.tables import check_output, report_file

#: Of the lines of `hokical show`, those that are printed after a fit.
_SHOWN = (
    "method",
    "classes",
    "members",
    "needed",
    "fitted on",
    "noise",
    "chosen",
    "label",
)
_NEXT_STEPS = """\
Next, on new examples: measure it, store examples for guarantees, predict.
  hokical evaluate {output} TEST
  hokical certify {output} HELD_OUT
  hokical apply {output} NEW -o OUT.csv"""


@command(
    *ANY,
    "ensemble",
    split=opt.Part.val,
    val=opt.argument(
        "VAL...", "Logits and labels: .npz, .npy, .csv, .parquet.", show_default=False
    ),
)
def fit(
    val: list[Path],
    output: Path,
    method: str | None = None,
    settings: list[str] | None = None,
    keep_labels: bool | None = None,
    most_members: int | None = None,
    exchangeable: bool = False,
    *,
    source_options: Source,
) -> ui.Result:
    """Fit a calibrator on validation logits and labels, and save it.

    The label that `apply` writes is the most likely class after calibration;
    with --keep-labels it is the classifier's own. Methods other than the
    default have one of the two: see `hokical methods`.

    A folder (or 'pattern*') of Parquet files is read in parts, so it may
    be larger than memory.

    With --confidence, the calibrator takes one confidence per row; the label
    says whether the answer was right (0 or 1; by default in a column
    `right`). For percentages add --set scale=100.

    With --ensemble each file is a member: several evaluations of the same
    rows, by networks, models, prompts or transformed inputs. One file may
    hold all of them in columns NAME:logit_* or arrays logits_NAME.

    Example: hokical fit val.npz -o cal.json
    """
    name = opt.check_method(method or "auto")
    if keep_labels is not None and name != "auto":
        raise ui.bad_option(
            "--keep-labels", "is for the default, auto; see `hokical methods`."
        )
    check_output(output)
    data = source_options.at_files(val).open()
    data = _check_ensemble(data, most_members, exchangeable, source_options.ensemble)
    calibrator = _new_calibrator(data, name, method, keep_labels)
    opt.set_options(calibrator, settings or [])
    if keep_labels is not None:
        calibrator.set_params(keep_labels=keep_labels)
    start = time.perf_counter()
    with report_file(val[0]):
        accuracy = _fit(calibrator, data, most_members)
    seconds = time.perf_counter() - start
    metadata = {"examples": data.n_rows, **accuracy, **data.about}
    calibrator.save(output, metadata=metadata | {"classes": list(data.classes)})
    values, lines = describe(hokical.load(output))
    values |= {
        "output": str(output),
        "fit_seconds": seconds,
        "converged": calibrator.has_converged,
    }
    shown = {
        **{line: lines.get(line) for line in _SHOWN},
        "took": f"{seconds:.2f} s",
        "saved to": str(output),
    }
    return ui.Result(values, shown, remark=_next_steps(output, val))


def _next_steps(output: Path, val: list[Path]) -> str:
    """What to run next, with a file for each member where the fit had such."""
    steps = _NEXT_STEPS.format(output=output)
    if len(val) == 1:
        return steps
    for name in ("TEST", "HELD_OUT", "NEW"):
        steps = steps.replace(name, f"{name}... --ensemble")
    return steps


def _check_ensemble(
    data: Rows | hokical.streams.ChunkSource,
    most_members: int | None,
    exchangeable: bool,
    ensemble: bool,
) -> Rows | hokical.streams.ChunkSource:
    """The data, whose members may be exchangeable; options of an ensemble need one."""
    if not (isinstance(data, Rows) and isinstance(data.scores, hokical.Ensemble)):
        ui.refuse(
            "needs an ensemble: a file for each member, or one with columns "
            "NAME:logit_* or arrays logits_NAME.",
            ensemble=ensemble,
            most_members=most_members,
            exchangeable=exchangeable,
        )
        return data
    if not exchangeable:
        return data
    members = dict(zip(data.scores.names, data.scores.members, strict=True))
    return replace(data, scores=hokical.Ensemble(members, exchangeable=True))


def _new_calibrator(
    data: Rows | hokical.streams.ChunkSource,
    name: str,
    method: str | None,
    keep_labels: bool | None,
) -> Any:
    """The unfitted calibrator for the kind of the data."""
    if isinstance(data, Rows) and data.kind == "confidence":
        ui.refuse(
            "does not go with confidences.", method=method, keep_labels=keep_labels
        )
        return hokical.ConfidenceCalibrator()
    with_groups = isinstance(data, Rows) and data.groups is not None
    if with_groups and name != "auto":
        raise ui.bad_option(
            "--groups", f"only auto learns from groups, not {name}: leave out --method."
        )
    return hokical.make(name)


def _fit(
    calibrator: Any,
    data: Rows | hokical.streams.ChunkSource,
    most_members: int | None,
) -> dict[str, float]:
    """Fit, and return the accuracy before calibration if all rows are at hand."""
    if not isinstance(data, Rows):
        hokical.streams.fit(calibrator, data)
        return {}
    options = {} if most_members is None else {"most_members": most_members}
    with ui.spinner(f"Fitting {calibrator.name}"):
        calibrator.fit(
            data.scores, data.labels, data.weights, groups=data.groups, **options
        )
    calibrator.set_columns(data.columns, data.classes)
    if data.kind == "confidence":
        return {"accuracy": float(data.labels.mean())}
    scores = data.scores
    if isinstance(scores, hokical.Ensemble):
        scores = calibrator.fitted.read(scores, data.groups)
    return {"accuracy": float((scores.labels == data.labels).mean())}


@command(
    *LABELLED,
    "cluster",
    "ensemble",
    data=opt.argument("FILE...", "Logits and labels that nothing was fitted on."),
)
def certify(
    calibrator: Path,
    data: list[Path],
    output: Path | None = None,
    look_alike: bool = False,
    *,
    source_options: Source,
) -> ui.Result:
    """Store held-out examples, for `apply --risk` and `--coverage`.

    Without --output the file of the calibrator is replaced, whole or not at
    all. Its predictions stay the same; what was stored before is replaced.
    Calibration examples are refused: results on them are too good.

    Example: hokical certify cal.json held_out.npz
    """
    target = output or calibrator
    fitted = read_calibrator(calibrator, beside=data[0])
    check_output(target)
    source = source_options.at_files(data, fitted)
    examples = source.open(fitted)
    cluster = None
    reused: Literal["ignore", "refuse"] = "ignore" if look_alike else "refuse"
    with ui.spinner(f"Certifying {fitted.name}"), report_file(data[0]):
        if isinstance(examples, Rows):
            cluster = source_options.clusters(examples)
            certified = fitted.certify(
                examples.scores,
                examples.labels,
                examples.weights,
                groups=examples.groups,
                cluster=cluster,
                reused=reused,
            )
        else:
            certified = hokical.streams.certify(fitted, examples, reused=reused)
    certified.save(target, metadata=fitted.metadata_)
    n_examples, n_groups = _count_certified(certified)
    of_clusters = "" if cluster is None else ", one of each cluster"
    values = {
        "method": fitted.name,
        "output": str(target),
        "examples": n_examples,
        "groups": n_groups,
        "clusters": None if cluster is None else n_examples,
    }
    lines = {
        "method": fitted.name,
        "certified on": f"{n_examples:,} examples of {source.name}{of_clusters}",
        "groups": None if n_groups is None else f"{n_groups:,}",
        "saved to": str(target),
    }
    return ui.Result(values, lines)


def _count_certified(certified: Any) -> tuple[int, int | None]:
    """Numbers of stored examples and of their groups."""
    if not isinstance(certified, hokical.Calibrator):
        held_out = certified.held_out_
        groups = held_out.groups
        return held_out.total, None if groups is None else len(groups.names)
    evidence = certified.predictor_.evidence.conformity
    if evidence is None:
        return 0, None
    groups = evidence.group_names
    return evidence.n, None if groups is None else len(groups.names)
