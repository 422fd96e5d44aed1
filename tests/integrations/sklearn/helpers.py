"""What the tests of `CalibratedClassifier` share."""

from __future__ import annotations

from typing import Any

from hokical.integrations.sklearn import CalibratedClassifier


def single(*arguments: Any, **options: Any) -> CalibratedClassifier:
    """With one model, fitted on all the data."""
    return CalibratedClassifier(*arguments, ensemble=False, **options)
