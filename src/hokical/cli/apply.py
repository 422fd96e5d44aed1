"""`hokical apply`: labels and confidence for new data."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import hokical
from hokical.cli import options as opt
from hokical.cli.console import DASH, bad_option, check_options, refuse, say, show_result, spinner
from hokical.cli.reading import Source, read_calibrator, warn_of_rows_of_fit
from hokical.cli.tables import event_index
from hokical.io._examples import Examples
from hokical.io._reading import list_files
from hokical.io._tables import TABLES, check_output

#: For which examples the coverage is guaranteed; see `Calibrator.predict_set`.
By = StrEnum("By", ["all", "class", "group", "label", "new group"])


def apply(
    calibrator: opt.CalibratorFile,
    data: opt.NewData,
    output: Annotated[Path, opt.Output],
    proba: Annotated[bool, opt.Proba] = False,
    keep: Annotated[
        str | None,
        opt.text("Columns to copy: a,b, or all, or none.", metavar="COLUMNS", show_default="id"),
    ] = None,
    risk: Annotated[
        float | None,
        opt.text("Also write `accepted`: labels with at most this error rate, e.g. 0.05."),
    ] = None,
    interval: Annotated[
        bool, opt.text("Also write `probability` of the event, `low` and `high`.", "--interval")
    ] = False,
    positive: opt.Positive = None,
    coverage: opt.Coverage = None,
    by: Annotated[
        By,
        opt.text(
            "Coverage for all examples, each class, label or group, or a 'new group' (--risk too).",
            metavar="WORD",
        ),
    ] = By.all,
    delta: Annotated[float | None, opt.Delta] = None,
    adapt: Annotated[
        bool, opt.text("First adapt to the class frequencies of these rows.", "--adapt")
    ] = False,
    score_columns: opt.ScoreColumns = None,
    probabilities: opt.Probabilities = None,
    groups: opt.Groups = None,
    missing: opt.MissingRows = opt.Missing.error,
    split: opt.Split = opt.Part.test,
    as_json: opt.Json = False,
) -> None:
    """Write the predicted labels and their confidence for new data.

    The output, a .csv, .csv.gz, .parquet or .npz, has one row per input row:
    columns to keep, label, confidence. Labels are names where those of the
    classes are known. With --missing drop, rows without a score stay, empty.

    --interval, after `certify` or of `venn_abers`, gives the probability of
    the event of two classes with its low and high end (95 %, or 1 - delta).

    --risk and --coverage are guaranteed by the examples of `certify`, or else
    of the fit. --delta is 0.1 with --risk; without it coverage is guaranteed
    on average.

    For a folder (or 'pattern*') of Parquet files, --output is a folder, which
    gets a file of the same name for each of them.
    """
    new = {"by": str(by)} if by == "new group" else {}
    if coverage is None and by is not By.all and not (new and risk is not None):
        raise bad_option("--by", "only goes with --coverage, and 'new group' with --risk too.")
    if delta is not None and risk is None and coverage is None and not interval:
        raise bad_option("--delta", "only goes with --risk, --coverage or --interval.")
    if adapt:
        refuse("does not go with --adapt.", risk=risk)
    own: dict[str, Any] = {} if delta is None else {"delta": delta}
    risks = None if risk is None else {"risk": risk, **own, **new}
    sets = None if coverage is None else {"coverage": coverage, "by": str(by), **own}
    fitted = read_calibrator(calibrator)
    if fitted.name == "confidence":
        why = "needs a calibrator of logits; this one is of confidences."
        refuse(why, proba=proba, coverage=coverage, adapt=adapt, interval=interval)
    event: Any = None
    if interval or positive is not None:
        event = event_index(positive, fitted.class_names, fitted.n_classes_)
        if event is None or not interval:
            what = "--interval" if interval else "--positive"
            raise bad_option(what, "is for two classes, and --positive goes with --interval.")
    given = Source(
        data, split, score_columns=score_columns, probabilities=probabilities, groups=groups,
        missing=missing, keep=keep,
    )  # fmt: skip
    files = _pair_files(given, output)
    done = []
    for source, target in files:
        rows = replace(given, path=source).read(fitted, "none")
        if risks or sets:
            warn_of_rows_of_fit(fitted, rows, source)
        with spinner(f"Applying {fitted.name}"):
            method = _adapt(fitted, rows) if adapt else fitted
            found, facts = _predict(method, rows, proba, risks, sets)
            if event is not None:
                found |= _event_interval(method, rows, event, 0.05 if delta is None else delta)
        columns = _columns(found, rows, target.suffix == ".npz")
        if marked := hokical.io.write_table(target, columns):
            say(f"{marked:,} cells of text that a spreadsheet would run begin with ' in {target}.")
        done.append(found)
    facts |= {"arrays": list(columns)} | ({"files": len(done)} if given.in_parts else {})
    for name, share in (("confidence", "mean_confidence"), ("accepted", "accepted_share")):
        if name in found:
            values = np.concatenate([each[name] for each in done])
            facts |= {"examples": values.size, share: float(values.mean()) if values.size else None}
    _show_predictions({"method": fitted.name, "output": str(output)} | facts, as_json)


def _pair_files(given: Source, output: Path) -> list[tuple[Path, Path]]:
    """Each file to read, and the file to write."""
    if not given.in_parts:
        check_output(output, suffix=(".npz", *TABLES))
        return [(given.path, output)]
    files = list_files(given.path)
    base = Path(os.path.commonpath([file.parent.resolve() for file in files]))
    place = output.resolve()
    if output.is_file() or output.suffix:
        raise bad_option("--output", f"must be a folder where the input is one; got {output}.")
    if place == base or base in place.parents:
        raise hokical.io.DataFileError(
            output, f"results would mix with the input files in {base}.", "Choose another folder."
        )
    pairs = [(file, output / file.resolve().relative_to(base)) for file in files]
    for _, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
    return pairs


def _adapt(fitted: hokical.Calibrator, rows: Examples) -> Any:
    """The calibrator for the class frequencies of the rows, unless something else has changed."""
    with check_options("--adapt"):
        found = fitted.estimate_shift(fitted._attach_groups(rows.scores, rows.groups))
        if not found.holds:
            raise ValueError(f"{found.verdict}. Apply the calibrator as it is, or fit it again.")
        say(str(found))
        return found.adapt()


def _predict(
    fitted: Any, rows: Examples, proba: bool, risk: dict[str, Any] | None, sets: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Labels, confidence and what else is asked for; the guarantees in words.

    `risk` and `sets` are the options of `predict_or_abstain` and `predict_set`, or None.
    """
    scores: Any = rows.scores
    own, facts = {"groups": rows.groups}, dict[str, Any]()
    if rows.kind == "confidence":
        found = {"confidence": fitted.predict(scores, rows.groups)}
    else:
        with check_options("--groups"):
            found = {"labels": fitted.predict(scores, **own)}
            found["confidence"] = fitted.predict_confidence(scores, **own)
    with check_options("--risk / --coverage / --delta"):
        if risk:
            chosen = fitted.predict_or_abstain(scores, **risk, **own)
            found["accepted"], facts["guarantee"] = chosen.accepted, chosen.guarantee
        if sets:
            if sets["by"] == "group" and rows.groups is None:
                raise ValueError("--by group needs the column of the groups: --groups COLUMN.")
            held = fitted.predict_set(scores, **sets, **own)
            found |= {"members": held.members, "set_size": held.sizes}
            facts["sets"] = held.guarantee
    if proba:
        vectors = found["probabilities"] = fitted.predict_proba(scores, **own)
        if others := int((vectors.argmax(axis=1) != found["labels"]).sum()):
            say(
                f"In {others:,} of {len(vectors):,} rows another class is more likely than the "
                "label: the calibrator keeps the classifier's own labels."
            )
    return found, facts


