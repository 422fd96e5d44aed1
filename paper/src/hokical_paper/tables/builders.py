"""The paper's tables with our results next to the published numbers, and further
tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from hokical import Gaussian, Uniform
from hokical_paper.core import track
from hokical_paper.published import (
    BIN_COUNTS,
    SUPPLEMENT,
    number_for,
    published_rows,
    row_for,
)
from hokical_paper.running.devices import device_notes
from hokical_paper.running.methods import (
    EXACT,
    PAPER_METHODS,
    RECAL,
    SAMPLED,
    published_column,
    title_of,
)
from hokical_paper.running.results import Result, Results
from hokical_paper.running.stamp import made_note
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.distinct import distinct_table
from hokical_paper.tables.headers import headers_table
from hokical_paper.tables.method_columns import (
    OURS,
    PAPER,
    column_of,
    estimate_cell,
    heads_of,
    mark_methods,
    published_cell,
    top_k_table,
)
from hokical_paper.tables.table import Cell, Row, Table, mark_best, mark_columns, number
from hokical_paper.tables.theorems import bounds_table, sufficiency_table
from hokical_paper.tables.wins import CONTESTS, paper_methods, wins

_SUPPLEMENT_NOTE = (
    "The paper's supplement has the headers of its last four baselines rotated; here "
    "its values are under the methods they belong to ("
    + ", ".join(f"{here} was printed as {there}" for here, there in SUPPLEMENT.items())
    + "). The table `headers` has the evidence."
)
_FORMS = (
    "irm and irova_ts are there twice: published, as their authors and the paper have "
    "them, with rows that do not sum to 1, and normalised, as hokical has them. The "
    "paper's numbers belong to the published form."
)
#: The least sigma_hat by the paper's text.
_LEAST_BY_TEXT = 0.0395
_FIFTEEN = "Hoki is fitted with 15 bins."
_INFINITE = (
    "inf: a label with confidence 0 was correct, or one with confidence 1 was wrong."
)
_LOWER = (
    "Lower is better. Bold and underlined: best and second best of the paper's ten. "
    "Methods with a dagger are hokical's own, or in its form; bold there means at "
    "least as good as the best of the ten."
)
_SCORE_TITLES = {
    "ece_mass": "ECE, 15 bins of equal mass",
    "smooth_ece": "Smooth ECE, without bins",
    "brier": "Brier score of the confidence",
    "log_loss": "Log loss of the confidence",
}


def all_tables(results: Results) -> dict[str, Table]:
    """Every table that has rows by name, in the order in which they are shown."""
    build = builders()
    built = {
        name: build[name](results)
        for name in track(build, "Table {}", len(build), None)
    }
    return {name: table for name, table in built.items() if table.rows}


def builders() -> dict[str, Callable[[Results], Table]]:
    """The function that builds each table, by name.

    >>> list(builders())[:4]
    ['wins', 'ece', 'table_2', 'bins']
    """
    return {
        "wins": wins_table,
        "ece": lambda results: ece_table(results, 15),
        "table_2": main_table,
        "bins": bins_table,
        "noise": noise_table,
        "time": time_table,
        "init": initialisation_table,
        **{name: _score_builder(name) for name in _SCORE_TITLES},
        "variance": variance_table,
        "distinct": distinct_table,
        "accuracy": accuracy_table,
        "top_k": top_k_table,
        "headers": headers_table,
        "theorem_1": sufficiency_table,
        "theorem_2": bounds_table,
        **{f"ece_{bins}": _bins_builder(bins) for bins in BIN_COUNTS if bins != 15},
    }


def ece_table(results: Results, n_bins: int) -> Table:
    """ECE with bins of equal width, of the same calibrators for every number of
    bins.
    """
    published = f"ece_{n_bins}_bins"

    def ours(result: Result) -> Cell:
        if n_bins != 15:
            return number(result.ece_by_bins[n_bins])
        return estimate_cell(result, "ece")

    notes = (_LOWER, _FORMS, *(() if n_bins == 15 else (_FIFTEEN, _SUPPLEMENT_NOTE)))
    title = f"ECE, {n_bins} bins of equal width"
    name = "ece" if n_bins == 15 else f"ece_{n_bins}"
    return _by_method(results, name, title, ours, published, notes)


def main_table(results: Results) -> Table:
    """The paper's Table 2: ECE of its ten methods, and of exact Hoki."""
    shown = tuple(name for name in results.methods if name in (*PAPER_METHODS, EXACT))
    table = ece_table(replace(results, methods=shown), 15)
    notes = (_LOWER, _made(results))
    return replace(table, name="table_2", title="The paper's Table 2", notes=notes)


