"""No calibration: the softmax as it is, to compare the others with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators.base import BaseCalibrator
from hokical.calibrators.temps import settle_ties
from hokical.logits import Logits
from hokical.stability import gumbel
from hokical.stability.bounds import gumbel_bounds
from hokical.streams.blocks import Blocks
from hokical.topk import TopK

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Uncalibrated(BaseCalibrator):
    """The classifier's own softmax. `fit` learns the number of classes and nothing else.

    Examples
    --------
    >>> from hokical.calibrators.uncalibrated import Uncalibrated
    >>> cal = Uncalibrated().fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> cal.predict_confidence([[2.0, 0.0], [1.0, 1.0]]).round(4)
    array([0.8808, 0.5   ])
    """

    name = "uncalibrated"
    reference = "the classifier itself"
    cost = "nothing"
    accepts_top_k = True

    def _fit(self, logits: Logits, labels: IntArray, weights: FloatArray | None) -> None:
        pass

    def _fit_blocks(self, blocks: Blocks) -> None:
        blocks.total(lambda block: (np.array([block.n_rows]),))  # every row is checked

    def _proba(self, logits: Logits) -> FloatArray:
        return settle_ties(gumbel.distribution(logits, 1.0), logits.labels)

    def _confidence(self, logits: Logits) -> FloatArray:
        return gumbel.stability(logits, 1.0)

    def _confidence_bounds(self, logits: TopK) -> tuple[FloatArray, FloatArray]:
        return gumbel_bounds(logits, 1.0)

    def _state(self) -> dict[str, Any]:
        return {}

    def _restore(self, state: dict[str, Any]) -> None:
        pass
