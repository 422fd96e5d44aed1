"""The paper's claims, each with an interval and a verdict by one rule.

A claim is a number and what the paper says it is at least (or between). It holds if the
whole 95 % interval of the number is there, it does not hold if none of the interval is,
and it is undecided otherwise: an interval that is wide, or a number over one or two
networks, cannot decide in either direction. What the paper does not claim has no
verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from hokical_paper.certainty.contests import (
    FEWEST,
    Divisions,
    Get,
    Question,
    Share,
    bootstrap_pairs,
    counts_by_division,
    is_among_best,
    is_lowest,
    mean_share,
    score_of,
    share_of,
)
from hokical_paper.certainty.tables import RIVALS, divisions_note, share_cell
from hokical_paper.core import track
from hokical_paper.published import (
    BIN_COUNTS,
    CLAIM,
    PublishedRow,
    published_row,
    published_rows,
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
from hokical_paper.tables.table import NOTHING, Cell, Row, Table
from hokical_paper.tables.wins import CONTESTS, paper_methods
from hokical_paper.theory.theorems import DELTA, SIZES, simulate_bounds

#: Hoki is as fast as temperature scaling if it takes at most this many times as long.
_AS_FAST = 10.0
#: Variances are comparable within this factor.
_COMPARABLE = 2.0
#: Numbers below this are shown with four digits.
_SMALL = 0.05
#: Both sides of Theorem 1 are equal up to this.
_EQUAL = 1e-9
#: "Closely tracks": a correlation that explains half of the variance.
_CLOSELY = math.sqrt(0.5)
#: The paper's networks on ImageNet.
_IMAGENET = ("densenet161", "mobilenet_v2", "resnet152", "wrn101_2")
#: Simulated test sets of each size.
_SETS = 1000
HOLDS = "holds"
FAILS = "does not hold"
UNDECIDED = "undecided"
NOT_RUN = "not run"
NOT_CLAIMED = "not claimed"
RULE = (
    "A claim is a number that the paper says is in some range, mostly: at least the "
    "share of its networks on which it is true in the paper. It holds if the whole 95 "
    "% interval of our number is in that range; it does not hold if no part of the "
    "interval is; otherwise, and over fewer than three networks, it is undecided. The "
    "same rule decides in both directions."
)
_POINTS = "An interval that is a point speaks of these networks, not of others."


class Finding(NamedTuple):
    """What a claim came to: its own division in words, the estimate, and the range
    on one division.
    """

    original: str
    share: Share
    spread: str = NOTHING


class Claim(NamedTuple):
    """What is claimed about which method, what the paper has, and the range that it
    claims.
    """

    text: str
    method: str
    paper: str
    least: float
    find: Callable[[Divisions, Results], Finding]
    most: float = math.inf
    percent: bool = True
    claimed: bool = True


class EvaluatedClaim(NamedTuple):
    """A claim and what it came to."""

    claim: Claim
    finding: Finding

    @property
    def verdict(self) -> str:
        if not self.claim.claimed:
            return NOT_CLAIMED
        return verdict(self.finding.share, self.claim.least, self.claim.most)

    @property
    def estimate(self) -> Cell:
        """Our number with its interval, and over how many networks if they are too few
        to decide.
        """
        share = self.finding.share
        cell = share_cell(share) if self.claim.percent else _number_cell(share)
        if not 0 < share.n < FEWEST:
            return cell
        networks = "1 network" if share.n == 1 else f"{share.n} networks"
        return replace(cell, text=f"{cell.text}, {networks}")


def evaluate_claims(divisions: Divisions, results: Results) -> list[EvaluatedClaim]:
    """Every claim with what it comes to; the simulations of Theorem 2 take seconds."""
    claims = list(all_claims())
    return [
        EvaluatedClaim(claim, claim.find(divisions, results))
        for claim in track(claims, "Evaluating claims", len(claims), None)
    ]


def verdicts_of(evaluated: Sequence[EvaluatedClaim], text: str) -> str:
    """The verdict of a claim, of both forms of Hoki if they differ."""
    by_method = {
        item.claim.method: item.verdict for item in evaluated if item.claim.text == text
    }
    if len(set(by_method.values())) == 1:
        return next(iter(by_method.values()))
    short = {SAMPLED: "sampled", EXACT: "exact"}
    return ", ".join(f"{short[name]} {verdict}" for name, verdict in by_method.items())


def verdict_tables(
    divisions: Divisions, results: Results, evaluated: Sequence[EvaluatedClaim]
) -> dict[str, Table]:
    """The claims with one row each, and what the paper does not claim."""
    notes = (
        divisions_note(divisions),
        "Sampled, exact: our number for the two forms of Hoki; a number about neither "
        "is under exact.",
        _POINTS,
        made_note(r.made for r in divisions.by_cell.values()),
    )
    claimed = [item for item in evaluated if item.claim.claimed]
    beyond = [item for item in evaluated if not item.claim.claimed]
    columns = ("range", "sampled (95 %)", "exact (95 %)")
    return {
        "claims": Table(
            "claims",
            "The paper's claims",
            (*columns, "verdict"),
            tuple(_verdict_rows(claimed)),
            notes,
            ("claim", "paper"),
            RULE,
        ),
        "not_claimed": Table(
            "not_claimed",
            "What the paper does not claim",
            columns[1:],
            tuple(Row(row.heads, "", row.cells[1:3]) for row in _verdict_rows(beyond)),
            notes[-1:],
            ("share of networks", "paper"),
        ),
    }


def _verdict_rows(evaluated: Sequence[EvaluatedClaim]) -> Iterator[Row]:
    for text in dict.fromkeys(item.claim.text for item in evaluated):
        by_method = {
            item.claim.method: item for item in evaluated if item.claim.text == text
        }
        first = next(iter(by_method.values())).claim
        exact = by_method.get(EXACT) or by_method.get("")
        sampled = by_method.get(SAMPLED)
        cells = [item.estimate if item else Cell() for item in (sampled, exact)]
        verdict = Cell(verdicts_of(evaluated, text))
        yield Row((text, first.paper), "", (_range_cell(first), *cells, verdict))


def claims_table(
    divisions: Divisions, results: Results, evaluated: Sequence[EvaluatedClaim]
) -> Table:
    """What the paper says, what one division says, what all divisions say, and the
    verdict.
    """
    rows = []
    for claim, finding in evaluated:
        texts = (
            Cell(claim.paper),
            _range_cell(claim),
            Cell(finding.original),
            EvaluatedClaim(claim, finding).estimate,
            Cell(finding.spread),
        )
        row = (*texts, Cell(EvaluatedClaim(claim, finding).verdict))
        rows.append(
            Row((claim.text, title_of(claim.method) if claim.method else ""), "", row)
        )
    notes = (
        divisions_note(divisions),
        "Paper: what it has. Range: what our number is judged by; for other scores, 8 "
        "of 15. Own division: on how many networks it is true on the division of the "
        "other tables. Estimate: over new divisions, the mean share over networks with "
        "a 95 % interval (networks resampled, then divisions); of learning times and "
        "Theorem 1, over the networks' own division; of Theorem 2, over simulated test "
        "sets. On one division: on how many networks it is true for a single division, the "
        "range over the divisions.",
        _POINTS,
        _top_k_note(results),
        f"Comparable variances: within a factor of {_COMPARABLE:g} of the median of "
        f"the paper's calibrated methods. Comparable times: at most {_AS_FAST:g} times "
        "those of temps. Gap: the difference of validation and test accuracy.",
        *device_notes(divisions.by_cell.values()),
        made_note(
            r.made for r in (*divisions.by_cell.values(), *results.by_cell.values())
        ),
    )
    columns = (
        "paper",
        "range",
        "own division",
        "estimate (95 %)",
        "on one division",
        "verdict",
    )
    title = "The paper's claims, by method"
    return Table(
        "claims_by_method",
        title,
        columns,
        tuple(rows),
        notes,
        ("claim", "method"),
        RULE,
    )


def verdict(share: Share, least: float, most: float = math.inf) -> str:
    """By the interval, the same in both directions.

    >>> [
    ...     verdict(Share(0.5, low, high, 9), 0.4)
    ...     for low, high in ((0.4, 1), (0.1, 0.3), (0.3, 1))
    ... ]
    ['holds', 'does not hold', 'undecided']
    """
    if not share.n:
        return NOT_RUN
    if share.n < FEWEST or math.isnan(share.low):
        return UNDECIDED
    if share.low >= least - 1e-12 and share.high <= most:
        return HOLDS
    return FAILS if share.high < least or share.low > most else UNDECIDED


def all_claims() -> Iterator[Claim]:
    """In the order of the paper, ours on other scores after the one that they
    question.
    """
    yield from _lowest_claims()
    yield from _bin_claims()
    yield from _gap_claims()
    yield from _distinct_claims()
    yield from _size_and_variance_claims()
    for method in (SAMPLED, EXACT):
        question = _fact_question(method, "ece_from_confidence")
        yield _counted(
            "better started at the accuracy", method, _published_starts(), question
        )
    yield from _time_claims()
    yield from _theory_claims()


def _lowest_claims() -> Iterator[Claim]:
    for method in (SAMPLED, EXACT):
        for score, title in CONTESTS.items():
            question = is_lowest(method, RIVALS[method], score_of(score))
            paper = CLAIM if score == "ece" else None
            claim = _counted(f"lowest {title}", method, paper, question)
            yield claim._replace(claimed=score == "ece")
            if score == "ece":
                rivals = _normalised(exact=method == EXACT)
                question = is_lowest(method, rivals, score_of(score))
                yield _counted("lowest ECE, rows normalised", method, CLAIM, question)
        if method == EXACT:
            question = is_lowest(method, RIVALS[method], score_of("ece"))
            yield _counted(
                "lowest ECE, all logits known", method, CLAIM, question, where=_has_all
            )
    for method in (SAMPLED, EXACT):
        question = is_lowest(method, RIVALS[method], score_of("ece"))
        paper = _published_lowest(15, imagenet=True)
        yield _counted(
            "lowest ECE on ImageNet", method, paper, question, where=_is_imagenet
        )


def _bin_claims() -> Iterator[Claim]:
    for bins in (bins for bins in BIN_COUNTS if bins != 15):
        for method in (SAMPLED, EXACT):
            question = is_lowest(method, RIVALS[method], _ece_at(bins))
            paper = _published_lowest(bins)
            yield _counted(f"lowest ECE, {bins} bins", method, paper, question)
    counts = [_published_lowest(bins, imagenet=True, among=2) for bins in BIN_COUNTS]
    paper = (sum(won for won, _ in counts), sum(of for _, of in counts))
    for method in (SAMPLED, EXACT):
        yield _counted(
            "best or second on ImageNet, 5 to 100 bins",
            method,
            paper,
            *(
                is_among_best(method, RIVALS[method], _ece_at(bins))
                for bins in BIN_COUNTS
            ),
            where=_is_imagenet,
        )


def _gap_claims() -> Iterator[Claim]:
    """That Hoki's ECE follows the difference between validation and test accuracy."""
    rows = published_rows("ece_15_bins")
    eces, gaps = np.array([[float(r["hoki"]), _published_gap(r)] for r in rows]).T
    published = bootstrap_pairs(
        [[pair] for pair in zip(eces, gaps, strict=True)], _correlation
    )
    paper = f"r = {_text(published)}"
    for method in (SAMPLED, EXACT):
        find = _over_divisions(_ece_and_gap(method), _correlation)
        yield Claim(
            "ECE closely tracks the gap (correlation)",
            method,
            paper,
            _CLOSELY,
            find,
            percent=False,
        )
    at_least = (int((eces >= gaps).sum()), len(rows))
    for method in (SAMPLED, EXACT):
        question = _gap_question(method)
        yield _counted(
            "ECE no lower than the gap", method, at_least, question, least=1.0
        )
    won = np.array([_is_published_lowest(row, 1) for row in rows])
    more = gaps[~won].mean() - gaps[won].mean()
    for method in (SAMPLED, EXACT):
        find = _over_divisions(_won_and_gap(method), _mean_difference)
        text = "larger gaps where it is not lowest"
        yield Claim(text, method, f"{more:+.4f}", 0.0, find, percent=False)


