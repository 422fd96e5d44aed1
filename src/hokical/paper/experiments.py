"""One method on one pair: fit on the validation logits, measure on the test logits."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from hokical.calibrators.hoki import Hoki
from hokical.calibrators.registry import make_seeded
from hokical.metrics import ece, summary
from hokical.noise import Gaussian, Noise, Uniform
from hokical.paper.input_stability import fit_inputs, fit_mix, input_stability
from hokical.paper.methods import EXACT, INPUT, MIXED, RECAL, SAMPLED
from hokical.paper.noise_grid import select_on_grid
from hokical.paper.published import BIN_COUNTS
from hokical.paper.results import Result
from hokical.paper.suite import Pair, PairData
from hokical.plots.reliability import reliability
from hokical.selection import NoiseSelection

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: Kept of a summary: what the tables and figures show.
SCORES = (
    "accuracy",
    "mean_confidence",
    "ece",
    "ece_mass",
    "smooth_ece",
    "brier",
    "log_loss",
    "auroc",
    "sharpness",
)
N_RESAMPLES = 200
N_DRAWS = 1000
SEED = 0
#: A fit shorter than this is timed twice, and the better time counts: the first may compile.
_TIMED_TWICE_BELOW = 2.0


def run_method(
    pair: Pair, data: PairData, method: str, *, n_resamples: int = N_RESAMPLES
) -> Result:
    """The result of a method; everything random has a fixed seed."""
    special: dict[str, Callable[[Pair, PairData], _Outcome]] = {
        RECAL: _stored_recal,
        SAMPLED: _hoki_sampled,
        EXACT: _hoki_exact,
        INPUT: _hoki_on_inputs,
        MIXED: _hoki_on_both,
    }
    outcome = special[method](pair, data) if method in special else _registered(method, data)
    rows = (outcome.confidence, outcome.correct)
    found = summary(*rows, n_resamples=n_resamples, seed=SEED)
    return Result(
        pair.name,
        method,
        outcome.fit_seconds,
        {name: found[name] for name in SCORES},
        {bins: ece(*rows, n_bins=bins) for bins in BIN_COUNTS},
        reliability(*rows),
        outcome.notes,
        outcome.facts,
    )


class _Outcome:
    """Confidence and correctness on the test set, and what is known of the fit."""

    def __init__(
        self,
        confidence: FloatArray,
        correct: BoolArray,
        fit_seconds: float | None,
        notes: tuple[str, ...] = (),
        **facts: Any,
    ) -> None:
        self.confidence, self.correct = confidence, correct
        self.fit_seconds, self.notes, self.facts = fit_seconds, notes, facts


def _registered(method: str, data: PairData) -> _Outcome:
    fitted, seconds, notes = _timed_fit(make_seeded(method, SEED), data)
    correct = fitted.predict(data.test_logits) == data.test_labels
    confidence = fitted.predict_confidence(data.test_logits)
    return _Outcome(confidence, correct, None if method == "uncalibrated" else seconds, notes)


def _stored_recal(pair: Pair, data: PairData) -> _Outcome:
    """ReCal needs the images: its confidences were computed where they are."""
    if pair.recal is None or data.recal_confidence is None:
        raise ValueError(f"{pair.name} has no ReCal confidences; export them with the pair.")
    return _Outcome(
        data.recal_confidence,
        data.test_correct,
        float(pair.recal["fit_seconds"]),
        device=pair.recal.get("device"),
    )


def _hoki_sampled(pair: Pair, data: PairData) -> _Outcome:
    """As printed: the grid and the fit both from draws. The time is the fit's, as in the paper."""
    begun = time.perf_counter()
    selection = select_on_grid(data.val_logits, data.val_labels, draws=N_DRAWS, seed=SEED)
    searched = time.perf_counter() - begun
    hoki = Hoki(noise=selection.noise, draws=N_DRAWS, random_state=SEED)
    return _hoki_outcome(hoki, data, selection, search_seconds=searched)


