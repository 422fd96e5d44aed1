"""A fitted `MultilabelCalibrator` as a module."""

from dataclasses import fields

import torch
from torch import Tensor

from hokical.calibrators._multilabel import MultilabelCalibrator
from hokical.integrations.torch._backend import BACKEND
from hokical.integrations.torch._precision import FixedPrecision
from hokical.rules._multilabel import MultilabelCurves, curve_proba


class MultilabelModule(FixedPrecision):
    """Scores (..., labels) in, probabilities of the same shape out; made by `as_module`.

    They are float32, and float64 where the scores are. `torch.onnx.export` takes it.
    """

    def __init__(self, calibrator: MultilabelCalibrator) -> None:
        super().__init__()
        for field in fields(MultilabelCurves):
            self.register_buffer(field.name, torch.tensor(getattr(calibrator.rule_, field.name)))

    def forward(self, scores: Tensor) -> Tensor:
        """The probability of each label."""
        size = self.get_buffer("shift").shape[0]
        if scores.ndim < 1 or scores.shape[-1] != size:
            raise ValueError(
                f"`scores` must have {size} labels, along the last axis; got shape "
                f"{tuple(scores.shape)}."
            )
        found = curve_proba(scores, BACKEND, **dict(self.named_buffers()))
        return found if scores.dtype == torch.float64 else found.float()
