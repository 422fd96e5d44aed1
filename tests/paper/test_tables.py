"""Published numbers, the tables built from them and ours, and how they are written."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest

from hokical.metrics import Estimate
from hokical.paper.findings import findings
from hokical.paper.methods import EXACT, INPUT, MIXED, SAMPLED
from hokical.paper.published import (
    BIN_COUNTS,
    MENDED,
    published_number,
    published_row,
    table_names,
)
from hokical.paper.render import to_csv, to_html, to_markdown, to_terminal
from hokical.paper.results import Results
from hokical.paper.table_data import Cell, Row, Table, marked, number
from hokical.paper.tables import all_tables, deviation_of, wins_table
from hokical.paper.wins import paper_methods, published_pairs, published_wins, wins

PAIRS = [
    ("mnist", "lenet5"),
    *(
        (dataset, network)
        for dataset in ("cifar10", "cifar100")
        for network in ("lenet5", "densenet40", "resnet110", "resnet110_sd", "wrn28_10")
    ),
    *(("imagenet", name) for name in ("densenet161", "mobilenet_v2", "resnet152", "wrn101_2")),
]

SMALL = Table(
    "ece",
    "ECE, 15 bins",
    ("temps", "hoki"),
    (
        Row(
            ("CIFAR-10", "ResNet-110"),
            "ours",
            marked([number(0.00884, low=0.004, high=0.012), number(0.00712)]),
        ),
        Row(("CIFAR-10", "ResNet-110"), "paper", marked([number(0.0088), number(0.0071)])),
        Row(("CIFAR-10", "a | <b>"), "ours", (Cell("not available"), number(0.5))),
    ),
    ("Lower is better.",),
)


def column(table: str, name: str) -> np.ndarray:
    return np.array([published_number(table, *pair, name) for pair in PAIRS], dtype=np.float64)


def test_every_published_table_has_all_fifteen_pairs() -> None:
    assert len(table_names()) == 9
    for table in table_names():
        rows = [published_row(table, *pair) for pair in PAIRS]
        assert all(rows), table
        assert len({tuple(row) for row in rows}) == 1


def test_mended_columns_fit_the_supplement() -> None:
    """Each method's 15-bin column is nearest to its own 10-bin and 30-bin columns."""
    for name in MENDED:
        main = column("ece_15_bins", name)
        for table in ("ece_10_bins", "ece_30_bins"):
            distance = {
                other: np.abs(np.log(main / column(table, other))).mean() for other in MENDED
            }
            assert min(distance, key=lambda other: distance[other]) == name


def test_the_paper_s_claim_is_in_its_numbers() -> None:
    names = [*paper_methods()[:-1], "hoki"]
    values = np.column_stack([column("ece_15_bins", name) for name in names])
    assert (values.argmin(axis=1) == len(names) - 1).sum() == 8


def test_unknown_tables_and_pairs() -> None:
    with pytest.raises(ValueError, match="`table` must be one of"):
        published_row("ece", "mnist", "lenet5")
    assert published_row("ece_15_bins", "mnist", "other") == {}
    assert published_number("learning_time_s", "mnist", "lenet5", "uncalibrated") is None


def test_equal_as_shown_is_equally_good() -> None:
    cells = marked([number(0.01001), number(0.01004), number(0.02), number(0.03), Cell("n/a")])
    assert [cell.mark for cell in cells] == ["best", "best", "second", "", ""]
    cells = marked([number(0.9), number(0.8), number(math.inf)], highest=False)
    assert [cell.mark for cell in cells] == ["second", "best", ""]
    assert marked([number(0.9), number(0.8)], highest=True)[0].mark == "best"
    assert marked([]) == ()


def test_noise_of_the_paper_is_read() -> None:
    assert deviation_of("U(-16, -8)") == pytest.approx(8 / math.sqrt(12))
    with pytest.raises(ValueError, match="`noise` must be written as"):
        deviation_of("N(0, 1)")


def test_markdown_word_for_word() -> None:
    assert to_markdown(SMALL) == (
        "### ECE, 15 bins\n"
        "\n"
        "| data set | network |  | temps | hoki |\n"
        "|---|---|---|--:|--:|\n"
        "| CIFAR-10 | ResNet-110 | ours | <u>0.0088</u> | **0.0071** |\n"
        "|  |  | paper | <u>0.0088</u> | **0.0071** |\n"
        "|  | a \\| <b> | ours | not available | 0.5000 |\n"
        "\n"
        "Lower is better.\n"
    )


def test_markdown_with_intervals() -> None:
    lines = to_markdown(SMALL.with_intervals()).splitlines()
    assert lines[5] == "|  |  | 95 % | 0.0040\N{EN DASH}0.0120 |  |"
    assert len(lines) == len(to_markdown(SMALL).splitlines()) + 1


def test_csv_word_for_word() -> None:
    assert to_csv(SMALL).splitlines()[:4] == [
        "table,head,subhead,source,column,text,value,low,high,mark",
        "ece,CIFAR-10,ResNet-110,ours,temps,0.0088,0.00884,0.004,0.012,second",
        "ece,CIFAR-10,ResNet-110,ours,hoki,0.0071,0.00712,,,best",
        "ece,CIFAR-10,ResNet-110,paper,temps,0.0088,0.0088,,,second",
    ]
    assert len(list(csv.DictReader(io.StringIO(to_csv(SMALL))))) == 6


