"""The base of all methods: a scikit-learn estimator whose `fit` makes a rule.

A method implements `_fit`, which learns the rule from rows in memory: all examples, or a sample of
them. The public interface is here and in `Calibrator`: validation, prediction, guarantees, saving.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from hokical._core.arrays import backend_of, float64_scope
from hokical._core.conversion import as_two_columns
from hokical._core.labels import as_labels, as_weights
from hokical._core.logits import Logits, as_logits
from hokical._core.reading import column_names
from hokical._core.warn import ConvergenceWarning, NotFittedError, sklearn_class, warn_user
from hokical._fitting.example_stats import ExampleStats, FitNotes
from hokical._fitting.examples import Examples, InMemory, Partition
from hokical._fitting.fit_warnings import warn_about_examples
from hokical._fitting.floor import choose_floor, with_floor
from hokical._fitting.row_sample import read_sample
from hokical.calibrators._calibrator import STORED, Calibrator
from hokical.calibrators._estimator import Estimator
from hokical.calibrators._predictions import acceptable
from hokical.guarantees._row_sketch import row_draws
from hokical.guarantees._score_table import NeighbourTable, ScoreTable, can_be_counts
from hokical.guarantees._scores import confidence_log_odds, score_levels
from hokical.rules._base import Rule
from hokical.rules._predicting import Output, predict_blocks
from hokical.rules._wrapped import FlooredRule

#: Calibration examples whose calibrated confidence is counted.
_MOST_COUNTED = 5000


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit: the rule, and numbers about the fit that are stored with it.

    Fields of the rule and entries of the `report` become attributes of the estimator with a
    trailing underscore; so do those of `unsaved`, which are not stored.
    """

    rule: Rule
    report: dict[str, Any] = field(default_factory=dict)
    unsaved: dict[str, Any] = field(default_factory=dict)
    neighbours: NeighbourTable | None = None
    confidences: ScoreTable | None = None

    def attributes(self) -> dict[str, Any]:
        known = self.rule.own_fields() | self.report | self.unsaved
        return {f"{name}_": value for name, value in known.items()}


