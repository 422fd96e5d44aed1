"""Fit several methods on one validation set and evaluate them on one test set, or on several."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hokical._core.arrays import IntArray
from hokical._core.logits import Logits
from hokical._core.messages import track
from hokical._core.reading import as_clusters, column_names
from hokical._core.topk import TopK
from hokical.calibrators import Calibrator
from hokical.calibrators.automatic import AutoCalibrator
from hokical.calibrators.catalog import make, method_names
from hokical.calibrators.stored import check_plain_logits, clone
from hokical.guarantees.calibration_data import warn_of_rows_of_fit
from hokical.metrics.summaries import METRICS, SummaryOptions
from hokical.report import content
from hokical.report.evaluating import measure_sets, read_pair
from hokical.report.evaluation import DataFacts, Evaluation, Predicted, Setting, check_names, judge
from hokical.report.page import TableOutput, TextCells, rank_methods, write_page

#: The method that the headline is about if none is named: the default of the library.
DEFAULT = "auto"
#: What a table has of a difference to the subject.
_DIFFERENCE = ("against", "metric", "value", "low", "high", "p_value", "verdict")
Methods = Iterable[Any] | Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class Comparison(TableOutput):
    """Evaluations of methods, in the given order, and the headline's `subject`.

    `skipped` has the methods that the data do not allow, and why. `validation` describes the data
    of the fits; `tested_on_validation` is whether the test set holds the same examples, which makes
    everything look too good.
    """

    results: tuple[Evaluation, ...]
    subject: str
    validation: DataFacts
    tested_on_validation: bool = False
    skipped: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Evaluation:
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(f"no method {name!r} here; there are {[r.name for r in self.results]}.")

    @property
    def headline(self) -> str:
        """What the subject changed, in words, with a guarantee."""
        return self[self.subject].headline

    def best(self, score: str) -> Evaluation:
        """The method with the lowest value of a score."""
        return min(self.results, key=lambda result: result.score(score))

    def differences(
        self, metric: str = "log_loss", *, against: str | None = None, delta: float = 0.05
    ) -> tuple[content.Difference, ...]:
        """Paired differences of every other method to one, with intervals and verdicts.

        `metric` is "log_loss" or "brier"; `against` None is the subject. `delta` is the probability
        that an interval misses, and the level of verdicts, which allow for the number of methods
        (Holm).
        """
        return content.paired_differences(
            self.results, self[against or self.subject], metric, delta
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        return {
            "subject": self.subject,
            "headline": self.headline,
            "methods": [result.method_dict() for result in self.results],
            "differences": [asdict(found) for found in self.differences()],
            "data": asdict(self[self.subject].data),
            **self._about(),
        }

    def to_html(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write a report as one self-contained HTML file, which is returned."""
        data = content.report_data(self.results, self[self.subject], title=title, **self._about())
        return write_page(data, path)

    def _about(self) -> dict[str, Any]:
        return {
            "skipped": self.skipped,
            "validation": asdict(self.validation),
            "tested_on_validation": self.tested_on_validation,
        }

    def cells(self, mark: str) -> TextCells:
        """A small table, the best of each score in `mark`."""
        return content.method_cells(self.results, mark)

    def records(self) -> list[dict[str, Any]]:
        """Every metric and its interval, the difference to the subject."""
        rows = []
        verdicts = {found.method: asdict(found) for found in self.differences()}
        for result in self.results:
            row = content.method_record(result)
            own = verdicts.get(result.name, {})
            row |= {f"difference_{name}": own.get(name, "") for name in _DIFFERENCE}
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
    data_names: tuple[str | None, str | None] = (None, None),
    class_names: Sequence[str] = (),
    coverage: float | None = None,
    groups: tuple[Any, Any] = (None, None),
    cluster: Any = None,
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
    cluster : array of shape (n,), optional
        Which test rows belong together, as several images of a patient: intervals, differences and
        verdicts allow for it, as in `evaluate`.
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
        if cluster is not None:
            raise TypeError("`cluster` is for one data set; compare each of several by itself.")
        found = _compare_each(validation, test, methods, metric, random_state, progress)
        return rank_methods(found, metric, delta)
    if methods is not None and not isinstance(methods, (str, Mapping)):
        methods = list(methods)
    columns = _order_of_columns(methods, validation)
    parts = zip((validation, test), groups, strict=True)
    known, new = (read_pair(part, columns, own) for part, own in parts)
    names = check_names(class_names, new[0].n_classes)
    entrants, skipped = _choose_entrants(methods, random_state, (known[0], new[0]))
    chosen = _choose_subject(subject, list(entrants))
    data = DataFacts(new[0].n_rows, new[0].n_classes, data_names[1])
    codes = None if cluster is None else as_clusters(cluster, new[0].n_rows)
    setting = Setting(SummaryOptions(delta=delta), data_names[1], groups[1], names, cluster=codes)
    results = []
    for name in track(list(entrants), "Comparing {}", len(entrants), progress):
        method = entrants[name]
        seconds = _fit(method, *known, groups[0])
        sets = None if coverage is None else measure_sets(method, new, coverage, groups[1], codes)
        rows = Predicted.of_logits(method, *new, groups=groups[1])
        one = judge(name, method, rows, setting, data, sets)
        results.append(replace(one, fit_seconds=seconds))
    before = next((one for one in results if one.name == "uncalibrated"), None)
    linked = (one if one is before else replace(one, before=before) for one in results)
    fitted_on = DataFacts(known[0].n_rows, known[0].n_classes, data_names[0])
    same = any(method._are_of_fit(new[0]) for method in entrants.values())
    warn_of_rows_of_fit(same, data_names[1])
    return Comparison(tuple(linked), chosen, fitted_on, same, skipped)