def _distinct_claims() -> Iterator[Claim]:
    """That each example gets a confidence of its own, unlike in a bin of a histogram."""
    for method in (SAMPLED, EXACT):
        find = _over_divisions(_distinct_share(method), _plain_mean)
        text = "a different confidence for each example"
        yield Claim(text, method, "all", 1.0, find)


def _size_and_variance_claims() -> Iterator[Claim]:
    for method in (SAMPLED, EXACT):
        question = _fact_question(method, "ece_from_quarter")
        text = "lower ECE than from a quarter of the validation set"
        yield _counted(text, method, None, question, least=0.5)
    for method in (SAMPLED, EXACT):
        find = _over_divisions(_variance_ratio(method), _geometric_mean)
        yield Claim(
            "variance comparable (ratio to the median)",
            method,
            "figures",
            1.0 / _COMPARABLE,
            find,
            _COMPARABLE,
            percent=False,
        )
    find = _over_divisions(_trade_off, _plain_mean)
    text = "lower ECE goes with lower variance (rank correlation)"
    yield Claim(text, "", "figures", 0.0, find, percent=False)


def _time_claims() -> Iterator[Claim]:
    for rival in ("vecs", "ms_odir", "dir_odir", RECAL):
        text = f"learns faster than {rival}"
        paper = _published_faster(rival, 1.0)
        yield _own_counted(text, SAMPLED, paper, _time_question(SAMPLED, rival, 1.0))
    paper = _published_faster("temps", _AS_FAST)
    for method in (SAMPLED, EXACT):
        for choice, key in (
            ("noise given", None),
            ("with the choice", "seconds_with_choice"),
        ):
            question = _time_question(method, "temps", _AS_FAST, key)
            text = f"learns as fast as temps, {choice}"
            yield _own_counted(text, method, paper, question)


