"""Running what was exported, and comparing it with Python."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators import BaseCalibrator
from hokical.integrations.onnx.library import library
from hokical.logits import from_probabilities

_TYPES: dict[str, type[np.floating[Any]]] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}


class NotRunnable(ValueError):
    """The model's inputs say too little to make some up."""


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
    model: Any, calibrator: BaseCalibrator, *, n_rows: int = 64, random_state: int = 0
) -> Check:
    """Run an exported or attached model on made-up input, and compare it with the calibrator.

    Parameters
    ----------
    model : path or onnx.ModelProto
        What `export` or `attach` gave.
    calibrator : BaseCalibrator
        The one that was exported.
    n_rows : int
        Rows of logits; of an attached model, inputs of the network.
    random_state : int
        Seed of the input.

    Examples
    --------
    >>> from hokical.calibrators import Uncalibrated
    >>> from hokical.integrations.onnx import check, export
    >>> cal = Uncalibrated().fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> check(export(cal), cal).agrees
    True
    """
    proto = library().load(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else model
    facts = {item.key: item.value for item in proto.metadata_props}
    rng = np.random.default_rng(random_state)
    scores = facts.get("hokical_scores", "logits")
    names = _output_names(proto)
    session = _session(_with_output(proto, scores) if scores != "logits" else proto)
    feed = {item.name: _made_up(item, n_rows, rng) for item in session.get_inputs()}
    if "hokical_scores" in facts:
        wanted = [names["labels"], names["confidence"], scores]
        labels, confidence, found = session.run(wanted, feed)
        axis = int(facts["hokical_class_axis"])
        logits = np.moveaxis(found, axis, -1).reshape(-1, found.shape[axis])
        if facts["hokical_scores_are"] == "probabilities":
            logits = from_probabilities(logits)
    else:
        logits = feed["logits"] = _telling(feed["logits"])
        labels, confidence = session.run(["labels", "confidence"], feed)
    extra = {"transformed": feed[names["transformed"]]} if calibrator.needs_transformed else {}
    expected = calibrator.predict_confidence(logits, **extra)
    return Check(
        len(expected),
        float(np.abs(confidence.ravel() - expected).max()),
        int((labels.ravel() != calibrator.predict(logits)).sum()),
    )


def _session(model: Any) -> Any:
    runtime = library("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _output_names(proto: Any) -> dict[str, str]:
    """The names under which the calibrator's inputs and outputs go: the last that end so."""
    names = {}
    for item in (*proto.graph.input, *proto.graph.output):
        for wanted in ("labels", "confidence", "transformed"):
            if item.name == wanted or item.name.startswith(f"hokical_{wanted}"):
                names[wanted] = item.name
    return names


def _with_output(proto: Any, name: str) -> Any:
    """A copy that also puts out a tensor from within."""
    if any(item.name == name for item in proto.graph.output):
        return proto
    onnx = library()
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    known = onnx.shape_inference.infer_shapes(copy).graph.value_info
    copy.graph.output.append(next(item for item in known if item.name == name))
    return copy


def _made_up(item: Any, n_rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Normal numbers of an input's shape; the batch is the only length that may be open."""
    if item.type not in _TYPES:
        raise NotRunnable(f"input {item.name!r} is of {item.type}, not of floats")
    shape = list(item.shape)
    place = 1 if item.name.endswith("transformed") else 0
    if shape and not isinstance(shape[place], int):
        shape[place] = n_rows
    if not all(isinstance(length, int) for length in shape):
        raise NotRunnable(f"input {item.name!r} has shape {item.shape}")
    return np.asarray(rng.normal(size=shape), dtype=_TYPES[item.type])


def _telling(rows: NDArray[Any]) -> NDArray[Any]:
    """Logits of several spreads, some tied, some with impossible classes."""
    n, n_classes = rows.shape
    out: NDArray[Any] = rows * np.geomspace(0.1, 30.0, n).astype(rows.dtype)[:, None]
    out[::7, 1] = out[::7].max(axis=1)
    out[::5, n_classes // 2 + 1 :] = -np.inf
    return out
