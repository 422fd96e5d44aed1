"""Published numbers, the tables built from them and ours, and how they are written."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from hokical import Hoki
from hokical.metrics import Estimate
from hokical_paper.published import (
    BIN_COUNTS,
    SUPPLEMENT,
    published_number,
    published_row,
    table_names,
)
from hokical_paper.running.methods import (
    EXACT,
    SAMPLED,
    published_column,
    title_of,
)
from hokical_paper.running.results import Results
from hokical_paper.running.stamp import made_by
from hokical_paper.suite.manifest import Pair, Suite
from hokical_paper.tables import headers
from hokical_paper.tables.builders import all_tables, deviation_of, wins_table
from hokical_paper.tables.findings import findings
from hokical_paper.tables.render import (
    to_csv,
    to_html,
    to_markdown,
    to_terminal,
    without_column,
)
from hokical_paper.tables.table import Cell, Row, Table, mark_best, number
from hokical_paper.tables.wins import (
    paper_methods,
    published_pairs,
    published_wins,
    wins,
)

PAIRS = [
    ("mnist", "lenet5"),
    *(
        (dataset, network)
        for dataset in ("cifar10", "cifar100")
        for network in ("lenet5", "densenet40", "resnet110", "resnet110_sd", "wrn28_10")
    ),
    *(
        ("imagenet", name)
        for name in ("densenet161", "mobilenet_v2", "resnet152", "wrn101_2")
    ),
]

SMALL = Table(
    "ece",
    "ECE, 15 bins",
    ("temps", "hoki"),
    (
        Row(
            ("CIFAR-10", "ResNet-110"),
            "ours",
            mark_best([number(0.00884, low=0.004, high=0.012), number(0.00712)]),
        ),
        Row(
            ("CIFAR-10", "ResNet-110"),
            "paper",
            mark_best([number(0.0088), number(0.0071)]),
        ),
        Row(("CIFAR-10", "a | <b>"), "ours", (Cell("not available"), number(0.5))),
    ),
    ("Lower is better.",),
)


def column(table: str, name: str) -> np.ndarray:
    return np.array(
        [published_number(table, *pair, name) for pair in PAIRS], dtype=np.float64
    )


def test_every_published_table_has_all_fifteen_pairs() -> None:
    assert len(table_names()) == 9
    for table in table_names():
        rows = [published_row(table, *pair) for pair in PAIRS]
        assert all(rows), table
        assert len({tuple(row) for row in rows}) == 1


def test_columns_fit_each_other() -> None:
    """Each method's 15-bin column is nearest to its own 10-bin and 30-bin columns."""
    for name in SUPPLEMENT:
        main = column("ece_15_bins", name)
        for table in ("ece_10_bins", "ece_30_bins"):
            distance = {
                other: np.abs(np.log(main / column(table, other))).mean()
                for other in SUPPLEMENT
            }
            assert min(distance, key=lambda other: distance[other]) == name


SOURCE = Path(__file__).resolve().parents[4] / "shared" / "paper" / "hoki.tex"
HEADS = {
    "Uncal.": "uncalibrated",
    "TempS": "temps",
    "VecS": "vecs",
    "MSODIR": "ms_odir",
    "DirODIR": "dir_odir",
    "ETS": "ets",
    "IRM": "irm",
    "IROvATS": "irova_ts",
    "ReCal": "recal",
    "ours": "hoki",
    "ValAcc.%": "val_acc",
    "TestAcc.%": "test_acc",
    "ValAccuracy": "val_accuracy",
    "UncalibratedConfidence": "uncalibrated_confidence",
    "Parameters": "noise",
    "alphah": "alpha",
    "betah": "beta",
    "hatsigma": "sigma_hat",
}
LABELS = {
    "tab:exp_res_ECE": "ece_15_bins",
    "tab:learng_time": "learning_time_s",
    "tab:exp_init": "ece_by_initialisation",
    "tab:selected_transformation": "selected_noise",
    **{f"tab:ece_{bins}_bins": f"ece_{bins}_bins" for bins in BIN_COUNTS if bins != 15},
}


