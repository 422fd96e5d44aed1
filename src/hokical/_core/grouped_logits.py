"""Logits whose rows have groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.arrays import Array, backend_of, float64_scope
from hokical._core.groups import FINE_FROM, FINE_PARTS, PARTS, GroupCoding
from hokical._core.logits import Logits, as_logits
from hokical._core.types import BoolArray
from hokical._core.warn import warn_user


@dataclass(frozen=True, eq=False)
class GroupedLogits(Logits):
    """Logits, and `codes` (n, columns) of the groups of each row; see `GroupCoding`.

    `source` is what the caller passed as logits.
    """

    codes: Any = None
    coding: GroupCoding | None = None
    source: Any = None

    @property
    def given(self) -> Any:
        return self if self.source is None else self.source

    def column(self, k: int) -> Array:
        """The codes (n,) of a column, where the values are."""
        own = self.codes[:, k]
        return self.from_host(own) if isinstance(own, np.ndarray) else own

    def _take(self, rows: Any) -> Self:
        plain = Logits(self.values, self.top, self.backend).take(rows)
        return type(self)(plain.values, plain.top, self.backend, self.codes[rows], self.coding)


def with_groups(logits: Any, groups: Any, coding: GroupCoding, fitted_by: Any = None) -> Any:
    """Logits with the codes of their rows' groups; a warning counts those that are not known."""
    backend = backend_of(logits)
    if backend is not None and backend.is_lazy:
        raise TypeError(
            "`logits` must be in memory where there are `groups`; got a Dask array. Compute it, or "
            "call the calibrator on each block: `dask.array.blockwise(lambda x, g: "
            "cal.predict_proba(x, groups=g), 'ik', logits, 'ik', groups, 'i', dtype=float)`."
        )
    with float64_scope(logits):
        data = as_logits(logits, fitted_by=fitted_by)
        if type(data) is not Logits:
            return data  # refused for what it is
        codes = coding.codes(groups, data.n_rows)
    tell_unknown(codes, coding)
    return GroupedLogits(data.values, data.top, data.backend, codes, coding, logits)


def code_groups(logits: Any, groups: Any, counting: BoolArray, rows: Any) -> Any:
    """Logits of some `rows` with the codes of their groups, which are learned from all that count.

    `groups` are those of all rows, and so is `counting` (n,); without groups, logits stay.
    """
    if groups is None:
        return logits
    parts = FINE_PARTS if np.count_nonzero(counting) >= FINE_FROM else PARTS
    coding, codes = GroupCoding.read(groups, counting.size, counting, parts)
    tell_unknown(codes[counting], coding)
    return with_codes(logits, codes[rows], coding)


def with_codes(logits: Any, codes: Any, coding: GroupCoding) -> GroupedLogits:
    """Logits with codes (n, columns) that were made before."""
    data = as_logits(logits)
    return GroupedLogits(data.values, data.top, data.backend, codes, coding, logits)


def tell_unknown(codes: Any, coding: GroupCoding) -> None:
    """Warn of rows whose group is not known, with their number."""
    unknown = (codes == np.array(coding.sizes) - 1).sum(axis=0)
    if unknown.any():
        by_column = zip(coding.columns, unknown.tolist(), strict=True)
        counts = ", ".join(f"{n:,} in {name!r}" for name, n in by_column if n)
        warn_user(
            f"`groups` has rows, of {len(codes):,}, whose group is missing or was not in the fit: "
            f"{counts}. They get the predictions for all groups together.",
            UserWarning,
        )
