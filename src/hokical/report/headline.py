"""An evaluation in words: its verdict, the finding behind it, and the details.

The verdict is for readers who know nothing of calibration: what the model said and how
often it was right. Log loss and calibration error follow in the details.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hokical.metrics.risk_models import EVENT_METRICS, BinarySummary, RiskBand
from hokical.metrics.summaries import METRICS, Estimate
from hokical.plots import Reliability, reliability

if TYPE_CHECKING:
    from hokical.report.results import DataKind, Evaluation

#: From this confidence on a finding counts the wrong predictions instead of the right.
_HIGH_CONFIDENCE = 0.8
#: A class is worth a warning if its gap is at least this, and at least twice the ECE.
_MATERIAL_GAP = 0.05
#: From here on a bound on the calibration error tells nothing.
_EMPTY_BOUND = 0.5
_LEARN_CLASSES = ("auto", "structured", "vecs")


@dataclass(frozen=True)
class _Outcome:
    """How outcomes of one kind of data are called.

    `clause` says how often predictions came true, with the share in braces; `right` and
    `wrong` are what predictions turn out to be.
    """

    clause: str
    right: str
    wrong: str

    def name(self, *, wrong: bool) -> str:
        """What predictions turn out to be."""
        return self.wrong if wrong else self.right


_LABEL_OUTCOME = _Outcome("was right {} of the time", "right", "wrong")
_OUTCOMES: dict[DataKind, _Outcome] = {
    "logits": _LABEL_OUTCOME,
    "confidences": _LABEL_OUTCOME,
    "scores": _Outcome("{} of the labels were present", "present", "absent"),
}


def label_verdict(evaluation: Evaluation) -> str:
    """What the model said and how often it was right; what it says after calibration.

    >>> from hokical import evaluate
    >>> print(label_verdict(evaluate(None, [0.9, 0.9, 0.8, 0.8], [1, 0, 1, 0])))
    The model said 85.0% on average and was right 50.0% of the time.
    """
    first = evaluation.stages[0]
    outcome = _OUTCOMES[evaluation.data.kind]
    accuracy = _shown(first, "accuracy")
    verdict = (
        f"The model said {_shown(first, 'mean_confidence')} on average and "
        f"{outcome.clause.format(accuracy)}"
    )
    if not evaluation.is_uncalibrated and evaluation.before is None:
        verdict = f"With {evaluation.label} {verdict[0].lower()}{verdict[1:]}"
    if evaluation.before is not None:
        verdict += (
            f"; with {evaluation.label} it says {_shown(evaluation, 'mean_confidence')}"
        )
        accuracy_now = _shown(evaluation, "accuracy")
        if accuracy_now != accuracy:
            verdict += f" and is right {accuracy_now} of the time"
    return f"{verdict}."


def label_details(evaluation: Evaluation, *, bound: bool) -> str:
    """Log loss and calibration error, before and after.

    With `bound`, a bound on the true calibration error too. It is always Bousquet's:
    the smallest of several would hold less often.
    """
    log_loss = _change("Log loss", "log_loss", evaluation)
    error = _change("the calibration error (ECE)", "ece", evaluation)
    details = f"{log_loss}; {error}."
    limit = evaluation.summary.bounds.get("bousquet") if bound else None
    if limit is None:
        return details
    level = f"{1.0 - evaluation.summary.options.delta:.0%}"
    if limit >= _EMPTY_BOUND:
        few = "These examples are too few to bound the calibration error"
        return f"{details} {few} with {level} confidence."
    return (
        f"{details} With {level} confidence the calibration error is below {limit:.4f}."
    )


def label_finding(evaluation: Evaluation) -> str:
    """Where the model claimed most wrongly, and the same range after calibration.

    That is the bin of confidence with the largest part of the calibration error.

    >>> from hokical import evaluate
    >>> right = [True, False] * 50
    >>> label_finding(evaluate(None, [0.99] * 80 + [0.6] * 20, right))[:47]
    '80 predictions claimed more than 93% confidence'
    """
    first, *later = (_bins(stage) for stage in evaluation.stages)
    worst = int(np.argmax(first.weight * np.abs(first.gap)))
    high = float(first.low[worst]) >= _HIGH_CONFIDENCE
    outcome = _OUTCOMES[evaluation.data.kind]
    if float(first.high[worst]) == 1.0:
        claim = f"more than {first.low[worst]:.0%} confidence"
    else:
        claim = f"a confidence of {first.low[worst]:.0%} to {first.high[worst]:.0%}"
    sentence = (
        f"{_count(first.count[worst])} predictions claimed {claim} "
        f"({first.confidence[worst]:.1%} on average), and "
        f"{_share(first, worst, wrong=high)} of them were {outcome.name(wrong=high)}."
    )
    if not later:
        return sentence
    return (
        f"Before calibration, {sentence} "
        f"{_same_range(first, worst, later[0], high, outcome)}"
    )


def _same_range(
    first: Reliability, worst: int, now: Reliability, high: bool, outcome: _Outcome
) -> str:
    """What calibrated predictions of the same range of confidence turn out to be."""
    matches = np.flatnonzero(now.low == first.low[worst])
    if not matches.size:
        return "After it, none does."
    index = int(matches[0])
    return (
        f"After it, {_count(now.count[index])} do "
        f"({now.confidence[index]:.1%} on average), and "
        f"{_share(now, index, wrong=high)} of them are {outcome.name(wrong=high)}."
    )


def event_verdict(evaluation: Evaluation) -> str:
    """What the model said of the event and how often it happened, and what is wrong
    with that; the same after calibration.
    """
    first, now = _binary_stages(evaluation)
    verdict = (
        f"The model said {_event_shown(first, 'mean_probability')} on average and the "
        f"event ({now.event}) happened in {_event_shown(now, 'prevalence')} of "
        f"{evaluation.data.size}{_event_faults(first)}"
    )
    if not evaluation.is_uncalibrated and evaluation.before is None:
        verdict = f"With {evaluation.label} {verdict[0].lower()}{verdict[1:]}"
    if evaluation.before is not None:
        mean = _event_shown(now, "mean_probability")
        verdict += f"; with {evaluation.label} it says {mean}{_event_faults(now)}"
    return f"{verdict}."


def _event_faults(summary: BinarySummary) -> str:
    """What O:E, slope and bands show to be wrong with the probabilities."""
    ratio = summary["oe_ratio"]
    slope = summary["slope"]
    tests = {
        "too low": ratio.low > 1.0,
        "too high": ratio.high < 1.0,
        "too extreme": slope.high < 1.0,
        "not extreme enough": slope.low > 1.0,
    }
    faults = [fault for fault, is_shown in tests.items() if is_shown]
    bands = summary.bands().rows
    n_flagged = sum(band.flagged for band in bands)
    findings = [f"probabilities are {' and '.join(faults)}"] if faults else []
    if n_flagged:
        verb = "is" if n_flagged == 1 else "are"
        findings.append(f"{n_flagged} of {len(bands)} bands {verb} miscalibrated")
    return f": {', and '.join(findings)}" if findings else ""


def event_details(evaluation: Evaluation) -> str:
    """Observed to expected events, slope, log loss and AUROC, before and after."""
    summaries = _binary_stages(evaluation)[-len(evaluation.stages) :]
    ratios = [_with_interval(summary["oe_ratio"], ".2f") for summary in summaries]
    slopes = [_with_interval(summary["slope"], ".3f") for summary in summaries]
    changes = [
        f"the slope is {_sequence(slopes)}",
        *(
            f"{EVENT_METRICS[name].title} "
            f"{_sequence([_event_shown(summary, name) for summary in summaries])}"
            for name in ("log_loss", "auroc")
        ),
    ]
    return (
        f"Observed events are {_sequence(ratios)} times the expected; "
        f"{'; '.join(changes)}."
    )


def _sequence(values: list[str]) -> str:
    """Values before and after; equal ones once."""
    return ", then ".join(dict.fromkeys(values))


def event_finding(evaluation: Evaluation) -> str:
    """The band of probability with the largest gap in events, before and after."""
    first, now = _binary_stages(evaluation)
    band = _worst_band(first.bands().rows)
    sentence = (
        f"{_count(band.n)} examples had a predicted probability of {band.lower:.1%} to "
        f"{band.upper:.1%} ({band.mean_probability:.1%} on average), and "
        f"{band.observed:.1%} of them had the event."
    )
    if evaluation.before is None:
        return sentence
    band = _worst_band(now.bands().rows)
    return (
        f"Before calibration, {sentence} After it the largest gap is of "
        f"{_count(band.n)} examples with {band.mean_probability:.1%} on average, of "
        f"which {band.observed:.1%} had it."
    )


def class_warning(evaluation: Evaluation) -> str | None:
    """One line if the average hides a predicted label that is miscalibrated."""
    error = evaluation.score("ece")
    rows = () if evaluation.classes is None else evaluation.classes.flagged
    gap_limit = max(_MATERIAL_GAP, 2.0 * error)
    miscalibrated = [row for row in rows if abs(row.gap) > gap_limit]
    if not miscalibrated:
        return None
    remedy = (
        f"Methods that learn each class can correct this: {', '.join(_LEARN_CLASSES)}."
    )
    if evaluation.name in _LEARN_CLASSES:
        remedy = "More calibration examples of this class can correct this."
    worst = max(miscalibrated, key=lambda row: abs(row.gap))
    more = ""
    if n_more := len(miscalibrated) - 1:
        more = f" ({n_more} more such {'class' if n_more == 1 else 'classes'})"
    return (
        f"the top-label ECE of {error:.4f} hides class {worst.name}: its "
        f"{worst.n:,} rows have confidence {worst.predicted:.1%} and accuracy "
        f"{worst.observed:.1%}{more}. {remedy}"
    )


def _shown(evaluation: Evaluation, metric: str) -> str:
    return METRICS[metric].format(evaluation.score(metric))


def _change(title: str, metric: str, evaluation: Evaluation) -> str:
    """A metric before and after, as readers see it."""
    before = evaluation.before
    now = _shown(evaluation, metric)
    if before is None:
        return f"{title} is {now}"
    first = _shown(before, metric)
    if first == now:
        return f"{title} stayed at {now}"
    verb = "fell" if evaluation.score(metric) < before.score(metric) else "rose"
    return f"{title} {verb} from {first} to {now}"


def _bins(evaluation: Evaluation) -> Reliability:
    options = evaluation.summary.options
    return reliability(
        evaluation.levels, None, n_bins=options.n_bins, delta=options.delta
    )


def _share(bins: Reliability, index: int, *, wrong: bool) -> str:
    accuracy = float(bins.accuracy[index])
    return f"{1.0 - accuracy if wrong else accuracy:.1%}"


def _count(n: float) -> str:
    return f"{n:,.0f}"


def _binary_stages(evaluation: Evaluation) -> tuple[BinarySummary, BinarySummary]:
    """The summaries of the event before and after; the same twice without a before."""
    first = evaluation.stages[0].binary
    now = evaluation.binary
    if first is None or now is None:
        raise ValueError("the event has no words: the data are not of two classes.")
    return first, now


def _worst_band(bands: tuple[RiskBand, ...]) -> RiskBand:
    return max(
        bands, key=lambda band: band.n * abs(band.observed - band.mean_probability)
    )


def _event_shown(summary: BinarySummary, metric: str) -> str:
    return EVENT_METRICS[metric].format(summary[metric].value)


def _with_interval(estimate: Estimate, form: str) -> str:
    if math.isnan(estimate.value):
        return "unknown"
    if math.isnan(estimate.low):
        return f"{estimate.value:{form}}"
    return f"{estimate.value:{form}} ({estimate.low:{form}} to {estimate.high:{form}})"
