"""Where the numbers of a report come from: data, versions, seed, date."""

import platform
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Literal, Self

import numpy as np

from hokical._core.arrays import to_host
from hokical._core.blocks import row_slices
from hokical._core.logits import Logits
from hokical._core.types import IntArray
from hokical._core.version import VERSION

#: What a calibrator is given.
Given = Literal["logits", "confidences", "scores"]


@dataclass(frozen=True)
class DataFacts:
    """A data set: its size, type and accuracy before calibration."""

    n_rows: int
    n_classes: int
    dtype: str
    accuracy: float
    name: str | None = None
    what: Given = "logits"

    @classmethod
    def collect(cls, logits: Logits, labels: IntArray, name: str | None) -> Self:
        """The facts of logits and labels."""
        accuracy = float((to_host(logits.labels) == labels).mean())
        return cls(logits.n_rows, logits.n_classes, str(logits.values.dtype), accuracy, name)


@dataclass(frozen=True)
class Provenance:
    """The origin of the numbers: data, versions, seed, date.

    `tested_on_validation` is whether both sets are the same examples, which makes everything look
    too good.
    """

    validation: DataFacts | None
    test: DataFacts
    seed: int
    versions: dict[str, str]
    machine: str
    date: str = ""
    tested_on_validation: bool = False

    @classmethod
    def collect(
        cls, validation: DataFacts | None, test: DataFacts, seed: int, same: bool = False
    ) -> Self:
        """That of numbers computed now."""
        versions = {"python": platform.python_version(), "hokical": VERSION}
        versions |= {name: version(name) for name in ("numpy", "scipy")}
        now = datetime.now().astimezone().isoformat(" ", "minutes")
        return cls(validation, test, seed, versions, platform.machine(), now, same)


def are_same(first: tuple[Logits, IntArray], second: tuple[Logits, IntArray]) -> bool:
    """Whether two sets of logits and labels are the same examples in the same order."""
    (logits, labels), (others, truth) = first, second
    if logits.values.shape != others.values.shape or not np.array_equal(labels, truth):
        return False
    return all(
        np.array_equal(to_host(logits.values[rows]), to_host(others.values[rows]))
        for rows in row_slices(*logits.values.shape)
    )
