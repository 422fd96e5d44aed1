"""A feature added to the row correction reaches fits, files, torch and ONNX by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Loads `hokical.rules.scaling` with one more width of noise, that is, with one more
#: feature, and nothing else changed.
ADD_A_WIDTH = """
import importlib.abc, importlib.machinery, sys

NAME = "hokical.rules.scaling"
BEFORE = "WIDTHS = (4.0, 2.0, 1.0, 0.5)"
AFTER = "WIDTHS = (8.0, 4.0, 2.0, 1.0, 0.5)"


class OneMoreWidth(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        source = self.get_source(fullname)
        assert source.count(BEFORE) == 1
        return compile(source.replace(BEFORE, AFTER), self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname != NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        spec.loader = OneMoreWidth(fullname, spec.origin)
        return spec


sys.meta_path.insert(0, Finder())
"""

FIT_STORE_AND_PREDICT = """
import numpy as np
import hokical
from hokical.calibrators import AdaptiveTemperatureScaling
from hokical.rules.scaling import N_FEATURES

assert N_FEATURES == 8
rng = np.random.default_rng(0)
logits = 2.0 * rng.normal(size=(1500, 6))
labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
logits *= np.where(rng.random((1500, 1)) < 0.5, 1.0, 4.0)
for method in (AdaptiveTemperatureScaling(), hokical.AutoCalibrator()):
    calibrator = method.fit(logits, labels)
    assert calibrator.correction_.shift.size == 9
    calibrator.save("calibrator.json")
    loaded = hokical.load("calibrator.json")
    proba = calibrator.predict_proba(logits)
    np.testing.assert_array_equal(loaded.predict_proba(logits), proba)
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


def run_with_another_feature(program: str, folder: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", ADD_A_WIDTH + program + FIT_STORE_AND_PREDICT],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


def test_files_and_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    predictions = "PREDICTIONS = {'torch': predict_with_torch}\n"
    run_with_another_feature(TORCH + predictions, tmp_path)


@pytest.mark.slow
def test_onnx(tmp_path: Path) -> None:
    pytest.importorskip("ndonnx")
    pytest.importorskip("onnxruntime")
    predictions = "PREDICTIONS = {'onnx': predict_with_onnx}\n"
    run_with_another_feature(ONNX + predictions, tmp_path)