def bins_table(results: Results) -> Table:
    """Mean ECE by the number of bins, beside the paper's, over the networks of both."""
    pairs = [
        pair
        for pair in results.suite.pairs
        if pair.top_k is None and row_for(pair, "ece_15_bins")
    ]
    rows = []
    for method in results.methods:
        ran = [results.get(pair, method) for pair in pairs]
        complete = [result for result in ran if result is not None]
        if not complete or len(complete) < len(pairs):
            continue
        heads = (column_of(method), "")
        means = [fmean(r.ece_by_bins[bins] for r in complete) for bins in BIN_COUNTS]
        rows.append(Row(heads, OURS, tuple(map(number, means))))
        paper = [_published_mean(pairs, method, bins) for bins in BIN_COUNTS]
        if None not in paper:
            rows.append(Row(heads, PAPER, tuple(map(number, paper))))
    notes = (
        f"Means over the {len(pairs)} networks that the paper has too and all of whose "
        f"logits are known. {_FIFTEEN} {_SUPPLEMENT_NOTE}",
        _made(results),
    )
    columns = tuple(f"{bins} bins" for bins in BIN_COUNTS)
    title = "Mean ECE by the number of bins"
    return Table("bins", title, columns, tuple(rows), notes, ("method", ""))


def _published_mean(pairs: Sequence[Pair], method: str, bins: int) -> float | None:
    """The paper's mean ECE; None if it does not have the method in this form."""
    column = published_column(method)
    if column is None:
        return None
    numbers = [number_for(pair, f"ece_{bins}_bins", column) for pair in pairs]
    values = [value for value in numbers if value is not None]
    return fmean(values) if len(values) == len(pairs) and values else None


def time_table(results: Results) -> Table:
    """Seconds per fit, on our machine and on the paper's; of Hoki also with the
    choice of noise.
    """
    methods = tuple(name for name in results.methods if name != "uncalibrated")
    columns = [
        (name, key)
        for name in methods
        for key in (
            (None, "seconds_with_choice") if name in (SAMPLED, EXACT) else (None,)
        )
    ]
    rows = []
    for pair in results.suite.pairs:
        cells = [
            _cell(results, pair, name, lambda r, key=key: number(_seconds(r, key), 3))  # type: ignore[misc]
            for name, key in columns
        ]
        names = [name for name, _ in columns]
        rows.append(Row(heads_of(pair), OURS, mark_methods(cells, names)))
        paper = {
            name: published_cell("learning_time_s", pair, name) for name in methods
        }
        published = [paper[name] if key is None else Cell() for name, key in columns]
        if any(cell.value is not None for cell in published):
            rows.append(Row(heads_of(pair), PAPER, mark_best(published)))
    on_cpu = [
        result for result in results.by_cell.values() if not result.facts.get("device")
    ]
    most = max((result.n_parallel for result in on_cpu), default=1)
    load = "one fit at a time" if most == 1 else f"up to {most} fits in parallel"
    notes = (
        f"Ours: CPU time of one thread, {load}; the better of two runs for fits below "
        "10 s. Paper: a Xeon Gold 6248 and an RTX 2080 Ti.",
        "Hoki's fit with its noise given, and with the choice of the noise: the paper "
        "does not say which its times are. The sampled choice is on the paper's grid "
        "of 1640 settings, of which those that cannot win are skipped.",
        *_recal_note(results),
        *device_notes(results.by_cell.values()),
        _made(results),
    )
    heads = [
        column_of(name) + (", with choice" if key else "") for name, key in columns
    ]
    return Table("time", "Learning time in seconds", tuple(heads), tuple(rows), notes)


def _seconds(result: Result, key: str | None) -> float | None:
    return result.fit_seconds if key is None else result.facts.get(key)


def _made(results: Results) -> str:
    return made_note(result.made for result in results.by_cell.values())


def _recal_note(results: Results) -> list[str]:
    """Where ReCal's times were measured; empty if it was not run."""
    fits = [results.get(pair, RECAL) for pair in results.suite.pairs]
    machines = {str(r.facts.get("device") or "unknown") for r in fits if r is not None}
    if not machines:
        return []
    return [
        "recal was fitted when the suite was exported, so its times are from that "
        f"machine ({', '.join(sorted(machines))}, all used). They do not include "
        "creating and classifying the views."
    ]


def variance_table(results: Results) -> Table:
    """Variance of the confidence of each method, which the paper shows in figures."""

    def ours(result: Result) -> Cell:
        return number(result.score("sharpness"))

    notes = (
        "Higher separates examples more. The paper shows it in figures only; a method "
        "that gives every example the same confidence has 0.",
        _FORMS,
    )
    title = "Variance of the confidence"
    return _by_method(results, "variance", title, ours, None, notes, highest=True)


