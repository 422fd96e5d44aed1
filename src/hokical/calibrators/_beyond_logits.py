"""The base of calibrators of something else than logits: what a fit leaves behind, and files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from hokical._core.storage import CalibratorFileError, write_document
from hokical._core.types import FloatArray
from hokical._core.version import VERSION
from hokical._core.warn import ConvergenceWarning, NotFittedError, sklearn_class, warn_user
from hokical.calibrators._estimator import Estimator
from hokical.guarantees._row_sketch import RowSketch


class BeyondLogits(Estimator):
    """Base: a subclass has a `name`, and `fit` calls `_keep` with its rule and a report."""

    #: The method's name in files, and in reports.
    name: ClassVar[str]
    title: ClassVar[str]
    #: What the rule, and what `certify` notes, must be.
    rule_kind: ClassVar[type[Any]]
    held_out_kind: ClassVar[type[Any]]

    rule_: Any
    reason_: str
    held_out_: Any
    metadata: dict[str, Any]
    #: Fingerprints of the examples of the fit, which cannot certify it.
    fit_rows_: tuple[RowSketch, ...]

    def save(self, path: str | os.PathLike[str], *, metadata: dict[str, Any] | None = None) -> None:
        """Write the fitted calibrator to a JSON file, atomically; `hokical.load` reads it.

        `metadata` holds plain values to store in the file for the caller's own use.
        """
        self._check_fitted()
        body = {
            "library_version": VERSION,
            "method": self.name,
            "parameters": self.get_params(),
            "rule": self.rule_,
            "report": self._report,
            "held_out": self.held_out_,
            "fit_rows": list(self.fit_rows_),
            "beside": metadata or {},
        }
        write_document(path, body)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The calibrator of a file's contents."""
        kinds: dict[str, Any] = {
            "parameters": dict,
            "rule": cls.rule_kind,
            "report": dict,
            "beside": dict,
        }
        for name, kind in (kinds | {"held_out": cls.held_out_kind | None}).items():
            if not isinstance(document.get(name), kind):
                raise CalibratorFileError(f"the file of this {cls.name} has no usable `{name}`.")
        found = cls(**document["parameters"])
        sketches = tuple(document.get("fit_rows", ()))  # which files of 0.2 do not have
        if not all(isinstance(sketch, RowSketch) for sketch in sketches):
            raise CalibratorFileError(f"the file of this {cls.name} has no usable `fit_rows`.")
        found._keep(document["rule"], document["report"])
        found.fit_rows_ = sketches
        found.held_out_, found.metadata = document["held_out"], document["beside"]
        return found

    def _keep(self, rule: Any, report: dict[str, Any], hashes: Iterable[FloatArray] = ()) -> None:
        """Store the result of a fit; what `certify` noted for an earlier one is dropped.

        `hashes` (n,) of the examples are noted, in one way or several.
        """
        self.fit_rows_ = tuple(map(RowSketch.from_hashes, hashes))
        self.rule_, self._report, self.held_out_, self.metadata = rule, report, None, {}
        for name, value in report.items():
            setattr(self, f"{name}_", value)
        if not report.get("converged", True):
            warn_user(f"{type(self).__name__} did not converge: {self.reason_}", ConvergenceWarning)

    def _refuse_rows_of_fit(self, name: str, hashes: Iterable[FloatArray]) -> None:
        for sketch, own in zip(getattr(self, "fit_rows_", ()), hashes, strict=False):
            sketch.refuse(own, name)

    def _check_fitted(self) -> None:
        if "rule_" not in self.__dict__:
            raise sklearn_class(NotFittedError)(
                f"This {type(self).__name__} instance is not fitted yet. Call `fit` first."
            )