def _hoki_exact(pair: Pair, data: PairData) -> _Outcome:
    """As hokical does it: exact stability; the time includes the choice of the noise."""
    return _hoki_outcome(Hoki(), data)


def _hoki_outcome(
    hoki: Hoki, data: PairData, selection: NoiseSelection | None = None, **facts: Any
) -> _Outcome:
    """Hoki, and what its ECE is when examples start at their own confidence instead."""
    fitted, seconds, notes = _timed_fit(hoki, data)
    chosen = selection or fitted.selection_
    other = clone(hoki).set_params(noise=chosen.noise, init="confidence")
    _timed_fit(other, data, times=1)
    correct = data.test_correct
    return _Outcome(
        fitted.predict_confidence(data.test_logits),
        correct,
        seconds,
        notes,
        ece_from_confidence=ece(other.predict_confidence(data.test_logits), correct),
        **_noise_facts(chosen),
        **facts,
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
    """The noise as the paper writes it.

    >>> noise_text(Gaussian(2.0, -20.0)), noise_text(Uniform(-2, 4))
    ('G(-20, 2)', 'U(-2, 4)')
    """
    if isinstance(noise, Gaussian):
        return f"G({noise.mean:g}, {noise.scale:g})"
    if isinstance(noise, Uniform):
        return f"U({noise.low:g}, {noise.high:g})"
    return f"{noise.family}({noise.width:g})"


def _hoki_on_inputs(pair: Pair, data: PairData) -> _Outcome:
    plain, val_kept, test_kept, val_correct = _views(pair, data)
    begun = time.perf_counter()
    calibrator = fit_inputs(val_kept, val_correct)
    seconds = time.perf_counter() - begun
    confidence = calibrator.confidence(input_stability(test_kept))
    return _beside_plain(plain, confidence, data, seconds)


def _hoki_on_both(pair: Pair, data: PairData) -> _Outcome:
    plain, val_kept, test_kept, val_correct = _views(pair, data)
    begun = time.perf_counter()
    mix = fit_mix(plain.stability(data.val_logits), input_stability(val_kept), val_correct)
    seconds = time.perf_counter() - begun
    confidence = mix.confidence(plain.stability(data.test_logits), input_stability(test_kept))
    return _beside_plain(plain, confidence, data, seconds, weight=mix.weight)


def _views(pair: Pair, data: PairData) -> tuple[Hoki, BoolArray, BoolArray, BoolArray]:
    """Plain Hoki to compare with, the views of both sets, and who is right on the first."""
    if data.val_kept is None or data.test_kept is None:
        raise ValueError(f"{pair.name} does not tell which views keep their label; export that.")
    plain, _, _ = _timed_fit(Hoki(), data, times=1)
    correct = np.asarray(data.val_logits.argmax(axis=1) == data.val_labels)
    return plain, data.val_kept, data.test_kept, correct


def _beside_plain(
    plain: Hoki, confidence: FloatArray, data: PairData, seconds: float, **facts: Any
) -> _Outcome:
    """With the difference in Brier score to plain Hoki, and its standard error over examples."""
    correct = data.test_correct
    before = (plain.predict_confidence(data.test_logits) - correct) ** 2
    difference = (confidence - correct) ** 2 - before
    error = float(difference.std(ddof=1)) / math.sqrt(difference.size)
    found = {"brier_difference": float(difference.mean()), "brier_error": error, **facts}
    return _Outcome(confidence, correct, seconds, **found)


def _timed_fit(
    calibrator: Any, data: PairData, *, times: int = 2
) -> tuple[Any, float, tuple[str, ...]]:
    """Fit on the validation logits; seconds, and convergence warnings as notes."""
    seconds: list[float] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        while not seconds or (len(seconds) < times and seconds[0] < _TIMED_TWICE_BELOW):
            begun = time.perf_counter()
            calibrator.fit(data.val_logits, data.val_labels)
            seconds.append(time.perf_counter() - begun)
    notes = dict.fromkeys(str(warning.message) for warning in caught)
    return calibrator, min(seconds), tuple(notes)