def printed_table(text: str, label: str) -> list[dict[str, str]]:
    """A table of the LaTeX source as it is printed: headers and rows, without its
    markup.
    """
    body = text[text.index(f"label{{{label}}}") :]
    head, *parts = body[body.index("toprule") + 7 : body.index("bottomrule")].split(
        "\\midrule"
    )
    names = [re.sub(r"thead|[^A-Za-z%.]", "", cell) for cell in head.split("&")]
    found, dataset = [], ""
    for row in "".join(parts).split("\\\\"):
        marks = r"\\multirow\{\d\}\{\*\}|\\textbf|\\underline|[{}$\n]"
        cells = [cell.strip() for cell in re.sub(marks, "", row).split("&")]
        if len(cells) == len(names):
            dataset = cells[0] or dataset
            values = {
                HEADS[n]: cell for n, cell in zip(names[2:], cells[2:], strict=True)
            }
            found.append(
                {"dataset": dataset, "model": cells[1].replace(" ", ""), **values}
            )
    return found


@pytest.mark.skipif(not SOURCE.is_file(), reason="needs the paper's source")
@pytest.mark.parametrize("label", LABELS)
def test_tables_are_those_of_the_source(label: str) -> None:
    """Every number, under the header it is printed under; rotated in the supplement."""
    rows = printed_table(SOURCE.read_text(encoding="utf-8"), label)
    assert len(rows) == 15
    is_rotated = label.startswith("tab:ece_")
    text = (files("hokical_paper") / "published" / f"{LABELS[label]}.csv").read_text(
        "utf-8"
    )
    for ours, printed in zip(csv.DictReader(text.splitlines()), rows, strict=True):
        assert (ours.pop("dataset"), ours.pop("model").replace(" ", "")) == (
            printed["dataset"],
            printed["model"],
        )
        for name, value in ours.items():
            head = SUPPLEMENT.get(name, name) if is_rotated else name
            assert value == printed[head], (label, name)


def test_the_paper_s_claim_is_in_its_numbers() -> None:
    names = [published_column(name) for name in paper_methods()]
    values = np.column_stack([column("ece_15_bins", name) for name in names])
    assert (values.argmin(axis=1) == len(names) - 1).sum() == 8


def test_unknown_tables_and_pairs() -> None:
    with pytest.raises(ValueError, match="`table` must be one of"):
        published_row("ece", "mnist", "lenet5")
    assert published_row("ece_15_bins", "mnist", "other") == {}
    assert (
        published_number("learning_time_s", "mnist", "lenet5", "uncalibrated") is None
    )


def test_equal_as_shown_is_equally_good() -> None:
    cells = mark_best(
        [number(0.01001), number(0.01004), number(0.02), number(0.03), Cell("n/a")]
    )
    assert [cell.mark for cell in cells] == ["best", "best", "second", "", ""]
    cells = mark_best([number(0.9), number(0.8), number(math.inf)], highest=False)
    assert [cell.mark for cell in cells] == ["second", "best", ""]
    assert mark_best([number(0.9), number(0.8)], highest=True)[0].mark == "best"
    assert mark_best([]) == ()


def test_noise_of_the_paper_is_read() -> None:
    assert deviation_of("U(-16, -8)") == pytest.approx(8 / math.sqrt(12))
    with pytest.raises(ValueError, match="`noise` must have the form"):
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


def test_words_are_on_the_left_and_no_column_is_empty() -> None:
    rows = [
        Row(("ECE", "8 of 15"), "", (Cell("49% (38% to 61%)"), Cell("undecided"))),
        Row(("time", "all"), "", (Cell("\N{EN DASH}"), Cell("holds"))),
    ]
    table = Table("claims", "Claims", ("ours", "verdict"), tuple(rows))
    assert to_markdown(table).splitlines()[2:5] == [
        "| data set | network | ours | verdict |",
        "|---|---|--:|---|",
        "| ECE | 8 of 15 | 49% (38% to 61%) | undecided |",
    ]
    assert to_html(table).count('<th scope="col">') == 4
    assert len(to_terminal(table).columns) == 4
    assert without_column(table, "ours").columns == ("verdict",)


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


@pytest.mark.slow
def test_every_table_stands_on_the_results(results: Results) -> None:
    tables = all_tables(results)
    assert {
        "noise",
        "ece",
        "time",
        "init",
        "brier",
        "wins",
        "accuracy",
    } <= set(tables)
    assert {f"ece_{bins}" for bins in BIN_COUNTS if bins != 15} <= set(tables)
    for table in tables.values():
        assert table.rows
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


