"""A picture of a monitor's history: the ECE of the window over time, with its band and alarms."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hokical.monitoring.status import Status
from hokical.plots.axes import BLUE, GREY, ORANGE, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    places = _places(entries)
    low, high = ([entry["ece"][end] for entry in entries] for end in ("low", "high"))
    ax.fill_between(places, low, high, color=BLUE, alpha=0.15, linewidth=0, label="interval")
    ax.plot(places, [e["ece"]["value"] for e in entries], color=BLUE, label="ECE of the window")
    gap = [entry["mean_confidence"] - entry["accuracy"] for entry in entries]
    ax.plot(places, gap, color=ORANGE, linestyle="--", label="confidence - accuracy")
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    _mark_alarm(ax, entries, places)
    timed = isinstance(places[0], datetime)
    ax.set(xlabel="time (UTC)" if timed else "labels so far", ylabel="error")
    # Above the picture: an alarm may come anywhere in it, and its words are long.
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    return ax


def _places(entries: Sequence[Mapping[str, Any]]) -> list[Any]:
    if all(entry["time"] is not None for entry in entries):
        return [datetime.fromtimestamp(entry["time"], UTC) for entry in entries]
    return [entry["n"] for entry in entries]


def _mark_alarm(ax: Axes, entries: Sequence[Mapping[str, Any]], places: list[Any]) -> None:
    """A line at the first status with an alarm, with the verdict beside it."""
    for entry, place in zip(entries, places, strict=True):
        if any(test["alarm"] for test in (entry["calibration"], *entry["classes"])):
            words = textwrap.fill(f"alarm: {entry['verdict']['text']}", 60)
            ax.axvline(place, color=GREY, linestyle=":", label=words)
            return
