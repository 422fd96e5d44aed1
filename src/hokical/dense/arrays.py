"""Slabs of dense arrays as rows (positions, classes), on the host or where a tensor is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._tensors import is_tensor
from hokical.dense.layout import Index, Layout
from hokical.logits import to_numpy


def on_host(data: Any, name: str) -> NDArray[Any]:
    """A slab as a NumPy array; tensors of bfloat16, which NumPy has not, as float32."""
    if not is_tensor(data):
        return to_numpy(data, name)
    tensor = data.detach().cpu()
    narrow = str(tensor.dtype) == "torch.bfloat16"
    return np.asarray((tensor.float() if narrow else tensor).numpy())


def stays_on_device(data: Any) -> bool:
    """Whether it is a tensor that is not in the host's memory."""
    return is_tensor(data) and data.device.type != "cpu"


def fit_rows(rows: Any) -> Any:
    """Rows for a fit: on the host, or a tensor where it is if that is elsewhere."""
    return rows.detach() if stays_on_device(rows) else on_host(rows, "logits")


def class_rows(logits: Any, index: Index, keep: Any, layout: Layout) -> Any:
    """The logits (rows, classes) of a slab's positions, or of those to keep.

    Tensors stay tensors. No copy where the classes are on the last axis of an array in C order and
    all positions are kept.
    """
    part = logits[layout.with_classes(index)]
    moved = classes_last(part if is_tensor(part) else on_host(part, "logits"), layout.axis)
    return moved.reshape(-1, layout.n_classes) if keep is None else moved[as_index(keep, moved)]


def classes_last(array: Any, axis: int) -> Any:
    """A view with the axis of the classes at the end."""
    return array.movedim(axis, -1) if is_tensor(array) else np.moveaxis(array, axis, -1)


def as_index(keep: NDArray[np.bool_], array: Any) -> Any:
    """A mask that an array can be indexed with, on the array's device."""
    return array.new_tensor(keep, dtype=_torch().bool) if is_tensor(array) else keep


def filled(shape: tuple[int, ...], fill: float, logits: Any, *, whole: bool) -> Any:
    """An array for predictions on `logits`: a tensor for a tensor, on its device.

    Whole numbers are int64. Other predictions are float64; for a tensor of float32 or less they
    are float32, as of every calibrator.
    """
    if not is_tensor(logits):
        return np.full(shape, fill, np.int64 if whole else np.float64)
    torch = _torch()
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return torch.full(shape, fill, dtype=torch.int64 if whole else wide, device=logits.device)


def _torch() -> Any:
    import torch

    return torch