def test_html_escapes_and_marks() -> None:
    html = to_html(SMALL)
    assert "a | &lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count('class="best"') == html.count("★") == 2
    assert '<tr class="paper">' in html
    assert "<small>0.0040\N{EN DASH}0.0120</small>" in html


def test_terminal_word_for_word() -> None:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=100).print(to_terminal(SMALL))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "data set   network                      temps     hoki",
        "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * 54,
        "CIFAR-10   ResNet-110   ours           0.0088   0.0071",
        "                        paper          0.0088   0.0071",
        "           a | <b>      ours    not available   0.5000",
    ]


def test_every_table_stands_on_the_results(results: Results) -> None:
    tables = all_tables(results)
    assert {"noise", "ece", "time", "init", "brier", "inputs", "wins", "accuracy"} <= set(tables)
    assert {f"ece_{bins}" for bins in BIN_COUNTS if bins != 15} <= set(tables)
    for table in tables.values():
        assert table.rows
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


def test_ours_and_the_paper_s_stand_side_by_side(results: Results) -> None:
    table = all_tables(results)["ece"]
    sources = [row.source for row in table.rows]
    assert sources == ["ours", "paper", "ours", "paper", "ours"]  # the last is not in the paper
    at = results.methods.index(SAMPLED)
    assert table.rows[3].cells[at].value == 0.0071
    assert table.rows[3].cells[results.methods.index(EXACT)].value is None
    ours = results.score(results.suite.pairs[1], SAMPLED, "ece")
    assert table.rows[2].cells[at].value == ours
    assert table.rows[4].cells[results.methods.index("recal")].text == "not available"
    assert any("rotated" in note for note in table.notes)


def test_marks_follow_the_lowest_value(results: Results) -> None:
    for row in all_tables(results)["brier"].rows:
        known = [cell for cell in row.cells if cell.value is not None]
        best = [cell for cell in known if cell.mark == "best"]
        assert min(known, key=lambda cell: cell.value or 0.0) in best


def test_wins_add_up_to_the_pairs(results: Results) -> None:
    for score in ("ece", "brier"):
        counts = wins(results, results.methods, score)
        assert sum(counts.values()) == 3
    slow = dict.fromkeys(results.methods, 0)
    for pair in results.suite.pairs:  # the obvious twin
        values = [results.score(pair, name, "ece") for name in results.methods]
        slow[results.methods[int(np.nanargmin(values))]] += 1
    assert wins(results, results.methods, "ece") == slow
    assert wins_table(results).heads == ("among", "method")


def test_published_wins_count_common_pairs(results: Results) -> None:
    common = published_pairs(results.suite.pairs)
    assert [pair.dataset for pair in common] == ["mnist", "cifar10"]
    assert published_wins(results.suite.pairs) == 1  # ResNet-110 on CIFAR-10 is second there
    counts = wins(results, results.methods, "ece", common)
    assert sum(counts.values()) == 2


def test_inputs_are_set_beside_logits(results: Results) -> None:
    table = all_tables(results)["inputs"]
    assert [row.source for row in table.rows] == ["logits", "inputs", "both"] * 2
    brier = table.columns.index("Brier score")
    shown = [row.cells[brier].value for row in table.rows[:3]]
    pair = results.suite.pairs[0]
    assert shown == [results.score(pair, name, "brier") for name in (EXACT, INPUT, MIXED)]


def test_findings_tell_the_counts(results: Results) -> None:
    said = findings(results)
    won = wins(results, paper_methods(), "ece")[SAMPLED]
    assert f"as printed it is lowest on {won} of 3" in said[0]
    assert ("does not hold" in said[0]) == (won / 3 < 8 / 15)
    assert any(text.startswith("Input stability alone") for text in said)
    assert any(text.startswith("recal is missing on 1 pair") for text in said)
    common = wins(results, paper_methods(), "ece", published_pairs(results.suite.pairs))[SAMPLED]
    assert f"its Hoki is lowest on 1; ours is lowest on {common} as printed" in said[1]


def test_findings_name_what_is_infinite(results: Results) -> None:
    pair = results.suite.pairs[0]
    temps = results.found[pair.name, "temps"]
    scores = temps.scores | {"log_loss": Estimate(math.inf, math.nan, math.nan)}
    found = dict(results.found) | {(pair.name, "temps"): replace(temps, scores=scores)}
    boundless = replace(results, found=found)
    told = [text for text in findings(boundless) if "log loss is infinite" in text]
    assert len(told) == 1
    assert f"temps on {pair.name}" in told[0]
    assert not any(f"temps on {pair.name}" in text for text in findings(results))
    row = all_tables(boundless)["log_loss"].rows[0]
    cell = row.cells[results.methods.index("temps")]
    assert (cell.text, cell.mark) == ("inf", "")


def test_infinite_is_never_good() -> None:
    cells = marked([number(math.inf), number(0.2), Cell()])
    assert [cell.mark for cell in cells] == ["", "best", ""]
