"""Optional packages, imported on use."""

from importlib import import_module
from typing import Any

from hokical._core.warn import warn_user


def import_optional(name: str, extra: str) -> Any:
    """Import a module of an extra, or raise an error that says how to install it.

    >>> import_optional("json", "none").__name__
    'json'
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} is required but not installed. Install it: pip install 'hokical[{extra}]'."
        ) from error


def import_moved(name: str, module: str, distribution: str) -> Any:
    """A name that an earlier version had, from the distribution that has it now."""
    where = f"`{name}` is in another package: `from {module} import {name}`."
    try:
        found = getattr(import_module(module), name)
    except ImportError as error:
        raise ImportError(f"{where} Install it: pip install {distribution}.") from error
    warn_user(where, FutureWarning)
    return found
