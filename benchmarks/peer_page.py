"""The measurements of `bench_peers.py` as a file of JSON and as tables in a page of
documentation.

A page marks the place of the tables with the lines `<!-- bench -->` (or `<!-- quality
-->`) and `<!-- end -->`; what is between them is replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Results = dict[str, Any]
OURS = "hokical"
#: Below this many bytes of float32 logits, what a process grows by says nothing about a
#: method.
TELLING_BYTES = 1_000_000
#: What the tables of quality call each method; those of the short table come first.
TITLES = {
    "auto": "**hokical**, the default",
    "probmetrics:logistic": "probmetrics `LogisticCalibrator`, its default",
    "probmetrics:sms": "probmetrics SMS",
    "probmetrics:svs": "probmetrics SVS",
    "sklearn:temperature": "scikit-learn temperature",
    "sklearn:sigmoid": "scikit-learn sigmoid, of probabilities",
    "sklearn:sigmoid_logits": "scikit-learn sigmoid, of logits",
    "sklearn:isotonic": "scikit-learn isotonic",
    "netcal:logistic": "netcal `LogisticCalibration`",
    "netcal:temperature": "netcal `TemperatureScaling`",
    "netcal:isotonic": "netcal `IsotonicRegression`",
    "mapie:venn_abers": "MAPIE `VennAbersCalibrator`",
    "uncalibrated": "uncalibrated",
}
#: Methods of the short table; others are nearly the same as one of these.
SHORT = (
    "auto",
    "probmetrics:sms",
    "sklearn:temperature",
    "sklearn:sigmoid",
    "sklearn:sigmoid_logits",
    "sklearn:isotonic",
    "netcal:logistic",
    "mapie:venn_abers",
    "uncalibrated",
)
#: Columns of the short table: title, number of examples, key of a result, format.
SHORT_COLUMNS = (
    ("log loss, 60 examples", "60", "log_loss", "{:.3f}"),
    ("log loss, all examples", "all", "log_loss", "{:.3f}"),
    ("Brier score, 60", "60", "brier", "{:.3f}"),
    ("Brier score, all", "all", "brier", "{:.3f}"),
    ("got worse, 60", "60", "worse", "{:.0%}"),
    ("got worse, all", "all", "worse", "{:.0%}"),
    ("fit time, all (default = 1)", "all", "fit_ratio", "{:.2g}"),
)
#: Those of the long one, which also has the fits that a library refused.
LONG_COLUMNS = (
    ("log loss, 60 examples", "60", "log_loss", "{:.4f}"),
    ("log loss, all examples", "all", "log_loss", "{:.4f}"),
    ("Brier score, 60", "60", "brier", "{:.4f}"),
    ("Brier score, all", "all", "brier", "{:.4f}"),
    ("classwise ECE, 60", "60", "classwise_ece", "{:.4f}"),
    ("classwise ECE, all", "all", "classwise_ece", "{:.4f}"),
    ("got worse, 60", "60", "worse", "{:.0%}"),
    ("got worse, all", "all", "worse", "{:.0%}"),
    ("fits refused, 60", "60", "failed", "{:.0%}"),
    ("fit time, all (default = 1)", "all", "fit_ratio", "{:.2g}"),
)


def write_json(path: Path, results: Results) -> None:
    """One line per measurement, so that changes can be read in a diff."""
    parts = []
    for key, value in results.items():
        if isinstance(value, list):
            lines = ",\n".join(f"  {json.dumps(one)}" for one in value)
            parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def fill_page(text: str, results: Results) -> str:
    """The page with what stands between the two marks replaced by the tables."""
    return put_block(text, "bench", to_markdown(results))


def put_block(text: str, mark: str, block: str) -> str:
    """The text with what stands between `<!-- mark -->` and `<!-- end -->` replaced."""
    place = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", re.DOTALL)
    return place.sub(lambda found: f"{found[1]}\n{block}\n\n{found[2]}", text)


def to_markdown(results: Results) -> str:
    return "\n".join([*_facts(results), *_start_table(results), *_size_tables(results)])


def _facts(results: Results) -> Iterator[str]:
    machine, versions = results["machine"], results["versions"]
    yield (
        f"Measured on {results['made']}: {machine['cores']} cores of "
        f"{machine['processor']}, {machine['memory_gb']} GB, {machine['system']}, load "
        f"{machine['load']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f". Times: {results['clock']}. Fits of over {results['limit_s']:.0f} s are stopped."
    )
    for library in results["missing"]:
        yield f"\nNot installed, so not measured: {library}."


def _start_table(results: Results) -> Iterator[str]:
    yield "\n### A fresh process\n"
    yield "| library | `import` | import, fit and answer 1000 x 2 |\n|---|--:|--:|"
    ours = next(one for one in results["start"] if one["library"] == OURS)
    for one in results["start"]:
        if "failed" in one:
            yield f"| {one['library']} | {one['failed']} | |"
            continue
        ratio = _ratio(one["first_s"], ours["first_s"]) if one is not ours else ""
        yield (
            f"| {one['library']}, `import {one['module']}` | "
            f"{show_seconds(one['import_s'])} | {show_seconds(one['first_s'])}{ratio} |"
        )


def _size_tables(results: Results) -> Iterator[str]:
    for n, n_classes in dict.fromkeys(tuple(one["size"]) for one in results["results"]):
        rows = [one for one in results["results"] if one["size"] == [n, n_classes]]
        telling = 4 * n * n_classes >= TELLING_BYTES and any(
            "fit_mb" in one for one in rows
        )
        before = results["uncalibrated"][f"{n}x{n_classes}"]
        yield f"\n### {n:,} x {n_classes:,}\n"
        yield f"Log loss before calibration: {before:.3f}.\n"
        heads = ["method", "library", "fit", f"predict {n:,} rows", "one row"]
        heads += ["memory: fit, predict"] * telling + ["log loss"]
        yield f"| {' | '.join(heads)} |\n|---|---|{'--:|' * (len(heads) - 2)}"
        for one in rows:
            ours = next(r for r in rows if r["method"] == one["method"])
            yield f"| {' | '.join(_cells(one, ours, telling, before))} |"


def _cells(one: Results, ours: Results, telling: bool, before: float) -> list[str]:
    first = one is ours
    name = (
        f"**{one['library']}** {one['called']}"
        if first
        else f"{one['library']} {one['called']}"
    )
    cells = [one["method"] if first else "", name]
    for key in ("fit_s", "predict_s", "row_s"):
        if key in one:
            ratio = "" if first or key not in ours else _ratio(one[key], ours[key])
            cells.append(f"{show_seconds(one[key])}{ratio}")
        else:
            cells.append(one.get("failed", "") if key == "fit_s" else "")
    if telling:
        sizes = [one.get(key) for key in ("fit_mb", "predict_mb")]
        cells.append(
            ", ".join("-" if size is None else f"{size:.0f}" for size in sizes) + " MB"
        )
    loss = one.get("log_loss")
    told = [] if loss is None else [f"{loss:.3f}"]
    if loss is not None and loss > before:
        told.append("worse than before")
    if "note" in one:
        told.append(one["note"])
    cells.append(", ".join(told))
    return cells


def _of(results: Results, task: str, size: str) -> dict[str, Results]:
    found = [
        one for one in results["results"] if (one["task"], one["size"]) == (task, size)
    ]
    return {one["method"]: one for one in found if one["method"] in TITLES}


def short_quality_table(results: Results) -> str:
    """All classifiers, with 60 examples and with all of them."""
    heads, columns = _columns_of_quality(results, SHORT_COLUMNS)
    return _quality_table(heads, SHORT, columns)


def long_quality_tables(results: Results) -> str:
    """The same columns and more, of every method."""
    heads, columns = _columns_of_quality(results, LONG_COLUMNS)
    names = [name for name in TITLES if name in columns[0][0]]
    return _quality_table(heads, names, columns)


def _columns_of_quality(
    results: Results, chosen: Sequence[tuple[str, str, str, str]]
) -> tuple[list[str], list[tuple[dict[str, float], str]]]:
    heads = ["", *(head for head, *_ in chosen)]
    return heads, [
        _column(results, "all", size, key, form) for _, size, key, form in chosen
    ]


def _column(
    results: Results, task: str, size: str, key: str, form: str
) -> tuple[dict[str, float], str]:
    """A number of every method; of no calibration only where it says something."""
    found = _of(results, task, size)
    if key in ("worse", "failed", "fit_ratio"):
        found.pop("uncalibrated")
    if key == "failed":
        return {
            name: one[key] / one["classifiers"] for name, one in found.items()
        }, form
    return {name: one[key] for name, one in found.items()}, form


def _quality_table(
    heads: list[str], names: Sequence[str], columns: list[tuple[dict[str, float], str]]
) -> str:
    lines = [f"| {' | '.join(heads)} |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    shown = [
        ({name: values[name] for name in names if name in values}, form)
        for values, form in columns
    ]
    for name in names:
        cells = [_cell(name, values, form) for values, form in shown]
        lines.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(name: str, values: dict[str, float], form: str) -> str:
    """A number, in bold where no method has a lower one and at most two share it."""
    if name not in values:
        return ""
    texts = {method: form.format(value) for method, value in values.items()}
    best = form.format(min(values.values()))
    winners = [method for method, text in texts.items() if text == best]
    return f"**{best}**" if name in winners and len(winners) <= 2 else texts[name]


def _ratio(theirs: float, ours: float) -> str:
    ratio = theirs / ours
    return f" ({ratio:.0f}x)" if ratio >= 10 else f" ({ratio:.1f}x)"


def show_seconds(seconds: float) -> str:
    """Two digits and a unit.

    >>> [show_seconds(t) for t in (12.3, 0.0462, 0.000061)]
    ['12 s', '46 ms', '61 us']
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * size or unit == "us":
            value = seconds / size
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    raise AssertionError
