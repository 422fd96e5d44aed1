"""A rule is recorded once for all tests of graphs; every test rewrites a copy of its own."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

_RECORDED: dict[bytes, Any] = {}


@pytest.fixture(scope="module", autouse=True)
def recorded_anew() -> Iterator[Callable[..., Any]]:
    """The function that records, for tests which must not get what was recorded before."""
    tracing = pytest.importorskip("hokical.integrations.onnx.tracing", exc_type=ImportError)
    record = tracing.record

    def record_once(plan: Any, layout: Any) -> Any:
        """Kept by the numbers of the rule and all else that is read."""
        read = dataclasses.replace(plan, opset=0, precision=np.dtype(np.float64))
        key = pickle.dumps((read, layout))
        if key not in _RECORDED:
            _RECORDED[key] = record(plan, layout)
        return copy.deepcopy(_RECORDED[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "record", record_once)
        yield record
