"""What every method starts from: the rows of logits, as distances below their top."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hokical.integrations.onnx.builder import Graph, Value
from hokical.integrations.onnx.special import log1p

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Logits (n, classes) in a graph, and what is made of them, each once.

    `values` is the input as it comes, float16 widened to float32, as the core has it.
    """

    graph: Graph
    values: Value
    n_classes: int
    dtype: np.dtype[np.floating]

    @classmethod
    def of(cls, graph: Graph, name: str, dtype: np.dtype[np.floating], n_classes: int) -> Rows:
        """The rows of an input."""
        values = graph.value(name)
        if dtype.itemsize >= 4:
            return cls(graph, values, n_classes, dtype)
        wide = np.dtype(np.float32)
        return cls(graph, values.cast(wide), n_classes, wide)

    @cached_property
    def labels(self) -> Value:
        """The first maximum, (n, 1) int64."""
        return self.values.argmax()

    @cached_property
    def margins(self) -> Value:
        """Distance below the top, (n, classes), inf where a class is impossible."""
        wide = self.values if self.dtype == self.graph.precision else self.values.as_float()
        return wide.max() - wide

    @cached_property
    def is_label(self) -> Value:
        """(n, classes), true at the label."""
        return self.graph.constant(np.arange(self.n_classes)[None, :]).equals(self.labels)

    @cached_property
    def possible(self) -> Value:
        """Which classes are possible, (n, classes)."""
        return self.margins < np.inf

    @cached_property
    def n_possible(self) -> Value:
        """How many, (n, 1)."""
        return self.possible.as_float().sum()

    @cached_property
    def single_choice(self) -> Value:
        """Whether one class alone is possible, (n, 1)."""
        return self.n_possible.equals(1.0)

    @cached_property
    def unusable(self) -> Value:
        """Rows that Python would refuse, (n, 1): NaN or +inf in them, or nothing possible."""
        return (~self.margins.equals(self.margins)).count() > np.array(0)

    @cached_property
    def gap(self) -> Value:
        """From the label to the runner-up, (n, 1); inf where there is none."""
        return self.margins.smallest(2).columns(1, 2)

    def weights(self, scale: float) -> Value:
        """exp(-margin/scale), (n, classes)."""
        return (self.margins / -float(scale)).exp()

    def log_norm(self, temperature: float) -> Value:
        """Minus the log-probability of the label, (n, 1), precise for probabilities near 1."""
        return log1p(self.without_label(self.weights(temperature)).sum())

    def without_label(self, values: Value) -> Value:
        """(n, classes), 0 at the label."""
        return self.is_label.where(0.0, values)

    def of_label(self, values: Value) -> Value:
        """What (n, classes) has at the label, (n, 1)."""
        return self.is_label.where(values, 0.0).sum()

    def distribution(self, scale: float) -> Value:
        """The softmax at a temperature, (n, classes)."""
        weights = self.weights(scale)
        return weights / weights.sum()

    def first_maximum(self, proba: Value) -> Value:
        """Probabilities in which the label is the first maximum, by one rounding if need be.

        At a large temperature, classes with different logits come out with the same number.
        """
        own = self.of_label(proba)
        order = self.graph.constant(np.arange(self.n_classes)[None, :])
        below = own * (1.0 - float(np.finfo(np.float32).eps))
        return proba.at_most((order < self.labels).where(below, own))


@dataclass(frozen=True)
class Outcome:
    """What a method makes of the rows, each (n, 1) but `probabilities`, (n, classes)."""

    labels: Value
    confidence: Value
    probabilities: Value | None
