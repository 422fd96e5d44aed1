"""Statuses for other programs and people: JSON lines, and a picture."""

import json
import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hokical._core.files import append_line
from hokical._core.warn import warn_user
from hokical.monitoring._status import Status
from hokical.plots._axes import BLUE, GREY, ORANGE, Axes, axes_or_new

#: What every status has; those of earlier versions lack what has a default.
_KEYS = {field.name for field in fields(Status) if field.default is MISSING}


def json_line(status: Status) -> str:
    """A status as one line of strict JSON; null for what is unknown."""
    return json.dumps(status.to_dict(), allow_nan=False, separators=(",", ":"))


def append_json_line(path: str | os.PathLike[str], status: Status) -> None:
    """Append a status to a file of JSON lines: a whole line or, if that fails, nothing."""
    append_line(path, json_line(status))


def read_history(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The statuses in a file of JSON lines, oldest first, as `Status.to_dict` gives them.

    A line that a crash has cut short is left out, with a warning; other JSON is an error.
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
                f"{path}, line {number}, must be a status of a monitor; got {line[:60]!r}. Pass a "
                "file that `append_json_line` wrote."
            )
        history.append(entry)
    return history


def draw_history(history: Sequence[Status | Mapping[str, Any]], ax: Axes | None = None) -> Axes:
    """Draw statuses, oldest first: a list of `Status`, or what `read_history` gives.

    The horizontal axis is time where every status has one, and labels so far otherwise. Statuses
    without labels are left out.
    """
    entries = [entry.to_dict() if isinstance(entry, Status) else entry for entry in history]
    entries = [entry for entry in entries if entry["n_window"] > 0]
    if not entries:
        raise ValueError("`history` must hold at least one status with labels; got none.")
    ax = axes_or_new(ax)
    timed = all(entry["time"] is not None for entry in entries)
    places: list[Any] = [entry["n"] for entry in entries]
    if timed:
        places = [datetime.fromtimestamp(entry["time"], UTC) for entry in entries]
    low, high = ([entry["ece"][end] for entry in entries] for end in ("low", "high"))
    ax.fill_between(places, low, high, color=BLUE, alpha=0.15, linewidth=0, label="interval")
    ax.plot(places, [e["ece"]["value"] for e in entries], color=BLUE, label="ECE of the window")
    gap = [entry["mean_confidence"] - entry["accuracy"] for entry in entries]
    ax.plot(places, gap, color=ORANGE, linestyle="--", label="confidence - accuracy")
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    _mark_alarm(ax, entries, places)
    ax.set(xlabel="time (UTC)" if timed else "labels so far", ylabel="error")
    # Above the picture: an alarm may come anywhere in it, and its words are long.
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    return ax


def draw_accuracy(history: Sequence[Status | Mapping[str, Any]], ax: Axes | None = None) -> Axes:
    """Draw accuracy over time: expected without labels, with its band, and measured by labels.

    The horizontal axis is time where every status has one, and predictions so far otherwise.
    """
    entries = [entry.to_dict() if isinstance(entry, Status) else entry for entry in history]
    timed = all(entry["time"] is not None for entry in entries)
    foretold = [entry for entry in entries if entry.get("expected")]
    measured = [entry for entry in entries if entry["n_window"] > 0]
    if not foretold and not measured:
        raise ValueError("`history` must hold a status with predictions of logits or with labels.")
    ax = axes_or_new(ax)

    def places(some: list[Any]) -> list[Any]:
        if timed:
            return [datetime.fromtimestamp(entry["time"], UTC) for entry in some]
        return [entry["n_observed"] for entry in some]

    numbers = [entry["expected"] for entry in foretold]
    low, high = ([each[end] for each in numbers] for end in ("low", "high"))
    ax.fill_between(places(foretold), low, high, color=BLUE, alpha=0.15, linewidth=0)
    ax.plot(places(foretold), [e["accuracy"] for e in numbers], color=BLUE, label="expected")
    right = [entry["accuracy"] for entry in measured]
    ax.plot(places(measured), right, color=ORANGE, marker="o", markersize=3, label="measured")
    xlabel = "time (UTC)" if timed else "predictions so far"
    ax.set(xlabel=xlabel, ylabel="accuracy of the window")
    ax.legend(frameon=False)
    return ax


def _mark_alarm(ax: Axes, entries: Sequence[Mapping[str, Any]], places: list[Any]) -> None:
    """A line at the first status with an alarm, with the verdict beside it."""
    for entry, place in zip(entries, places, strict=True):
        sets = [entry["sets"]] if entry.get("sets") else []
        if any(
            test["alarm"]
            for test in (entry["calibration"], *entry["classes"], *sets, *entry.get("groups", ()))
        ):
            words = textwrap.fill(f"alarm: {entry['verdict']['text']}", 60)
            ax.axvline(place, color=GREY, linestyle=":", label=words)
            return