def _event_interval(fitted: Any, rows: Examples, event: int, delta: float) -> dict[str, Any]:
    """The probability of the event and its ends."""
    own: dict[str, Any] = {"groups": rows.groups}
    with check_options("--interval"):
        ends = fitted.predict_interval(rows.scores, delta=delta, label=event, **own)
    probability = fitted.predict_proba(rows.scores, **own)[:, event]
    return {"probability": probability, "low": ends[:, 0], "high": ends[:, 1]}


def _columns(results: dict[str, Any], rows: Examples, as_arrays: bool) -> dict[str, Any]:
    """Kept columns, then results; in a table labels by name, and a column per probability."""
    added = dict(results)
    if not as_arrays and "labels" in added:
        scores: Any = rows.scores
        names = np.array(rows.classes or range(scores.n_classes))
        added = {"label": names[added.pop("labels")]} | added
        if (members := added.pop("members", None)) is not None:
            texts = np.array(["|".join(map(str, names[row])) for row in members])
            added |= {"set": texts, "set_size": added.pop("set_size")}
        vectors = added.pop("probabilities", np.empty((0, 0)))
        added |= {f"probability_{names[k]}": column for k, column in enumerate(vectors.T)}
    added = {name: rows.fill(column) for name, column in added.items()}
    kept = {(f"input_{n}" if n in added else n): column for n, column in rows.kept.items()}
    for name in set(rows.kept) - set(kept):
        say(f"The column `{name}` of the input is called `input_{name}`, beside the new one.")
    return kept | added


def _show_predictions(values: dict[str, Any], as_json: bool) -> None:
    """Where the results are, and what is guaranteed about them."""
    names = values["arrays"]
    shown = ", ".join([*names[:6], *([f"... {len(names)} columns"] if len(names) > 6 else [])])
    place = f"{values['files']} files in " if "files" in values else ""
    mean, accepted = values["mean_confidence"], values.get("accepted_share")
    lines = {
        "method": values["method"],
        "examples": f"{values['examples']:,}",
        "mean confidence": DASH if mean is None else f"{mean:.1%}",
        "written to": f"{place}{values['output']} ({shown})",
        "accepted": None if accepted is None else f"{accepted:.1%}",
        "guarantee": values.get("guarantee"),
        "sets": values.get("sets"),
    }
    show_result(values, lines, as_json)