class BaseCalibrator(Calibrator, Estimator):
    """Base of all methods. A subclass has a `rule_kind` and a `_fit`."""

    #: The rule that `_fit` makes; the method has its name and capabilities.
    rule_kind: ClassVar[type[Rule]]
    #: The method's name in full words, where it was published, and what a fit costs.
    title: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    cost: ClassVar[str] = ""

    name: ClassVar[str]  # type: ignore[misc]
    preserves_labels: ClassVar[bool]
    accepts_top_k: ClassVar[bool]
    logits_kind: ClassVar[type[Logits]]
    binary_only: ClassVar[bool] = False
    #: Whether a floor for probabilities of 0 is fitted first, see `hokical.from_probabilities`.
    fits_floor: ClassVar[bool] = True
    #: Whether `_fit` makes use of groups, see `GroupedLogits`.
    learns_groups: ClassVar[bool] = False

    if TYPE_CHECKING:  # what a fit learned, see `Fit.attributes`

        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "rule_kind" in cls.__dict__:
            for name in ("name", "preserves_labels", "accepts_top_k", "logits_kind", "binary_only"):
                if name not in cls.__dict__:
                    setattr(cls, name, getattr(cls.rule_kind, name))

    def fit(self, logits: Any, labels: Any = None, sample_weight: Any = None) -> Self:
        """Learn from validation logits (n, classes) and labels (n,), which are column indices.

        `logits` are the classifier's scores on examples it was not trained on, an array of any
        library, which stays on its device, or a `TopK`; -inf marks an impossible class. For files,
        chunks and iterators use `hokical.streams.fit`. `sample_weight` (n,) says how often each
        example counts.

        Of more than 4 million logits, a uniform sample of rows is used (`Hoki` uses all rows): at
        most 4 million logits and 200,000 rows, chosen by their row numbers, so that the result is
        the same in every run and for every container. All rows are checked, and counted for
        guarantees.
        """
        return self._learn_from(self.fit_partition, logits, labels, sample_weight)

    def _learn_from(
        self,
        learn: Callable[[Partition], Self],
        logits: Any,
        labels: Any,
        sample_weight: Any,
        fitted_by: Any = None,
        groups: Any = None,
    ) -> Self:
        """Call `learn` with the examples as a partition; `fitted_by` as in `as_logits`."""
        backend = backend_of(logits)
        lazy = None if backend is None else backend.partition(logits, labels, sample_weight)
        with float64_scope(logits):
            examples = lazy or InMemory(self._check_block(logits, labels, sample_weight, fitted_by))
            examples.groups = groups
            self._columns = column_names(logits)
            return learn(examples)

    def fit_partition(self, examples: Partition) -> Self:
        """Learn from examples that need not be in memory; `hokical.streams.fit` makes them."""
        self._check_parameters()
        if self.binary_only and examples.n_classes != 2:
            raise ValueError(
                f"`{self.name}` takes two classes; got {examples.n_classes}. For more use "
                "`structured` or `auto`."
            )
        if examples.groups is not None and not self.learns_groups:
            raise ValueError(
                f"`groups` must be None for `{self.name}`; got some. Only the default learns from "
                "groups: use `auto`, or leave them out."
            )
        self.__dict__.pop("rule_", None)  # an interrupted fit leaves no half-fitted state
        found, stats = self._fit_all(examples)
        self._keep(found, examples.n_classes, stats.notes)
        warn_about_examples(self.name, stats, found.rule)
        return self

    def _fit_all(self, examples: Partition) -> tuple[Fit, ExampleStats]:
        """Read all examples once, and fit on a sample of them, zeros raised to a floor."""
        sample, stats = read_sample(examples)
        if self.fits_floor and stats.n_with_zeros:
            floor = choose_floor(sample.learnable)
            found = self._fit(with_floor(sample, floor))
            if floor > 0.0:
                found = replace(found, rule=FlooredRule(floor, found.rule))
        else:
            found = self._fit(sample)
        return replace(found, confidences=_count_confidences(found.rule, sample)), stats

    @property
    def has_seed(self) -> bool:
        """Whether `random_state` can change what a fit finds."""
        return "random_state" in self.get_params(deep=False)

    def _check_parameters(self) -> None:
        """Raise ValueError for an invalid parameter."""

    def _fit(self, examples: Examples) -> Fit:
        """Learn the rule from rows in memory."""
        raise TypeError(f"{type(self).__name__} does not implement `_fit`.")

    def _convergence_report(self, n_iter: int, converged: bool, message: str) -> dict[str, Any]:
        """Report entries on how a fit ended, with a warning if it did not converge."""
        if not converged:
            warn_user(f"{type(self).__name__} did not converge: {message}", ConvergenceWarning)
        return {"n_iter": n_iter, "converged": converged, "message": message}

    def _keep(self, found: Fit, n_classes: int, noted: FitNotes) -> None:
        """Store the result of a fit; what `certify` counted for an earlier fit is dropped."""
        for name, value in found.attributes().items():
            setattr(self, name, value)
        self._report = found.report
        self.neighbours_ = found.neighbours
        self.fit_scores_, self.support_ = noted.scores, noted.support
        self.fit_confidences_ = None if noted.scores is None else found.confidences
        self.fit_conformity_, self.fit_rows_ = noted.sample, noted.rows
        self.class_scores_ = noted.classes
        self.held_out_scores_ = self.held_out_conformity_ = None
        self.n_classes_ = self.n_features_in_ = n_classes
        self.classes_ = np.arange(n_classes)
        self.rule_ = found.rule

    def _check_block(
        self, logits: Any, labels: Any, sample_weight: Any, fitted_by: Any = None
    ) -> Examples:
        data = self._acceptable(logits, fitted_by)  # first: its errors point to `hokical.streams`
        if labels is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give "
                "`labels`, the true class of each row."
            )
        truth = as_labels(labels, data.n_rows, data.n_classes)
        return Examples(data, truth, as_weights(sample_weight, data.n_rows))

    def _acceptable(self, logits: Any, fitted_by: Any = None) -> Logits:
        """Checked logits without gradients, if the method accepts them."""
        backend = backend_of(logits)
        given = logits if backend is None else backend.without_gradient(logits)
        if self.binary_only:
            given = as_two_columns(given, fitting=True)
        data = as_logits(given, fitted_by=fitted_by)
        return acceptable(self, data.without_gradient() if data is given else data)

    def check_fitted(self) -> None:
        if "rule_" not in self.__dict__:
            raise sklearn_class(NotFittedError)(
                f"This {type(self).__name__} instance is not fitted yet. Call `fit` first."
            )

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters, as in scikit-learn, and once fitted what was learned."""
        text = super().__repr__(N_CHAR_MAX)
        return f"{text}: {self._fit_in_words()}" if hasattr(self, "rule_") else text

    def _document(self) -> dict[str, Any]:
        parameters = self.get_params(deep=False)
        return {
            **super()._document(),
            "parameters": self._storable_parameters(parameters),
            "report": self._report,
        }

    def _storable_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters without a random generator, whose state is not stored."""
        seed = parameters.get("random_state")
        if not isinstance(seed, (int, np.integer, type(None))):
            return parameters | {"random_state": None}
        return parameters

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The estimator of a file's checked contents."""
        estimator = cls(**document["parameters"])
        rule: Rule = document["rule"]
        found = Fit(rule.core, document["report"], neighbours=document["neighbours"])
        estimator._keep(
            replace(estimator._complete(found), rule=rule), document["n_classes"], FitNotes()
        )
        for name in STORED[2:]:
            setattr(estimator, f"{name}_", document[name])
        return estimator

    def _complete(self, found: Fit) -> Fit:
        """Add what is not stored to a stored fit."""
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _count_confidences(rule: Rule, block: Examples) -> ScoreTable | None:
    """Right and wrong calibration examples by calibrated confidence, for monitors of the fit."""
    if not can_be_counts(block.weights):
        return None
    n = block.n_rows
    rows = np.flatnonzero(row_draws(0, n) * n < _MOST_COUNTED)
    data = block.logits.take(rows) if rows.size < n else block.logits
    asked: tuple[Output, ...] = ("confidence", "labels")
    with data.backend.in_float64():
        confidence, labels = (data.to_host(predict_blocks(rule, what, data)) for what in asked)
    level = score_levels(confidence_log_odds(confidence.astype(np.float64)))
    return ScoreTable.from_examples(level, labels != block.labels[rows], block.counts[rows])
