"""Labels and confidence of every row, for methods whose confidence needs all classes at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hokical.answers import confidence_of, labels_of
from hokical.calibrators.irm import IsotonicMulticlass
from hokical.integrations.torch.kernels.rows import row_chunks
from hokical.integrations.torch.modules.making import as_module
from hokical.integrations.torch.tensors import TensorLogits, to_host

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@labels_of.register
def _labels(logits: TensorLogits, calibrator: Any) -> IntArray:
    if calibrator.preserves_labels:
        return logits.labels
    return _by_module(logits, calibrator, "labels")


@confidence_of.register
def _confidence(logits: TensorLogits, calibrator: Any) -> FloatArray:
    """The core's own, from numbers per row, where it can do without whole rows."""
    if calibrator.preserves_labels and not isinstance(calibrator, IsotonicMulticlass):
        return np.asarray(calibrator._confidence(logits))
    return _by_module(logits, calibrator, "confidence")


def _by_module(logits: TensorLogits, calibrator: Any, wanted: str) -> NDArray[Any]:
    """One of the module's answers, in float64 as the core has it."""
    module = as_module(calibrator).to(logits.device)
    chunks = row_chunks(logits.values, logits.n_classes)
    with torch.no_grad():
        return to_host(torch.cat([getattr(module(chunk.double()), wanted) for chunk in chunks]))
