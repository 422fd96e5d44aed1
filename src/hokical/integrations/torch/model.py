"""A network and its calibrator as one module: from a network and validation data, or
from files.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple, tree_map_only

from hokical._core.checks import check_choice
from hokical._core.conversion import LOG_ZERO, SUM_ERROR
from hokical._core.ensembles import Ensemble
from hokical._core.runtime import import_optional, progress_bar
from hokical._core.storage import CalibratorFileError, StrPath
from hokical.calibrators import load as load_file
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import MultilabelCalibrator
from hokical.calibrators.stored import refuse_groups
from hokical.guarantees.fingerprints import Reused
from hokical.guarantees.scores import SelectivePrediction
from hokical.guarantees.sets import PredictionSets
from hokical.integrations.torch import module as modules
from hokical.integrations.torch.module import (
    CalibratorModule,
    MultilabelModule,
    as_module,
)
from hokical.rules.sets import SetKind

#: Under which names the calibrator, and how it is used, stand in the file of a network.
_CALIBRATOR = "hokical_calibrator"
_USE = "hokical_use"
#: What names the members of an ensemble among that.
MEMBERS = "members"
#: The file beside a network of transformers.
_BESIDE = "hokical.json"
#: What a network returns: logits (of one class: log-odds), or what softmax or sigmoid
#: made of them.
Outputs = Literal["logits", "probabilities"]
#: The same, or to be found out from their values.
MaybeOutputs = Literal["logits", "probabilities", "auto"]
GetLogits = Callable[[Any], Tensor]
#: Under which names a batch that is a mapping has its labels.
_LABELS = ("labels", "label", "targets", "target", "y")
#: Rows of a batch where tensors are given instead of a loader.
_ROWS = 256
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


class CalibratedOutput(NamedTuple):
    """`logits` of the network; `labels` and `confidence` without the class axis.

    Logits are those that the calibrator takes: two for a network with one output,
    logarithms where the network returns probabilities. Of several labels at once,
    `labels` are bool and `confidence` is the probability of each label, both of the
    shape of the logits.
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
        Any network that returns logits. It is neither copied nor changed; training and
        evaluation mode, device, gradients are as ever. A network in training mode
        therefore stays in it: call `.eval()` before predicting.
    calibrator : a fitted calibrator, or a CalibratorModule
        It goes to where the logits are. `fitted` is the calibrator itself: for
        `fitted.save(...)`, and for guarantees, as in
        `fitted.predict_or_abstain(network(inputs), risk=0.05)`.
    class_axis : int
        Where the classes are in the logits: -1 for (n, classes) and (n, tokens,
        classes), 1 for (n, classes, height, width).
    get_logits : callable, optional
        From what the network returns to the logits. By default: a tensor as it is,
        `.logits` or `["logits"]`, or the first of a tuple.
    outputs : {"logits", "probabilities"}
        What the network returns: logits, or what a softmax or sigmoid made of them. One
        output, for class 1 of two, is either the log-odds or the probability.
        `calibrate` finds it.
    as_tuple : bool
        Return a plain tuple instead of a `CalibratedOutput`, so that an exported
        program can be loaded where hokical is not installed.

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
        calibrator: Calibrator
        | MultilabelCalibrator
        | CalibratorModule
        | MultilabelModule,
        *,
        class_axis: int = -1,
        get_logits: GetLogits | None = None,
        outputs: Outputs = "logits",
        as_tuple: bool = False,
    ) -> None:
        super().__init__()
        _check_network(model, "Pass the network itself.")
        check_choice("outputs", outputs, Outputs)
        module: Any = (
            calibrator if isinstance(calibrator, nn.Module) else as_module(calibrator)
        )
        if isinstance(module, CalibratorModule):
            refuse_groups(module.fitted.schema_)
        self.model = model
        self.class_axis = class_axis
        self.as_tuple = as_tuple
        self.calibrator: Any = module.to(_device_of(model))
        self.get_logits = get_logits or find_logits
        self.outputs = outputs
        self.training = (
            model.training
        )  # of this module alone: the network keeps its modes

    def forward(self, *args: object, **kwargs: object) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and confidence of what the network makes of its arguments.

        A `CalibratedOutput`, or with `as_tuple` a plain tuple.
        """
        found = self.get_logits(self.model(*args, **kwargs))
        rows = self._rows(found)
        logits = rows.movedim(-1, self.class_axis)
        if self._pools:
            output = CalibratedOutput(*self.calibrator.pool_and_predict(rows))
        elif isinstance(self.calibrator, MultilabelModule):
            proba = self.calibrator.proba(rows).movedim(-1, self.class_axis)
            output = CalibratedOutput(logits, proba >= 0.5, proba)
        else:
            output = CalibratedOutput(logits, *self.calibrator(rows))
        return (*output,) if self.as_tuple else output

    def _rows(self, found: Tensor) -> Tensor:
        """Logits (..., classes) of what the network returns, with the calibrator
        where they are.
        """
        known = not torch.compiler.is_compiling() and not found.is_meta
        if known and next(self.calibrator.buffers()).device != found.device:
            # The network was moved without this module, or lies on several devices. In
            # inference mode the numbers could not take part in a gradient later.
            with torch.inference_mode(False):
                self.calibrator.to(found.device)
        several = isinstance(self.calibrator, MultilabelModule)
        if found.ndim == 1 and not several and self.calibrator.n_classes == 2:
            rows = found[:, None]  # one output, without an axis of its own
        else:
            rows = classes_last(found, self.class_axis)
        return outputs_as_logits(rows, self.outputs, several)

    @torch.no_grad()
    def predict_proba(self, *args: object, **kwargs: object) -> Tensor:
        """Calibrated probabilities, of the shape of the logits."""
        return self.proba(*args, **kwargs)

    def proba(self, *args: object, **kwargs: object) -> Tensor:
        """The same with gradients."""
        rows = self._rows(self.get_logits(self.model(*args, **kwargs)))
        proba: Tensor = self.calibrator.proba(rows)
        return proba.movedim(-1, self.class_axis)

    def certify(
        self,
        data: Any,
        labels: object = None,
        *,
        device: torch.device | str | None = None,
        progress: bool | None = None,
        cluster: object = None,
        reused: Reused = "refuse",
    ) -> Self:
        """Note examples that nothing was fitted on, for `predict_or_abstain` and
        `predict_set`.

        `data` is a data loader or, with `labels` (n,), a tensor of inputs, as in
        `calibrate`; `cluster` and `reused` are those of `Calibrator.certify`. Files
        keep what was counted.
        """
        loader = data if labels is None else (data, torch.as_tensor(labels))
        scores, truth = self._evaluate(loader, device, progress)
        self.fitted.certify(scores, truth, cluster=cluster, reused=reused)
        return self

    def _evaluate(
        self,
        loader: object,
        device: torch.device | str | None,
        progress: bool | None,
    ) -> tuple[Tensor | Ensemble, Tensor]:
        """What the calibrator takes for the examples of a loader, and their labels."""
        reading = OutputReading(self.get_logits, self.class_axis, None, self.outputs)
        scores, labels, _, rank = collect_outputs(
            self.model, loader, reading, device, progress
        )
        if labels.ndim == 1:
            _refuse_maps(rank)
        return scores, labels

    @torch.no_grad()
    def predict_or_abstain(
        self, *args: object, risk: float = 0.05, delta: float = 0.1, **kwargs: object
    ) -> SelectivePrediction:
        """Labels, and which to accept so that at most a fraction `risk` is wrong.

        The other arguments are the network's. See `Calibrator.predict_or_abstain`;
        call `certify` first for a guarantee about the calibrated confidence.
        """
        calibrator, rows = self._one_label_rows(args, kwargs)
        return calibrator.predict_or_abstain(rows, risk=risk, delta=delta)

    @torch.no_grad()
    def predict_set(
        self,
        *args: object,
        coverage: float = 0.9,
        delta: float | None = None,
        by: Literal["all", "class"] = "all",
        kind: SetKind = "smallest",
        pooled: bool = False,
        penalty: float = 0.0,
        free_ranks: int = 0,
        allow_empty: bool = False,
        **kwargs: object,
    ) -> PredictionSets:
        """The classes that each example may have, with a `coverage` that is
        guaranteed.

        The other arguments are the network's. See `Calibrator.predict_set`; call
        `certify` first, so that sets go by the calibrated probabilities.
        """
        calibrator, rows = self._one_label_rows(args, kwargs)
        return calibrator.predict_set(
            rows,
            coverage=coverage,
            delta=delta,
            by=by,
            kind=kind,
            pooled=pooled,
            penalty=penalty,
            free_ranks=free_ranks,
            allow_empty=allow_empty,
        )

    def _one_label_rows(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Calibrator, Tensor | Ensemble]:
        """The calibrator, and the logits (n, classes) of the network's arguments."""
        calibrator = self.fitted
        if not isinstance(calibrator, Calibrator):
            raise TypeError(
                "guarantees of a network are for one label per example; this one has "
                "several. Use the calibrator: `fitted.predict_set(scores)`."
            )
        rows = self._rows(self.get_logits(self.model(*args, **kwargs)))
        if self._pools:
            return calibrator, as_ensemble(rows, calibrator)
        _refuse_maps(rows.ndim)
        return calibrator, rows

    @property
    def _pools(self) -> bool:
        """Whether the network gives several evaluations (members, n, classes)."""
        module = self.calibrator
        return isinstance(module, CalibratorModule) and module.pools

    def for_probabilities(self) -> ProbabilityNetwork:
        """A network that returns the calibrated probabilities alone.

        For `torch.onnx.export`, `torch.export` and whatever takes a network of one
        output. It shares this one's numbers.
        """
        return ProbabilityNetwork(self)

    @property
    def config(self) -> Any:
        """The network's `config`, as those of transformers have."""
        return self.model.config

    def for_pipeline(self) -> nn.Module:
        """The network for `transformers.pipeline(..., model=...)`, with calibrated
        scores.

        It is of the network's own class and shares its numbers. Its outputs have the
        logarithms of the calibrated probabilities as `logits`, of which the softmax
        makes the probabilities again (their log-odds and the sigmoid for several labels
        at once); a `loss` is as before. The network itself, and this module, are
        unchanged.

        A pipeline's label is that of `forward`. Where a method keeps the network's
        label, as Hoki does, and another class is more probable, the probability of that
        class is lowered to the label's.

        A pipeline's own `save_pretrained` and `push_to_hub` are refused: what they
        write would be read without the calibrator. Use those of this class, and
        `from_pretrained`.
        """
        wanted: list[Any] = [None, "single_label_classification"]
        if isinstance(self.calibrator, MultilabelModule):
            wanted = ["multi_label_classification"]
        problem = getattr(getattr(self.model, "config", None), "problem_type", None)
        if problem not in wanted:
            rule = (
                f"`model.config.problem_type` must be one of {wanted} for this "
                "calibrator"
            )
            why = (
                "because a pipeline takes the softmax or the sigmoid by it; got "
                f"{problem!r}"
            )
            remedy = (
                "For several labels at once calibrate with "
                "`hokical.MultilabelCalibrator`."
            )
            raise ValueError(f"{rule}, {why}. {remedy}")
        twin = copy.copy(self.model)
        twin._forward_hooks = (
            self.model._forward_hooks.copy()
        )  # or the network had it too
        twin.register_forward_hook(self._with_log_proba)
        for name in ("save_pretrained", "push_to_hub"):
            setattr(twin, name, _refuse_to_save)
        return twin

    def _with_log_proba(self, model: nn.Module, args: Any, output: object) -> Any:
        found = self.get_logits(output)
        rows = self._rows(found)
        proba = self.calibrator.proba(rows)
        if isinstance(self.calibrator, MultilabelModule):
            logs = torch.logit(proba)
        elif found.numel() < rows.numel():  # one output, of which the sigmoid is taken
            logs = torch.logit(proba[..., 1:])
        else:
            logs = log_below_label(proba, self.calibrator.labels(rows))
        if not isinstance(output, Mapping) or "logits" not in output:
            raise TypeError(
                "the network must return a mapping with `logits`, as those of "
                f"transformers do with `return_dict=True`; got {type(output).__name__}."
            )
        own: Any = type(output)
        return own(**{**output, "logits": logs.movedim(-1, self.class_axis)})

    @property
    def _use(self) -> dict[str, Any]:
        """How the calibrator is used, for files."""
        return {"class_axis": self.class_axis, "outputs": self.outputs}

    def save(self, path: StrPath) -> None:
        """Write the network's numbers and the calibrator to one file (safetensors, no
        pickle).

        Those of the bare network, without `DataParallel`, `DistributedDataParallel` or
        the compiler around it.
        """
        safetensors = import_optional("safetensors.torch", "safetensors")
        about = {
            _CALIBRATOR: modules.calibrator_text(self.fitted),
            _USE: json.dumps(self._use),
        }
        with tempfile.TemporaryDirectory(
            dir=Path(path).parent
        ) as folder:  # the old file stays
            file = Path(folder, "network")
            safetensors.save_model(bare(self.model), str(file), metadata=about)
            os.replace(file, path)

    def save_pretrained(self, folder: StrPath, **options: Any) -> None:
        """Save a network of transformers as it does itself, with `hokical.json` beside
        it.

        `options` are the network's. `CalibratedModel.from_pretrained(folder)` loads
        both.
        """
        self._pretrained("save_pretrained")(folder, **options)
        self.fitted.save(
            Path(folder, _BESIDE), metadata=self.fitted.metadata_ | {_USE: self._use}
        )

    def push_to_hub(self, name: str, **options: Any) -> Any:
        """Upload a network of transformers as it does itself, with `hokical.json`
        beside it.

        `options` are those of the network's `push_to_hub`.
        `CalibratedModel.from_pretrained(name)` loads both.
        """
        self._pretrained("push_to_hub")
        network: Any = copy.copy(bare(self.model))
        network.save_pretrained = self.save_pretrained  # which its `push_to_hub` calls
        return network.push_to_hub(name, **options)

    def _pretrained(self, method: str) -> Any:
        """A method that networks of transformers have."""
        found = getattr(bare(self.model), method, None)
        if found is None:
            rule = f"the network must have `{method}`, as those of transformers do"
            remedy = "Use `save`, which writes one file."
            raise TypeError(f"{rule}; got {type(self.model).__name__}. {remedy}")
        return found

    @classmethod
    def from_pretrained(cls, name: StrPath, model: Any = None, **options: Any) -> Self:
        """A network of transformers and its calibrator, as `save_pretrained` left them.

        `name` is a folder, or a model on the hub. `model` is the class of the network,
        such as `AutoModelForSequenceClassification`, or the network itself; by default
        the class that the configuration names. `options` are those of the class's
        `from_pretrained`. The network is in evaluation mode.
        """
        transformers = import_optional("transformers", "transformers")
        shared = ("revision", "token", "cache_dir", "subfolder", "local_files_only")
        where = {key: options[key] for key in shared if key in options}
        file = transformers.utils.cached_file(
            os.fspath(name),
            _BESIDE,
            _raise_exceptions_for_missing_entries=False,
            **where,
        )
        if file is None:
            rule = (
                f"{name} has no {_BESIDE}, which `CalibratedModel.save_pretrained` "
                "writes"
            )
            remedy = "Calibrate the network, `hokical.calibrate(network, loader)`."
            raise FileNotFoundError(f"{rule}, or cannot be reached. {remedy}")
        if model is None:
            config = transformers.AutoConfig.from_pretrained(name, **where)
            model = getattr(transformers, config.architectures[0])
        if not isinstance(model, nn.Module):
            model = model.from_pretrained(name, **options).eval()
        fitted: Any = load_file(file)
        return cls(model, fitted, **fitted.metadata_.pop(_USE, {}))

    @classmethod
    def load(
        cls, path: StrPath, model: nn.Module | Callable[[], nn.Module], **options: Any
    ) -> Self:
        """Read what `save` wrote into a network of the same architecture.

        `model` is that network, or a function that makes it: the file holds its
        numbers, not its code. `options` are those of the class; `class_axis` and
        `outputs` are known to the file.
        """
        network = model if isinstance(model, nn.Module) else model()
        _check_network(network, "Pass the network, or a function that makes it.")
        stored = StoredNetwork.read(path)
        if MEMBERS in stored.use:
            raise ValueError(
                f"{path} holds a network that is evaluated several times for each "
                f"example, {', '.join(stored.use[MEMBERS])}. Load it with "
                "`CalibratedEnsemble.load`, and its transformations."
            )
        stored.load_into(network)
        return cls(network, stored.fitted, **stored.use | options)

    def extra_repr(self) -> str:
        """The method, what was chosen and why, and where the classes are."""
        reason = getattr(self.fitted, "reason_", None)
        chosen = "" if reason is None else f"reason={reason!r}, "
        kind = "" if self.outputs == "logits" else f", outputs={self.outputs!r}"
        return (
            f"method={self.fitted.name!r}, {chosen}class_axis={self.class_axis}{kind}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, *args: object
    ) -> None:
        """Numbers of a network within `DataParallel` load into the bare one, and the
        reverse.
        """
        start = f"{prefix}model."
        own = {*self.model.state_dict()}
        for name in [name for name in state_dict if name.startswith(start)]:
            rest = name.removeprefix(start)
            bare = rest.removeprefix("module.")
            for other in (bare, f"module.{bare}"):
                if rest not in own and other in own:
                    state_dict[start + other] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def fitted(self) -> Calibrator | MultilabelCalibrator:
        """The calibrator, to be saved."""
        return cast(Calibrator | MultilabelCalibrator, self.calibrator.fitted)


