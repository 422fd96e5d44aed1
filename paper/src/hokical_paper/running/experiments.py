"""One method on one pair: fit on the validation logits, measure on the test logits."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from hokical import Gaussian, Hoki, Uniform, make, select_noise
from hokical.metrics import Estimate, ece, summary
from hokical.plots import reliability
from hokical_paper.core import bin_index, sum_by
from hokical_paper.from_confidence import HokiFromConfidence
from hokical_paper.published import BIN_COUNTS
from hokical_paper.running.input_stability import (
    fit_beside,
    fit_inputs,
    fit_mix,
    input_stability,
)
from hokical_paper.running.isotonic import Fitted, fit_irm, fit_irova_ts
from hokical_paper.running.methods import (
    AUTO,
    AUTO_BESIDE,
    EXACT,
    HOKI_BESIDE,
    INPUT,
    IRM,
    IROVA_TS,
    MIXED,
    RECAL,
    SAMPLED,
)
from hokical_paper.running.noise_grid import select_on_grid
from hokical_paper.running.results import Result
from hokical_paper.suite.manifest import Pair
from hokical_paper.suite.pair_data import PairData, portable_permutation
from hokical_paper.theory.theorems import bound_facts, sufficiency_facts

if TYPE_CHECKING:
    from hokical.stability import Noise
    from hokical_paper.core.fitting import NoiseSelection

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: The scores of a summary that tables and figures show.
SCORES = ("accuracy", "ece", "ece_mass", "smooth_ece", "brier", "log_loss")
N_DRAWS = 1000
SEED = 0
#: Bins of the paper's main table, and of Hoki's fit.
_N_BINS = 15
#: Folds of the held-out confidences beside which input stability is set.
_N_FOLDS = 3
#: A shorter fit is timed twice and the better time counts: the first may include
#: compilation.
_TIMED_TWICE_BELOW = 10.0


def run_method(pair: Pair, data: PairData, method: str) -> Result:
    """The result of a method on a pair; all random numbers have fixed seeds."""
    special = _SPECIAL.get(method)
    outcome = special(pair, data) if special else _fit_registered(method, data)
    rows = (outcome.confidence, outcome.correct)
    scores = summary(*rows)
    return Result(
        pair.name,
        method,
        outcome.fit_seconds,
        {name: scores[name] for name in SCORES}
        | {"sharpness": _variance(outcome.confidence)},
        {bins: ece(*rows, n_bins=bins) for bins in BIN_COUNTS},
        reliability(*rows),
        outcome.notes,
        {
            "val_accuracy": float(data.val_correct.mean()),
            **spread_facts(outcome.confidence),
            **outcome.facts,
        },
        division=data.division,
    )


def spread_facts(confidence: FloatArray) -> dict[str, Any]:
    """How many confidences are distinct, and their deviation within 15 bins.

    >>> facts = spread_facts(np.array([0.30, 0.30, 0.91, 0.93]))
    >>> facts["n_confidences"], round(facts["deviation_in_bins"], 4)
    (3, 0.0071)
    """
    index = bin_index(confidence, _N_BINS)
    counts = np.maximum(sum_by(index, np.ones(confidence.size), _N_BINS), 1.0)
    means = sum_by(index, confidence, _N_BINS) / counts
    squares = (confidence - means[index]) ** 2
    return {
        "n_confidences": int(np.unique(confidence).size),
        "deviation_in_bins": math.sqrt(float(squares.mean())),
    }


def _variance(confidence: FloatArray) -> Estimate:
    """Variance of the confidence, without an interval."""
    value = float(np.var(confidence))
    return Estimate(value, value, value)


def entry_modules(method: str) -> tuple[str, ...]:
    """The modules whose code, with all that they import, decides the result of a
    method.
    """
    used = _USES.get(method, method)
    if used in _SPECIAL:
        return (__name__,)
    # Methods are found by name, not by an import here.
    return __name__, type(make(used)).__module__


@dataclass(frozen=True, eq=False)
class _PairAnswers:
    """Confidence and correctness on the test set, (n,) each, and facts about the
    fit.
    """

    confidence: FloatArray
    correct: BoolArray
    fit_seconds: float | None
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def _fit_registered(method: str, data: PairData) -> _PairAnswers:
    """A method of hokical's registry, with default settings."""
    calibrator = make(method)
    if "random_state" in calibrator.get_params():
        calibrator.set_params(random_state=SEED)
    fitted, seconds, notes = _time_fit(calibrator, data)
    correct = fitted.predict(data.test_logits) == data.test_labels
    confidence = fitted.predict_confidence(data.test_logits)
    learned = None if method == "uncalibrated" else seconds
    return _PairAnswers(confidence, correct, learned, notes)


