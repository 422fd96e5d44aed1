"""How each method looks in the figures: Hoki and the profile in colour, the others grey.

Twelve colours cannot be told apart, so the others differ in marker, filling and dashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hokical.paper.methods import EXACT, SAMPLED
from hokical.plots.axes import BLUE, ORANGE

_RED = "#a03040"
_DARK, _LIGHT = "#444444", "#8a8a8a"
_SOLID, _DASHED, _DOTTED = "-", (0, (5, 2)), (0, (1, 1.5))


@dataclass(frozen=True)
class Look:
    """Colour, marker and dashes; hollow markers are white inside."""

    colour: str
    marker: str
    dashes: Any = _SOLID
    is_hollow: bool = False
    is_special: bool = False

    @property
    def points(self) -> dict[str, Any]:
        """For markers, as matplotlib's `plot` takes it."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "markerfacecolor": "white" if self.is_hollow else self.colour,
            "markersize": 8 if self.is_special else 6,
            "zorder": 3 if self.is_special else 2,
        }

    @property
    def line(self) -> dict[str, Any]:
        """For a line with markers on it."""
        size = 5.5 if self.is_special else 4.5
        width = 2.2 if self.is_special else 1.0
        return self.points | {"linestyle": self.dashes, "linewidth": width, "markersize": size}


_LOOKS = {
    EXACT: Look(ORANGE, "o", is_special=True),
    SAMPLED: Look(_RED, "D", is_special=True),
    "profile": Look(BLUE, "s", is_special=True),
    "uncalibrated": Look("#000000", "x"),
    "temps": Look(_DARK, "o"),
    "ets": Look(_LIGHT, "o", _DASHED, is_hollow=True),
    "vecs": Look(_DARK, "s", _DASHED, is_hollow=True),
    "ms_odir": Look(_DARK, "^", _DOTTED),
    "dir_odir": Look(_LIGHT, "^", is_hollow=True),
    "irm": Look(_LIGHT, "v", _DOTTED),
    "irova_ts": Look(_DARK, "v", _DASHED, is_hollow=True),
    "recal": Look(_LIGHT, "P", _DASHED),
}
_OTHER = Look(_LIGHT, ".")


def look_of(method: str) -> Look:
    """The look of a method, the same in every figure.

    >>> look_of("hoki").is_special, look_of("temps").is_special
    (True, False)
    """
    return _LOOKS.get(method, _OTHER)