@dataclass(frozen=True)
class StoredNetwork:
    """A file of `CalibratedModel.save`: the calibrator, how it is used, and names of
    the network's numbers.
    """

    path: StrPath
    fitted: Calibrator | MultilabelCalibrator
    use: dict[str, Any]
    names: list[str]

    @classmethod
    def read(cls, path: StrPath) -> Self:
        """All but the network's numbers."""
        safetensors = import_optional("safetensors.torch", "safetensors")
        Path(path).open("rb").close()  # for an error that names the file
        try:
            with safetensors.safe_open(str(path), framework="pt") as stored:
                about = stored.metadata() or {}
                names = [*stored.keys()]
        except Exception as error:  # of a kind of its own
            raise CalibratorFileError(
                f"{path} is not a safetensors file: {error}"
            ) from error
        if _CALIBRATOR not in about:
            remedy = "write it with `CalibratedModel.save`"
            raise CalibratorFileError(f"{path} holds no calibrator; {remedy}.")
        fitted = modules.parse_calibrator(about[_CALIBRATOR])
        return cls(path, fitted, json.loads(about.get(_USE, "{}")), names)

    def load_into(self, network: nn.Module) -> None:
        """Give a network of the same architecture the numbers of the file."""
        safetensors = import_optional("safetensors.torch", "safetensors")
        target = bare(network)
        if self.names and all(name.startswith("module.") for name in self.names):
            target = nn.ModuleDict(
                {"module": target}
            )  # of 0.4, a network within `DataParallel`
        with torch.no_grad():
            safetensors.load_model(target, str(self.path))