def _read_recal(pair: Pair, data: PairData) -> _PairAnswers:
    """ReCal needs the images, so its confidences were computed when the pair was
    exported.
    """
    if pair.recal is None or data.recal_confidence is None:
        raise ValueError(
            f"{pair.name} has no ReCal confidences; export them with the pair."
        )
    facts = {"device": pair.recal.get("device")}
    seconds = float(pair.recal["fit_seconds"])
    return _PairAnswers(data.recal_confidence, data.test_correct, seconds, facts=facts)


def _fit_published(
    pair: Pair, data: PairData, fit: Callable[..., Fitted], times: int = 2
) -> _PairAnswers:
    """A method as its authors publish it: the confidence is the largest value of a
    row.
    """
    seconds: list[float] = []
    for _ in range(times if data.division is None else 1):
        begun = time.process_time()
        fitted = fit(data.val_logits, data.val_labels)
        seconds.append(time.process_time() - begun)
    rows: Any = data.test_logits  # never a TopK: these methods need all logits
    values = fitted(rows)
    correct = values.argmax(axis=1) == data.test_labels
    return _PairAnswers(np.minimum(values.max(axis=1), 1.0), correct, min(seconds))


def _fit_irm_published(pair: Pair, data: PairData) -> _PairAnswers:
    return _fit_published(pair, data, fit_irm)


def _fit_irova_ts_published(pair: Pair, data: PairData) -> _PairAnswers:
    return _fit_published(pair, data, fit_irova_ts)


def _fit_hoki_sampled(pair: Pair, data: PairData) -> _PairAnswers:
    """As in the paper: noise and fit from draws. The time is that of the fit; that of
    the choice of the noise is a fact of its own, as the paper does not say whether its
    times include it.

    On examples that were divided anew, the noise is that of the largest exact spread,
    which the draws estimate: the paper's grid would be most of the work of twenty
    divisions.
    """
    examples = (data.val_logits, data.val_labels)
    begun = time.process_time()
    if data.division is None:
        selection = select_on_grid(*examples, draws=N_DRAWS, seed=SEED)
    else:
        selection = select_noise(*examples)
    choice = time.process_time() - begun
    hoki = Hoki(
        noise=selection.noise, draws=N_DRAWS, unseen="as_printed", random_state=SEED
    )
    outcome = _hoki_outcome(hoki, data, selection)
    if (
        data.division is None and outcome.fit_seconds is not None
    ):  # elsewhere it is no choice on a grid
        outcome.facts["seconds_with_choice"] = choice + outcome.fit_seconds
    return outcome


def _fit_hoki_exact(pair: Pair, data: PairData) -> _PairAnswers:
    """Exact stability. The time is that of the fit with its noise given; that of the
    choice of the noise and the fit is a fact of its own. Here are the theorems, too.
    """
    hoki, seconds, _ = _time_fit(Hoki(), data)
    outcome = _hoki_outcome(
        clone(hoki).set_params(noise=hoki.noise_), data, hoki.selection_
    )
    outcome.facts["seconds_with_choice"] = seconds
    if data.division is None:
        theory = {
            "sufficiency": sufficiency_facts(hoki, data),
            "bounds": bound_facts(hoki, data),
        }
        outcome.facts.update(theory)
    return outcome


def _hoki_outcome(hoki: Hoki, data: PairData, chosen: NoiseSelection) -> _PairAnswers:
    """Hoki with a noise that was `chosen`; and its ECE when examples start at their own
    confidence instead, and when it learns from a quarter of the validation set.
    """
    fitted, seconds, notes = _time_fit(hoki, data)
    from_confidence, _, other_notes = _time_fit(
        HokiFromConfidence(**hoki.get_params()), data, times=1
    )
    few, _, _ = _time_fit(clone(hoki), _quarter(data), times=1)
    correct = data.test_correct
    facts = {
        "ending": fitted.ending_,
        "ece_from_confidence": ece(
            from_confidence.predict_confidence(data.test_logits), correct
        ),
        "ending_from_confidence": from_confidence.ending_,
        "ece_from_quarter": ece(few.predict_confidence(data.test_logits), correct),
        **_noise_facts(chosen),
    }
    confidence = fitted.predict_confidence(data.test_logits)
    notes += tuple(f"started at the confidence: {note}" for note in other_notes)
    return _PairAnswers(confidence, correct, seconds, notes, facts)


