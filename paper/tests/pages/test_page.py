"""The page: whole in itself, nothing taken for markup, everything on it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html import escape
from importlib.resources import files

import pytest

from hokical_paper.pages.page import render_page
from hokical_paper.running.methods import SAMPLED
from hokical_paper.running.results import Results
from hokical_paper.suite.manifest import Pair, Suite
from hokical_paper.tables.builders import all_tables

PICTURE = ("A caption & more.", b"\x89PNG not a real one")


def page(results: Results) -> str:
    return render_page(results, all_tables(results), {"ece_bars": PICTURE})


@pytest.mark.slow
def test_page_loads_nothing(results: Results) -> None:
    html = page(results)
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", html)
    assert "url(" not in html
    assert "<script" not in html


@pytest.mark.slow
def test_policy_allows_exactly_the_style(results: Results) -> None:
    html = page(results)
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"sha256-{digest}" in html


@pytest.mark.slow
def test_everything_is_on_the_page(results: Results) -> None:
    html = page(results)
    for name, table in all_tables(results).items():
        assert f'<section id="{name}"' in html
        assert f'<a href="#{name}">{escape(table.title)}</a>' in html
    assert "A caption &amp; more." in html
    assert base64.b64encode(PICTURE[1]).decode() in html
    assert "drawn at random" in html


@pytest.mark.slow
def test_tiles_count_the_pairs_on_which_a_method_ran(results: Results) -> None:
    """As on a pair of which only the best classes are known."""
    pair = results.suite.pairs[0]
    fewer = {
        key: result
        for key, result in results.by_cell.items()
        if key != (pair.name, SAMPLED)
    }
    html = page(replace(results, by_cell=fewer))
    n_pairs = len(results.suite.pairs)
    for title, count in (("hoki sampled", n_pairs - 1), ("hoki exact", n_pairs)):
        tile = re.search(rf"{title}: lowest ECE</span> <b>\d+ of (\d+)</b>", html)
        assert tile is not None
        assert int(tile[1]) == count


@pytest.mark.slow
def test_quick_pairs_are_the_first_thing_said(results: Results) -> None:
    suite = results.suite
    quick = Pair(suite.folder, {**suite.pairs[0].entry, "quick": True})
    html = page(replace(results, suite=Suite(suite.folder, (quick, *suite.pairs[1:]))))
    headline = re.search(r"<h1>(.*?)</h1>", html, re.DOTALL)
    assert headline is not None
    assert "were made with --quick" in headline[1]
    assert "--quick" not in page(results)


def test_heads_stay_in_sight_at_their_widths() -> None:
    """Each sticky column begins where those before it end."""
    style = (files("hokical_paper.pages") / "page.css").read_text()
    wide = style.split("@media")[0]
    places = {
        int(column): (float(left), float(width))
        for column, left, width in re.findall(
            r"nth-child\((\d)\) \{ left: ([\d.]+)(?:rem)?; min-width: ([\d.]+)rem", wide
        )
    }
    assert sorted(places) == [1, 2, 3]
    for column in (2, 3):
        left, width = places[column - 1]
        assert places[column][0] == pytest.approx(left + width)


def test_names_and_notes_are_not_markup(results: Results) -> None:
    suite = results.suite
    entry = {
        **suite.pairs[0].entry,
        "title": "<script>alert(1)</script>",
        "how": "<img src=x>",
    }
    changed = Suite(suite.folder, (Pair(suite.folder, entry), *suite.pairs[1:]))
    noted = dict(results.by_cell)
    key = ("mnist_lenet5", "temps")
    noted[key] = replace(noted[key], notes=("<b>did not converge</b>",))
    html = page(replace(results, suite=changed, by_cell=noted))
    assert "<script" not in html
    assert "<img src=x" not in html
    assert "&lt;b&gt;did not converge&lt;/b&gt;" in html
