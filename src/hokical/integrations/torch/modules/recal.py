"""The module of `recal`: the recorded steps, replayed on logits of transformed inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from hokical.calibrators._recal_steps import FAR, LOWEST_LOG, SAME
from hokical.calibrators.recal import ReCal
from hokical.integrations.torch.kernels import rows
from hokical.integrations.torch.modules.base import (
    CalibratorModule,
    Prediction,
    at,
    joined,
    marked,
    result_dtype,
    shaped,
)
from hokical.integrations.torch.modules.sharing import settle_ties


class ReCalModule(CalibratorModule):
    """Temperatures per group of examples that react alike, step after step."""

    free_sizes = frozenset({"transformations", "temperatures"})
    transformations: Tensor
    temperatures: Tensor

    def __init__(self, calibrator: ReCal) -> None:
        n_transforms = int(calibrator.n_transforms_)
        super().__init__(calibrator, f"{n_transforms} transformations")
        self.n_transforms = n_transforms
        moving = (calibrator.temperatures_ != 1.0).any(axis=1)
        self._keep("transformations", calibrator.transformations_[moving])
        self._keep("temperatures", calibrator.temperatures_[moving])
        self._refresh()

    def forward(self, logits: Tensor, *, transformed: Tensor | None = None) -> Prediction:
        """Labels and confidence of logits (..., classes).

        `transformed` (n_transforms, ..., classes): the logits of the same inputs under each
        transformation, in the order used in `fit`.
        """
        values, views = self._checked(logits), self._views(logits, transformed)
        parts = [
            Prediction(labels, marked(torch.exp(-scaled.log_norm), chunk, labels))
            for chunk, labels, scaled in self._replayed(values, views)
        ]
        return shaped(Prediction(*map(joined, zip(*parts, strict=True))), logits)

    def proba(self, logits: Tensor, *, transformed: Tensor | None = None) -> Tensor:
        """Probabilities of logits (..., classes), given `transformed` as in `forward`."""
        values, views = self._checked(logits), self._views(logits, transformed)
        parts = [
            marked(settle_ties(torch.softmax(-scaled.margins, dim=1), chunk), chunk).to(
                result_dtype(logits)
            )
            for chunk, _, scaled in self._replayed(values, views)
        ]
        return joined(parts).reshape(logits.shape)

    def _replayed(self, values: Tensor, views: Tensor) -> Iterator[tuple[Tensor, Tensor, _Scaled]]:
        """Chunks of rows with their labels, after all recorded steps."""
        start = 0
        for chunk in rows.row_chunks(values, self.n_classes * (1 + self.n_transforms)):
            part = views if chunk is values else views[:, start : start + chunk.shape[0]]
            start += chunk.shape[0]
            yield chunk, rows.labels(chunk), self._replay(chunk, part)

    def _replay(self, values: Tensor, views: Tensor) -> _Scaled:
        current = _Scaled.start(values)
        others: dict[int, _Scaled] = {}
        for step, chosen in enumerate(self._chosen):
            other = others.get(chosen) or _Scaled.start(views[chosen])
            per_row = self.temperatures[step][_reaction_groups(current, other)]
            current, others[chosen] = current.times(per_row), other.times(per_row)
        return current

    def _views(self, logits: Tensor, transformed: Tensor | None) -> Tensor:
        """The transformed logits as (n_transforms, n, classes)."""
        wanted = (self.n_transforms, *logits.shape)
        rule = (
            f"`transformed` must be a tensor of shape {tuple(wanted)}: the logits of the same "
            "inputs under each transformation, in the order used in `fit`"
        )
        if not isinstance(transformed, Tensor):
            raise ValueError(f"ReCal needs `transformed`. {rule}; got {transformed!r}.")
        if transformed.shape != wanted:
            raise ValueError(f"{rule}; got shape {tuple(transformed.shape)}.")
        return transformed.reshape(self.n_transforms, -1, self.n_classes)

    def _refresh(self) -> None:
        self._chosen: list[int] = self.transformations.tolist()


@dataclass(frozen=True, eq=False)
class _Scaled:
    """As `hokical.calibrators._recal_steps.ScaledLogits`: margins min(scale * margin, cap)."""

    raw: Tensor
    labels: Tensor
    scale: Tensor
    cap: Tensor

    @classmethod
    def start(cls, values: Tensor) -> _Scaled:
        raw = rows.margins(values)
        ones = torch.ones_like(raw[:, 0])
        return cls(raw, rows.labels(values), ones, ones * torch.inf)

    def times(self, temperature: Tensor) -> _Scaled:
        """Probabilities below 1e-16 raised to it, then log-probabilities multiplied, row by row."""
        clamped = torch.minimum(self.cap, -LOWEST_LOG - self.log_norm)
        cap = torch.where(temperature == 1.0, self.cap, clamped)
        return replace(self, scale=self.scale * temperature, cap=cap * temperature)

    @property
    def margins(self) -> Tensor:
        """(n, classes), finite: a masked class is far away."""
        masked = self.raw == torch.inf
        scaled = torch.where(masked, 0.0, self.raw) * self.scale[:, None]
        return torch.where(masked, FAR, torch.minimum(scaled, self.cap[:, None]))

    @cached_property
    def log_norm(self) -> Tensor:
        """Minus the log-probability of each row's label, (n,)."""
        return torch.log(torch.exp(-self.margins).sum(dim=1))

    def chance_of(self, labels: Tensor) -> Tensor:
        """The probability of one given class per row, (n,)."""
        raw = at(self.raw, labels)
        margin = torch.minimum(raw * self.scale, self.cap)
        return torch.exp(-torch.where(raw < torch.inf, margin, torch.inf) - self.log_norm)


def _reaction_groups(current: _Scaled, other: _Scaled) -> Tensor:
    """0: another label, risen; 1: another, not risen; 2: the same, risen; 3: the same, not."""
    kept = other.labels == current.labels
    confidence = torch.exp(-current.log_norm)
    risen = other.chance_of(current.labels) > confidence * (1.0 + SAME)
    return 2 * kept.long() + (~risen).long()
