"""The base of calibrators of yes-or-no outcomes: one confidence per row, or several labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from hokical._core.storage import CalibratorFileError
from hokical._core.types import FloatArray
from hokical._core.warn import ConvergenceWarning, warn_user
from hokical.calibrators._stored import StoredEstimator, check_stored
from hokical.guarantees._row_sketch import RowSketch


class OutcomeCalibrator(StoredEstimator):
    """Base: a subclass has a `method`, and `fit` calls `_keep` with its rule and a report."""

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
        if not all(isinstance(sketch, RowSketch) for sketch in sketches):
            raise CalibratorFileError(f"the file of this {self.name} has no usable `fit_rows`.")
        self._keep(rule, document["report"])
        self.held_out_, self.fit_rows_ = held_out, sketches

    def _keep(self, rule: Any, report: dict[str, Any], hashes: Iterable[FloatArray] = ()) -> None:
        """Store the result of a fit; what `certify` noted for an earlier one is dropped.

        `hashes` (n,) of the examples are noted, in one way or several.
        """
        self._keep_rule(rule, report)
        self.fit_rows_, self.held_out_ = tuple(map(RowSketch.from_hashes, hashes)), None
        if not report.get("converged", True):
            warn_user(f"{type(self).__name__} did not converge: {self.reason_}", ConvergenceWarning)
