"""Stored results and the page that is filled from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hokical.cli import app
from hokical_paper.results import Results
from hokical_paper.stored import fill_page, read_stored, store_results, update_page
from hokical_paper.tables import ece_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "experiments.md"
TEMPLATE = (
    "# Page\n\n<!-- paper: ece -->\noutdated\n<!-- end -->\n\n![a](assets/paper_ece_bars.png)\n"
)


def test_the_page_is_what_its_results_make_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == fill_page(text, read_stored(PAGE.with_suffix(".json")))
    assert text.count("<!-- paper: ") == text.count("<!-- end -->") > 5


def test_a_page_is_filled_from_results(results: Results, tmp_path: Path) -> None:
    stored = tmp_path / "out" / "results.json"
    (tmp_path / "out" / "figures").mkdir(parents=True)
    (tmp_path / "out" / "figures" / "ece_bars.png").write_bytes(b"PNG")
    (tmp_path / "assets").mkdir()
    store_results(stored, {"ece": ece_table(results, 15)}, ["It holds."])
    store_results(stored, {"ece_5": ece_table(results, 5)})
    assert sorted(read_stored(stored)) == ["ece", "ece_5", "findings"]
    page = tmp_path / "page.md"
    page.write_text(TEMPLATE)
    done = CliRunner().invoke(app, ["paper", "docs", str(page), "--results", str(stored)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "outdated" not in text
    assert "| MNIST | LeNet-5 | ours |" in text
    assert (tmp_path / "assets" / "paper_ece_bars.png").read_bytes() == b"PNG"
    assert list(read_stored(tmp_path / "page.json")) == ["ece"]
    assert update_page(page) == [page]
    assert page.read_text() == text


def test_unknown_blocks_are_named() -> None:
    with pytest.raises(ValueError, match="no 'ece' in the results; they have findings"):
        fill_page(TEMPLATE, {"findings": []})
