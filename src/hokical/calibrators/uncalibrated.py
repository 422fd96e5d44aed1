"""No calibration: the plain softmax, as a baseline."""

import numpy as np

from hokical.calibrators.base import BaseCalibrator, Fit
from hokical.fitting.partitions import Partition
from hokical.rules.softmax import UncalibratedRule


class Uncalibrated(BaseCalibrator):
    """The classifier's own softmax. `fit` learns only the number of classes.

    Examples
    --------
    >>> from hokical.calibrators import Uncalibrated
    >>> cal = Uncalibrated().fit([[2.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> cal.predict_confidence([[2.0, 0.0], [1.0, 1.0]]).round(4)
    array([0.8808, 0.5   ])
    """

    rule_kind = UncalibratedRule
    fits_floor = False  # nothing is learned
    title = "Uncalibrated softmax"
    reference = "the classifier itself"
    cost = "nothing"

    def _fit(self, examples: Partition) -> Fit:
        examples.total(lambda block: (np.array([block.n_rows]),))  # every row is checked
        return Fit(UncalibratedRule())
