"""Packages that not everyone needs, imported when they are."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_optional(name: str, extra: str) -> Any:
    """A module that comes with an extra, or an error that says how to get it.

    >>> import_optional("json", "none").__name__
    'json'
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} is needed, and is missing. Install it: pip install 'hokical[{extra}]'."
        ) from error
