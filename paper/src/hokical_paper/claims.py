"""The paper's claims, each as a question about one division of a pair, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hokical_paper.certainty_tables import RIVALS, cuts_note, share_cell
from hokical_paper.contests import (
    Cuts,
    Get,
    Question,
    Share,
    counts_by_seed,
    is_lowest,
    mean_share,
    score_of,
)
from hokical_paper.devices import device_notes
from hokical_paper.methods import EXACT, PAPER_METHODS, SAMPLED, published_column, title_of
from hokical_paper.published import BIN_COUNTS, CLAIM, published_rows
from hokical_paper.results import Results
from hokical_paper.table_data import Cell, Row, Table
from hokical_paper.wins import CONTESTS

#: Hoki is as fast as temperature scaling if it takes at most this many times as long.
_AS_FAST = 10.0
_HOLDS, _FAILS, _METRIC = "holds", "does not hold", "holds only for the metric"


class Claim(NamedTuple):
    """What is claimed about which method, on how many of the paper's pairs it is true there."""

    text: str
    method: str
    paper: tuple[int, int] | None
    question: Question


def claims_table(cuts: Cuts, results: Results) -> Table:
    """What the paper says, what one division says, what all divisions say, and the verdict."""
    claims = list(all_claims())
    shares = [mean_share([cuts.hits(pair, c.question) for pair in cuts.pairs]) for c in claims]
    verdicts = [_verdict(claim, share) for claim, share in zip(claims, shares, strict=True)]
    known = {(c.text, c.method): verdict for c, verdict in zip(claims, verdicts, strict=True)}
    rows = []
    for claim, share, verdict in zip(claims, shares, verdicts, strict=True):
        strict = [(f"lowest {CONTESTS[name]}", claim.method) for name in ("ece_mass", "brier")]
        is_blind = claim.text.startswith(("lowest ECE", "lowest smooth"))
        if is_blind and verdict == _HOLDS:
            verdict = _METRIC if _FAILS in (known[key] for key in strict) else verdict
        cells = (_paper_cell(claim), _own_cell(claim, results), share_cell(share))
        row = (*cells, _spread_cell(claim, cuts), Cell(verdict))
        rows.append(Row((claim.text, title_of(claim.method)), "", row))
    notes = (
        cuts_note(cuts),
        "Own divisions: on how many pairs it is true on the division of the other tables. New "
        "divisions: the mean share over pairs, with a 95 % interval (pairs resampled). On one "
        "seed: on how many pairs it is true for a single seed, the range over the seeds that all "
        "these pairs have. A claim holds if the interval reaches the paper's share (8 of 15 for "
        "other scores). Bins of equal width and smooth ECE do not see errors inside a cluster of "
        "confidences: where they say so, but bins of equal mass or the Brier score do not, a claim "
        "holds only for the metric.",
        *device_notes(cuts.found.values()),
    )
    columns = ("paper", "own divisions", "new divisions", "on one seed", "verdict")
    title = "The paper's claims over many divisions"
    return Table("claims", title, columns, tuple(rows), notes, ("claim", "method"))


def all_claims() -> Iterator[Claim]:
    """On the lowest score, the number of bins, the start of the recursion, and the time."""
    for method in (SAMPLED, EXACT):
        for score, title in CONTESTS.items():
            question = is_lowest(method, RIVALS[method], score_of(score))
            yield Claim(f"lowest {title}", method, CLAIM if score == "ece" else None, question)
    for bins in (bins for bins in BIN_COUNTS if bins != 15):
        question = is_lowest(SAMPLED, RIVALS[SAMPLED], lambda r, b=bins: r.ece_by_bins[b])  # type: ignore[misc]
        yield Claim(f"lowest ECE, {bins} bins", SAMPLED, _published_lowest(bins), question)
    for method in (SAMPLED, EXACT):
        yield Claim("better started at the accuracy", method, (13, 15), _start_question(method))
    for rival in ("vecs", "ms_odir", "dir_odir"):
        text = f"learns faster than {rival}"
        yield Claim(text, SAMPLED, _published_faster(rival, 1.0), _time_question(rival, 1.0))
    text = f"learns within {_AS_FAST:g} times temps"
    paper = _published_faster("temps", _AS_FAST)
    yield Claim(text, SAMPLED, paper, _time_question("temps", _AS_FAST))


def _start_question(method: str) -> Question:
    def ask(get: Get) -> bool | None:
        found = get(method)
        return None if found is None else found.score("ece") < found.facts["ece_from_confidence"]

    return ask


def _time_question(rival: str, factor: float) -> Question:
    def ask(get: Get) -> bool | None:
        times = [None if (r := get(name)) is None else r.fit_seconds for name in (SAMPLED, rival)]
        return None if times[0] is None or times[1] is None else times[0] < factor * times[1]

    return ask


def _published_lowest(bins: int) -> tuple[int, int]:
    """On how many of the paper's pairs Hoki's ECE is the lowest with so many bins."""
    columns = [published_column(name) or name for name in PAPER_METHODS if name != SAMPLED]
    rows = published_rows(f"ece_{bins}_bins")
    won = [float(row["hoki"]) <= min(float(row[name]) for name in columns) for row in rows]
    return sum(won), len(won)


def _published_faster(rival: str, factor: float) -> tuple[int, int]:
    rows = published_rows("learning_time_s")
    return sum(float(row["hoki"]) < factor * float(row[rival]) for row in rows), len(rows)


def _verdict(claim: Claim, share: Share) -> str:
    wins, of = claim.paper or CLAIM
    return "not run" if not share.n else _HOLDS if share.high >= wins / of else _FAILS


def _paper_cell(claim: Claim) -> Cell:
    return Cell() if claim.paper is None else _of(claim.paper)


def _own_cell(claim: Claim, results: Results) -> Cell:
    asked = [claim.question(lambda m, p=p: results.get(p, m)) for p in results.suite.pairs]  # type: ignore[misc]
    known = [answer for answer in asked if answer is not None]
    return _of((sum(known), len(known))) if known else Cell()


def _spread_cell(claim: Claim, cuts: Cuts) -> Cell:
    """The least and the most pairs for one seed."""
    hits = {pair: cuts.hits(pair, claim.question) for pair in cuts.pairs}
    counts = counts_by_seed({pair: row for pair, row in hits.items() if row})
    if not counts.size:
        return Cell()
    low, high = int(np.min(counts)), int(np.max(counts))
    return Cell(f"{low}\N{EN DASH}{high} of {sum(bool(row) for row in hits.values())}")


def _of(count: Sequence[int]) -> Cell:
    return Cell(f"{count[0]} of {count[1]}", count[0] / count[1])
