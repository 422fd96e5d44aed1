"""What the results show, in sentences with numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from hokical_paper.published import CLAIM
from hokical_paper.running.methods import EXACT, RECAL, SAMPLED, title_of
from hokical_paper.running.results import Result, Results
from hokical_paper.running.stamp import made_note
from hokical_paper.suite.manifest import Pair
from hokical_paper.tables.wins import (
    CONTESTS,
    paper_methods,
    published_pairs,
    published_wins,
    wins,
)

#: Methods with few parameters that Hoki is compared with.
_FEW_PARAMETERS = ("temps", "ets", "adaptive")
_ECE_VARIANTS = ("ece", "ece_mass", "smooth_ece")
#: Variants of the ECE that cannot see errors inside a cluster of confidences.
_BLIND = {"ece": "bins of equal width", "smooth_ece": "smooth ECE"}


def findings(results: Results) -> list[str]:
    """One or two sentences each, only those that the results support; then what
    computed them.
    """
    sentences = [text for topic in _PARTS for text in topic(results)]
    return [*sentences, made_note(r.made for r in results.by_cell.values())]


def _caution(results: Results) -> Iterator[str]:
    """A warning if some pairs are not the networks that their names suggest."""
    if results.suite.caution:
        yield results.suite.caution


def _claim(results: Results) -> Iterator[str]:
    """On how many pairs Hoki's ECE is lowest, in the paper and here; claims.py has
    the verdicts.
    """
    pairs = results.suite.pairs
    common = published_pairs(pairs)
    n_sampled = len(_results_of(results, SAMPLED)) or len(pairs)
    sampled, exact = _hoki_wins(results, pairs)
    plain = _hoki_wins(results, pairs, normalised=True)
    yield (
        f"The paper's claim is the lowest 15-bin ECE of ten methods on {CLAIM[0]} of "
        f"{CLAIM[1]} pairs. On the own division of ours, sampled as in the paper it is "
        f"lowest on {sampled} of {n_sampled}, exact on {exact} of "
        f"{len(pairs)}{_incomplete_pairs(results)}; with the rows of irm and irova_ts "
        f"normalised, on {plain[0]} and on {plain[1]}. One division decides nothing: "
        "`hokical paper claims` has intervals and verdicts."
    )
    if common:
        sampled, exact = _hoki_wins(results, common)
        yield (
            f"On the {_count(common)} that the paper has too, Hoki is lowest on "
            f"{published_wins(common)} in the paper; ours is lowest on {sampled} "
            f"sampled and on {exact} exact."
        )
    few = [f"{pair.name} ({pair.top_k})" for pair in pairs if pair.top_k is not None]
    if few:
        yield (
            f"Only the best classes are known on {_count(few)}: {', '.join(few)}. "
            "Wherever pairs are counted for hoki exact, temps, ets and auto, these "
            "are among them."
        )


def _incomplete_pairs(results: Results) -> str:
    """The pairs on which fewer than the paper's ten methods were run."""
    ran = {
        pair.name: sum(
            results.get(pair, method) is not None for method in paper_methods()
        )
        for pair in results.suite.pairs
    }
    few = [
        f"{count} ran on {name}"
        for name, count in ran.items()
        if count < len(paper_methods())
    ]
    return f" (of the ten methods, {', '.join(few)})" if few else ""


def _hoki_wins(
    results: Results, pairs: Sequence[Pair], *, normalised: bool = False
) -> tuple[int, int]:
    """How often Hoki, sampled and exact, has the lowest ECE of the paper's ten
    methods.
    """
    ten = [paper_methods(exact=exact, normalised=normalised) for exact in (False, True)]
    return wins(results, ten[0], "ece", pairs)[SAMPLED], wins(
        results, ten[1], "ece", pairs
    )[EXACT]


def _winners(results: Results) -> Iterator[str]:
    """How often each method wins, per score, among all methods."""
    for score, title in CONTESTS.items():
        counts = wins(results, results.methods, score)
        order = sorted(counts, key=lambda name: -counts[name])
        listed = ", ".join(
            f"{title_of(name)} {counts[name]}" for name in order if counts[name]
        )
        yield (
            f"Lowest {title} of all methods that ran, on "
            f"{_count(results.suite.pairs)}: {listed}."
        )


