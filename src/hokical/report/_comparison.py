"""Fit several calibrators on one validation set and measure them on one test set.

Results are data: the command line, the report and the tests all read the same `Comparison`.
"""

import json
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.bins import bin_index, sum_by
from hokical._core.labels import as_labels
from hokical._core.logits import Logits, as_logits
from hokical._core.progress import track
from hokical._core.storage import json_values
from hokical._core.topk import TopK
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._core.warn import ConvergenceWarning, FitDataWarning, sklearn_class, warn_user
from hokical.calibrators._automatic import AutoCalibrator
from hokical.calibrators._calibrator import Calibrator
from hokical.metrics import summary
from hokical.metrics._by_group import group_table
from hokical.metrics._examples import Examples, Predictions
from hokical.metrics._metric import METRICS
from hokical.metrics._sets import SetSummary, set_summary
from hokical.metrics._sums import row_scores
from hokical.report._results import (
    DataFacts,
    MethodResult,
    Provenance,
    are_same,
    choose_entrants,
    is_fitted,
)
from hokical.report._tables import Tables

#: Confidences (n,), and whether each was right (n,).
Said = tuple[FloatArray, BoolArray]
#: The method that the headline is about if none is named: the default of the library.
DEFAULT = "auto"


@dataclass(frozen=True, eq=False)
class Comparison(Tables):
    """Methods in the given order, the provenance of their numbers, and the headline's `subject`.

    `skipped` has the methods that the data do not allow, and why; `class_names` are by column, or
    empty.
    """

    results: tuple[MethodResult, ...]
    provenance: Provenance
    subject: str
    title: str | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores that all methods have, the lower the better."""
        known = (m for m in METRICS.values() if self.has_vectors or not m.all_classes)
        return tuple(metric.name for metric in known if metric.ranking)

    def headline(self, name: str | None = None) -> str:
        """What one method changed (None: the subject), in words, with a guarantee.

        The bound is always Bousquet's: the smallest of several would hold less often.
        """
        result = self[name or self.subject]
        after = result.summary
        says, right = (after[name].value for name in ("mean_confidence", "accuracy"))
        error, level = after["ece"].value, 1 - after.options.delta
        proven = ""
        if "bousquet" in after.bounds:
            proven = (
                f"; on new data of the same kind the true one is, with {level:.0%} confidence, "
                f"below {after.bounds['bousquet']:.4f}"
            )
        others = {other.name for other in self.results} - {result.name}
        if "uncalibrated" not in others:
            own = result.name == "uncalibrated"
            who = "Your model" if own else f"With {result.label} your model"
            claim = self._claim(says, right)
            return f"{who} {claim}. Its calibration error is {error:.4f}{proven}."
        before = self["uncalibrated"].summary
        kept = right == before["accuracy"].value
        change = error - before["ece"].value
        verb = "fell" if change < 0 else "rose" if change > 0 else "stayed, going"
        return (
            f"Your model {self._claim(before['mean_confidence'].value, before['accuracy'].value)}. "
            f"After calibration with {result.label} it says {says:.1%}"
            f"{'' if kept else f' and is right {right:.1%}'}. Its calibration error {verb} from "
            f"{before['ece'].value:.4f} to {error:.4f}{proven}."
        )

    def _claim(self, says: float, right: float) -> str:
        if self.provenance.test.what == "scores":
            return f"gives labels {says:.1%} on average, and {right:.1%} of them are there"
        return f"says {says:.1%} and is right {right:.1%} of the time"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        return {
            "title": self.title,
            "subject": self.subject,
            "headline": self.headline(),
            "methods": [result.to_dict() for result in self.results],
            "differences": [asdict(found) for found in self.differences()],
            "skipped": self.skipped,
            "provenance": asdict(self.provenance),
        }

    def to_json(self) -> str:
        """`to_dict` as JSON; NaN and infinities become null."""
        return json.dumps(json_values(self.to_dict()), indent=2)


def compare(
    validation: tuple[Any, Any],
    test: tuple[Any, Any],
    methods: Iterable[Any] | Mapping[str, Any] | None = None,
    *,
    subject: str | None = None,
    title: str | None = None,
    data_names: tuple[str | None, str | None] = (None, None),
    class_names: Sequence[str] = (),
    coverage: float | None = None,
    groups: tuple[Any, Any] = (None, None),
    n_resamples: int = 1000,
    random_state: int = 0,
    progress: bool | None = None,
) -> Comparison:
    """Fit each method on `validation` (logits, labels) and measure it on `test`.

    Parameters
    ----------
    validation, test : (logits, labels)
        Logits (n, classes) and labels (n,); the methods are fitted on the first and measured on the
        second.
    methods : names, estimators, or a mapping of names to them, optional
        Registry names, estimators with options, classes of your own. A fitted calibrator is used as
        it is, others are fitted. Anything else with `fit` and `predict_proba`, as scikit-learn's
        classifiers have, gets the logits as features; a copy is fitted. None means "auto" and every
        method that needs only logits and labels. Methods that the data do not allow are left out,
        see `Comparison.skipped`.
    subject : str, optional
        The method of the headline, to which others are compared. None: "auto" if it is among them,
        else the last one. Name it before you look at the test set: the guarantee needs that.
    title : str, optional
        Title of the report.
    data_names : (str, str)
        Names of the validation and the test data in the report.
    class_names : sequence of str
        Names of the classes in the report, by column; empty shows column numbers.
    coverage : float, optional
        Also measure prediction sets of this coverage: thresholds come from every other row of the
        test set, what they cover from the rows between.
    groups : (groups of the validation rows, groups of the test rows)
        Also look whom each method is wrong about, by groups of the test rows: text or numbers (n,),
        or several columns, as in `hokical.metrics.group_table`. "auto" learns from the groups of
        the validation rows; None for none.
    n_resamples : int
        Number of resamples of the bootstrap intervals; 0 for none.
    random_state : int
        Seed of the bootstrap, also passed to methods given by name.
    progress : bool, optional
        Show a progress bar; None shows one on a terminal once a second has passed.

    Examples
    --------
    >>> from hokical import Hoki
    >>> from hokical.demo import demo_logits
    >>> methods = {"uncalibrated": "uncalibrated", "hoki 20": Hoki(n_bins=20)}
    >>> comparison = compare(*demo_logits(), methods, n_resamples=0)
    >>> comparison.best("ece").label
    'Hoki (hoki 20)'
    """
    val_logits, val_labels = check_examples(validation)
    logits, labels = check_examples(test)
    names = _check_class_names(class_names, logits.n_classes)
    entrants, skipped = choose_entrants(methods, random_state, (val_logits, logits))
    chosen = _choose_subject(subject, list(entrants))
    options = {"n_resamples": n_resamples, "random_state": random_state}
    results = []
    for name in track(list(entrants), "Comparing {}", len(entrants), progress):
        seconds, notes = _fit(entrants[name], val_logits, val_labels, groups[0])
        found = judge(name, entrants[name], (logits, labels), options, groups[1], coverage)
        results.append(replace(found, fit_seconds=seconds, notes=notes))
    facts = (
        DataFacts.collect(val_logits, val_labels, data_names[0]),
        DataFacts.collect(logits, labels, data_names[1]),
    )
    same = are_same((val_logits, val_labels), (logits, labels))
    origin = replace(Provenance.collect(*facts, random_state), tested_on_validation=same)
    return Comparison(tuple(results), origin, chosen, title, skipped, names)


def _choose_subject(subject: str | None, names: list[str]) -> str:
    """The method of the headline, chosen by its name and never by test scores.

    A guarantee for whichever method came out best would hold less often than it says.
    """
    if subject is None:
        others = [name for name in names if name != "uncalibrated"]
        return DEFAULT if DEFAULT in names else [*names[:1], *others][-1]
    if subject not in names:
        raise ValueError(f"`subject` must be one of the methods {names}; got {subject!r}.")
    return subject


def _check_class_names(names: Sequence[str], n_classes: int) -> tuple[str, ...]:
    if isinstance(names, str) or len(names) not in (0, n_classes):
        raise ValueError(
            f"`class_names` must have a name for each of the {n_classes} classes; got {names!r}. "
            "List them in the order of the columns, or leave it out."
        )
    return tuple(map(str, names))


def check_examples(examples: tuple[Any, Any]) -> tuple[Logits, IntArray]:
    """Logits and labels of a pair of both."""
    if not isinstance(examples, (tuple, list)) or len(examples) != 2:
        raise TypeError(
            f"data must be a pair (logits, labels); got {type(examples).__name__}. As in "
            "`hokical.compare((val_logits, val_labels), (test_logits, test_labels))`."
        )
    logits = as_logits(examples[0])
    return logits, as_labels(examples[1], logits.n_rows, logits.n_classes)


def _fit(
    calibrator: Any, logits: Logits, labels: IntArray, groups: Any
) -> tuple[float | None, tuple[str, ...]]:
    """Fit, unless it is; the seconds it took, and its warnings as notes.

    Warnings about the examples are given instead: most methods have the same to say.
    """
    if is_fitted(calibrator):
        return None, ()
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", sklearn_class(ConvergenceWarning))
        learns = groups is not None and isinstance(calibrator, AutoCalibrator)
        calibrator.fit(logits, labels, **({"groups": groups} if learns else {}))
    seconds = time.perf_counter() - start
    for found in caught:
        if found.category is FitDataWarning:
            warn_user(str(found.message), FitDataWarning)
    notes = (str(w.message) for w in caught if w.category is not FitDataWarning)
    return seconds, tuple(notes)


def _measure_sets(
    calibrator: Calibrator, logits: Logits, labels: IntArray, coverage: float
) -> SetSummary:
    """Sets whose threshold one half of the test set gives, on the other half."""
    known, new = np.arange(0, labels.size, 2), np.arange(1, labels.size, 2)
    judge = copy(calibrator)
    # A test on the validation set is reported elsewhere.
    judge.kept_ = replace(judge.kept_, fit_rows=None)
    judge.certify(logits.take(known), labels[known])
    found = judge.predict_set(logits.take(new), coverage=coverage)
    return set_summary(to_host(found.members), labels[new], goal=coverage)


def judge(
    name: str,
    calibrator: Calibrator,
    test: tuple[Logits, IntArray],
    options: dict[str, Any],
    groups: Any = None,
    coverage: float | None = None,
    full: bool = True,
) -> MethodResult:
    """A fitted method on the test set, of all classes if `full`; `options` as of `summary`."""
    logits, labels = calibrator._attach_groups(test[0], groups), test[1]
    predicted = to_host(calibrator.predict(logits))
    confidence = to_host(calibrator.predict_confidence(logits)).astype(np.float64)
    options = options | {"predicted": predicted}
    if full and not isinstance(logits, TopK):
        options |= {"proba": to_host(calibrator.predict_proba(logits)), "labels": labels}
    said = confidence, predicted == labels
    found = judge_answers(name, calibrator, said, options, groups)
    sets = None if coverage is None else _measure_sets(calibrator, logits, labels, coverage)
    return replace(found, sets=sets)


def judge_answers(
    name: str, calibrator: Any, said: Said, options: dict[str, Any], groups: Any = None
) -> MethodResult:
    """A method by its confidences (n,) and whether they were right; `options` as in `judge`."""
    confidence, correct = said
    gap, place = correct - confidence, bin_index(confidence, 15)
    known = "proba" in options
    vectors = Predictions(options["proba"], options["labels"], None) if known else None
    rows = row_scores(Examples(*said, None), vectors)
    rows["ece"] = np.sign(sum_by(place, gap, 15))[place] * gap  # its mean is the ECE
    found = summary(*said, **options)
    table = None if groups is None else group_table(*said, groups)
    return MethodResult(name, calibrator, None, *said, (), found, rows, groups=table)