def _theory_claims() -> Iterator[Claim]:
    yield _own_counted(
        "Theorem 1: equal sides at the end", EXACT, None, _sides_agree, least=1.0
    )
    yield _own_counted(
        "confidences in several bins", EXACT, None, _uses_bins, least=1.0
    )
    for n in SIZES:
        text = f"Theorem 2 holds on {n:,} examples"
        yield Claim(text, "", "95%", 1.0 - DELTA, _coverage_on(n))


def _counted(
    text: str,
    method: str,
    paper: tuple[int, int] | None,
    *questions: Question,
    where: Callable[[Pair], bool] = lambda pair: True,
    least: float | None = None,
) -> Claim:
    """A claim that is true on a share of the networks, for each of these questions."""

    def find(divisions: Divisions, results: Results) -> Finding:
        pairs = [pair for pair in results.suite.pairs if where(pair)]
        names = [pair.name for pair in pairs if pair.name in divisions.pairs]
        hits = {
            name: [hit for q in questions for hit in divisions.hits(name, q)]
            for name in names
        }
        counts = counts_by_division({name: row for name, row in hits.items() if row})
        spread = NOTHING
        if counts.size and len(questions) == 1:
            of = sum(bool(row) for row in hits.values())
            spread = f"{counts.min()}\N{EN DASH}{counts.max()} of {of}"
        return Finding(
            _own(results, pairs, questions), mean_share(list(hits.values())), spread
        )

    share = _share(paper or CLAIM) if least is None else least
    return Claim(text, method, NOTHING if paper is None else _of(paper), share, find)


