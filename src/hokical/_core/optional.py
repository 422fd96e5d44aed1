"""Optional packages, imported on use."""

from importlib import import_module
from typing import Any


def import_optional(name: str, extra: str) -> Any:
    """Import a module of an extra, or raise an error with the command that installs it.

    >>> import_optional("json", "none").__name__
    'json'
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} is required but not installed. Install it: pip install 'hokical[{extra}]'."
        ) from error
