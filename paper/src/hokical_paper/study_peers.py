"""Methods of other libraries, asked in their own words; used where they are installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from hokical_paper.given_scores import scores_as_classifier
from hokical_paper.types import FloatArray

#: Their methods take probabilities and most cannot take 0.
_LEAST = 1e-12


@dataclass(frozen=True)
class Peer:
    """A method of another library, and what has to be installed for it."""

    needs: tuple[str, ...]
    run: Callable[[Any], FloatArray]
    binary_only: bool = False

    @property
    def installed(self) -> bool:
        return all(find_spec(name) is not None for name in self.needs)


def _softmax(logits: FloatArray) -> FloatArray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    clipped = np.clip(weights / weights.sum(axis=1, keepdims=True), _LEAST, 1.0)
    return np.asarray(clipped / clipped.sum(axis=1, keepdims=True))


def _probmetrics(name: str) -> Callable[[Any], FloatArray]:
    def run(experiment: Any) -> FloatArray:
        calibrator = import_module("probmetrics.calibrators").get_calibrator(name)
        calibrator.fit(_softmax(experiment.val_logits), experiment.val_labels)
        return np.asarray(calibrator.predict_proba(_softmax(experiment.test_logits)))

    return run


def _sklearn(method: str) -> Callable[[Any], FloatArray]:
    """`CalibratedClassifierCV` of a classifier whose scores are its inputs."""

    def run(experiment: Any) -> FloatArray:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.frozen import FrozenEstimator

        n_classes = experiment.n_classes
        model = FrozenEstimator(scores_as_classifier(n_classes))
        calibrated = CalibratedClassifierCV(model, method=method)
        logits = np.log(_softmax(experiment.val_logits))
        calibrated.fit(logits, experiment.val_labels)
        found = calibrated.predict_proba(np.log(_softmax(experiment.test_logits)))
        proba = np.zeros((found.shape[0], n_classes))
        proba[:, calibrated.classes_] = found
        return proba

    return run


PEERS = {
    "probmetrics:sms": Peer(("probmetrics",), _probmetrics("sms")),
    "probmetrics:svs": Peer(("probmetrics",), _probmetrics("svs")),
    "probmetrics:beta": Peer(("probmetrics", "betacal"), _probmetrics("beta"), binary_only=True),
    "sklearn:sigmoid": Peer(("sklearn",), _sklearn("sigmoid")),
    "sklearn:isotonic": Peer(("sklearn",), _sklearn("isotonic")),
}
