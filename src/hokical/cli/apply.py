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
from hokical.cli.reading import Rows, Source, read_calibrator

#: For which examples the coverage is guaranteed; see `Calibrator.predict_set`.
By = StrEnum("By", ["all", "class", "group", "label"])
_GUARANTEES = "--risk / --coverage / --delta"


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
    coverage: opt.Coverage = None,
    by: Annotated[
        By, opt.text("Coverage for all examples, each class, label or group.", metavar="WORD")
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
    columns to keep, label, confidence. Labels are names where the fit or this
    command knew the names of the classes.

    --risk and --coverage are guaranteed by the examples of `certify`, or else
    of the fit. --delta is 0.1 with --risk; without it coverage is guaranteed
    on average.

    For a folder (or 'pattern*') of Parquet files, --output is a folder, which
    gets a file of the same name for each of them.
    """
    asked = Asked.read(proba, risk, coverage, by, delta)
    if adapt:
        refuse("does not go with --adapt.", risk=risk)
    fitted = read_calibrator(calibrator)
    given = Source(
        data, split, score_columns=score_columns, probabilities=probabilities, groups=groups,
        missing=missing, keep=keep,
    )  # fmt: skip
    files = _pair_files(given, output)
    done = []
    for source, target in files:
        rows = replace(given, path=source).read(fitted, labelled=False)
        if asked.risk or asked.sets:
            rows.warn_of_own(fitted)
        done.append(_apply_to_file(fitted, rows, target, asked, adapt))
    _show(fitted.name, output, done, as_json, folder=given.in_parts)


class Asked:
    """What to write beside label and confidence."""

    def __init__(self, proba: bool, risk: dict[str, float], sets: dict[str, Any]) -> None:
        self.proba, self.risk, self.sets = proba, risk, sets

    @classmethod
    def read(
        cls, proba: bool, risk: float | None, coverage: float | None, by: By, delta: float | None
    ) -> Asked:
        """The options of `predict_or_abstain` and of `predict_set`, empty if not asked for."""
        if coverage is None and by is not By.all:
            raise bad_option("--by", "only goes with --coverage.")
        if delta is not None and risk is None and coverage is None:
            raise bad_option("--delta", "only goes with --risk or --coverage.")
        own = {} if delta is None else {"delta": delta}
        sets = {} if coverage is None else {"coverage": coverage, "by": str(by), **own}
        return cls(proba, {} if risk is None else {"risk": risk, **own}, sets)


def _pair_files(given: Source, output: Path) -> list[tuple[Path, Path]]:
    """Each file to read, and the file to write."""
    if not given.in_parts:
        hokical.io.check_output(output, suffix=(".npz", *hokical.io._writing.TABLES))
        return [(given.path, output)]
    files = list(hokical.io._opening.files_read(given.path))
    if not files:
        raise hokical.io.DataFileError(given.path, "expected .parquet files; found none.")
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


def _apply_to_file(
    fitted: Any, rows: Rows, target: Path, asked: Asked, adapt: bool
) -> dict[str, Any]:
    """Write the predictions for a file; what there is to show about them."""
    with spinner(f"Applying {fitted.name} to {rows.path.name}"):
        if rows.wanted.answers:
            results, facts = _predict_confidences(fitted, rows, asked, adapt)
        else:
            results, facts = _predict(_adapt(fitted, rows) if adapt else fitted, rows, asked)
    columns = _columns(results, rows, target.suffix == ".npz")
    marked = hokical.io.write_table(target, columns)
    if marked:
        say(f"{marked:,} cells of text that a spreadsheet would run begin with ' in {target}.")
    confidence = results["confidence"]
    return facts | {
        "arrays": list(columns),
        "examples": confidence.size,
        "confidence": float(confidence.sum()),
        "accepted": int(results["accepted"].sum()) if "accepted" in results else None,
    }


def _adapt(fitted: hokical.Calibrator, rows: Rows) -> Any:
    """The calibrator for the class frequencies of the rows, unless something else has changed."""
    with check_options("--adapt"):
        found = fitted.estimate_shift(fitted._attach_groups(rows.scores, rows.groups))
        if not found.holds:
            raise ValueError(f"{found.verdict}. Apply the calibrator as it is, or fit it again.")
        say(str(found))
        return found.adapt()


def _predict(fitted: Any, rows: Rows, asked: Asked) -> tuple[dict[str, Any], dict[str, Any]]:
    """Labels, confidence and what else is asked for; the guarantees in words."""
    logits, own = rows.scores, {"groups": rows.groups}
    with check_options("--groups"):
        found = {"labels": fitted.predict(logits, **own)}
        found["confidence"] = fitted.predict_confidence(logits, **own)
    facts: dict[str, Any] = {}
    with check_options(_GUARANTEES):
        if asked.risk:
            chosen = fitted.predict_or_abstain(logits, **asked.risk, **own)
            found["accepted"], facts["guarantee"] = chosen.accepted, chosen.guarantee
        if asked.sets:
            if asked.sets["by"] == "group" and rows.groups is None:
                raise ValueError("--by group needs the column of the groups: --groups COLUMN.")
            sets = fitted.predict_set(logits, **asked.sets, **own)
            members = sets.members
            if sets.other is not None:
                members, found["other"] = members & logits.mark_seen(), sets.other
            found |= {"members": members, "set_size": sets.sizes}
            facts["sets"] = sets.guarantee
    if asked.proba:
        found["probabilities"] = fitted.predict_proba(logits, **own)
        _describe_other_classes(found["labels"], found["probabilities"])
    return found, facts


def _predict_confidences(
    fitted: Any, rows: Rows, asked: Asked, adapt: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Calibrated confidences, and which answers to accept."""
    refuse(
        "needs a calibrator of logits; this one is of confidences.",
        proba=asked.proba, coverage=bool(asked.sets), adapt=adapt,
    )  # fmt: skip
    found, facts = {"confidence": fitted.predict(rows.scores, rows.groups)}, {}
    if asked.risk:
        with check_options(_GUARANTEES):
            chosen = fitted.predict_or_abstain(rows.scores, rows.groups, **asked.risk)
        found["accepted"], facts["guarantee"] = chosen.accepted, chosen.guarantee
    unknown = {} if rows.groups is None else fitted.unknown_groups(rows.groups)
    return found, facts | {"unknown_groups": unknown}


def _columns(results: dict[str, Any], rows: Rows, as_arrays: bool) -> dict[str, Any]:
    """Kept columns, then results; in a table labels by name, and a column per probability."""
    added = dict(results)
    if not as_arrays and "labels" in added:
        names = np.array(rows.classes or range(rows.found.logits.n_classes))
        added = {"label": names[added.pop("labels")]} | added
        if (members := added.pop("members", None)) is not None:
            size, other = added.pop("set_size"), added.pop("other", None)
            added |= {"set": _set_names(members, names, other), "set_size": size}
        vectors = added.pop("probabilities", np.empty((0, 0)))
        added |= {f"probability_{names[k]}": column for k, column in enumerate(vectors.T)}
    kept = {(f"input_{n}" if n in added else n): column for n, column in rows.found.kept.items()}
    for name in set(rows.found.kept) - set(kept):
        say(f"The column `{name}` of the input is called `input_{name}`, beside the new one.")
    return kept | added


def _set_names(members: Any, names: Any, other: Any) -> Any:
    """The names of each row's set, with bars between them."""
    texts = ["|".join(map(str, names[row])) for row in members]
    if other is not None:  # hidden classes of a `TopK`
        pairs = zip(texts, other, strict=True)
        texts = [f"{text}|or another" if more else text for text, more in pairs]
    return np.array(texts)


def _describe_other_classes(labels: Any, proba: Any) -> None:
    """Say in how many rows a label that was kept is not the most likely class."""
    if others := int((proba.argmax(axis=1) != labels).sum()):
        say(
            f"In {others:,} of {len(labels):,} rows another class is more likely than the label: "
            "the calibrator keeps the classifier's own labels."
        )


def _show(
    method: str, output: Path, done: list[dict[str, Any]], as_json: bool, *, folder: bool
) -> None:
    """Where the results are, and what is guaranteed about them."""
    n = sum(each["examples"] for each in done)
    mean = sum(each["confidence"] for each in done) / n if n else float("nan")
    last = done[-1]
    values: dict[str, Any] = {
        name: last[name] for name in ("guarantee", "sets", "unknown_groups") if name in last
    }
    values |= {"arrays": last["arrays"], "examples": n, "mean_confidence": mean}
    accepted = None
    if last["accepted"] is not None:
        accepted = sum(each["accepted"] for each in done) / n if n else float("nan")
        values["accepted_share"] = accepted
    if folder:
        values["files"] = len(done)
    names = last["arrays"]
    more = f", ... {len(names)} columns" if len(names) > 6 else ""
    place = f"{len(done)} files in {output}" if folder else str(output)
    lines = {
        "method": method,
        "examples": f"{n:,}",
        "mean confidence": f"{mean:.1%}" if n else DASH,
        "written to": f"{place} ({', '.join(names[:6])}{more})",
        "accepted": None if accepted is None or not n else f"{accepted:.1%}",
        "guarantee": values.get("guarantee"),
        "sets": values.get("sets"),
    }
    show_result({"method": method, "output": str(output)} | values, lines, as_json)
