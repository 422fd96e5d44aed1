"""ReCal (Jang et al., 2020), a method of the comparison that also needs transformed
inputs.

Where this distribution is installed, `hokical.make("recal")` makes it and
`hokical.load` reads it.
"""

from hokical_paper.recal.estimator import ReCal
from hokical_paper.recal.rule import ReCalRule
from hokical_paper.recal.views import Views

__all__ = ["ReCal", "ReCalRule", "Views"]
