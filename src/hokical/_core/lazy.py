"""What is loaded or computed on first use: optional packages, and cached values.

The standard library's `cached_property` holds one lock per class while it computes (Python 3.11):
threads that use different objects would wait for each other. And torch can trace neither it nor
`functools.cache`.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast


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


Function = TypeVar("Function", bound=Callable[..., Any])

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:
        """Computed on first access and stored in the object's `__dict__`."""

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function, self.name = function, function.__name__
            self.__doc__ = function.__doc__

        def __get__(self, owner: Any, kind: type[Any] | None = None) -> Any:
            if owner is None:
                return self
            value = self.function(owner)
            object.__setattr__(owner, self.name, value)
            return value


def memoize(function: Function) -> Function:
    """Cache a function of hashable values; two threads may both compute a value once.

    >>> @memoize
    ... def square(x):
    ...     return x * x
    >>> square(3), square(3)
    (9, 9)
    """
    known: dict[tuple[Any, ...], Any] = {}

    @wraps(function)
    def ask(*args: Any) -> Any:
        if args not in known:
            known[args] = function(*args)
        return known[args]

    return cast(Function, ask)
