"""From a network and validation data to a calibrated network, in one line."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.catalog import new_calibrator, refuse_options
from hokical.calibrators.confidence import MultilabelCalibrator
from hokical.integrations.torch.collecting import (
    OutputReading,
    collect_outputs,
    with_labels,
)
from hokical.integrations.torch.ensembles import CalibratedEnsemble, collect_members
from hokical.integrations.torch.members import (
    ROWS_AT_ONCE,
    MemberNetwork,
    Networks,
    Transforms,
)
from hokical.integrations.torch.model import CalibratedModel
from hokical.integrations.torch.outputs import GetLogits, MaybeOutputs

#: Modules that hold networks and are not networks themselves.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict)


def calibrate(
    model: Networks,
    data: object,
    labels: Any = None,
    method: str | Calibrator | MultilabelCalibrator = "auto",
    *,
    transforms: Transforms | None = None,
    dropout: int | None = None,
    most_members: int | None = None,
    rows_at_once: int = ROWS_AT_ONCE,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    get_logits: GetLogits | None = None,
    class_axis: int = -1,
    ignore_label: int | None = None,
    outputs: MaybeOutputs = "auto",
    **options: Any,
) -> CalibratedModel:
    """Collect validation logits, fit a calibrator, and return the network with it.

    Networks with one output for class 1 of two, and those that end in a softmax or
    sigmoid, are recognized. Several evaluations of each example (`transforms`,
    `dropout`, several networks) are pooled, see `hokical.Ensemble`; `MemberNetwork` has
    the details.

    Parameters
    ----------
    model : nn.Module, or a sequence of networks, or a mapping of names to networks
    data : data loader as in `collect_logits`, or a tensor of inputs
        Examples that the network was not trained on.
    labels : array of shape (n,), optional
        Those of a tensor of inputs. After a data loader the method may be here:
        `calibrate(model, loader, "temps")`.
    method : str or calibrator
        A name (`hokical methods` lists them), or a calibrator, of which a copy is
        fitted. A `MultilabelCalibrator` is for networks with a sigmoid for each label.
    transforms : `views("image")`, or functions of a batch, optional
        Views of the inputs to pool.
    dropout : int, optional
        How many passes with dropout on to pool.
    most_members : int, optional
        How many of the pooled evaluations are made later, at most.
    rows_at_once : int
        Rows of one batch of pooled evaluations, at most.
    device, progress, get_logits, class_axis, ignore_label, outputs
        As in `collect_logits`.
    options
        Those of a method given by name.

    Returns
    -------
    model : CalibratedModel
        A module that returns logits, labels and confidence; a `CalibratedEnsemble` of
        pooled evaluations. Its `fitted` is the calibrator: `fitted.save("cal.json")`.
        It has the modes that the network came with: call `.eval()` before predicting,
        as below, or dropout stays on.

    Examples
    --------
    >>> import torch
    >>> from hokical import calibrate
    >>> _ = torch.manual_seed(0)
    >>> inputs = torch.randn(600, 3)
    >>> labels = (inputs + torch.randn(600, 3)).argmax(dim=1)
    >>> network = torch.nn.Linear(3, 3, bias=False)
    >>> network.weight = torch.nn.Parameter(5 * torch.eye(3))
    >>> loader = torch.utils.data.DataLoader(list(zip(inputs, labels)), batch_size=100)
    >>> calibrated = calibrate(network, loader, "temps").eval()
    >>> calibrated.fitted
    TemperatureScaling(): 3 classes, 600 examples, temperature ...
    >>> calibrated(inputs[:4]).confidence.shape
    torch.Size([4])
    """
    if isinstance(labels, (str, Calibrator, MultilabelCalibrator)):
        method = labels
        labels = None
    loader = with_labels(data, labels)
    reading = OutputReading(get_logits, class_axis, ignore_label, outputs)
    has_networks = isinstance(model, (Sequence, Mapping, *_CONTAINERS))
    if has_networks or transforms is not None or dropout is not None:
        members = MemberNetwork(
            model,
            transforms,
            dropout=dropout,
            get_logits=get_logits,
            rows_at_once=rows_at_once,
        )
        calibrator = _estimator_of_members(method, options)
        evaluations = collect_members(members, loader, reading, device, progress)
        calibrator.fit(
            evaluations.ensemble, evaluations.labels, most_members=most_members
        )
        return CalibratedEnsemble(members, calibrator, outputs=evaluations.outputs)
    if most_members is not None:
        raise ValueError(
            "`most_members` must be None where the network is evaluated once; got "
            f"{most_members!r}. Pass `transforms` or several networks."
        )
    network = cast(nn.Module, model)  # as `collect_outputs` checks
    estimator = _estimator_of_network(method, options)
    several = isinstance(estimator, MultilabelCalibrator)
    reading = replace(reading, multilabel=several)
    collected = collect_outputs(network, loader, reading, device, progress)
    estimator.fit(collected.logits, collected.labels)
    if collected.n_axes > 2 and isinstance(estimator, Calibrator):
        estimator.forget_examples()  # positions of one item are not independent
    return CalibratedModel(
        network,
        estimator,
        get_logits=get_logits,
        class_axis=class_axis,
        outputs=collected.outputs,
    )


def _estimator_of_network(
    method: str | Calibrator | MultilabelCalibrator, options: dict[str, Any]
) -> Calibrator | MultilabelCalibrator:
    """A calibrator to be fitted on the outputs of a network."""
    if isinstance(method, MultilabelCalibrator):
        refuse_options(options)
        return copy.deepcopy(method)
    return new_calibrator(method, **options)


def _estimator_of_members(
    method: str | Calibrator | MultilabelCalibrator, options: dict[str, Any]
) -> Calibrator:
    """A calibrator to be fitted on an ensemble."""
    if isinstance(method, MultilabelCalibrator):
        raise TypeError(
            "`method` must be for one label per example where examples are evaluated "
            "several times; got a MultilabelCalibrator. Average the scores of the views "
            "or networks, and fit it on them."
        )
    return new_calibrator(method, **options)
