"""Rules that a compiled pass answers for NumPy's rows of many classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from hokical._core.arrays import Array
from hokical._core.jit import has_kernels
from hokical._core.logits import Logits
from hokical._core.parallel import cut_rows
from hokical._core.properties import cached_property
from hokical._core.types import AnyArray, IntArray
from hokical.rules._base import Rule
from hokical.rules._blend_kernels import Blend, average_rows, write_rows
from hokical.rules._predicting import to_float32
from hokical.rules._probabilities import least_probability

#: Floors below this, if not 0, are left to the portable form: the pass takes exp(-700) for 0.
LEAST_FLOOR = 1e-250
#: Logits that are copied to float64 and answered in place at a time: it takes seconds to compile
#: the pass for one type of array, and copies that stay in the cache cost little.
COPIED_AT_ONCE = 1 << 15


class BlendedRule(Rule):
    """An average of the softmax, temperature and structured scaling."""

    @cached_property
    def _pass(self) -> Blend:
        """What the pass computes the average with."""
        raise TypeError(f"{type(self).__name__} does not say how to predict.")

    def __getstate__(self) -> dict[str, Any]:
        """For pickles, which must not depend on what was asked before, nor on the kernels' form."""
        return {name: value for name, value in vars(self).items() if name != "_pass"}

    def portable_proba(self, logits: Logits) -> Array:
        """`proba` for arrays of any library, the reference of the pass."""
        raise TypeError(f"{type(self).__name__} does not say how to predict.")

    def proba(self, logits: Logits) -> Array:
        if not self._answers(logits):
            return self.portable_proba(logits)
        out = np.empty((logits.n_rows, logits.n_columns))
        self._fill(logits, 0.0, out)
        return out

    def fill_proba(self, logits: Logits, out: AnyArray) -> IntArray | None:
        if not self._answers(logits):
            return None
        return self._fill(logits, least_probability(logits), out)

    def _answers(self, logits: Logits) -> bool:
        return has_kernels(logits) and not 0.0 < self._pass[0] < LEAST_FLOOR

    def _fill(self, logits: Logits, least: float, out: AnyArray) -> IntArray:
        """Write the answers into `out`; the rows that must be had in another way, none."""
        block, blend = logits.block(), self._pass
        at_once = max(1, COPIED_AT_ONCE // logits.n_columns)
        room = np.empty((2, min(at_once, logits.n_rows), logits.n_columns))  # new memory is dear
        for rows in cut_rows(logits.n_rows, at_once):
            copied, average = room[:, : rows.stop - rows.start]
            part = copied if out.dtype == np.float32 else out[rows]
            part[...], counts = block[rows], np.empty(len(part), np.int64)
            average_rows(part, logits.top[rows], logits.labels[rows], blend, average, counts)
            write_rows(average, least, part)
            if part is copied:
                out[rows] = to_float32(part)
        return np.empty(0, np.int64)