def _own_counted(
    text: str,
    method: str,
    paper: tuple[int, int] | None,
    question: Question,
    *,
    least: float | None = None,
) -> Claim:
    """A claim that is judged on the networks' own division alone."""

    def find(divisions: Divisions, results: Results) -> Finding:
        hits = _answers(results, results.suite.pairs, (question,))
        original = _own(results, results.suite.pairs, (question,))
        return Finding(original, mean_share([[hit] for hit in hits]))

    share = _share(paper or CLAIM) if least is None else least
    return Claim(text, method, NOTHING if paper is None else _of(paper), share, find)


#: What is looked at on one division of a pair: a few numbers, or None if a method was
#: not run.
Look = Callable[[Get], tuple[float, ...] | None]
#: From these of many divisions (n, k) to one number.
Statistic = Callable[[NDArray[np.float64]], float]


def _over_divisions(
    look: Look, statistic: Statistic
) -> Callable[[Divisions, Results], Finding]:
    """A statistic over networks: on their own division, and its mean over divisions."""

    def find(divisions: Divisions, results: Results) -> Finding:
        looked = [look(results.of(pair)) for pair in results.suite.pairs]
        table = np.array([row for row in looked if row is not None])
        text = f"{statistic(table):.3f}" if len(table) > 2 else NOTHING
        rows = []
        for pair in divisions.pairs:
            looks = [
                divisions.look(pair, division, look)
                for division in divisions.numbers(pair)
            ]
            rows.append([row for row in looks if row is not None])
        return Finding(text, bootstrap_pairs([row for row in rows if row], statistic))

    return find


