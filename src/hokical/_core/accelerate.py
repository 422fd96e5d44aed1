"""Portable functions with faster forms for some arrays.

The portable form is written once, against the array API, and is the reference in the tests. A
faster form declares for which logits it can be used; the first usable one is called.

>>> from hokical._core.accelerate import accelerated
>>> @accelerated
... def row_sums(logits):
...     return logits.xp.sum(logits.values, axis=1)
>>> @row_sums.register(lambda logits, *args: logits.xp.__name__ == "numpy")
... def _fast(logits):
...     return logits.values.sum(axis=1)
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

Function = Callable[..., Any]


class Accelerated:
    """Calls the first registered form that is usable, else the portable one."""

    def __init__(self, portable: Function) -> None:
        self.portable = portable
        self._forms: list[tuple[Function, Function]] = []
        update_wrapper(self, portable)

    def __call__(self, logits: Any, *args: Any) -> Any:
        for usable, form in self._forms:
            if usable(logits, *args):
                return form(logits, *args)
        return self.portable(logits, *args)

    def register(self, usable: Function) -> Callable[[Function], Function]:
        """Register a form for arguments that `usable` accepts; the latest is tried first."""

        def add(form: Function) -> Function:
            self._forms.insert(0, (usable, form))
            return form

        return add


#: Decorates a portable function of logits, so that faster forms can be registered.
accelerated = Accelerated
