"""The origin of the numbers of a comparison."""

import hashlib
import platform
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

from hokical.core.arrays import to_host
from hokical.core.blocks import row_slices
from hokical.core.logits import Logits
from hokical.core.types import IntArray


@dataclass(frozen=True)
class DataFacts:
    """The data of a comparison: enough to tell whether another run used the same."""

    n_rows: int
    n_classes: int
    dtype: str
    accuracy: float
    sha256: str
    name: str | None = None


@dataclass(frozen=True)
class Provenance:
    """The origin of the numbers: data, versions, seed, date."""

    validation: DataFacts
    test: DataFacts
    seed: int
    versions: dict[str, str]
    machine: str
    date: str = ""

    @property
    def tested_on_validation(self) -> bool:
        """Whether both sets are the same examples, which makes everything look too good."""
        return self.validation.sha256 == self.test.sha256


def data_facts(logits: Logits, labels: IntArray, name: str | None) -> DataFacts:
    """The facts of logits and labels."""
    digest = hashlib.sha256()
    for rows in row_slices(logits.n_rows, logits.n_columns):
        digest.update(np.ascontiguousarray(to_host(logits.values[rows])).tobytes())
    digest.update(labels.astype("<i8").tobytes())
    return DataFacts(
        n_rows=logits.n_rows,
        n_classes=logits.n_classes,
        dtype=str(logits.values.dtype),
        accuracy=float((to_host(logits.labels) == labels).mean()),
        sha256=digest.hexdigest(),
        name=name,
    )


def library_versions() -> dict[str, str]:
    """Python and the libraries that the numbers depend on."""
    names = ("hokical", "numpy", "scipy", "scikit-learn")
    return {"python": platform.python_version()} | {name: version(name) for name in names}
