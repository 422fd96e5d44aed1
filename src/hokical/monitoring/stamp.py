"""Which calibrator a monitor watches: numbers of another must not be counted with its own."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sklearn.utils.validation import check_is_fitted

from hokical.calibrators.base import BaseCalibrator
from hokical.storage import fingerprint


@dataclass(frozen=True)
class Stamp:
    """A calibrator's kind, its number of classes, and a hash of what it has learned.

    Neither the version of the library nor what `certify` counted matters: only what predicts.
    """

    kind: str
    n_classes: int
    learned: str

    @classmethod
    def of(cls, calibrator: BaseCalibrator) -> Stamp:
        """The stamp of a fitted calibrator; saving and loading it does not change it."""
        check_is_fitted(calibrator, "n_classes_")
        parameters = calibrator.get_params(deep=False)
        parameters.pop("random_state", None)  # a generator is not stored; its draws are learned
        learned = fingerprint({"parameters": parameters, "state": calibrator._state()})
        return cls(type(calibrator).__name__, calibrator.n_classes_, learned)

    def to_dict(self) -> dict[str, str | int]:
        """For storage."""
        return asdict(self)

    def __str__(self) -> str:
        digest = self.learned.rpartition(":")[2][:8]
        return f"{self.kind} of {self.n_classes} classes, stamp {digest}"
