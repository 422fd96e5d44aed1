"""Running what was exported, and comparing it with Python."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY
from hokical._core.conversion import from_probabilities
from hokical._core.logits import as_logits
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.stored import OutcomeCalibrator
from hokical.integrations.onnx.backend import onnx_module
from hokical.integrations.onnx.models import load_model

_TYPES: dict[str, type[np.floating[Any]]] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}
_DOUBLE = 11
#: Under which the classifier's scores are put out for a check.
_SCORES = "hokical/checked/scores"


class NotRunnable(ValueError):
    """The model cannot be run here, or its inputs say too little to make some up."""


@dataclass(frozen=True)
class Check:
    """How many rows were compared, the largest difference of a confidence, labels that differ."""

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
    """Run an exported or attached model on made-up input, and compare it with the calibrator.

    `n_rows` are rows of logits; of an attached model, inputs of the network. Raises `NotRunnable`
    where onnxruntime cannot run the model, or no input can be made up for it.

    >>> from hokical.calibrators import Uncalibrated
    >>> from hokical.integrations.onnx import check, export
    >>> cal = Uncalibrated().fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> check(export(cal), cal).agrees
    True
    """
    proto = load_model(model)
    facts = {item.key: item.value for item in proto.metadata_props}
    session = _session(_with_scores(proto, facts.get("hokical_scores")))
    coding, codes = _coding(calibrator), facts.get("hokical_groups", "groups")
    rng = np.random.default_rng(random_state)
    feed = {
        item.name: _make_input(item, n_rows, rng, None if item.name != codes else coding)
        for item in session.get_inputs()
    }
    groups = None if coding is None else feed[codes]
    if isinstance(calibrator, OutcomeCalibrator):
        expected = _expect_outcomes(calibrator, feed, groups)
        return Check(n_rows, float(np.abs([*_run(session, feed).values()][-1] - expected).max()), 0)
    if "hokical_scores" not in facts:
        feed["logits"] = _vary_rows(feed["logits"])
    found = _run(session, feed)
    rows: Any = _logits(found[_SCORES], facts) if _SCORES in found else feed["logits"]
    if groups is not None:
        rows = replace(as_logits(rows), codes=groups.reshape(-1, groups.shape[-1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # made-up inputs look like nothing
        expected, labels = calibrator.predict_confidence(rows), calibrator.predict(rows)
    return Check(
        len(expected),
        float(np.abs(_public(found, "confidence").ravel() - expected).max()),
        int((_public(found, "labels").ravel() != labels).sum()),
    )


def _coding(calibrator: Any) -> Any:
    """The columns of groups that a calibrator learned from, or None."""
    return getattr(calibrator.rule_, "needed_groups", None)


def _expect_outcomes(calibrator: Any, feed: dict[str, Any], groups: Any) -> NDArray[Any]:
    """Probabilities of scores of several labels, or of confidences, which are made anew."""
    rule = calibrator.rule_
    if "scores" in feed:
        n_rows, kind = len(feed["scores"]), feed["scores"].dtype
        feed["scores"] *= np.geomspace(0.1, 30.0, n_rows).astype(kind)[:, None]
        return np.asarray(rule.proba(feed["scores"], NUMPY))
    n_rows, kind = len(feed["confidence"]), feed["confidence"].dtype
    stated = np.linspace(0.0, 1.0, n_rows) * calibrator.get_params()["scale"]
    feed["confidence"] = stated.astype(kind)
    codes = np.zeros((n_rows, 0), np.int64) if groups is None else groups
    return np.asarray(rule.proba(calibrator._uncalibrated(feed["confidence"]), codes))


def _session(model: Any) -> Any:
    runtime = onnx_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    with _report_runtime("load it"):
        return runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


def _run(session: Any, feed: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Every output by its name."""
    names = [item.name for item in session.get_outputs()]
    with _report_runtime("run it on made-up inputs"):
        return dict(zip(names, session.run(names, feed), strict=True))


@contextmanager
def _report_runtime(task: str) -> Iterator[None]:
    """Errors of onnxruntime in one line."""
    try:
        yield
    except Exception as error:  # onnxruntime's own have no common class
        version = onnx_module("onnxruntime").__version__
        line = " ".join(str(error).split())
        raise NotRunnable(f"onnxruntime {version} cannot {task}: {line}") from error


def _public(found: Mapping[str, NDArray[Any]], wanted: str) -> NDArray[Any]:
    """The calibrator's output of that name, or the last that was given a prefix."""
    own = [name for name in found if name == wanted or name.startswith(f"hokical_{wanted}")]
    return found[own[-1]]


def _with_scores(proto: Any, scores: str | None) -> Any:
    """The model; if it has scores, a copy that also puts them out, as float64."""
    if scores is None:
        return proto
    helper = onnx_module("onnx.helper")
    copy = onnx_module("onnx").ModelProto()
    copy.CopyFrom(proto)
    copy.graph.node.append(helper.make_node("Cast", [scores], [_SCORES], to=_DOUBLE))
    copy.graph.output.append(helper.make_tensor_value_info(_SCORES, _DOUBLE, None))
    return copy


def _logits(found: NDArray[Any], facts: dict[str, str]) -> NDArray[Any]:
    """Logits (rows, classes) from an attached model's scores."""
    axis = int(facts["hokical_class_axis"])
    logits = np.moveaxis(found, axis, -1).reshape(-1, found.shape[axis])
    if facts["hokical_scores_are"] == "probabilities":
        zeros: Any = facts.get("hokical_zeros", "impossible")  # as before it could be chosen
        logits = np.asarray(from_probabilities(logits, zeros=zeros))
    if not np.isfinite(logits.max(axis=1)).all():
        raise NotRunnable("the classifier gives NaN or infinite scores for made-up inputs")
    return logits


def _make_input(
    item: Any, n_rows: int, rng: np.random.Generator, coding: Any = None
) -> NDArray[Any]:
    """Normal numbers of an input's shape, or codes of groups; only the batch may be open."""
    if coding is None and item.type not in _TYPES:
        raise NotRunnable(f"input {item.name!r} is of {item.type}, not of floats")
    batch, *lengths = item.shape or [1]
    if not all(isinstance(length, int) for length in lengths):
        raise NotRunnable(f"input {item.name!r} has shape {item.shape}")
    shape = (batch if isinstance(batch, int) else n_rows, *lengths)
    if coding is not None:
        return rng.integers(0, coding.sizes, size=shape)
    return np.asarray(rng.normal(size=shape), dtype=_TYPES[item.type])


def _vary_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Logits of several spreads, some tied, some with masked classes."""
    n, n_classes = rows.shape
    out: NDArray[Any] = rows * np.geomspace(0.1, 30.0, n).astype(rows.dtype)[:, None]
    out[::7, 1] = out[::7].max(axis=1)
    out[::5, n_classes // 2 + 1 :] = -np.inf
    return out
