"""Fits on streams: the same as in memory, whatever the chunks."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hokical import Hoki, load
from hokical._core import memory
from hokical._core.logits import as_logits
from hokical._core.parallel import threads
from hokical._fitting import noise_search
from hokical._fitting.likelihood import count_block, mean_margins
from hokical._fitting.partitions import Block
from hokical._fitting.streamed_examples import StreamedExamples
from hokical.calibrators import make, methods_from_logits
from hokical.stability._noise import Gaussian, Uniform
from hokical.streams import fit, from_arrays, from_chunks, open_source, partial_fit, predict
from hokical.streams._partition import StreamedPartition
from tests.conftest import max_examples, synthetic_logits
from tests.same_fits import assert_same_fit

STREAMED = [("temps", {}), ("vecs", {}), ("ets", {}), ("ets", {"loss": "log"})]
HOKIS = [
    {"noise": Gaussian(4.0)},
    {"noise": Uniform(-3, 5), "n_bins": 7},
    {"noise": Gaussian(4.0), "init": "confidence"},
    {"noise": Gaussian(4.0), "draws": 50, "random_state": 3},
    {},
]


def quiet_fit(calibrator, data, *labels):
    """In memory where labels are given, else from a source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return calibrator.fit(data, *labels) if labels else fit(calibrator, data)


@pytest.mark.sample(2)
@pytest.mark.parametrize("options", HOKIS)
def test_hoki_is_the_same_to_the_bit(examples, options) -> None:
    whole = quiet_fit(Hoki(**options), *examples)
    for size in (77, 1000, 4000):
        streamed = quiet_fit(Hoki(**options), from_arrays(*examples, chunk_rows=size))
        assert_same_fit(whole, streamed)
        assert_array_equal(whole.fit_scores_.count, streamed.fit_scores_.count)


def test_the_noise_is_found_on_a_scout_and_in_passes_as_in_memory(examples, monkeypatch) -> None:
    monkeypatch.setattr(noise_search, "_SAMPLE_ROWS", 400)
    monkeypatch.setattr(noise_search, "_SCOUT_ROWS", 300)
    weights = np.random.default_rng(0).integers(0, 3, size=4000)
    whole = quiet_fit(Hoki(), *examples, weights)
    streamed = quiet_fit(Hoki(), from_arrays(*examples, weights, chunk_rows=123))
    assert streamed.selection_.noise == whole.selection_.noise
    assert [t.noise for t in streamed.selection_.trials] == [
        t.noise for t in whole.selection_.trials
    ]
    assert_allclose(streamed.selection_.sigma_hat, whole.selection_.sigma_hat, rtol=1e-12)
    assert_same_fit(whole, streamed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), STREAMED)
def test_log_loss_fits_agree_to_rounding_and_not_at_all_depend_on_chunks(
    examples, weights, name, options
) -> None:
    logits, labels = examples
    logits = logits.copy()
    logits[::50, 1] = -np.inf  # some of them the truth
    for sample_weight in (None, weights):
        whole = quiet_fit(make(name, **options), logits, labels, sample_weight)
        one, other = (
            quiet_fit(
                make(name, **options), from_arrays(logits, labels, sample_weight, chunk_rows=n)
            )
            for n in (777, 4000)
        )
        assert_same_fit(one, other)
        for key, value in whole.rule_.numbers().items():
            found = one.rule_.numbers()[key]
            assert_allclose(found, value, rtol=1e-9, atol=1e-11, err_msg=key)
        test = synthetic_logits(200, 5, seed=1)[0]
        assert_allclose(one.predict_proba(test), whole.predict_proba(test), atol=1e-11)


@pytest.mark.parametrize("name", ["uncalibrated", "irm", "irova_ts"])
def test_the_other_methods_gather(examples, name) -> None:
    logits, labels = (part[:1500] for part in examples)
    whole = quiet_fit(make(name), logits, labels)
    streamed = quiet_fit(make(name), from_arrays(logits, labels, chunk_rows=333))
    assert_same_fit(whole, streamed)


