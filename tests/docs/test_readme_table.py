"""The tables beside other libraries are those of the stored comparison, which the
code repeats.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(
        (BENCHMARKS / "quality.json").read_text(encoding="utf-8")
    )
    return stored


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/peers.md"])
def test_pages_show_the_stored_comparison(
    page: str, results: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    peer_page = __import__("peer_page")
    monkeypatch.delitem(sys.modules, "peer_page")
    table = (
        peer_page.long_quality_tables
        if "peers" in page
        else peer_page.short_quality_table
    )
    text = (ROOT / page).read_text(encoding="utf-8")
    assert table(results) in text
    assert peer_page.put_block(text, "quality", table(results)) == text


@pytest.mark.slow
def test_the_default_is_as_good_as_stored(results: dict[str, Any]) -> None:
    from hokical_paper.study.outcomes import judge, read_experiments

    losses = [judge(e, "auto").log_loss for e in read_experiments(BENCHMARKS)]
    stored = next(
        one["log_loss"]
        for one in results["results"]
        if (one["method"], one["size"], one["task"]) == ("auto", "all", "all")
    )
    assert len(losses) == 135
    assert np.mean(losses) == pytest.approx(stored, abs=0.001)
