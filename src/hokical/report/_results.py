"""Methods in a comparison: who takes part, what each gave, where the numbers come from."""

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.metadata import version
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.blocks import row_slices
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.types import BoolArray, FloatArray, IntArray
from hokical._core.version import VERSION
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import make_seeded, method_names
from hokical.calibrators._checks import check_plain_logits
from hokical.calibrators._estimator import clone
from hokical.metrics import Summary
from hokical.metrics._by_group import GroupTable
from hokical.metrics._sets import SetSummary
from hokical.report._foreign import ForeignMethod

#: What a calibrator is given.
Given = Literal["logits", "confidences", "scores"]
Methods = Iterable[Any] | Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One method on the test set: confidence and correctness (n,), and its scores.

    `summary` has all metrics with bootstrap intervals, the bounds on the true calibration error
    and the table of classes. `row_scores` (n,) are the scores whose mean is a metric. `fit_seconds`
    is None if the calibrator came fitted.
    """

    name: str
    calibrator: Any
    fit_seconds: float | None
    confidence: FloatArray
    correct: BoolArray
    notes: tuple[str, ...]
    summary: Summary
    row_scores: dict[str, FloatArray] = field(default_factory=dict)
    sets: SetSummary | None = None
    groups: GroupTable | None = None

    @property
    def title(self) -> str:
        """The method in full words; "" if it has none."""
        return method_title(self.calibrator)

    @property
    def label(self) -> str:
        """The method in full words, its name in brackets."""
        known = not self.title or self.title in self.name
        return self.name if known else f"{self.title} ({self.name})"

    @property
    def may_change_labels(self) -> bool:
        """Whether the method can make another class the most likely one."""
        rule = getattr(self.calibrator, "rule_", None)
        return not getattr(rule, "preserves_labels", True)

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
            "title": self.title,
            "fit_seconds": self.fit_seconds,
            "converged": self.converged,
            "notes": list(self.notes),
            **self.summary.to_dict(),
            **({} if self.sets is None else {"sets": self.sets.to_dict()}),
            **({} if self.groups is None else {"groups": self.groups.to_dict()}),
        }


@dataclass(frozen=True)
class DataFacts:
    """The data of a comparison: their size, type and accuracy."""

    n_rows: int
    n_classes: int
    dtype: str
    accuracy: float
    name: str | None = None
    what: Given = "logits"

    @classmethod
    def collect(cls, logits: Logits, labels: IntArray, name: str | None) -> Self:
        """The facts of logits and labels."""
        accuracy = float((to_host(logits.labels) == labels).mean())
        found = cls.describe(logits.values, accuracy, name)
        return replace(found, n_classes=logits.n_classes)

    @classmethod
    def describe(
        cls, values: Any, accuracy: float, name: str | None, what: Given = "logits"
    ) -> Self:
        """The facts of what is given, (n, columns)."""
        n_rows, n_columns = values.shape
        return cls(n_rows, n_columns, str(values.dtype), accuracy, name, what)


@dataclass(frozen=True)
class Provenance:
    """The origin of the numbers: data, versions, seed, date.

    `tested_on_validation` is whether both sets are the same examples, which makes everything look
    too good.
    """

    validation: DataFacts | None
    test: DataFacts
    seed: int
    versions: dict[str, str]
    machine: str
    date: str = ""
    tested_on_validation: bool = False

    @classmethod
    def collect(cls, validation: DataFacts | None, test: DataFacts, seed: int) -> Self:
        """That of numbers computed now."""
        versions = {"python": platform.python_version(), "hokical": VERSION}
        versions |= {name: version(name) for name in ("numpy", "scipy")}
        now = datetime.now().astimezone().isoformat(" ", "minutes")
        return cls(validation, test, seed, versions, platform.machine(), now)


def are_same(first: tuple[Logits, IntArray], second: tuple[Logits, IntArray]) -> bool:
    """Whether two sets of logits and labels are the same examples in the same order."""
    (logits, labels), (others, truth) = first, second
    if logits.values.shape != others.values.shape or not np.array_equal(labels, truth):
        return False
    return all(
        np.array_equal(to_host(logits.values[rows]), to_host(others.values[rows]))
        for rows in row_slices(*logits.values.shape)
    )


def choose_entrants(
    methods: Methods, random_state: int, data: tuple[Logits, ...]
) -> tuple[dict[str, Calibrator], dict[str, str]]:
    """Calibrators by name, and the names of those that the data do not allow, with the reason."""
    found: dict[str, Calibrator] = {}
    skipped: dict[str, str] = {}
    for name, calibrator in _name_methods(methods, random_state):
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


def is_fitted(calibrator: Calibrator) -> bool:
    return getattr(calibrator, "rule_", None) is not None


def method_title(calibrator: Any) -> str:
    """The method in full words, without what its title has in brackets; "" if it has none."""
    return "" if calibrator is None else str(calibrator.method.title).split(" (")[0]


def _name_methods(methods: Methods, random_state: int) -> Iterable[tuple[str, Calibrator]]:
    if isinstance(methods, str):
        raise TypeError(
            f"`methods` must be a list or dict of methods; got {methods!r}. Use a list."
        )
    if isinstance(methods, Mapping):
        yield from (
            (str(name), _as_calibrator(given, random_state)) for name, given in methods.items()
        )
        return
    for given in [*method_names(2), "auto"] if methods is None else methods:
        calibrator = _as_calibrator(given, random_state)
        changed = isinstance(given, Calibrator) and "()" not in str(given)
        own = calibrator.name
        if isinstance(calibrator, ForeignMethod):
            own = type(calibrator.model).__name__
        yield str(given) if changed else own, calibrator


def _as_calibrator(given: Any, random_state: int) -> Calibrator:
    """A new estimator, or the given calibrator if it is fitted."""
    if isinstance(given, str):
        return make_seeded(given, random_state)
    if isinstance(given, type) and issubclass(given, Calibrator):
        return given()
    if not isinstance(given, Calibrator):
        if not all(callable(getattr(given, name, None)) for name in ("fit", "predict_proba")):
            raise TypeError(
                "`methods` must hold names, calibrators, or objects with `fit` and "
                f"`predict_proba`; got {type(given).__name__}. Use a name from "
                "`hokical.calibrators.method_names()`."
            )
        return ForeignMethod(given() if isinstance(given, type) else given)
    if is_fitted(given):
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
