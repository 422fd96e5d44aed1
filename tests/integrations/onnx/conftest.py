"""A rule is recorded once for all tests of graphs; every test rewrites a copy of its
own.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

_RECORDED: dict[bytes, Any] = {}


@pytest.fixture(scope="module", autouse=True)
def recorded_anew() -> Iterator[Callable[..., Any]]:
    """The function that records, for tests which must not get what was recorded
    before.
    """
    exporting = pytest.importorskip(
        "hokical.integrations.onnx.exporting", exc_type=ImportError
    )
    record = exporting.record

    def record_once(inputs: Any, predict: Any) -> Any:
        """Kept by the numbers of the rule and all else that is read."""
        key = pickle.dumps((inputs, predict))
        if key not in _RECORDED:
            _RECORDED[key] = record(inputs, predict)
        return copy.deepcopy(_RECORDED[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "record", record_once)
        yield record
