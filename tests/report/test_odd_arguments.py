"""Evaluations and comparisons refuse arguments of another type by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pandas as pd
import pytest

import hokical
from hokical.report.results import Comparison
from tests.conftest import synthetic_logits

VALIDATION, TEST = synthetic_logits(90, 3, seed=1), synthetic_logits(90, 3, seed=2)
FRAME = pd.DataFrame({"x": [1.0, 2.0]})


@cache
def comparison() -> Comparison:
    return hokical.compare(VALIDATION, TEST, methods=["uncalibrated", "temps"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.best(["brier"]), "no metric"),
        (lambda c: c[FRAME], "no method a DataFrame here"),
        (lambda c: c["temps"].estimate(["brier"]), "no metric"),
        (lambda c: c["temps"].estimate("brier", FRAME), "`event` must be one of"),
        (lambda c: c.differences(FRAME), "`metric` must be one of"),
        (lambda c: c.differences(against=FRAME), "no method a DataFrame here"),
        (lambda c: c.plot(0.5), "`ax` must be an Axes"),
        (lambda c: c.to_markdown(["a"]), "`path` must be the path of a file"),
        (lambda c: c.to_latex(FRAME), "`path` must be the path of a file"),
        (lambda c: c.to_html(3), "`path` must be the path of a file"),
        (
            lambda c: hokical.compare(VALIDATION, TEST, data_names=FRAME),  # type: ignore[arg-type]
            "`data_names` must be",
        ),
        (
            lambda c: hokical.compare(VALIDATION, TEST, data_names=("a",)),  # type: ignore[arg-type]
            "`data_names` must be",
        ),
    ],
)
def test_what_is_refused_is_named(
    call: Callable[[Comparison], Any], words: str
) -> None:
    with pytest.raises((TypeError, ValueError, KeyError), match=words):
        call(comparison())
