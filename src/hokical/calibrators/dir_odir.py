"""Dirichlet calibration with off-diagonal and intercept regularisation (Kull et al., 2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators.odir import ODIRCalibrator

FloatArray = NDArray[np.float64]


class DirichletODIR(ODIRCalibrator):
    """Softmax of W x + b, x the log-probabilities log softmax(logits).

    The same as `MatrixScalingODIR`, with its parameters and attributes, on other features. These
    differ by a constant per row, which the diagonal of W turns into something else for each class:
    a different model unless all diagonals are equal.

    W and b minimise

        mean log loss + lambda * mean(squared off-diagonals of W) + mu * mean(squared b)
        + 1e-10 * mean((W_kk / t - 1)^2)

    with t the inverse temperature of least log loss; for a class k without examples W_kk = t, the
    rest of its row is 0 and min(mu, 1e-5) stands for its mu. Log-probabilities are all negative, so
    a rare class may want a large W_kk, and an absent one an infinite W_kk. The published code
    (dirichletcal) fixes the last class's row as a reference, which makes the penalty treat the
    classes differently; here all classes are alike, as in the paper's formula.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators.dir_odir import DirichletODIR
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(5, size=2000)
    >>> logits = 3 * (rng.normal(size=(2000, 5)) + 2 * np.eye(5)[labels])
    >>> cal = DirichletODIR().fit(logits[:1000], labels[:1000])
    >>> right = cal.predict(logits[1000:]) == labels[1000:]
    >>> bool(abs(cal.predict_confidence(logits[1000:]).mean() - right.mean()) < 0.03)
    True
    """

    name = "dir_odir"
    reference = (
        "Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach: Beyond temperature scaling, 2019"
    )
    cost = "a few dozen Newton fits of classes^2 parameters to choose the penalties, then one"

    def _row_offset(self, below: FloatArray) -> FloatArray:
        return np.asarray(np.log(np.exp(below).sum(axis=1, keepdims=True)))
