"""What a monitor keeps of its stream: exact sums and fortunes, never examples."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.bins import bin_index
from hokical.metrics.binned import BinnedSums
from hokical.metrics.checks import Examples
from hokical.monitoring import stored as pack
from hokical.monitoring.drift import Alarm, Evidence, Reading
from hokical.monitoring.options import Options
from hokical.monitoring.windows import Panes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Tally:
    """Counts, windows and evidence of one stream, or (`merged`) a reading of several.

    `n` and `n_observed` count labelled examples and all predictions; `sums` are those since the
    start, `labelled` and `inputs` the windows; `time` is the newest timestamp.
    """

    def __init__(self, options: Options, allowance: FloatArray) -> None:
        self.options = options
        self.n = self.n_observed = 0
        self.replicas = 1
        self.time: float | None = None
        self.sums: BinnedSums | None = None
        self.labelled: Panes[BinnedSums] = Panes(options.layout)
        self.inputs: Panes[IntArray] = Panes(options.layout)
        self.evidence = Evidence(allowance, options.alpha)
        self.merged: Reading | None = None

    def reading(self) -> Reading:
        """The evidence now, of one stream or of all replicas."""
        return self.evidence.reading() if self.merged is None else self.merged

    def alarm(self) -> Alarm | None:
        """The alarm of this stream, which stays; or what all replicas together show now."""
        return self.evidence.alarm if self.merged is None else self.merged.found(self.options.alpha)

    def count_inputs(self, confidence: FloatArray, times: FloatArray | None) -> None:
        """Add predictions (n,), labelled or not."""
        n, n_bins = confidence.shape[0], self.options.n_bins
        panes = self.options.layout.panes_of(self.n_observed, n, times)
        bins = bin_index(confidence, n_bins)
        self.inputs.add(panes, lambda rows: np.bincount(bins[rows], minlength=n_bins))
        self.n_observed += n
        self._see(times)

    def count_labelled(self, examples: Examples, times: FloatArray | None) -> None:
        """Add labelled examples (n,), in order of arrival."""
        confidence, correct = examples.confidence, examples.correct
        panes = self.options.layout.panes_of(self.n, examples.n_rows, times)
        self.labelled.add(panes, lambda rows: self._summed(confidence[rows], correct[rows]))
        sums = self._summed(confidence, correct)
        self.sums = sums if self.sums is None else self.sums + sums
        self.evidence.add(confidence, correct, bin_index(confidence, self.options.n_bins), times)
        self.n += examples.n_rows
        self._see(times)

    @classmethod
    def of_replicas(cls, tallies: list[Tally]) -> Tally:
        """A reading of several streams; the same, to the bit, in any order."""
        first = tallies[0]
        both = cls(first.options, first.evidence.allowance)
        both.n, both.n_observed, both.replicas = (
            sum(getattr(tally, name) for tally in tallies)
            for name in ("n", "n_observed", "replicas")
        )
        both.time = max((t.time for t in tallies if t.time is not None), default=None)
        sums = [tally.sums for tally in tallies if tally.sums is not None]
        both.sums = reduce(lambda a, b: a + b, sums) if sums else None
        both.labelled = reduce(Panes.merged, (tally.labelled for tally in tallies))
        both.inputs = reduce(Panes.merged, (tally.inputs for tally in tallies))
        both.merged = reduce(lambda a, b: a + b, (tally.reading() for tally in tallies))
        return both

    def to_dict(self) -> dict[str, Any]:
        """For storage."""
        return {
            "n": self.n,
            "n_observed": self.n_observed,
            "replicas": self.replicas,
            "time": self.time,
            "sums": pack.pack_sums([] if self.sums is None else [self.sums]),
            "labelled": pack.pack_labelled(self.labelled),
            "inputs": pack.pack_inputs(self.inputs),
            "evidence": self.evidence.to_dict(),
            "merged": None if self.merged is None else pack.pack_reading(self.merged),
        }

    def restore(self, stored: dict[str, Any]) -> None:
        """Go on from what `to_dict` gave."""
        layout, n_bins = self.options.layout, self.options.n_bins
        self.n, self.n_observed = int(stored["n"]), int(stored["n_observed"])
        self.replicas, self.time = int(stored["replicas"]), stored["time"]
        self.sums = next(iter(pack.unpack_sums(stored["sums"], n_bins)), None)
        self.labelled = pack.unpack_labelled(stored["labelled"], layout, n_bins)
        self.inputs = pack.unpack_inputs(stored["inputs"], layout, n_bins)
        self.evidence.restore(stored["evidence"])
        self.merged = None if stored["merged"] is None else pack.unpack_reading(stored["merged"])

    def _summed(self, confidence: FloatArray, correct: NDArray[np.bool_]) -> BinnedSums:
        return BinnedSums.from_examples(confidence, correct, n_bins=self.options.n_bins)

    def _see(self, times: FloatArray | None) -> None:
        if times is not None:
            newest = float(times.max())
            self.time = newest if self.time is None else max(self.time, newest)
