"""Fit several calibrators on one validation set and measure them on one test set.

Results are data: the command line, the report and the tests all read the same `Comparison`.
"""

from __future__ import annotations

import hashlib
import platform
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.registry import make, make_seeded, methods_from_logits
from hokical.core.blocks import row_slices
from hokical.core.labels import as_labels
from hokical.core.logits import Logits, as_logits
from hokical.core.progress import track
from hokical.core.topk import TopK
from hokical.core.types import BoolArray, FloatArray, IntArray
from hokical.metrics import Summary, summary

#: Scores by which methods are ranked; lower is better.
SCORES = ("ece", "ece_mass", "smooth_ece", "brier", "log_loss")


@dataclass(frozen=True)
class DataFacts:
    """The data of a comparison: enough to tell whether another run used the same."""

    n_rows: int
    n_classes: int
    dtype: str
    accuracy: float
    sha256: str


@dataclass(frozen=True)
class Provenance:
    """The origin of the numbers: data, versions, seed."""

    validation: DataFacts
    test: DataFacts
    seed: int
    versions: dict[str, str]
    machine: str

    @property
    def tested_on_validation(self) -> bool:
        """Whether both sets are the same examples, which makes everything look too good."""
        return self.validation.sha256 == self.test.sha256


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One method on the test set: confidence and correctness (n,), and its scores."""

    name: str
    calibrator: BaseCalibrator
    fit_seconds: float
    confidence: FloatArray
    correct: BoolArray
    notes: tuple[str, ...]
    seed: int = 0
    n_resamples: int = 1000

    @cached_property
    def summary(self) -> Summary:
        """All metrics with bootstrap intervals, and the bounds on the true calibration error."""
        return summary(self.confidence, self.correct, n_resamples=self.n_resamples, seed=self.seed)

    @property
    def converged(self) -> bool:
        """Whether the fit converged; True for methods without iterations."""
        return bool(getattr(self.calibrator, "converged_", True))

    def score(self, name: str) -> float:
        """The value of one metric of the summary."""
        return self.summary[name].value

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "method": self.name,
            "fit_seconds": self.fit_seconds,
            "converged": self.converged,
            "notes": list(self.notes),
            **self.summary.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods in the given order, and the provenance of their numbers."""

    results: tuple[MethodResult, ...]
    provenance: Provenance

    def __getitem__(self, name: str) -> MethodResult:
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(f"no method {name!r} here; there are {[r.name for r in self.results]}.")

    def best(self, score: str) -> MethodResult:
        """The method with the lowest value of a score."""
        return min(self.results, key=lambda result: result.score(score))

    def subject(self) -> str:
        """The method that the headline is about, chosen by its name and never by test scores.

        A guarantee for whichever method came out best would hold less often than it says.
        """
        names = [result.name for result in self.results]
        others = [name for name in names if name != "uncalibrated"]
        return "hoki" if "hoki" in names else [*names[:1], *others][-1]

    def headline(self, name: str) -> str:
        """What calibration by one method changed, in words, with a guarantee.

        The bound is always Bousquet's: the smallest of several would hold less often.
        """
        before, after = self["uncalibrated"].summary, self[name].summary
        right = after["accuracy"].value
        kept = right == before["accuracy"].value
        change = after["ece"].value - before["ece"].value
        verb = "fell" if change < 0 else "rose" if change > 0 else "stayed, going"
        return (
            f"Your model says {before['mean_confidence'].value:.1%} and is right "
            f"{before['accuracy'].value:.1%} of the time. After calibration with {name} it says "
            f"{after['mean_confidence'].value:.1%}{'' if kept else f' and is right {right:.1%}'}. "
            f"Its calibration error {verb} from {before['ece'].value:.4f} to "
            f"{after['ece'].value:.4f}; on new data of the same kind the true one is, with "
            f"{1 - after.options.delta:.0%} certainty, below {after.bounds['bousquet']:.4f}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        return {
            "methods": [result.to_dict() for result in self.results],
            "provenance": asdict(self.provenance),
        }


def compare(
    validation: tuple[Any, Any],
    test: tuple[Any, Any],
    methods: Sequence[str] | None = None,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> Comparison:
    """Fit each named method on `validation` (logits, labels) and measure it on `test`.

    Parameters
    ----------
    validation, test : (logits, labels)
    methods : sequence of registry names, optional
        None means every method that needs only logits and labels; for a `TopK`, those that accept
        one.
    n_resamples, seed : int
        Of the bootstrap intervals; the seed is also passed to methods that take one.
    progress : bool, optional
        Show a progress bar; None shows one on a terminal after a second.

    Examples
    --------
    >>> from hokical.demo import demo_logits
    >>> comparison = compare(*demo_logits(), ["uncalibrated", "hoki"], n_resamples=100)
    >>> comparison.best("ece").name
    'hoki'
    """
    val_logits, val_labels = _check_examples(validation)
    logits, labels = _check_examples(test)
    names = _usable_methods(val_logits, logits) if methods is None else list(methods)
    for name in names:
        if make(name).needs_views:
            raise ValueError(
                f"`methods` cannot hold {name!r}: it also needs the logits of transformed inputs. "
                "Fit it by itself, on `hokical.Views`."
            )
    results = []
    for name in track(names, "Fitting {}", len(names), progress):
        calibrator = make_seeded(name, seed)
        seconds, notes = _fit(calibrator, val_logits, val_labels)
        correct = calibrator.predict(logits) == labels
        confidence = calibrator.predict_confidence(logits)
        results.append(
            MethodResult(name, calibrator, seconds, confidence, correct, notes, seed, n_resamples)
        )
    facts = (_facts(val_logits, val_labels), _facts(logits, labels))
    return Comparison(tuple(results), Provenance(*facts, seed, _versions(), platform.machine()))


def _usable_methods(*data: Logits) -> list[str]:
    partial = any(isinstance(logits, TopK) for logits in data)
    names = methods_from_logits(data[0].n_classes)
    return [name for name in names if make(name).accepts_top_k] if partial else names


def _check_examples(examples: tuple[Any, Any]) -> tuple[Logits, IntArray]:
    logits = as_logits(examples[0])
    return logits, as_labels(examples[1], logits.n_rows, logits.n_classes)


def _fit(
    calibrator: BaseCalibrator, logits: Logits, labels: IntArray
) -> tuple[float, tuple[str, ...]]:
    """Fit; the seconds it took, and convergence warnings as notes."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        calibrator.fit(logits, labels)
    return time.perf_counter() - start, tuple(str(w.message) for w in caught)


def _facts(logits: Logits, labels: IntArray) -> DataFacts:
    digest = hashlib.sha256()
    for rows in row_slices(logits.n_rows, logits.n_columns):
        digest.update(np.ascontiguousarray(logits.values[rows]).tobytes())
    digest.update(labels.astype("<i8").tobytes())
    return DataFacts(
        n_rows=logits.n_rows,
        n_classes=logits.n_classes,
        dtype=str(logits.values.dtype),
        accuracy=float((logits.labels == labels).mean()),
        sha256=digest.hexdigest(),
    )


def _versions() -> dict[str, str]:
    names = ("hokical", "numpy", "scipy", "scikit-learn")
    return {"python": platform.python_version()} | {name: version(name) for name in names}
