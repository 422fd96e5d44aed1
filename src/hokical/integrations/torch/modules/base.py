"""What every calibrator is as an `nn.Module`: buffers that hold the fit, and two answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from hokical.calibrators.base import BaseCalibrator
from hokical.integrations.torch.kernels import rows


class Prediction(NamedTuple):
    """`labels` int64 and `confidence`, one of each per row of logits."""

    labels: Tensor
    confidence: Tensor


# `torch.export.save` writes down what a program returns, and knows only what was registered.
_register_namedtuple(Prediction, serialized_type_name="hokical.Prediction")


class CalibratorModule(nn.Module):
    """A fitted calibrator as a module; `as_module` makes one.

    The fitted numbers are float64 buffers: they are part of the `state_dict`, follow `.to(device)`,
    and stay float64 under `.half()` and the like. All is computed in float64, so autocast changes
    nothing. There are no parameters: nothing here is trained.

    `forward` and `proba` look at shapes alone, never at values, so that they can be exported and a
    GPU need not wait: a row with NaN or +inf, or with nothing but -inf, gets confidence NaN.

    Attributes
    ----------
    n_classes : number of logits per row
    fitted : the calibrator this was made from; None once other numbers have been loaded
    """

    #: Whether labels are always the classifier's own.
    preserves_labels: ClassVar[bool] = True
    #: Buffers whose size is a matter of the fit, so that other sizes can be loaded.
    free_sizes: ClassVar[frozenset[str]] = frozenset()

    kind: Tensor

    def __init__(self, calibrator: BaseCalibrator, *details: str) -> None:
        super().__init__()
        self.n_classes = int(calibrator.n_classes_)
        self.fitted: BaseCalibrator | None = calibrator
        words = ", ".join([calibrator.name, f"{self.n_classes} classes", *details])
        # So that numbers of another kind are refused, even where the sizes agree.
        self._keep("kind", np.frombuffer(words.encode(), np.uint8))

    def forward(self, logits: Tensor) -> Prediction:
        """Labels and confidence of logits (..., classes), both of the leading shape.

        Confidence is float32, and float64 where the logits are.
        """
        values = self._checked(logits)
        parts = [self._answer(chunk) for chunk in rows.row_chunks(values, self._floats_per_row)]
        return shaped(Prediction(*map(joined, zip(*parts, strict=True))), logits)

    def proba(self, logits: Tensor) -> Tensor:
        """Probabilities of logits (..., classes), of the same shape."""
        values = self._checked(logits)
        parts = [
            marked(self._proba(chunk), chunk).to(result_dtype(logits))
            for chunk in rows.row_chunks(values, self.n_classes)
        ]
        return joined(parts).reshape(logits.shape)

    def labels(self, logits: Tensor) -> Tensor:
        """Labels of logits (..., classes): the classifier's own where the method keeps them."""
        if self.preserves_labels:
            return rows.labels(self._checked(logits)).reshape(logits.shape[:-1])
        return self(logits).labels

    def _answer(self, values: Tensor) -> Prediction:
        """Labels and confidence (n,), float64, of some rows."""
        if self.preserves_labels:
            labels = rows.labels(values)
            return Prediction(labels, marked(self._confidence(values, labels), values, labels))
        proba = self._proba(values)
        labels = rows.labels(proba)
        return Prediction(labels, at(proba, labels))

    def _confidence(self, values: Tensor, labels: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say how sure a label is.")

    def _proba(self, values: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} does not say how to share.")

    @property
    def _floats_per_row(self) -> int:
        """How many numbers per row `_answer` makes at a time."""
        return self.n_classes

    def _checked(self, logits: Tensor) -> Tensor:
        """The logits as rows (n, classes), floating point."""
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"`logits` must be a tensor; got {type(logits).__name__}. The calibrator itself "
                "takes arrays."
            )
        if logits.ndim < 1 or logits.shape[-1] != self.n_classes:
            raise ValueError(
                f"`logits` must have {self.n_classes} classes, along the last axis; got shape "
                f"{tuple(logits.shape)}. Move the axis there with `.movedim(1, -1)`."
            )
        values = logits if logits.is_floating_point() else logits.double()
        return values.reshape(-1, self.n_classes)

    def _keep(self, name: str, value: Any) -> None:
        """A buffer that owns its numbers."""
        self.register_buffer(name, torch.tensor(np.asarray(value)))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow to other devices, and never to another dtype."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **options: Any
    ) -> None:
        errors: list[str] = args[-1] if args else options["error_msgs"]
        stored = state_dict.get(f"{prefix}kind")
        if stored is not None and not torch.equal(stored.cpu(), self.kind.cpu()):
            errors.append(
                f"the module is for {_words(self.kind)}; got the numbers of {_words(stored)}. Make "
                "it from a calibrator of that kind, for example from its file: "
                '`as_module(hokical.load("cal.json"))`.'
            )
            return
        given = self._in_own_dtypes(state_dict, prefix)
        for name in self.free_sizes & given.keys():
            buffer = getattr(self, name)
            if given[name].ndim == buffer.ndim:
                setattr(self, name, buffer.new_empty(given[name].shape))
        own = {prefix + name: value for name, value in given.items()}
        super()._load_from_state_dict({**state_dict, **own}, prefix, *args, **options)
        if given:  # and not the network's numbers alone
            self.fitted = None
            self._refresh()

    def _in_own_dtypes(self, state_dict: dict[str, Any], prefix: str) -> dict[str, Tensor]:
        """What there is for the buffers, by name: also where it is assigned, not copied."""
        return {
            name: state_dict[prefix + name].to(buffer.dtype)
            for name, buffer in self._buffers.items()
            if buffer is not None and isinstance(state_dict.get(prefix + name), Tensor)
        }

    def _refresh(self) -> None:
        """After other numbers have been loaded."""

    def extra_repr(self) -> str:
        return _words(self.kind)


def result_dtype(logits: Tensor) -> torch.dtype:
    """Of confidence and probabilities: float32, except for logits that say more."""
    narrow = logits.dtype in (torch.float16, torch.bfloat16, torch.float32)
    return torch.float32 if narrow else torch.float64


def shaped(prediction: Prediction, logits: Tensor) -> Prediction:
    """Labels and confidence (n,) with the leading shape of the logits, and in their dtype."""
    shape = logits.shape[:-1]
    confidence = prediction.confidence.to(result_dtype(logits))
    return Prediction(prediction.labels.reshape(shape), confidence.reshape(shape))


def joined(parts: Any) -> Tensor:
    """Parts along the rows as one."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


def at(table: Tensor, labels: Tensor) -> Tensor:
    """The entry (n,) of each row (n, classes) at its label."""
    return table.gather(1, labels[:, None])[:, 0]


def marked(result: Tensor, values: Tensor, labels: Tensor | None = None) -> Tensor:
    """The result (n,) or (n, classes), NaN for rows that are no logits.

    The first maximum of a row shows all that can be wrong with it: it is NaN or infinite.
    """
    top = at(values.detach(), rows.labels(values) if labels is None else labels)
    sound = torch.isfinite(top)
    return torch.where(sound if result.ndim == 1 else sound[:, None], result, torch.nan)


def _words(kind: Tensor) -> str:
    return bytes(kind.tolist()).decode(errors="replace")