def _quarter(data: PairData) -> PairData:
    """The same pair with a quarter of its validation examples, chosen at random."""
    order = portable_permutation(data.val_labels.size, SEED)
    rows = np.sort(order[: data.val_labels.size // 4])
    return replace(
        data, val_logits=data.val_logits[rows], val_labels=data.val_labels[rows]
    )


def _noise_facts(selection: NoiseSelection) -> dict[str, Any]:
    return {
        "noise": noise_text(selection.noise),
        "alpha": selection.alpha,
        "beta": selection.beta,
        "sigma_hat": selection.sigma_hat,
        "width": selection.noise.width * selection.noise.unit_deviation,
        "n_settings": len(selection.trials),
    }


def noise_text(noise: Noise) -> str:
    """The noise in the paper's notation.

    >>> noise_text(Gaussian(2.0, -20.0)), noise_text(Uniform(-2, 4))
    ('G(-20, 2)', 'U(-2, 4)')
    """
    if isinstance(noise, Gaussian):
        return f"G({noise.mean:g}, {noise.scale:g})"
    if isinstance(noise, Uniform):
        return f"U({noise.low:g}, {noise.high:g})"
    return f"{noise.family}({noise.width:g})"


def _fit_hoki_on_inputs(pair: Pair, data: PairData) -> _PairAnswers:
    plain, val_kept, test_kept, val_correct = _views(pair, data)
    begun = time.process_time()
    calibrator = fit_inputs(val_kept, val_correct)
    seconds = time.process_time() - begun
    confidence = calibrator.confidence(input_stability(test_kept))
    return _compare_with_plain(plain, confidence, data, seconds)


def _fit_hoki_on_both(pair: Pair, data: PairData) -> _PairAnswers:
    plain, val_kept, test_kept, val_correct = _views(pair, data)
    begun = time.process_time()
    mix = fit_mix(
        plain.stability(data.val_logits), input_stability(val_kept), val_correct
    )
    seconds = time.process_time() - begun
    confidence = mix.confidence(
        plain.stability(data.test_logits), input_stability(test_kept)
    )
    return _compare_with_plain(plain, confidence, data, seconds, weight=mix.weight)


def _views(pair: Pair, data: PairData) -> tuple[Hoki, BoolArray, BoolArray, BoolArray]:
    """Plain Hoki to compare with, which views keep the label in both sets,
    validation hits.
    """
    val_kept, test_kept = _kept_views(pair, data)
    plain, _, _ = _time_fit(Hoki(unseen="as_printed"), data, times=1)
    return plain, val_kept, test_kept, data.val_correct


def _kept_views(pair: Pair, data: PairData) -> tuple[BoolArray, BoolArray]:
    """Which views keep the label, (n_val, views) and (n_test, views)."""
    if data.val_kept is None or data.test_kept is None:
        raise ValueError(
            f"{pair.name} does not say which views keep their label; export it again."
        )
    return data.val_kept, data.test_kept


def _compare_with_plain(
    plain: Hoki, confidence: FloatArray, data: PairData, seconds: float, **facts: Any
) -> _PairAnswers:
    """Adds the changes in score from plain Hoki."""
    correct = data.test_correct
    before = plain.predict_confidence(data.test_logits)
    facts |= {"change": score_changes(confidence, before, correct)}
    return _PairAnswers(confidence, correct, seconds, facts=facts)


def _fit_hoki_beside(pair: Pair, data: PairData) -> _PairAnswers:
    noise = select_noise(data.val_logits, data.val_labels).noise
    return _fit_input_share(Hoki(noise=noise), pair, data)


def _fit_auto_beside(pair: Pair, data: PairData) -> _PairAnswers:
    """With the change from temperature scaling to the default, for scale."""
    calibrator = make(AUTO).set_params(keep_labels=True)
    outcome = _fit_input_share(calibrator, pair, data)
    scaled, _, _ = _time_fit(make("temps"), data, times=1)
    outcome.facts["change_from_temps"] = score_changes(
        calibrator.predict_confidence(data.test_logits),
        scaled.predict_confidence(data.test_logits),
        data.test_correct,
    )
    return outcome


def _fit_input_share(calibrator: Any, pair: Pair, data: PairData) -> _PairAnswers:
    """Input stability beside the confidence of a calibrator, which is fitted here."""
    val_kept, test_kept = _kept_views(pair, data)
    begun = time.process_time()
    held_out = _held_out_confidence(calibrator, data)
    beside = fit_beside(held_out, input_stability(val_kept), data.val_correct)
    calibrator.fit(data.val_logits, data.val_labels)
    seconds = time.process_time() - begun
    before = calibrator.predict_confidence(data.test_logits)
    confidence = beside.confidence(before, input_stability(test_kept))
    facts = {
        "change": score_changes(confidence, before, data.test_correct),
        "slope": beside.slope,
    }
    return _PairAnswers(confidence, data.test_correct, seconds, facts=facts)


def _held_out_confidence(calibrator: Any, data: PairData) -> FloatArray:
    """Confidence (n_val,) of each validation example by a fit on the other folds."""
    logits: Any = data.val_logits  # never a TopK: such a pair has no views
    fold = portable_permutation(data.val_labels.size, SEED) % _N_FOLDS
    confidence = np.empty(data.val_labels.size)
    for number in range(_N_FOLDS):
        inside = fold == number
        fitted = clone(calibrator).fit(logits[~inside], data.val_labels[~inside])
        confidence[inside] = fitted.predict_confidence(logits[inside])
    return confidence


def score_changes(
    confidence: FloatArray, before: FloatArray, correct: BoolArray
) -> dict[str, float]:
    """Changes in Brier score, log loss and ECE; errors are over examples.

    >>> changes = score_changes(
    ...     np.array([0.8, 0.4]), np.array([0.7, 0.5]), np.array([True, False])
    ... )
    >>> round(changes["brier"], 3), round(changes["brier_error"], 3)
    (-0.07, 0.02)
    """
    losses = {"brier": _squared_error, "log_loss": _surprise}
    changes = {"ece": ece(confidence, correct) - ece(before, correct)}
    for name, loss in losses.items():
        with np.errstate(invalid="ignore"):  # infinite losses of both
            difference = loss(confidence, correct) - loss(before, correct)
            mean = float(difference.mean())
            error = float(difference.std(ddof=1)) / math.sqrt(difference.size)
        changes |= {name: mean, f"{name}_error": error}
    return changes


def _squared_error(confidence: FloatArray, correct: BoolArray) -> FloatArray:
    return np.asarray((confidence - correct) ** 2)


def _surprise(confidence: FloatArray, correct: BoolArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return -np.log(np.where(correct, confidence, 1.0 - confidence))


def _time_fit(
    calibrator: Any, data: PairData, *, times: int = 2
) -> tuple[Any, float, tuple[str, ...]]:
    """Fit on the validation logits: the calibrator, CPU seconds, convergence
    warnings.
    """
    seconds: list[float] = []
    below = _TIMED_TWICE_BELOW if data.division is None else 0.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        while not seconds or (len(seconds) < times and seconds[0] < below):
            begun = (
                time.process_time()
            )  # other load does not count; fits use one thread
            calibrator.fit(data.val_logits, data.val_labels)
            seconds.append(time.process_time() - begun)
    notes = dict.fromkeys(str(warning.message) for warning in caught)
    return calibrator, min(seconds), tuple(notes)


#: Methods that are not simply fitted with the registry's default settings.
_SPECIAL: dict[str, Callable[[Pair, PairData], _PairAnswers]] = {
    RECAL: _read_recal,
    IRM: _fit_irm_published,
    IROVA_TS: _fit_irova_ts_published,
    SAMPLED: _fit_hoki_sampled,
    EXACT: _fit_hoki_exact,
    INPUT: _fit_hoki_on_inputs,
    MIXED: _fit_hoki_on_both,
    HOKI_BESIDE: _fit_hoki_beside,
    AUTO_BESIDE: _fit_auto_beside,
}
#: Registered methods that special ones make by their names.
_USES = {AUTO_BESIDE: AUTO}
