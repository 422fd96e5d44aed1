"""The base of every calibrator: parameters, the fitted rule with its report, and files.

`MethodInfo` is what is known of a method before a fit, and `Fit` what its fit gives.
Functions check what a calibrator is given: logits, and the contents of files. Actions
of least expected cost follow from the probabilities of every calibrator.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from hokical._core import reading, runtime
from hokical._core.arrays import (
    NUMPY,
    AnyArray,
    Array,
    FloatArray,
    IntArray,
    backend_of,
    to_host,
)
from hokical._core.groups import GroupCoding, count_rows, read_columns
from hokical._core.logits import Logits, TopK
from hokical._core.reading import Rows
from hokical._core.storage import CalibratorFileError, write_document
from hokical._core.version import VERSION
from hokical._fitting.examples import Examples, probability_scale
from hokical.guarantees import calibration_data, scores
from hokical.guarantees.calibration_data import (
    CalibrationData,
    GroupScores,
    Reused,
    row_draws,
)
from hokical.rules.base import (
    Rule,
    labels_and_confidence,
    predict_blocks,
    predict_on_host,
)


@dataclass(frozen=True)
class MethodInfo:
    """A method: the kind of rule that its fit makes, its title, its reference and its
    cost.

    Parameters
    ----------
    rule : type of Rule
        Its name and its capabilities are those of the method.
    title, reference, cost : str
        The method's name in full words, where it was published, and what a fit costs.
    fits_floor : bool
        Whether a floor for probabilities of 0 is fitted first, see
        `hokical.from_probabilities`.
    fits_top_k : bool
        Whether a fit accepts a `TopK` although the rule may need every class.
    learns_groups : bool
        Whether a fit makes use of groups.
    rows_per_class : int
        How many rows for each class a sample should have, even beyond 4 million logits.
    """

    rule: type[Any]
    title: str = ""
    reference: str = ""
    cost: str = ""
    fits_floor: bool = True
    fits_top_k: bool = False
    learns_groups: bool = False
    rows_per_class: int = 0

    #: The method's name in `make`, in files and on the command line.
    name: str = field(init=False)
    #: Whether the predicted label can differ from the classifier's own.
    changes_labels: bool = field(init=False)
    #: Whether the best logits of each row are enough.
    accepts_top_k: bool = field(init=False)
    #: Whether it takes two classes and no more.
    binary_only: bool = field(init=False)
    #: `Logits`, or the subclass that it needs in their place.
    logits_kind: type[Logits] = field(init=False)

    def __post_init__(self) -> None:
        def says(fact: str) -> bool:
            return getattr(self.rule, fact, None) is True

        vars(self).update(
            name=str(self.rule.name),
            changes_labels=not says("preserves_labels"),
            accepts_top_k=self.fits_top_k or says("accepts_top_k"),
            binary_only=says("binary_only"),
            logits_kind=getattr(self.rule, "logits_kind", Logits),
        )


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit: the rule, and a report of numbers that are stored with it.

    Fields of the rule and entries of the report are attributes of the fitted
    calibrator, with a trailing underscore.
    """

    rule: Rule
    report: dict[str, Any] = field(default_factory=dict)


def acceptable(method: Any, logits: Logits) -> Logits:
    """Return the logits if the method (a rule or a `MethodInfo`) accepts them, else
    raise.
    """
    needed = getattr(method, "needed_groups", None)
    if type(logits) is Logits and needed is not None and logits.codes is None:
        rule = f"`groups` must be given, as in the fit: {', '.join(needed.columns)}"
        raise ValueError(
            f"{rule}. Pass None where one is not known, to predict for all groups."
        )
    if type(logits) not in (method.logits_kind, TopK):
        rule = f"`logits` must be {_in_words(method.logits_kind)} for {method.name!r}"
        raise TypeError(f"{rule}; got {_in_words(type(logits))}.")
    if isinstance(logits, TopK) and not method.accepts_top_k:
        logits.with_every_class(method.name, "Use auto, adaptive, temps, ets or hoki")
    return logits


def check_plain_logits(method: Any, argument: str) -> None:
    """Raise if a method (a rule or a `MethodInfo`) needs more than logits and
    groups.
    """
    if method.logits_kind is not Logits:
        rule = (
            f"`{argument}` cannot be {method.name!r} here, where there are logits "
            "alone: it"
        )
        kind = _in_words(method.logits_kind)
        raise ValueError(
            f"{rule} needs {kind}. Call its `fit` and `predict` with that."
        )


