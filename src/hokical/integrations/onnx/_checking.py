"""Running what was exported, and comparing it with Python."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical._core.arrays import NUMPY
from hokical._core.conversion import from_probabilities
from hokical._core.grouped_logits import with_codes
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._outcomes import OutcomeCalibrator
from hokical.integrations.onnx._backend import onnx_module
from hokical.integrations.onnx._models import float_tensors, load_model

_TYPES: dict[str, type[np.floating[Any]]] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}
_FLOAT, _BFLOAT16 = 1, 16
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
    names = _public_names(proto)
    rng = np.random.default_rng(random_state)
    scores = facts.get("hokical_scores")
    session = _session(proto if scores is None else _put_out_scores(proto, scores))
    if isinstance(calibrator, OutcomeCalibrator):
        return _check_beyond(session, calibrator, n_rows, rng)
    coding, own = calibrator.rule_.needed_groups, facts.get("hokical_groups", "groups")
    sizes = {} if coding is None else {own: coding.sizes}
    feed = {
        item.name: _make_input(item, n_rows, rng, sizes.get(item.name))
        for item in session.get_inputs()
    }
    wanted = [names["labels"], names["confidence"]]
    if scores is None:
        logits = feed["logits"] = _vary_rows(feed["logits"])
    else:
        wanted.append(_SCORES)
    with _report_runtime("run it on made-up inputs"):
        labels, confidence, *found = session.run(wanted, feed)
    if found:
        logits = _rows_of(found[0], facts)
    rows: Any = logits
    if coding is not None:
        rows = with_codes(logits, feed[own].reshape(-1, len(coding.sizes)), coding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # made-up inputs look like nothing
        expected, own = calibrator.predict_confidence(rows), calibrator.predict(rows)
    return Check(
        len(expected),
        float(np.abs(confidence.ravel() - expected).max()),
        int((labels.ravel() != own).sum()),
    )


def _check_beyond(
    session: Any, calibrator: OutcomeCalibrator, n_rows: int, rng: np.random.Generator
) -> Check:
    """The same of scores of several labels, or of confidences; labels there are none."""
    rule = calibrator.rule_
    sizes = {"groups": rule.coding.sizes} if getattr(rule, "coding", None) else {}
    feed = {
        item.name: _make_input(item, n_rows, rng, sizes.get(item.name))
        for item in session.get_inputs()
    }
    if "scores" in feed:
        feed["scores"] *= np.geomspace(0.1, 30.0, n_rows).astype(feed["scores"].dtype)[:, None]
        expected = rule.proba(feed["scores"], NUMPY)
    else:
        stated = np.linspace(0.0, 1.0, n_rows)
        kind = feed["confidence"].dtype
        feed["confidence"] = (stated * calibrator.get_params()["scale"]).astype(kind)
        stated = calibrator._uncalibrated(feed["confidence"])  # type: ignore[attr-defined]
        expected = rule.proba(stated, feed.get("groups", np.zeros((n_rows, 0), np.int64)))
    with _report_runtime("run it on made-up inputs"):
        (found,) = session.run(None, feed)
    return Check(n_rows, float(np.abs(found - expected).max()), 0)


def _session(model: Any) -> Any:
    runtime = onnx_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    with _report_runtime("load it"):
        return runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


@contextmanager
def _report_runtime(task: str) -> Iterator[None]:
    """Errors of onnxruntime in one line, without codes and places in its source."""
    try:
        yield
    except Exception as error:  # onnxruntime's own have no common class
        line = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", " ".join(str(error).split()))
        line = re.sub(r"\S+\.(cc|h):\d+ .*?\) (?=[A-Z])", "", line)
        version = onnx_module("onnxruntime").__version__
        raise NotRunnable(f"onnxruntime {version} cannot {task}: {line}") from error


def _public_names(proto: Any) -> dict[str, str]:
    """The names under which the calibrator's outputs go: the last that begin so."""
    names = {}
    for item in proto.graph.output:
        for wanted in ("labels", "confidence"):
            if item.name == wanted or item.name.startswith(f"hokical_{wanted}"):
                names[wanted] = item.name
    return names


def _put_out_scores(proto: Any, scores: str) -> Any:
    """A copy that also puts out the scores; bfloat16, which NumPy lacks, goes as float32."""
    helper = onnx_module("onnx.helper")
    copy = onnx_module("onnx").ModelProto()
    copy.CopyFrom(proto)
    for item in copy.graph.input:
        if item.type.tensor_type.elem_type == _BFLOAT16:
            item.type.tensor_type.elem_type = _FLOAT
            inner, item.name = item.name, f"{_SCORES}/{item.name}"
            node = helper.make_node("Cast", [item.name], [inner], to=_BFLOAT16)
            copy.graph.node.insert(0, node)
    dtype = float_tensors(proto)[scores].dtype
    wide = np.dtype("float32" if dtype == "bfloat16" else dtype)
    kind = helper.np_dtype_to_tensor_dtype(wide)
    copy.graph.node.append(helper.make_node("Cast", [scores], [_SCORES], to=kind))
    copy.graph.output.append(helper.make_tensor_value_info(_SCORES, kind, None))
    return copy


def _rows_of(found: NDArray[Any], facts: dict[str, str]) -> NDArray[Any]:
    """Logits (rows, classes) from an attached model's scores."""
    axis = int(facts["hokical_class_axis"])
    rows = np.moveaxis(found, axis, -1).reshape(-1, found.shape[axis])
    logits = rows
    if facts["hokical_scores_are"] == "probabilities":
        zeros: Any = facts.get("hokical_zeros", "impossible")  # as before it could be chosen
        logits = from_probabilities(rows, zeros=zeros)
    top = logits.max(axis=1)
    if not np.isfinite(top).all():
        raise NotRunnable("the classifier gives NaN or infinite scores for made-up inputs")
    return np.asarray(logits)


def _make_input(
    item: Any, n_rows: int, rng: np.random.Generator, sizes: tuple[int, ...] | None
) -> NDArray[Any]:
    """Normal numbers of an input's shape; the batch is the only length that may be open.

    Codes of groups instead, where there are `sizes` of their columns.
    """
    if sizes is None and item.type not in _TYPES:
        raise NotRunnable(f"input {item.name!r} is of {item.type}, not of floats")
    shape = list(item.shape)
    if shape and not isinstance(shape[0], int):
        shape[0] = n_rows
    if not all(isinstance(length, int) for length in shape):
        raise NotRunnable(f"input {item.name!r} has shape {item.shape}")
    if sizes is not None:
        return rng.integers(0, sizes, size=shape)
    return np.asarray(rng.normal(size=shape), dtype=_TYPES[item.type])


def _vary_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Logits of several spreads, some tied, some with impossible classes."""
    n, n_classes = rows.shape
    out: NDArray[Any] = rows * np.geomspace(0.1, 30.0, n).astype(rows.dtype)[:, None]
    out[::7, 1] = out[::7].max(axis=1)
    out[::5, n_classes // 2 + 1 :] = -np.inf
    return out