def _order_of_columns(methods: Methods, validation: Any) -> tuple[str, ...]:
    """Names of the columns in the order of the methods that are fitted, or of the validation."""
    given = methods.values() if isinstance(methods, Mapping) else methods or ()
    found = {tuple(getattr(each, "_columns", ())) for each in given} - {()}
    if len(found) > 1:
        raise ValueError(
            "`methods` that are fitted must have the same columns in the same order; got "
            f"{', '.join(map(str, sorted(found)))}. Compare them one by one."
        )
    frame = validation[0] if isinstance(validation, (tuple, list)) and validation else None
    return next(iter(found), column_names(frame))


def _compare_each(
    validation: Any, test: Any, methods: Methods, metric: str, seed: int, progress: bool | None
) -> dict[str, Comparison]:
    """A comparison of each data set, by its name."""
    if not isinstance(test, Mapping) or set(validation) != set(test) or not validation:
        raise ValueError(
            "`validation` and `test` must have the same data sets, at least one; got "
            f"{list(validation)} and {list(test) if isinstance(test, Mapping) else type(test)}."
        )
    lower = [name for name, m in METRICS.items() if m.better == "lower"]
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


def _fit(calibrator: Any, logits: Logits, labels: IntArray, groups: Any) -> float | None:
    """Fit, unless it is; the seconds it took."""
    if hasattr(calibrator, "rule_"):
        return None
    start = time.perf_counter()
    learns = groups is not None and isinstance(calibrator, AutoCalibrator)
    calibrator.fit(logits, labels, **({"groups": groups} if learns else {}))
    return time.perf_counter() - start


def _choose_entrants(
    methods: Methods, random_state: int, data: tuple[Logits, ...]
) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """Calibrators by name, and the names of those that the data do not allow, with the reason."""
    if isinstance(methods, str):
        raise TypeError(
            f"`methods` must be a list or dict of methods; got {methods!r}. Use a list."
        )
    given = [*method_names(2), "auto"] if methods is None else methods
    named = given.items() if isinstance(given, Mapping) else ((None, each) for each in given)
    found: dict[str, Calibrator] = {}
    skipped: dict[str, str] = {}
    for own_name, each in named:
        calibrator = _as_calibrator(each, random_state)
        changed = isinstance(each, Calibrator) and "()" not in str(each)
        default = each if changed else calibrator.name
        name = str(default if own_name is None else own_name)
        if name in found:
            raise ValueError(
                f"`methods` must have different names; got {name!r} twice. Name them in a dict, "
                f"such as {{'first': {calibrator}, ...}}."
            )
        reason = _obstacle(calibrator, data)
        if reason is None:
            found[name] = calibrator
        else:
            skipped[name] = reason
    if not found:
        raise ValueError(f"`methods` must have one that the data allow; got {skipped or 'none'}.")
    return found, skipped


def _as_calibrator(given: Any, random_state: int) -> Calibrator:
    """A new estimator, or the given calibrator if it is fitted."""
    if isinstance(given, str):
        made = make(given)
        seeded = "random_state" in made.get_params(deep=False)
        return made.set_params(random_state=random_state) if seeded else made
    if isinstance(given, type) and issubclass(given, Calibrator):
        return given()
    if not isinstance(given, Calibrator):
        raise TypeError(
            f"`methods` must hold names or calibrators; got {type(given).__name__}. Use a name of "
            "`hokical.calibrators.method_names()`; for the probabilities of other models, "
            "`hokical.metrics.summary`."
        )
    if hasattr(given, "rule_"):
        return given
    fresh: Calibrator = clone(given)
    return fresh


def _obstacle(calibrator: Any, data: tuple[Logits, ...]) -> str | None:
    """Why the data do not allow a method, or None."""
    check_plain_logits(calibrator.method, "methods")
    n_classes = data[0].n_classes
    if n_classes > 2 and calibrator.method.binary_only:
        return f"for two classes, and there are {n_classes}"
    if any(isinstance(logits, TopK) for logits in data) and not calibrator.method.accepts_top_k:
        return "needs the logits of all classes"
    return None
