"""Rules with scores that are linear in the margins, and a row correction of them.

NumPy's rows of many classes go through a compiled loop.
"""

from typing import ClassVar

import numpy as np

from hokical._core.arrays import Array
from hokical._core.jit import has_kernels
from hokical._core.logits import Logits
from hokical._core.parallel import cut_rows
from hokical._core.types import AnyArray, FloatArray, IntArray
from hokical.rules._base import Rule
from hokical.rules._predicting import to_float32
from hokical.rules._probabilities import least_probability
from hokical.rules._row_correction import RowCorrection

#: Logits that are worked on at a time, as float64: a copy that stays in the cache costs little,
#: and the kernel is compiled for one type.
_AT_ONCE = 1 << 15


class CorrectedRule(Rule):
    """Base of rules with a row `correction`, or None for the softmax of the scores."""

    #: Whether the shift of the correction leaves the classifier's label on top.
    shift_keeps_label: ClassVar[bool] = False

    correction: RowCorrection | None

    def linear_scores(self, n_classes: int) -> tuple[FloatArray, FloatArray | None] | None:
        """`scale` and `bias` (classes,) of scores bias - scale * margins; None for other scores."""
        raise NotImplementedError

    def portable_proba(self, logits: Logits) -> Array:
        """`proba` for arrays of any library, the reference of the compiled loop."""
        raise NotImplementedError

    def proba(self, logits: Logits) -> Array:
        if has_kernels(logits):
            out = np.empty((logits.n_rows, logits.n_columns))
            if self.fill_proba(logits, out) is not None:
                return out
        return self.portable_proba(logits)

    def fill_proba(self, logits: Logits, out: AnyArray) -> IntArray | None:
        if not has_kernels(logits) or logits.tail is not None:
            return None
        linear = self.linear_scores(logits.n_columns)
        if linear is None:
            return None
        self._fill(logits, *linear, out)
        return np.empty(0, np.int64)

    def _fill(
        self, logits: Logits, scale: FloatArray, bias: FloatArray | None, out: AnyArray
    ) -> None:
        """Write corrected probabilities of scores bias - scale * margins into `out` (n, classes).

        The label is the first maximum of the scores; or, if the shift keeps it, of the logits.
        """
        from hokical.rules._kernels import correct_rows

        block, least = logits.block(), least_probability(logits)
        weights, spread = np.zeros((2, 0)), np.zeros((2, 0))
        if self.correction is not None:
            weights = np.stack([self.correction.log_scale, self.correction.shift])
            spread = np.stack([self.correction.centre, 1.0 / self.correction.spread])
        room = np.empty((max(1, _AT_ONCE // logits.n_columns), logits.n_columns))
        for rows in cut_rows(logits.n_rows, len(room)):
            part = room[: rows.stop - rows.start] if out.dtype == np.float32 else out[rows]
            with np.errstate(over="ignore"):  # 1e308 above -1e308: far, but not masked
                np.subtract(logits.top[rows, None], block[rows], out=part, dtype=np.float64)
                _scale_margins(part, scale, bias)
            masked = None if logits.all_possible else block[rows] == -np.inf
            labels = logits.labels[rows] if self.shift_keeps_label else part.argmin(axis=1)
            part[np.arange(len(part)), labels] = np.inf  # left out of all sums
            left_out = np.ones(len(part)) if masked is None else 1.0 + masked.sum(axis=1)
            lowest = part.min(axis=1) if self.shift_keeps_label else np.empty(0)
            correct_rows(part, labels, left_out, lowest, spread, weights, least)
            if masked is not None:
                part[masked] = 0.0
            if out.dtype == np.float32:
                out[rows] = to_float32(part)


def _scale_margins(margins: FloatArray, scale: FloatArray, bias: FloatArray | None) -> None:
    """Margins (n, classes) become margins below the largest score, in place."""
    if bias is None:
        margins *= scale
        return
    margins *= -scale
    margins += bias
    np.subtract(margins.max(axis=1, keepdims=True), margins, out=margins)
