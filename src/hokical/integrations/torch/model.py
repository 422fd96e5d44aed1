"""A network and its calibrator as one module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from hokical.calibrators.calibrator import Calibrator
from hokical.integrations.torch.module import CalibratorModule, as_module
from hokical.integrations.torch.outputs import GetLogits, classes_last, find_logits


class CalibratedOutput(NamedTuple):
    """`logits` as the network gave them; `labels` and `confidence` without the class axis."""

    logits: Tensor
    labels: Tensor
    confidence: Tensor


_register_namedtuple(CalibratedOutput, serialized_type_name="hokical.CalibratedOutput")


class CalibratedModel(nn.Module):
    """A network whose forward gives logits, labels and confidence.

    Parameters
    ----------
    model : nn.Module
        Any network that returns logits. It is neither copied nor changed; training and evaluation
        mode, device, gradients are as ever. A network in training mode therefore stays in it:
        call `.eval()` before predicting.
    calibrator : a fitted calibrator, or a CalibratorModule
    class_axis : int
        Where the classes are in the logits: -1 for (n, classes) and (n, tokens, classes), 1 for
        (n, classes, height, width).
    get_logits : callable, optional
        From what the network returns to the logits. By default: a tensor as it is, `.logits` or
        `["logits"]`, or the first of a tuple.
    transforms : sequence of callables, optional
        For ReCal: the transformations used in its fit, in that order. Each takes the network's
        first argument, and the network runs once more for each.
    as_tuple : bool
        Return a plain tuple instead of a `CalibratedOutput`, so that an exported program can be
        loaded where hokical is not installed.

    Attributes
    ----------
    model, calibrator : the two modules; the calibrator goes to where the logits are
    fitted : the calibrator this was made with, for `fitted.save(...)`

    Examples
    --------
    >>> import torch
    >>> from hokical import Hoki
    >>> from hokical.integrations.torch import CalibratedModel
    >>> _ = torch.manual_seed(0)
    >>> labels = torch.randint(3, (500,))
    >>> inputs = torch.nn.functional.one_hot(labels, 3) + 0.7 * torch.randn(500, 3)
    >>> network = torch.nn.Linear(3, 3)
    >>> _ = torch.nn.init.eye_(network.weight)
    >>> with torch.no_grad():
    ...     cal = Hoki().fit(5 * network(inputs), labels)
    >>> calibrated = CalibratedModel(network, cal).eval()
    >>> output = calibrated(inputs[:4])
    >>> output.logits.shape, output.labels.shape, output.confidence.shape
    (torch.Size([4, 3]), torch.Size([4]), torch.Size([4]))
    """

    def __init__(
        self,
        model: nn.Module,
        calibrator: Calibrator | CalibratorModule,
        *,
        class_axis: int = -1,
        get_logits: GetLogits | None = None,
        transforms: Sequence[Callable[[Any], Any]] | None = None,
        as_tuple: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"`model` must be an nn.Module; got {type(model).__name__}.")
        if not isinstance(calibrator, CalibratorModule):
            calibrator = as_module(calibrator)
        self.model = model
        self.calibrator = calibrator.to(device_of(model))
        self.class_axis = class_axis
        self.get_logits = find_logits if get_logits is None else get_logits
        self.transforms = _checked_transforms(calibrator, transforms)
        self.as_tuple = as_tuple
        self.training = model.training  # of this module alone: the network keeps its modes

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and confidence of what the network makes of its arguments.

        A `CalibratedOutput`, or with `as_tuple` a plain tuple.
        """
        logits = self.get_logits(self.model(*args, **kwargs))
        self._bring_calibrator_to(logits.device)
        given = {}
        if self.transforms:
            first, *others = args
            views = [
                self.get_logits(self.model(transform(first), *others, **kwargs))
                for transform in self.transforms
            ]
            given["transformed"] = classes_last(torch.stack(views), _after(self.class_axis))
        answer = self.calibrator(classes_last(logits, self.class_axis), **given)
        output = CalibratedOutput(logits, answer.labels, answer.confidence)
        return (*output,) if self.as_tuple else output

    def _bring_calibrator_to(self, device: torch.device) -> None:
        """The network may have been moved without this module, or lie on several devices."""
        if torch.compiler.is_compiling() or device.type == "meta":
            return
        if self.calibrator.kind.device != device:
            with torch.inference_mode(False):  # or its numbers could not take part in a gradient
                self.calibrator.to(device)

    @property
    def fitted(self) -> Calibrator | None:
        """The calibrator this was made with, to be saved; None once a state dict was loaded."""
        return self.calibrator.fitted


def device_of(model: nn.Module) -> torch.device:
    """The device of a network: that of its first parameter or buffer, else the host."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def _after(class_axis: int) -> int:
    """The same axis with one more in front of all."""
    return class_axis + 1 if class_axis >= 0 else class_axis


def _checked_transforms(
    module: CalibratorModule, transforms: Sequence[Callable[[Any], Any]] | None
) -> list[Callable[[Any], Any]]:
    """As many as ReCal was fitted with, and none for the others."""
    found = [] if transforms is None else list(transforms)
    wanted = module.n_transforms
    if len(found) != wanted:
        raise ValueError(
            f"`transforms` must be the {wanted} transformations of the calibrator's fit, in that "
            f"order; got {len(found)}. Only ReCal has any."
        )
    return found
