"""Several trainings in parallel on the streams of one device.

Small networks leave most of a GPU idle. Each lane has a stream and works on one job at
a time, a generator that yields after each launch. One Python thread serves all lanes in
turn; at most two launches of a lane are queued, because longer queues slow the device
down.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from hokical_paper.making.training import Work

_QUEUED = 2
_NAP_SECONDS = 5e-5
_WAIT_SECONDS = 0.05

#: Returns a job, or None if none is ready yet; raises StopIteration when there are no
#: more.
JobSource = Callable[[], Work | None]


def run_in_lanes(
    source: JobSource,
    n_lanes: int,
    device: torch.device,
    *,
    every_round: Callable[[], None] = lambda: None,
) -> None:
    """Run all jobs of the source, `n_lanes` of them at a time.

    `every_round` is called before each round of the lanes, thousands of times a second,
    so it must be fast.
    """
    if n_lanes < 1:
        raise ValueError(f"`n_lanes` must be at least 1; got {n_lanes}.")
    lanes = [_Lane(device) for _ in range(n_lanes)]
    more = True
    ask_again = 0.0
    while more or any(lane.job is not None for lane in lanes):
        every_round()
        for lane in lanes:
            if lane.job is None and more and time.monotonic() >= ask_again:
                more = _assign(lane, source)
                if (
                    lane.job is None
                ):  # asking can be slower than a launch: not in every round
                    ask_again = time.monotonic() + _WAIT_SECONDS
        advanced = [lane.advance() for lane in lanes]
        if not any(advanced):
            busy = any(lane.job is not None for lane in lanes)
            time.sleep(_NAP_SECONDS if busy else _WAIT_SECONDS)


def _assign(lane: _Lane, source: JobSource) -> bool:
    """Assign a job to the lane if one is ready; returns False if there are no more."""
    try:
        lane.job = source()
    except StopIteration:
        return False
    return True


class _Lane:
    """A stream, its job, and the events of its launches."""

    def __init__(self, device: torch.device) -> None:
        self.job: Iterator[str] | None = None
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._events: deque[Any] = deque()
        self._allowed = _QUEUED

    def advance(self) -> bool:
        """Run the job's next step unless enough is queued; returns whether it did."""
        if self.job is None or self._queued() >= self._allowed:
            return False
        with self._on_stream():
            piece = next(self.job, None)
            if self._stream is not None and piece is not None:
                self._events.append(self._stream.record_event())
        if piece is None:
            self.job = None
        self._allowed = 1 if piece == "drain" else _QUEUED
        return True

    def _queued(self) -> int:
        while self._events and self._events[0].query():
            self._events.popleft()
        return len(self._events)

    def _on_stream(self) -> AbstractContextManager[None]:
        return (
            nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
        )
