"""Which calibrator a monitor watches, so that another's predictions are not mixed in."""

from __future__ import annotations

from dataclasses import dataclass

from hokical.calibrators import Calibrator
from hokical.core.storage import storable


@storable("monitor-stamp")
@dataclass(frozen=True)
class Stamp:
    """A calibrator's method, its number of classes, and a hash of its rule.

    Neither the version of the library nor `certify` changes it.
    """

    method: str
    n_classes: int
    learned: str

    @classmethod
    def of(cls, calibrator: Calibrator) -> Stamp:
        """The stamp of a fitted calibrator; saving and loading it does not change it."""
        return cls(calibrator.name, calibrator.n_classes_, calibrator.stamp)

    def __str__(self) -> str:
        digest = self.learned.rpartition(":")[2][:8]
        return f"{self.method} of {self.n_classes} classes, stamp {digest}"
