"""A fitted method is a rule: a few frozen numbers and one pure function of logits.

All rules and their parts are imported here, so that any of them can be read from a
file.
"""

from hokical._core.logits import Logits, as_logits
from hokical.rules import binary_isotonic, hoki, members, scaling, sets  # noqa: F401
from hokical.rules.base import Rule

__all__ = ["Logits", "Rule", "as_logits"]
