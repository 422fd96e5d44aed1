"""Statuses for other programs: JSON lines, and Prometheus' text format."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from hokical._warnings import warn_user
from hokical.monitoring.status import Status

_KEYS = {field.name for field in fields(Status)}


def json_line(status: Status) -> str:
    """A status as one line of strict JSON; null for what is not known."""
    return json.dumps(status.to_dict(), allow_nan=False, separators=(",", ":"))


def append_json_line(path: str | os.PathLike[str], status: Status) -> None:
    """Append a status to a file of JSON lines.

    The line is handed over in one write to a file opened for appending, so that lines of several
    processes do not mix; a line that a crash has cut is closed first, and spoils no other.
    """
    line = json_line(status).encode() + b"\n"
    with open(path, "ab+", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        if size and os.pread(stream.fileno(), 1, size - 1) != b"\n":
            line = b"\n" + line
        stream.write(line)
        os.fsync(stream.fileno())


def read_history(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The statuses in a file of JSON lines, oldest first, as `Status.to_dict` gives them.

    A line that a crash has cut is left out, with a warning; JSON that is no status is an error.
    """
    history = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
        except ValueError:
            warn_user(f"{path}, line {number}, was cut short and is left out.", RuntimeWarning)
            continue
        if not isinstance(entry, dict) or not set(entry) >= _KEYS:
            raise ValueError(
                f"{path}, line {number}, must be a status of a monitor; got {line[:60]!r}. Give a "
                "file that `append_json_line` wrote."
            )
        history.append(entry)
    return history


class _Metric(NamedTuple):
    """A metric's name, type and help, and its value by further labels."""

    name: str
    kind: str
    help: str
    values: Callable[[Status], dict[tuple[tuple[str, str], ...], float]]


def prometheus_text(statuses: Iterable[Status]) -> str:
    """Statuses of one or several models in Prometheus' text format (version 0.0.4).

    >>> from hokical import CalibrationMonitor
    >>> text = prometheus_text([CalibrationMonitor(None, model="a").status()])
    >>> print("\\n".join(text.splitlines()[:3]))
    # HELP hokical_labelled_total Labelled predictions so far.
    # TYPE hokical_labelled_total counter
    hokical_labelled_total{model="a"} 0
    """
    known = list(statuses)
    models = [status.model for status in known]
    if len(set(models)) < len(models):
        raise ValueError(f"`statuses` must be of different models; got {models}.")
    lines: list[str] = []
    for metric in _METRICS:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for status in known:
            for labels, value in metric.values(status).items():
                pairs = (("model", status.model), *labels)
                inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in pairs)
                lines.append(f"{metric.name}{{{inside}}} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _one(value: Callable[[Status], float]) -> Any:
    return lambda status: {(): value(status)}


def _alarm(status: Status) -> dict[tuple[tuple[str, str], ...], float]:
    """1 for the direction of the alarm, 0 otherwise."""
    alarm = status.calibration.alarm
    raised = None if alarm is None else alarm.direction
    return {(("direction", side),): int(raised == side) for side in ("over", "under")}


def _bounds(status: Status) -> dict[tuple[tuple[str, str], ...], float]:
    return {(("end", "low"),): status.ece.low, (("end", "high"),): status.ece.high}


def _of_inputs(name: str) -> Any:
    return lambda status: (
        {(): float(getattr(status.inputs, name))} if status.inputs is not None else {}
    )


def _time(status: Status) -> dict[tuple[tuple[str, str], ...], float]:
    return {} if status.time is None else {(): status.time}


_METRICS = (
    _Metric(
        "hokical_labelled_total",
        "counter",
        "Labelled predictions so far.",
        _one(lambda status: status.n),
    ),
    _Metric(
        "hokical_observed_total",
        "counter",
        "Predictions so far, labelled or not.",
        _one(lambda status: status.n_observed),
    ),
    _Metric(
        "hokical_window_labelled",
        "gauge",
        "Labelled predictions in the window.",
        _one(lambda status: status.n_window),
    ),
    _Metric(
        "hokical_accuracy",
        "gauge",
        "Share of right predictions in the window.",
        _one(lambda status: status.accuracy),
    ),
    _Metric(
        "hokical_mean_confidence",
        "gauge",
        "Mean confidence in the window.",
        _one(lambda status: status.mean_confidence),
    ),
    _Metric("hokical_brier", "gauge", "Brier score in the window.", _one(lambda s: s.brier)),
    _Metric(
        "hokical_ece",
        "gauge",
        "Expected calibration error in the window.",
        _one(lambda status: status.ece.value),
    ),
    _Metric(
        "hokical_ece_bound",
        "gauge",
        "Ends of the interval that holds the true calibration error.",
        _bounds,
    ),
    _Metric(
        "hokical_ece_since_start",
        "gauge",
        "Expected calibration error of all labelled predictions.",
        _one(lambda status: status.ece_since_start),
    ),
    _Metric(
        "hokical_calibration_log_e",
        "gauge",
        "Natural logarithm of the evidence against calibration.",
        _one(lambda status: status.calibration.log_e),
    ),
    _Metric("hokical_calibration_alarm", "gauge", "Whether the alarm has been raised.", _alarm),
    _Metric(
        "hokical_input_psi",
        "gauge",
        "Population stability index of confidence against the reference.",
        _of_inputs("psi"),
    ),
    _Metric(
        "hokical_input_p_value",
        "gauge",
        "P-value, at one look, of the same confidences as the reference.",
        _of_inputs("p_value"),
    ),
    _Metric("hokical_input_shifted", "gauge", "Whether inputs shifted.", _of_inputs("shifted")),
    _Metric("hokical_newest_timestamp_seconds", "gauge", "Time of the newest prediction.", _time),
)
