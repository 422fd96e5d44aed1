"""Several trainings side by side on the streams of one device.

Small networks leave most of a GPU idle. Each lane has a stream and works on one job at a time, a
generator that yields after each launch. One Python thread goes round the lanes; at most two
launches of a lane wait in its queue, since a longer queue slows the device down.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from hokical.paper.making.training import Work

_QUEUED = 2
_NAP_SECONDS = 5e-5
_WAIT_SECONDS = 0.05

#: Gives a job, or None when no job is ready now; raises StopIteration when none will come.
Source = Callable[[], Work | None]


def run_in_lanes(
    source: Source,
    n_lanes: int,
    device: torch.device,
    *,
    every_round: Callable[[], None] = lambda: None,
) -> None:
    """Do all jobs that the source gives, `n_lanes` of them at a time.

    `every_round` is called before each round of the lanes: thousands of times a second, so it
    should mostly find nothing to do.
    """
    if n_lanes < 1:
        raise ValueError(f"`n_lanes` must be at least 1; got {n_lanes}.")
    lanes = [_Lane(device) for _ in range(n_lanes)]
    more, ask_again = True, 0.0
    while more or any(lane.job is not None for lane in lanes):
        every_round()
        for lane in lanes:
            if lane.job is None and more and time.monotonic() >= ask_again:
                more = _assign(lane, source)
                if lane.job is None:  # asking may cost more than a launch: not on every round
                    ask_again = time.monotonic() + _WAIT_SECONDS
        advanced = [lane.advance() for lane in lanes]
        if not any(advanced):
            busy = any(lane.job is not None for lane in lanes)
            time.sleep(_NAP_SECONDS if busy else _WAIT_SECONDS)


def run_alone(work: Work, device: torch.device) -> None:
    """Do one job."""
    run_in_lanes(iter([work]).__next__, 1, device)


def _assign(lane: _Lane, source: Source) -> bool:
    """Give the lane a job, if there is one; False once there will be no more."""
    try:
        lane.job = source()
    except StopIteration:
        return False
    return True


class _Lane:
    """A stream, its job, and the events behind its launches."""

    def __init__(self, device: torch.device) -> None:
        self.job: Iterator[str] | None = None
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._events: deque[Any] = deque()
        self._allowed = _QUEUED

    def advance(self) -> bool:
        """Do the job's next piece, unless enough is queued; whether anything was done."""
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
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
