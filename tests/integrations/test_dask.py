"""Dask arrays: fits, predictions and metrics as in memory, whatever the chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hokical import Gaussian, Hoki, metrics
from hokical.calibrators import make
from tests.conftest import max_examples, quiet_fit, synthetic_logits
from tests.fitted import label_scores

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def data():
    return synthetic_logits(3000, 5, seed=4)


@pytest.mark.slow
@max_examples(15)
@given(
    rows=st.integers(100, 3000),
    columns=st.integers(1, 5),
    label_rows=st.integers(100, 3000),
)
def test_hoki_is_the_same_to_the_bit(rows: int, columns: int, label_rows: int) -> None:
    logits, labels = synthetic_logits(3000, 5, seed=4)
    whole = quiet_fit(Hoki(noise=Gaussian(4.0)), logits, labels)
    cal = quiet_fit(
        Hoki(noise=Gaussian(4.0)),
        da.from_array(logits, chunks=(rows, columns)),
        da.from_array(labels, chunks=label_rows),
    )
    assert_array_equal(cal.alpha_, whole.alpha_)
    assert_array_equal(cal.beta_, whole.beta_)
    assert_array_equal(
        label_scores(cal).wrong,
        label_scores(whole).wrong,
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name", ["temps", "vecs", "ets", "hoki", "irm", "uncalibrated"]
)
def test_every_way_of_fitting(data, name) -> None:
    logits, labels = data
    weights = np.random.default_rng(0).integers(0, 3, size=3000)
    lazy = [da.from_array(part, chunks=700) for part in (logits, labels, weights)]
    whole, cal = quiet_fit(make(name), *data, weights), quiet_fit(make(name), *lazy)
    lazy_logits = lazy[0]
    for method in ("predict", "predict_confidence", "predict_proba"):
        found, known = getattr(cal, method)(lazy_logits), getattr(whole, method)(logits)
        assert isinstance(found, da.Array)
        assert found.shape == known.shape
        assert found.dtype == known.dtype
        assert_allclose(found.compute(), known, atol=1e-10)


def test_unknown_chunk_sizes_and_empty_blocks(data) -> None:
    logits, labels = data
    lazy, lazy_labels = (
        da.from_array(logits, chunks=500),
        da.from_array(labels, chunks=500),
    )
    kept = (lazy[:, 0] > 0) & (
        da.arange(3000, chunks=500) < 2000
    )  # two blocks are empty
    rows = kept.compute()
    cal = quiet_fit(Hoki(noise=Gaussian(4.0)), lazy[kept], lazy_labels[kept])
    whole = quiet_fit(Hoki(noise=Gaussian(4.0)), logits[rows], labels[rows])
    assert_array_equal(cal.alpha_, whole.alpha_)
    for method in ("predict", "predict_confidence", "predict_proba"):
        found = getattr(cal, method)(lazy[kept])
        assert_array_equal(found.compute(), getattr(whole, method)(logits[rows]))


@pytest.mark.parametrize("name", ["ece", "debiased_ece", "brier", "ece_mass"])
def test_metrics_are_reductions(data, name) -> None:
    rng = np.random.default_rng(1)
    confidence = rng.uniform(size=3000)
    right = rng.uniform(size=3000) < confidence
    lazy = da.from_array(confidence, chunks=400), da.from_array(right, chunks=1000)
    options = {"bins": "mass"} if name == "ece_mass" else {}
    metric = getattr(metrics, name.split("_mass")[0])
    found, known = metric(*lazy, **options), metric(confidence, right, **options)
    assert found == (pytest.approx(known, abs=1e-3) if options else known)


def test_summary_and_full_metrics(data) -> None:
    logits, labels = data
    cal = make("temps").fit(logits, labels)
    lazy, lazy_labels = (
        da.from_array(logits, chunks=500),
        da.from_array(labels, chunks=800),
    )
    found = metrics.summary(
        cal.predict_confidence(lazy), cal.predict(lazy) == lazy_labels
    )
    known = metrics.summary(
        cal.predict_confidence(logits), cal.predict(logits) == labels
    )
    assert found["ece"] == pytest.approx(known["ece"], nan_ok=True)
    assert found.bounds == pytest.approx(known.bounds)
    proba = cal.predict_proba(lazy)
    for metric in (metrics.brier, metrics.log_loss, metrics.classwise_ece):
        assert metric(proba, lazy_labels) == pytest.approx(
            metric(proba.compute(), labels), abs=1e-12
        )


def test_predicting_computes_nothing(data) -> None:
    logits, labels = data
    cal = make("temps").fit(logits, labels)
    read = []

    def block(part):
        read.append(len(part))
        return part

    lazy = da.from_array(logits, chunks=1000).map_blocks(block, meta=np.empty((0, 0)))
    found = cal.predict_confidence(lazy)
    assert read == []
    assert_array_equal(found[:1000].compute(), cal.predict_confidence(logits[:1000]))
    assert read == [1000]


def test_guarantees_are_lazy_too(data) -> None:
    logits, labels = data
    cal = quiet_fit(make("temps"), logits[::2], labels[::2])
    with pytest.raises(ValueError, match="has no examples to go by"):
        cal.predict_interval(da.from_array(logits, chunks=700), label=1)
    cal.certify(logits[1::2], labels[1::2])
    lazy = da.from_array(logits, chunks=(700, 2))
    for label in (None, 1):
        found = cal.predict_interval(lazy, label=label)
        assert isinstance(found, da.Array)
        assert found.shape == (len(logits), 2)
        assert_array_equal(found.compute(), cal.predict_interval(logits, label=label))
    found, known = (
        cal.predict_or_abstain(lazy, risk=0.3),
        cal.predict_or_abstain(logits, risk=0.3),
    )
    assert str(found) == str(known)
    for name in ("labels", "confidence", "accepted"):
        assert isinstance(getattr(found, name), da.Array)
        assert_array_equal(getattr(found, name).compute(), getattr(known, name))
    assert_array_equal(found.labels_or().compute(), known.labels_or())
    empty = da.concatenate([lazy[:0], lazy])
    assert_array_equal(
        cal.predict_interval(empty).compute(), cal.predict_interval(logits)
    )


def test_a_later_fit_changes_no_prediction(data) -> None:
    logits, labels = data
    cal = quiet_fit(Hoki(noise=Gaussian(4.0)), logits, labels)
    lazy = da.from_array(logits, chunks=1000)
    found, known = cal.predict_confidence(lazy), cal.predict_confidence(logits)
    assert found.name == cal.predict_confidence(lazy).name  # so Dask computes it once
    quiet_fit(cal, logits, np.roll(labels, 1))
    assert_array_equal(found.compute(), known)


@pytest.mark.parametrize("name", ["ece", "auroc"])
def test_blocks_of_which_nothing_counts(name) -> None:
    rng = np.random.default_rng(1)
    confidence = rng.uniform(size=3000)
    right = rng.uniform(size=3000) < confidence
    weights = np.where(np.arange(3000) < 1000, 0.0, rng.integers(1, 4, size=3000))
    arrays = [confidence, right]
    metric = getattr(metrics, name)
    lazy = [da.from_array(part, chunks=500) for part in (*arrays, weights)]
    found = metric(*lazy[:-1], sample_weight=lazy[-1])
    assert found == pytest.approx(metric(*arrays, sample_weight=weights), abs=1e-5)
    with pytest.raises(ValueError, match="with rows of weight above 0; got none"):
        metric(*lazy[:-1], sample_weight=da.zeros(3000, chunks=500))


def test_what_is_wrong_is_said(data) -> None:
    logits, labels = (da.from_array(part, chunks=1000) for part in data)
    cal = make("temps").fit(*data)
    with pytest.raises(ValueError, match="requires y to be passed"):
        make("temps").fit(logits)
    with pytest.raises(ValueError, match=r"as many rows; got \[3000, 2999\]"):
        make("temps").fit(logits, labels[:-1])
    with pytest.raises(ValueError, match=r"2-D \(n, classes\) with a known number"):
        cal.predict(labels)
    with pytest.raises(
        ValueError, match="X has 4 features, but TemperatureScaling is expecting 5"
    ):
        cal.predict(logits[:, :4])
    bad = da.where(da.arange(3000, chunks=1000)[:, None] == 2100, np.nan, logits)
    with pytest.raises(ValueError, match="NaN in row 2100, column"):
        Hoki(noise=Gaussian(1.0)).fit(bad, labels)
