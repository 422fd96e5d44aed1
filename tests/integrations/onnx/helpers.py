"""Running models, and every method in the forms that give different graphs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnxruntime

from hokical import Gaussian, Gumbel, Uniform
from hokical.calibrators import Calibrator, make
from tests.conftest import quiet_fit, synthetic_logits
from tests.fitted import with_rule


def from_rule(rule: Any, n_classes: int) -> Calibrator:
    """A calibrator that predicts by a rule."""
    fitted = make("uncalibrated").fit(np.eye(n_classes), range(n_classes))
    return with_rule(fitted, rule)


#: By a name of its own: the method, and its options.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "uncalibrated": ("uncalibrated", {}),
    "temps": ("temps", {}),
    "ets": ("ets", {}),
    "vecs": ("vecs", {}),
    "structured": ("structured", {}),
    "adaptive": ("adaptive", {}),
    "structured_uncrossed": ("structured", {"cross": False}),
    "irm": ("irm", {}),
    "irova_ts": ("irova_ts", {}),
    "hoki": ("hoki", {}),
    "hoki_gaussian": ("hoki", {"noise": Gaussian(2.0, mean=1.0)}),
    "hoki_uniform": ("hoki", {"noise": Uniform(-4.0, 5.0)}),
    "hoki_gumbel": ("hoki", {"noise": Gumbel(1.5)}),
    "hoki_sampled": ("hoki", {"noise": Gaussian(2.0), "draws": 150, "random_state": 1}),
    "auto": ("auto", {}),
    "auto_keeping": ("auto", {"keep_labels": True}),
}
#: Those that are fitted on rows of uneven sharpness, which only a row correction makes
#: up for.
UNEVEN = ("adaptive", "auto", "auto_keeping")


def fit(method: str, logits: Any, labels: Any) -> Calibrator:
    """A method of the list above; that some do not converge does not matter here."""
    name, options = METHODS[method]
    calibrator = make(name, **options)
    return quiet_fit(calibrator, logits, labels)


@functools.cache
def fitted(method: str, n_classes: int) -> Calibrator:
    """Fitted on synthetic logits."""
    logits, labels = synthetic_logits(1200, n_classes, seed=n_classes)
    if method in UNEVEN:
        logits *= np.where(np.arange(1200) % 2, 0.3, 1.0)[:, None]
    return fit(method, logits, labels)


def run(model: Any, **feed: Any) -> dict[str, np.ndarray]:
    """All outputs by name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def differences(
    calibrator: Calibrator, found: dict[str, Any], rows: Any
) -> tuple[int, float, float]:
    """Labels that differ, and the largest difference of confidence and of
    probabilities.
    """
    wrong = int((found["labels"] != calibrator.predict(rows)).sum())
    confidence = np.abs(found["confidence"] - calibrator.predict_confidence(rows)).max()
    proba = 0.0
    if "probabilities" in found:
        proba = np.abs(found["probabilities"] - calibrator.predict_proba(rows)).max()
    return wrong, float(confidence), float(proba)
