"""The examples in the tools that make the site, which are not part of a package."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.mark.parametrize("name", ["make_evidence", "make_site"])
def test_examples_of_a_tool(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("griffe")
    monkeypatch.syspath_prepend(str(TOOLS))
    result = doctest.testmod(import_module(name))
    assert result.attempted
    assert not result.failed
