"""`hokical fit --confidence` and `hokical apply` of its files: one number per answer, no logits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

import hokical
from hokical.cli import data
from hokical.cli.options import Input
from hokical.cli.show import check_options, say, show_result


def fit_confidence(
    path: Path,
    given: Input,
    columns: tuple[str | None, str | None],
    settings: list[str],
    output: Path,
    as_json: bool,
) -> None:
    """Fit on the columns (confidence, right) of a file, and save."""
    confidence, right = columns
    if confidence is None or right is None:
        raise typer.BadParameter("--confidence and --right go together.")
    cal = hokical.ConfidenceCalibrator()
    cal.set_params(**data.read_settings(settings, cal.get_params(), "confidence"))
    hokical.io.check_output(output)
    rows = _read(path, replace(given, label_column=right), confidence)
    with check_options("--confidence / --right / --groups"):
        cal.fit(rows.logits.values[:, 1], rows.labels, rows.groups, rows.weights)
    assert rows.labels is not None
    groups = list(rows.groups or ())
    about = {"confidence": confidence, "right": right}
    cal.save(output, metadata=about | {"data": data.sketch(path, rows.part)})
    facts = {"method": cal.name, "output": str(output), "examples": rows.labels.size}
    facts |= {"accuracy": float(rows.labels.mean()), "groups": groups, "reason": cal.reason_}
    lines: dict[str, str | None] = {
        "method": cal.name,
        "fitted on": f"{rows.labels.size:,} answers, {rows.labels.mean():.1%} right",
        "chosen": cal.reason_,
        "saved to": str(output),
    }
    show_result(facts, lines, as_json)


def certify_confidence(
    cal: hokical.ConfidenceCalibrator, path: Path, given: Input, output: Path, as_json: bool
) -> None:
    """Count mistakes on the answers of a file, and save."""
    hokical.io.check_output(output)
    known = cal.metadata
    rows = _read(
        path,
        replace(
            given,
            label_column=given.label_column or known.get("right", "right"),
            groups=_groups(given, cal),
        ),
        _column(given, cal),
    )
    with check_options("HELD_OUT"):
        cal.certify(rows.logits.values[:, 1], rows.labels, rows.groups, rows.weights)
    cal.save(output, metadata=known)
    facts = {"method": cal.name, "output": str(output), "examples": cal.held_out_.total}
    on = f"{cal.held_out_.total:,} answers of {path.name}, {cal.held_out_.accuracy:.1%} right"
    lines: dict[str, str | None] = {"method": cal.name, "certified on": on, "saved to": str(output)}
    show_result(facts, lines, as_json)


def _groups(given: Input, cal: hokical.ConfidenceCalibrator) -> str | None:
    """The columns of groups, as given or as the fit used them."""
    coding = cal.rule_.coding
    return given.groups or (None if coding is None else ",".join(coding.columns))


def _column(given: Input, cal: hokical.ConfidenceCalibrator) -> str:
    """The column of confidences, as given or as in the fit; a file saved in Python has no name."""
    return given.binary_score or str(cal.metadata.get("confidence", "confidence"))


def apply_confidence(
    cal: hokical.ConfidenceCalibrator,
    path: Path,
    given: Input,
    keep: str | None,
    output: Path,
    promise: dict[str, float],
    as_json: bool,
) -> None:
    """Write the probability that each answer of a file is right."""
    hokical.io.check_output(output, suffix=(".npz", *hokical.io._writing.TABLES))
    given = replace(given, groups=_groups(given, cal))
    rows = _read(path, given, _column(given, cal), keep, False)
    values = rows.logits.values[:, 1]
    with check_options("--risk / --delta"):
        columns: dict[str, Any] = {"confidence": cal.predict(values, rows.groups)}
        facts: dict[str, Any] = {}
        if promise:
            found = cal.predict_or_abstain(values, rows.groups, **promise)
            columns["accepted"] = found.accepted
            facts = {"accepted_share": float(np.mean(found.accepted)), "guarantee": found.guarantee}
    unknown = {} if rows.groups is None else cal.unknown_groups(rows.groups)
    kept = {(f"input_{n}" if n in columns else n): column for n, column in rows.kept.items()}
    hokical.io.write_table(output, kept | columns)
    mean = float(np.mean(columns["confidence"]))
    lines = {
        "method": cal.name,
        "answers": f"{values.size:,}",
        "mean confidence": f"{mean:.1%}",
        "written to": f"{output} ({', '.join(kept | columns)})",
        "guarantee": facts.get("guarantee"),
    }
    facts |= {"examples": values.size, "mean_confidence": mean, "unknown_groups": unknown}
    show_result({"method": cal.name, "output": str(output)} | facts, lines, as_json)


def _read(
    path: Path, given: Input, confidence: str, keep: str | None = None, need_labels: bool = True
) -> hokical.io.LabelledRows:
    """The rows of a file; the confidence is read as the score of one column, unchanged."""
    wanted = data.choose_scores(replace(given, binary_score=confidence), keep)
    rows = hokical.io.read_examples(
        path, split=given.split.literal, labels=given.labels, wanted=wanted, need_labels=need_labels
    )
    if rows.n_dropped:
        say(f"Dropped {rows.n_dropped:,} rows of {path.name} without a value.")
    return rows
