"""Which methods the paper's experiments run, and on which pairs they cannot.

The names are those of the registry. Hoki stands there twice: `hoki_sampled` as the paper prints it
(1000 draws, its grid of noises) and `hoki`, exact.
"""

from __future__ import annotations

from hokical.calibrators.registry import CALIBRATORS
from hokical.paper.suite import Pair

SAMPLED, EXACT = "hoki_sampled", "hoki"
INPUT, MIXED = "hoki_input", "hoki_mixed"
RECAL = "recal"

#: The ten of the paper's own contest.
PAPER_METHODS = (
    "uncalibrated",
    "temps",
    "vecs",
    "ms_odir",
    "dir_odir",
    "ets",
    "irm",
    "irova_ts",
    RECAL,
    SAMPLED,
)
#: What is ours, set beside them.
_OURS = (EXACT, "profile")
#: Methods with classes x classes parameters: minutes for a thousand classes.
SLOW = ("ms_odir", "dir_odir")
SLOW_FROM = 500

_TITLES = {
    SAMPLED: "hoki sampled",
    EXACT: "hoki exact",
    INPUT: "hoki on inputs",
    MIXED: "hoki on both",
}


def method_names() -> list[str]:
    """All methods of the tables, in order: the paper's, then what is ours.

    >>> method_names()[:3], method_names()[9:11]
    (['uncalibrated', 'temps', 'vecs'], ['hoki_sampled', 'hoki'])
    """
    return [*PAPER_METHODS, *(name for name in _OURS if name in CALIBRATORS)]


def title_of(method: str) -> str:
    """How a method is called over a column.

    >>> title_of("hoki_sampled"), title_of("temps")
    ('hoki sampled', 'temps')
    """
    return _TITLES.get(method, method)


def why_absent(pair: Pair, method: str, *, slow: bool) -> str | None:
    """Why a method is not run on a pair, in a few words; None if it is."""
    if method == RECAL and pair.recal is None:
        return "not available"
    if method in (INPUT, MIXED) and not pair.has_views:
        return "not available"
    if method in SLOW and pair.n_classes > SLOW_FROM and not slow:
        return "minutes (--slow)"
    return None
