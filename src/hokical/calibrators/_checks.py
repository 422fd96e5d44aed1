"""Which logits a method or a fitted rule accepts."""

from typing import Any

from hokical._core.grouped_logits import GroupedLogits
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical.rules._base import Rule


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


def _in_words(kind: type[Logits]) -> str:
    return "logits (n, classes)" if kind is Logits else f"a `{kind.__module__}.{kind.__name__}`"
