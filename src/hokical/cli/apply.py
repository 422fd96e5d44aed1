"""`hokical apply`: labels and confidence for new logits."""

from __future__ import annotations

from contextlib import nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import hokical
from hokical._core.groups import take_rows
from hokical._core.logits import Logits
from hokical._core.progress import track
from hokical.cli import data
from hokical.cli import options as opt
from hokical.cli.beyond import kind_of
from hokical.cli.inputs import check_arrays, dense_options, in_many_files, load_dense, load_examples
from hokical.cli.show import DASH, bad_option, check_options, say, show_result, spinner

#: Logits that are worked on between two steps of the progress bar.
_PART_SIZE = 1 << 21
_NOT_CERTIFIED = (
    "the pixels or tokens of a fit give no guarantee, as neighbours are not independent; certify "
    "the calibrator on new items: `hokical certify CALIBRATOR FILE --class-axis ...`."
)
#: Whom the coverage is promised to, and how sets are made; see `Calibrator.predict_set`.
By = StrEnum("By", ["all", "class", "group", "label"])
Kind = StrEnum("Kind", ["smallest", "adaptive", "ordered"])


@opt.reads(opt.Part.test, without=("labels", "label_column", *opt.BEYOND))
def apply(
    calibrator: opt.CalibratorFile,
    logits: Annotated[
        Path, opt.argument("LOGITS", "New logits; or a folder (or 'pattern*') of .parquet files.")
    ],
    output: Annotated[
        Path, opt.text("A .csv, .csv.gz, .parquet, .npz; a folder for a folder.", "-o", "--output")
    ],
    given: opt.Input,
    proba: Annotated[bool, opt.text("Also write all probabilities.", "--proba")] = False,
    keep: Annotated[
        str | None,
        opt.text("Columns to copy: a,b, or all, or none.", metavar="COLUMNS", show_default="id"),
    ] = None,
    risk: Annotated[
        float | None,
        opt.text("Also write `accepted`: labels with at most this error rate, e.g. 0.05."),
    ] = None,
    delta: Annotated[
        float | None,
        opt.text(
            "Probability that the promise fails; of --coverage on average if not given.",
            show_default="0.1 with --risk, --recall",
        ),
    ] = None,
    recall: Annotated[
        float | None,
        opt.text("Of several labels: find at least this share of each one's positives."),
    ] = None,
    coverage: Annotated[
        float | None,
        opt.text("Also write `set`: the labels it can be, with this coverage, e.g. 0.9."),
    ] = None,
    by: Annotated[
        By | None,
        opt.text("Whom it is promised to: all, each class, label or group.", show_default="all"),
    ] = None,
    kind: Annotated[
        Kind | None, opt.text("Sets: smallest, adaptive, ordered.", show_default="smallest")
    ] = None,
    max_size: Annotated[
        int | None, opt.text("Sets of at most so many labels; says what they cover.", min=1)
    ] = None,
    adapt: Annotated[
        bool, opt.text("First adapt to the class balance of these rows; see `shift`.", "--adapt")
    ] = False,
    scheduler: Annotated[
        str | None, opt.text("For a folder: address of a Dask scheduler, e.g. tcp://host:8786.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Write the predicted labels and their confidence for new logits.

    The output has one row per input row: columns to keep, label, confidence.
    Labels are names where the fit or this command knew the classes' names.

    For a folder of Parquet files, one output file is written per input file,
    with the rows in the same order. Existing outputs of the same inputs are
    kept, so a rerun continues after a crash.

    With --class-axis the results have the shape of the logits without the
    classes. Labels are not read, so --ignore-label changes nothing. Where an
    array `mask` is 0, results are -1 and NaN.
    """
    sets = _set_options(coverage, max_size, by=by, kind=kind)
    if delta is not None and risk is None and recall is None and not sets:
        raise bad_option("--delta", "only goes with --risk, --recall or --coverage.")
    dense = dense_options(logits, given, scheduler=scheduler)
    in_parts = dense is None and (scheduler is not None or in_many_files(logits))
    if in_parts and not (risk is None and keep is None and not sets):
        raise typer.BadParameter("--risk, --coverage and --keep work on one file, not on a folder.")
    if adapt and (dense or in_parts or risk is not None):
        raise bad_option("--adapt", "works on rows of one file, without --risk.")
    if dense and sets.keys() - {"coverage", "kind"}:
        raise typer.BadParameter("sets of positions have --coverage and --kind alone.")
    asked = {"risk": risk, "recall": recall}
    promise = {name: value for name, value in asked.items() if value is not None}
    promise |= {"delta": 0.1 if delta is None else delta} if promise else {}
    fitted = data.read_calibrator(calibrator)
    if what := kind_of(given, fitted):
        if proba or adapt or dense or in_parts or sets.keys() - {"coverage", "by"}:
            raise typer.BadParameter(
                f"a calibrator of method {fitted.name} takes rows of one file, with --keep, "
                "--risk, --recall, --coverage, --by and --delta."
            )
        sets |= {} if not sets or delta is None else {"delta": delta}
        hokical.io.check_output(output, suffix=(".npz", *hokical.io._writing.TABLES))
        beyond = what(logits, given, fitted, keep=keep, labelled=False)
        with check_options("--risk / --recall / --coverage / --delta"):
            results, facts = beyond.predict(fitted, promise, sets)
        _write(fitted.name, results, beyond.rows, output, facts, as_json, beyond.unit)
        return
    if recall is not None:
        raise bad_option("--recall", "is for several labels at once.")
    wanted = data.choose_scores(given, keep, fitted=fitted, in_parts=in_parts)
    if in_parts:
        task = hokical.streams.PartTask(
            fitted, proba=proba, split=given.split.literal, classes=wanted.classes
        )
        _apply_to_parts(task, logits, output, scheduler, as_json)
        return
    suffix = ".npz" if dense else (".npz", *hokical.io._writing.TABLES)
    hokical.io.check_output(output, suffix=suffix)
    sets |= {} if not sets or delta is None or dense else {"delta": delta}
    nothing = data.blank_row(fitted)
    with check_options("--risk / --coverage / --delta"):
        if (promise or sets) and dense and fitted.held_out_scores_ is None:
            raise ValueError(_NOT_CERTIFIED)
        if promise:
            fitted.predict_or_abstain(nothing, **promise)
        if sets.get("by") == "group" and not wanted.groups:
            raise ValueError("--by group needs the column that tells them: --groups COLUMN.")
        if sets:
            fitted.predict_set(nothing, **sets, groups=[""] if by is By.group else None)
    if dense:
        part, predict = _open_maps(logits, given, hokical.Dense(fitted, **dense))
        rows, unit = None, "positions"
    else:
        examples = load_examples(logits, given, wanted, need_labels=False, fitted_by=fitted)
        data.warn_of_probabilities(examples.logits, logits, wanted)
        part, rows, unit = examples.part, examples.logits, "examples"
        with check_options("--groups"):
            grouped = fitted.with_groups(rows, examples.groups)
        if adapt:
            fitted = _adapt(fitted, grouped)
            grouped = rows
        predict = partial(_predict, fitted, _cut(grouped), groups=examples.groups)
    if promise or sets:
        data.warn_of_own_examples(fitted, logits, part, rows)
    results, facts = predict(proba, promise, sets)
    _write(fitted.name, results, None if dense else examples, output, facts, as_json, unit)


def _write(
    method: str,
    results: dict[str, Any],
    examples: hokical.io.LabelledRows | None,
    output: Path,
    facts: dict[str, Any],
    as_json: bool,
    unit: str,
) -> None:
    """Write what is said of examples, or of maps, and show what was written."""
    columns = results
    if examples is not None:
        columns = _columns(results, examples, output.suffix == ".npz")
    marked = hokical.io.write_table(output, columns)
    if marked:
        say(f"{marked:,} cells of text that a spreadsheet would run begin with ' in {output}.")
    facts = {"arrays": list(columns), "examples": len(results.get("labels", ())), **facts}
    if "confidence" in results:
        known = results["confidence"][~np.isnan(results["confidence"])]  # NaN: masked
        mean = float(known.mean()) if known.size else float("nan")
        facts |= {"examples": known.size, "mean_confidence": mean}
    _show(method, output, facts, as_json, unit)


def _adapt(fitted: hokical.Calibrator, rows: Logits) -> Any:
    """The calibrator for the balance of the rows, unless something else has changed."""
    with check_options("--adapt"):
        found = fitted.estimate_shift(rows)
        if not found.holds:
            raise ValueError(f"{found.verdict}. Apply the calibrator as it is, or fit it again.")
        say(str(found))
        return found.adapt()


def _set_options(coverage: float | None, max_size: int | None, **others: Any) -> dict[str, Any]:
    """What is asked of `predict_set`; empty where no sets are."""
    asked = {"coverage": coverage, "max_size": max_size}
    asked = {name: value for name, value in asked.items() if value is not None}
    given = {name: value for name, value in others.items() if value is not None}
    if given and not asked:
        option = next(iter(given)).replace("_", "-")
        raise bad_option(f"--{option}", "only goes with --coverage or --max-size.")
    return asked | {name: str(value) for name, value in given.items()}


def _cut(rows: Logits) -> list[dict[str, Any]]:
    """Rows in parts between which the progress bar steps."""
    step = max(_PART_SIZE // rows.n_columns, 1)
    return [{"logits": rows.take(slice(i, i + step))} for i in range(0, rows.n_rows, step)]


def _open_maps(path: Path, given: opt.Input, model: hokical.Dense) -> tuple[str | None, Any]:
    """The part of a file of maps, and a function that predicts them."""
    arrays, part = load_dense(path, given, need_labels=False)
    chosen = [{name: arrays[name] for name in ("logits", "mask") if name in arrays}]

    def predict(proba: bool, promise: Any, sets: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        with spinner(f"Applying {model.fitted_calibrator().name}"), check_arrays(path):
            return _predict(model, chosen, proba, promise, sets)

    return part, predict


def _columns(
    results: dict[str, Any], examples: hokical.io.LabelledRows, as_arrays: bool
) -> dict[str, Any]:
    """Kept columns, then results; in a table labels by name, and a column per probability."""
    added = dict(results)
    if not as_arrays:
        names = np.array(examples.classes or range(examples.logits.n_classes))
        if (labels := added.pop("labels", None)) is not None:
            several = labels.ndim == 2
            own = {"labels": _set_names(labels, names)} if several else {"label": names[labels]}
            added = {**own, **added}
        added |= {name: _set_names(added[name], names) for name in ("in", "open") if name in added}
        members = added.pop("members", None)
        if members is not None:
            size, other = added.pop("set_size"), added.pop("other", None)
            added |= {"set": _set_names(members, names, other), "set_size": size}
        vectors = added.pop("probabilities", np.empty((0, 0)))
        added |= {f"probability_{names[k]}": column for k, column in enumerate(vectors.T)}
    kept = {(f"input_{n}" if n in added else n): column for n, column in examples.kept.items()}
    for name in set(examples.kept) - set(kept):
        say(f"The column `{name}` of the input is called `input_{name}`, beside the new one.")
    return kept | added


def _set_names(members: Any, names: Any, other: Any = None) -> Any:
    """The names of each row's set, with bars between them."""
    texts = ["|".join(map(str, names[row])) for row in members]
    if other is not None:  # hidden classes of a `TopK`
        texts = [
            f"{text}|or another" if more else text for text, more in zip(texts, other, strict=True)
        ]
    return np.array(texts)


def _predict(
    model: hokical.Calibrator | hokical.Dense,
    parts: list[Any],
    proba: bool,
    promise: dict[str, Any],
    sets: dict[str, Any],
    groups: Any = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays to write, and facts to show; parts are rows of one file."""
    facts: dict[str, Any] = {}
    found: list[dict[str, Any]] = []
    done = 0
    for given in track(parts, "Applying to rows", len(parts), None):
        if not promise:
            arrays = {"labels": model.predict(**given)}
            arrays["confidence"] = model.predict_confidence(**given)
        else:
            chosen = model.predict_or_abstain(**given, **promise)
            arrays = {name: getattr(chosen, name) for name in ("labels", "confidence", "accepted")}
            facts |= {"guarantee": chosen.guarantee}
        if proba:
            arrays["probabilities"] = model.predict_proba(**given)
        if sets:
            rows = slice(done, done := done + len(arrays["labels"]))
            own: dict[str, Any] = {}
            if sets.get("by") == "group":
                own = {"groups": take_rows(groups, rows)}
            labels = model.predict_set(**given, **sets, **own)
            arrays |= {"members": labels.members, "set_size": labels.sizes}
            if labels.other is not None:
                seen = given["logits"].mark_seen()
                arrays |= {"members": labels.members & seen, "other": labels.other}
            facts |= {"sets": labels.guarantee}
        found.append(arrays)
    whole = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    if promise:
        known = whole["accepted"][~np.isnan(whole["confidence"])]  # NaN: masked
        facts["accepted_share"] = float(known.mean()) if known.size else float("nan")
    return whole, facts


def _apply_to_parts(
    task: hokical.streams.PartTask, logits: Path, output: Path, scheduler: str | None, as_json: bool
) -> None:
    """One output file per input file, here or on a cluster; existing ones are kept."""
    if output.suffix == ".npz":
        raise typer.BadParameter(
            f"{output}: results of a folder, {logits}, go into a folder, not an .npz."
        )
    jobs, fitted = hokical.streams.plan_parts(logits, output), task.calibrator
    with spinner(f"Applying {fitted.name} to {len(jobs)} files"), _cluster(scheduler) as run:
        results = hokical.streams.apply_parts(task, jobs, run)
    rows = sum(result.n_rows for result in results)
    mean = sum(result.confidence for result in results) / rows if rows else float("nan")
    facts = {"parts": len(results), "already_done": sum(each.already_done for each in results)}
    _show(fitted.name, output, {"examples": rows, "mean_confidence": mean, **facts}, as_json)


def _cluster(scheduler: str | None) -> Any:
    if scheduler is None:
        return nullcontext()
    try:
        hokical.integrations.dask.import_dask("distributed")
    except ImportError as error:
        raise bad_option("--scheduler", str(error)) from error
    return hokical.integrations.dask.on_cluster(scheduler)


def _show(
    method: str, output: Path, facts: dict[str, Any], as_json: bool, unit: str = "examples"
) -> None:
    rows, mean = facts["examples"], facts.get("mean_confidence")
    labels = facts.get("labels_per_example")
    if "parts" in facts:
        already = facts["already_done"]
        kept = f" ({already} of them were there already)" if already else ""
        place = f"{facts['parts']} files in {output}{kept}"
    else:
        names = facts["arrays"]
        more = f", ... {len(names)} columns" if len(names) > 6 else ""
        place = f"{output} ({', '.join(names[:6])}{more})"
    lines = {
        "method": method,
        unit: f"{rows:,}",
        "mean confidence": None if mean is None else f"{mean:.1%}" if rows else DASH,
        "labels per example": None if labels is None else f"{labels:.2f}",
        "written to": place,
        "accepted": f"{facts['accepted_share']:.1%}"
        if rows and "accepted_share" in facts
        else None,
        "guarantee": facts.get("guarantee"),
        "sets": facts.get("sets"),
    }
    show_result({"method": method, "output": str(output)} | facts, lines, as_json)
