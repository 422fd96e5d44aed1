"""Warnings that point to the user's line, however deep in the package they are raised."""

import sys
import warnings
from pathlib import Path


class FitDataWarning(UserWarning):
    """The examples of a fit are not what they should be, or too few to learn from."""


_PACKAGE = str(Path(__file__).parents[1])


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn with the first caller outside this package as the location."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
