"""Running what was exported, and comparing it with Python."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hokical._core.arrays import NUMPY, AnyArray, FloatArray
from hokical._core.conversion import Zeros, from_probabilities
from hokical._core.groups import GroupCoding
from hokical._core.logits import as_logits
from hokical._core.runtime import import_optional
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import (
    ConfidenceCalibrator,
    MultilabelCalibrator,
    OutcomeCalibrator,
)
from hokical.integrations.onnx.ensembles import ensemble_of
from hokical.integrations.onnx.models import DOUBLE, Shape, helper, load_model, onnx
from hokical.integrations.onnx.scores import contradiction
from hokical.rules.members import pooled_members_of

if TYPE_CHECKING:
    from onnx import ModelProto

_TYPES: dict[str, type[np.floating[Any]]] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}
#: Under which the classifier's scores are put out for a check.
_SCORES = "hokical/checked/scores"
#: Largest difference of a confidence that is rounding.
_LARGEST_ROUNDING = 1e-5


class NotRunnable(ValueError):
    """The model cannot be run here, or its inputs say too little to make some up."""


@dataclass(frozen=True)
class Check:
    """A comparison of a model with Python.

    Attributes
    ----------
    n_rows : number of rows that were compared
    largest_difference : the largest difference of a confidence
    labels_differing : number of labels that differ
    contradiction : what the classifier's own scores say against being read as they
        are, such as probabilities that are read as logits; "" if nothing
    """

    n_rows: int
    largest_difference: float
    labels_differing: int
    contradiction: str = ""

    @property
    def agrees(self) -> bool:
        """Labels are the same, confidences to 1e-5, and scores are what they are read
        as.
        """
        return (
            self.labels_differing == 0
            and self.largest_difference <= _LARGEST_ROUNDING
            and not self.contradiction
        )


def check(
    model: Any,
    calibrator: Calibrator | OutcomeCalibrator,
    *,
    n_rows: int = 64,
    random_state: int = 0,
) -> Check:
    """Run an exported or attached model on made-up input, and compare it with the
    calibrator.

    `n_rows` are rows of logits; of an attached model, inputs of the network, whose own
    scores are compared with what they are read as, too. Raises `NotRunnable` where
    onnxruntime cannot run the model, or no input can be made up for it.

    >>> from hokical.calibrators import Uncalibrated
    >>> from hokical.integrations.onnx import check, export
    >>> cal = Uncalibrated().fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> check(export(cal), cal).agrees
    True
    """
    checked = CheckedModel.load(model)
    rng = np.random.default_rng(random_state)
    inputs = checked.make_inputs(n_rows, rng, calibrator.needed_groups)
    if isinstance(calibrator, OutcomeCalibrator):
        groups = inputs.get("groups")
        if isinstance(calibrator, MultilabelCalibrator):
            expected = _vary_labels(calibrator, inputs)
        else:
            assert isinstance(calibrator, ConfidenceCalibrator)
            expected = _vary_confidences(calibrator, inputs, groups)
        outputs = checked.run(inputs)
        return Check(n_rows, _largest_difference([*outputs.values()][-1], expected), 0)
    if not checked.is_attached:
        logits = inputs["logits"]
        for rows in logits if logits.ndim == 3 else [logits]:
            _vary_logits(rows)
    outputs = checked.run(inputs)
    logits, problem = checked.read_scores(inputs, outputs)
    if problem:
        return Check(n_rows, float("inf"), 0, problem)
    data: Any = logits
    members = pooled_members_of(calibrator.schema_)
    if members is not None:
        data = members.read(ensemble_of(logits, members))
    if calibrator.needed_groups is not None:
        codes = inputs[checked.groups_name]
        data = replace(as_logits(data), codes=codes.reshape(-1, codes.shape[-1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # made-up inputs look like nothing
        expected = calibrator.predict_confidence(data)
        labels = calibrator.predict(data)
    return Check(
        len(expected),
        _largest_difference(_output(outputs, "confidence").ravel(), expected),
        int((_output(outputs, "labels").ravel() != labels).sum()),
    )


@dataclass(frozen=True, eq=False)
class CheckedModel:
    """A model that puts out the scores that it calibrates, with what its file says."""

    session: Any
    properties: dict[str, str]

    @classmethod
    def load(cls, model: Any) -> CheckedModel:
        """The model, ready to be run."""
        checked = onnx.ModelProto()
        checked.CopyFrom(load_model(model))
        properties = {item.key: item.value for item in checked.metadata_props}
        scores = properties.get("hokical_scores")
        if scores is not None:  # which are put out as well, as float64
            cast = helper.make_node("Cast", [scores], [_SCORES], to=DOUBLE)
            checked.graph.node.append(cast)
            checked.graph.output.append(
                helper.make_tensor_value_info(_SCORES, DOUBLE, None)
            )
        return cls(_start_session(checked), properties)

    @property
    def is_attached(self) -> bool:
        """Whether there is a classifier in front of the calibrator."""
        return "hokical_scores" in self.properties

    @property
    def has_members(self) -> bool:
        """Whether scores are those (members, n, classes) of an ensemble."""
        return "hokical_members" in self.properties

    @property
    def groups_name(self) -> str:
        """The input of the codes of groups."""
        return self.properties.get("hokical_groups", "groups")

    def make_inputs(
        self, n_rows: int, rng: np.random.Generator, coding: GroupCoding | None
    ) -> dict[str, AnyArray]:
        """Made-up values of all inputs, by name."""
        inputs = {}
        for item in self.session.get_inputs():
            is_codes = item.name == self.groups_name
            by_member = self.has_members and not self.is_attached and not is_codes
            shape = _close(
                item.shape, n_rows, name=item.name, batch_axis=int(by_member)
            )
            inputs[item.name] = _make_input(
                item, shape, rng, coding if is_codes else None
            )
        return inputs

    def run(self, inputs: dict[str, AnyArray]) -> dict[str, AnyArray]:
        """All outputs, by name."""
        names = [item.name for item in self.session.get_outputs()]
        with _report_runtime("run it on made-up inputs"):
            outputs = self.session.run(names, inputs)
        return dict(zip(names, outputs, strict=True))

    def read_scores(
        self, inputs: dict[str, AnyArray], outputs: dict[str, AnyArray]
    ) -> tuple[AnyArray, str]:
        """Logits (rows, classes), and what speaks against having read them so."""
        if not self.is_attached:
            return inputs["logits"], ""
        scores = outputs[_SCORES]
        axis = int(self.properties["hokical_class_axis"])
        shape = scores.shape if self.has_members else (-1, scores.shape[axis])
        scores = np.moveaxis(scores, axis, -1)
        rows = scores.reshape(-1, scores.shape[-1])
        if not np.isfinite(rows.max(axis=1)).all():
            raise NotRunnable(
                "the classifier gives NaN or infinite scores for made-up inputs"
            )
        stated = self.properties["hokical_scores_are"]
        problem = contradiction(rows, stated)
        if problem or stated == "logits":
            return rows.reshape(shape), problem
        zeros: Zeros = "impossible"  # as before it could be chosen
        if self.properties.get("hokical_zeros") == "unlikely":
            zeros = "unlikely"
        logits = np.asarray(from_probabilities(rows, zeros=zeros))
        return logits.reshape(shape), ""


def _start_session(model: ModelProto) -> Any:
    runtime = import_optional("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    with _report_runtime("load it"):
        return runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


def _largest_difference(values: AnyArray, expected: AnyArray) -> float:
    return float(np.abs(values - expected).max())


def _output(outputs: dict[str, AnyArray], wanted: str) -> AnyArray:
    """The calibrator's output of that name, or the last that was given a prefix."""
    names = [
        name
        for name in outputs
        if name == wanted or name.startswith(f"hokical_{wanted}")
    ]
    return np.asarray(outputs[names[-1]])