def as_ensemble(members: Tensor, calibrator: Calibrator) -> Ensemble:
    """Logits (members, n, classes) as the ensemble that a calibrator takes."""
    return Ensemble(members, exchangeable=calibrator.members_.exchangeable)


class ProbabilityNetwork(nn.Module):
    """A calibrated network whose forward gives its probabilities, of the shape of the
    logits.
    """

    def __init__(self, calibrated: CalibratedModel) -> None:
        super().__init__()
        self.calibrated = calibrated
        self.training = calibrated.training

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """The calibrated probabilities of what the network makes of its arguments."""
        return self.calibrated.proba(*args, **kwargs)


def collect_logits(
    model: nn.Module,
    loader: object,
    *,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    get_logits: GetLogits | None = None,
    class_axis: int = -1,
    ignore_label: int | None = None,
    outputs: MaybeOutputs = "auto",
) -> tuple[Tensor, Tensor]:
    """Run a network over a data loader: logits (n, classes) and labels (n,), on its
    device.

    In evaluation mode and without gradients; every part of the network has its own mode
    back afterwards, also after an error.

    `loader` gives batches: (inputs, labels); (inputs, labels, anything else) for a
    network of one argument, else more inputs with the labels last, or a tuple of them
    before; or mappings with "labels" or "target", whose other entries are the network's
    keyword arguments. A pair of tensors (X, y) is taken in batches of 256. Inputs are
    sent to `device`, by default where the network is. `get_logits` and `class_axis` are
    as in `CalibratedModel`: images and tokens are flattened, each position a row,
    without those labelled `ignore_label`, say -100 or 255. Labels of the shape of the
    logits, for several labels at once, are returned as (n, labels). `progress` shows a
    progress bar; None means: if stderr is a terminal.

    A network with one output, the log-odds of class 1, gives logits (n, 2). `outputs`
    says whether it returns "logits" or "probabilities", which become their logarithms
    (log-odds for several labels at once); "auto" takes outputs in [0, 1] for
    probabilities, where the rows of several classes sum to 1.

    >>> import torch
    >>> from hokical.integrations.torch import collect_logits
    >>> network = torch.nn.Linear(4, 3)
    >>> batches = [(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])) for _ in range(3)]
    >>> logits, labels = collect_logits(network, batches)
    >>> logits.shape, labels.shape
    (torch.Size([15, 3]), torch.Size([15]))
    """
    reading = OutputReading(get_logits, class_axis, ignore_label, outputs)
    return collect_outputs(model, loader, reading, device, progress)[:2]


