"""The base of every calibrator: parameters, the fitted rule with its report, and files.

`MethodInfo` is what is known of a method before a fit, and `Fit` what its fit gives. Functions
check what a calibrator is given: logits, frames, names of classes, the contents of files.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np

from hokical._core.arrays import FloatArray, IntArray
from hokical._core.conversion import from_probabilities, probability_scale
from hokical._core.groups import count_rows, read_columns
from hokical._core.logits import Logits, as_logits
from hokical._core.messages import (
    ConvergenceWarning,
    FitDataWarning,
    NotFittedError,
    sklearn_class,
    warn_user,
)
from hokical._core.reading import (
    Rows,
    as_labels,
    as_weights,
    class_of_column,
    column_names,
    pair_rows,
    to_numpy,
)
from hokical._core.storage import CalibratorFileError, write_document
from hokical._core.topk import TopK
from hokical._core.version import VERSION
from hokical._fitting.examples import Examples, effective_size
from hokical.guarantees.calibration_data import CalibrationData, RowSketch, row_draws
from hokical.guarantees.class_scores import GroupScores, class_means
from hokical.guarantees.scores import LEVELS, ScoreTable, Support, confidence_log_odds, score_levels
from hokical.rules.base import Rule, labels_and_confidence, predict_blocks, predict_on_host

#: Rows from which on a column that counts them is no coincidence.
_FEWEST_ROWS = 10


@dataclass(frozen=True)
class MethodInfo:
    """A method: the kind of rule that its fit makes, its title, its reference and its cost.

    Parameters
    ----------
    rule : type of Rule
        Its name and its capabilities are those of the method.
    title, reference, cost : str
        The method's name in full words, where it was published, and what a fit costs.
    fits_floor : bool
        Whether a floor for probabilities of 0 is fitted first, see `hokical.from_probabilities`.
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

    @property
    def name(self) -> str:
        """The method's name in `make`, in files and on the command line."""
        return str(self.rule.name)

    @property
    def changes_labels(self) -> bool:
        """Whether the predicted label can differ from the classifier's own."""
        return self.rule.preserves_labels is not True

    @property
    def accepts_top_k(self) -> bool:
        """Whether the best logits of each row are enough."""
        return self.fits_top_k or self.rule.accepts_top_k is True

    @property
    def binary_only(self) -> bool:
        """Whether it takes two classes and no more."""
        return self.rule.binary_only is True

    @property
    def logits_kind(self) -> type[Logits]:
        """`Logits`, or the subclass that it needs in their place."""
        kind: type[Logits] = self.rule.logits_kind
        return kind


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit: the rule, and a report of numbers that are stored with it.

    Fields of the rule and entries of the report are attributes of the fitted calibrator, with a
    trailing underscore.
    """

    rule: Rule
    report: dict[str, Any] = field(default_factory=dict)


def acceptable(method: Any, logits: Logits) -> Logits:
    """Return the logits if the method (a rule or a `MethodInfo`) accepts them, else raise."""
    needed = getattr(method, "needed_groups", None)
    if type(logits) is Logits and needed is not None and logits.codes is None:
        columns = ", ".join(needed.columns)
        raise ValueError(
            f"`groups` must be given, as in the fit: {columns}. A group is never guessed; for rows "
            "whose group is not known pass None, and they get the prediction for all groups."
        )
    if type(logits) not in (method.logits_kind, TopK):
        raise TypeError(
            f"`logits` must be {_in_words(method.logits_kind)} for {method.name!r}; got "
            f"{_in_words(type(logits))}."
        )
    if method.accepts_top_k:
        return logits
    return logits.with_every_class(method.name, "Use auto, adaptive, temps, ets or hoki")


def check_plain_logits(method: Any, argument: str) -> None:
    """Raise if a method (a rule or a `MethodInfo`) needs more than logits and groups."""
    if method.logits_kind is not Logits:
        raise ValueError(
            f"`{argument}` cannot be {method.name!r} here, where there are logits alone: it needs "
            f"{_in_words(method.logits_kind)}. Call its `fit` and `predict` with that."
        )


def refuse_groups(rule: Rule) -> None:
    """Raise if a fitted rule needs groups, where nobody can pass them."""
    if rule.needed_groups is not None:
        raise ValueError(
            "`calibrator` must not have learned from groups here, where there are logits alone; "
            f"got one that needs {', '.join(rule.needed_groups.columns)}. Call its own `predict("
            "logits, groups=...)` on logits (n, classes), or fit one without groups."
        )


def warn_of_row_numbers(logits: Logits) -> None:
    """Warn if a column counts the rows, as an id that was left among the logits does."""
    if not logits.is_numpy or logits.n_rows < _FEWEST_ROWS or logits.tail is not None:
        return
    values = logits.values
    first = (values[1:4] == values[:3] + 1.0) & np.isfinite(values[:3])
    for column in np.flatnonzero(first.all(axis=0)):
        if (values[1:, column] == values[:-1, column] + 1.0).all():
            warn_user(
                f"`logits` have a column, {column}, that counts the rows from "
                f"{values[0, column]:g}, as an id does. Drop it: each column is a class.",
                FitDataWarning,
            )


def _in_words(kind: type[Logits]) -> str:
    return "logits (n, classes)" if kind is Logits else f"a `{kind.__module__}.{kind.__name__}`"


class Estimator:
    """An estimator as scikit-learn knows it, without importing it.

    `__init__` names all parameters and keeps each in its attribute: `clone`, pipelines, searches
    and joblib need little else. Tags come from scikit-learn's base class when it asks for them.
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
        changed = [f"{name}={text}" for name, text in shown if text != repr(defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


class StoredEstimator(Estimator, ABC):
    """An estimator whose fit is a rule, a report, and data kept for later guarantees."""

    #: What is known of the method before a fit.
    method: ClassVar[MethodInfo]
    #: What the methods call the scores and their labels.
    _row_names: ClassVar[tuple[str, str]] = ("logits", "labels")
    #: The fitted rule.
    rule_: Any
    #: Plain values from the file that it was loaded from, or about the table that it was fitted on.
    metadata_: dict[str, Any]
    #: Names of the columns of the scores in the fit, if they were a frame's.
    _columns: tuple[str, ...] = ()
    #: The version that wrote the file, or this one.
    _library_version: str = VERSION
    #: What the fit reports besides the rule; its entries are attributes with an underscore.
    _report: dict[str, Any]
    #: Mean log loss (nats) on the calibration examples, and how a search ended, where there is one.
    log_loss_: float
    n_iter_: int
    converged_: bool
    message_: str

    @property
    def name(self) -> str:
        """The method's name."""
        return self.method.name

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Write the fitted calibrator to a JSON file, atomically; `hokical.load` reads it.

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
        if not isinstance(parameters.get("random_state"), (int, np.integer, type(None))):
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
        known, given = inspect.signature(cls).parameters, document["parameters"]
        found = cls(**{name: value for name, value in given.items() if name in known})
        found._restore(document)
        found.metadata_ = document["beside"]
        found._columns = tuple(map(str, document.get("columns", ())))
        found._library_version = str(document.get("library_version", "unknown"))
        return found

    @abstractmethod
    def _restore(self, document: dict[str, Any]) -> None:
        """Take up a file's rule, report and data."""

    def _keep_rule(self, rule: Any, report: dict[str, Any], **attributes: Any) -> None:
        """Keep a rule and a report, and set the fitted attributes, which each class declares."""
        self.rule_, self._report, self.metadata_ = rule, report, {}
        for name, value in (attributes | report).items():
            setattr(self, f"{name}_", value)

    def _convergence_report(
        self, n_iter: int, message: str, converged: bool | None = None
    ) -> dict[str, Any]:
        """Report entries on how a fit ended, with a warning if it did not converge."""
        converged = message == "converged" if converged is None else converged
        if not converged:
            warn_user(f"{type(self).__name__} did not converge: {message}", ConvergenceWarning)
        return {"n_iter": n_iter, "converged": converged, "message": message}

    def group_codes(self, groups: Any) -> IntArray:
        """Integers (n, columns), which torch modules and ONNX graphs take in place of groups.

        The last code of each column stands for a group that is missing or was not in the fit.
        """
        self._check_fitted()
        coding = getattr(self.rule_, "needed_groups", None)
        if coding is None:
            raise ValueError("`groups` have no codes: this calibrator did not learn from groups.")
        codes: IntArray = coding.codes(groups, count_rows(groups))
        return codes

    def _pair(
        self, scores: Any, labels: Any, sample_weight: Any, groups: Any, **options: Any
    ) -> Rows:
        """Rows as they are given, in one order; of a table, if `labels` is the name of a column.

        Every method that takes labelled rows reads them here. `options` are those of
        `hokical.io.reading.read_table`.
        """
        if isinstance(labels, str) and not isinstance(scores, str):
            from hokical.io.reading import read_table

            kind: Any = "confidence" if self.name == "confidence" else None
            return read_table(scores, labels, sample_weight, groups, kind=kind, **options)
        return pair_rows(scores, labels, sample_weight, groups, self._row_names)

    @staticmethod
    def _checked(given: Rows, scores: Any, labels: Any, n_rows: int) -> Rows:
        """Rows with checked scores and labels, and one weight and group for each."""
        weights = as_weights(given.weights, n_rows)
        if given.groups is not None:
            read_columns(given.groups, n_rows)
        return given._replace(scores=scores, labels=labels, weights=weights)

    def _check_fitted(self) -> None:
        if "rule_" not in self.__dict__:
            raise sklearn_class(NotFittedError)(
                f"This {type(self).__name__} instance is not fitted yet. Call `fit` first."
            )


class OutcomeCalibrator(StoredEstimator):
    """The base of calibrators of yes-or-no outcomes: one confidence per row, or several labels.

    A subclass has a `method`, and `fit` calls `_keep` with its rule and a report.
    """

    #: What `certify` notes.
    _held_out_kind: ClassVar[type[Any]]

    reason_: str
    held_out_log_loss_: dict[str, float]
    #: What `certify` noted, or None.
    held_out_: Any
    #: Fingerprints of the examples of the fit, which cannot certify it.
    fit_rows_: tuple[RowSketch, ...]

    def _stored_data(self) -> dict[str, Any]:
        return {"held_out": self.held_out_, "fit_rows": list(self.fit_rows_)}

    def _restore(self, document: dict[str, Any]) -> None:
        rule = check_stored(document, "rule", self.method.rule)
        held_out = check_stored(document, "held_out", self._held_out_kind | None)
        sketches = tuple(document.get("fit_rows", ()))  # which files of 0.2 do not have
        by_class = isinstance(held_out, ScoreTable) and held_out.count.shape[-1] != LEVELS
        if by_class or not all(isinstance(sketch, RowSketch) for sketch in sketches):
            name = "held_out" if by_class else "fit_rows"
            raise CalibratorFileError(f"the file of this {self.name} has no usable `{name}`.")
        self._keep(rule, document["report"])
        self.held_out_, self.fit_rows_ = held_out, sketches

    def _are_of_fit(self, hashes: Iterable[FloatArray]) -> bool:
        """Whether examples are those of the fit, by `hashes` as `_keep` gets them."""
        pairs = zip(self.fit_rows_, hashes, strict=False)
        return any(known.holds_too_many(own) for known, own in pairs)

    def _keep(self, rule: Any, report: dict[str, Any], hashes: Iterable[FloatArray] = ()) -> None:
        """Store the result of a fit; what `certify` noted for an earlier one is dropped.

        `hashes` (n,) of the examples are noted, in one way or several.
        """
        self._keep_rule(rule, report)
        self.fit_rows_, self.held_out_ = tuple(map(RowSketch.from_hashes, hashes)), None
        if not report.get("converged", True):
            warn_user(f"{type(self).__name__} did not converge: {self.reason_}", ConvergenceWarning)


def check_stored(document: dict[str, Any], name: str, kind: Any) -> Any:
    """The value of this name in a file's contents, if it is of this kind."""
    value = document.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CalibratorFileError(
            f"the file of this {document.get('method')} has no usable `{name}`; got "
            f"{type(value).__name__}."
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


#: Rows from which on they are checked for looking like probabilities: fewer can sum to 1 by
#: coincidence.
_FEWEST_TO_SUM = 4
#: Calibration examples whose calibrated confidence is counted.
_MOST_COUNTED = 5000
#: Probabilities that a mean over calibration examples is taken of, at most.
_MOST_PROBABILITIES = 1 << 20
#: More classes than this mean a damaged file.
_MOST_COLUMNS = 1 << 31


def convert_frame(frame: Any, metadata: dict[str, Any]) -> Any:
    """The logits of a frame of probabilities, if by the `metadata` the fit was on such a table.

    Without that, columns that are named as probabilities are refused.
    """
    names = column_names(frame)
    if not names:
        return frame
    if metadata.get("scores") == "probabilities":
        values = to_numpy(frame, "logits")
        is_proba = values.min() >= 0.0 and np.allclose(values.sum(axis=1), 1.0, atol=0.05)
        zeros = metadata.get("zeros", "unlikely")
        return from_probabilities(values, zeros=zeros) if is_proba else frame
    if all(name.lower().startswith("prob") and class_of_column(name) != name for name in names):
        raise ValueError(
            f"`logits` must be logits, as in the fit; columns such as `{names[0]}` hold "
            "probabilities. Convert them: `hokical.from_probabilities`."
        )
    return frame


def warn_of_probabilities(data: Logits, support: Support | None) -> None:
    """Warn if rows look like probabilities, and those of the fit, by its support, did not."""
    if support is None or type(data) is not Logits or not data.is_numpy:
        return
    highest = data.top.max() if data.n_rows >= _FEWEST_TO_SUM else np.inf
    if highest > 100.0 or data.top.min() <= 0.0:
        return
    scale = probability_scale(data, data.top)
    before = support.top[1]  # of logarithms of probabilities at most 0
    if (scale == 1.0 and not 0.0 < before <= 1.0) or (scale == 100.0 and before < highest):
        kind = "probabilities" if scale == 1.0 else "percentages"
        warn_user(
            f"`logits` look like {kind}: all rows sum to {scale:g}, and those of the fit did "
            "not. Pass logits, as in the fit.",
            UserWarning,
        )


def name_classes(given: Rows, names: tuple[str, ...]) -> Rows:
    """Rows whose classes have these names, which their labels may be."""
    columns = as_logits(given.scores).n_classes
    if not len(names) == len(set(names)) == columns:
        raise ValueError(
            f"`classes` must name each of the {columns} columns of `logits`; got {len(names)}."
        )
    labels = as_labels(given.labels, len(given.labels), columns, classes=names)
    return given._replace(labels=labels, classes=names)


def count_examples(kept: CalibrationData, rule: Rule, block: Examples) -> CalibrationData:
    """With counts of calibration examples by confidence, and the frequencies that it implies."""
    n = block.n_rows
    needed = rule.needed_groups
    if needed is not None and block.coding is not None:  # of all columns, those that it uses
        used = [block.coding.columns.index(name) for name in needed.columns]
        codes = np.asarray(block.logits.codes)[:, used]
        block = replace(block, logits=replace(block.logits, codes=codes))
    rows = np.flatnonzero(row_draws(0, n) * n < _MOST_COUNTED)
    data = block.logits.take(rows) if rows.size < n else block.logits
    if kept.fit_scores is not None:
        labels, confidence = labels_and_confidence(rule, data)
        level = score_levels(confidence_log_odds(confidence.astype(np.float64)))
        counted = block.counting[rows].astype(np.float64)
        table = ScoreTable.from_examples(level, labels != block.labels[rows], counted)
        kept = replace(kept, fit_confidences=table)
    most = max(_MOST_PROBABILITIES // data.n_classes, 1)
    weights = block.counts[rows][:most]
    if isinstance(data, TopK) or kept.class_scores is None or not weights.any():
        return kept
    some = data.take(slice(0, min(most, data.n_rows)))
    with some.backend.in_float64():  # and on the device of the logits
        proba = predict_blocks(rule, "proba", some)
        means = class_means(proba, block.labels[rows][:most], weights, some)
    known = kept.class_scores.with_implied(*means, effective_size(weights / weights.sum()))
    kept = replace(kept, class_scores=known)
    if needed is None or not known.cells.size:
        return kept
    rows = np.flatnonzero(row_draws(0, n) * n < most)
    data, weights = block.logits.take(rows), block.counts[rows]
    proba = predict_on_host(rule, "proba", data).astype(np.float64)
    found = GroupScores.from_rows(data, proba, block.labels[rows], weights)
    return replace(kept, group_scores=found)


def check_document(document: dict[str, Any]) -> tuple[Rule, int, CalibrationData]:
    """Rule, number of classes and kept data of a file's contents, if they belong together."""
    rule: Rule = check_stored(document, "rule", Rule)
    n_classes: int = check_stored(document, "n_classes", int)
    kinds = get_type_hints(CalibrationData).items()
    kept = CalibrationData(**{name: check_stored(document, name, kind) for name, kind in kinds})
    if not 2 <= n_classes < _MOST_COLUMNS:
        raise CalibratorFileError(f"the file must be for at least 2 classes; got {n_classes}.")
    if rule.n_classes not in (None, n_classes):
        raise CalibratorFileError(
            f"the file is for {n_classes} classes, and its rule for {rule.n_classes}."
        )
    for name in kept.unsuitable(n_classes):
        raise CalibratorFileError(f"the file has no usable `{name}` for {n_classes} classes.")
    return rule, n_classes, kept
