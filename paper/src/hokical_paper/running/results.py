"""What one method achieved on one pair, as plain numbers that can be stored in a
file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hokical.metrics import Estimate
from hokical_paper.core.plots import Reliability
from hokical_paper.suite.manifest import Pair, Suite


@dataclass(frozen=True, eq=False)
class Result:
    """Scores with intervals, ECE by number of bins, reliability diagram, facts about
    the method.

    `fit_seconds` is None if nothing was fitted; `notes` are the warnings of the fit;
    `n_parallel` is the number of processes that were computing results at the same
    time; `division` is the number of a new random division of the examples, None for the
    pair's own division; `made` is the version of hokical that computed it.
    """

    pair: str
    method: str
    fit_seconds: float | None
    scores: dict[str, Estimate]
    ece_by_bins: dict[int, float]
    diagram: Reliability
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    n_parallel: int = 1
    division: int | None = None
    made: str = ""

    def score(self, name: str) -> float:
        """The value of one score."""
        return self.scores[name].value

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts."""
        plain = asdict(self)
        plain["ece_by_bins"] = {
            str(bins): value for bins, value in self.ece_by_bins.items()
        }
        plain["diagram"] = {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in plain["diagram"].items()
        }
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Result:
        """The inverse of `to_dict`."""
        fields = dict(plain)
        fields["scores"] = {
            name: Estimate(**item) for name, item in plain["scores"].items()
        }
        fields["ece_by_bins"] = {
            int(bins): v for bins, v in plain["ece_by_bins"].items()
        }
        diagram: dict[str, Any] = {
            key: np.array(value) if isinstance(value, list) else value
            for key, value in plain["diagram"].items()
        }
        fields["diagram"] = Reliability(**diagram)
        fields["notes"] = tuple(plain["notes"])
        return cls(**fields)


@dataclass(frozen=True, eq=False)
class Results:
    """All results of a suite, by pair and method, and the reasons why others are
    missing.
    """

    suite: Suite
    by_cell: Mapping[tuple[str, str], Result]
    absent: Mapping[tuple[str, str], str]
    methods: tuple[str, ...]

    def get(self, pair: Pair, method: str) -> Result | None:
        return self.by_cell.get((pair.name, method))

    def of(self, pair: Pair) -> Callable[[str], Result | None]:
        """The result of a method on one pair, by the method's name."""
        return lambda method: self.get(pair, method)

    def reason(self, pair: Pair, method: str) -> str:
        """Why there is no result."""
        return self.absent.get((pair.name, method), "not run")

    def score(self, pair: Pair, method: str, name: str) -> float:
        """The value of a score; NaN if the method was not run."""
        result = self.get(pair, method)
        return math.nan if result is None else result.score(name)

    def of_pair(self, pair: Pair) -> Iterator[Result]:
        """The results of one pair, in the order of the methods."""
        for method in self.methods:
            result = self.get(pair, method)
            if result is not None:
                yield result
