"""Logits of inputs and of the same inputs transformed."""

from typing import Any, Self

import numpy as np

from hokical.rules import Logits, as_logits
from hokical_paper.core import backend_of


class Views(Logits):
    """Logits (n, classes) with those of transformed inputs: what ReCal takes for its
    logits.

    Parameters
    ----------
    logits : array of shape (n, classes)
    transformed : array of shape (n_transforms, n, classes)
        The logits of the same inputs under each transformation, always in the same
        order.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical_paper.recal import Views
    >>> views = Views(np.eye(3), np.stack([0.5 * np.eye(3), 0.2 * np.eye(3)]))
    >>> views.n_rows, views.n_transforms
    (3, 2)
    """

    views: tuple[Logits, ...]
    _given: Any

    def __init__(self, logits: Any, transformed: Any) -> None:
        original = as_logits(logits)
        self._store(original, tuple(_check_views(transformed, original)), logits)

    @classmethod
    def of(cls, logits: Logits, views: tuple[Logits, ...], given: Any = None) -> Self:
        """From `Logits` of one shape, without checks, as when a graph is traced."""
        made = object.__new__(cls)
        made._store(logits, views, given)
        return made

    def _store(self, original: Logits, views: tuple[Logits, ...], given: Any) -> None:
        kept = {
            "values": original.values,
            "top": original.top,
            "backend": original.backend,
        }
        self.__dict__.update(kept, views=views, _given=given)
        self.__post_init__()

    @property
    def like(self) -> Any:
        """The logits as passed: answers are in their library."""
        return self._given

    @property
    def n_transforms(self) -> int:
        return len(self.views)

    def take(self, rows: Any) -> Self:
        return self._each("take", rows)

    def without_gradient(self) -> Self:
        return self._each("without_gradient")

    def _each(self, method: str, *args: Any) -> Self:
        """Apply a method to the logits and to every view."""
        views = tuple(getattr(view, method)(*args) for view in self.views)
        return self.of(getattr(self.original, method)(*args), views, self.like)

    @property
    def original(self) -> Logits:
        """The logits alone."""
        return Logits(self.values, self.top, self.backend)


def _check_views(transformed: Any, logits: Logits) -> list[Logits]:
    """One `Logits` per transformation."""
    rule = (
        f"`transformed` must have shape (n_transforms, {logits.n_rows}, "
        f"{logits.n_classes}): the logits of the same inputs under each "
        "transformation, in the order used in `fit`"
    )
    if transformed is None:
        raise ValueError(f"{rule}; got None.")
    array = (
        transformed if backend_of(transformed) is not None else np.asarray(transformed)
    )
    shape = tuple(array.shape)
    if (
        len(shape) != 3
        or shape[0] == 0
        or shape[1:] != (logits.n_rows, logits.n_classes)
    ):
        raise ValueError(f"{rule}; got shape {shape}.")
    views = (
        as_logits(array[i, ...], name=f"transformed[{i}]") for i in range(shape[0])
    )
    return [_in_library_of(logits, view) for view in views]


def _in_library_of(logits: Logits, view: Logits) -> Logits:
    """The view itself, or where one of the two has a gradient to keep, moved to the
    other's.
    """
    if view.backend is logits.backend:
        return view
    values, top = (
        logits.from_host(view.to_host(array)) for array in (view.values, view.top)
    )
    return Logits(values, top, logits.backend)
