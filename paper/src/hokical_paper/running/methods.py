"""Which methods the experiments run, and on which pairs they cannot be run.

The names are those of hokical's registry. Three methods appear in two forms: Hoki as in
the paper, `hoki_sampled` (1000 draws, its grid of noises), and with exact stability,
`hoki`; IRM and IROvA-TS as their authors publish them, which is how the paper ran them
(`irm_published`, `irova_ts_published`: rows that do not sum to 1), and as hokical has
them, as probabilities.
"""

from __future__ import annotations

from hokical import make
from hokical_paper.suite.manifest import Pair

SAMPLED = "hoki_sampled"
EXACT = "hoki"
#: Hoki on the share of transformed inputs that keep the label, alone or averaged with
#: label stability; and that share beside the confidence of Hoki, or of the default.
INPUT = "hoki_input"
MIXED = "hoki_mixed"
HOKI_BESIDE = "hoki_beside"
AUTO_BESIDE = "auto_beside"
RECAL = "recal"
IRM = "irm_published"
IROVA_TS = "irova_ts_published"

#: The ten methods that the paper compares, as it ran them.
PAPER_METHODS = (
    "uncalibrated",
    "temps",
    "vecs",
    "ms_odir",
    "dir_odir",
    "ets",
    IRM,
    IROVA_TS,
    RECAL,
    SAMPLED,
)
#: hokical's own methods: not in the paper, so no claim of it is judged against them.
AUTO = "auto"
OWN_METHODS = (EXACT, "adaptive", "structured", AUTO)
#: The paper's methods whose rows hokical normalises, and their names in the registry.
NORMALISED = {IRM: "irm", IROVA_TS: "irova_ts"}
#: What needs to know which transformed inputs keep their label.
INPUT_METHODS = (INPUT, MIXED, HOKI_BESIDE, AUTO_BESIDE)
#: All methods of the tables, in order: the paper's, in both forms, then hokical's own.
METHODS = (
    *(name for each in PAPER_METHODS for name in (each, NORMALISED.get(each)) if name),
    *OWN_METHODS,
)
#: Methods with classes x classes parameters: they take minutes from so many classes on.
SLOW = ("ms_odir", "dir_odir")
SLOW_FROM = 500

_TITLES = {
    IRM: "irm published",
    IROVA_TS: "irova_ts published",
    "irm": "irm normalised",
    "irova_ts": "irova_ts normalised",
    SAMPLED: "hoki sampled",
    EXACT: "hoki exact",
}


def title_of(method: str) -> str:
    """The method's name in tables and figures.

    >>> title_of("hoki_sampled"), title_of("temps")
    ('hoki sampled', 'temps')
    """
    return _TITLES.get(method, method)


def is_own(method: str) -> bool:
    """Whether a method is one of hokical's own.

    >>> is_own("adaptive"), is_own("temps")
    (True, False)
    """
    return method in OWN_METHODS


def published_column(method: str) -> str | None:
    """The column of a method in the paper's tables; None if it is not there in this
    form.

    >>> (
    ...     published_column("irm_published"),
    ...     published_column("irm"),
    ...     published_column("hoki_sampled"),
    ... )
    ('irm', None, 'hoki')
    """
    if method not in PAPER_METHODS:
        return None
    return EXACT if method == SAMPLED else NORMALISED.get(method, method)


def why_absent(pair: Pair, method: str, *, slow: bool) -> str | None:
    """Why a method is not run on a pair, in a few words; None if it is run."""
    if method == RECAL and pair.recal is None:
        return "not available"
    if method in INPUT_METHODS and not pair.has_views:
        return "not available"
    if pair.top_k is not None and not _takes_top_k(method):
        return "needs all logits"
    if method in SLOW and pair.n_classes > SLOW_FROM and not slow:
        return "minutes (--slow)"
    return None


def _takes_top_k(method: str) -> bool:
    """Whether a method works without the logits of most classes; draws need all of
    them.
    """
    needs_all = method in (SAMPLED, IRM, IROVA_TS)
    return not needs_all and make(method).method.accepts_top_k
