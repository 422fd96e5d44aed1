"""A network and its calibrator as one module."""

import copy
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from hokical._core.optional import import_optional
from hokical._core.storage import CalibratorFileError
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._method import refuse_groups
from hokical.calibrators._multilabel import MultilabelCalibrator
from hokical.integrations.torch import _batches as batches
from hokical.integrations.torch._batches import GetLogits
from hokical.integrations.torch._module import (
    CalibratorModule,
    MultilabelModule,
    as_module,
    read_calibrator,
    write_calibrator,
)

#: Under which name the calibrator stands in the file of a network.
_CALIBRATOR = "hokical_calibrator"


class CalibratedOutput(NamedTuple):
    """`logits` as the network gave them; `labels` and `confidence` without the class axis.

    Of several labels at once, `labels` are bool and `confidence` is the probability of each label,
    both of the shape of the logits.
    """

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
        It goes to where the logits are. `fitted` is the calibrator itself: for `fitted.save(...)`,
        and for guarantees, as in `fitted.predict_or_abstain(network(inputs), risk=0.05)`.
    class_axis : int
        Where the classes are in the logits: -1 for (n, classes) and (n, tokens, classes), 1 for
        (n, classes, height, width).
    get_logits : callable, optional
        From what the network returns to the logits. By default: a tensor as it is, `.logits` or
        `["logits"]`, or the first of a tuple.
    as_tuple : bool
        Return a plain tuple instead of a `CalibratedOutput`, so that an exported program can be
        loaded where hokical is not installed.

    Examples
    --------
    >>> import torch
    >>> from hokical import Hoki
    >>> from hokical.integrations.torch import CalibratedModel
    >>> _ = torch.manual_seed(0)
    >>> labels = torch.randint(3, (500,))
    >>> inputs = torch.nn.functional.one_hot(labels, 3) + 0.7 * torch.randn(500, 3)
    >>> network = torch.nn.Linear(3, 3)
    >>> with torch.no_grad():
    ...     cal = Hoki().fit(5 * network(inputs), labels)
    >>> output = CalibratedModel(network, cal).eval()(inputs[:4])
    >>> output.logits.shape, output.labels.shape, output.confidence.shape
    (torch.Size([4, 3]), torch.Size([4]), torch.Size([4]))
    """

    def __init__(
        self,
        model: nn.Module,
        calibrator: Calibrator | MultilabelCalibrator | CalibratorModule | MultilabelModule,
        *,
        class_axis: int = -1,
        get_logits: GetLogits | None = None,
        as_tuple: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"`model` must be an nn.Module; got {type(model).__name__}.")
        module: Any = calibrator if isinstance(calibrator, nn.Module) else as_module(calibrator)
        if isinstance(module, CalibratorModule):
            refuse_groups(module._spec.rule)
        self.model = model
        self.calibrator: Any = module.to(batches.device_of(model))
        self.class_axis = class_axis
        self.get_logits = batches.find_logits if get_logits is None else get_logits
        self.as_tuple = as_tuple
        self.training = model.training  # of this module alone: the network keeps its modes

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and confidence of what the network makes of its arguments.

        A `CalibratedOutput`, or with `as_tuple` a plain tuple.
        """
        logits = self.get_logits(self.model(*args, **kwargs))
        rows = self._rows(logits)
        if isinstance(self.calibrator, MultilabelModule):
            proba = self.calibrator.proba(rows).movedim(-1, self.class_axis)
            output = CalibratedOutput(logits, proba >= 0.5, proba)
        else:
            output = CalibratedOutput(logits, *self.calibrator(rows))
        return (*output,) if self.as_tuple else output

    def _rows(self, logits: Tensor) -> Tensor:
        """The logits (..., classes), with the calibrator where they are."""
        self._bring_calibrator_to(logits.device)
        return batches.classes_last(logits, self.class_axis)

    @torch.no_grad()
    def predict_proba(self, *args: Any, **kwargs: Any) -> Tensor:
        """Calibrated probabilities, of the shape of the network's logits."""
        rows = self._rows(self.get_logits(self.model(*args, **kwargs)))
        proba: Tensor = self.calibrator.proba(rows)
        return proba.movedim(-1, self.class_axis)

    @property
    def config(self) -> Any:
        """The network's `config`, as those of transformers have."""
        return self.model.config

    def for_pipeline(self) -> nn.Module:
        """The network for `transformers.pipeline(..., model=...)`, with calibrated scores.

        It is of the network's own class and shares its numbers. Its outputs have the logarithms of
        the calibrated probabilities as `logits`, of which the softmax makes the probabilities
        again (their log-odds and the sigmoid for several labels at once); a `loss` is as before.
        The network itself, and this module, are unchanged.

        A pipeline's label is that of `forward`. Where a method keeps the network's label, as Hoki
        does, and another class is more probable, the probability of that class is lowered to the
        label's.
        """
        batches.check_problem(self.model, isinstance(self.calibrator, MultilabelModule))
        twin = copy.copy(self.model)
        twin._forward_hooks = self.model._forward_hooks.copy()  # or the network had it too
        twin.register_forward_hook(self._with_log_proba)
        return twin

    def _with_log_proba(self, model: nn.Module, args: Any, output: Any) -> Any:
        rows = self._rows(self.get_logits(output))
        if isinstance(self.calibrator, MultilabelModule):
            logs = torch.logit(self.calibrator.proba(rows))
        else:
            labels = self.calibrator.labels(rows)
            logs = batches.log_probabilities(self.calibrator.proba(rows), labels)
        return batches.replace_logits(output, logs.movedim(-1, self.class_axis))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network's numbers and the calibrator to one file (safetensors, no pickle)."""
        safetensors = import_optional("safetensors.torch", "safetensors")
        about = {_CALIBRATOR: write_calibrator(self.fitted)}
        with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:  # the old file stays
            safetensors.save_model(self.model, str(Path(folder, "network")), metadata=about)
            os.replace(Path(folder, "network"), path)

    def save_pretrained(self, folder: str | os.PathLike[str], **options: Any) -> None:
        """Save a network of transformers as it does itself, with `hokical.json` beside it.

        `options` are the network's. To load both: `CalibratedModel(AutoModel...from_pretrained(
        folder), hokical.load(folder / "hokical.json"))`.
        """
        network = cast(Any, self.model)
        if not hasattr(network, "save_pretrained"):
            raise TypeError(
                "the network must have `save_pretrained`, as those of transformers do; got "
                f"{type(self.model).__name__}. Use `save`, which writes one file."
            )
        network.save_pretrained(folder, **options)
        self.fitted.save(Path(folder, "hokical.json"))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: nn.Module | Callable[[], nn.Module],
        **options: Any,
    ) -> Self:
        """Read what `save` wrote into a network of the same architecture.

        `model` is that network, or a function that makes it: the file holds its numbers, not its
        code. `options` are those of the class, such as `class_axis`.
        """
        network = model if isinstance(model, nn.Module) else model()
        if not isinstance(network, nn.Module):
            raise TypeError(
                "`model` must be the network, an nn.Module, or a function that makes it; got "
                f"{type(network).__name__}."
            )
        fitted = _read_calibrator(path)
        with torch.no_grad():
            import_optional("safetensors.torch", "safetensors").load_model(network, str(path))
        return cls(network, fitted, **options)

    def extra_repr(self) -> str:
        """The method, what was chosen and why, and where the classes are."""
        reason = getattr(self.fitted, "reason_", None)
        chosen = "" if reason is None else f"reason={reason!r}, "
        return f"method={self.fitted.name!r}, {chosen}class_axis={self.class_axis}"

    def _bring_calibrator_to(self, device: torch.device) -> None:
        """The network may have been moved without this module, or lie on several devices."""
        if torch.compiler.is_compiling() or device.type == "meta":
            return
        if next(self.calibrator.buffers()).device != device:
            with torch.inference_mode(False):  # or its numbers could not take part in a gradient
                self.calibrator.to(device)

    @property
    def fitted(self) -> Calibrator | MultilabelCalibrator:
        """The calibrator, to be saved."""
        return cast(Calibrator | MultilabelCalibrator, self.calibrator.fitted)


def _read_calibrator(path: str | os.PathLike[str]) -> Any:
    """The calibrator in a file of a network, which stands there as JSON beside the tensors."""
    safetensors = import_optional("safetensors.torch", "safetensors")
    Path(path).open("rb").close()  # for an error that names the file
    try:
        with safetensors.safe_open(str(path), framework="pt") as stored:
            text = (stored.metadata() or {}).get(_CALIBRATOR)
    except Exception as error:  # of a kind of its own
        raise CalibratorFileError(f"{path} is not a safetensors file: {error}") from error
    if text is None:
        raise CalibratorFileError(
            f"{path} holds no calibrator; write it with `CalibratedModel.save`."
        )
    return read_calibrator(text)