@pytest.mark.slow
def test_ours_and_the_paper_s_stand_n_parallel(results: Results) -> None:
    table = all_tables(results)["ece"]
    sources = [row.source for row in table.rows]
    assert sources == [
        "ours",
        "paper",
        "ours",
        "paper",
        "ours",
    ]  # the last is not in the paper
    at = results.methods.index(SAMPLED)
    assert table.rows[3].cells[at].value == 0.0071
    assert table.rows[3].cells[results.methods.index(EXACT)].value is None
    ours = results.score(results.suite.pairs[1], SAMPLED, "ece")
    assert table.rows[2].cells[at].value == ours
    assert table.rows[4].cells[results.methods.index("recal")].text == "not available"
    assert not any("rotated" in note for note in table.notes)
    assert any(
        "supplement has the headers" in note
        for note in all_tables(results)["ece_5"].notes
    )
    assert table.rows[3].cells[results.methods.index("irm_published")].value == 0.0103
    assert table.rows[3].cells[results.methods.index("irm")].value is None


@pytest.mark.slow
def test_marks_follow_the_lowest_value(results: Results) -> None:
    for row in all_tables(results)["brier"].rows:
        known = [cell for cell in row.cells if cell.value is not None]
        best = [cell for cell in known if cell.mark == "best"]
        assert min(known, key=lambda cell: cell.value or 0.0) in best


def rescored(
    results: Results, score: str, values: dict[tuple[str, str], float]
) -> Results:
    """The results with some scores changed, by pair and method."""
    found = dict(results.by_cell)
    for key, value in values.items():
        scores = found[key].scores | {score: Estimate(value, math.nan, math.nan)}
        found[key] = replace(found[key], scores=scores)
    return replace(results, by_cell=found)


def every(results: Results, method: str, value: float) -> dict[tuple[str, str], float]:
    """The same score for a method on all pairs."""
    return {(pair.name, method): value for pair in results.suite.pairs}


def test_wins_are_what_the_table_marks(results: Results) -> None:
    for score in ("ece", "brier"):
        marks = dict.fromkeys(results.methods, 0)
        for pair in results.suite.pairs:  # the obvious twin
            shown = {
                name: f"{results.score(pair, name, score):.4f}"
                for name in results.methods
            }
            lowest = min(float(text) for text in shown.values() if text != "nan")
            for name in results.methods:
                marks[name] += float(shown[name]) == lowest
        assert wins(results, results.methods, score) == marks
    assert wins_table(results).heads == ("among", "method")


def test_equal_as_shown_win_together(results: Results) -> None:
    pair = results.suite.pairs[0]
    tied = rescored(
        results,
        "ece",
        {
            (pair.name, "temps"): 0.00011,
            (pair.name, "ets"): 0.00014,
            (pair.name, "vecs"): 0.00016,
        },
    )
    counts = wins(tied, results.methods, "ece", [pair])
    assert {name for name, count in counts.items() if count} == {"temps", "ets"}
    assert any("all win" in note for note in wins_table(tied).notes)


def test_infinite_never_wins(results: Results) -> None:
    pair = results.suite.pairs[0]
    endless = {(pair.name, name): math.inf for name in results.methods}
    assert not any(
        wins(rescored(results, "ece", endless), results.methods, "ece", [pair]).values()
    )


def test_published_wins_count_common_pairs(results: Results) -> None:
    common = published_pairs(results.suite.pairs)
    assert [pair.dataset for pair in common] == ["mnist", "cifar10"]
    assert (
        published_wins(results.suite.pairs) == 1
    )  # ResNet-110 on CIFAR-10 is second there


@pytest.mark.slow
def test_distinct_confidences_are_counted(results: Results) -> None:
    table = all_tables(results)["distinct"]
    pair = results.suite.pairs[0]
    data = pair.load()
    hoki = Hoki().fit(data.val_logits, data.val_labels)
    expected = np.unique(hoki.predict_confidence(data.test_logits)).size
    cells = dict(zip(table.columns, table.rows[0].cells, strict=True))
    assert cells["hoki exact"].value == expected
    assert cells["test examples"].value == data.test_labels.size


@pytest.mark.slow
def test_every_table_and_the_findings_name_the_version(results: Results) -> None:
    found = {
        key: replace(r, made="hokical 0.0 (abc)") for key, r in results.by_cell.items()
    }
    old = replace(results, by_cell=found)
    ends = {name: table.notes[-1] for name, table in all_tables(old).items()}
    ends["findings"] = findings(old)[-1]
    assert [name for name in ends if "hokical 0.0 (abc)" not in ends[name]] == []
    assert made_by() in ends["theorem_2"]  # simulated when the table is made


