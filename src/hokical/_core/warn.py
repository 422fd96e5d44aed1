"""Warnings that point to the user's line, however deep in the package they are raised.

Where scikit-learn is loaded, its classes are raised in place of those of the same names here.
"""

import sys
import warnings
from types import FrameType
from typing import Any


class FitDataWarning(UserWarning):
    """Examples are not what they should be: too few to learn from, or tested on after a fit."""


class ConvergenceWarning(UserWarning):
    """A fit ended before it reached an optimum, or there is none."""


class NotFittedError(ValueError, AttributeError):
    """A calibrator was asked for predictions before it was fitted."""


#: Distributions of this project, whose own lines are not the user's.
_PACKAGES = ("hokical", "hokical_paper")


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn with the first caller outside these packages as the location."""
    category = sklearn_class(category)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _package_of(frame) in _PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def sklearn_class(own: Any) -> Any:
    """scikit-learn's class of the same name where that library is loaded, so that it is caught."""
    return getattr(sys.modules.get("sklearn.exceptions"), own.__name__, own)