def accuracy_table(results: Results) -> Table:
    """Share of correct labels, on the validation set too: some methods may change
    labels.
    """
    methods = results.methods
    rows = []
    for pair in results.suite.pairs:
        cells = [
            _cell(results, pair, name, lambda r: estimate_cell(r, "accuracy"))
            for name in methods
        ]
        fitted = next(iter(results.of_pair(pair)), None)
        val = number(None if fitted is None else fitted.facts["val_accuracy"])
        shown = (val, *mark_methods(cells, methods, highest=True))
        rows.append(Row(heads_of(pair), OURS, shown))
        published = [
            number_for(pair, "ece_15_bins", name) for name in ("val_acc", "test_acc")
        ]
        if published[0] is not None:
            paper = [
                number(None if value is None else value / 100.0) for value in published
            ]
            rows.append(
                Row(heads_of(pair), PAPER, (*paper, *(Cell() for _ in methods[1:])))
            )
    notes = (
        "Higher is better. First of the network on the validation set, then of each "
        "method on the test set; the paper only reports the accuracy of the networks.",
        _made(results),
    )
    columns = ("validation", *map(column_of, methods))
    return Table("accuracy", "Accuracy", columns, tuple(rows), notes)


def noise_table(results: Results) -> Table:
    """The noise selected on the validation set of each pair (Table 1)."""
    rows = []
    for pair in results.suite.pairs:
        for source, method in (("sampled", SAMPLED), ("exact", EXACT)):
            result = results.get(pair, method)
            if result is not None:
                rows.append(Row(heads_of(pair), source, _noise_cells(result)))
        published = row_for(pair, "selected_noise")
        if published:
            values = [float(published[key]) for key in ("alpha", "beta", "sigma_hat")]
            spread = number(deviation_of(published["noise"]), 2)
            cells = (
                Cell(published["noise"]),
                spread,
                *map(number, values),
                Cell("1640"),
            )
            rows.append(Row(heads_of(pair), PAPER, cells))
    notes = (
        "U(a, b): uniform between a and b; G(m, s): Gaussian with mean m and deviation "
        "s. The location of the noise (m, or the middle of a and b) changes no label: "
        "only its width matters.",
        "sampled: the paper's grid of 1640 settings, 1000 draws each; settings that "
        "cannot win according to exact stability are skipped. exact: a search over the "
        "width.",
        _spread_note(),
        _made(results),
    )
    columns = ("noise", "deviation", "alpha", "beta", "sigma_hat", "settings tried")
    return Table("noise", "Selected noise", columns, tuple(rows), notes)


def _spread_note() -> str:
    """The paper's text on its Table 1, and what that table has."""
    spreads = sorted(
        float(row["sigma_hat"]) for row in published_rows("selected_noise")
    )
    below = ", ".join(f"{value:.4f}" for value in spreads if value < _LEAST_BY_TEXT)
    return (
        f"The paper's text says that sigma_hat varies between {_LEAST_BY_TEXT} and "
        f"{spreads[-1]:.4f}; its own table has smaller ones ({below})."
    )


def deviation_of(noise: str) -> float:
    """Standard deviation of a noise in the paper's notation.

    >>> round(deviation_of("U(-2, 4)"), 3), deviation_of("G(-20, 2)")
    (1.732, 2.0)
    """
    match = re.fullmatch(r"([UG])\((-?[\d.]+), (-?[\d.]+)\)", noise)
    if match is None:
        raise ValueError(
            f"`noise` must have the form U(a, b) or G(m, s); got {noise!r}."
        )
    first = float(match[2])
    second = float(match[3])
    parsed = Uniform(first, second) if match[1] == "U" else Gaussian(second, first)
    return parsed.width * parsed.unit_deviation


def initialisation_table(results: Results) -> Table:
    """ECE if every example starts at the validation accuracy, or at its own
    confidence.
    """
    rows = []
    for pair in results.suite.pairs:
        cells: list[Cell] = []
        for method in (SAMPLED, EXACT):
            result = results.get(pair, method)
            eces = result and (
                result.score("ece"),
                result.facts["ece_from_confidence"],
            )
            cells += mark_best([number(value) for value in eces or (None, None)])
        rows.append(Row(heads_of(pair), OURS, tuple(cells)))
        names = ("val_accuracy", "uncalibrated_confidence")
        published = [number_for(pair, "ece_by_initialisation", name) for name in names]
        if published[0] is not None:
            values = mark_best([number(value) for value in published])
            rows.append(Row(heads_of(pair), PAPER, (*values, Cell(), Cell())))
    columns = (
        "sampled, from accuracy",
        "sampled, from confidence",
        "exact, from accuracy",
        "exact, from confidence",
    )
    notes = (f"{_LOWER} 15 bins of equal width.", *_cycle_note(results), _made(results))
    title = "ECE by initialisation of Hoki"
    return Table("init", title, columns, tuple(rows), notes)


