"""The rule of the default in files of hokical 0.2 and 0.3: an average, half of it
corrected.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

from hokical.rules import Logits, Rule
from hokical_paper.core import AutoRule, as_log_proba
from hokical_paper.profile.rule import ProfileRule
from hokical_paper.types import Array

#: The weight of the profile's probabilities; the average of the candidates has the
#: rest.
PROFILE_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class ProfiledAverageRule(Rule):
    """Probabilities of an `average`, mixed half and half with the `profile` of them.

    Nothing fits this rule any more; `AutoRule.from_stored` makes it from old files.
    """

    name: ClassVar[str] = "auto-profiled"

    average: AutoRule
    profile: ProfileRule

    def __post_init__(self) -> None:
        if not isinstance(self.average, AutoRule):
            raise ValueError(f"`average` must be an AutoRule; got {self.average!r}.")
        if not isinstance(self.profile, ProfileRule):
            raise ValueError(
                f"`profile` must be a ProfileRule or None; got {self.profile!r}."
            )

    preserves_labels = property(attrgetter("average.preserves_labels"))
    n_classes = property(attrgetter("average.n_classes"))

    def own_fields(self) -> dict[str, Any]:
        return self.average.own_fields() | {"profile": self.profile}

    def proba(self, logits: Logits) -> Array:
        average = self.average.proba(logits)
        corrected = self.profile.proba(as_log_proba(average, logits))
        return PROFILE_SHARE * corrected + (1.0 - PROFILE_SHARE) * average
