"""One small comparison for all tests of the report."""

from __future__ import annotations

import pytest

from hokical.report._comparison import Comparison, compare
from tests.conftest import synthetic_logits


@pytest.fixture(scope="session")
def comparison() -> Comparison:
    validation, test = (synthetic_logits(2000, 5, seed=seed) for seed in (1, 2))
    methods = ["uncalibrated", "temps", "vecs", "hoki"]
    return compare(validation, test, methods, n_resamples=100, progress=False)
