"""What the results say, in plain sentences with their numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from hokical.paper.methods import EXACT, INPUT, MIXED, RECAL, SAMPLED, title_of
from hokical.paper.published import CLAIM
from hokical.paper.results import Result, Results
from hokical.paper.suite import Pair
from hokical.paper.wins import CONTESTS, paper_methods, published_pairs, published_wins, wins

#: A difference counts when it is this many standard errors from 0.
_CLEAR = 2.0
#: Methods with few parameters, to set Hoki beside.
_STEADY = ("temps", "ets", "profile")
#: So many of the paper's pairs must be there before its claim is judged.
_ENOUGH = 11
_YARDSTICKS = ("ece", "ece_mass", "smooth_ece")
_PLEASED = {"ece": "bins of equal width", "smooth_ece": "smooth ECE"}


def findings(results: Results) -> list[str]:
    """A sentence or two each; only what the results at hand allow to say."""
    return [text for part in _PARTS for text in part(results)]


def _caution(results: Results) -> Iterator[str]:
    """That some pairs are not what their names say."""
    if results.suite.caution:
        yield results.suite.caution


def _claim(results: Results) -> Iterator[str]:
    """Whether Hoki's ECE is lowest as often as the paper says, on all pairs and on common ones."""
    pairs = results.suite.pairs
    common = published_pairs(pairs)
    printed, exact = _hoki_wins(results, pairs)
    claim = f"Hoki's 15-bin ECE lowest of ten methods on {CLAIM[0]} of {CLAIM[1]} pairs"
    if len(common) < _ENOUGH:
        verdict = f"cannot be judged on {len(common)} of its {CLAIM[1]} pairs. Here"
    else:
        holds = printed / len(pairs) >= CLAIM[0] / CLAIM[1]
        verdict = f"{'holds' if holds else 'does not hold'} on our networks:"
    yield (
        f"The paper's claim, {claim}, {verdict} as printed it is lowest on {printed} of "
        f"{len(pairs)}, exact on {exact} of {len(pairs)}{_fewer_ran(results)}."
    )
    if common:
        printed, exact = _hoki_wins(results, common)
        yield (
            f"On the {_pairs(len(common))} that the paper has too, its Hoki is lowest on "
            f"{published_wins(common)}; ours is lowest on {printed} as printed and on {exact} "
            "exact."
        )


def _fewer_ran(results: Results) -> str:
    """On which pairs Hoki had fewer than the paper's nine others to beat."""
    ran = {
        pair.name: sum(results.get(pair, method) is not None for method in paper_methods())
        for pair in results.suite.pairs
    }
    few = [f"{count} ran on {name}" for name, count in ran.items() if count < len(paper_methods())]
    return f" (of the ten methods, {', '.join(few)})" if few else ""


def _hoki_wins(results: Results, pairs: Sequence[Pair]) -> tuple[int, int]:
    """How often Hoki has the lowest ECE of the paper's ten: as printed, and exact."""
    return (
        wins(results, paper_methods(), "ece", pairs)[SAMPLED],
        wins(results, paper_methods(exact=True), "ece", pairs)[EXACT],
    )


def _winners(results: Results) -> Iterator[str]:
    """Who wins how often, per score, among all methods."""
    for score, title in CONTESTS.items():
        counts = wins(results, results.methods, score)
        order = sorted(counts, key=lambda name: -counts[name])
        told = ", ".join(f"{title_of(name)} {counts[name]}" for name in order if counts[name])
        yield (
            f"Lowest {title} of all methods that ran, on {_pairs(len(results.suite.pairs))}: "
            f"{told}."
        )


def _flattered(results: Results) -> Iterator[str]:
    """ECE by three yardsticks: Hoki's heaps please two of them."""
    methods = [name for name in (EXACT, SAMPLED, *_STEADY) if name in results.methods]
    found = [[results.get(pair, name) for name in methods] for pair in results.suite.pairs]
    common = [row for row in found if None not in row]
    if not common:
        return
    means = {
        name: {
            score: statistics.fmean(r.score(score) for r in column if r is not None)
            for score in _YARDSTICKS
        }
        for name, column in zip(methods, zip(*common, strict=True), strict=True)
    }
    told = "; ".join(
        f"{title_of(name)} {', '.join(f'{value:.4f}' for value in row.values())}"
        for name, row in means.items()
    )
    yield (
        f"Mean ECE over {_pairs(len(common))} with bins of equal width, with bins of equal mass, "
        f"and smooth: {told}.{_flattery(means)}"
    )


