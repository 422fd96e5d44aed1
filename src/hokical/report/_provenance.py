"""Where the numbers of a report come from: data, versions, date."""

import platform
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Literal, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.logits import Logits
from hokical._core.types import IntArray
from hokical._core.version import VERSION


@dataclass(frozen=True)
class DataFacts:
    """A data set: its size, type and accuracy before calibration, and what was given."""

    n_rows: int
    n_classes: int
    dtype: str
    accuracy: float
    name: str | None = None
    what: Literal["logits", "confidences", "scores"] = "logits"

    @classmethod
    def collect(cls, logits: Logits, labels: IntArray, name: str | None) -> Self:
        """The facts of logits and labels."""
        accuracy = float((to_host(logits.labels) == labels).mean())
        return cls(logits.n_rows, logits.n_classes, str(logits.values.dtype), accuracy, name)


@dataclass(frozen=True)
class Provenance:
    """The origin of the numbers.

    `tested_on_validation` is whether both sets are the same examples, which makes everything look
    too good.
    """

    validation: DataFacts | None
    test: DataFacts
    versions: dict[str, str]
    date: str = ""
    tested_on_validation: bool = False

    @classmethod
    def collect(cls, validation: DataFacts | None, test: DataFacts, same: bool = False) -> Self:
        """That of numbers computed now."""
        versions = {"python": platform.python_version(), "hokical": VERSION}
        versions |= {name: version(name) for name in ("numpy", "scipy")}
        now = datetime.now().astimezone().isoformat(" ", "minutes")
        return cls(validation, test, versions, now, same)


def are_same(first: tuple[Logits, IntArray], second: tuple[Logits, IntArray]) -> bool:
    """Whether two sets of logits and labels are the same examples in the same order."""
    (logits, labels), (others, truth) = first, second
    return np.array_equal(labels, truth) and np.array_equal(
        to_host(logits.values), to_host(others.values)
    )
