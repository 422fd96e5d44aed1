"""Matrix scaling of logits with off-diagonal and intercept regularisation (Kull et al., 2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hokical.calibrators.odir import ODIRCalibrator

FloatArray = NDArray[np.float64]


class MatrixScalingODIR(ODIRCalibrator):
    """Softmax of W x + b, x the logits less their row's mean.

    W and b minimise

        mean log loss + lambda * mean(squared off-diagonals of W) + mu * mean(squared b)
        + 1e-10 * mean((W_kk / t - 1)^2)

    with t the inverse temperature of least log loss. The last term, a ridge that the paper does
    not have, makes the optimum exist. Large penalties leave a scale per class, small ones a full
    logistic regression; cross-validated log loss decides. Labels can change.

    For a class k without examples the paper's optimum can be infinite, and would make the first
    one to come infinitely surprising. Here its row of W stays that of temperature scaling (W_kk =
    t, the rest 0), and in its share of the bias term min(mu, 1e-5) stands for mu: a bias takes its
    probability away, to a small part of the whole.

    The paper uses the logits as they are, and so depends on a constant added to a row, which no
    softmax classifier can tell; here each row's mean (over the possible classes) is removed first.

    Parameters
    ----------
    lambdas : {"quick", "paper"}, number or sequence of numbers
        "quick" tries lambdas from 10^6 to 10^-2 and mus from 10 to 10^-3 together: whole decades of
        lambda with every second mu, then half decades and all mus around the best until nothing
        near is better. With more than 20 classes, falling lambdas end where the log loss has risen
        by 5 % (and 0.01) above its least.
        "paper" tries every lambda of the authors' experiments with every mu: 1, 0.5 and 0.25 times
        powers of ten up to 10^6, from 10^-2, or from 10^-5 for at most 10 classes. That is 243 or
        432 settings, each fitted once per fold, about ten times as many as "quick" needs and the
        slow ones among them: seconds with 3 classes, very long with 100.
        Numbers are all tried, and one alone is used without cross-validation.
    mus : number or sequence of numbers, optional
        None: 10 to 0.001 for "quick", the powers of ten above for "paper", and for numbers mu is
        lambda itself. With numbers for both, all combinations are tried.
    cv : int, list of (train, test) row indices, or scikit-learn splitter
        Number of folds, or the splits themselves. Folds spread each class evenly and keep copies
        of an example together. A splitter is called with the logits and labels, and not saved.
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
    converged_ : False where the solver ended early, or where the ridge is what keeps W finite:
        scaling alone gets every example right, or the ridge is above 1e-5 of log loss

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
