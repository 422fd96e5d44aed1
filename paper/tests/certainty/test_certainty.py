"""Divisions made anew: what is run, that it resumes, and what is counted."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.conftest import max_examples

from hokical_paper.certainty import divisions as certainty
from hokical_paper.certainty.claims import (
    FAILS,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    EvaluatedClaim,
    Finding,
    _correlation,
    all_claims,
    verdict,
)
from hokical_paper.certainty.contests import (
    Divisions,
    Share,
    bootstrap_pairs,
    is_among_best,
    is_lowest,
    mean_share,
    score_of,
    share_of,
)
from hokical_paper.certainty.divisions import run_divisions, takes_part
from hokical_paper.certainty.objects import (
    MINUTES,
    OBJECTS,
    claim_tables,
    map_table,
)
from hokical_paper.certainty.tables import certainty_table, divisions_note, ranks_table
from hokical_paper.running.cache import Cache
from hokical_paper.running.methods import EXACT, SAMPLED
from hokical_paper.running.results import Result, Results
from hokical_paper.suite.manifest import open_suite
from hokical_paper.tables.render import fit_width, to_terminal

METHODS = ("temps", "ets", EXACT)


@pytest.fixture
def divisions(
    ran: tuple[Path, Path, Results], monkeypatch: pytest.MonkeyPatch
) -> Divisions:
    """Two divisions of three pairs with quick methods."""
    folder, cache, _ = ran
    monkeypatch.setattr(certainty, "METHODS", METHODS)
    suite = open_suite(folder)
    found = run_divisions(suite, Cache(cache), n_divisions=2, jobs=1)
    return Divisions.of(found, suite.names)


def with_eces(base: Result, eces: dict[tuple[str, int, str], float]) -> Divisions:
    """Made-up results."""
    found = []
    for (pair, division, method), value in eces.items():
        score = replace(base.scores["ece"], value=value)
        scores = base.scores | {"ece": score}
        found.append(
            replace(base, pair=pair, method=method, division=division, scores=scores)
        )
    return Divisions.of(found, sorted({key[0] for key in eces}))


@pytest.mark.slow
def test_every_division_is_run_once(
    divisions: Divisions, ran: tuple[Path, Path, Results]
) -> None:
    assert len(divisions.by_cell) == 3 * 2 * len(METHODS)
    suite = open_suite(ran[0])
    before = {path: path.stat().st_mtime_ns for path in ran[1].iterdir()}
    again = run_divisions(suite, Cache(ran[1]), n_divisions=2, jobs=1)
    assert len(again) == len(divisions.by_cell)
    assert {path: path.stat().st_mtime_ns for path in ran[1].iterdir()} == before
    first, second = (
        divisions.by_cell["mnist_lenet5", division, "temps"].score("ece")
        for division in (0, 1)
    )
    assert first != second != ran[2].score(suite.pairs[0], "temps", "ece")


@pytest.mark.slow
def test_what_takes_part_in_new_divisions(ran: tuple[Path, Path, Results]) -> None:
    pair = open_suite(ran[0]).pairs[0]
    assert takes_part(pair, "ms_odir", slow=False)
    assert not takes_part(pair, "recal", slow=True)
    for n_classes in (100, 1000):
        large = replace(pair, entry={**pair.entry, "n_classes": n_classes})
        assert takes_part(large, "auto", slow=False)
        assert not takes_part(large, "ms_odir", slow=False)
        assert takes_part(large, "ms_odir", slow=True)


@pytest.mark.slow
def test_a_stopped_run_is_used_as_it_is(
    divisions: Divisions, ran: tuple[Path, Path, Results]
) -> None:
    suite, store = open_suite(ran[0]), Cache(ran[1])
    before = set(ran[1].iterdir())
    found = run_divisions(suite, store, n_divisions=3, jobs=1, stored_only=True)
    assert {(r.pair, r.division, r.method) for r in found} == set(divisions.by_cell)
    assert set(ran[1].iterdir()) == before


@pytest.mark.slow
def test_methods_with_fewer_divisions_are_named(divisions: Divisions) -> None:
    found = {
        key: r
        for key, r in divisions.by_cell.items()
        if key != ("mnist_lenet5", 1, "ets")
    }
    assert "2 times; fewer times: ets (1, on 1 pair);" in divisions_note(
        Divisions(found, divisions.pairs)
    )


@pytest.mark.slow
def test_tables_stand_on_the_divisions(divisions: Divisions, results: Results) -> None:
    table = certainty_table(divisions, results)
    assert [row.source for row in table.rows] == ["2 divisions", "its own"] * 3 + [
        "mean"
    ]
    shares = [row.cells[1].value for row in table.rows[:6:2]]
    assert table.rows[-1].cells[1].value == pytest.approx(np.mean(shares))
    tables = claim_tables(divisions, results)
    rows = {row.heads: row for row in tables["claims_by_method"].rows}
    assert rows["lowest ECE", "hoki exact"].cells[-1].text != "not run"
    assert rows["lowest ECE", "hoki sampled"].cells[-1].text == "not run"
    assert rows["lowest ECE", "hoki sampled"].cells[0].text == "8 of 15"
    texts = {heads[0] for heads in rows}
    assert {"lowest ECE on ImageNet", "ECE no lower than the gap"} <= texts
    assert tables["claims_by_method"].lead.startswith("A claim is a number")
    # one network of ImageNet decides nothing, and other scores are not claimed
    on_imagenet = rows["lowest ECE on ImageNet", "hoki exact"]
    assert on_imagenet.cells[-1].text == "undecided"
    assert on_imagenet.cells[3].text.endswith(", 1 network")
    assert rows["lowest Brier score", "hoki exact"].cells[-1].text == "not claimed"
    distinct = rows["a different confidence for each example", "hoki exact"]
    assert 0.0 < distinct.cells[3].value <= 1.0
    verdicts = {row.heads[0]: row.cells[-1].text for row in tables["claims"].rows}
    assert verdicts["lowest ECE on ImageNet"] == "sampled not run, exact undecided"
    assert "lowest Brier score" not in verdicts
    other = {row.heads[0] for row in tables["not_claimed"].rows}
    assert {"lowest Brier score", "lowest equal-mass ECE"} <= other
    for row in tables["map"].rows:  # what is a claim has the verdict of the claim
        outcome = row.cells[1].text
        item = next(x for x in OBJECTS if (x.name, x.what) == row.heads)
        assert outcome == verdicts.get(item.outcome, item.outcome)
    assert rows["Theorem 2 holds on 1,000 examples", ""].cells[-1].text == "holds"
    ranks = [
        row.cells[0].value
        for row in ranks_table(divisions).rows
        if row.heads[0] == "all"
    ]
    assert sum(ranks) == pytest.approx(1 + 2 + 3)
    assert "2 times; on none: uncalibrated, vecs" in divisions_note(divisions)


@pytest.mark.slow
def test_methods_on_fewer_networks_are_named(results: Results) -> None:
    base = next(iter(results.by_cell.values()))
    networks = {"temps": "abc", "ets": "abc", "ms_odir": "a", "dir_odir": "a"}
    eces = {
        (name, division, method): 0.1
        for method, names in networks.items()
        for name in names
        for division in (0, 1)
    }
    note = divisions_note(with_eces(base, eces))
    assert "; on 1 of 3 networks only: ms_odir, dir_odir." in note
    assert "temps" not in note


def test_the_map_has_every_object_of_the_paper() -> None:
    names = " ".join(item.name for item in OBJECTS)
    numbered = [f"Table {n}" for n in range(1, 11)] + [
        "Figure 1",
        "Figure 2",
        "Figure 3",
    ]
    for name in (
        *numbered,
        "Figures 4 to 6",
        "Theorem 1",
        "Theorem 2",
        *(f"Supplement {part}" for part in "AB"),
        *("C.1", "C.2", "C.3", ", D"),
        "Algorithms 1, 2",
        "Section 3",
        "Section 7.1",
    ):
        assert name in names, name
    texts = {claim.text for claim in all_claims() if claim.claimed}
    assert len({item.outcome for item in OBJECTS} & texts) > 15
    assert {item.command for item in OBJECTS} <= set(MINUTES)


def test_the_map_fits_a_terminal_of_80_columns() -> None:
    for part in fit_width(map_table([]), 80):
        out = io.StringIO()
        Console(file=out, width=500).print(to_terminal(part))
        assert max(len(line.rstrip()) for line in out.getvalue().splitlines()) <= 80


def test_one_or_two_networks_decide_nothing() -> None:
    """And a number over so few says so, as its interval alone would decide."""
    claim = next(iter(all_claims()))
    few, enough = (
        EvaluatedClaim(claim, Finding("", Share(0.0, 0.0, 0.0, n))) for n in (2, 3)
    )
    assert few.verdict == UNDECIDED
    assert few.estimate.text == "0% (0%\N{EN DASH}0%), 2 networks"
    assert enough.verdict == FAILS
    assert enough.estimate.text == "0% (0%\N{EN DASH}0%)"
    assert verdict(Share(0.0, 0.0, 0.0, 2), 0.5) == UNDECIDED
    unknown = EvaluatedClaim(claim, Finding("", Share(math.nan, math.nan, math.nan, 2)))
    assert unknown.estimate.text == "\N{EN DASH}, 2 networks"
    assert verdict(Share(0.0, 0.0, 0.0, 3), 0.5) == FAILS


def test_the_paper_s_counts() -> None:
    known = {(c.text, c.method): c.paper for c in all_claims()}
    assert known["lowest ECE, 10 bins", SAMPLED] == "8 of 15"
    assert known["learns faster than ms_odir", SAMPLED] == "15 of 15"
    assert known["lowest ECE on ImageNet", EXACT] == "4 of 4"
    assert known["best or second on ImageNet, 5 to 100 bins", SAMPLED] == "23 of 24"
    assert known["better started at the accuracy", SAMPLED] == "13 of 15"
    assert known["ECE no lower than the gap", SAMPLED] == "11 of 15"


@max_examples(50)
@given(*[st.floats(0.0, 1.0)] * 3)
def test_verdicts_are_symmetric(low: float, high: float, least: float) -> None:
    """What is judged "at least" from one side is judged "at most" from the other."""
    low, high = min(low, high), max(low, high)
    found = Share((low + high) / 2, low, high, 9)
    mirrored = Share(1 - found.value, 1 - high, 1 - low, 9)
    opposite = {HOLDS: FAILS, FAILS: HOLDS, UNDECIDED: UNDECIDED}
    if abs(low - least) > 1e-9 and abs(high - least) > 1e-9:
        assert verdict(mirrored, 1 - least) == opposite[verdict(found, least)]
        assert (verdict(found, least) == UNDECIDED) == (low < least < high)


def test_a_correlation_over_networks_and_seeds() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 5))
    rows = [[(a, 2.0 * a + 1.0) for a in each] for each in x]
    found = bootstrap_pairs(rows, _correlation)
    assert found.value == pytest.approx(1.0)
    assert found.low == pytest.approx(1.0)
    loose = [[(a, rng.normal()) for a in each] for each in x]
    seen = [np.corrcoef(np.array([row[k] for row in loose]).T)[0, 1] for k in range(5)]
    found = bootstrap_pairs(loose, _correlation)
    assert found.value == pytest.approx(np.mean(seen))
    assert found.low < found.value < found.high
    two = bootstrap_pairs(rows[:2], _correlation)
    assert verdict(two, 0.0) == UNDECIDED  # and not "not run"
    assert np.isnan(two.value)
    assert verdict(bootstrap_pairs([], _correlation), 0.0) == NOT_RUN


def test_lowest_of_those_that_ran(results: Results) -> None:
    base = results.by_cell["mnist_lenet5", EXACT]
    eces = {("a", 0, "temps"): 0.2, ("a", 0, EXACT): 0.1, ("a", 1, EXACT): 0.3}
    divisions = with_eces(base, eces | {("a", 1, "ets"): 0.1, ("a", 2, "temps"): 0.1})
    question = is_lowest(EXACT, ["temps", "ets", EXACT], score_of("ece"))
    assert divisions.hits("a", question) == [
        True,
        False,
    ]  # the third division has no Hoki
    second = is_among_best(EXACT, ["temps", "ets", EXACT], score_of("ece"))
    assert divisions.hits("a", second) == [True, True]
    assert divisions.hits(
        "a", is_among_best(EXACT, ["ets", EXACT], score_of("ece"), 1)
    ) == [
        True,
        False,
    ]
    methods = ["temps", EXACT]
    full = divisions.complete(methods)
    assert full.numbers("a") == [0]
    assert full.mean_ranks("a", methods, score_of("ece")) == {"temps": 2.0, EXACT: 1.0}
    assert divisions.complete(["vecs"]).mean_ranks("a", ["vecs"], score_of("ece")) == {}


@max_examples(20)
@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=4)
)
def test_shares_are_in_their_intervals(hits: list[list[bool]]) -> None:
    for share in (share_of(hits[0]), mean_share(hits)):
        assert 0.0 <= share.low <= share.value + 1e-12
        assert share.value - 1e-12 <= share.high <= 1.0
    assert mean_share(hits).value == pytest.approx(
        np.mean([np.mean(row) for row in hits])
    )
    assert share_of([]).text == "\N{EN DASH}"
