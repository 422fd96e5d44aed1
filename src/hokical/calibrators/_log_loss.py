"""Calibrators that learn from sums over examples, whether those are in memory or come in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators.base import BaseCalibrator
from hokical.likelihood import ExampleSet, countable_examples
from hokical.logits import Logits
from hokical.streams.blocks import Blocks
from hokical.streams.examples import StreamedExamples

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class LogLossCalibrator(BaseCalibrator):
    """A method says how to check its parameters and how to fit a set of examples, in passes."""

    def _check_parameters(self) -> None:
        raise TypeError(f"{type(self).__name__} does not say what its parameters may be.")

    def _fit_examples(self, examples: ExampleSet) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to fit.")

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        self._check_parameters()
        self._fit_examples(countable_examples(logits, labels, weights))

    def _fit_blocks(self, blocks: Blocks) -> None:
        self._check_parameters()
        self._fit_examples(StreamedExamples(blocks))

    def _fits_in_one_pass(self) -> bool:
        return False
