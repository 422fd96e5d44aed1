"""Stored results and the page that is filled from them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hokical.cli import app
from hokical_paper.pages.stored import (
    fill_page,
    moved_cells,
    read_stored,
    store_results,
    update_page,
)
from hokical_paper.published import published_rows
from hokical_paper.running import cells as running
from hokical_paper.running.cache import Cache
from hokical_paper.running.results import Results
from hokical_paper.tables.builders import ece_table, time_table
from paper.tests.tiny_suite import QUICK

PAGE = Path(__file__).resolve().parents[2] / "docs" / "experiments.md"
TEMPLATE = (
    "# Page\n\n<!-- paper: ece -->\noutdated\n<!-- end "
    "-->\n\n![a](assets/paper_ece_bars.png) and [5 bins](tables/ece_5.csv)\n"
)


def test_the_page_is_what_its_results_make_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == fill_page(text, read_stored(PAGE.with_suffix(".json")))
    assert text.count("<!-- paper: ") == text.count("<!-- end -->") > 5


def test_files_beside_the_page_have_its_results() -> None:
    """Each table that the page links to is there, with the cells of the stored one."""
    stored = read_stored(PAGE.with_suffix(".json"))
    for name in re.findall(r"\]\(tables/(\w+)\.csv\)", PAGE.read_text("utf-8")):
        with (PAGE.parent / "tables" / f"{name}.csv").open(encoding="utf-8") as file:
            texts = [row["text"] for row in csv.DictReader(file)]
        rows = [row[3] for row in stored[name]["rows"]]
        cells = [cell for row in rows for cell in row]
        assert texts == list(map(text_of, cells)), name


def test_outcomes_in_the_map_that_are_no_claims_are_true() -> None:
    stored = read_stored(PAGE.with_suffix(".json"))
    outcomes = {row[3][1] for row in stored["map"]["rows"]}
    assert {"within 2 points", "widths within a factor of 2"} <= outcomes
    for ours, papers in beside_the_paper(stored["accuracy"], column=1):
        assert abs(float(ours) - float(papers)) < 0.02
    for ours, papers in beside_the_paper(stored["noise"], column=1):
        assert 0.5 < float(ours) / float(papers) < 2.0
    spreads = [float(row["sigma_hat"]) for row in published_rows("selected_noise")]
    assert "0.0167 in its own Table 1" in outcomes
    assert min(spreads) == 0.0167
    times = published_rows("learning_time_s")
    assert "irm is, in its own Table 3" in outcomes
    assert all(float(row["irm"]) < float(row["temps"]) for row in times)


def beside_the_paper(table: dict[str, Any], column: int) -> list[tuple[str, str]]:
    """Each number of ours with the paper's for the same network."""
    rows = [(tuple(row[:2]), row[2], text_of(row[3][column])) for row in table["rows"]]
    papers = {heads: text for heads, source, text in rows if source == "paper"}
    return [
        (text, papers[heads])
        for heads, source, text in rows
        if source != "paper" and heads in papers
    ]


def text_of(cell: str | list[str]) -> str:
    """What a stored cell shows, without its mark."""
    return cell if isinstance(cell, str) else cell[0]


def test_a_page_is_filled_from_results(results: Results, tmp_path: Path) -> None:
    stored = tmp_path / "out" / "results.json"
    (tmp_path / "out" / "figures").mkdir(parents=True)
    (tmp_path / "out" / "figures" / "ece_bars.png").write_bytes(b"PNG")
    (tmp_path / "assets").mkdir()
    store_results(stored, {"ece": ece_table(results, 15)}, ["It holds."])
    store_results(stored, {"ece_5": ece_table(results, 5)})
    (tmp_path / "out" / "tables").mkdir()
    (tmp_path / "out" / "tables" / "ece_5.csv").write_text("table,head\n")
    assert sorted(read_stored(stored)) == ["ece", "ece_5", "findings"]
    page = tmp_path / "page.md"
    page.write_text(TEMPLATE)
    done = CliRunner().invoke(
        app, ["paper", "docs", str(page), "--results", str(stored)]
    )
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "outdated" not in text
    assert "| MNIST | LeNet-5 | ours |" in text
    assert (tmp_path / "assets" / "paper_ece_bars.png").read_bytes() == b"PNG"
    assert (tmp_path / "tables" / "ece_5.csv").read_text() == "table,head\n"
    assert list(read_stored(tmp_path / "page.json")) == ["ece", "ece_5"]
    assert update_page(page) == [page]
    assert page.read_text() == text


def test_a_cell_that_moved_is_found(results: Results, tmp_path: Path) -> None:
    tables = {"ece": ece_table(results, 15), "time": time_table(results)}
    store_results(tmp_path / "results.json", tables)
    stored = read_stored(tmp_path / "results.json")
    compared, moved = moved_cells(stored, tables)
    assert compared == sum(
        c.value is not None for r in tables["ece"].rows[::2] for c in r.cells
    )
    assert moved == []
    row = stored["ece"]["rows"][0]
    assert row[2] == "ours"
    for by, is_moved in ((0.0003, False), (0.0009, True)):
        row[3][1] = f"{(tables['ece'].rows[0].cells[1].value or 0.0) + by:.4f}"
        moved = moved_cells(stored, tables)[1]
        assert bool(moved) == is_moved
    assert moved[0].startswith("ece, MNIST, LeNet-5, ours, temps: ")
    stored["ece"]["columns"][1] = "profile"
    assert any("column 'profile'" in line for line in moved_cells(stored, tables)[1])


@pytest.mark.slow
def test_check_fails_when_a_cell_moves(
    ran: tuple[Path, Path, Results], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache, results = ran
    monkeypatch.setattr(running, "METHODS", tuple(QUICK))
    page = tmp_path / "page.md"
    page.write_text(TEMPLATE)
    store_results(page.with_suffix(".json"), {"ece": ece_table(results, 15)})
    words = ["paper", "check", str(page), "--suite", str(folder), "--cache", str(cache)]
    done = CliRunner().invoke(app, [*words, "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert ", 0 moved." in done.output
    beside = page.with_suffix(".json")
    beside.write_text(beside.read_text().replace('"0.', '"1.'))
    done = CliRunner().invoke(app, [*words, "--jobs", "1"])
    assert done.exit_code == 1
    assert "on the page, now 0." in done.output


def test_results_of_other_versions_are_reused_only_if_asked_for(
    ran: tuple[Path, Path, Results], tmp_path: Path
) -> None:
    results = ran[2]
    pair = results.suite.pairs[0]
    stored = json.dumps(results.by_cell[pair.name, "temps"].to_dict())
    (tmp_path / f"{pair.name}-temps-of_another_code.json").write_text(stored)
    assert Cache(tmp_path).get(pair, "temps") is None
    found = Cache(tmp_path, reuse=True).get(pair, "temps")
    assert found is not None
    assert found.made.startswith("hokical ")
    assert Cache(tmp_path, reuse=True).get(pair, "temps", division=1) is None


def test_unknown_blocks_are_named() -> None:
    with pytest.raises(ValueError, match="no 'ece' in the results; they have findings"):
        fill_page(TEMPLATE, {"findings": []})
