"""The table of Hoki on transformed inputs, and on inputs and logits together."""

from __future__ import annotations

from hokical_paper.running.methods import EXACT, INPUT, MIXED
from hokical_paper.running.results import Result, Results
from hokical_paper.running.stamp import made_note
from hokical_paper.tables.table import Cell, Row, Table, mark_columns, number
from hokical_paper.tables.wins import CONTESTS

_SCORES = {name: CONTESTS[name] for name in ("ece", "ece_mass", "brier", "log_loss")}
_SOURCES = {EXACT: "logits", INPUT: "inputs", MIXED: "both"}


def input_table(results: Results) -> Table:
    """Scores per pair of Hoki on logit stability, on input stability and on a mix of
    both.
    """
    rows = []
    for pair in results.suite.pairs:
        found = {name: results.get(pair, name) for name in _SOURCES}
        known = {name: result for name, result in found.items() if result is not None}
        if len(known) < len(_SOURCES):
            continue
        cells = [_cells(result) for result in known.values()]
        heads = (pair.dataset_title, pair.title)
        for name, row in zip(
            known, mark_columns(cells, range(len(_SCORES))), strict=True
        ):
            rows.append(Row(heads, _SOURCES[name], row))
    notes = (
        "logits: label stability under noise (hoki exact). inputs: the share of 20 "
        "zoomed-out copies of the image that keep its label. both: a weighted mean of "
        "the two, the weight of the inputs chosen by the Brier score on the validation "
        "set.",
        "The last columns: change in Brier score compared with logits, its standard "
        "error over examples, and the weight of the inputs.",
        made_note(r.made for r in results.found.values()),
    )
    columns = (*_SCORES.values(), "change in Brier", "standard error", "weight")
    title = "Hoki on inputs, and on inputs and logits"
    return Table("inputs", title, columns, tuple(rows), notes)


def _cells(result: Result) -> tuple[Cell, ...]:
    scores = [
        number(found.value, low=found.low, high=found.high)
        for found in (result.scores[name] for name in _SCORES)
    ]
    change, error = (
        result.facts.get(key) for key in ("brier_difference", "brier_error")
    )
    signed = Cell() if change is None else Cell(f"{change:+.4f}", change)
    weight = 1.0 if result.method == INPUT else result.facts.get("weight", 0.0)
    return (*scores, signed, number(error), number(weight, 1))
