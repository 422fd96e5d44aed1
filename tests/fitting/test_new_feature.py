"""A feature added to the row correction, and a shape term added to structured scaling,
reach fits, files, torch and ONNX by themselves.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hokical.calibrators import AutoCalibrator

#: Loads `hokical.rules.scaling` with `CHANGES` of its source, and nothing else changed.
CHANGE_THE_RULES = """
import importlib.abc, importlib.machinery, sys

NAME = "hokical.rules.scaling"


class ChangedSource(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        source = self.get_source(fullname)
        for before, after in CHANGES.items():
            assert source.count(before) == 1, before
            source = source.replace(before, after)
        return compile(source, self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname != NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        spec.loader = ChangedSource(fullname, spec.origin)
        return spec


sys.meta_path.insert(0, Finder())
"""

#: One more shape term, which comes last: the square of the probability.
ADD_A_SHAPE_TERM = """
CHANGES = {
    'SHAPE_TERMS = ("log(1 - p)", "p")': 'SHAPE_TERMS = ("log(1 - p)", "p", "p p")',
    "return plus(scores, -norm, xp), miss, p": (
        "return plus(scores, -norm, xp), miss, p, p * p"
    ),
    "by_miss, by_proba = ": "by_miss, by_proba, by_square = ",
    "miss * by_miss + p * by_proba": "miss * by_miss + p * by_proba + p * p * by_square",
}
"""

#: One more width of noise, that is, one more feature.
ADD_A_WIDTH = """
CHANGES["WIDTHS = (4.0, 2.0, 1.0, 0.5)"] = "WIDTHS = (8.0, 4.0, 2.0, 1.0, 0.5)"
"""

#: One more feature of another kind, which comes last: the log of the number of classes.
ADD_A_LAST_FEATURE = """
CHANGES |= {
    '"standard deviation of the margins")': '"standard deviation", "classes")',
    "stack_rows([entropy, mean, deviation], xp)": (
        "stack_rows([entropy, mean, deviation, xp.log(count)], xp)"
    ),
    ".tolist(), entropy, mean, deviation]": (
        ".tolist(), entropy, mean, deviation, float(np.log(count))]"
    ),
}
"""

FIT_STORE_AND_PREDICT = """
import numpy as np
import hokical
from hokical.calibrators import AdaptiveTemperatureScaling, AutoCalibrator
from hokical.rules.scaling import N_FEATURES, N_SHAPES

assert (N_FEATURES, N_SHAPES) == (8, 3)
for kind, n_classes in (
    (AdaptiveTemperatureScaling, 6), (AutoCalibrator, 6), (AutoCalibrator, 2)
):
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(1500, n_classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    logits *= np.where(rng.random((1500, 1)) < 0.5, 1.0, 4.0)
    calibrator = kind().fit(logits, labels)
    assert n_classes == 2 or calibrator.correction_.shift.size == 9
    assert kind is not AutoCalibrator or calibrator.base_.shape.size == 3
    calibrator.save("calibrator.json")
    loaded = hokical.load("calibrator.json")
    proba = calibrator.predict_proba(logits)
    np.testing.assert_array_equal(loaded.predict_proba(logits), proba)
    one = calibrator.predict_proba(logits[:1])
    np.testing.assert_array_equal(one, proba[:1])
    for library, predict in PREDICTIONS.items():
        message = f"{library}, {calibrator.name}"
        predicted = predict(calibrator, logits)
        np.testing.assert_allclose(predicted, proba, atol=1e-9, err_msg=message)
"""

TORCH = """
def predict_with_torch(calibrator, logits):
    import torch
    from hokical.integrations.torch import as_module

    return as_module(calibrator).proba(torch.as_tensor(logits)).numpy()
"""

ONNX = """
def predict_with_onnx(calibrator, logits):
    import onnxruntime
    from hokical.integrations.onnx import export

    model = export(calibrator, input_dtype="float64")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(["probabilities"], {"logits": logits})[0]
"""


LOAD_AND_PREDICT = """
import numpy as np
import hokical
from hokical.rules.scaling import N_FEATURES, N_SHAPES

assert (N_FEATURES, N_SHAPES) == (8, 3)
logits = np.load("logits.npy")
calibrator = hokical.load("before.json")
assert calibrator.correction_.shift.size == 9
for rows in (slice(None), slice(0, 1), slice(60, 61)):
    proba = calibrator.predict_proba(logits[rows])
    np.testing.assert_array_equal(proba, np.load("proba.npy")[rows])
"""


def fit_store_and_predict(program: str, folder: Path) -> None:
    run(ADD_A_WIDTH, program + FIT_STORE_AND_PREDICT, folder)


def run(changes: str, program: str, folder: Path) -> None:
    program = ADD_A_SHAPE_TERM + changes + CHANGE_THE_RULES + program
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


def test_files_and_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    predictions = "PREDICTIONS = {'torch': predict_with_torch}\n"
    fit_store_and_predict(TORCH + predictions, tmp_path)


@pytest.mark.slow
def test_onnx(tmp_path: Path) -> None:
    pytest.importorskip("ndonnx")
    pytest.importorskip("onnxruntime")
    predictions = "PREDICTIONS = {'onnx': predict_with_onnx}\n"
    fit_store_and_predict(ONNX + predictions, tmp_path)


def test_files_without_them_predict_as_before(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(1500, 6))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    logits *= np.where(rng.random((1500, 1)) < 0.5, 1.0, 4.0)
    logits[:50, 5] = -np.inf
    labels[:50] %= 5
    calibrator = AutoCalibrator().fit(logits, labels)
    assert calibrator.correction_ is not None
    assert calibrator.base_.shape.size == 2
    calibrator.save(tmp_path / "before.json")
    np.save(tmp_path / "logits.npy", logits)
    np.save(tmp_path / "proba.npy", calibrator.predict_proba(logits))
    run(ADD_A_LAST_FEATURE, LOAD_AND_PREDICT, tmp_path)
