"""ODIR-regularised methods: impossible classes, streams, devices, graphs and old
files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.fitted import fingerprint
from tests.integrations.torch.examples import as_on_device

from hokical import Dense
from hokical.calibrators import load
from hokical.streams import fit as fit_stream
from hokical.streams import open_source
from paper.tests.odir.worlds import METHODS, both, noisy

GOLDEN = Path(__file__).parents[1] / "golden"


@both
def test_impossible_classes_get_nothing_and_a_masked_column_is_as_if_not_there(method):
    logits, labels = noisy(200, 4)
    logits[:50, 3][labels[:50] != 3] = -np.inf
    fitted = method(lambdas=0.5).fit(logits, labels)
    proba = fitted.predict_proba(logits)
    assert fitted.converged_
    assert (proba[logits == -np.inf] == 0.0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)

    three, labels = noisy(200, 3)
    wide = np.hstack([three, np.full((200, 1), -np.inf)])
    padded = method(lambdas=1e9).fit(wide, labels).predict_proba(wide)
    plain = method(lambdas=1e9).fit(three, labels).predict_proba(three)
    np.testing.assert_allclose(padded[:, :3], plain, atol=1e-6)


@both
def test_an_impossible_true_class_is_left_out_with_a_warning(method):
    logits, labels = noisy(100, 3)
    broken = logits.copy()
    broken[[4, 7], labels[[4, 7]]] = -np.inf
    with pytest.warns(RuntimeWarning, match="2 of 100 examples"):
        left_out = method(lambdas=1.0).fit(broken, labels)
    keep = np.ones(100)
    keep[[4, 7]] = 0
    expected = method(lambdas=1.0).fit(logits, labels, sample_weight=keep)
    np.testing.assert_allclose(left_out.weight_, expected.weight_, atol=1e-9)
    hopeless = np.where(np.arange(3) == labels[:, None], -np.inf, logits)
    with pytest.raises(ValueError, match="all 100 that count"):
        method().fit(hopeless, labels)


@both
def test_streams_and_maps_are_gathered(method):
    logits, labels = noisy(120, 3)
    kwargs = {"lambdas": [10.0, 0.1]}
    whole = method(**kwargs).fit(logits, labels)
    streamed = fit_stream(method(**kwargs), open_source(logits, labels, chunk_rows=33))
    dense = Dense(method(**kwargs)).fit(
        logits.reshape(2, 6, 10, 3), labels.reshape(2, 6, 10)
    )
    for found in (streamed, dense.calibrator_):
        np.testing.assert_array_equal(found.weight_, whole.weight_)
        np.testing.assert_array_equal(found.bias_, whole.bias_)


@both
@pytest.mark.parametrize("kind", ["plain", "weights", "masked"])
def test_fits_on_a_device_are_those_of_arrays(method, kind):
    torch = pytest.importorskip("torch")
    logits, labels = noisy(240, 5)
    weights = np.arange(240) % 3 if kind == "weights" else None
    if kind == "masked":
        logits[np.arange(240), (labels + 1) % 5] = -np.inf
    fits = [
        method(lambdas=[1e3, 10.0]).fit(given, labels, weights)
        for given in (logits, as_on_device(torch.from_numpy(logits)))
    ]
    np.testing.assert_allclose(fits[0].weight_, fits[1].weight_, atol=1e-6)
    np.testing.assert_allclose(fits[0].bias_, fits[1].bias_, atol=1e-6)


@both
def test_its_graph_and_its_module_answer_as_it_does(method):
    torch, onnxruntime = (
        pytest.importorskip("torch"),
        pytest.importorskip("onnxruntime"),
    )
    pytest.importorskip("ndonnx")
    from hokical.integrations.onnx import export
    from hokical.integrations.torch import as_module

    logits, labels = noisy(120, 3)
    fitted = method(lambdas=1.0).fit(logits, labels)
    module = as_module(fitted)
    found = module.proba(torch.from_numpy(logits)).detach()
    np.testing.assert_allclose(found, fitted.predict_proba(logits), atol=1e-12)
    session = onnxruntime.InferenceSession(export(fitted).SerializeToString())
    confidence = session.run(["confidence"], {"logits": logits.astype(np.float32)})[0]
    np.testing.assert_allclose(confidence, fitted.predict_confidence(logits), atol=1e-5)


def test_files_of_earlier_versions_give_the_estimator():
    for method in METHODS:
        loaded = load(GOLDEN / f"{method().name}.json")
        assert type(loaded) is method
        assert fingerprint(loaded) == fingerprint(loaded)
