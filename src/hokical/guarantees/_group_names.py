"""The groups of examples: the values of one column or of several, matched by name and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hokical._core.groups import match_cells, read_cells
from hokical._core.storage import storable
from hokical._core.types import IntArray
from hokical._core.warn import warn_user


@storable("group-names")
@dataclass(frozen=True)
class GroupNames:
    """The values of the `columns` of each group."""

    columns: tuple[str, ...]
    names: tuple[tuple[Any, ...], ...]

    def __post_init__(self) -> None:
        if {len(name) for name in self.names} != {len(self.columns)}:
            raise ValueError("names of groups must have one value for each column")

    @classmethod
    def from_rows(cls, groups: Any, n_rows: int) -> tuple[Self, IntArray]:
        """The groups that occur, and the place (n,) of each row's among them."""
        columns, cells = read_cells(groups, n_rows)
        places: dict[Any, int] = {}
        place = np.array([places.setdefault(cell, len(places)) for cell in cells], np.int64)
        return cls(columns, tuple(places)), place

    def check_countable(self, alike: bool) -> None:
        """Raise unless groups can be counted: all are known, and examples count `alike`."""
        if not alike:
            raise ValueError(
                '`by="new group"` needs examples that count alike; those of `certify` have unequal '
                "weights. Leave `sample_weight` out, or pass `counts=True` if they are counts."
            )
        if any(value is None for name in self.names for value in name):
            raise ValueError(
                '`by="new group"` counts groups, and some rows of `certify` have none (None or '
                "NaN in `groups`). Leave these rows out."
            )

    def match(self, groups: Any, n_rows: int, what: str) -> tuple[IntArray, int]:
        """The place (n,) of each row's group, and the number of rows of unknown groups.

        The place of these is the number of groups. A warning counts them: `what` they get.
        """
        place = match_cells(groups, n_rows, self.columns, self.names)
        n_unknown = int((place == len(self.names)).sum())
        if n_unknown:
            warn_user(
                f"`groups` has {n_unknown:,} of {n_rows:,} rows whose group was not in `certify`: "
                f"they {what}. Certify with examples of all groups, or ask for "
                '`by="new group"`, whose guarantee is for groups that were never seen.',
                UserWarning,
            )
        return place, n_unknown


def count_groups(place: IntArray | None) -> int:
    """How many groups occur among examples (n,) at these places."""
    return 0 if place is None else np.unique(place).size
