"""The settings of a monitor, checked."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from hokical.bins import check_count
from hokical.monitoring.windows import Layout


@dataclass(frozen=True)
class Options:
    """How a monitor looks at its stream; monitors with equal options can be merged."""

    layout: Layout
    n_bins: int
    alpha: float
    tolerance: float
    level: float
    min_labels: int
    model: str

    @classmethod
    def checked(
        cls,
        window: int | timedelta,
        n_bins: int,
        alpha: float,
        tolerance: float,
        level: float,
        min_labels: int,
        model: str,
    ) -> Options:
        """From what a user passed, or a ValueError."""
        if not isinstance(model, str):
            raise TypeError(f"`model` must be a name; got {model!r}.")
        return cls(
            Layout.from_option(window),
            check_count(n_bins),
            _between("alpha", alpha, 0.0, 1.0),
            _between("tolerance", tolerance, 0.0, 1.0, closed=True),
            _between("level", level, 0.0, 1.0),
            check_count(min_labels, name="min_labels"),
            model,
        )

    def to_dict(self) -> dict[str, Any]:
        """For storage."""
        return asdict(self)

    def as_arguments(self) -> dict[str, Any]:
        """The arguments of a monitor with these options."""
        known = self.to_dict()
        layout = known.pop("layout")
        window = timedelta(seconds=layout["size"]) if layout["timed"] else layout["size"]
        return {"window": window, **known}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Options:
        """The inverse of `to_dict`."""
        return cls(**stored | {"layout": Layout(**stored["layout"])})


def _between(name: str, value: Any, low: float, high: float, *, closed: bool = False) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    inside = number and (low < value < high or (closed and value == low))
    if not inside or not math.isfinite(value):
        rule = f"at least {low:g} and below {high:g}" if closed else "strictly between 0 and 1"
        raise ValueError(f"`{name}` must be {rule}; got {value!r}.")
    return float(value)
