"""Real logits of 10, 100 and 1000 classes with every method: the graph says what
NumPy says.
"""

from __future__ import annotations

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ndonnx")

from hokical.integrations.onnx import export  # noqa: E402
from tests.conftest import read_pair, real_logits  # noqa: E402
from tests.integrations.onnx.helpers import METHODS, differences, fit, run  # noqa: E402

SETS = {
    "cifar10_resnet110": 10,
    "cifar100_wrn28_10": 100,
    "imagenet_efficientnet_lite0_val": 1000,
}
#: The fewest and the most classes first.
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if SETS[name] == 100 else ())
    for name in SETS
]
#: Fits that take long with more classes than this.
MOST_CLASSES = {"irova_ts": 200, "vecs": 200, "auto": 20}
#: Uniform noise that reaches hundreds of classes: a row can move by one of Hoki's
#: 65,536 levels.
ONE_LEVEL = 2e-5


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", METHODS)
def test_parity(name, method):
    if SETS[name] > MOST_CLASSES.get(method, 1000):
        pytest.skip("the fit takes long")
    logits, labels = real_logits(name, 800)
    calibrator = fit(method, logits[:500], labels[:500])
    rows = logits[500:]
    found = run(export(calibrator, probabilities=True), logits=rows)
    wrong, confidence, proba = differences(calibrator, found, rows)
    largest = ONE_LEVEL if method == "hoki_uniform" and SETS[name] > 64 else 1e-7
    assert wrong == 0
    assert confidence < largest
    assert proba < max(largest, 2e-7)  # the label is held one float32 above the others


@pytest.mark.slow
def test_other_rows_than_those_of_the_fit():
    pair = read_pair("cifar10_densenet40")
    calibrator = fit("hoki", pair["val_logits"], pair["val_labels"])
    rows = pair["test_logits"]
    found = run(export(calibrator), logits=rows)
    wrong, confidence, _ = differences(calibrator, found, rows)
    assert wrong == 0
    assert confidence < 1e-7
