"""What is known of a method before it is fitted, and what its fit gives."""

from dataclasses import dataclass, field
from typing import Any

from hokical._core.logits import Logits
from hokical.rules._base import Rule


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
