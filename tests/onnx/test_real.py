"""Real logits: every set of the suite with every method, and those of other people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from hokical.integrations.onnx import export  # noqa: E402
from tests.conftest import real_logits  # noqa: E402
from tests.onnx.helpers import METHODS, differences, fit, run  # noqa: E402

SUITE = Path(__file__).resolve().parents[2] / "suite"
SETS = sorted(path.stem for path in SUITE.glob("*.npz") if not path.stem.endswith("_test"))
OTHERS = ("cifar10_resnet110_nncal", "cifar100_wideresnet_dfposthoc", "newsgroups20_labelerrors")
#: Fits that take long with many classes, and what stands for others.
SLOW = {"ms_odir": 20, "dir_odir": 20, "irova_ts": 200, "vecs": 200, "auto": 10}
LEFT_OUT = ("irm_raw", "hoki_sampled_uniform", "hoki_gaussian", "profile", "profile_wide")


def methods(n_classes: int) -> list[str]:
    return [
        name for name in METHODS if name not in LEFT_OUT and n_classes <= SLOW.get(name, n_classes)
    ]


def assert_parity(logits: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> None:
    for name in methods(logits.shape[1]):
        calibrator = fit(name, logits, labels)
        found = run(export(calibrator, input_dtype=rows.dtype.name), logits=rows)
        wrong, confidence, proba = differences(calibrator, found, rows)
        assert wrong == 0, name
        assert confidence < 1e-6, name
        assert proba < 1e-6, name


@pytest.mark.parametrize("name", SETS)
def test_suite(name):
    with np.load(SUITE / f"{name}.npz") as data:
        logits, labels = data["val_logits"], data["val_labels"].astype(np.int64)
    assert_parity(logits[:500], labels[:500], logits[-300:])


@pytest.mark.parametrize("name", OTHERS)
def test_other_logits(name):
    logits, labels = real_logits(name, 800)
    assert_parity(logits[:500], labels[:500], logits[500:])
