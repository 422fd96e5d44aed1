"""A network and its calibrator as one module."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from hokical._core.lazy import import_optional
from hokical._core.storage import CalibratorFileError
from hokical.calibrators import load as load_file
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.multilabel import MultilabelCalibrator
from hokical.calibrators.stored import refuse_groups
from hokical.integrations.torch import batches
from hokical.integrations.torch.batches import GetLogits, Outputs
from hokical.integrations.torch.module import (
    CalibratorModule,
    MultilabelModule,
    as_module,
    calibrator_text,
    parse_calibrator,
)

#: Under which names the calibrator, and how it is used, stand in the file of a network.
_CALIBRATOR, _USE = "hokical_calibrator", "hokical_use"
#: The file beside a network of transformers.
_BESIDE = "hokical.json"


class CalibratedOutput(NamedTuple):
    """`logits` of the network; `labels` and `confidence` without the class axis.

    Logits are those that the calibrator takes: two for a network with one output, logarithms where
    the network returns probabilities. Of several labels at once, `labels` are bool and `confidence`
    is the probability of each label, both of the shape of the logits.
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
    outputs : {"logits", "probabilities"}
        What the network returns: logits, or what a softmax or sigmoid made of them. One output, for
        class 1 of two, is either the log-odds or the probability. `calibrate` finds it.
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
        outputs: Outputs = "logits",
        as_tuple: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"`model` must be an nn.Module; got {type(model).__name__}.")
        batches.check_outputs(outputs)
        module: Any = calibrator if isinstance(calibrator, nn.Module) else as_module(calibrator)
        if isinstance(module, CalibratorModule):
            refuse_groups(module._spec.rule)
        self.model = model
        self.calibrator: Any = module.to(batches.device_of(model))
        self.class_axis = class_axis
        self.get_logits = batches.find_logits if get_logits is None else get_logits
        self.outputs: Outputs = outputs
        self.as_tuple = as_tuple
        self.training = model.training  # of this module alone: the network keeps its modes

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and confidence of what the network makes of its arguments.

        A `CalibratedOutput`, or with `as_tuple` a plain tuple.
        """
        found = self.get_logits(self.model(*args, **kwargs))
        rows = self._rows(found)
        one = rows.ndim > found.ndim or rows.shape[-1] > found.shape[self.class_axis]
        changed = one or self.outputs == "probabilities"
        logits = rows.movedim(-1, self.class_axis) if changed else found
        if isinstance(self.calibrator, MultilabelModule):
            proba = self.calibrator.proba(rows).movedim(-1, self.class_axis)
            output = CalibratedOutput(logits, proba >= 0.5, proba)
        else:
            output = CalibratedOutput(logits, *self.calibrator(rows))
        return (*output,) if self.as_tuple else output

    def _rows(self, found: Tensor) -> Tensor:
        """Logits (..., classes) of what the network returns, with the calibrator where they are."""
        self._bring_calibrator_to(found.device)
        several = isinstance(self.calibrator, MultilabelModule)
        if found.ndim == 1 and not several and self.calibrator.n_classes == 2:
            rows = found[:, None]  # one output, without an axis of its own
        else:
            rows = batches.classes_last(found, self.class_axis)
        return batches.outputs_as_logits(rows, self.outputs, several)

    @torch.no_grad()
    def predict_proba(self, *args: Any, **kwargs: Any) -> Tensor:
        """Calibrated probabilities, of the shape of the logits."""
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

        A pipeline's own `save_pretrained` and `push_to_hub` are refused: what they write would be
        read without the calibrator. Use those of this class, and `from_pretrained`.
        """
        batches.check_problem(self.model, isinstance(self.calibrator, MultilabelModule))
        twin = copy.copy(self.model)
        twin._forward_hooks = self.model._forward_hooks.copy()  # or the network had it too
        twin.register_forward_hook(self._with_log_proba)
        for name in ("save_pretrained", "push_to_hub"):
            setattr(twin, name, _refuse_to_save)
        return twin

    def _with_log_proba(self, model: nn.Module, args: Any, output: Any) -> Any:
        found = self.get_logits(output)
        rows = self._rows(found)
        proba = self.calibrator.proba(rows)
        if isinstance(self.calibrator, MultilabelModule):
            logs = torch.logit(proba)
        elif found.numel() < rows.numel():  # one output, of which the sigmoid is taken
            logs = torch.logit(proba[..., 1:])
        else:
            logs = batches.log_below_label(proba, self.calibrator.labels(rows))
        return batches.replace_logits(output, logs.movedim(-1, self.class_axis))

    @property
    def _use(self) -> dict[str, Any]:
        """How the calibrator is used, for files."""
        return {"class_axis": self.class_axis, "outputs": self.outputs}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network's numbers and the calibrator to one file (safetensors, no pickle).

        Those of the bare network, without `DataParallel`, `DistributedDataParallel` or the compiler
        around it.
        """
        safetensors = import_optional("safetensors.torch", "safetensors")
        about = {_CALIBRATOR: calibrator_text(self.fitted), _USE: json.dumps(self._use)}
        with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:  # the old file stays
            file = Path(folder, "network")
            safetensors.save_model(batches.bare(self.model), str(file), metadata=about)
            os.replace(file, path)

    def save_pretrained(self, folder: str | os.PathLike[str], **options: Any) -> None:
        """Save a network of transformers as it does itself, with `hokical.json` beside it.

        `options` are the network's. `CalibratedModel.from_pretrained(folder)` loads both.
        """
        self._pretrained("save_pretrained")(folder, **options)
        self.fitted.save(Path(folder, _BESIDE), metadata=self.fitted.metadata_ | {_USE: self._use})

    def push_to_hub(self, name: str, **options: Any) -> Any:
        """Upload a network of transformers as it does itself, with `hokical.json` beside it.

        `options` are those of the network's `push_to_hub`. `CalibratedModel.from_pretrained(name)`
        loads both.
        """
        self._pretrained("push_to_hub")
        network: Any = copy.copy(batches.bare(self.model))
        network.save_pretrained = self.save_pretrained  # which its `push_to_hub` calls
        return network.push_to_hub(name, **options)

    def _pretrained(self, method: str) -> Any:
        """A method that networks of transformers have."""
        found = getattr(batches.bare(self.model), method, None)
        if found is None:
            raise TypeError(
                f"the network must have `{method}`, as those of transformers do; got "
                f"{type(self.model).__name__}. Use `save`, which writes one file."
            )
        return found

    @classmethod
    def from_pretrained(
        cls, name: str | os.PathLike[str], model: Any = None, **options: Any
    ) -> Self:
        """A network of transformers and its calibrator, as `save_pretrained` left them.

        `name` is a folder, or a model on the hub. `model` is the class of the network, such as
        `AutoModelForSequenceClassification`, or the network itself; by default the class that the
        configuration names. `options` are those of the class's `from_pretrained`. The network is in
        evaluation mode.
        """
        transformers = import_optional("transformers", "transformers")
        where = {
            key: options[key]
            for key in ("revision", "token", "cache_dir", "subfolder", "local_files_only")
            if key in options
        }
        file = transformers.utils.cached_file(
            os.fspath(name), _BESIDE, _raise_exceptions_for_missing_entries=False, **where
        )
        if file is None:
            raise FileNotFoundError(
                f"{name} has no {_BESIDE}, which `CalibratedModel.save_pretrained` writes, or "
                "cannot be reached. Calibrate the network, `hokical.calibrate(network, loader)`."
            )
        if model is None:
            config = transformers.AutoConfig.from_pretrained(name, **where)
            model = getattr(transformers, config.architectures[0])
        network = model
        if not isinstance(network, nn.Module):
            network = model.from_pretrained(name, **options).eval()
        fitted: Any = load_file(file)
        use = fitted.metadata_.pop(_USE, {})
        return cls(network, fitted, **use)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: nn.Module | Callable[[], nn.Module],
        **options: Any,
    ) -> Self:
        """Read what `save` wrote into a network of the same architecture.

        `model` is that network, or a function that makes it: the file holds its numbers, not its
        code. `options` are those of the class; `class_axis` and `outputs` are known to the file.
        """
        network = model if isinstance(model, nn.Module) else model()
        if not isinstance(network, nn.Module):
            raise TypeError(
                "`model` must be the network, an nn.Module, or a function that makes it; got "
                f"{type(network).__name__}."
            )
        fitted, use, wrapped = _read_about(path)
        target = batches.bare(network)
        if wrapped:  # a file of 0.4, of a network within `DataParallel`
            target = nn.ModuleDict({"module": target})
        with torch.no_grad():
            import_optional("safetensors.torch", "safetensors").load_model(target, str(path))
        return cls(network, fitted, **use | options)

    def extra_repr(self) -> str:
        """The method, what was chosen and why, and where the classes are."""
        reason = getattr(self.fitted, "reason_", None)
        chosen = "" if reason is None else f"reason={reason!r}, "
        kind = "" if self.outputs == "logits" else f", outputs={self.outputs!r}"
        return f"method={self.fitted.name!r}, {chosen}class_axis={self.class_axis}{kind}"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Numbers of a network within `DataParallel` load into the bare one, and the reverse."""
        start, own = f"{prefix}model.", {*self.model.state_dict()}
        for name in [name for name in state_dict if name.startswith(start)]:
            rest = name.removeprefix(start)
            bare = rest.removeprefix("module.")
            for other in (bare, f"module.{bare}"):
                if rest not in own and other in own:
                    state_dict[start + other] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args)

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


