"""Shells around other libraries, each loaded when it is asked for:
`hokical.integrations.torch`.
"""

from importlib import import_module
from typing import Any

_SHELLS = ("arrow", "dask", "jax", "onnx", "sklearn", "torch")


def __getattr__(name: str) -> Any:
    if name in _SHELLS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
