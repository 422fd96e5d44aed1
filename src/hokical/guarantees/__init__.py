"""Guarantees that travel with a prediction: when to answer, and how sure the confidence itself is.

Imports point upwards in this list only: `binomial`, `scores`, `score_table`, then `risk` and
`neighbours`, `selective`, and `promises`, which every calibrator inherits.
"""

from hokical.guarantees.binomial import clopper_pearson
from hokical.guarantees.selective import SelectivePrediction

__all__ = ["SelectivePrediction", "clopper_pearson"]
