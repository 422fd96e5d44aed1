"""How certain the comparisons are: every pair's examples pooled and divided anew, many times.

One division says little: "lowest on n of 12 pairs" changes with the seed. Here validation and test
examples are pooled and divided at random, in the sizes of the pair, and every method is fitted and
measured on each division.
"""

from __future__ import annotations

from collections.abc import Iterator

from hokical_paper.cache import Cache
from hokical_paper.methods import AUTO, METHODS, RECAL, SLOW, SLOW_FROM, why_absent
from hokical_paper.results import Result
from hokical_paper.running import Cell, run_cells
from hokical_paper.suite import Pair, Suite

#: Divisions of each pair.
N_CUTS = 20
#: Divisions for what costs most: pairs with a thousand classes, and hokical's methods that are
#: beside the claims. The methods of SLOW have them up to fifty classes, and none beyond.
FEW_CUTS = 5
_FEW = ("profile", "structured", AUTO)
_SLOW_UP_TO = 50


def run_cuts(
    suite: Suite, cache: Cache, *, n_cuts: int = N_CUTS, jobs: int | None = None,
    progress: bool | None = None,
) -> list[Result]:  # fmt: skip
    """The result of every method on every division, seed by seed; each is stored when computed."""
    cells = list(_cells(suite, n_cuts))
    return list(run_cells(suite, cells, cache, jobs=jobs, progress=progress))


def _cells(suite: Suite, n_cuts: int) -> Iterator[Cell]:
    """Seed by seed, so that a run that is stopped has complete divisions."""
    for cut in range(n_cuts):
        for pair in suite.pairs:
            for method in METHODS:
                if cut < divisions_of(pair, method, n_cuts):
                    yield pair, method, cut


def divisions_of(pair: Pair, method: str, n_cuts: int = N_CUTS) -> int:
    """On how many divisions of a pair a method is run."""
    if method == RECAL or why_absent(pair, method, slow=False):
        return 0  # ReCal needs the images of the new validation set
    if method in SLOW:
        return min(FEW_CUTS, n_cuts) if pair.n_classes <= _SLOW_UP_TO else 0
    is_few = method in _FEW or pair.n_classes >= SLOW_FROM
    return min(FEW_CUTS, n_cuts) if is_few else n_cuts