def _flattery(means: dict[str, dict[str, float]]) -> str:
    """Which yardsticks Hoki's heaps please; nothing where the means do not say so."""
    hoki = [row for name, row in means.items() if name not in _STEADY]
    steady = [row for name, row in means.items() if name in _STEADY]

    def is_lower(ours: list[dict[str, float]], theirs: list[dict[str, float]], by: str) -> bool:
        return max(row[by] for row in ours) < min(row[by] for row in theirs)

    if not hoki or not steady or not is_lower(steady, hoki, "ece_mass"):
        return ""
    pleased = [title for by, title in _PLEASED.items() if is_lower(hoki, steady, by)]
    if not pleased:
        return ""
    return (
        " Hoki's confidences gather in a few heaps that are each right on average: "
        f"{' and '.join(pleased)} cannot see into them, bins of equal mass cut through them."
    )


def _beginning(results: Results) -> Iterator[str]:
    """Which initialisation is better, how often."""
    for method in (SAMPLED, EXACT):
        found = _all(results, method)
        better = sum(r.score("ece") < r.facts["ece_from_confidence"] for r in found)
        if found:
            yield (
                f"{title_of(method)}: starting from the validation accuracy gives a lower ECE than "
                f"starting from the confidence on {better} of {_pairs(len(found))} (paper: 13 of "
                "15)."
            )


def _times(results: Results) -> Iterator[str]:
    """Median learning times of the quick and the slow."""
    medians = {}
    for method in results.methods:
        seconds = [r.fit_seconds for r in _all(results, method) if r.fit_seconds is not None]
        if seconds:
            medians[method] = statistics.median(seconds)
    told = ", ".join(
        f"{title_of(name)} {medians[name]:.2f}" for name in sorted(medians, key=medians.__getitem__)
    )
    if told:
        elsewhere = " (recal's where the images were)" if RECAL in medians else ""
        yield f"Median learning time in seconds{elsewhere}: {told}."


def _inputs(results: Results) -> Iterator[str]:
    """Whether input stability helps: clearly better, clearly worse, or neither."""
    for method, what in ((INPUT, "alone"), (MIXED, "mixed with logit stability")):
        found = _all(results, method)
        if not found:
            continue
        better = sum(_change(result) < -_CLEAR for result in found)
        worse = sum(_change(result) > _CLEAR for result in found)
        mean = statistics.fmean(result.facts["brier_difference"] for result in found)
        yield (
            f"Input stability {what}, against Hoki on logits: the Brier score is clearly lower (by "
            f"{_CLEAR:g} standard errors) on {better} of {_pairs(len(found))} and clearly higher "
            f"on {worse}; it changes by {mean:+.4f} on average. The ECE is lower on "
            f"{_lower_than_plain(results, method)} of {len(found)}."
        )
    weights = [result.facts["weight"] for result in _all(results, MIXED)]
    if weights:
        yield (
            f"The mix gives the inputs no weight on {weights.count(0.0)} of "
            f"{_pairs(len(weights))}, and at most {max(weights):g}."
        )


def _lower_than_plain(results: Results, method: str) -> int:
    """On how many pairs a method's ECE is lower than that of Hoki on logits."""
    pairs = [pair for pair in results.suite.pairs if results.get(pair, method) is not None]
    return sum(
        results.score(pair, method, "ece") < results.score(pair, EXACT, "ece") for pair in pairs
    )


def _boundless(results: Results) -> Iterator[str]:
    """Where the log loss is infinite."""
    told = []
    for method in results.methods:
        found = [r.pair for r in _all(results, method) if r.score("log_loss") == math.inf]
        if found:
            told.append(f"{title_of(method)} on {', '.join(found)}")
    if told:
        yield (
            "The log loss is infinite, as a label with confidence 0 was right or one with "
            f"confidence 1 was wrong, for {'; '.join(told)}."
        )


def _missing(results: Results) -> Iterator[str]:
    """What was not run, so that nobody takes a win for more than it is."""
    for method in results.methods:
        pairs = [pair.name for pair in results.suite.pairs if results.get(pair, method) is None]
        if pairs:
            names = ", ".join(pairs)
            yield f"{title_of(method)} is missing on {_pairs(len(pairs))}: {names}."


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _all(results: Results, method: str) -> list[Result]:
    found = (results.get(pair, method) for pair in results.suite.pairs)
    return [result for result in found if result is not None]


def _change(result: Result) -> float:
    """Change in Brier score against plain Hoki, in standard errors."""
    error = float(result.facts["brier_error"])
    return float(result.facts["brier_difference"]) / error if error > 0.0 else 0.0


_PARTS = (
    _caution,
    _claim,
    _winners,
    _flattered,
    _boundless,
    _beginning,
    _times,
    _inputs,
    _missing,
)