def test_findings_tell_the_counts(results: Results) -> None:
    said = findings(results)
    won = wins(results, paper_methods(), "ece")[SAMPLED]
    assert f"sampled as in the paper it is lowest on {won} of 3, exact" in said[0]
    assert "hold" not in said[0]  # one division is no verdict
    assert (
        "8 ran on mnist_lenet5, 8 ran on cifar10_resnet110, 7 ran on imagenet_small"
        in said[0]
    )
    plain = wins(results, paper_methods(normalised=True), "ece")[SAMPLED]
    assert f"irm and irova_ts normalised, on {plain} and on" in said[0]
    assert any(
        text.startswith("Missing on 1 pair (imagenet_small): recal (not")
        for text in said
    )
    common = wins(
        results, paper_methods(), "ece", published_pairs(results.suite.pairs)
    )[SAMPLED]
    assert (
        f"Hoki is lowest on 1 in the paper; ours is lowest on {common} sampled"
        in said[1]
    )


def renamed(results: Results, eces: dict[str, dict[int, list[float]]]) -> Results:
    """The first pair's results under the names of the paper's eleven smaller pairs,
    with ECEs of some methods, by number of bins.
    """
    pair = results.suite.pairs[0]
    names = {
        f"{dataset}_{network}": (dataset, network) for dataset, network in PAIRS[:11]
    }
    pairs = tuple(
        Pair(
            pair.folder,
            {**pair.entry, "name": name, "dataset": key[0], "network": key[1]},
        )
        for name, key in names.items()
    )
    found = {}
    for at, name in enumerate(names):
        for method, by_bins in eces.items():
            base = results.by_cell[pair.name, method]
            own = {bins: values[at] for bins, values in by_bins.items()}
            found[name, method] = replace(base, pair=name, ece_by_bins=own)
    return replace(results, suite=Suite(results.suite.folder, pairs), by_cell=found)


@pytest.mark.parametrize("rotated", ["main", "supplement"])
def test_methods_tell_whose_headers_are_rotated(results: Results, rotated: str) -> None:
    """Had we measured what one of the tables prints, it would be the right one."""
    back = {printed: name for name, printed in SUPPLEMENT.items()}
    eces: dict[str, dict[int, list[float]]] = {}
    for name, method in headers.METHODS.items():
        source = name if rotated == "supplement" else back[name]
        tables = {bins: column(f"ece_{bins}_bins", source)[:11] for bins in BIN_COUNTS}
        eces[method] = {
            bins: (1.1 * values).tolist() for bins, values in tables.items()
        }
    table = headers.headers_table(renamed(results, eces))
    assert len(table.rows) == 2 * len(BIN_COUNTS)
    for row in table.rows:
        is_right = ("supplement" in row.heads[1]) == (rotated == "supplement")
        assert (row.cells[-2].mark == "best") == is_right
        if is_right:
            assert row.cells[-2].value == pytest.approx(math.log(1.1))
    worse = [row.cells[-1].value for row in table.rows[1::2]]
    assert all(
        (value > 0.0) == (rotated == "supplement")
        for value in worse
        if value is not None
    )


def test_one_network_has_no_interval(results: Results) -> None:
    eces = {
        method: {bins: [0.1] * 11 for bins in BIN_COUNTS}
        for method in headers.METHODS.values()
    }
    all_of_them = renamed(results, eces)
    for n, has_interval in ((1, False), (3, True)):
        suite = Suite(results.suite.folder, all_of_them.suite.pairs[:n])
        table = headers.headers_table(replace(all_of_them, suite=suite))
        cells = [row.cells[-1] for row in table.rows[1::2]]
        assert all((" (" in cell.text) == has_interval for cell in cells)


@pytest.mark.slow
def test_networks_known_by_their_best_classes_are_named(results: Results) -> None:
    suite = results.suite
    few = Pair(suite.folder, {**suite.pairs[1].entry, "top_k": 5})
    some = replace(results, suite=Suite(suite.folder, (suite.pairs[0], few)))
    tables = all_tables(some)
    for name in (
        "ece",
        "noise",
        "time",
        "init",
        "accuracy",
        "variance",
        "theorem_1",
        "theorem_2",
    ):
        assert any(row.heads[1] == "ResNet-110 (top 5)" for row in tables[name].rows), (
            name
        )
    assert (
        "Of ResNet-110 (top 5) only the best classes are known"
        in tables["wins"].notes[0]
    )
    assert any(
        "Only the best classes are known on 1 pair: cifar10_resnet110 (5)" in text
        for text in findings(some)
    )


