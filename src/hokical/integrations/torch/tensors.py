"""Logits in a torch tensor: checked, and left on the device where they are.

`TensorLogits` stands wherever the core expects `Logits`. What the core asks of every row (its
label, its top) is computed on the device and comes to the host as one number per row. The logits
themselves never do: what would copy them raises. Functions of the core that go over all logits
have twins for tensors, registered in `hokical.integrations.torch.fits`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hokical.integrations.torch.kernels import rows as row_kernels
from hokical.logits import (
    Fitted,
    FloatArray,
    IntArray,
    Logits,
    check_column_count,
    check_matrix_shape,
    raise_bad_row,
)

#: Tensors of these types are computed with as they are; others are converted first.
_AS_THEY_ARE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
#: And these NumPy has as well.
_KNOWN_TO_NUMPY = (torch.float16, torch.float32, torch.float64)


class TensorLogits(Logits):
    """Checked logits (n, classes) in a tensor, on any device.

    >>> import torch
    >>> data = TensorLogits(torch.tensor([[1.0, 3.0], [2.0, 0.5]]))
    >>> data.labels, data.top
    (array([1, 0]), array([3., 2.]))
    """

    values: Any

    def __init__(self, values: Tensor) -> None:
        import hokical.integrations.torch.fits  # noqa: F401  (the twins for tensors)

        self.__dict__["values"] = values.detach()

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def rows_per_block(self) -> int:
        """All rows: the device has chunks of its own."""
        return self.n_rows

    @cached_property
    def device_top(self) -> Tensor:
        """Row maxima (n,) float64, on the device."""
        return row_kernels.top(self.values)

    @cached_property
    def device_labels(self) -> Tensor:
        """The classifier's own labels (n,), on the device."""
        return row_kernels.labels(self.values)

    @cached_property
    def top(self) -> FloatArray:  # type: ignore[override]
        """Row maxima (n,)."""
        return to_host(self.device_top)

    @cached_property
    def labels(self) -> IntArray:
        """The classifier's own label per row: the first maximum."""
        return to_host(self.device_labels)

    @cached_property
    def gaps(self) -> FloatArray:  # type: ignore[override]
        """How far the second largest logit lies below the largest in every row, (n,)."""
        return to_host(row_kernels.runner_up_gaps(self.values))

    @cached_property
    def all_possible_counts(self) -> IntArray:
        """How many classes of each row are possible (above -inf), (n,)."""
        return to_host(row_kernels.possible_counts(self.values))

    @cached_property
    def single_choice(self) -> NDArray[np.bool_]:
        """Rows in which every class but one is impossible (-inf), (n,)."""
        return np.asarray(self.all_possible_counts == 1)

    def beside(self, array: NDArray[Any]) -> Tensor:
        """An array of one number per row as a tensor on the device, kept for the next time."""
        kept = self.__dict__.setdefault("_beside", {})
        if id(array) not in kept:
            kept[id(array)] = (array, to_device(array, self.device))  # the array keeps its id alive
        tensor: Tensor = kept[id(array)][1]
        return tensor

    def of_class(self, classes: IntArray) -> FloatArray:
        """The logit of one class per row, (n,) float64."""
        column = to_device(classes, self.device)[:, None]
        return to_host(self.values.gather(1, column)[:, 0].double())

    def possible_counts(self, rows: slice) -> IntArray:
        """How many classes of each row are possible (above -inf), (rows,)."""
        return self.all_possible_counts[rows]

    def runner_up_gaps(self, rows: slice) -> FloatArray:
        """How far the second largest logit lies below the largest, (rows,)."""
        return self.gaps[rows]

    def take(self, rows: slice | IntArray) -> TensorLogits:
        """The same for some of the rows."""
        if isinstance(rows, slice):
            return TensorLogits(self.values[rows])
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return TensorLogits(self.values.index_select(0, to_device(index, self.device)))

    def row_blocks(self) -> Iterator[slice]:
        _refuse("row_blocks")

    def block(self, rows: slice) -> NDArray[Any]:
        _refuse("block")

    def margins(self, rows: slice) -> FloatArray:
        _refuse("margins")


def _refuse(what: str) -> NoReturn:
    raise TypeError(
        f"`{what}` would copy the logits from their device to the host. If that is wanted, pass "
        "`logits.cpu()`."
    )


def checked_tensor_logits(logits: Tensor, name: str, fitted_by: Fitted | None) -> TensorLogits:
    """`as_logits` for a tensor, with the checks, and the errors, that an array gets."""
    values = _float_matrix(logits, name)
    check_column_count(tuple(values.shape), name, fitted_by)
    checked = TensorLogits(values)
    bad = ~torch.isfinite(checked.device_top)
    if bool(bad.any()):
        row = int(torch.argmax(bad.int()))
        raise_bad_row(values[row].double().cpu().numpy(), row, name)
    return checked


def _float_matrix(logits: Tensor, name: str) -> Tensor:
    """Real, dense, 2-D with at least one row, of a float type."""
    if logits.layout != torch.strided:
        raise TypeError(f"`{name}` must be dense; got a {logits.layout} tensor. Use `.to_dense()`.")
    if logits.is_complex():
        raise ValueError(f"`{name}` must be real. Complex data not supported.")
    if logits.dtype == torch.bool:
        raise TypeError(
            f"`{name}` must be floating point; got dtype {logits.dtype}. Convert with `.float()`."
        )
    if logits.device.type == "mps":
        raise TypeError(
            f"`{name}` must be on a device with float64; got {logits.device}. Pass `.cpu()`."
        )
    check_matrix_shape(tuple(logits.shape), name)
    if logits.dtype in _AS_THEY_ARE:
        return logits.detach()
    return logits.detach().to(torch.float32 if logits.is_floating_point() else torch.float64)


def host_array(tensor: Tensor, name: str) -> NDArray[Any]:
    """A tensor as a NumPy array: one on the host where it lies, labels and weights brought to it.

    NumPy has no bfloat16, which is widened to float32. What has a number per class stays away.
    """
    if tensor.layout != torch.strided:
        raise TypeError(f"`{name}` must be dense; got a {tensor.layout} tensor. Use `.to_dense()`.")
    if tensor.device.type != "cpu" and tensor.ndim > 1:
        raise TypeError(
            f"`{name}` must be on the host; got a tensor of shape {tuple(tensor.shape)} on "
            f"{tensor.device}. Pass `.cpu()`."
        )
    tensor = tensor.detach()
    if tensor.is_floating_point() and tensor.dtype not in _KNOWN_TO_NUMPY:
        tensor = tensor.float()
    return np.asarray(tensor.cpu().resolve_neg().resolve_conj().numpy())


def to_host(tensor: Tensor) -> NDArray[Any]:
    """A tensor of one number per row, or of sums, as an array."""
    return np.asarray(tensor.cpu().numpy())


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array of one number per row, or of parameters, as a tensor on the device."""
    whole = np.ascontiguousarray(array)
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy()).to(device)


def to_tensors(answer: Any, device: torch.device) -> Any:
    """The arrays of an answer as tensors: of an array, a tuple, or a record's fields."""
    if isinstance(answer, np.ndarray):
        return torch.from_numpy(answer).to(device)
    if isinstance(answer, tuple):
        return tuple(to_tensors(part, device) for part in answer)
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        fields = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
        arrays = {
            name: to_tensors(value, device)
            for name, value in fields.items()
            if isinstance(value, np.ndarray)
        }
        return dataclasses.replace(answer, **arrays)
    return answer