def refuse_groups(rule: Rule) -> None:
    """Raise if a fitted rule needs groups, where nobody can pass them."""
    if rule.needed_groups is not None:
        raise ValueError(
            "`calibrator` must not have learned from groups here, where there are "
            "logits alone; got one that needs "
            f"{', '.join(rule.needed_groups.columns)}. Call its `predict(logits, "
            "groups=...)`, or fit one without groups."
        )


def _in_words(kind: type[Logits]) -> str:
    return (
        "logits (n, classes)"
        if kind is Logits
        else f"a `{kind.__module__}.{kind.__name__}`"
    )


class Estimator:
    """An estimator as scikit-learn knows it, without importing it.

    `__init__` names all parameters and keeps each in its attribute: `clone`, pipelines,
    searches and joblib need little else. Tags come from scikit-learn's base class when
    it asks for them.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; `deep` is for scikit-learn, and changes nothing."""
        return {name: getattr(self, name) for name in _defaults(type(self))}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters.

        >>> from hokical.calibrators import Hoki
        >>> Hoki().set_params(n_bins=10)
        Hoki(n_bins=10)
        """
        known = list(_defaults(type(self)))
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {known}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The parameters that are not the default ones, as in scikit-learn."""
        defaults = _defaults(type(self))
        shown = ((name, repr(value)) for name, value in self.get_params().items())
        changed = [
            f"{name}={text}" for name, text in shown if text != repr(defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


class StoredEstimator(Estimator, ABC):
    """An estimator whose fit is a rule, a report, and data kept for later
    guarantees.
    """

    #: What is known of the method before a fit.
    method: ClassVar[MethodInfo]
    #: The method's name.
    name: ClassVar[str]
    #: What the methods call the scores and their labels.
    _row_names: ClassVar[tuple[str, str]] = ("logits", "labels")
    #: The fitted rule.
    rule_: Any
    #: Plain values from the file that it was loaded from, or about the table that it
    #: was fitted on.
    metadata_: dict[str, Any]
    #: Names of the columns of the scores in the fit, if they were a frame's.
    _columns: tuple[str, ...] = ()
    #: The version that wrote the file, or this one.
    _library_version: str = VERSION
    #: What the fit reports besides the rule; its entries are attributes with an
    #: underscore.
    _report: dict[str, Any]
    #: Mean log loss (nats) on the calibration examples, and how a search ended, where
    #: there is one.
    log_loss_: float
    n_iter_: int
    converged_: bool
    message_: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "method" in vars(cls):
            cls.name = cls.method.name

    def save(
        self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None
    ) -> None:
        """Write the fitted calibrator to a JSON file, atomically; `hokical.load` reads
        it.

        `metadata` holds plain values to store in the file for the caller's own use.
        """
        self._check_fitted()
        body = {
            "library_version": VERSION,
            "method": self.name,
            "parameters": self._storable_parameters(),
            "rule": self.rule_,
            "report": self._report,
            "beside": self.metadata_ if metadata is None else metadata,
            "columns": list(self._columns),
            **self._stored_data(),
        }
        write_document(path, body)

    def _storable_parameters(self) -> dict[str, Any]:
        """The parameters, without what is code: the state of a generator."""
        parameters = self.get_params()
        if not isinstance(
            parameters.get("random_state"), (int, np.integer, type(None))
        ):
            parameters["random_state"] = None
        return parameters

    @abstractmethod
    def _stored_data(self) -> dict[str, Any]:
        """What a file holds besides parameters, rule and report."""

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        """The calibrator of a file's contents, fitted as the one that was saved.

        Parameters that the method had in an earlier version are left out.
        """
        for name in ("parameters", "report", "beside"):
            check_stored(document, name, dict)
        known = inspect.signature(cls).parameters
        given = document["parameters"]
        found = cls(**{name: value for name, value in given.items() if name in known})
        found._restore(document)
        found.metadata_ = document["beside"]
        found._columns = tuple(map(str, document.get("columns", ())))
        found._library_version = str(document.get("library_version", "unknown"))
        return found

    @abstractmethod
    def _restore(self, document: dict[str, Any]) -> None:
        """Take up a file's rule, report and data."""

    def group_codes(self, groups: Any) -> IntArray:
        """Integers (n, columns), which torch modules and ONNX graphs take in place of
        groups.

        The last code of each column stands for a group that is missing or was not in
        the fit.
        """
        self._check_fitted()
        coding: GroupCoding | None = getattr(self.rule_, "needed_groups", None)
        if coding is None:
            raise ValueError(
                "`groups` have no codes: this calibrator did not learn from groups."
            )
        return coding.codes(groups, count_rows(groups))

    def _pair(
        self, scores: Any, labels: Any, sample_weight: Any, groups: Any, **options: Any
    ) -> Rows:
        """Rows as they are given, in one order; of a table, if `labels` is the name of
        a column.

        Every method that takes labelled rows reads them here. `options` are those of
        `hokical.io.examples.read_table`.
        """
        if isinstance(labels, str) and not isinstance(scores, str):
            from hokical.io.examples import read_table

            kind: Any = "confidence" if self.name == "confidence" else None
            return read_table(
                scores, labels, sample_weight, groups, kind=kind, **options
            )
        return reading.pair_rows(scores, labels, sample_weight, groups, self._row_names)

    @staticmethod
    def _checked(given: Rows, scores: Any, labels: Any, n_rows: int) -> Rows:
        """Rows with checked scores and labels, and one weight and group for each."""
        weights = reading.as_weights(given.weights, n_rows)
        if given.groups is not None:
            read_columns(given.groups, n_rows)
        return given._replace(scores=scores, labels=labels, weights=weights)

    @abstractmethod
    def _read(
        self, x: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Rows:
        """Checked rows: what is calibrated, its labels, and the rest."""

    @abstractmethod
    def _are_of_fit(self, rows: Rows) -> bool:
        """Whether checked rows are among those that it learned from."""

    def _read_held_out(self, reused: Reused, *given: Any, cluster: Any = None) -> Rows:
        """Checked rows that are not of the fit; with `cluster` (n,) one of each."""
        self._check_fitted()
        rows = self._read(*given)
        if cluster is not None:
            rows = calibration_data.one_of_each(rows, cluster)
        calibration_data.refuse_rows_of_fit(
            self._are_of_fit(rows), self._row_names[0], reused
        )
        return rows

    def _check_fitted(self) -> None:
        if "rule_" not in self.__dict__:
            raise runtime.sklearn_class(runtime.NotFittedError)(
                f"This {type(self).__name__} instance is not fitted yet. Call `fit` "
                "first."
            )


def check_stored(document: dict[str, Any], name: str, kind: Any) -> Any:
    """The value of this name in a file's contents, if it is of this kind."""
    value = document.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        method = document.get("method")
        got = type(value).__name__
        raise CalibratorFileError(
            f"the file of this {method} has no usable `{name}`; got {got}."
        )
    return value


def clone(estimator: Any) -> Any:
    """An unfitted estimator with the same parameters, as scikit-learn's `clone` gives.

    >>> from hokical.calibrators import Hoki
    >>> clone(Hoki(n_bins=10))
    Hoki(n_bins=10)
    """
    if not isinstance(estimator, Estimator):
        return deepcopy(estimator)
    return type(estimator)(**{k: clone(v) for k, v in estimator.get_params().items()})


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """The parameters of `__init__`, sorted by name, with their defaults."""
    parameters = inspect.signature(kind).parameters
    return {name: parameters[name].default for name in sorted(parameters)}


#: Rows from which on they are checked for looking like probabilities: fewer can sum to
#: 1 by coincidence.
_FEWEST_TO_SUM = 4
#: Calibration examples whose calibrated confidence is counted.
_MOST_COUNTED = 5000
#: Probabilities that a mean over calibration examples is taken of, at most.
_MOST_PROBABILITIES = 1 << 20


def warn_of_probabilities(data: Logits, support: scores.Support | None) -> None:
    """Warn if rows look like probabilities, and those of the fit, by its support,
    did not.
    """
    if support is None or type(data) is not Logits or not data.is_numpy:
        return
    highest = data.top.max() if data.n_rows >= _FEWEST_TO_SUM else np.inf
    if highest > 100.0 or data.top.min() <= 0.0:
        return
    scale = probability_scale(data, data.top)
    before = support.top[1]  # of logarithms of probabilities at most 0
    if (scale == 1.0 and not 0.0 < before <= 1.0) or (
        scale == 100.0 and before < highest
    ):
        kind = "probabilities" if scale == 1.0 else "percentages"
        runtime.warn_user(
            f"`logits` look like {kind}: all rows sum to {scale:g}, and those of the "
            "fit did not. Pass logits, as in the fit."
        )


def count_examples(
    kept: CalibrationData, rule: Rule, block: Examples
) -> CalibrationData:
    """With counts of calibration examples by confidence, and the frequencies that it
    implies.
    """
    n = block.n_rows
    needed = rule.needed_groups
    if (
        needed is not None and block.coding is not None
    ):  # of all columns, those that it uses
        used = [block.coding.columns.index(name) for name in needed.columns]
        codes = np.asarray(block.logits.codes)[:, used]
        block = replace(block, logits=replace(block.logits, codes=codes))
    rows = np.flatnonzero(row_draws(0, n) * n < _MOST_COUNTED)
    data = block.logits.take(rows) if rows.size < n else block.logits
    if kept.fit_scores is not None:
        labels, confidence = labels_and_confidence(rule, data)
        level = scores.score_levels(
            scores.confidence_log_odds(confidence.astype(np.float64))
        )
        counted = block.counting[rows].astype(np.float64)
        table = scores.ScoreTable.from_examples(
            level, labels != block.labels[rows], counted
        )
        kept = replace(kept, fit_confidences=table)
    most = max(_MOST_PROBABILITIES // data.n_classes, 1)
    weights = block.counts[rows][:most]
    if isinstance(data, TopK) or kept.class_scores is None or not weights.any():
        return kept
    some = data.take(slice(0, min(most, data.n_rows)))
    with some.backend.in_float64():  # and on the device of the logits
        proba = predict_blocks(rule, "proba", some)
        known = kept.class_scores.with_implied(
            proba, block.labels[rows][:most], weights, some
        )
    by_group = needed is not None and known.cells.size
    found = _count_groups(rule, block, most) if by_group else kept.group_scores
    return replace(kept, class_scores=known, group_scores=found)


def _count_groups(rule: Rule, block: Examples, most: int) -> GroupScores:
    """The same for each group, of a sample of about `most` rows."""
    rows = np.flatnonzero(row_draws(0, block.n_rows) * block.n_rows < most)
    data = block.logits.take(rows)
    proba = predict_on_host(rule, "proba", data).astype(np.float64)
    return GroupScores.from_rows(data, proba, block.labels[rows], block.counts[rows])


@dataclass(frozen=True, eq=False)
class Decisions:
    """`actions` (n,), and the `costs` (n,) that are expected of them.

    Actions are numbers; with `names`, where the costs had some, `named` (n,) are their
    names.
    """

    actions: Array
    costs: Array
    names: tuple[str, ...] = ()

    @property
    def named(self) -> AnyArray:
        """The names of the actions, or their numbers where they have none."""
        actions = to_host(self.actions)
        return np.array(self.names)[actions] if self.names else actions

    def __str__(self) -> str:
        kinds, counts = np.unique(self.named, return_counts=True)
        listed = f"{kinds.size} different actions"
        if self.names:
            shares = zip(kinds.tolist(), counts / counts.sum(), strict=True)
            listed = ", ".join(f"{name} {share:.1%}" for name, share in shares)
        cost = float(self.costs.mean())
        return f"{counts.sum():,} rows, {listed}; mean expected cost {cost:.4g}."


def decide(proba: Array, costs: Any, n_classes: int) -> Decisions:
    """The action of least expected cost under probabilities (n, classes); the first
    of equals.
    """
    table, names = cost_table(costs, n_classes)
    backend = backend_of(proba) or NUMPY
    xp = backend.namespace(proba)
    expected = proba @ xp.astype(backend.from_host(table, proba), proba.dtype)
    return Decisions(xp.argmin(expected, axis=1), xp.min(expected, axis=1), names)


def cost_table(costs: Any, n_classes: int) -> tuple[FloatArray, tuple[str, ...]]:
    """Costs (classes, actions), of two classes also from those of its two errors; and
    names.

    From a mapping of actions to costs (classes,), or to one number for all classes.
    """
    names: tuple[str, ...] = ()
    if isinstance(costs, Mapping) and {*costs} == {"fp", "fn"} and n_classes == 2:
        costs = (costs["fp"], costs["fn"])
    elif isinstance(costs, Mapping):
        names = tuple(map(str, costs))
        columns = [reading.to_floats(cost, "costs") for cost in costs.values()]
        shapes = {column.shape for column in columns}
        if (n_classes,) not in shapes or not shapes <= {(), (n_classes,)}:
            raise ValueError(
                "`costs` by name must be those of the errors of two classes, {'fp': "
                f"1, 'fn': 10}}, or of each action: {n_classes} numbers, by true "
                "class, or one number where it does not matter, but not for all; got "
                f"{dict(costs)!r}."
            )
        costs = np.stack(
            [np.broadcast_to(column, n_classes) for column in columns], axis=1
        )
    table = reading.to_floats(costs, "costs")
    reading.refuse(~np.isfinite(table), table, "`costs` must be finite")
    if table.shape == (2,) and n_classes == 2:
        table = np.array([[0.0, table[0]], [table[1], 0.0]])
    if table.ndim != 2 or table.shape[0] != n_classes:
        raise ValueError(
            f"`costs` must be finite numbers of shape ({n_classes}, actions), a row "
            f"for each true class; got shape {table.shape}. Of two classes "
            "(false_positive, false_negative) is enough, or {'fp': 1, 'fn': 10}."
        )
    return table, names