def _cycle_note(results: Results) -> list[str]:
    """Where the recursion ended in a cycle of bins, by method and start."""
    starts = {"from accuracy": "ending", "from confidence": "ending_from_confidence"}
    cycles = [
        f"{title_of(method)} {start} on {', '.join(names)}"
        for method in (SAMPLED, EXACT)
        for start, key in starts.items()
        if (names := _ended_in_cycle(results, method, key))
    ]
    if not cycles:
        return []
    return [
        "Some examples go back and forth between bins without end: "
        f"{'; '.join(cycles)}. Sampled, as printed, stops after 200 steps, wherever "
        "that is; exact at the step that fits best."
    ]


def _ended_in_cycle(results: Results, method: str, key: str) -> list[str]:
    by_pair = [(pair.name, results.get(pair, method)) for pair in results.suite.pairs]
    return [
        name for name, r in by_pair if r is not None and r.facts.get(key) == "cycle"
    ]


def wins_table(results: Results) -> Table:
    """On how many pairs each method has the lowest score: of the paper's ten, and of
    all.
    """
    contests = {
        "the paper's ten": paper_methods(),
        "the ten, rows normalised": paper_methods(normalised=True),
        "with hoki exact": paper_methods(exact=True),
        "with hoki exact, rows normalised": paper_methods(exact=True, normalised=True),
        "all": list(results.methods),
    }
    rows = []
    for contest, methods in contests.items():
        counts = {score: wins(results, methods, score) for score in CONTESTS}
        winners = [
            name for name in methods if any(counts[score][name] for score in CONTESTS)
        ]
        won = [
            [number(counts[score][name] or None, 0) for score in CONTESTS]
            for name in winners
        ]
        marked = mark_columns(won, range(len(CONTESTS)), highest=True)
        for method, cells in zip(winners, marked, strict=True):
            rows.append(Row((contest, title_of(method)), "", cells))
    pairs = results.suite.pairs
    n_recal = sum(results.get(pair, RECAL) is not None for pair in pairs)
    few = [heads_of(pair)[1] for pair in pairs if pair.top_k is not None]
    top_k_text = f" Of {', '.join(few)} only the best classes are known." if few else ""
    notes = (
        f"Of {len(pairs)} pairs; recal was run on {n_recal} of them.{top_k_text} Methods "
        "whose scores are equal to four digits all win. Methods without a win are not "
        "listed. Rows normalised: with irm and irova_ts as hokical has them, not as "
        "the paper ran them.",
        _made(results),
    )
    columns = tuple(CONTESTS.values())
    heads = ("among", "method")
    return Table("wins", "Pairs won (lowest score)", columns, tuple(rows), notes, heads)


def _score_builder(score: str) -> Callable[[Results], Table]:
    def build(results: Results) -> Table:
        title = _SCORE_TITLES[score]
        note = f"{_LOWER} The paper does not report it."
        notes = (note, _INFINITE) if score == "log_loss" else (note,)
        return _by_method(
            results, score, title, lambda r: estimate_cell(r, score), None, notes
        )

    return build


def _bins_builder(n_bins: int) -> Callable[[Results], Table]:
    return lambda results: ece_table(results, n_bins)


def _by_method(
    results: Results,
    name: str,
    title: str,
    ours: Callable[[Result], Cell],
    published: str | None,
    notes: tuple[str, ...],
    *,
    highest: bool = False,
) -> Table:
    """A column per method; per pair our row and, if there is one, the paper's."""
    methods = results.methods
    rows = []
    for pair in results.suite.pairs:
        cells = [_cell(results, pair, method, ours) for method in methods]
        rows.append(
            Row(heads_of(pair), OURS, mark_methods(cells, methods, highest=highest))
        )
        paper = [published_cell(published, pair, method) for method in methods]
        if any(cell.value is not None for cell in paper):
            rows.append(Row(heads_of(pair), PAPER, mark_best(paper)))
    remarks = (*notes, _made(results))
    return Table(name, title, tuple(map(column_of, methods)), tuple(rows), remarks)


def _cell(
    results: Results, pair: Pair, method: str, ours: Callable[[Result], Cell]
) -> Cell:
    result = results.get(pair, method)
    return Cell(results.reason(pair, method)) if result is None else ours(result)


def _noise_cells(result: Result) -> tuple[Cell, ...]:
    facts = result.facts
    values = [number(facts[key]) for key in ("alpha", "beta", "sigma_hat")]
    tried = Cell(str(facts["n_settings"]), float(facts["n_settings"]))
    return (Cell(facts["noise"]), number(facts["width"], 2), *values, tried)
