"""Fit several methods on one validation set and evaluate them on one test set, or on several."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hokical._core.logits import Logits
from hokical._core.progress import track
from hokical._core.types import IntArray
from hokical._core.warn import ConvergenceWarning, FitDataWarning, sklearn_class, warn_user
from hokical.calibrators._automatic import AutoCalibrator
from hokical.metrics._metric import METRICS, SummaryOptions
from hokical.report._data import main_columns, report_data
from hokical.report._differences import Difference, paired_differences
from hokical.report._entrants import Methods, choose_entrants, is_fitted
from hokical.report._evaluate import check_examples, check_names, measure_sets
from hokical.report._evaluation import Evaluation
from hokical.report._judging import Predicted, Setting, judge
from hokical.report._page import write_page
from hokical.report._provenance import DataFacts, Provenance, are_same
from hokical.report._standings import rank_methods
from hokical.report._tables import Cells, TableOutput

#: The method that the headline is about if none is named: the default of the library.
DEFAULT = "auto"


@dataclass(frozen=True, eq=False)
class Comparison(TableOutput):
    """Evaluations of methods, in the given order, and the headline's `subject`.

    `skipped` has the methods that the data do not allow, and why; `class_names` are by column, or
    empty.
    """

    results: tuple[Evaluation, ...]
    provenance: Provenance
    subject: str
    title: str | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Evaluation:
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(f"no method {name!r} here; there are {[r.name for r in self.results]}.")

    @property
    def main_columns(self) -> tuple[str, ...]:
        """What small tables show, in order."""
        return main_columns(self.results)

    def headline(self, name: str | None = None) -> str:
        """What one method changed (None: the subject), in words, with a guarantee."""
        return self[name or self.subject].headline

    def best(self, score: str) -> Evaluation:
        """The method with the lowest value of a score."""
        return min(self.results, key=lambda result: result.score(score))

    def differences(
        self, metric: str = "log_loss", *, against: str | None = None, delta: float = 0.05
    ) -> tuple[Difference, ...]:
        """Paired differences of every other method to one, with intervals and verdicts.

        `metric` is "log_loss", "brier" or "ece"; `against` None is the subject. `delta` is the
        probability that an interval misses, and the level of verdicts, which allow for the number
        of methods (Holm).
        """
        return paired_differences(self.results, self[against or self.subject], metric, delta)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        return {
            "title": self.title,
            "subject": self.subject,
            "headline": self.headline(),
            "methods": [result.method_dict() for result in self.results],
            "differences": [asdict(found) for found in self.differences()],
            "skipped": self.skipped,
            "provenance": asdict(self.provenance),
        }

    def to_html(self, path: str | os.PathLike[str], *, method: str | None = None) -> Path:
        """Write a report as one self-contained HTML file, which is returned.

        `method` is that of the headline, shown first; None takes the subject.
        """
        chosen = self[method or self.subject]
        found = self.differences(against=chosen.name)
        about: dict[str, Any] = {"title": self.title, "skipped": self.skipped}
        return write_page(report_data(self.results, chosen, self.provenance, found, **about), path)

    def _cells(self, mark: str) -> Cells:
        heads = ["method", *(METRICS[name].full_title for name in self.main_columns)]
        return heads, [[(each.label, "{}"), *self._marked(each, mark)] for each in self.results]

    def _marked(self, result: Evaluation, mark: str) -> list[tuple[str, str]]:
        """Equal as shown is equal: readers cannot see which 0.0107 is lower."""
        cells = []
        for name in self.main_columns:
            metric = METRICS[name]
            shown, best = (metric.format(r.score(name)) for r in (result, self.best(name)))
            cells.append((shown, mark if metric.ranking and shown == best else "{}"))
        return cells

    def marked_cells(self, result: Evaluation, mark: str) -> list[str]:
        """The cells of a small table, the best of each score in `mark`."""
        return [style.format(text) for text, style in self._marked(result, mark)]

    def _records(self) -> list[dict[str, Any]]:
        """Every metric and its interval, the difference to the subject."""
        rows = []
        verdicts = {found.method: found for found in self.differences()}
        for result in self.results:
            row: dict[str, Any] = {"method": result.name, "title": result.title}
            for name, found in result.summary.estimates.items():
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            row["true_ece_below"] = result.summary.bounds.get("bousquet", math.nan)
            against = verdicts.get(result.name)
            row |= {
                f"difference_{field}": "" if against is None else getattr(against, field)
                for field in ("against", "metric", "value", "low", "high", "p_value", "verdict")
            }
            rows.append(row | {"fit_seconds": result.fit_seconds})
        return rows


def compare(
    validation: Any,
    test: Any,
    methods: Methods = None,
    *,
    metric: str = "log_loss",
    delta: float = 0.05,
    subject: str | None = None,
    title: str | None = None,
    data_names: tuple[str | None, str | None] = (None, None),
    class_names: Sequence[str] = (),
    coverage: float | None = None,
    groups: tuple[Any, Any] = (None, None),
    random_state: int = 0,
    progress: bool | None = None,
) -> Any:
    """Fit each method on `validation` (logits, labels) and evaluate it on `test`.

    Parameters
    ----------
    validation, test : (logits, labels), or mappings of names to such pairs
        Logits (n, classes) and labels (n,); the methods are fitted on the first and evaluated on
        the second. Mappings are several data sets, each under the same name in both; the result
        then says how the methods stand over all of them, and has a comparison of each.
    methods : names, estimators, or a mapping of names to them, optional
        Registry names, estimators with options, classes of your own. A fitted calibrator is used as
        it is, others are fitted. None means "auto" and every method that needs only logits and
        labels. Methods that the data do not allow are left out, see `Comparison.skipped`.
    metric : str
        Of several data sets: what ranks, "log_loss", "brier", "ece" or any other metric that is
        better the lower.
    delta : float
        Probability that an interval or a bound fails; of several data sets also the level of the
        critical difference.
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
        Also measures prediction sets of this coverage: thresholds come from every other row of the
        test set, coverage from the rows between.
    groups : (groups of the validation rows, groups of the test rows)
        Tells which groups each method is miscalibrated for, by groups of the test rows: text or
        numbers (n,), or several columns, as in `hokical.metrics.group_table`. "auto" learns from
        the groups of the validation rows; None for none.
    random_state : int
        Seed of methods given by name.
    progress : bool, optional
        Show a progress bar; None shows one on a terminal once a second has passed.

    Examples
    --------
    >>> from hokical import Hoki, compare
    >>> from hokical.demo import demo_logits
    >>> methods = {"uncalibrated": "uncalibrated", "hoki 20": Hoki(n_bins=20)}
    >>> val, (logits, labels) = demo_logits()
    >>> compare(val, (logits, labels), methods).best("ece").label
    'Hoki (hoki 20)'
    >>> tests = {f"part {k}": (logits[k::3], labels[k::3]) for k in range(3)}
    >>> found = compare({name: val for name in tests}, tests, ["uncalibrated", "temps"])
    >>> [(row.method, row.rank) for row in found.rows]
    [('temps', 1.0), ('uncalibrated', 2.0)]
    """
    if isinstance(validation, Mapping):
        found = _compare_each(validation, test, methods, metric, random_state, progress)
        return rank_methods(found, metric, delta)
    known, new = check_examples(validation), check_examples(test)
    names = check_names(class_names, new[0].n_classes)
    entrants, skipped = choose_entrants(methods, random_state, (known[0], new[0]))
    chosen = _choose_subject(subject, list(entrants))
    options = SummaryOptions(delta=delta)
    facts = (DataFacts.collect(*known, data_names[0]), DataFacts.collect(*new, data_names[1]))
    origin = Provenance.collect(*facts, are_same(known, new))
    setting, results = Setting(options, origin, groups[1], names), []
    for name in track(list(entrants), "Comparing {}", len(entrants), progress):
        method = entrants[name]
        seconds, notes = _fit(method, *known, groups[0])
        sets = None if coverage is None else measure_sets(method, new, coverage, groups[1])
        rows = Predicted.of_logits(method, *new, groups=groups[1])
        one = judge(name, method, rows, setting, sets)
        results.append(replace(one, fit_seconds=seconds, notes=notes))
    before = next((one for one in results if one.name == "uncalibrated"), None)
    linked = (one if one is before else replace(one, before=before) for one in results)
    return Comparison(tuple(linked), origin, chosen, title, skipped, names)


def _compare_each(
    validation: Any, test: Any, methods: Methods, metric: str, seed: int, progress: bool | None
) -> dict[str, Comparison]:
    """A comparison of each data set, by its name."""
    if not isinstance(test, Mapping) or set(validation) != set(test) or not validation:
        raise ValueError(
            "`validation` and `test` must have the same data sets, at least one; got "
            f"{list(validation)} and {list(test) if isinstance(test, Mapping) else type(test)}."
        )
    lower = [name for name, m in METRICS.items() if m.better == "lower" and not m.ordered]
    if metric not in lower:
        raise ValueError(f"`metric` must be one of {lower}; got {metric!r}.")
    options: dict[str, Any] = {"random_state": seed, "progress": False}
    return {
        name: compare(validation[name], test[name], methods, **options)
        for name in track(list(validation), "Comparing on {}", len(validation), progress)
    }


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


def _fit(
    calibrator: Any, logits: Logits, labels: IntArray, groups: Any
) -> tuple[float | None, tuple[str, ...]]:
    """Fit, unless it is; the seconds it took, and its warnings as notes.

    Warnings about the examples are given instead: most methods have the same.
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