def _read_about(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any], bool]:
    """The calibrator in a file of a network, as JSON beside the tensors, and how it is used.

    Also whether the names of all tensors begin with "module.".
    """
    safetensors = import_optional("safetensors.torch", "safetensors")
    Path(path).open("rb").close()  # for an error that names the file
    try:
        with safetensors.safe_open(str(path), framework="pt") as stored:
            about, names = stored.metadata() or {}, [*stored.keys()]
    except Exception as error:  # of a kind of its own
        raise CalibratorFileError(f"{path} is not a safetensors file: {error}") from error
    if _CALIBRATOR not in about:
        raise CalibratorFileError(
            f"{path} holds no calibrator; write it with `CalibratedModel.save`."
        )
    wrapped = bool(names) and all(name.startswith("module.") for name in names)
    return parse_calibrator(about[_CALIBRATOR]), json.loads(about.get(_USE, "{}")), wrapped


def _refuse_to_save(*_: Any, **__: Any) -> None:
    """Instead of the methods of a network that is made for pipelines."""
    raise ValueError(
        "a network of `for_pipeline()` cannot be saved: pipelines would read it without its "
        "calibrator. Save the calibrated model, `calibrated.save_pretrained(folder)` or "
        "`calibrated.push_to_hub(name)`, and read it with "
        "`CalibratedModel.from_pretrained(folder).for_pipeline()`."
    )
