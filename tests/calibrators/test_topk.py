"""Calibrators on logits of which only the best of each row are known."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from hokical import Gaussian, Hoki, TopK, compare, load
from hokical.calibrators import make, method_names
from hokical.metrics import brier
from hokical.rules import as_logits
from tests.conftest import real_logits, synthetic_logits

ACCEPTING = [
    name
    for name in method_names()
    if make(name).method.accepts_top_k
    and type(make(name)).__module__.startswith("hokical.")
]


def test_all_classes_seen_is_the_same_as_logits(overconfident: tuple) -> None:
    dense, labels = overconfident
    order = np.random.default_rng(0).permuted(np.tile(np.arange(6), (3000, 1)), axis=1)
    best = TopK(np.take_along_axis(dense, order, axis=1), order, 6)
    assert np.array_equal(as_logits(best).values, dense)
    for name in ("temps", "vecs", "hoki", "irm"):
        full, same = make(name).fit(dense, labels), make(name).fit(best, labels)
        assert np.array_equal(full.predict_proba(dense), same.predict_proba(best))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["uncalibrated", "temps", "ets"])
@pytest.mark.parametrize("keep_rest", [True, False])
def test_fits_equal_those_on_evenly_filled_logits(name: str, keep_rest: bool) -> None:
    dense, labels = synthetic_logits(1500, 30, seed=5)
    best = TopK.from_logits(dense, 4, keep_rest=keep_rest)
    assert (best.indices != labels[:, None]).all(axis=1).any()  # some truths are hidden
    cal, of_dense = (
        make(name).fit(best, labels),
        make(name).fit(best.to_dense(), labels),
    )
    for attribute in ("temperature_", "weights_", "log_loss_", "loss_"):
        if hasattr(of_dense, attribute):
            want = getattr(of_dense, attribute)
            np.testing.assert_allclose(
                getattr(cal, attribute), want, rtol=1e-6, atol=1e-7
            )
    np.testing.assert_allclose(
        cal.predict_proba(best),
        of_dense.predict_proba(best.to_dense()),
        rtol=1e-5,
        atol=1e-9,
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ACCEPTING)
@pytest.mark.parametrize("keep_rest", [True, False])
def test_calibrators_keep_their_guarantees(
    name: str, keep_rest: bool, tmp_path: Path
) -> None:
    dense, labels = synthetic_logits(1500, 30, seed=6)
    best = TopK.from_logits(dense, 5, keep_rest=keep_rest)
    cal = make(name).fit(best, labels)
    confidence = cal.predict_confidence(best)
    assert np.array_equal(cal.predict(best), dense.argmax(axis=1))
    proba = cal.predict_proba(best)
    assert proba.shape == dense.shape
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(
        proba[np.arange(1500), best.labels], confidence, atol=1e-12
    )
    np.put_along_axis(proba, best.indices, np.nan, axis=1)
    np.testing.assert_allclose(
        np.nanmin(proba, axis=1), np.nanmax(proba, axis=1), rtol=1e-9
    )
    cal.save(tmp_path / "cal.json")
    assert np.array_equal(
        load(tmp_path / "cal.json").predict_confidence(best), confidence
    )


@pytest.mark.slow
def test_a_million_classes_need_no_column_each() -> None:
    rng = np.random.default_rng(0)
    n, n_classes = 400, 10**6
    indices = np.argsort(rng.random((n, 60)), axis=1)[:, :20] * 15_000
    values = np.log(rng.dirichlet(np.full(21, 0.3), size=n)[:, :20] + 1e-6)
    labels = np.where(
        rng.random(n) < 0.6, indices[np.arange(n), values.argmax(axis=1)], 7
    )
    best = TopK(values, indices, n_classes)
    for (
        name
    ) in ACCEPTING:  # what is compiled or kept for good, which takes long under a trace
        make(name).fit(best, labels).predict_confidence(best)
    tracemalloc.start()
    best = TopK(values, indices, n_classes)
    for name in ACCEPTING:
        cal = make(name).fit(best, labels)
        confidence = cal.predict_confidence(best)
        assert np.all((confidence >= 0.0) & (confidence <= 1.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300e6  # an array with a column per class would take 3.2e9


def test_streams_and_pickles() -> None:
    dense, labels = synthetic_logits(2000, 30, seed=11)
    best = TopK.from_logits(dense, 6)
    at_once = Hoki(noise=Gaussian(2.0)).fit(best, labels)
    in_two = Hoki(noise=Gaussian(2.0)).fit(best[:900], labels[:900])
    in_two.partial_fit(best[900:], labels[900:])
    confidence = at_once.predict_confidence(best)
    assert np.array_equal(in_two.predict_confidence(best), confidence)
    back = pickle.loads(pickle.dumps(best))
    assert np.array_equal(at_once.predict_confidence(back), confidence)
    assert len(back) == 2000


@pytest.mark.parametrize("name", method_names(2))
def test_methods_that_need_every_class_say_so(name: str) -> None:
    if make(name).method.accepts_top_k:
        return
    dense, labels = synthetic_logits(50, 8, seed=12)
    best = TopK.from_logits(dense, 3)
    message = f"`{name}` needs the logit of every class; got the best 3 of 8"
    with pytest.raises(ValueError, match=message):
        make(name).fit(best, labels)


@pytest.mark.slow
def test_methods_that_accept_are_the_default_of_compare() -> None:
    dense, labels = synthetic_logits(400, 8, seed=13)
    best = TopK.from_logits(dense, 3)
    comparison = compare((best, labels), (best, labels))
    names = {result.name for result in comparison.results}
    assert set(ACCEPTING) <= names
    assert not names & {"vecs", "irm", "structured"}


@pytest.mark.slow
def test_little_is_lost_on_real_logits() -> None:
    """1000 classes cut to 20, or to 5 and their rest: Brier scores stay within
    0.002.
    """
    dense, labels = real_logits("imagenet_efficientnet_lite0_val", limit=3000)
    data = {"all": as_logits(dense.astype(np.float32))}
    for k, keep_rest in ((20, False), (20, True), (5, True)):
        data[f"{k}, {keep_rest}"] = TopK.from_logits(
            data["all"], k, keep_rest=keep_rest
        )
    val, test = slice(0, 1500), slice(1500, 3000)
    right = data["all"].labels[test] == labels[test]
    for cal in (make("temps"), make("ets"), Hoki(noise=Gaussian(1.2))):
        scores = {}
        for name, logits in data.items():
            cal.fit(logits.take(val), labels[val])
            scores[name] = brier(cal.predict_confidence(logits.take(test)), right)
        assert max(scores.values()) < scores["all"] + 0.002


def test_impossible_classes_get_nothing() -> None:
    best = TopK(
        [[2.0, 1.0, -np.inf], [2.0, -np.inf, -np.inf]], [[0, 1, 2], [0, 1, 2]], 9
    )
    proba = make("uncalibrated").fit(np.zeros((1, 9)), [0]).predict_proba(best)
    assert proba[:, 2:].sum() == 0.0
    assert proba[1, 0] == 1.0


def test_the_number_of_classes_must_be_that_of_the_fit() -> None:
    fitted = make("uncalibrated").fit(np.zeros((1, 6)), [0])
    with pytest.raises(
        ValueError, match="X has 5 features, but Uncalibrated is expecting 6"
    ):
        fitted.predict(TopK([[1.0]], [[0]], 5))
