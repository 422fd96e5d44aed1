"""Running what was exported, and comparing it with Python."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY
from hokical._core.conversion import from_probabilities
from hokical._core.logits import as_logits
from hokical._core.runtime import import_optional
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import OutcomeCalibrator
from hokical.integrations.onnx.models import DOUBLE, helper, load_model, onnx

_TYPES: dict[str, type[np.floating[Any]]] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}
#: Under which the classifier's scores are put out for a check.
_SCORES = "hokical/checked/scores"


class NotRunnable(ValueError):
    """The model cannot be run here, or its inputs say too little to make some up."""


@dataclass(frozen=True)
class Check:
    """How many rows were compared, the largest difference of a confidence, labels
    that differ.
    """

    n_rows: int
    largest_difference: float
    labels_differing: int

    @property
    def agrees(self) -> bool:
        """Labels are the same, confidences to 1e-5."""
        return self.labels_differing == 0 and self.largest_difference <= 1e-5


def check(
    model: Any,
    calibrator: Calibrator | OutcomeCalibrator,
    *,
    n_rows: int = 64,
    random_state: int = 0,
) -> Check:
    """Run an exported or attached model on made-up input, and compare it with the
    calibrator.

    `n_rows` are rows of logits; of an attached model, inputs of the network. Raises
    `NotRunnable` where onnxruntime cannot run the model, or no input can be made up for
    it.

    >>> from hokical.calibrators import Uncalibrated
    >>> from hokical.integrations.onnx import check, export
    >>> cal = Uncalibrated().fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> check(export(cal), cal).agrees
    True
    """
    given = load_model(model)
    facts = {item.key: item.value for item in given.metadata_props}
    scores = facts.get("hokical_scores")
    proto = onnx.ModelProto()
    proto.CopyFrom(given)
    if scores is not None:  # which are put out as well, as float64
        proto.graph.node.append(
            helper.make_node("Cast", [scores], [_SCORES], to=DOUBLE)
        )
        proto.graph.output.append(helper.make_tensor_value_info(_SCORES, DOUBLE, None))
    runtime = import_optional("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    cpu = {"providers": ["CPUExecutionProvider"]}
    with _report_runtime("load it"):
        session = runtime.InferenceSession(proto.SerializeToString(), options, **cpu)
    coding = calibrator.rule_.needed_groups
    codes = facts.get("hokical_groups", "groups")
    rng = np.random.default_rng(random_state)
    feed = {
        item.name: _make_input(
            item, n_rows, rng, None if item.name != codes else coding
        )
        for item in session.get_inputs()
    }
    groups = None if coding is None else feed[codes]
    if isinstance(calibrator, OutcomeCalibrator):
        expected = _expect_outcomes(calibrator, feed, groups)
    elif (
        scores is None
    ):  # logits of several spreads, some tied, some with masked classes
        rows = feed["logits"]
        rows *= np.geomspace(0.1, 30.0, len(rows)).astype(rows.dtype)[:, None]
        rows[::7, 1] = rows[::7].max(axis=1)
        rows[::5, rows.shape[1] // 2 + 1 :] = -np.inf
    names = [item.name for item in session.get_outputs()]
    with _report_runtime("run it on made-up inputs"):
        found = dict(zip(names, session.run(names, feed), strict=True))
    if isinstance(calibrator, OutcomeCalibrator):
        return Check(n_rows, float(np.abs(found[names[-1]] - expected).max()), 0)
    logits: Any = feed["logits"] if scores is None else _logits(found[_SCORES], facts)
    if groups is not None:
        logits = replace(as_logits(logits), codes=groups.reshape(-1, groups.shape[-1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # made-up inputs look like nothing
        expected = calibrator.predict_confidence(logits)
        labels = calibrator.predict(logits)

    def put_out(wanted: str) -> NDArray[Any]:
        """The calibrator's output of that name, or the last that was given a prefix."""
        own = [
            name
            for name in names
            if name == wanted or name.startswith(f"hokical_{wanted}")
        ]
        return np.asarray(found[own[-1]]).ravel()

    largest = float(np.abs(put_out("confidence") - expected).max())
    return Check(len(expected), largest, int((put_out("labels") != labels).sum()))


def _expect_outcomes(
    calibrator: Any, feed: dict[str, Any], groups: Any
) -> NDArray[Any]:
    """Probabilities of scores of several labels, or of confidences, which are made
    anew.
    """
    rule = calibrator.rule_
    given = "scores" if "scores" in feed else "confidence"
    n_rows = len(feed[given])
    kind = feed[given].dtype
    if given == "scores":
        feed[given] *= np.geomspace(0.1, 30.0, n_rows).astype(kind)[:, None]
        return np.asarray(rule.proba(feed[given], NUMPY))
    stated = np.linspace(0.0, 1.0, n_rows) * calibrator.get_params()["scale"]
    feed[given] = stated.astype(kind)
    codes = np.zeros((n_rows, 0), np.int64) if groups is None else groups
    return np.asarray(rule.proba(calibrator.uncalibrated(feed[given]), codes))


@contextmanager
def _report_runtime(task: str) -> Iterator[None]:
    """Errors of onnxruntime in one line."""
    try:
        yield
    except Exception as error:  # onnxruntime's own have no common class
        version = import_optional("onnxruntime", "onnx").__version__
        line = " ".join(str(error).split())
        raise NotRunnable(f"onnxruntime {version} cannot {task}: {line}") from error


def _logits(found: NDArray[Any], facts: dict[str, str]) -> NDArray[Any]:
    """Logits (rows, classes) from an attached model's scores."""
    axis = int(facts["hokical_class_axis"])
    logits = np.moveaxis(found, axis, -1).reshape(-1, found.shape[axis])
    if facts["hokical_scores_are"] == "probabilities":
        zeros: Any = facts.get(
            "hokical_zeros", "impossible"
        )  # as before it could be chosen
        logits = np.asarray(from_probabilities(logits, zeros=zeros))
    if not np.isfinite(logits.max(axis=1)).all():
        raise NotRunnable(
            "the classifier gives NaN or infinite scores for made-up inputs"
        )
    return logits


def _make_input(
    item: Any, n_rows: int, rng: np.random.Generator, coding: Any = None
) -> NDArray[Any]:
    """Normal numbers of an input's shape, or codes of groups; only the batch may be
    open.
    """
    if coding is None and item.type not in _TYPES:
        raise NotRunnable(f"input {item.name!r} is of {item.type}, not of floats")
    batch, *lengths = item.shape or [1]
    if not all(isinstance(length, int) for length in lengths):
        raise NotRunnable(f"input {item.name!r} has shape {item.shape}")
    shape = (batch if isinstance(batch, int) else n_rows, *lengths)
    if coding is not None:
        return rng.integers(0, coding.sizes, size=shape)
    return np.asarray(rng.normal(size=shape), dtype=_TYPES[item.type])