def _ece_and_gap(method: str) -> Look:
    def look(get: Get) -> tuple[float, ...] | None:
        result = get(method)
        return None if result is None else (result.score("ece"), _gap(result))

    return look


def _won_and_gap(method: str) -> Look:
    question = is_lowest(method, RIVALS[method], score_of("ece"))

    def look(get: Get) -> tuple[float, ...] | None:
        result = get(method)
        won = question(get)
        return None if result is None or won is None else (float(won), _gap(result))

    return look


def _distinct_share(method: str) -> Look:
    """The number of distinct confidences over that of test examples."""

    def look(get: Get) -> tuple[float, ...] | None:
        result = get(method)
        if result is None or "n_confidences" not in result.facts:
            return None
        return (result.facts["n_confidences"] / float(result.diagram.count.sum()),)

    return look


def _variance_ratio(method: str) -> Look:
    """Log of the variance of the confidences over the median of the paper's
    calibrated methods.
    """
    rivals = [name for name in PAPER_METHODS if name not in (SAMPLED, "uncalibrated")]

    def look(get: Get) -> tuple[float, ...] | None:
        result = get(method)
        variances = [r.score("sharpness") for n in rivals if (r := get(n))]
        if result is None or not variances:
            return None
        return (math.log(result.score("sharpness") / float(np.median(variances))),)

    return look


def _trade_off(get: Get) -> tuple[float, ...] | None:
    """Rank correlation of ECE and variance over the paper's calibrated methods."""
    names = [name for name in PAPER_METHODS if name != "uncalibrated"]
    scores = [
        (r.score("ece"), r.score("sharpness")) for name in names if (r := get(name))
    ]
    if len(scores) < 4:
        return None
    ranks = rankdata(np.array(scores), axis=0)
    return (_correlation(ranks),)


def _correlation(rows: NDArray[np.float64]) -> float:
    """Pearson's, of the two columns; NaN if one is constant."""
    centred = rows - rows.mean(axis=0)
    norms = np.sqrt((centred**2).sum(axis=0))
    return (
        float((centred[:, 0] * centred[:, 1]).sum() / norms.prod())
        if norms.all()
        else math.nan
    )


def _mean_difference(rows: NDArray[np.float64]) -> float:
    """Mean of the second column where the first is 0, less that where it is 1."""
    won = rows[:, 0] > 0.5
    gaps = rows[:, 1]
    return (
        math.nan
        if won.all() or not won.any()
        else float(gaps[~won].mean() - gaps[won].mean())
    )


def _geometric_mean(rows: NDArray[np.float64]) -> float:
    return float(np.exp(rows.mean()))


def _plain_mean(rows: NDArray[np.float64]) -> float:
    return float(rows.mean())


def _fact_question(method: str, fact: str) -> Question:
    """Whether the ECE is lower than another one of the same fit."""

    def ask(get: Get) -> bool | None:
        result = get(method)
        return (
            None if result is None else bool(result.score("ece") < result.facts[fact])
        )

    return ask


def _gap_question(method: str) -> Question:
    def ask(get: Get) -> bool | None:
        result = get(method)
        return None if result is None else result.score("ece") >= _gap(result)

    return ask


def _time_question(
    method: str, rival: str, factor: float, key: str | None = None
) -> Question:
    """Whether a fit, or another time among its facts, takes less than so many times
    a rival's.
    """

    def ask(get: Get) -> bool | None:
        ours = get(method)
        slower = get(rival)
        if ours is None or slower is None or slower.fit_seconds is None:
            return None
        seconds = ours.fit_seconds if key is None else ours.facts.get(key)
        return None if seconds is None else bool(seconds < factor * slower.fit_seconds)

    return ask


def _sides_agree(get: Get) -> bool | None:
    result = get(EXACT)
    if result is None or "sufficiency" not in result.facts:
        return None
    return bool(result.facts["sufficiency"]["validation"][-1]["error"] < _EQUAL)


def _uses_bins(get: Get) -> bool | None:
    result = get(EXACT)
    if result is None or "sufficiency" not in result.facts:
        return None
    return len(result.facts["sufficiency"]["test"][-1]["bins"]) > 1