@dataclass(frozen=True)
class OutputReading:
    """How a network's outputs become rows of logits; see `collect_logits`."""

    get_logits: GetLogits | None = None
    class_axis: int = -1
    ignore_label: int | None = None
    outputs: MaybeOutputs = "auto"
    #: Whether batches have one input; by default as the network's forward says.
    takes_one: bool | None = None


def collect_outputs(
    model: nn.Module,
    loader: Any,
    reading: OutputReading,
    device: torch.device | str | None,
    progress: bool | None,
) -> tuple[Tensor, Tensor, Outputs, int]:
    """What `collect_logits` returns, what the network's outputs are, and most axes
    of them.
    """
    _check_network(
        model, "Logits that you have are for `hokical.auto(logits, labels)`."
    )
    check_choice("outputs", reading.outputs, MaybeOutputs)
    place = _device_of(model) if device is None else torch.device(device)
    away = (
        place.type == "cuda"
    )  # towards the host the numbers would be read before they are there
    takes_one = reading.takes_one
    if takes_one is None:
        takes_one = takes_one_argument(model)
    is_pair = isinstance(loader, (tuple, list)) and len(loader) == 2
    if is_pair and all(isinstance(part, (Tensor, np.ndarray)) for part in loader):
        inputs, truth = map(torch.as_tensor, loader)
        if len(inputs) != len(truth):
            sizes = f"{len(inputs)} inputs and {len(truth)} labels"
            raise ValueError(
                f"inputs and labels must have the same length; got {sizes}."
            )
        dataset = torch.utils.data.TensorDataset(inputs, truth)
        # A generator of its own, or it would draw from the global one.
        loader = torch.utils.data.DataLoader(
            dataset, batch_size=_ROWS, generator=torch.Generator()
        )
    total = len(loader) if hasattr(loader, "__len__") else 0
    modes = [(module, module.training) for module in model.modules()]
    parts: list[tuple[Tensor, Tensor]] = []
    rank = 0
    model.eval()
    try:
        with (
            torch.no_grad(),
            progress_bar("collecting logits", total, progress) as advance,
        ):
            for batch in loader:
                data = dict(batch) if isinstance(batch, Mapping) else batch
                data = tree_map_only(
                    Tensor, lambda x: x.to(place, non_blocking=away), data
                )
                args, kwargs, labels = split_batch(data, takes_one)
                found = (reading.get_logits or find_logits)(model(*args, **kwargs))
                rank = max(rank, found.ndim)
                rows = _as_rows(found, labels, reading.class_axis, reading.ignore_label)
                parts.append(rows)
                advance()
    finally:
        for module, training in modes:
            module.training = training
    if not any(labels.numel() for _, labels in parts):
        raise ValueError(
            "`loader` must give at least one batch with a label that counts."
        )
    logits, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    several = labels.ndim == 2
    form = reading.outputs
    if form == "auto":
        form = form_of(logits, several)
    return outputs_as_logits(logits, form, several), labels, form, rank


