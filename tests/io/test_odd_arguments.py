"""Readers of files and answers refuse arguments of another type by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hokical import select_noise
from hokical.guarantees import clopper_pearson, density_ratios
from hokical.io import agreement, jury, read_examples, read_lm_eval, read_logprobs
from hokical.metrics import (
    auroc,
    ece,
    log_loss,
    population_stability_index,
    selective_risk,
)
from hokical.plots import draw_estimates
from hokical.streams import open_source, predict, predict_to

SCORES: Any = {"a": [1.0, 2.0]}
ODD: Any = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: jury(3, scores=SCORES), "`choices` must be a sequence of names"),  # type: ignore[arg-type]
        (lambda: jury(scores=ODD), "`scores` must be a mapping"),
        (lambda: jury(votes=["a"]), "`votes` must be a mapping"),  # type: ignore[arg-type]
        (lambda: jury(scores=SCORES, scale=int), "`scale` must be"),  # type: ignore[arg-type]
        (lambda: jury(scores=SCORES, scale=ODD), "`scale` must be"),
        (lambda: jury(scores=SCORES, scale=(10**400, 1)), "`scale` must be"),
        (lambda: read_logprobs([], 3), "`choices` must be texts"),  # type: ignore[arg-type]
        (lambda: read_lm_eval(np.array("a")), "`source` must be a file"),
        (lambda: read_examples(ODD), "`path` must be the path of a file"),
        (
            lambda: read_examples("a.npz", labelled=ODD),
            "`labelled` must be one of",
        ),
        (lambda: open_source(ODD, fitted_by=ODD), "`fitted_by` must be a fitted"),
        (lambda: predict(ODD, ODD), "`calibrator` must be a calibrator of logits"),
        (lambda: predict_to(ODD, ODD, 3), "`path` must be the path of a file"),  # type: ignore[arg-type]
        (lambda: auroc(int), "`proba` must be an iterable of chunks"),
        (lambda: agreement(3), "`samples` must be a list"),  # type: ignore[arg-type]
        (lambda: agreement([["a"]], normalize=True), "`normalize` must be a function"),  # type: ignore[arg-type]
        (
            lambda: read_logprobs([], ["a", "b"], least_mass=ODD),
            r"`least_mass` must lie in \[0, 1\]",
        ),
        (lambda: population_stability_index([{}], [0.5]), "`expected` must be real"),
        (lambda: selective_risk([0.5], [True], coverage="a"), "`coverage` "),  # type: ignore[arg-type]
        (lambda: select_noise(ODD, [0, 1], families=0.5), "`families` must be"),  # type: ignore[arg-type]
        (lambda: clopper_pearson(int, 10), "`hits` must be an array"),  # type: ignore[arg-type]
        (lambda: draw_estimates(3, ODD), "`names` must be a sequence"),  # type: ignore[arg-type]
        (lambda: log_loss([0.5], [True], clip=ODD), "`clip` must be at least 0"),
        (lambda: auroc([[1.0, 2.0], [3.0]], [True]), "must be arrays; got lists"),
        (lambda: density_ratios([0.5], fewest=ODD), "`fewest` must be a number"),
        (lambda: ece([0.5], [True], n_bins=2**70), "`n_bins` must be an integer from"),
        (lambda: [*open_source(["a.parquet", 3])], "chunk"),
        (lambda: draw_estimates(["a"], ODD), r"`estimates` must be \(n, 3\)"),
    ],
)
def test_what_is_refused_is_named(call: Callable[[], Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        call()
