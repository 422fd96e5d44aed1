"""One small comparison for all tests of the report, and the data inside a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hokical import compare
from tests.conftest import synthetic_logits


@pytest.fixture(scope="session")
def comparison() -> Any:
    validation, test = (synthetic_logits(2000, 5, seed=seed) for seed in (1, 2))
    methods = ["uncalibrated", "temps", "vecs", "hoki"]
    return compare(validation, test, methods, progress=False)


def embedded(page: str) -> dict[str, Any]:
    """The data that the page's script reads."""
    match = re.search(
        r'<script type="application/json" id="report-data">(.*?)</script>', page
    )
    assert match is not None
    return json.loads(match[1])


@pytest.fixture
def report_data(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def make(found: Any, **options: Any) -> dict[str, Any]:
        return embedded(
            found.to_html(tmp_path / "data.html", **options).read_text("utf-8")
        )

    return make
