"""What the results say, in plain sentences with their numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from hokical.paper.methods import EXACT, INPUT, MIXED, SAMPLED, title_of
from hokical.paper.published import CLAIM
from hokical.paper.results import Result, Results
from hokical.paper.suite import Pair
from hokical.paper.wins import CONTESTS, paper_methods, published_pairs, published_wins, wins

#: A difference counts when it is this many standard errors from 0.
_CLEAR = 2.0
#: Methods with few parameters, to set Hoki beside.
_STEADY = ("temps", "ets", "profile")


def findings(results: Results) -> list[str]:
    """A sentence or two each; only what the results at hand allow to say."""
    return [text for part in _PARTS for text in part(results)]


def _claim(results: Results) -> Iterator[str]:
    """Whether Hoki's ECE is lowest as often as the paper says, on all pairs and on common ones."""
    pairs = results.suite.pairs
    printed, exact = _hoki_wins(results, pairs)
    holds = printed / len(pairs) >= CLAIM[0] / CLAIM[1]
    yield (
        f"The paper's claim, Hoki's 15-bin ECE lowest of ten methods on {CLAIM[0]} of {CLAIM[1]} "
        f"pairs, {'holds' if holds else 'does not hold'} on our networks: as printed it is lowest "
        f"on {printed} of {len(pairs)}, exact on {exact} of {len(pairs)}."
    )
    common = published_pairs(pairs)
    if common:
        printed, exact = _hoki_wins(results, common)
        yield (
            f"On the {len(common)} pairs that the paper has too, its Hoki is lowest on "
            f"{published_wins(common)}; ours is lowest on {printed} as printed and on {exact} "
            "exact."
        )


def _hoki_wins(results: Results, pairs: Sequence[Pair]) -> tuple[int, int]:
    """How often Hoki has the lowest ECE of the paper's ten: as printed, and exact."""
    return (
        wins(results, paper_methods(), "ece", pairs)[SAMPLED],
        wins(results, paper_methods(exact=True), "ece", pairs)[EXACT],
    )


def _winners(results: Results) -> Iterator[str]:
    """Who wins how often, per score, among all methods."""
    n_pairs = len(results.suite.pairs)
    for score, title in CONTESTS.items():
        counts = wins(results, results.methods, score)
        order = sorted(counts, key=lambda name: -counts[name])
        told = ", ".join(f"{title_of(name)} {counts[name]}" for name in order if counts[name])
        yield f"Lowest {title} of all {len(counts)} methods, on {n_pairs} pairs: {told}."


def _flattered(results: Results) -> Iterator[str]:
    """Equal-width ECE beside equal-mass ECE: Hoki's bins are few."""
    methods = [name for name in (EXACT, SAMPLED, *_STEADY) if name in results.methods]
    found = [[results.get(pair, name) for name in methods] for pair in results.suite.pairs]
    common = [row for row in found if None not in row]
    if not common:
        return
    means = {
        name: [
            statistics.fmean(result.score(score) for result in column if result is not None)
            for score in ("ece", "ece_mass")
        ]
        for name, column in zip(methods, zip(*common, strict=True), strict=True)
    }
    told = "; ".join(
        f"{title_of(method)} {width:.4f} and {mass:.4f}" for method, (width, mass) in means.items()
    )
    yield (
        f"Mean ECE over {len(common)} pairs with bins of equal width, and of equal mass: {told}. "
        "Hoki's confidences gather in a few bins that are each right on average, which bins of "
        "equal width reward."
    )


def _beginning(results: Results) -> Iterator[str]:
    """Which initialisation is better, how often."""
    for method in (SAMPLED, EXACT):
        found = _all(results, method)
        better = sum(r.score("ece") < r.facts["ece_from_confidence"] for r in found)
        if found:
            yield (
                f"{title_of(method)}: starting from the validation accuracy gives a lower ECE than "
                f"starting from the confidence on {better} of {len(found)} pairs (paper: 13 of 15)."
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
        yield f"Median learning time in seconds: {told}."


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
            f"{_CLEAR:g} standard errors) on {better} of {len(found)} pairs and clearly higher on "
            f"{worse}; it changes by {mean:+.4f} on average. The ECE is lower on "
            f"{_lower_than_plain(results, method)} of {len(found)}."
        )
    weights = [result.facts["weight"] for result in _all(results, MIXED)]
    if weights:
        yield (
            f"The mix gives the inputs no weight on {weights.count(0.0)} of {len(weights)} pairs, "
            f"and at most {max(weights):g}."
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
            count = "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
            yield f"{title_of(method)} is missing on {count}: {', '.join(pairs)}."


def _all(results: Results, method: str) -> list[Result]:
    found = (results.get(pair, method) for pair in results.suite.pairs)
    return [result for result in found if result is not None]


def _change(result: Result) -> float:
    """Change in Brier score against plain Hoki, in standard errors."""
    error = float(result.facts["brier_error"])
    return float(result.facts["brier_difference"]) / error if error > 0.0 else 0.0


_PARTS = (_claim, _winners, _flattered, _boundless, _beginning, _times, _inputs, _missing)
