"""Logits of which only the best of each row are known."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import log_ndtr, softmax

from hokical import Hoki, TopK, compare, label_distribution, label_stability, load, stability_bounds
from hokical.calibrators.registry import CALIBRATORS, make
from hokical.files import DataFileError, read_examples
from hokical.logits import Logits, as_logits
from hokical.metrics import brier
from hokical.noise import Gaussian, Gumbel, Noise, Uniform
from hokical.parallel import threads
from hokical.ranges import range_extremes
from hokical.stability.bounds import _chord_end, _highest_mean
from tests.conftest import real_logits, synthetic_logits

ACCEPTING = [name for name, method in CALIBRATORS.items() if method.accepts_top_k]
NOISES = [Gaussian(0.3), Gaussian(1.5), Gaussian(8.0), Uniform(0, 1), Uniform(-4, 4), Gumbel(0.6)]

noises = st.builds(
    lambda family, width: family.of_width(width),
    st.sampled_from([Gaussian, Uniform, Gumbel]),
    st.floats(0.05, 20.0),
)


def rows(n_classes: int, spread: float, seed: int, n: int = 8) -> np.ndarray:
    """Logits with a tie at the top in row 0 and impossible classes in row 1."""
    values = spread * np.random.default_rng(seed).normal(size=(n, n_classes))
    values[0, 1:3] = values[0].max()
    values[1, n_classes // 2 :] = -np.inf
    return values


@given(
    n_classes=st.integers(3, 40),
    k=st.integers(1, 40),
    spread=st.floats(0.1, 8.0),
    noise=noises,
    keep_rest=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_bounds_bracket_the_stability_of_all_classes(
    n_classes: int, k: int, spread: float, noise: Noise, keep_rest: bool, seed: int
) -> None:
    dense = rows(n_classes, spread, seed)
    seen = TopK.from_logits(dense, k, keep_rest=keep_rest)
    lower, upper = stability_bounds(seen, noise)
    exact = label_stability(dense, noise)
    assert np.all(lower <= exact + 1e-7)
    assert np.all(exact <= upper + 1e-7)
    assert np.array_equal(label_stability(seen, noise), 0.5 * (lower + upper))


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("k", [1, 4, 20])
def test_without_a_rest_bounds_are_the_extreme_fills(noise: Noise, k: int) -> None:
    dense = rows(40, 2.0, seed=k)
    seen = TopK.from_logits(dense, k, keep_rest=False)
    lower, upper = stability_bounds(seen, noise)
    crowded = seen.to_dense(fill=seen.ceiling)
    alone = seen.to_dense(fill=-np.inf)
    label = (np.arange(len(seen)), seen.labels)
    for filled in (crowded, alone):
        assert np.array_equal(filled[label], seen.top)
    np.testing.assert_allclose(lower, label_stability(crowded, noise), atol=2e-7)
    np.testing.assert_allclose(upper, label_stability(alone, noise), atol=2e-7)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_bounds_draw_closer_with_every_class_seen_and_with_the_rest(noise: Noise) -> None:
    dense = rows(30, 2.0, seed=3)
    widths = []
    for k in (1, 2, 5, 10, 20, 29):
        for keep_rest in (False, True):
            lower, upper = stability_bounds(TopK.from_logits(dense, k, keep_rest=keep_rest), noise)
            widths.append(upper - lower)
    without, known = np.array(widths[::2]), np.array(widths[1::2])
    assert np.all(np.diff(without, axis=0) <= 1e-7)
    assert np.all(known <= without + 1e-7)
    assert known.sum() < without.sum()


@pytest.mark.parametrize("scale", [0.2, 1.0, 3.0, 12.0])
def test_gaussian_extremes_are_those_of_a_linear_program(scale: float) -> None:
    rng = np.random.default_rng(int(10 * scale))
    for _ in range(12):
        ceiling, more, u = rng.uniform(0, 8), 10 ** rng.uniform(-2, 1), rng.uniform(-4, 4)
        equal = ceiling + more
        margins = np.r_[ceiling, equal, ceiling + np.geomspace(1e-3, 60 * max(1, scale), 1500)]
        heights = log_ndtr(u + margins / scale)
        limits = {"A_eq": [np.ones_like(margins), np.exp(equal - margins)], "b_eq": [1.0, 1.0]}
        greatest = -linprog(-heights, **limits).fun
        least = linprog(heights, **limits).fun
        found = _highest_mean(np.array([u + ceiling / scale]), np.array([u + equal / scale]), scale)
        place = np.clip(_chord_end(scale) - u, ceiling / scale, equal / scale)
        lowest = np.exp(scale * place - equal) * log_ndtr(u + place)
        assert greatest - 1e-8 <= found[0] <= greatest + 0.02 * abs(greatest) + 1e-8
        np.testing.assert_allclose(lowest, least, rtol=1e-3, atol=1e-8)
        assert lowest <= least + 1e-8


def test_softmax_is_exact_where_the_rest_is_known(overconfident: tuple) -> None:
    dense = overconfident[0][:200]
    log_proba = dense - np.logaddexp.reduce(dense, axis=1, keepdims=True)
    order = np.argsort(-log_proba, axis=1)[:, :2]
    values = np.take_along_axis(log_proba, order, axis=1)
    seen = TopK.from_log_probabilities(values, order, 6)
    want = softmax(dense, axis=1).max(axis=1)
    for found in (*stability_bounds(seen, Gumbel(1.0)), label_stability(seen, Gumbel(1.0))):
        np.testing.assert_allclose(found, want, atol=1e-6)
    cut = TopK.from_logits(dense, 2)
    np.testing.assert_allclose(label_stability(cut, Gumbel(1.0)), want, rtol=1e-12)


def test_all_classes_seen_is_the_same_as_logits(overconfident: tuple) -> None:
    dense, labels = overconfident
    order = np.random.default_rng(0).permuted(np.tile(np.arange(6), (3000, 1)), axis=1)
    seen = TopK(np.take_along_axis(dense, order, axis=1), order, 6)
    assert np.array_equal(as_logits(seen).values, dense)
    for name in ("temps", "vecs", "hoki", "irm"):
        full, same = make(name).fit(dense, labels), make(name).fit(seen, labels)
        assert np.array_equal(full.predict_proba(dense), same.predict_proba(seen))
        assert np.array_equal(same.confidence_bounds(seen)[0], full.predict_confidence(dense))


@pytest.mark.parametrize("name", ["uncalibrated", "temps", "ets"])
@pytest.mark.parametrize("keep_rest", [True, False])
def test_fits_equal_those_on_evenly_filled_logits(name: str, keep_rest: bool) -> None:
    dense, labels = synthetic_logits(1500, 30, seed=5)
    seen = TopK.from_logits(dense, 4, keep_rest=keep_rest)
    assert (seen.indices != labels[:, None]).all(axis=1).any()  # some truths are hidden
    cal, twin = make(name).fit(seen, labels), make(name).fit(seen.to_dense(), labels)
    for attribute in ("temperature_", "weights_", "log_loss_", "loss_"):
        if hasattr(twin, attribute):
            want = getattr(twin, attribute)
            np.testing.assert_allclose(getattr(cal, attribute), want, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        cal.predict_proba(seen), twin.predict_proba(seen.to_dense()), rtol=1e-5, atol=1e-9
    )


@pytest.mark.parametrize("name", ACCEPTING)
@pytest.mark.parametrize("keep_rest", [True, False])
def test_calibrators_keep_their_promises(name: str, keep_rest: bool, tmp_path: Path) -> None:
    dense, labels = synthetic_logits(1500, 30, seed=6)
    seen = TopK.from_logits(dense, 5, keep_rest=keep_rest)
    cal = make(name).fit(seen, labels)
    confidence = cal.predict_confidence(seen)
    assert np.array_equal(cal.predict(seen), dense.argmax(axis=1))
    lower, upper = cal.confidence_bounds(seen)
    assert np.all((lower <= confidence + 1e-9) & (confidence <= upper + 1e-9))
    proba = cal.predict_proba(seen)
    assert proba.shape == dense.shape
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(proba[np.arange(1500), seen.labels], confidence, atol=1e-12)
    np.put_along_axis(proba, seen.indices, np.nan, axis=1)
    np.testing.assert_allclose(np.nanmin(proba, axis=1), np.nanmax(proba, axis=1), rtol=1e-9)
    cal.save(tmp_path / "cal.json")
    assert np.array_equal(load(tmp_path / "cal.json").predict_confidence(seen), confidence)


@pytest.mark.parametrize("name", ACCEPTING)
def test_bounds_hold_for_the_confidence_of_the_full_logits(name: str) -> None:
    dense, labels = synthetic_logits(1500, 30, seed=8)
    widths = []
    for keep_rest in (False, True):
        seen = TopK.from_logits(dense, 5, keep_rest=keep_rest)
        cal = make(name).fit(TopK.from_logits(dense, 5), labels)
        full = cal.predict_confidence(dense)
        lower, upper = cal.confidence_bounds(seen)
        assert np.all((lower <= full + 1e-5) & (full <= upper + 1e-5))
        widths.append(np.mean(upper - lower))
    assert widths[1] < widths[0] < 1.0
    assert np.array_equal(*cal.confidence_bounds(dense))


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_results_do_not_depend_on_batch_or_threads(noise: Noise) -> None:
    dense, _ = synthetic_logits(3000, 25, seed=9)
    for keep_rest in (True, False):
        seen = TopK.from_logits(dense, 20, keep_rest=keep_rest)
        with threads(1):
            whole = label_stability(seen, noise)
        with threads(3):
            assert np.array_equal(label_stability(seen, noise), whole)
        parts = [label_stability(seen.take(slice(i, i + 7)), noise) for i in range(0, 70, 7)]
        assert np.array_equal(np.concatenate(parts), whole[:70])
        chosen = np.array([5, 2999, 17])
        assert np.array_equal(label_stability(seen.take(chosen), noise), whole[chosen])


def test_a_million_classes_need_no_column_each() -> None:
    rng = np.random.default_rng(0)
    n, n_classes = 1000, 10**6
    indices = np.argsort(rng.random((n, 60)), axis=1)[:, :20] * 15_000
    values = np.log(rng.dirichlet(np.full(21, 0.3), size=n)[:, :20] + 1e-6)
    labels = np.where(rng.random(n) < 0.6, indices[np.arange(n), values.argmax(axis=1)], 7)
    tracemalloc.start()
    seen = TopK(values, indices, n_classes)
    for name in ACCEPTING:
        cal = make(name).fit(seen, labels)
        confidence = cal.predict_confidence(seen)
        assert np.all((confidence >= 0.0) & (confidence <= 1.0))
        cal.confidence_bounds(seen)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300e6  # an array with a column per class would take 8e9


def test_order_within_a_row_does_not_matter_and_ties_go_to_the_smaller_class() -> None:
    seen = TopK([[1.0, 3.0, 3.0], [0.0, -1.0, 2.0]], [[4, 9, 2], [1, 0, 3]], 10)
    assert seen.indices.tolist() == [[2, 9, 4], [3, 1, 0]]
    assert seen.values.tolist() == [[3.0, 3.0, 1.0], [2.0, 0.0, -1.0]]
    assert seen.labels.tolist() == [2, 3]
    assert seen.hidden.tolist() == [7, 7]
    assert seen.ceiling.tolist() == [1.0, -1.0]
    assert repr(seen) == "TopK(2 rows, the best 3 of 10 classes, the rest unknown)"


def test_empty_places_and_a_ceiling_of_ones_own() -> None:
    """A question with four choices, two of which an API did not return."""
    seen = TopK([[-0.2, -2.0, np.nan, 0.0]], [[0, 2, -1, -1]], 4, ceiling=[-6.0])
    full = TopK([[-0.2, -2.0, -6.0, -6.0]], [[0, 2, 1, 3]], 4)
    assert seen.hidden.tolist() == [2]
    for noise in NOISES:
        lower, _ = stability_bounds(seen, noise)
        np.testing.assert_allclose(lower, label_stability(full, noise), atol=1e-7)
    assert seen.to_dense(fill=-9.0).tolist() == [[-0.2, -9.0, -2.0, -9.0]]


def test_impossible_classes_leave_nothing_hidden() -> None:
    seen = TopK([[2.0, 1.0, -np.inf], [2.0, -np.inf, -np.inf]], [[0, 1, 2], [0, 1, 2]], 9)
    for noise in NOISES:
        lower, upper = stability_bounds(seen, noise)
        assert np.array_equal(lower, upper)
        np.testing.assert_allclose(
            lower, label_stability(seen.to_dense(fill=-np.inf), noise), atol=1e-7
        )
    assert seen.single_choice.tolist() == [False, True]
    proba = make("uncalibrated").fit(np.zeros((1, 9)), [0]).predict_proba(seen)
    assert proba[:, 2:].sum() == 0.0
    assert proba[1, 0] == 1.0


@given(st.integers(2, 30), st.integers(1, 8), st.integers(0, 2**20))
def test_one_class_per_row_is_found_whether_seen_or_hidden(
    n_classes: int, k: int, seed: int
) -> None:
    dense = rows(n_classes + 1, 2.0, seed)[2:]
    seen = TopK.from_logits(dense, k, keep_rest=False)
    classes = np.random.default_rng(seed).integers(n_classes + 1, size=len(dense))
    filled = seen.filled()
    assert np.array_equal(seen.of_class(classes), filled.of_class(classes))
    assert np.array_equal(seen.possible_counts(slice(None)), filled.possible_counts(slice(None)))
    assert np.array_equal(seen.labels, dense.argmax(axis=1))


def test_distribution_shares_the_rest_among_hidden_classes() -> None:
    seen = TopK.from_logits(rows(12, 2.0, seed=1), 4)
    for noise in (Gaussian(1.0), Uniform(0, 3), Gumbel(2.0)):
        pi = label_distribution(seen, noise)
        np.testing.assert_allclose(pi, label_distribution(seen.to_dense(), noise), atol=1e-12)


def test_streams_and_pickles() -> None:
    dense, labels = synthetic_logits(2000, 30, seed=11)
    seen = TopK.from_logits(dense, 6)
    first, second = slice(0, 900), slice(900, 2000)
    whole = Hoki(noise=Gaussian(2.0)).fit(seen, labels)
    parts = Hoki(noise=Gaussian(2.0)).fit(seen.take(first), labels[first])
    parts.partial_fit(seen.take(second), labels[second])
    confidence = whole.predict_confidence(seen)
    assert np.array_equal(parts.predict_confidence(seen), confidence)
    back = pickle.loads(pickle.dumps(seen))
    assert np.array_equal(whole.predict_confidence(back), confidence)
    assert len(back) == 2000


@pytest.mark.parametrize("name", sorted(set(CALIBRATORS) - {"recal"}))
def test_methods_that_need_every_class_say_so(name: str) -> None:
    if make(name).accepts_top_k:
        return
    dense, labels = synthetic_logits(50, 8, seed=12)
    seen = TopK.from_logits(dense, 3)
    message = f"`{name}` needs the logit of every class; the input has the best 3 of 8"
    with pytest.raises(ValueError, match=message):
        make(name).fit(seen, labels)


def test_methods_that_accept_are_the_default_of_compare() -> None:
    dense, labels = synthetic_logits(400, 8, seed=13)
    seen = TopK.from_logits(dense, 3)
    found = compare((seen, labels), (seen, labels), n_resamples=0)
    names = {result.name for result in found.results}
    assert set(ACCEPTING) <= names
    assert not names & {"vecs", "irm", "ms_odir"}


def test_draws_need_every_class() -> None:
    seen = TopK([[2.0, 1.0]], [[0, 1]], 9)
    with pytest.raises(ValueError, match=r"`draws` needs the logit of every.*exact stability"):
        label_stability(seen, Gaussian(1.0), draws=10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [[0]], 3), "`values` must be 2-D"),
        (([[1.0, 2.0]], [[0]], 3), r"`indices` must have the shape of `values`, \(1, 2\)"),
        (([[1.0, 2.0]], [[0, 3]], 3), r"lie in \[0, 2\], or be -1 .*; got 3 in row 0, place 1"),
        (([[1.0, 2.0]], [[0, -2]], 3), "got -2 in row 0"),
        (([[1.0, 2.0]], [[1, 1]], 3), "class 1 is in row 0 twice"),
        (([[1.0, 2.0]], [[0, 1]], 1), "`n_classes` must be an integer of at least 2; got 1"),
        (([[1.0, 2.0, 3.0]], [[0, 1, 2]], 2), "from 1 to n_classes = 2 columns"),
        (([[1.0, np.nan]], [[0, 1]], 3), "must not hold NaN or .inf; got NaN in row 0, column 1"),
        (([[1.0, np.inf]], [[0, 1]], 3), "got .inf in row 0"),
        (([[-np.inf, -np.inf]], [[0, 1]], 3), "row 0 has no finite value"),
    ],
)
def test_bad_arguments(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TopK(*arguments)


def test_more_bad_arguments() -> None:
    with pytest.raises(TypeError, match=r"`indices` must be integers.*float64"):
        TopK([[1.0, 2.0]], [[0.0, 1.0]], 3)
    with pytest.raises(
        ValueError, match=r"`ceiling` must be at most .* got 1.5 above 1.0 in row 0"
    ):
        TopK([[1.0, 2.0]], [[0, 1]], 3, ceiling=1.5)
    with pytest.raises(ValueError, match=r"`ceiling` must be a number or \(n,\)"):
        TopK([[1.0, 2.0]], [[0, 1]], 3, ceiling=[0.0, 0.0])
    with pytest.raises(ValueError, match=r"`rest` must be .* = 1.69315 in row 0.*got 3"):
        TopK([[1.0, 2.0]], [[0, 1]], 4, rest=3.0)
    with pytest.raises(ValueError, match=r"row 0 sums to 1.4, .* For logits"):
        TopK.from_log_probabilities(np.log([[0.7, 0.7]]), [[0, 1]], 4)
    with pytest.raises(ValueError, match=r"2 hidden classes can hold 0.2 at most"):
        TopK.from_log_probabilities(np.log([[0.3, 0.1]]), [[0, 1]], 4)
    fitted = make("uncalibrated").fit(np.zeros((1, 6)), [0])
    with pytest.raises(ValueError, match="X has 5 features, but Uncalibrated is expecting 6"):
        fitted.predict(TopK([[1.0]], [[0]], 5))


def test_bounds_of_hoki_need_a_start_that_is_known() -> None:
    dense, labels = synthetic_logits(300, 8, seed=14)
    seen = TopK.from_logits(dense, 3)
    cal = Hoki(noise=Gaussian(2.0), init="confidence").fit(seen, labels)
    assert cal.predict_confidence(seen).shape == (300,)
    with pytest.raises(ValueError, match='needs `init="accuracy"`'):
        cal.confidence_bounds(seen)


def test_files_may_hold_the_best_values(tmp_path: Path) -> None:
    dense, labels = synthetic_logits(60, 8, seed=15)
    seen = TopK.from_logits(dense - np.logaddexp.reduce(dense, axis=1, keepdims=True), 3)
    arrays = {"val-topk_indices": seen.indices, "n_classes": np.array(8), "val-labels": labels}
    path = tmp_path / "seen.npz"
    for name, known in (("values", False), ("log_probabilities", True)):
        np.savez(path, **{f"val-topk_{name}": seen.values}, **arrays)
        examples = read_examples(path)
        assert isinstance(examples.logits, TopK)
        assert np.array_equal(examples.logits.indices, seen.indices)
        assert (examples.logits.rest is not None) is known
        assert np.array_equal(examples.labels, labels)
    np.savez(path, topk_values=seen.values, labels=labels)
    with pytest.raises(DataFileError, match="expected `topk_indices` beside the best values"):
        read_examples(path)
    np.savez(path, topk_values=seen.values, topk_indices=seen.indices, n_classes=[8.5])
    with pytest.raises(DataFileError, match="expected one whole number in `n_classes`"):
        read_examples(path, need_labels=False)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(0, 2**20))
def test_range_extremes_are_those_of_the_slices(values: list[float], seed: int) -> None:
    array = np.array(values)
    first, last = np.sort(np.random.default_rng(seed).integers(len(values), size=(2, 20)), axis=0)
    low, high = range_extremes(array, first, last)
    assert low.tolist() == [array[a : b + 1].min() for a, b in zip(first, last, strict=True)]
    assert high.tolist() == [array[a : b + 1].max() for a, b in zip(first, last, strict=True)]


def test_little_is_lost_on_real_logits() -> None:
    """1000 classes cut to 20, or to 5 and their rest: Brier scores stay within 0.002."""
    dense, labels = real_logits("imagenet5k_efficientnet_lite0", limit=3000)
    data = {"all": as_logits(dense.astype(np.float32))}
    for k, keep_rest in ((20, False), (20, True), (5, True)):
        data[f"{k}, {keep_rest}"] = TopK.from_logits(data["all"], k, keep_rest=keep_rest)
    val, test = slice(0, 1500), slice(1500, 3000)
    right = data["all"].labels[test] == labels[test]
    for cal in (make("temps"), make("ets"), Hoki(noise=Gaussian(1.2))):
        found = {}
        for name, logits in data.items():
            cal.fit(logits.take(val), labels[val])
            found[name] = brier(cal.predict_confidence(logits.take(test)), right)
        assert max(found.values()) < found["all"] + 0.002


def test_plain_logits_have_no_tail() -> None:
    plain = as_logits([[1.0, 2.0, 0.0]])
    assert type(plain) is Logits
    assert plain.tail is None
    assert plain.runner_up_gaps(slice(0, 1)).tolist() == [1.0]
    assert TopK([[1.0]], [[3]], 5, ceiling=-1.0).runner_up_gaps(slice(0, 1)).tolist() == [2.0]