def test_every_method_takes_a_source() -> None:
    tested = {"uncalibrated", "irm", "irova_ts", "hoki", "temps", "vecs", "ets"}
    others = set(methods_from_logits()) - tested
    for name in sorted(others):
        logits, labels = synthetic_logits(400, 2 if make(name).binary_only else 3, seed=2)
        whole = quiet_fit(make(name), logits, labels)
        streamed = quiet_fit(make(name), from_arrays(logits, labels, chunk_rows=90))
        assert_allclose(
            streamed.predict_confidence(logits), whole.predict_confidence(logits), atol=1e-9
        )


@pytest.mark.slow
@max_examples(15)
@given(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_chunks_of_any_sizes(sizes: list[int], seed: int) -> None:
    logits, labels = synthetic_logits(sum(sizes) + 1, 3, seed=seed)
    ends = np.cumsum([*sizes, 1])
    chunks = [(logits[a:b], labels[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    whole = quiet_fit(Hoki(noise=Gaussian(3.0)), logits, labels)
    assert_same_fit(whole, quiet_fit(Hoki(noise=Gaussian(3.0)), chunks))
    parts = list(predict(whole, from_chunks(chunks)))
    assert_array_equal(np.concatenate(parts), whole.predict_confidence(logits))


def test_threads_change_nothing(examples) -> None:
    source = from_arrays(*examples, chunk_rows=300)
    with threads(1):
        one = quiet_fit(make("vecs"), source)
    with threads(3):
        assert_same_fit(one, quiet_fit(make("vecs"), source))


def test_partial_fit_adds_a_stream(examples) -> None:
    logits, labels = examples
    cal = Hoki(noise=Gaussian(4.0)).fit(logits[:1000], labels[:1000])
    partial_fit(cal, from_arrays(logits[1000:], labels[1000:], chunk_rows=400))
    whole = Hoki(noise=Gaussian(4.0)).fit(logits, labels)
    assert cal.fit_conformity_.n == whole.fit_conformity_.n == 2048
    cal.fit_conformity_ = whole.fit_conformity_ = None  # samples for sets, of other rows
    assert_same_fit(whole, cal)
    assert_array_equal(whole.fit_scores_.count, cal.fit_scores_.count)
    with pytest.raises(ValueError, match="the 5 used in `fit`; got 3"):
        partial_fit(cal, from_arrays(np.zeros((4, 3)), np.zeros(4, int)))


def test_iterators_do_for_one_pass_and_are_refused_for_several(examples, tmp_path) -> None:
    def chunks():
        yield examples[0][:2500], examples[1][:2500]
        yield examples[0][2500:], examples[1][2500:]

    whole = Hoki(noise=Gaussian(4.0)).fit(*examples)
    assert_same_fit(whole, fit(Hoki(noise=Gaussian(4.0)), chunks()))
    for cal in (make("temps"), make("vecs"), make("ets"), Hoki()):
        with pytest.raises(ValueError, match=r"several passes .*spool=True"):
            fit(cal, chunks())
    spooled = fit(make("temps"), chunks(), spool=True)
    assert_same_fit(fit(make("temps"), from_arrays(*examples)), spooled)


def test_a_path_is_a_source_too(examples, tmp_path) -> None:
    np.savez(tmp_path / "v.npz", logits=examples[0], labels=examples[1])
    cal = quiet_fit(make("temps"), tmp_path / "v.npz")
    assert_same_fit(cal, quiet_fit(make("temps"), open_source(tmp_path / "v.npz")))
    cal.save(tmp_path / "cal.json")
    assert load(tmp_path / "cal.json").temperature_ == cal.temperature_


def test_a_function_that_returns_a_used_iterator_is_found_out(examples) -> None:
    chunks = iter([(examples[0][:900], examples[1][:900]), (examples[0][900:], examples[1][900:])])
    with pytest.raises(ValueError, match=r"at least one row|same rows in every pass"):
        fit(make("temps"), lambda: chunks)


def test_a_source_without_labels_is_refused(examples) -> None:
    with pytest.raises(ValueError, match="labels are needed"):
        fit(Hoki(noise=Gaussian(1.0)), from_arrays(examples[0]))


@pytest.mark.parametrize("labels", [None, np.zeros(4000, int)])
def test_calibrators_send_what_is_no_array_to_streams(examples, labels, tmp_path) -> None:
    pairs = [examples, examples]
    cal = make("temps").fit(*examples)
    given = [from_arrays(*examples), iter(pairs), lambda: pairs, pairs, "val.npz", tmp_path]
    for data in given:
        for work in (lambda d=data: make("temps").fit(d, labels), lambda d=data: cal.predict(d)):
            with pytest.raises(TypeError, match=r"`hokical\.streams\.fit\(calibrator, source\)`"):
                work()


def test_tables_go_to_streams_too(examples) -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"logit_0": [0.0], "logit_1": [1.0], "label": [1]})
    with pytest.raises(TypeError, match=r"got Table\. .*`hokical\.streams`"):
        make("temps").fit(table)


def test_chunks_must_be_alike(examples) -> None:
    logits, labels = examples
    with pytest.raises(ValueError, match=r"same classes; got \[4, 5\] columns|same classes; got 4"):
        fit(
            Hoki(noise=Gaussian(1.0)),
            [(logits[:10], labels[:10]), (logits[:10, :4], labels[:10])],
        )
    with pytest.raises(ValueError, match="`weights` must be in every chunk or in none"):
        fit(
            Hoki(noise=Gaussian(1.0)),
            [(logits[:10], labels[:10], np.ones(10)), (logits[:10], labels[:10])],
        )


def test_weights_of_zero_everywhere_are_refused(examples) -> None:
    source = from_arrays(*examples, np.zeros(4000))
    for cal in (Hoki(noise=Gaussian(1.0)), make("temps")):
        with pytest.raises(ValueError, match="must not be zero everywhere"):
            fit(cal, source)


def test_impossible_truths_are_counted_over_the_stream(examples) -> None:
    logits, labels = examples[0].copy(), examples[1]
    rows = np.arange(0, 4000, 400)
    logits[rows, labels[rows]] = -np.inf
    with pytest.warns(RuntimeWarning, match="10 of 4000 examples are left out"):
        fit(make("temps"), from_arrays(logits, labels, chunk_rows=100))


def test_what_does_not_fit_into_memory_is_not_gathered(examples, monkeypatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000)
    with pytest.raises(MemoryError, match=r"IsotonicMulticlass needs all logits in memory, about"):
        fit(make("irm"), from_arrays(*examples))


@max_examples(30)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 2000), spread=st.floats(-9, 9))
def test_the_median_of_a_stream(seed: int, n: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    logits = 10.0**spread * rng.normal(size=(n, 3))
    labels, weights = rng.integers(3, size=n), rng.exponential(size=n)
    streamed = StreamedExamples(StreamedPartition(from_arrays(logits, labels, weights)))
    known = count_block(Block(as_logits(logits), labels, weights))
    assert_allclose(
        streamed.positive_median(mean_margins), known.positive_median(mean_margins), rtol=1e-8
    )


def test_the_sample_does_not_depend_on_chunks(examples) -> None:
    samples = [
        StreamedExamples(StreamedPartition(from_arrays(*examples, chunk_rows=n))).coarse()
        for n in (100, 4000)
    ]
    assert samples[0] is None or samples[0].labels.size >= 500
    logits = np.repeat(examples[0], 3, axis=0)
    source = from_arrays(logits, np.repeat(examples[1], 3), chunk_rows=999)
    coarse = StreamedExamples(StreamedPartition(source)).coarse()
    assert coarse is not None
    assert_array_equal(coarse.logits.values, logits[::4])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hoki", "temps", "vecs", "ets"])
def test_memory_does_not_grow_with_the_rows(name: str) -> None:
    options = {"noise": Gaussian(4.0)} if name == "hoki" else {}

    def peak(n_chunks: int) -> int:
        def chunks():
            for seed in range(n_chunks):
                yield synthetic_logits(1000, 20, seed=seed)

        tracemalloc.start()
        quiet_fit(make(name, **options), chunks)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(2)  # imports
    assert peak(40) < 1.15 * peak(8)


def test_too_little_memory_is_said_with_what_is_needed(examples, monkeypatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="needs all logits in memory, about"):
        fit(make("irm"), from_arrays(*examples))
