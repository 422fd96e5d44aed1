"""The base of every calibrator: parameters, the fitted rule with its report, and files.

`MethodInfo` is what is known of a method before a fit, and `Fit` what its fit gives.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from hokical._core import reading, runtime
from hokical._core.arrays import AnyArray
from hokical._core.checks import check_mapping
from hokical._core.groups import GroupCoding, count_rows
from hokical._core.logits import Logits
from hokical._core.reading import Rows
from hokical._core.schema import ColumnSchema, InputSchema
from hokical._core.storage import CalibratorFileError, write_document
from hokical._core.version import VERSION
from hokical._fitting.examples import ExamplesNeeded
from hokical.calibrators.predictor import describe_kind
from hokical.guarantees.fingerprints import Reused, one_of_each, refuse_rows_of_fit
from hokical.rules.base import Rule

#: The class of what a file stores.
Stored = TypeVar("Stored")
#: The class of an estimator, or of a parameter.
Cloned = TypeVar("Cloned")


@dataclass(frozen=True)
class MethodInfo:
    """A method: the kind of rule that its fit makes, its title, its reference and its
    cost.

    Parameters
    ----------
    rule : type of Rule
        Its name is that of the method.
    simpler_rule : type of Rule or None
        The rule that a fit keeps where its own gains nothing.
    title, reference, cost : str
        The method's name in full words, where it was published, and what a fit costs.
    fits_floor : bool
        Whether a floor for probabilities of 0 is fitted first, see
        `hokical.from_probabilities`.
    learns_groups : bool
        Whether a fit makes use of groups.
    examples_needed : ExamplesNeeded or None
        A fit on fewer warns. None: the fit learns nothing, or warns itself.
    rows_per_class : int
        How many rows for each class a sample should have, even beyond 4 million logits.
    changes_labels : bool
        Whether the predicted label can differ from the classifier's own.
    accepts_top_k : bool
        Whether a fit takes a `TopK`, the best logits of each row.
    binary_only : bool
        Whether it takes two classes and no more.
    logits_kind : type of Logits
        `Logits`, or the subclass that it needs in their place.
    """

    rule: type[Any]
    title: str = ""
    reference: str = ""
    cost: str = ""
    fits_floor: bool = True
    learns_groups: bool = False
    rows_per_class: int = 0
    changes_labels: bool = False
    accepts_top_k: bool = False
    binary_only: bool = False
    logits_kind: type[Logits] = Logits
    simpler_rule: type[Any] | None = None
    examples_needed: ExamplesNeeded | None = field(default_factory=ExamplesNeeded)

    def __post_init__(self) -> None:
        """Raise if the class of the rule states a different fact."""
        facts = {
            "preserves_labels": not self.changes_labels,
            "binary_only": self.binary_only,
            "logits_kind": self.logits_kind,
        }
        stated_by_rule = vars(self.rule)
        for name, value in facts.items():
            value_of_rule = stated_by_rule.get(name, value)
            is_constant = isinstance(value_of_rule, (bool, type))  # not a property
            if is_constant and value_of_rule != value:
                raise ValueError(
                    f"the method {self.rule.name!r} must agree with its rule, whose "
                    f"`{name}` is {value_of_rule!r}."
                )

    @property
    def name(self) -> str:
        """The method's name in `make`, in files and on the command line."""
        return str(self.rule.name)


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit: the rule, and a report of numbers that are stored with it.

    Fields of the rule and entries of the report are attributes of the fitted
    calibrator, with a trailing underscore.
    """

    rule: Rule
    report: dict[str, Any] = field(default_factory=dict)


def check_plain_logits(name: str, kind: type[Logits], argument: str) -> None:
    """Raise if a method or a rule needs more than logits and groups."""
    if kind is not Logits:
        raise ValueError(
            f"`{argument}` cannot be {name!r} here, where there are logits alone: it "
            f"needs {describe_kind(kind)}. Call its `fit` and `predict` with that."
        )


def refuse_groups(schema: InputSchema) -> None:
    """Raise if a calibrator needs groups, where nobody can pass them."""
    if schema.groups is not None:
        raise ValueError(
            "`calibrator` must not have learned from groups here, where there are "
            "logits alone; got one that needs "
            f"{', '.join(schema.groups.columns)}. Call its `predict(logits, "
            "groups=...)`, or fit one without groups."
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

    def set_params(self, **parameters: object) -> Self:
        """Change parameters.

        >>> from hokical.calibrators import Hoki
        >>> Hoki().set_params(n_bins=10)
        Hoki(n_bins=10)
        """
        accepted = list(_defaults(type(self)))
        for name, value in parameters.items():
            if name not in accepted:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}; it has "
                    f"{accepted}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The parameters that differ from their defaults, as in scikit-learn."""
        changed = [f"{name}={value!r}" for name, value in self._options().items()]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def has_options(self) -> bool:
        """Whether a parameter differs from its default."""
        return bool(self._options())

    def _options(self) -> dict[str, Any]:
        """The parameters that differ from their defaults."""
        defaults = _defaults(type(self))
        return {
            name: value
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name])
        }

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
    row_names: ClassVar[tuple[str, str]] = ("logits", "labels")
    #: Plain values from the file that it was loaded from, or about the table that it
    #: was fitted on.
    metadata_: dict[str, Any]
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

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "method" in vars(cls):
            cls.name = cls.method.name

    def save(
        self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None
    ) -> None:
        """Write the fitted calibrator to a JSON file, atomically; `hokical.load` reads
        it.

        `metadata` holds plain values to store in the file for the caller's own use.
        """
        check_mapping("metadata", metadata)
        self.check_fitted()
        body = {
            "library_version": VERSION,
            "method": self.name,
            "parameters": self._storable_parameters(),
            "report": self._report,
            "beside": self.metadata_ if metadata is None else metadata,
            **self._stored_data(),
        }
        write_document(path, body)

    @property
    def library_version(self) -> str:
        """The version of hokical that wrote the file, or this one."""
        return self._library_version

    @property
    def has_converged(self) -> bool:
        """Whether the fit converged; True of methods without iterations."""
        return bool(self._report.get("converged", True))

    @property
    def choice_reason(self) -> str | None:
        """What was fitted, and why; None of methods that choose nothing."""
        return self._report.get("reason")

    def _storable_parameters(self) -> dict[str, Any]:
        """The parameters, with None for a generator, whose state is code."""
        parameters = self.get_params()
        seed = parameters.get("random_state")
        if not isinstance(seed, (int, np.integer, type(None))):
            parameters["random_state"] = None
        return parameters

    def _keep_report(self, report: dict[str, Any]) -> None:
        """Its entries become attributes with an underscore."""
        self._report = report
        for name, value in report.items():
            setattr(self, f"{name}_", value)

    @abstractmethod
    def _stored_data(self) -> dict[str, Any]:
        """What a file holds besides parameters and report."""

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The calibrator of a file's contents, fitted as the one that was saved.

        Parameters that the method had in an earlier version are left out.
        """
        for name in ("parameters", "report", "beside"):
            check_stored(document, name, dict)
        accepted = inspect.signature(cls).parameters
        stored = document["parameters"].items()
        loaded = cls(**{name: value for name, value in stored if name in accepted})
        loaded._restore(document)
        loaded.metadata_ = document["beside"]
        loaded._library_version = str(document.get("library_version", "unknown"))
        return loaded

    @abstractmethod
    def _restore(self, document: dict[str, Any]) -> None:
        """Take up a file's rule, report and data."""

    @property
    @abstractmethod
    def is_fitted(self) -> bool:
        """Whether there is a rule."""

    @property
    @abstractmethod
    def schema_(self) -> ColumnSchema:
        """How new rows are read."""

    @property
    @abstractmethod
    def needed_groups(self) -> GroupCoding | None:
        """The groups that the rule needs beside scores."""

    def group_codes(self, groups: object) -> AnyArray:
        """Numbers (n, columns), which torch modules and ONNX graphs take in place of
        groups.

        The last code of each column stands for a group that is missing or was not in
        the fit. They are int64; or float64, if the calibrator uses the numbers
        themselves of some column, which are NaN where they are missing.
        """
        self.check_fitted()
        coding = self.needed_groups
        if coding is None:
            raise ValueError(
                "`groups` have no codes: this calibrator did not learn from groups."
            )
        inputs: AnyArray = coding.inputs(groups, count_rows(groups))
        return inputs

    def read_pair(
        self,
        scores: object,
        labels: object,
        sample_weight: object,
        groups: object,
        **options: Any,
    ) -> Rows:
        """Unchecked rows in one order; of a table, if `labels` is the name of a column.

        Every method that takes labelled rows reads them here. `options` are those of
        `hokical.io.examples.read_table`.
        """
        if isinstance(labels, str) and not isinstance(scores, str):
            from hokical.io.examples import read_table

            return read_table(
                scores,
                labels,
                sample_weight,
                groups,
                kind="confidence" if self.name == "confidence" else None,
                **options,
            )
        return reading.pair_rows(scores, labels, sample_weight, groups, self.row_names)

    @abstractmethod
    def read_labelled(
        self,
        scores: object,
        labels: object,
        sample_weight: object = None,
        groups: object = None,
    ) -> Rows:
        """Checked rows: scores, labels, weights and groups."""

    @abstractmethod
    def is_of_fit(self, rows: Rows) -> bool:
        """Whether checked rows are among those that it learned from."""

    def read_held_out(
        self, reused: Reused, *rows: object, cluster: object = None
    ) -> Rows:
        """Checked rows that are not of the fit; with `cluster` (n,), one of each.

        `rows` are the arguments of `read_labelled`.
        """
        self.check_fitted()
        checked = self.read_labelled(*rows)
        if cluster is not None:
            checked = one_of_each(checked, cluster)
        refuse_rows_of_fit(self.is_of_fit(checked), self.row_names[0], reused)
        return checked

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_fitted

    def check_fitted(self) -> None:
        """Raise scikit-learn's `NotFittedError` before the fit."""
        if not self.is_fitted:
            raise runtime.sklearn_class(runtime.NotFittedError)(
                f"This {type(self).__name__} instance is not fitted yet. Call `fit` "
                "first."
            )


def check_stored(document: dict[str, Any], name: str, kind: type[Stored]) -> Stored:
    """The value of this name in a file's contents, if it is of this kind."""
    value = document.get(name)
    if not isinstance(value, kind):
        raise CalibratorFileError(
            f"the file of this {document.get('method')} has no usable `{name}`; got "
            f"{type(value).__name__}."
        )
    return value


def check_stored_or_none(
    document: dict[str, Any], name: str, kind: type[Stored]
) -> Stored | None:
    """The value of this name in a file's contents, if it is of this kind or None."""
    return None if document.get(name) is None else check_stored(document, name, kind)


def clone(estimator: Cloned) -> Cloned:
    """An unfitted estimator with the same parameters, as scikit-learn's `clone` gives.

    >>> from hokical.calibrators import Hoki
    >>> clone(Hoki(n_bins=10))
    Hoki(n_bins=10)
    """
    if not isinstance(estimator, Estimator):
        return deepcopy(estimator)
    parameters = estimator.get_params().items()
    return type(estimator)(**{name: clone(value) for name, value in parameters})


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """The defaults of the parameters of `__init__`, sorted by name."""
    parameters = inspect.signature(kind).parameters
    return {name: parameters[name].default for name in sorted(parameters)}
