"""Which logits a method or a fitted rule accepts."""

from typing import Any

import numpy as np

from hokical._core.grouped_logits import GroupedLogits
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.warn import FitDataWarning, warn_user
from hokical.rules._base import Rule

#: Rows from which on a column that counts them is no coincidence.
_FEWEST_ROWS = 10


def acceptable(method: Any, logits: Logits) -> Logits:
    """Return the logits if the method (a rule or a `MethodInfo`) accepts them, else raise."""
    if type(logits) is Logits and getattr(method, "needed_groups", None) is not None:
        columns = ", ".join(method.needed_groups.columns)
        raise ValueError(
            f"`groups` must be given, as in the fit: {columns}. A group is never guessed; for rows "
            "whose group is not known pass None, and they get the prediction for all groups."
        )
    if type(logits) not in (method.logits_kind, TopK):
        raise TypeError(
            f"`logits` must be {_in_words(method.logits_kind)} for {method.name!r}; got "
            f"{_in_words(type(logits))}."
        )
    if method.accepts_top_k:
        return logits
    return logits.with_every_class(method.name, "Use temps, ets or hoki")


def check_plain_logits(method: Any, argument: str) -> None:
    """Raise if a method (a rule or a `MethodInfo`) needs more than logits and groups."""
    if method.logits_kind not in (Logits, GroupedLogits):
        raise ValueError(
            f"`{argument}` cannot be {method.name!r} here, where there are logits alone: it needs "
            f"{_in_words(method.logits_kind)}. Call its `fit` and `predict` with that."
        )


def refuse_groups(rule: Rule) -> None:
    """Raise if a fitted rule needs groups, where nobody can pass them."""
    if rule.needed_groups is not None:
        raise ValueError(
            "`calibrator` must not have learned from groups here, where there are logits alone; "
            f"got one that needs {', '.join(rule.needed_groups.columns)}. Call its own `predict("
            "logits, groups=...)` on logits (n, classes), or fit one without groups."
        )


def warn_of_row_numbers(logits: Logits) -> None:
    """Warn if a column counts the rows, as an id that was left among the logits does."""
    if not logits.is_numpy or logits.n_rows < _FEWEST_ROWS or logits.tail is not None:
        return
    values = logits.values
    first = (values[1:4] == values[:3] + 1.0) & np.isfinite(values[:3])
    for column in np.flatnonzero(first.all(axis=0)):
        if (values[1:, column] == values[:-1, column] + 1.0).all():
            warn_user(
                f"`logits` have a column, {column}, that counts the rows from "
                f"{values[0, column]:g}, as an id does. Drop it: each column is a class.",
                FitDataWarning,
            )


def _in_words(kind: type[Logits]) -> str:
    return "logits (n, classes)" if kind is Logits else f"a `{kind.__module__}.{kind.__name__}`"
