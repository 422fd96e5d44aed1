"""The `onnx` package, or an error that says how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def library(name: str = "onnx") -> Any:
    """A module of the extra `onnx`.

    >>> library("onnx.helper").__name__
    'onnx.helper'
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} is needed, and is missing. Install it: pip install 'hokical[onnx]'."
        ) from error