def _vary_logits(rows: AnyArray) -> None:
    """Make logits of several spreads, some tied, some with masked classes."""
    rows *= np.geomspace(0.1, 30.0, len(rows)).astype(rows.dtype)[:, None]
    rows[::7, 1] = rows[::7].max(axis=1)
    rows[::5, rows.shape[1] // 2 + 1 :] = -np.inf


def _vary_labels(
    calibrator: MultilabelCalibrator, inputs: dict[str, AnyArray]
) -> FloatArray:
    """Make scores of several spreads; Python's probabilities of them."""
    scores = inputs["scores"]
    scores *= np.geomspace(0.1, 30.0, len(scores)).astype(scores.dtype)[:, None]
    return np.asarray(calibrator.rule_.proba(scores, NUMPY))


def _vary_confidences(
    calibrator: ConfidenceCalibrator,
    inputs: dict[str, AnyArray],
    groups: AnyArray | None,
) -> FloatArray:
    """Make confidences from 0 to the scale; Python's probabilities of them."""
    n_rows = len(inputs["confidence"])
    stated = np.linspace(0.0, 1.0, n_rows) * calibrator.scale
    inputs["confidence"] = stated.astype(inputs["confidence"].dtype)
    codes = np.zeros((n_rows, 0), np.int64) if groups is None else groups
    confidence = calibrator.uncalibrated(inputs["confidence"])
    return np.asarray(calibrator.rule_.proba(confidence, codes))


@contextmanager
def _report_runtime(task: str) -> Iterator[None]:
    """Errors of onnxruntime in one line."""
    try:
        yield
    except Exception as error:  # onnxruntime's own have no common class
        version = import_optional("onnxruntime", "onnx").__version__
        line = " ".join(str(error).split())
        raise NotRunnable(f"onnxruntime {version} cannot {task}: {line}") from error


def _close(shape: Shape, n_rows: int, *, name: str, batch_axis: int) -> list[int]:
    """The shape of an input, of which the batch alone may be open."""
    lengths = [length if isinstance(length, int) else -1 for length in shape or [1]]
    if lengths[batch_axis] < 0:
        lengths[batch_axis] = n_rows
    if min(lengths) < 0:
        raise NotRunnable(f"input {name!r} has shape {shape}")
    return lengths


def _make_groups(
    coding: GroupCoding, shape: list[int], rng: np.random.Generator
) -> AnyArray:
    """Codes of groups; in numeric columns numbers between their levels and beyond,
    some of them missing.
    """
    codes = rng.integers(0, coding.sizes, size=shape)
    inputs = codes.astype(coding.input_dtype)
    for column in range(len(coding.columns)):
        if coding.is_numeric(column):
            low, high = coding.levels[column][0], coding.levels[column][-1]
            spread = max(high - low, 1.0)
            numbers = rng.uniform(low - spread, high + spread, size=shape[:-1])
            unknown = codes[..., column] == coding.sizes[column] - 1
            inputs[..., column] = np.where(unknown, np.nan, numbers)
    return inputs


def _make_input(
    item: Any,
    shape: list[int],
    rng: np.random.Generator,
    coding: GroupCoding | None,
) -> AnyArray:
    """Normal numbers of an input's shape, or codes of groups."""
    if coding is not None:
        return _make_groups(coding, shape, rng)
    if item.type not in _TYPES:
        raise NotRunnable(f"input {item.name!r} is of {item.type}, not of floats")
    return np.asarray(rng.normal(size=shape), dtype=_TYPES[item.type])