def _coverage_on(n: int) -> Callable[[Divisions, Results], Finding]:
    """How often the published bound holds over simulated test sets of n examples,
    with Clopper and Pearson's interval.
    """

    def find(divisions: Divisions, results: Results) -> Finding:
        (simulated,) = simulate_bounds((n,), n_sets=_SETS)
        held = round(_SETS * simulated.coverage["paper"])
        return Finding(NOTHING, share_of([True] * held + [False] * (_SETS - held)))

    return find


def _gap(result: Result) -> float:
    return abs(float(result.facts["val_accuracy"]) - result.score("accuracy"))


def _ece_at(bins: int) -> Callable[[Result], float]:
    return lambda result: result.ece_by_bins[bins]


def _normalised(*, exact: bool) -> list[str]:
    return [
        name for name in paper_methods(exact=exact, normalised=True) if name != RECAL
    ]


def _has_all(pair: Pair) -> bool:
    return pair.top_k is None


def _is_imagenet(pair: Pair) -> bool:
    return pair.dataset == "imagenet"


def _answers(
    results: Results, pairs: Sequence[Pair], questions: Sequence[Question]
) -> list[bool]:
    answers = [question(results.of(p)) for p in pairs for question in questions]
    return [answer for answer in answers if answer is not None]


def _own(results: Results, pairs: Sequence[Pair], questions: Sequence[Question]) -> str:
    """On how many networks, and on how many of those that are known by their best
    classes.
    """
    answers = _answers(results, pairs, questions)
    few = _answers(results, [pair for pair in pairs if not _has_all(pair)], questions)
    if not answers:
        return NOTHING
    return _of((sum(answers), len(answers))) + (
        f" (top-k: {_of((sum(few), len(few)))})" if few else ""
    )


def _top_k_note(results: Results) -> str:
    few = [pair for pair in results.suite.pairs if not _has_all(pair)]
    if not few:
        return "All logits of all networks are known."
    listed = ", ".join(f"{pair.title} (its best {pair.top_k})" for pair in few)
    return (
        f"Of {len(few)} networks only the best classes are known, so that of the "
        "paper's methods uncalibrated, temps and ets alone compete with hoki exact "
        f"there: {listed}. Own division says in brackets how many of the networks "
        "counted are of these (top-k)."
    )


def _published_lowest(
    bins: int, *, imagenet: bool = False, among: int = 1
) -> tuple[int, int]:
    """On how many of the paper's networks Hoki's ECE is among the lowest with so
    many bins.
    """
    table = f"ece_{bins}_bins"
    rows = [published_row(table, "imagenet", name) for name in _IMAGENET]
    rows = rows if imagenet else published_rows(table)
    return sum(_is_published_lowest(row, among) for row in rows), len(rows)


def _is_published_lowest(row: PublishedRow, among: int) -> bool:
    columns = [
        published_column(name) or name for name in PAPER_METHODS if name != SAMPLED
    ]
    return sum(float(row[name]) < float(row["hoki"]) for name in columns) < among


def _published_starts() -> tuple[int, int]:
    rows = published_rows("ece_by_initialisation")
    names = ("val_accuracy", "uncalibrated_confidence")
    return sum(float(row[names[0]]) < float(row[names[1]]) for row in rows), len(rows)


def _published_faster(rival: str, factor: float) -> tuple[int, int]:
    rows = published_rows("learning_time_s")
    return sum(float(row["hoki"]) < factor * float(row[rival]) for row in rows), len(
        rows
    )


def _published_gap(row: PublishedRow) -> float:
    return abs(float(row["val_acc"]) - float(row["test_acc"])) / 100.0


def _range_cell(claim: Claim) -> Cell:
    style = "{:.0%}" if claim.percent else "{:g}"
    if claim.most < math.inf:
        return Cell(f"{style.format(claim.least)} to {style.format(claim.most)}")
    least = round(claim.least, 2) if not claim.percent else claim.least
    return Cell(f"at least {style.format(least)}")


def _number_cell(share: Share) -> Cell:
    if math.isnan(share.value):
        return Cell()
    return Cell(_text(share), share.value, share.low, share.high)


def _text(share: Share) -> str:
    value = share.value
    low = share.low
    high = share.high
    if abs(value) < _SMALL:
        return f"{value:.4f} ({low:.4f} to {high:.4f})"
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _share(count: Sequence[int]) -> float:
    return count[0] / count[1]


def _of(count: Sequence[int]) -> str:
    return f"{count[0]} of {count[1]}"
