"""Matrix scaling of logits with off-diagonal and intercept regularisation (Kull et al., 2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators.odir import ODIRCalibrator

FloatArray = NDArray[np.float64]


class MatrixScalingODIR(ODIRCalibrator):
    """Softmax of W x + b, x the logits less their row's mean.

    W and b minimise the mean log loss + lambda * mean(squared off-diagonals of W) + mu *
    mean(squared b). Large penalties leave a scale per class, small ones a full logistic
    regression; cross-validated log loss decides. Labels can change.

    The paper uses the logits as they are, and so depends on a constant added to a row, which no
    softmax classifier can tell; here each row's mean (over the possible classes) is removed first.

    Parameters
    ----------
    lambdas : {"quick", "paper"}, number or sequence of numbers
        "quick" tries half decades from 10^6 to 10^-2 with hardly any bias, then mus for the best.
        "paper" tries every lambda of the authors' experiments with every mu: 1, 0.5 and 0.25 times
        powers of ten up to 10^6, from 10^-2, or from 10^-5 for at most 10 classes. Numbers are
        tried as they are, and one alone is used without cross-validation. Every path goes from
        large to small and ends after two settings without a better score.
    mus : number or sequence of numbers, optional
        None: 10 to 0.001 for "quick", the powers of ten above for "paper", and for numbers mu is
        lambda itself. With numbers for both, all combinations are tried.
    cv : int or list of (train, test) row indices
        Number of folds, or the splits themselves. Folds spread each class evenly and keep copies
        of an example together.
    tol : float
        The fit ends when a further step promises to lower the penalised log loss by less.
    max_iterations : int
        Most Newton steps of a fit.
    random_state : int, RandomState or None
        Seed of the folds.

    Attributes
    ----------
    weight_ : (classes, classes), W
    bias_ : (classes,), b
    lambda_, mu_ : the penalties in use
    cv_results_ : dict of arrays "lambda", "mu", "log_loss" and "converged" of the settings tried,
        empty where there was only one
    n_iterations_ : Newton steps of the last fit
    converged_ : False where the solver ended early, or where only a ridge of 1e-6 on the diagonal
        keeps it finite because scaling alone gets every example right

    Notes
    -----
    Examples whose true class is impossible (-inf) are left out of the fit with a warning. Where
    another class is impossible it gets probability 0, and as a feature it counts like the least
    likely possible class. Weights equal repetition, in the choice of the penalties too.

    A fit takes about seven (n, classes) float64 arrays and a dozen (classes, classes) ones.

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators.ms_odir import MatrixScalingODIR
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(5, size=2000)
    >>> logits = 3 * (rng.normal(size=(2000, 5)) + 2 * np.eye(5)[labels])
    >>> cal = MatrixScalingODIR().fit(logits[:1000], labels[:1000])
    >>> right = cal.predict(logits[1000:]) == labels[1000:]
    >>> bool(abs(cal.predict_confidence(logits[1000:]).mean() - right.mean()) < 0.03)
    True
    """

    name = "ms_odir"
    reference = (
        "Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach: Beyond temperature scaling, 2019"
    )
    cost = "a few dozen Newton fits of classes^2 parameters to choose the penalties, then one"

    def _row_offset(self, below: FloatArray) -> FloatArray:
        return np.asarray(np.mean(below, axis=1, keepdims=True, where=below > -np.inf))
