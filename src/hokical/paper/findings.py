"""What the results say, in plain sentences with their numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from hokical.paper.methods import EXACT, INPUT, MIXED, SAMPLED, title_of
from hokical.paper.published import CLAIM
from hokical.paper.results import Result, Results
from hokical.paper.wins import CONTESTS, paper_methods, published_wins, wins

#: A difference counts when it is this many standard errors from 0.
_CLEAR = 2.0


def findings(results: Results) -> list[str]:
    """A sentence or two each; only what the results at hand allow to say."""
    return [text for part in _PARTS for text in part(results)]


def _claim(results: Results) -> Iterator[str]:
    """Whether Hoki's ECE is lowest as often as the paper says."""
    n_pairs = len(results.suite.pairs)
    won = wins(results, paper_methods(), "ece")[SAMPLED]
    won_exact = wins(results, paper_methods(exact=True), "ece")[EXACT]
    theirs, common = published_wins(results.suite.pairs)
    holds = won / n_pairs >= CLAIM[0] / CLAIM[1]
    known = f" (on the {common} of these pairs that it has: {theirs})" if common else ""
    yield (
        f"The paper's claim, Hoki's 15-bin ECE lowest of ten methods on {CLAIM[0]} of {CLAIM[1]} "
        f"pairs{known}, {'holds' if holds else 'does not hold'} on our networks: as printed it is "
        f"lowest on {won} of {n_pairs}, exact on {won_exact} of {n_pairs}."
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
    methods = (EXACT, SAMPLED, "temps")
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
            f"{worse}; it changes by {mean:+.4f} on average."
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


_PARTS = (_claim, _winners, _flattered, _beginning, _times, _inputs, _missing)
