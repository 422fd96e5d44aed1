"""How certain the comparisons are: every pair's examples pooled and divided anew, many
times.

One division says little: "lowest on n of 12 pairs" changes with the division. Here
validation and test examples are pooled and divided at random, in the sizes of the pair,
and every method is fitted and measured on each division.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hokical_paper.running.cache import Cache
from hokical_paper.running.cells import Cell, run_cells
from hokical_paper.running.methods import (
    EXACT,
    INPUT_METHODS,
    METHODS,
    OWN_METHODS,
    RECAL,
    SLOW,
    why_absent,
)
from hokical_paper.running.results import Result
from hokical_paper.suite.manifest import Pair, Suite

#: Divisions of each pair.
N_DIVISIONS = 20
#: The methods of SLOW are run up to so many classes, beyond only if asked for.
SLOW_UP_TO = 50
#: hokical's own methods, except exact Hoki.
_BESIDE = tuple(name for name in OWN_METHODS if name != EXACT)


def run_divisions(
    suite: Suite,
    cache: Cache,
    *,
    n_divisions: int = N_DIVISIONS,
    slow: bool = False,
    jobs: int | None = None,
    device: str | None = None,
    stored_only: bool = False,
    progress: bool | None = None,
) -> list[Result]:
    """The result of every method on every division; each is stored when it is computed.

    `slow` runs the matrix methods on pairs of many classes, too. `device` is that of
    `run_suite`; `stored_only` computes nothing and returns what is stored.
    """
    cells = list(_cells(suite, n_divisions, slow))
    return list(
        run_cells(
            suite,
            cells,
            cache,
            jobs=jobs,
            device=device,
            progress=progress,
            stored_only=stored_only,
        )
    )


def run_inputs(
    suite: Suite,
    cache: Cache,
    *,
    n_divisions: int = N_DIVISIONS,
    jobs: int | None = None,
) -> list[Result]:
    """The result of every use of transformed inputs on every division, for the pairs
    that say which transformed inputs keep their label.
    """
    pairs = [pair for pair in suite.pairs if pair.has_views]
    cells: list[Cell] = [
        (pair, method, division)
        for division, pair, method in product(range(n_divisions), pairs, INPUT_METHODS)
    ]
    return list(run_cells(suite, cells, cache, jobs=jobs))


def _cells(suite: Suite, n_divisions: int, slow: bool) -> Iterator[Cell]:
    """Division by division, so that a run that is stopped has complete divisions.

    The methods that no claim is about come last.
    """
    claimed = [name for name in METHODS if name not in _BESIDE]
    for methods in (claimed, [name for name in METHODS if name in _BESIDE]):
        for division, pair, method in product(range(n_divisions), suite.pairs, methods):
            if takes_part(pair, method, slow=slow):
                yield pair, method, division


def takes_part(pair: Pair, method: str, *, slow: bool) -> bool:
    """Whether a method is run on new divisions of a pair."""
    if method == RECAL or why_absent(pair, method, slow=slow):
        return False  # ReCal needs the images of the new validation set
    return slow or method not in SLOW or pair.n_classes <= SLOW_UP_TO
