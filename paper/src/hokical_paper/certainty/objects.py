"""A map of the paper: each of its objects, where it is here, and what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hokical_paper.certainty.claims import (
    EvaluatedClaim,
    claims_table,
    evaluate_claims,
    verdict_tables,
    verdicts_of,
)
from hokical_paper.certainty.contests import Divisions
from hokical_paper.running.results import Results
from hokical_paper.tables.table import Cell, Row, Table

#: CPU minutes of one core of a small server, on the suite with the three networks known
#: by their best classes; each after the commands above it.
MINUTES = {
    "suite": "0.1",
    "all": "8",
    "claims": "0.5",
    "certainty": "30",
    "inputs": "8",
    "export": "35, on a GPU",
}


class PaperObject(NamedTuple):
    """An object of the paper; `outcome` is the text of a claim, or says what it is."""

    name: str
    what: str
    where: str
    outcome: str
    command: str = ""


def _link(table: str) -> str:
    return f"[{table}](tables/{table}.csv)"


_PROOF = "[proof](../../docs/theory.md#hoki-is-a-function-of-stability-alone)"
#: In the order of the paper, the supplement last.
OBJECTS = (
    PaperObject(
        "Abstract, Section 1",
        "lowest ECE on 8 of 15",
        "[claims](#claims)",
        "lowest ECE",
        "certainty",
    ),
    PaperObject(
        "Abstract, Section 1",
        "lowest ECE on all of ImageNet",
        "[claims](#claims)",
        "lowest ECE on ImageNet",
        "certainty",
    ),
    PaperObject(
        "Abstract, Section 1",
        "as fast as temperature scaling, noise given",
        "[time](tables/time.csv)",
        "learns as fast as temps, noise given",
        "all",
    ),
    PaperObject(
        "Section 1",
        "temperature scaling is the fastest rival",
        "[time](#noise-start-time)",
        "irm is, in its own Table 3",
        "all",
    ),
    PaperObject(
        "Figure 1", "noise changes some labels", "[figure](#figures)", "drawn", "all"
    ),
    PaperObject("Figure 2", "the method", "[figure](#figures)", "drawn", "all"),
    PaperObject(
        "Section 2",
        "its own confidence for each example",
        f"[claims](#claims), {_link('distinct')}",
        "a different confidence for each example",
        "certainty",
    ),
    PaperObject(
        "Section 2",
        "random transformations give the guarantee",
        _PROOF,
        "any number in [0, 1] does",
        "all",
    ),
    PaperObject(
        "Definitions 1, 2",
        "CE and ECE",
        "`hokical.metrics.ece`",
        "implemented",
        "all",
    ),
    PaperObject(
        "Section 3",
        "the problem: the least validation ECE",
        _PROOF,
        "0 at a fixed point",
        "all",
    ),
    PaperObject(
        "Theorem 1, Supplement A",
        "sufficient for CE = 0",
        f"{_PROOF}, {_link('theorem_1')}",
        "Theorem 1: equal sides at the end",
        "all",
    ),
    PaperObject(
        "Section 5, Equations 1 to 4",
        "choice of the noise",
        "[how](hoki.md#choosing-the-noise)",
        "implemented",
        "all",
    ),
    PaperObject(
        "Section 5",
        "spreads from 0.0395 to 0.0967",
        "[noise](#noise-start-time)",
        "0.0167 in its own Table 1",
        "all",
    ),
    PaperObject(
        "Table 1",
        "selected noise, and its spread",
        _link("noise"),
        "widths within a factor of 2",
        "all",
    ),
    PaperObject(
        "Algorithms 1, 2",
        "fit and prediction",
        "`Hoki`, [what they leave open](hoki.md)",
        "as printed: hoki sampled",
        "all",
    ),
    PaperObject(
        "Section 6, Limitations",
        "confidences in several bins",
        _link("theorem_1"),
        "confidences in several bins",
        "all",
    ),
    PaperObject(
        "Section 7.1",
        "networks and baselines",
        "[made again](suite.md#making-it-again)",
        "11 of 15 trained anew, 3 by five classes",
        "export",
    ),
    PaperObject("Table 2", "ECE, 15 bins", "[ECE](#ece)", "lowest ECE", "certainty"),
    PaperObject(
        "Table 2",
        "accuracy of the networks",
        _link("accuracy"),
        "within 2 points",
        "all",
    ),
    PaperObject(
        "Section 7",
        "ECE closely tracks the accuracy gap",
        "[claims](#claims)",
        "ECE closely tracks the gap (correlation)",
        "certainty",
    ),
    PaperObject(
        "Section 7",
        "no lower than the gap",
        "[claims](#claims)",
        "ECE no lower than the gap",
        "certainty",
    ),
    PaperObject(
        "Section 7",
        "larger gaps where it is not best",
        "[claims](#claims)",
        "larger gaps where it is not lowest",
        "certainty",
    ),
    PaperObject(
        "Section 7",
        "more validation examples help",
        "[claims](#claims)",
        "lower ECE than from a quarter of the validation set",
        "certainty",
    ),
    PaperObject(
        "Figure 3",
        "ECE and variance, ImageNet",
        f"[figure](#figures), {_link('variance')}",
        "variance comparable (ratio to the median)",
        "certainty",
    ),
    PaperObject(
        "Section 7",
        "low ECE against high variance",
        "[claims](#claims)",
        "lower ECE goes with lower variance (rank correlation)",
        "certainty",
    ),
    PaperObject(
        "Table 3",
        "learning time, with the choice of the noise",
        _link("time"),
        "learns as fast as temps, with the choice",
        "all",
    ),
    PaperObject(
        "Section 8",
        "transformed inputs",
        "[inputs](#transformed-inputs)",
        "helps beside the confidence",
        "inputs",
    ),
    PaperObject(
        "Theorem 2, Supplement B",
        "a bound on the CE",
        f"[gaps, mended](hoki.md), {_link('theorem_2')}",
        "Theorem 2 holds on 10,000 examples",
        "all",
    ),
    PaperObject(
        "Figures 4 to 6, C.1",
        "ECE and variance, others",
        f"[figure](#figures), {_link('variance')}",
        "variance comparable (ratio to the median)",
        "certainty",
    ),
    *(
        PaperObject(
            f"Table {number}",
            f"ECE, {bins} bins",
            f"[bins](#numbers-of-bins), {_link(f'ece_{bins}')}",
            f"lowest ECE, {bins} bins",
            "certainty",
        )
        for number, bins in enumerate((5, 10, 30, 50, 100), 4)
    ),
    PaperObject(
        "Tables 4 to 8, C.2",
        "headers of four baselines",
        "[rotated](#rotated-headers)",
        "rotated",
        "claims",
    ),
    PaperObject(
        "Supplement C.2",
        "best or second on ImageNet",
        "[claims](#claims)",
        "best or second on ImageNet, 5 to 100 bins",
        "certainty",
    ),
    PaperObject(
        "Table 9, C.3",
        "two starts of the recursion",
        _link("init"),
        "better started at the accuracy",
        "certainty",
    ),
    PaperObject(
        "Table 10, D", "their machine", "[time](#noise-start-time)", "quoted", "all"
    ),
)


def map_table(evaluated: Sequence[EvaluatedClaim]) -> Table:
    """Every object of the paper, where it is here, its verdict, and what makes it."""
    texts = {item.claim.text for item in evaluated}
    rows = [_row(item, evaluated, texts) for item in OBJECTS]
    notes = (
        "Minutes: CPU time of one core of a small server for the whole command, after "
        "those before it; `claims` tells the verdicts of what `all` and `certainty` "
        "stored. Commands begin with `hokical paper`.",
    )
    columns = ("here", "verdict", "command", "minutes")
    heads = ("in the paper", "about")
    return Table("map", "A map of the paper", columns, tuple(rows), notes, heads)


def _row(
    item: PaperObject, evaluated: Sequence[EvaluatedClaim], claims: set[str]
) -> Row:
    is_claim = item.outcome in claims
    outcome = verdicts_of(evaluated, item.outcome) if is_claim else item.outcome
    cells = (item.where, outcome, f"`{item.command}`", MINUTES[item.command])
    return Row((item.name, item.what), "", tuple(map(Cell, cells)))


def claim_tables(divisions: Divisions, results: Results) -> dict[str, Table]:
    """The map, the claims in one row each and by method, and what is not claimed."""
    evaluated = evaluate_claims(divisions, results)
    return {
        "map": map_table(evaluated),
        **verdict_tables(divisions, results, evaluated),
        "claims_by_method": claims_table(divisions, results, evaluated),
    }
