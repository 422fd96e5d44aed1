"""The stability profile: temperature scaling, corrected by label stability at several
widths.

Where this distribution is installed, `hokical.make("profile")` makes it, and
`hokical.load` reads its files.
"""

from hokical_paper.profile.estimator import StabilityProfile
from hokical_paper.profile.rule import ProfileRule

__all__ = ["ProfileRule", "StabilityProfile"]
