"""Sums and panes as plain arrays, for a monitor's file, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.metrics.binned import BinnedSums
from hokical.monitoring.drift import Alarm, Reading
from hokical.monitoring.windows import Layout, Panes

IntArray = NDArray[np.int64]

_FIELDS = ("count", "correct", "confidence_words", "square_words", "error_words")


def pack_sums(sums: list[BinnedSums]) -> dict[str, NDArray[Any]] | None:
    """Each field of the sums as one array with a row per element."""
    if not sums:
        return None
    return {name: np.array([getattr(one, name) for one in sums]) for name in _FIELDS}


def unpack_sums(stored: dict[str, NDArray[Any]] | None, n_bins: int) -> list[BinnedSums]:
    """The inverse of `pack_sums`."""
    if stored is None:
        return []
    count = stored["count"]
    for name in _FIELDS:
        middle = () if name in ("count", "correct") else (3,)
        _check_shape(name, stored[name], (count.shape[0], *middle, n_bins))
    return [
        BinnedSums(
            count[i], count[i].astype(np.float64), *(stored[name][i] for name in _FIELDS[1:])
        )
        for i in range(count.shape[0])
    ]


def pack_labelled(panes: Panes[BinnedSums]) -> dict[str, Any]:
    """Panes of labelled examples."""
    return _numbers(panes) | {"sums": pack_sums([panes.held[key] for key in sorted(panes.held)])}


def unpack_labelled(stored: dict[str, Any], layout: Layout, n_bins: int) -> Panes[BinnedSums]:
    """The inverse of `pack_labelled`."""
    sums = unpack_sums(stored["sums"], n_bins)
    return Panes(layout, dict(zip(stored["numbers"], sums, strict=True)), stored["newest"])


def pack_inputs(panes: Panes[IntArray]) -> dict[str, Any]:
    """Panes of counts per bin."""
    counts = [panes.held[key].tolist() for key in sorted(panes.held)]
    return _numbers(panes) | {"counts": counts}


def unpack_inputs(stored: dict[str, Any], layout: Layout, n_bins: int) -> Panes[IntArray]:
    """The inverse of `pack_inputs`."""
    counts = [np.array(row, dtype=np.int64) for row in stored["counts"]]
    for row in counts:
        _check_shape("counts", row, (n_bins,))
    return Panes(layout, dict(zip(stored["numbers"], counts, strict=True)), stored["newest"])


def pack_reading(reading: Reading) -> dict[str, Any]:
    """What the fortunes of several replicas came to."""
    alarm = None if reading.alarm is None else vars(reading.alarm)
    return {"units": reading.units, "alarm": alarm}


def unpack_reading(stored: dict[str, Any]) -> Reading:
    """The inverse of `pack_reading`."""
    alarm = None if stored["alarm"] is None else Alarm(**stored["alarm"])
    return Reading(stored["units"], alarm)


def _numbers(panes: Panes[Any]) -> dict[str, Any]:
    return {"numbers": sorted(panes.held), "newest": panes.newest}


def _check_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {array.shape}")
