"""What is known of a method before a fit, what its fit gives, and which logits it accepts."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hokical._core.grouped_logits import GroupedLogits
from hokical._core.logits import Logits
from hokical._core.topk import TopK
from hokical._core.warn import FitDataWarning, warn_user
from hokical.rules._base import Rule

#: Rows from which on a column that counts them is no coincidence.
_FEWEST_ROWS = 10


@dataclass(frozen=True)
class MethodInfo:
    """A method: the kind of rule that its fit makes, its title, its reference and its cost.

    Parameters
    ----------
    rule : type of Rule
        Its name and its capabilities are those of the method.
    title, reference, cost : str
        The method's name in full words, where it was published, and what a fit costs.
    fits_floor : bool
        Whether a floor for probabilities of 0 is fitted first, see `hokical.from_probabilities`.
    fits_top_k : bool
        Whether a fit accepts a `TopK` although the rule may need every class.
    learns_groups : bool
        Whether a fit makes use of groups.
    rows_per_class : int
        How many rows for each class a sample should have, even beyond 4 million logits.
    """

    rule: type[Any]
    title: str = ""
    reference: str = ""
    cost: str = ""
    fits_floor: bool = True
    fits_top_k: bool = False
    learns_groups: bool = False
    rows_per_class: int = 0

    @property
    def name(self) -> str:
        """The method's name in `make`, in files and on the command line."""
        return str(self.rule.name)

    @property
    def changes_labels(self) -> bool:
        """Whether the predicted label can differ from the classifier's own."""
        return self.rule.preserves_labels is not True

    @property
    def accepts_top_k(self) -> bool:
        """Whether the best logits of each row are enough."""
        return self.fits_top_k or self.rule.accepts_top_k is True

    @property
    def binary_only(self) -> bool:
        """Whether it takes two classes and no more."""
        return self.rule.binary_only is True

    @property
    def logits_kind(self) -> type[Logits]:
        """`Logits`, or the subclass that it needs in their place."""
        kind: type[Logits] = self.rule.logits_kind
        return kind


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of a fit: the rule, and a report of numbers that are stored with it.

    Fields of the rule and entries of the report are attributes of the fitted calibrator, with a
    trailing underscore.
    """

    rule: Rule
    report: dict[str, Any] = field(default_factory=dict)


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
    return logits.with_every_class(method.name, "Use auto, adaptive, temps, ets or hoki")


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
