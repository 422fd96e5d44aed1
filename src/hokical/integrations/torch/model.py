"""A network and its calibrator as one module: from a network and validation data, or
from files.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Self, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from hokical._core.checks import check_choice
from hokical._core.ensembles import Ensemble
from hokical._core.runtime import import_optional
from hokical._core.storage import StrPath
from hokical.calibrators import load as load_file
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import MultilabelCalibrator
from hokical.calibrators.stored import refuse_groups
from hokical.guarantees.fingerprints import Reused
from hokical.guarantees.scores import SelectivePrediction
from hokical.guarantees.sets import PredictionSets
from hokical.integrations.torch.collecting import (
    OutputReading,
    collect_outputs,
    with_labels,
)
from hokical.integrations.torch.module import (
    CalibratorModule,
    MultilabelModule,
    as_module,
)
from hokical.integrations.torch.networks import bare, check_network, device_of
from hokical.integrations.torch.outputs import (
    GetLogits,
    Outputs,
    classes_last,
    find_logits,
    log_below_label,
    outputs_as_logits,
)
from hokical.integrations.torch.stored import (
    CALIBRATOR_FILE,
    MEMBERS,
    USE,
    StoredNetwork,
    check_use,
    save_network,
)
from hokical.rules.sets import SetKind

FittedCalibrator = Calibrator | MultilabelCalibrator

#: Options of `from_pretrained` that say where a network of transformers is.
_HUB_OPTIONS = ("revision", "token", "cache_dir", "subfolder", "local_files_only")


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
        calibrator: FittedCalibrator | CalibratorModule | MultilabelModule,
        *,
        class_axis: int = -1,
        get_logits: GetLogits | None = None,
        outputs: Outputs = "logits",
        as_tuple: bool = False,
    ) -> None:
        super().__init__()
        check_network(model, "Pass the network itself.")
        check_choice("outputs", outputs, Outputs)
        if not isinstance(calibrator, nn.Module):
            calibrator = as_module(calibrator)
        if isinstance(calibrator, CalibratorModule):
            refuse_groups(calibrator.fitted.schema_)
        self.model = model
        self.class_axis = class_axis
        self.as_tuple = as_tuple
        self.calibrator: Any = calibrator.to(device_of(model))
        self.get_logits = get_logits or find_logits
        self.outputs = outputs
        # The mode of this module alone: the parts of the network keep theirs.
        self.training = model.training

    def forward(self, *args: object, **kwargs: object) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and confidence of what the network makes of its arguments.

        A `CalibratedOutput`, or with `as_tuple` a plain tuple.
        """
        logits = self._logits_of(self.get_logits(self.model(*args, **kwargs)))
        if self._pools:
            output = CalibratedOutput(*self.calibrator.pool_and_predict(logits))
        elif isinstance(self.calibrator, MultilabelModule):
            proba = self._restore_axis(self.calibrator.proba(logits))
            output = CalibratedOutput(self._restore_axis(logits), proba >= 0.5, proba)
        else:
            labels, confidence = self.calibrator(logits)
            output = CalibratedOutput(self._restore_axis(logits), labels, confidence)
        return (*output,) if self.as_tuple else output

    def _logits_of(self, scores: Tensor) -> Tensor:
        """Logits (..., classes) of a network's scores, on the calibrator's device."""
        self._follow(scores)
        multilabel = isinstance(self.calibrator, MultilabelModule)
        if scores.ndim == 1 and not multilabel and self.calibrator.n_classes == 2:
            rows = scores[:, None]  # log-odds without an axis of their own
        else:
            rows = classes_last(scores, self.class_axis)
        return outputs_as_logits(rows, self.outputs, multilabel=multilabel)

    def _follow(self, scores: Tensor) -> None:
        """Move the calibrator to the scores.

        Their device differs from its own if the network was moved without this module,
        or lies on several devices.
        """
        if torch.compiler.is_compiling() or scores.is_meta:
            return
        if next(self.calibrator.buffers()).device != scores.device:
            # Buffers made in inference mode could not take part in a gradient later.
            with torch.inference_mode(False):
                self.calibrator.to(scores.device)

    def _restore_axis(self, rows: Tensor) -> Tensor:
        """Numbers (..., classes) with the classes where the network has them."""
        return rows.movedim(-1, self.class_axis)

    @torch.no_grad()
    def predict_proba(self, *args: object, **kwargs: object) -> Tensor:
        """Calibrated probabilities, of the shape of the logits."""
        return self.proba(*args, **kwargs)

    def proba(self, *args: object, **kwargs: object) -> Tensor:
        """Calibrated probabilities as `predict_proba` gives them, with gradients."""
        logits = self._logits_of(self.get_logits(self.model(*args, **kwargs)))
        return self._restore_axis(self.calibrator.proba(logits))

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
        """Store held-out examples as evidence for `predict_or_abstain` and
        `predict_set`.

        `data` is a data loader or, with `labels` (n,), a tensor of inputs, as in
        `calibrate`; `cluster` and `reused` are those of `Calibrator.certify`. Files
        hold the counts.
        """
        logits, truth = self._collect(with_labels(data, labels), device, progress)
        self.fitted.certify(logits, truth, cluster=cluster, reused=reused)
        return self

    def _collect(
        self,
        loader: object,
        device: torch.device | str | None,
        progress: bool | None,
    ) -> tuple[Tensor | Ensemble, Tensor]:
        """Logits for the calibrator, and labels, of the examples of a loader."""
        reading = OutputReading(
            self.get_logits,
            self.class_axis,
            outputs=self.outputs,
            multilabel=isinstance(self.calibrator, MultilabelModule),
        )
        collected = collect_outputs(self.model, loader, reading, device, progress)
        if collected.labels.ndim == 1:
            _refuse_positions(collected.n_axes)
        return collected.logits, collected.labels

    @torch.no_grad()
    def predict_or_abstain(
        self, *args: object, risk: float = 0.05, delta: float = 0.1, **kwargs: object
    ) -> SelectivePrediction:
        """Labels, and which to accept so that at most a fraction `risk` is wrong.

        The other arguments are the network's. See `Calibrator.predict_or_abstain`;
        call `certify` first for a guarantee about the calibrated confidence.
        """
        calibrator, logits = self._one_label_logits(args, kwargs)
        return calibrator.predict_or_abstain(logits, risk=risk, delta=delta)

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
        calibrator, logits = self._one_label_logits(args, kwargs)
        return calibrator.predict_set(
            logits,
            coverage=coverage,
            delta=delta,
            by=by,
            kind=kind,
            pooled=pooled,
            penalty=penalty,
            free_ranks=free_ranks,
            allow_empty=allow_empty,
        )

    def _one_label_logits(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Calibrator, Tensor | Ensemble]:
        """The calibrator, and the logits (n, classes) of the network's arguments."""
        calibrator = self.fitted
        if not isinstance(calibrator, Calibrator):
            raise TypeError(
                "guarantees of a network are for one label per example; this one has "
                "several. Use the calibrator: `fitted.predict_set(scores)`."
            )
        logits = self._logits_of(self.get_logits(self.model(*args, **kwargs)))
        if self._pools:
            return calibrator, as_ensemble(logits, calibrator)
        _refuse_positions(logits.ndim)
        return calibrator, logits

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
        return bare(self.model).config

    def for_pipeline(self) -> nn.Module:
        """The network for `transformers.pipeline(..., model=...)`, with calibrated
        scores.

        It is of the bare network's own class, without `DataParallel` or the compiler
        around it, and shares its numbers. Its outputs have the
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
        self._check_problem_type()
        bare_network = bare(self.model)
        network = copy.copy(bare_network)
        # Hooks of its own, or the network itself would get this one too.
        network._forward_hooks = bare_network._forward_hooks.copy()
        network.register_forward_hook(self._with_log_proba)
        for name in ("save_pretrained", "push_to_hub"):
            setattr(network, name, _refuse_to_save)
        return network

    def _check_problem_type(self) -> None:
        """Raise where a pipeline would not take the softmax or sigmoid of the logits."""
        problem_types: list[str | None] = [None, "single_label_classification"]
        if isinstance(self.calibrator, MultilabelModule):
            problem_types = ["multi_label_classification"]
        config = getattr(bare(self.model), "config", None)
        problem_type = getattr(config, "problem_type", None)
        if problem_type not in problem_types:
            raise ValueError(
                f"`model.config.problem_type` must be one of {problem_types} for this "
                "calibrator, because a pipeline takes the softmax or the sigmoid by "
                f"it; got {problem_type!r}. For several labels at once calibrate with "
                "`hokical.MultilabelCalibrator`."
            )

    def _with_log_proba(self, model: nn.Module, args: Any, output: object) -> Any:
        """A forward hook: the output with calibrated logits."""
        scores = self.get_logits(output)
        logits = self._logits_of(scores)
        proba = self.calibrator.proba(logits)
        if isinstance(self.calibrator, MultilabelModule):
            calibrated = torch.logit(proba)
        elif scores.numel() < logits.numel():  # one output, for the sigmoid
            calibrated = torch.logit(proba[..., 1:])
        else:
            calibrated = log_below_label(proba, self.calibrator.labels(logits))
        if not isinstance(output, Mapping) or "logits" not in output:
            raise TypeError(
                "the network must return a mapping with `logits`, as those of "
                f"transformers do with `return_dict=True`; got {type(output).__name__}."
            )
        output_class: Any = type(output)
        return output_class(**{**output, "logits": self._restore_axis(calibrated)})

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
        save_network(path, self.model, self.fitted, self._use)

    def save_pretrained(self, folder: StrPath, **options: Any) -> None:
        """Save a network of transformers as it does itself, with `hokical.json` beside
        it.

        `options` are the network's. `CalibratedModel.from_pretrained(folder)` loads
        both.
        """
        self._pretrained("save_pretrained")(folder, **options)
        self.fitted.save(
            Path(folder, CALIBRATOR_FILE),
            metadata=self.fitted.metadata_ | {USE: self._use},
        )

    def push_to_hub(self, name: str, **options: Any) -> Any:
        """Upload a network of transformers as it does itself, with `hokical.json`
        beside it.

        `options` are those of the network's `push_to_hub`.
        `CalibratedModel.from_pretrained(name)` loads both.
        """
        self._pretrained("push_to_hub")
        network: Any = copy.copy(bare(self.model))
        # The network's `push_to_hub` calls its `save_pretrained`.
        network.save_pretrained = self.save_pretrained
        return network.push_to_hub(name, **options)

    def _pretrained(self, method: str) -> Any:
        """A method that networks of transformers have."""
        bound_method = getattr(bare(self.model), method, None)
        if bound_method is None:
            raise TypeError(
                f"the network must have `{method}`, as those of transformers do; got "
                f"{type(self.model).__name__}. Use `save`, which writes one file."
            )
        return bound_method

    @classmethod
    def from_pretrained(cls, name: StrPath, model: Any = None, **options: Any) -> Self:
        """A network of transformers and its calibrator, as `save_pretrained` left them.

        `name` is a folder, or a model on the hub. `model` is the class of the network,
        such as `AutoModelForSequenceClassification`, or the network itself; by default
        the class that the configuration names. `options` are those of the class's
        `from_pretrained`. The network is in evaluation mode.
        """
        transformers = import_optional("transformers", "transformers")
        hub_options = {key: options[key] for key in _HUB_OPTIONS if key in options}
        file = transformers.utils.cached_file(
            os.fspath(name),
            CALIBRATOR_FILE,
            _raise_exceptions_for_missing_entries=False,
            **hub_options,
        )
        if file is None:
            raise FileNotFoundError(
                f"{name} has no {CALIBRATOR_FILE}, which "
                "`CalibratedModel.save_pretrained` writes, or cannot be reached. "
                "Calibrate the network, `hokical.calibrate(network, loader)`."
            )
        if model is None:
            config = transformers.AutoConfig.from_pretrained(name, **hub_options)
            model = getattr(transformers, config.architectures[0])
        if not isinstance(model, nn.Module):
            model = model.from_pretrained(name, **options).eval()
        fitted: Any = load_file(file)
        use = check_use(fitted.metadata_.pop(USE, {}), file)
        return cls(model, fitted, **use)

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
        check_network(network, "Pass the network, or a function that makes it.")
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
        reason = self.fitted.choice_reason
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
        model_keys = set(self.model.state_dict())
        for entry in [entry for entry in state_dict if entry.startswith(start)]:
            key = entry.removeprefix(start)
            bare_key = key.removeprefix("module.")
            for candidate in (bare_key, f"module.{bare_key}"):
                if key not in model_keys and candidate in model_keys:
                    state_dict[start + candidate] = state_dict.pop(entry)
        super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def fitted(self) -> FittedCalibrator:
        """The calibrator, to be saved."""
        return cast(FittedCalibrator, self.calibrator.fitted)


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


def _refuse_positions(n_axes: int) -> None:
    """Raise where a network has several positions for each example."""
    if n_axes > 2:
        raise ValueError(
            "the network must give one label per example for guarantees; got outputs "
            f"of {n_axes} axes, whose positions are not independent. Use "
            "`hokical.Dense`, which certifies by item."
        )


def _refuse_to_save(*_: object, **__: object) -> NoReturn:
    """Take the place of the methods that would save a network without its calibrator."""
    raise ValueError(
        "a network of `for_pipeline()` cannot be saved: pipelines would read it "
        "without its calibrator. Save the calibrated model, "
        "`calibrated.save_pretrained(folder)` or `calibrated.push_to_hub(name)`, and "
        "read it with `CalibratedModel.from_pretrained(folder).for_pipeline()`."
    )