def test_times_are_shown_with_and_without_the_choice_of_noise(results: Results) -> None:
    table = all_tables(results)["time"]
    for method in (SAMPLED, EXACT):
        at = [
            k
            for k, name in enumerate(table.columns)
            if name.startswith(title_of(method))
        ]
        alone, together = (table.rows[0].cells[k].value for k in at)
        assert alone is not None
        assert together is not None
        assert alone < together
        assert table.rows[1].cells[at[1]].value is None  # the paper does not say


def test_heaps_are_told_of_only_where_the_means_show_them(results: Results) -> None:
    def told(width: float, mass: float, smooth: float) -> str:
        changed = results
        for score, value in (
            ("ece", width),
            ("ece_mass", mass),
            ("smooth_ece", smooth),
        ):
            for method in (EXACT, SAMPLED):
                changed = rescored(changed, score, every(changed, method, value))
        return next(
            text
            for text in findings(changed)
            if text.startswith("Mean ECE over 3 pairs")
        )

    assert "hoki exact 0.0000, 0.9000, 0.0010;" in told(0.0, 0.9, 0.001)
    assert "bins of equal width and smooth ECE cannot see" in told(0.0, 0.9, 0.001)
    assert "average: bins of equal width cannot see" in told(0.0, 0.9, 0.9)
    assert "clusters" not in told(0.9, 0.9, 0.9)
    assert "clusters" not in told(0.0, 0.0, 0.0)


def test_one_pair_is_singular(results: Results) -> None:
    one = replace(results, suite=results.suite.only(["mnist_lenet5"]))
    said = " ".join(findings(one))
    assert "1 pairs" not in said
    assert "On the 1 pair that the paper has too" in said


@pytest.mark.slow
def test_quick_pairs_are_not_set_beside_the_paper(results: Results) -> None:
    suite = results.suite
    quick = Pair(suite.folder, {**suite.pairs[1].entry, "quick": True})
    tried = replace(
        results, suite=Suite(suite.folder, (suite.pairs[0], quick, suite.pairs[2]))
    )
    for name in ("ece", "noise", "time", "init", "accuracy", "ece_5"):
        sources = [
            row.source
            for row in all_tables(tried)[name].rows
            if row.heads == (quick.dataset_title, quick.title)
        ]
        assert sources, name
        assert "paper" not in sources, name
    assert published_pairs(tried.suite.pairs) == [suite.pairs[0]]
    assert (
        "1 of 3 pairs were made with --quick (cifar10_resnet110)" in findings(tried)[0]
    )


def test_recal_s_times_name_their_machine(results: Results) -> None:
    notes = all_tables(results)["time"].notes
    assert any("are from that machine (a computer, all used)" in note for note in notes)


def test_options_are_not_broken_over_lines() -> None:
    row = Row(("a", "b"), "ours", (Cell("minutes (--slow)"),))
    html = to_html(Table("t", "T", ("x",), (row,)))
    assert '<span class="whole">(--slow)</span>' in html


@pytest.mark.slow
def test_findings_name_what_is_infinite(results: Results) -> None:
    pair = results.suite.pairs[0]
    temps = results.by_cell[pair.name, "temps"]
    scores = temps.scores | {"log_loss": Estimate(math.inf, math.nan, math.nan)}
    found = dict(results.by_cell) | {
        (pair.name, "temps"): replace(temps, scores=scores)
    }
    boundless = replace(results, by_cell=found)
    told = [text for text in findings(boundless) if "log loss is infinite" in text]
    assert len(told) == 1
    assert f"temps on {pair.name}" in told[0]
    assert not any(f"temps on {pair.name}" in text for text in findings(results))
    row = all_tables(boundless)["log_loss"].rows[0]
    cell = row.cells[results.methods.index("temps")]
    assert (cell.text, cell.mark) == ("inf", "")


def test_infinite_is_never_good() -> None:
    cells = mark_best([number(math.inf), number(0.2), Cell()])
    assert [cell.mark for cell in cells] == ["", "best", ""]
