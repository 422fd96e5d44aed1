"""Fits on streams: the same as in memory, whatever the chunks."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hokical import Gaussian, Hoki, Uniform, load, threads
from hokical.calibrators import make, method_names
from hokical.streams import fit, open_source, partial_fit, predict
from tests.conftest import max_examples, synthetic_logits
from tests.fitted import label_scores, with_fit_record
from tests.same_fits import assert_same_fit

STREAMED = [("temps", {}), ("vecs", {}), ("ets", {})]
HOKIS = [
    {"noise": Gaussian(4.0)},
    {"noise": Uniform(-3, 5), "n_bins": 7},
    {"noise": Gaussian(4.0), "draws": 50, "random_state": 3},
    {},
]


def quiet_fit(calibrator, data, *labels):
    """In memory where labels are given, else from a source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return calibrator.fit(data, *labels) if labels else fit(calibrator, data)


@pytest.mark.sample(1)
@pytest.mark.parametrize("options", HOKIS)
def test_hoki_is_the_same_to_the_bit(examples, options) -> None:
    whole = quiet_fit(Hoki(**options), *examples)
    for size in (77, 1000, 4000):
        streamed = quiet_fit(Hoki(**options), open_source(*examples, chunk_rows=size))
        assert_same_fit(whole, streamed)
        assert_array_equal(
            label_scores(whole).count,
            label_scores(streamed).count,
        )


def test_the_noise_is_found_on_a_scout_as_in_memory(examples, monkeypatch) -> None:
    monkeypatch.setattr("hokical.calibrators.noise_selection._SAMPLE_ROWS", 400)
    monkeypatch.setattr("hokical.calibrators.noise_selection._STAGE_ROWS", (75, 300))
    weights = np.random.default_rng(0).integers(0, 3, size=4000)
    whole = quiet_fit(Hoki(), *examples, weights)
    streamed = quiet_fit(Hoki(), open_source(*examples, weights, chunk_rows=123))
    assert streamed.selection_.noise == whole.selection_.noise
    assert [t.noise for t in streamed.selection_.trials] == [
        t.noise for t in whole.selection_.trials
    ]
    assert_allclose(
        streamed.selection_.sigma_hat, whole.selection_.sigma_hat, rtol=1e-12
    )
    assert_same_fit(whole, streamed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), STREAMED)
def test_log_loss_fits_do_not_depend_on_chunks(
    examples, weights, name, options
) -> None:
    logits, labels = examples
    logits = logits.copy()
    logits[::50, 1] = -np.inf  # some of them the truth
    for sample_weight in (None, weights):
        whole = quiet_fit(make(name, **options), logits, labels, sample_weight)
        one, other = (
            quiet_fit(
                make(name, **options),
                open_source(logits, labels, sample_weight, chunk_rows=n),
            )
            for n in (777, 4000)
        )
        assert_same_fit(one, other)
        for key, value in whole.rule_.numbers().items():
            assert_array_equal(one.rule_.numbers()[key], value, err_msg=key)


@pytest.mark.parametrize("name", ["uncalibrated", "irm", "irova_ts"])
def test_the_other_methods_see_all_rows(examples, name) -> None:
    logits, labels = (part[:1500] for part in examples)
    whole = quiet_fit(make(name), logits, labels)
    streamed = quiet_fit(make(name), open_source(logits, labels, chunk_rows=333))
    assert_same_fit(whole, streamed)


@pytest.mark.slow
def test_every_method_takes_a_source() -> None:
    tested = {"uncalibrated", "irm", "irova_ts", "hoki", "temps", "vecs", "ets"}
    others = set(method_names(2)) - tested
    for name in sorted(others):
        logits, labels = synthetic_logits(
            400, 2 if make(name).method.binary_only else 3, seed=2
        )
        whole = quiet_fit(make(name), logits, labels)
        streamed = quiet_fit(make(name), open_source(logits, labels, chunk_rows=90))
        assert_array_equal(
            streamed.predict_confidence(logits), whole.predict_confidence(logits)
        )


@pytest.mark.slow
@max_examples(15)
@given(
    sizes=st.lists(st.integers(0, 900), min_size=1, max_size=12),
    seed=st.integers(0, 99),
)
def test_chunks_of_any_sizes(sizes: list[int], seed: int) -> None:
    logits, labels = synthetic_logits(sum(sizes) + 1, 3, seed=seed)
    ends = np.cumsum([*sizes, 1])
    chunks = [
        (logits[a:b], labels[a:b]) for a, b in zip([0, *ends], ends, strict=False)
    ]
    whole = quiet_fit(Hoki(noise=Gaussian(3.0)), logits, labels)
    assert_same_fit(whole, quiet_fit(Hoki(noise=Gaussian(3.0)), chunks))
    parts = list(predict(whole, open_source(chunks)))
    assert_array_equal(np.concatenate(parts), whole.predict_confidence(logits))


def test_threads_change_nothing(examples) -> None:
    source = open_source(*examples, chunk_rows=300)
    with threads(1):
        one = quiet_fit(make("vecs"), source)
    with threads(3):
        assert_same_fit(one, quiet_fit(make("vecs"), source))


def test_partial_fit_adds_a_stream(examples) -> None:
    logits, labels = examples
    cal = Hoki(noise=Gaussian(4.0)).fit(logits[:1000], labels[:1000])
    partial_fit(cal, open_source(logits[1000:], labels[1000:], chunk_rows=400))
    whole = Hoki(noise=Gaussian(4.0)).fit(logits, labels)
    assert (
        cal.predictor_.fit_record.conformity.n
        == whole.predictor_.fit_record.conformity.n
        == 2048
    )
    # The samples for sets are of other rows.
    assert_same_fit(
        with_fit_record(whole, conformity=None), with_fit_record(cal, conformity=None)
    )
    assert_array_equal(
        label_scores(whole).count,
        label_scores(cal).count,
    )
    with pytest.raises(ValueError, match="the 5 used in `fit`; got 3"):
        partial_fit(cal, open_source(np.zeros((4, 3)), np.zeros(4, int)))


