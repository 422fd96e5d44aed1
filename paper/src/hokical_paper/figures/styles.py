"""How each method is drawn: Hoki, adaptive scaling and the default in colour, the
others in grey.

Fourteen colours are hard to tell apart, so the others differ in marker, filling and
line style.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hokical_paper.running.methods import EXACT, SAMPLED

BLUE = "#3f74b5"
ORANGE = "#e08a3c"
GREY = "#808080"
_RED = "#a03040"
_GREEN = "#2f7d4f"
_DARK = "#444444"
_LIGHT = "#8a8a8a"
_SOLID = "-"
_DASHED = (0, (5, 2))
_DOTTED = (0, (1, 1.5))


@dataclass(frozen=True)
class Style:
    """Colour, marker and line style; hollow markers are filled with white."""

    colour: str
    marker: str
    line_style: Any = _SOLID
    is_hollow: bool = False
    is_special: bool = False

    @property
    def points(self) -> dict[str, Any]:
        """Options of matplotlib's `plot` for markers."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "markerfacecolor": "white" if self.is_hollow else self.colour,
            "markersize": 8 if self.is_special else 6,
            "zorder": 3 if self.is_special else 2,
        }

    @property
    def line(self) -> dict[str, Any]:
        """Options of matplotlib's `plot` for a line with markers."""
        size = 5.5 if self.is_special else 4.5
        width = 2.2 if self.is_special else 1.0
        return self.points | {
            "linestyle": self.line_style,
            "linewidth": width,
            "markersize": size,
        }


_STYLES = {
    EXACT: Style(ORANGE, "o", is_special=True),
    SAMPLED: Style(_RED, "D", is_special=True),
    "adaptive": Style(BLUE, "s", is_special=True),
    "auto": Style(_GREEN, "*", is_special=True),
    "structured": Style(_LIGHT, "D", _DASHED),
    "profile": Style(_LIGHT, "s", _DOTTED),
    "uncalibrated": Style("#000000", "x"),
    "temps": Style(_DARK, "o"),
    "ets": Style(_LIGHT, "o", _DASHED, is_hollow=True),
    "vecs": Style(_DARK, "s", _DASHED, is_hollow=True),
    "ms_odir": Style(_DARK, "^", _DOTTED),
    "dir_odir": Style(_LIGHT, "^", is_hollow=True),
    "irm_published": Style(_DARK, ">"),
    "irova_ts_published": Style(_LIGHT, "<", _DASHED),
    "irm": Style(_LIGHT, "v", _DOTTED),
    "irova_ts": Style(_DARK, "v", _DASHED, is_hollow=True),
    "recal": Style(_LIGHT, "P", _DASHED),
}
_OTHER = Style(_LIGHT, ".")


def style_of(method: str) -> Style:
    """The style of a method, the same in every figure.

    >>> style_of("hoki").is_special, style_of("temps").is_special
    (True, False)
    """
    return _STYLES.get(method, _OTHER)
