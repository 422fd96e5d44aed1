"""Calibrators loaded from files: they predict without the libraries needed for fitting."""

import os
from operator import attrgetter
from typing import Any

from hokical._core.storage import CalibratorFileError, read_document
from hokical._core.warn import warn_user
from hokical.calibrators._calibrator import STORED, Calibrator
from hokical.calibrators._catalog import (
    BEYOND_LOGITS,
    find_rule,
    load_class_beyond_logits,
    load_estimator_class,
)
from hokical.guarantees._class_scores import ClassScores
from hokical.guarantees._conformity import Conformity
from hokical.guarantees._row_sketch import RowSketch
from hokical.guarantees._score_table import NeighbourTable, ScoreTable
from hokical.guarantees._support import Support
from hokical.rules._base import Rule

#: More classes than this mean a damaged file.
_MOST_CLASSES = 1 << 31


class FittedCalibrator(Calibrator):
    """A loaded calibrator: the predictions and guarantees of a fit.

    Attributes of the fit (`temperature_`, `converged_`, ...) are available as on the estimator. To
    fit further, or to use it as a scikit-learn estimator, call `estimator()`.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self._body = document
        self.name = document["method"]
        for name in STORED:
            setattr(self, f"{name}_", document[name])
        names = self.metadata.get("classes")
        if isinstance(names, list) and len(names) == document["n_classes"]:
            self.class_names = tuple(map(str, names))

    preserves_labels = property(attrgetter("rule_.preserves_labels"))
    accepts_top_k = property(attrgetter("rule_.accepts_top_k"))
    logits_kind = property(attrgetter("rule_.logits_kind"))

    @property
    def library_version(self) -> str:
        """The version that wrote the file."""
        return str(self._body.get("library_version", "unknown"))

    @property
    def metadata(self) -> dict[str, Any]:
        """Values stored in the file in addition to the calibrator."""
        return dict(self._body["beside"])

    @property
    def beside(self) -> dict[str, Any]:
        """The old name of `metadata`."""
        warn_user("`beside` is now called `metadata`.", FutureWarning)
        return self.metadata

    @property
    def scores(self) -> str | None:
        """What `hokical fit` was given, "logits" or "probabilities"; None if it is not known."""
        return self.metadata.get("scores")

    def estimator(self) -> Any:
        """The fitted scikit-learn estimator, which can be cloned and fitted further."""
        document = self._body | {name: getattr(self, f"{name}_") for name in STORED}
        kind = load_estimator_class(self.name)
        try:
            return kind.from_document(document)
        except (AttributeError, TypeError, ValueError) as error:  # an edited report or parameter
            raise CalibratorFileError(
                f"the file of this {self.name} is unusable: {error}"
            ) from error

    def _document(self) -> dict[str, Any]:
        return {
            **super()._document(),
            "parameters": self._body["parameters"],
            "report": self._body["report"],
            "beside": self.metadata,
        }

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and not name.startswith("_"):
            body = self.__dict__.get("_body", {})
            for place in (body["rule"].own_fields() if body else {}, body.get("report", {})):
                if name[:-1] in place:
                    return place[name[:-1]]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"FittedCalibrator({self.name!r}, {self._fit_in_words()})"


def load(path: str | os.PathLike[str]) -> FittedCalibrator | Any:
    """Read a calibrator that `save` wrote. Raises CalibratorFileError for anything else.

    It needs NumPy and array-api-compat alone: scikit-learn, SciPy and numba are not imported. Files
    of a `ConfidenceCalibrator` or a `MultilabelCalibrator` give one.
    """
    document = read_document(path, find_rule)
    if str(document.get("method")) in BEYOND_LOGITS:
        return load_class_beyond_logits(document["method"]).from_document(document)
    return FittedCalibrator(_check_document(path, document))


def load_fitted(path: str | os.PathLike[str]) -> FittedCalibrator:
    """`load` where only a calibrator of logits will do."""
    found = load(path)
    if not isinstance(found, FittedCalibrator):
        raise CalibratorFileError(
            f"{path} must hold a calibrator of logits; got a {type(found).__name__}. Read it with "
            "`hokical.load`."
        )
    return found


def _check_document(path: str | os.PathLike[str], document: dict[str, Any]) -> dict[str, Any]:
    """The contents of a file, if they are those of a calibrator of logits."""
    kinds = {
        "rule": Rule,
        "method": str,
        "n_classes": int,
        "fit_scores": ScoreTable | None,
        "fit_confidences": ScoreTable | None,
        "held_out_scores": ScoreTable | None,
        "neighbours": NeighbourTable | None,
        "support": Support | None,
        "fit_conformity": Conformity | None,
        "held_out_conformity": Conformity | None,
        "fit_rows": RowSketch | None,
        "class_scores": ClassScores | None,
        "parameters": dict,
        "report": dict,
        "beside": dict,
    }
    for name, kind in kinds.items():
        value = document.setdefault(name, None)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise CalibratorFileError(f"{path} has no usable `{name}`; got {type(value).__name__}.")
    n_classes, of_rule = document["n_classes"], document["rule"].n_classes
    if not 2 <= n_classes < _MOST_CLASSES:
        raise CalibratorFileError(f"{path} must be for at least 2 classes; got {n_classes}.")
    for name in ("fit_conformity", "held_out_conformity"):
        noted = document[name]
        if noted is not None and (not noted.n or noted.labels.max() >= n_classes):
            raise CalibratorFileError(f"{path} has no usable `{name}` for {n_classes} classes.")
    if document["class_scores"] and document["class_scores"].n_classes != n_classes:
        raise CalibratorFileError(f"{path} has no usable `class_scores` for {n_classes} classes.")
    if of_rule not in (None, n_classes):
        raise CalibratorFileError(f"{path} is for {n_classes} classes, and its rule for {of_rule}.")
    return document
