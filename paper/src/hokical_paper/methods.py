"""Which methods the experiments run, and on which pairs they cannot be run.

The names are those of hokical's registry. Hoki appears twice: `hoki_sampled` as in the paper
(1000 draws, its grid of noises) and `hoki`, with exact stability.
"""

from __future__ import annotations

from hokical import make
from hokical_paper.suite import Pair

SAMPLED, EXACT = "hoki_sampled", "hoki"
INPUT, MIXED = "hoki_input", "hoki_mixed"
RECAL = "recal"

#: The ten methods that the paper compares.
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
#: hokical's own methods: not in the paper, so no claim of it is judged against them.
AUTO = "auto"
OWN_METHODS = (EXACT, "adaptive", "structured", AUTO)
#: hokical's own methods that are no longer run; stored results may have them.
FORMER_METHODS = ("profile",)
#: All methods of the tables, in order: the paper's, then hokical's own.
METHODS = (*PAPER_METHODS, *OWN_METHODS)
#: Methods with classes x classes parameters: they take minutes from so many classes on.
SLOW = ("ms_odir", "dir_odir")
SLOW_FROM = 500

_TITLES = {
    SAMPLED: "hoki sampled",
    EXACT: "hoki exact",
    INPUT: "hoki on inputs",
    MIXED: "hoki on both",
}


def title_of(method: str) -> str:
    """The method's name in tables and figures.

    >>> title_of("hoki_sampled"), title_of("temps")
    ('hoki sampled', 'temps')
    """
    return _TITLES.get(method, method)


def is_own(method: str) -> bool:
    """Whether a method is one of hokical's own, of today or of stored results.

    >>> is_own("adaptive"), is_own("profile"), is_own("temps")
    (True, True, False)
    """
    return method in OWN_METHODS or method in FORMER_METHODS


def why_absent(pair: Pair, method: str, *, slow: bool) -> str | None:
    """Why a method is not run on a pair, in a few words; None if it is run."""
    if method == RECAL and pair.recal is None:
        return "not available"
    if method in (INPUT, MIXED) and not pair.has_views:
        return "not available"
    if pair.top_k is not None and not _takes_top_k(method):
        return "needs all logits"
    if method in SLOW and pair.n_classes > SLOW_FROM and not slow:
        return "minutes (--slow)"
    return None


def _takes_top_k(method: str) -> bool:
    """Whether a method works without the logits of most classes; draws need all of them."""
    return method != SAMPLED and make(method).method.accepts_top_k
