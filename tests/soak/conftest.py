"""The long run is asked for by name."""

from __future__ import annotations

import os

import pytest

collect_ignore_glob = [] if hasattr(os, "fork") else ["*.py"]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if "soak" not in config.getoption("-m"):
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="takes ten minutes: make soak"))
