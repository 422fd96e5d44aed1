"""ReCal: the recorded steps, on the logits and on those of the transformed inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hokical.calibrators import ReCal
from hokical.calibrators import _recal_steps as core
from hokical.integrations.onnx.builder import Value
from hokical.integrations.onnx.rows import Outcome, Rows

#: Margin of an impossible class: its exponential is 0, and products with it are not NaN.
_FAR = 1e6


@dataclass(frozen=True, eq=False)
class Scaled:
    """Logits after some steps: margins are min(scale * margin, cap), row by row, (n, 1) each."""

    rows: Rows
    scale: Value | None = None
    cap: Value | None = None

    def times(self, temperature: Value) -> Scaled:
        """One step; a row with temperature 1 stays as it is."""
        limit = -core.LOWEST_LOG - self.log_norm
        clamped = limit if self.cap is None else self.cap.at_most(limit)
        before: Value | float = np.inf if self.cap is None else self.cap
        cap = temperature.equals(1.0).where(before, clamped)
        scale = temperature if self.scale is None else self.scale * temperature
        return Scaled(self.rows, scale, cap * temperature)

    @cached_property
    def margins(self) -> Value:
        """(n, classes), finite: an impossible class is far away."""
        out = self.rows.margins if self.scale is None else self.rows.margins * self.scale
        out = out if self.cap is None else out.at_most(self.cap)
        return self.rows.possible.where(out, _FAR)

    @cached_property
    def log_norm(self) -> Value:
        """Minus the log-probability of each row's label, (n, 1)."""
        return (-self.margins).exp().sum().log()

    def probability_of(self, is_class: Value) -> Value:
        """Of one class per row, marked in (n, classes); 0 where it is impossible."""
        margin = is_class.where(self.margins, 0.0).sum()
        return (-margin - self.log_norm).exp()


def recal(calibrator: ReCal, rows: Rows, views: list[Rows], probabilities: bool) -> Outcome:
    current, others = Scaled(rows), [Scaled(view) for view in views]
    steps = zip(calibrator.transformations_.tolist(), calibrator.temperatures_, strict=True)
    for chosen, temperatures in steps:
        if (temperatures != 1.0).any():
            group = _reaction_groups(current, others[chosen])
            per_row = rows.graph.take(temperatures, group)
            current, others[chosen] = current.times(per_row), others[chosen].times(per_row)
    confidence = (-current.log_norm).exp()
    proba = None
    if probabilities:
        proba = rows.first_maximum((-current.margins - current.log_norm).exp())
    return Outcome(rows.labels, confidence, proba)


def _reaction_groups(current: Scaled, other: Scaled) -> Value:
    """0: another label, risen; 1: another, not risen; 2: the same, risen; 3: the same, not."""
    kept = other.rows.labels.equals(current.rows.labels)
    after = other.probability_of(current.rows.is_label)
    risen = after > (-current.log_norm).exp() * (1.0 + core.SAME)
    return kept.cast(np.int64) * np.array(2) + (~risen).cast(np.int64)
