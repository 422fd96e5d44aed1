"""What libraries that calibrate classifiers are given instead of one.

Imports nothing of hokical, so that benchmarks of other libraries do not load it.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def scores_as_classifier(n_classes: int) -> Any:
    """A fitted classifier whose scores, or probabilities, are its input (n, classes)."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    class GivenScores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, X: Any = None, y: Any = None) -> Any:
            self.classes_ = np.arange(n_classes)
            return self

        def decision_function(self, X: Any) -> Any:
            return X[:, 1] - X[:, 0] if n_classes == 2 else X

        def predict_proba(self, X: Any) -> Any:
            return X

        def predict(self, X: Any) -> Any:
            return X.argmax(axis=1)

    return GivenScores().fit()