def _ece_variants(results: Results) -> Iterator[str]:
    """Mean ECE by three definitions, two of which favour Hoki."""
    methods = [
        name for name in (EXACT, SAMPLED, *_FEW_PARAMETERS) if name in results.methods
    ]
    table = [
        [results.get(pair, name) for name in methods] for pair in results.suite.pairs
    ]
    common = [row for row in table if None not in row]
    if not common:
        return
    means = {
        name: {
            score: statistics.fmean(r.score(score) for r in column if r is not None)
            for score in _ECE_VARIANTS
        }
        for name, column in zip(methods, zip(*common, strict=True), strict=True)
    }
    listed = "; ".join(
        f"{title_of(name)} {', '.join(f'{value:.4f}' for value in row.values())}"
        for name, row in means.items()
    )
    yield (
        f"Mean ECE over {_count(common)} with bins of equal width, with bins of equal "
        f"mass, and smooth: {listed}.{_explain_variants(means)}"
    )


def _explain_variants(means: dict[str, dict[str, float]]) -> str:
    """Which definitions favour Hoki; empty if the means do not show it."""
    hoki = [row for name, row in means.items() if name not in _FEW_PARAMETERS]
    simple = [row for name, row in means.items() if name in _FEW_PARAMETERS]

    def is_lower(
        lower: list[dict[str, float]], higher: list[dict[str, float]], score: str
    ) -> bool:
        return max(row[score] for row in lower) < min(row[score] for row in higher)

    if not hoki or not simple or not is_lower(simple, hoki, "ece_mass"):
        return ""
    blind = [title for score, title in _BLIND.items() if is_lower(hoki, simple, score)]
    if not blind:
        return ""
    return (
        " Hoki's confidences form a few clusters, each correct on average: "
        f"{' and '.join(blind)} cannot see errors inside a cluster, bins of equal mass "
        "divide it."
    )


def _initialisation(results: Results) -> Iterator[str]:
    """How often which initialisation is better."""
    for method in (SAMPLED, EXACT):
        fits = _results_of(results, method)
        better = sum(r.score("ece") < r.facts["ece_from_confidence"] for r in fits)
        if fits:
            yield (
                f"{title_of(method)}: starting from the validation accuracy gives a "
                f"lower ECE than starting from the confidence on {better} of "
                f"{_count(fits)} (paper: 13 of 15)."
            )


def _times(results: Results) -> Iterator[str]:
    """Median time per fit of each method, fastest first."""
    medians = {}
    for method in results.methods:
        seconds = [
            r.fit_seconds
            for r in _results_of(results, method)
            if r.fit_seconds is not None
        ]
        if seconds:
            medians[method] = statistics.median(seconds)
    listed = ", ".join(
        f"{title_of(name)} {medians[name]:.2f}"
        for name in sorted(medians, key=medians.__getitem__)
    )
    if listed:
        elsewhere = (
            " (recal on the machine that exported the suite)"
            if RECAL in medians
            else ""
        )
        yield f"Median time per fit in seconds{elsewhere}: {listed}."


def _infinite_losses(results: Results) -> Iterator[str]:
    """Which methods have an infinite log loss, and on which pairs."""
    listed = []
    for method in results.methods:
        names = [
            r.pair
            for r in _results_of(results, method)
            if r.score("log_loss") == math.inf
        ]
        if names:
            listed.append(f"{title_of(method)} on {', '.join(names)}")
    if listed:
        yield (
            "The log loss is infinite, because a label with confidence 0 was correct "
            f"or one with confidence 1 was wrong, for {'; '.join(listed)}."
        )


def _missing_results(results: Results) -> Iterator[str]:
    """Which methods were not run on which pairs, and why: wins on these pairs mean
    less.
    """
    missing: dict[tuple[str, str], list[str]] = {}
    for pair in results.suite.pairs:
        for method in results.methods:
            if results.get(pair, method) is None:
                missing.setdefault((method, results.reason(pair, method)), []).append(
                    pair.name
                )
    alike: dict[tuple[str, ...], list[str]] = {}
    for (method, reason), pairs in missing.items():
        alike.setdefault((reason, *pairs), []).append(title_of(method))
    for (reason, *pairs), methods in alike.items():
        listed = f"{_count(pairs)} ({', '.join(pairs)})"
        yield f"Missing on {listed}: {', '.join(methods)} ({reason})."


def _count(pairs: Sequence[object]) -> str:
    return "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"


def _results_of(results: Results, method: str) -> list[Result]:
    by_pair = (results.get(pair, method) for pair in results.suite.pairs)
    return [result for result in by_pair if result is not None]


_PARTS = (
    _caution,
    _claim,
    _winners,
    _ece_variants,
    _infinite_losses,
    _initialisation,
    _times,
    _missing_results,
)
