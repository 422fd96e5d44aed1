"""A network that is evaluated several times, and the calibrator that pools it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, Self

import torch
from torch import Tensor, nn

from hokical._core.ensembles import Ensemble
from hokical._core.storage import StrPath
from hokical.calibrators.calibrator import Calibrator
from hokical.integrations.torch.collecting import OutputReading, collect_outputs
from hokical.integrations.torch.members import MemberNetwork, Networks, Transforms
from hokical.integrations.torch.model import CalibratedModel
from hokical.integrations.torch.module import CalibratorModule, as_module
from hokical.integrations.torch.networks import takes_one_argument
from hokical.integrations.torch.outputs import (
    Outputs,
    outputs_as_logits,
    recognize_outputs,
)
from hokical.integrations.torch.stored import MEMBERS, StoredNetwork


class Evaluations(NamedTuple):
    """The members' logits, labels (n,), and what the networks return."""

    ensemble: Ensemble
    labels: Tensor
    outputs: Outputs


class CalibratedEnsemble(CalibratedModel):
    """A network that is evaluated several times for each example, and calibrated.

    Its forward gives the pooled logits (n, classes), labels and confidence. Only the
    members that the calibrator needs are evaluated, `fitted.needed_members_`.

    Parameters
    ----------
    model : MemberNetwork
        The members: those of the fit, or those of them that are needed.
    calibrator : a fitted calibrator of an Ensemble, or its CalibratorModule
    outputs, as_tuple
        As in `CalibratedModel`.

    Examples
    --------
    >>> import torch
    >>> from hokical import calibrate
    >>> _ = torch.manual_seed(0)
    >>> inputs = torch.randn(600, 3)
    >>> labels = (inputs + torch.randn(600, 3)).argmax(dim=1)
    >>> network = torch.nn.Linear(3, 3, bias=False)
    >>> noisier = {"noisier": lambda batch: batch + 0.5 * batch.roll(1, dims=1)}
    >>> model = calibrate(network, inputs, labels, "temps", transforms=noisier).eval()
    >>> model.fitted.needed_members_
    ('identity', 'noisier')
    >>> model(inputs[:4]).confidence.shape
    torch.Size([4])
    """

    model: MemberNetwork

    def __init__(
        self,
        model: MemberNetwork,
        calibrator: Calibrator | CalibratorModule,
        *,
        outputs: Outputs = "logits",
        as_tuple: bool = False,
    ) -> None:
        if isinstance(calibrator, Calibrator):
            calibrator = as_module(calibrator)
        if not isinstance(calibrator, CalibratorModule) or not calibrator.pools:
            raise ValueError(
                "`calibrator` must have been fitted on a `hokical.Ensemble` to pool the "
                "members of a network; got one that takes one row of logits. Use "
                "`hokical.calibrate(network, loader, transforms=...)`."
            )
        members = calibrator.fitted.members_
        if members.exchangeable != model.has_dropout:
            raise ValueError(
                "`model` must have passes with dropout exactly where the calibrator was "
                "fitted on exchangeable members; got "
                f"{'passes' if model.has_dropout else 'other members'}."
            )
        if not members.exchangeable:
            model = model.select(members.needed)
        super().__init__(model, calibrator, outputs=outputs, as_tuple=as_tuple)

    def _logits_of(self, scores: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self._check_members()
        return super()._logits_of(scores)

    def _check_members(self) -> None:
        members = self._calibrator.members_
        if not members.exchangeable and members.needed != self.model.names:
            raise ValueError(
                f"the calibrator of a state dict needs {', '.join(members.needed)}, and "
                f"this module evaluates {', '.join(self.model.names)}. Make the module "
                "from that calibrator."
            )

    @property
    def _calibrator(self) -> Calibrator:
        module: CalibratorModule = self.calibrator
        return module.fitted

    @property
    def _use(self) -> dict[str, object]:
        return {"outputs": self.outputs, MEMBERS: [*self.model.names]}

    def _collect(
        self,
        loader: object,
        device: torch.device | str | None,
        progress: bool | None,
    ) -> tuple[Tensor | Ensemble, Tensor]:
        reading = OutputReading(outputs=self.outputs)
        evaluations = collect_members(self.model, loader, reading, device, progress)
        return evaluations.ensemble, evaluations.labels

    @classmethod
    def load(
        cls,
        path: StrPath,
        model: Networks | MemberNetwork | Callable[[], nn.Module],
        *,
        transforms: Transforms | None = None,
        **options: Any,
    ) -> Self:
        """Read what `save` wrote into networks of the same architecture.

        The file has the numbers of the networks, the calibrator, and the names of the
        members. Code is not stored: `model` is the network, a function that makes it,
        or the networks; `transforms` are those of the fit, under the same names, of
        which those that are not needed may be left out. `options` are those of
        `MemberNetwork`; passes with dropout are as many as were saved.
        """
        stored = StoredNetwork.read(path)
        names = stored.use.pop(MEMBERS, None)
        if names is None:
            raise ValueError(
                f"{path} holds a network that is evaluated once for each example. Load "
                "it with `CalibratedModel.load`."
            )
        fitted = stored.fitted
        assert isinstance(fitted, Calibrator)
        if callable(model) and not isinstance(model, nn.Module):
            model = model()
        if not isinstance(model, MemberNetwork):
            passes = len(names) if fitted.members_.exchangeable else None
            model = MemberNetwork(model, transforms, dropout=passes, **options)
        calibrated = cls(model, fitted, **stored.use)
        stored.load_into(calibrated.model)
        return calibrated

    def save_pretrained(self, folder: StrPath, **options: object) -> NoReturn:
        """Refused: those who read it would evaluate the network once."""
        raise _only_save()

    def push_to_hub(self, name: str, **options: object) -> NoReturn:
        """Refused: those who read it would evaluate the network once."""
        raise _only_save()

    def for_pipeline(self) -> NoReturn:
        """Refused: a pipeline evaluates a network once."""
        raise TypeError(
            "a pipeline evaluates a network once for each example, and this one needs "
            f"{', '.join(self.model.names)}. Call the module itself."
        )


def _only_save() -> TypeError:
    return TypeError(
        "a network that is evaluated several times is saved with `save(path)`, and read "
        "with `CalibratedEnsemble.load(path, network, transforms=...)`."
    )


def collect_members(
    model: MemberNetwork,
    loader: object,
    reading: OutputReading,
    device: torch.device | str | None,
    progress: bool | None,
) -> Evaluations:
    """Run all members over a data loader; see `collect_logits`."""
    if reading.class_axis not in (-1, 1):
        raise ValueError(
            "`class_axis` must be -1 where examples are evaluated several times: logits "
            f"are (n, classes); got {reading.class_axis}."
        )
    side_by_side = replace(
        reading,
        get_logits=_side_by_side,
        class_axis=-1,
        outputs="logits",
        takes_one=takes_one_argument(model.network(0)),
        multilabel=False,
        n_members=len(model.names),
    )
    collected = collect_outputs(model, loader, side_by_side, device, progress)
    rows = collected.logits
    scores = rows.reshape(len(rows), len(model.names), -1).movedim(1, 0)
    outputs = reading.outputs
    if outputs == "auto":
        outputs = _common_outputs(scores, model.names)
    logits = outputs_as_logits(scores, outputs, multilabel=False)
    if model.has_dropout and bool((logits == logits[:1]).all()):
        raise ValueError(
            "`dropout` must make passes that differ; all are equal. Its probability is "
            "0, or the network drops by functions: use layers, such as nn.Dropout."
        )
    ensemble = Ensemble(logits, model.names, exchangeable=model.has_dropout)
    return Evaluations(ensemble, collected.labels, outputs)


def _side_by_side(members: object) -> Tensor:
    """Outputs (members, n, classes) as rows (n, members * classes)."""
    assert isinstance(members, Tensor)
    return members.movedim(0, 1).flatten(1)


def _common_outputs(scores: Tensor, names: tuple[str, ...]) -> Outputs:
    """What all members return: logits, or probabilities."""
    outputs = [recognize_outputs(rows, multilabel=False) for rows in scores]
    first = outputs[0]
    for name, member_outputs in zip(names, outputs, strict=True):
        if member_outputs != first:
            raise ValueError(
                f"`outputs` must be the same for all networks; {names[0]!r} returns "
                f"{first}, and {name!r} {member_outputs}. Say how to read them, "
                "`get_logits=lambda output: ...`."
            )
    return first
