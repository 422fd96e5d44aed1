"""The modules of the extra `onnx`."""

from typing import Any

from hokical.core.optional import import_optional


def onnx_module(name: str = "onnx") -> Any:
    """A module of the extra `onnx`.

    >>> onnx_module("onnx.helper").__name__
    'onnx.helper'
    """
    return import_optional(name, "onnx")