def takes_one_argument(model: nn.Module) -> bool:
    """Whether a network has one positional argument, so that a batch has one input."""
    parameters = signature(bare(model).forward).parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    positional = [kind for kind in kinds if kind <= Parameter.VAR_POSITIONAL]
    return len(positional) == 1 and positional[0] < Parameter.VAR_POSITIONAL


def form_of(rows: Tensor, several: bool) -> Outputs:
    """What outputs (rows, classes) are, by their values.

    Probabilities lie in [0, 1] and, of several classes, each row sums to 1.
    """
    within = bool(((rows >= 0.0) & (rows <= 1.0)).all())
    if within and not several and rows.shape[1] > 1:
        within = bool(((rows.double().sum(dim=1) - 1.0).abs() <= SUM_ERROR).all())
    return "probabilities" if within else "logits"


def split_batch(
    batch: object, takes_one: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Positional arguments, keyword arguments and labels of a batch.

    Labels come last; after the inputs if the network takes one argument, as in (x, y,
    index). A tuple of inputs is passed as so many arguments, unless the network takes
    one.

    >>> split_batch(("inputs", "labels"))
    (('inputs',), {}, 'labels')
    >>> split_batch(("inputs", "labels", "index"), takes_one=True)
    (('inputs',), {}, 'labels')
    >>> split_batch((("image", "text"), "labels"))
    (('image', 'text'), {}, 'labels')
    """
    if isinstance(batch, Mapping):
        for name in _LABELS:
            if name in batch:
                return (
                    (),
                    {key: batch[key] for key in batch if key != name},
                    batch[name],
                )
    elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
        n_inputs = 1 if takes_one else len(batch) - 1
        inputs = batch[:n_inputs]
        labels = batch[n_inputs]
        if len(inputs) == 1 and not takes_one:  # what is nested are the arguments
            if isinstance(inputs[0], Mapping):
                return (), dict(inputs[0]), labels
            inputs = inputs[0] if isinstance(inputs[0], (tuple, list)) else inputs
        return tuple(inputs), {}, labels
    found = (
        f"keys {list(batch)}" if isinstance(batch, Mapping) else type(batch).__name__
    )
    rule = (
        "a batch must be (inputs, labels), or a mapping with one of "
        f"{', '.join(_LABELS)}"
    )
    remedy = "Wrap the loader: `((batch.x, batch.y) for batch in loader)`."
    raise TypeError(f"{rule}; got {found}. {remedy}")


def find_logits(output: object) -> Tensor:
    """The logits in a model's output: a tensor, `.logits`, `["logits"]`, or first of a
    tuple.

    >>> import torch
    >>> find_logits({"loss": None, "logits": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    found = output.get("logits") if isinstance(output, Mapping) else None
    found = getattr(output, "logits", None) if found is None else found
    if found is None and isinstance(output, (tuple, list)) and output:
        found = output[0]
    if isinstance(found, Tensor):
        return found
    rule = (
        "a tensor, have `logits` as an attribute or key, or be a tuple that begins "
        "with them"
    )
    remedy = "Say where they are with `get_logits=lambda output: ...`."
    raise TypeError(
        f"a network's output must be {rule}; got {type(output).__name__}. {remedy}"
    )


def log_below_label(proba: Tensor, labels: Tensor) -> Tensor:
    """Logarithms of probabilities (..., classes) whose first maximum is at the labels
    (...).

    Probabilities that differ by a rounding can have the same logarithm; and where a
    method keeps the network's label, another class may be more probable: it is then
    lowered to the label's.
    """
    logs = proba.log()
    best = labels[..., None]
    top = logs.gather(-1, best).detach()
    earlier = torch.arange(proba.shape[-1], device=proba.device) < best
    info = torch.finfo(top.dtype)
    # At least one rounding below: `nextafter` has no operator in ONNX.
    below = top - (top.abs() * info.eps + info.smallest_normal)
    return torch.minimum(logs, torch.where(earlier, below, top))


def classes_last(logits: Tensor, class_axis: int) -> Tensor:
    """The logits (..., classes) with the class axis moved to the end."""
    if not -logits.ndim <= class_axis < logits.ndim:
        rule = f"an axis of the logits, which have shape {tuple(logits.shape)}"
        raise ValueError(f"`class_axis` must be {rule}; got {class_axis}.")
    return logits.movedim(class_axis, -1)


def outputs_as_logits(rows: Tensor, outputs: Outputs, several: bool) -> Tensor:
    """Logits (..., classes) of a network's outputs (..., classes), two of one class
    (..., 1).

    Without a look at the values, for graphs; gradients pass. Zeros are as in
    `hokical.from_probabilities`, and in `from_binary_probabilities` for sigmoids.
    """
    one = rows.shape[-1] == 1 and not several
    if outputs == "probabilities":
        rows = rows if rows.dtype == torch.float64 else rows.float()
        info = torch.finfo(rows.dtype)
        if one or several:
            rows = torch.logit(rows.clamp(info.smallest_normal, 1.0 - 0.5 * info.eps))
        else:  # without gradients that no float can hold
            sound = rows.clamp_min(info.smallest_normal)
            logs = log_below_label(sound, rows.argmax(dim=-1))
            rows = torch.where(rows <= 0.0, LOG_ZERO, logs)
    return torch.cat([torch.zeros_like(rows), rows], dim=-1) if one else rows


def bare(model: nn.Module) -> nn.Module:
    """The network within `DataParallel`, `DistributedDataParallel` and
    `torch.compile`.
    """
    inner: Any = model
    while isinstance(inner, nn.Module):
        model = inner
        wraps = isinstance(inner, _WRAPPERS)
        inner = inner.module if wraps else getattr(inner, "_orig_mod", None)
    return model


def _as_rows(
    found: Tensor, labels: object, class_axis: int, ignore_label: int | None
) -> tuple[Tensor, Tensor]:
    """Outputs (rows, classes) and labels (rows,), without positions that do not count.

    One output for class 1 of two, with an axis of its own or without, is (rows, 1).
    """
    truth = torch.as_tensor(labels, device=found.device)
    if found.ndim == 1 and truth.shape in (found.shape, (*found.shape, 1)):
        found = found[:, None]
        class_axis = -1
    logits = classes_last(found, class_axis)
    one = logits.shape[-1] == 1
    if (
        truth.shape == found.shape and found.ndim == 2 and not one
    ):  # several labels at once
        return logits, truth
    if one and truth.shape == found.shape:
        truth = truth.squeeze(class_axis)
    if truth.shape != logits.shape[:-1]:
        remedy = "Give `class_axis` if the classes are not last"
        if truth.ndim == logits.ndim and truth.shape[-1] == 1:
            remedy = "Use `labels.squeeze(-1)`"
        rule = "a batch's labels must have the shape of its logits without the classes"
        raise ValueError(
            f"{rule}, {tuple(logits.shape[:-1])}; got {tuple(truth.shape)}. {remedy}."
        )
    rows = logits.reshape(-1, logits.shape[-1])
    truth = truth.reshape(-1)
    if one and truth.is_floating_point() and bool((truth == truth.round()).all()):
        truth = truth.long()  # as the loss of such networks wants them
    if ignore_label is not None:
        counts = truth != ignore_label
        rows = rows[counts]
        truth = truth[counts]
    return rows, truth


def _device_of(model: nn.Module) -> torch.device:
    """The device of a network: that of its first parameter or buffer, else the host."""
    return next(
        (x.device for x in (*model.parameters(), *model.buffers())), torch.device("cpu")
    )


def _refuse_maps(rank: int) -> None:
    """Raise where a network has several positions for each example."""
    if rank > 2:
        raise ValueError(
            "the network must give one label per example for guarantees; got outputs "
            f"of {rank} axes, whose positions are not independent. Use "
            "`hokical.Dense`, which certifies by item."
        )


def _check_network(model: Any, remedy: str) -> None:
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise TypeError(
            f"`model` must be a network, an nn.Module; got {kind}. {remedy}"
        )


def _refuse_to_save(*_: Any, **__: Any) -> None:
    """Instead of the methods of a network that is made for pipelines."""
    raise ValueError(
        "a network of `for_pipeline()` cannot be saved: pipelines would read it "
        "without its calibrator. Save the calibrated model, "
        "`calibrated.save_pretrained(folder)` or `calibrated.push_to_hub(name)`, and "
        "read it with `CalibratedModel.from_pretrained(folder).for_pipeline()`."
    )