def test_the_first_partial_fit_is_a_fit() -> None:
    logits, labels = synthetic_logits(300, 3, seed=4)
    table = pd.DataFrame(logits, columns=["logit_c", "logit_b", "logit_a"])
    table["label"] = np.array(["c", "b", "a"])[labels]
    one, two = Hoki(noise=Gaussian(4.0)), Hoki(noise=Gaussian(4.0))
    assert partial_fit(one, open_source(table[:200], "label")) is one
    fit(two, open_source(table[:200], "label"))
    for name in ("schema_", "class_names", "metadata_"):
        assert getattr(one, name) == getattr(two, name) != ()
    assert one.schema_.columns != ()
    partial_fit(one, open_source(table[200:], "label", fitted_by=one))
    assert one.table_.total == 300


@pytest.mark.slow
def test_an_iterator_is_enough(examples, monkeypatch) -> None:
    def chunks():
        yield examples[0][:2500], examples[1][:2500]
        yield examples[0][2500:], examples[1][2500:]

    for name, options in (
        ("temps", {}),
        ("vecs", {}),
        ("hoki", {}),
        ("hoki", HOKIS[0]),
    ):
        assert_same_fit(
            make(name, **options).fit(*examples), fit(make(name, **options), chunks())
        )
    monkeypatch.setattr("hokical._fitting.examples.MOST_LOGITS", 10_000)
    with pytest.raises(
        ValueError, match=r"`noise` must be given .* returns a new iterator"
    ):
        fit(Hoki(), chunks())
    assert_same_fit(Hoki().fit(*examples), fit(Hoki(), chunks))
    assert_same_fit(Hoki(**HOKIS[0]).fit(*examples), fit(Hoki(**HOKIS[0]), chunks()))


def test_a_path_is_a_source_too(examples, tmp_path) -> None:
    np.savez(tmp_path / "v.npz", logits=examples[0], labels=examples[1])
    cal = quiet_fit(make("temps"), tmp_path / "v.npz")
    assert_same_fit(cal, quiet_fit(make("temps"), open_source(tmp_path / "v.npz")))
    cal.save(tmp_path / "cal.json")
    assert load(tmp_path / "cal.json").temperature_ == cal.temperature_


def test_a_source_without_labels_is_refused(examples) -> None:
    with pytest.raises(ValueError, match="labels are needed"):
        fit(Hoki(noise=Gaussian(1.0)), open_source(examples[0]))


@pytest.mark.parametrize("labels", [None, np.zeros(4000, int)])
def test_calibrators_send_what_is_no_array_to_streams(
    examples, labels, tmp_path
) -> None:
    pairs = [examples, examples]
    cal = make("temps").fit(*examples)
    given = [
        open_source(*examples),
        iter(pairs),
        lambda: pairs,
        pairs,
        "val.npz",
        tmp_path,
    ]
    for data in given:
        for work in (
            lambda d=data: make("temps").fit(d, labels),
            lambda d=data: cal.predict(d),
        ):
            with pytest.raises(
                TypeError, match=r"`hokical\.streams\.fit\(calibrator, source\)`"
            ):
                work()


def test_chunks_must_be_alike(examples) -> None:
    logits, labels = examples
    with pytest.raises(
        ValueError, match=r"same classes; got \[4, 5\] columns|same classes; got 4"
    ):
        fit(
            Hoki(noise=Gaussian(1.0)),
            [(logits[:10], labels[:10]), (logits[:10, :4], labels[:10])],
        )
    with pytest.raises(
        ValueError, match="`sample_weight` must be in every chunk or in none"
    ):
        fit(
            Hoki(noise=Gaussian(1.0)),
            [(logits[:10], labels[:10], np.ones(10)), (logits[:10], labels[:10])],
        )


def test_weights_of_zero_everywhere_are_refused(examples) -> None:
    source = open_source(*examples, np.zeros(4000))
    for cal in (Hoki(noise=Gaussian(1.0)), make("temps")):
        with pytest.raises(ValueError, match="must not be zero everywhere"):
            fit(cal, source)


def test_impossible_truths_are_counted_over_the_stream(examples) -> None:
    logits, labels = examples[0].copy(), examples[1]
    rows = np.arange(0, 4000, 400)
    logits[rows, labels[rows]] = -np.inf
    with pytest.warns(RuntimeWarning, match="10 of 4000 examples are left out"):
        fit(make("temps"), open_source(logits, labels, chunk_rows=100))


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["hoki", "temps", "vecs", "ets"])
def test_memory_does_not_grow_with_the_rows(name: str, monkeypatch) -> None:
    monkeypatch.setattr("hokical._fitting.examples.MOST_LOGITS", 40_000)
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
    if (
        name == "hoki"
    ):  # whose recursion holds the levels that occur: most do in 80,000 rows
        assert peak(160) < 1.25 * peak(80)  # one number for each row would be too many
        return
    # Ten times the rows. How many blocks are held at a time is up to the threads.
    assert peak(80) < 1.5 * peak(8)


def test_examples_are_added_to_hoki_alone() -> None:
    data = synthetic_logits(60, 3, seed=1)
    with pytest.raises(TypeError, match=r"`partial_fit` needs a Hoki.*streams.fit"):
        partial_fit(make("temps"), [data])
