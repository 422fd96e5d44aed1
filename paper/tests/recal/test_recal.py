"""ReCal against a literal loop over whole probability arrays."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from tests.conftest import read_pair, synthetic_logits

from hokical import load, threads
from hokical_paper.recal import ReCal, Views

Data = tuple[np.ndarray, np.ndarray, np.ndarray]
Real = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def resnet110() -> Real:
    return read_pair("cifar10_resnet110")


#: The limit may well be reached here; the test that is about it asks for the warning.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def make_data(n: int, n_classes: int, n_transforms: int = 4, seed: int = 0) -> Data:
    """Logits, labels, and logits under lossier and lossier transformations."""
    logits, labels = synthetic_logits(n, n_classes, seed=seed)
    return logits, labels, lossy_views(logits, n_transforms, seed)


def lossy_views(logits: np.ndarray, n_transforms: int, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed + 100).normal(size=(n_transforms, *logits.shape))
    loss = np.arange(1, n_transforms + 1)[:, None, None] / n_transforms
    return (1.0 - 0.5 * loss) * logits + logits.std() * 0.5 * loss * noise


def picked(seed: int, n_picks: int, n_transforms: int) -> np.ndarray:
    """The documented choice: 53 bits of each raw word of a Philox stream."""
    words = np.random.Philox(key=seed).random_raw(n_picks)
    return [
        int((int(word >> np.uint64(11)) + 0.5) / 2**53 * n_transforms) for word in words
    ]


def slow_ece(
    proba: np.ndarray, labels: np.ndarray, weights: np.ndarray, n_bins: int
) -> float:
    confidence, right = proba.max(axis=1), proba.argmax(axis=1) == labels
    total = 0.0
    for j in range(n_bins):
        top = confidence <= 1.0 if j == n_bins - 1 else confidence < (j + 1) / n_bins
        inside = (confidence >= j / n_bins) & top
        total += abs(np.sum(weights[inside] * (confidence[inside] - right[inside])))
    return total / weights.sum() if weights.sum() else 0.0


def slow_scale(proba: np.ndarray, temperature: float) -> np.ndarray:
    return softmax(temperature * np.log(np.maximum(proba, 1e-16)), axis=1)


def slow_temperature(
    proba: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> float:
    log_proba = np.log(np.maximum(proba, 1e-16))

    def loss(log_temperature: float) -> float:
        scaled = log_softmax(np.exp(log_temperature) * log_proba, axis=1)
        return float(-np.sum(weights * scaled[np.arange(len(labels)), labels]))

    ends = (np.log(0.1), np.log(10.0))
    return float(np.exp(minimize_scalar(loss, bounds=ends, options={"xatol": 1e-10}).x))


def slow_groups(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    label = first.argmax(axis=1)
    rows = np.arange(len(first))
    same = second.argmax(axis=1) == label
    rose = second[rows, label] > first[rows, label] * (
        1.0 + 1e-9
    )  # by more than rounding
    return np.select([~same & rose, ~same & ~rose, same & rose], [0, 1, 2], 3)


def slow_recal(
    data: Data,
    weights: np.ndarray,
    picks: list[int],
    n_bins: int,
    stop_when_worse: bool,
) -> tuple[list[np.ndarray], list[float]]:
    """The description, on probability arrays of every view, with a clamp in every
    step.
    """
    logits, labels, transformed = data
    first, others = (
        softmax(logits, axis=1),
        [softmax(view, axis=1) for view in transformed],
    )
    steps, errors = [], [slow_ece(first, labels, weights, n_bins)]
    for chosen in picks:
        group = slow_groups(first, others[chosen])
        temperatures = np.ones(4)
        for g in range(4):
            rows = group == g
            if rows.any():
                share = weights[rows].sum() / weights.sum()
                best = slow_temperature(first[rows], labels[rows], weights[rows])
                temperatures[g] = 1 - share + share * best
        tried = slow_scale(first, temperatures[group][:, None])
        worse = slow_ece(tried, labels, weights, n_bins) > errors[-1]
        for g in range(4):
            rows = group == g
            own = [
                slow_ece(p[rows], labels[rows], weights[rows], n_bins)
                for p in (first, tried)
            ]
            if worse or own[1] > own[0]:
                temperatures[g] = 1.0
        first = slow_scale(first, temperatures[group][:, None])
        others[chosen] = slow_scale(others[chosen], temperatures[group][:, None])
        steps.append(temperatures)
        errors.append(slow_ece(first, labels, weights, n_bins))
        if abs(errors[-1] - errors[-2]) < 1e-6 and (stop_when_worse or not worse):
            break
    return steps, errors


@pytest.mark.sample(4)
@pytest.mark.parametrize("stop_when_worse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("n", "n_classes", "n_bins"), [(400, 3, 15), (600, 10, 10), (12, 12, 5)]
)
def test_it_is_the_described_loop(
    n: int, n_classes: int, n_bins: int, weighted: bool, stop_when_worse: bool
) -> None:
    data = make_data(n, n_classes, seed=n)
    weights = np.random.default_rng(0).gamma(1.0, size=n) if weighted else np.ones(n)
    cal = ReCal(
        max_iter=8, n_bins=n_bins, stop_when_worse=stop_when_worse, random_state=5
    )
    cal.fit(Views(data[0], data[2]), data[1], weights if weighted else None)
    picks = picked(5, 8, 4)[: cal.n_iter_]
    steps, errors = slow_recal(data, weights, picks, n_bins, stop_when_worse)
    np.testing.assert_array_equal(cal.transformations_, picks)
    np.testing.assert_allclose(cal.temperatures_, steps, atol=1e-5)
    np.testing.assert_allclose(cal.ece_, errors, atol=1e-5)


def test_it_is_the_described_loop_on_real_logits(resnet110: Real) -> None:
    logits = resnet110["val_logits"][:2000].astype(np.float64)
    labels = resnet110["val_labels"][:2000].astype(int)
    views = lossy_views(logits, 20, seed=1)
    cal = ReCal(max_iter=6, random_state=2).fit(Views(logits, views), labels)
    picks = picked(2, 6, 20)[: cal.n_iter_]
    steps, errors = slow_recal((logits, labels, views), np.ones(2000), picks, 15, False)
    np.testing.assert_allclose(cal.temperatures_, steps, atol=1e-5)
    np.testing.assert_allclose(cal.ece_, errors, atol=1e-6)
    assert errors[-1] < 0.6 * errors[0]


def test_replaying_on_the_validation_set_gives_what_the_fit_ended_with() -> None:
    logits, labels, transformed = make_data(1000, 5)
    cal = ReCal().fit(Views(logits, transformed), labels)
    proba = cal.predict_proba(Views(logits, transformed))
    assert slow_ece(proba, labels, np.ones(1000), 15) == pytest.approx(
        cal.ece_[-1], abs=1e-12
    )
    assert (np.diff(cal.ece_) < 1e-3).all()
    assert cal.ece_[-1] < 0.5 * cal.ece_[0]


@pytest.mark.slow
def test_the_outcome_holds_on_new_examples(resnet110: Real) -> None:
    part = {key: value[:4000] for key, value in resnet110.items()}
    views = {
        key: lossy_views(part[f"{key}_logits"], 20, seed=3) for key in ("val", "test")
    }
    cal = ReCal().fit(Views(part["val_logits"], views["val"]), part["val_labels"])
    proba = cal.predict_proba(Views(part["test_logits"], views["test"]))
    before = softmax(part["test_logits"].astype(np.float64), axis=1)
    labels, ones = part["test_labels"], np.ones(4000)
    assert slow_ece(proba, labels, ones, 15) < 0.5 * slow_ece(before, labels, ones, 15)


def test_labels_are_kept_and_rows_are_probabilities() -> None:
    logits, labels, transformed = make_data(500, 6)
    cal = ReCal().fit(Views(logits, transformed), labels)
    proba = cal.predict_proba(Views(logits, transformed))
    np.testing.assert_array_equal(proba.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_array_equal(
        cal.predict(Views(logits, transformed)), logits.argmax(axis=1)
    )
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    confidence = cal.predict_confidence(Views(logits, transformed))
    np.testing.assert_allclose(confidence, proba.max(axis=1), atol=1e-13)
    right = logits.argmax(axis=1) == labels
    score = cal.score(Views(logits, transformed), labels)
    assert score == pytest.approx(-np.mean((confidence - right) ** 2))


@pytest.mark.filterwarnings("ignore:.*true class with logit:RuntimeWarning")
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 30),
    n_classes=st.integers(2, 6),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    size=st.sampled_from([0.01, 1.0, 300.0]),
    masked=st.floats(0.0, 0.6),
)
def test_any_logits_work(
    seed: int, n: int, n_classes: int, dtype: str, size: float, masked: float
) -> None:
    """Coarse logits: ties within rows, masks (of true classes too), saturated
    probabilities.
    """
    rng = np.random.default_rng(seed)
    everything = (size * rng.integers(-3, 4, size=(4, n, n_classes))).astype(dtype)
    everything[rng.random(everything.shape) < masked] = -np.inf
    everything[:, np.arange(n), rng.integers(n_classes, size=n)] = 0.0
    logits, transformed = everything[0], everything[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cal = ReCal(max_iter=15, random_state=seed)
        cal.fit(Views(logits, transformed), rng.integers(n_classes, size=n))
    proba = cal.predict_proba(Views(logits, transformed))
    assert np.isfinite(proba).all()
    assert (cal.temperatures_ > 0.0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(proba[logits == -np.inf], 0.0)
    np.testing.assert_array_equal(proba.argmax(axis=1), logits.argmax(axis=1))


@pytest.mark.parametrize("target", ["right", "wrong", "missing"])
def test_all_right_all_wrong_or_a_class_missing(target: str) -> None:
    logits, labels, transformed = make_data(200, 5)
    if target == "missing":
        labels = np.where(labels == 4, 0, labels)
    else:
        labels = logits.argmax(axis=1) if target == "right" else logits.argmin(axis=1)
    cal = ReCal().fit(Views(logits, transformed), labels)
    confidence = cal.predict_confidence(Views(logits, transformed))
    assert np.isfinite(confidence).all()
    assert cal.ece_[-1] <= cal.ece_[0]


def test_a_weight_of_two_is_the_row_twice() -> None:
    logits, labels, transformed = make_data(300, 4)
    weights = np.random.default_rng(0).integers(0, 4, size=300)
    rows = np.repeat(np.arange(300), weights)
    left = ReCal(max_iter=10).fit(Views(logits, transformed), labels, weights)
    right = ReCal(max_iter=10).fit(
        Views(logits[rows], transformed[:, rows]), labels[rows]
    )
    np.testing.assert_allclose(left.temperatures_, right.temperatures_, atol=1e-8)


def test_shifted_rows_and_permuted_classes_change_nothing() -> None:
    logits, labels, transformed = make_data(300, 4)
    rng = np.random.default_rng(0)
    cal = ReCal(max_iter=10).fit(Views(logits, transformed), labels)
    order = rng.permutation(4)
    moved = [
        part + 5 * rng.normal(size=(*part.shape[:-1], 1))
        for part in (logits, transformed)
    ]
    moved = [part[..., order] for part in moved]
    other = ReCal(max_iter=10).fit(Views(*moved), np.argsort(order)[labels])
    np.testing.assert_allclose(other.temperatures_, cal.temperatures_, atol=1e-8)


def test_a_seed_is_a_seed_and_threads_change_nothing() -> None:
    logits, labels, transformed = make_data(300, 4, n_transforms=10)
    cal = ReCal(random_state=3, max_iter=20).fit(Views(logits, transformed), labels)
    with threads(1):
        twin = clone(cal).fit(Views(logits, transformed), labels)
    np.testing.assert_array_equal(twin.temperatures_, cal.temperatures_)
    other = ReCal(random_state=4, max_iter=20).fit(Views(logits, transformed), labels)
    assert other.transformations_.tolist() != cal.transformations_.tolist()
    confidence = cal.predict_confidence(Views(logits, transformed))
    alone = cal.predict_confidence(Views(logits[7:8], transformed[:, 7:8]))
    assert alone[0] == confidence[7]


def test_empty_groups_have_temperature_one() -> None:
    """A transformation that changes nothing: the label stays and no probability
    rises.
    """
    logits, labels = synthetic_logits(300, 4, seed=0)
    cal = ReCal(max_iter=3).fit(Views(logits, logits[None]), labels)
    np.testing.assert_array_equal(cal.temperatures_[:, :3], 1.0)
    assert cal.temperatures_[0, 3] < 0.7


def test_when_every_transformation_fails_the_recursion_ends() -> None:
    logits, labels, transformed = make_data(1000, 5)
    cal = ReCal(tol=0.0).fit(Views(logits, transformed), labels)
    assert cal.ending_ == "exhausted"
    assert cal.converged_
    np.testing.assert_array_equal(cal.temperatures_[-1], 1.0)


def test_the_limit_is_said_aloud() -> None:
    logits, labels, transformed = make_data(300, 4)
    with pytest.warns(ConvergenceWarning, match="after 1 steps.*Raise `max_iter`"):
        cal = ReCal(max_iter=1).fit(Views(logits, transformed), labels)
    assert not cal.converged_
    assert (cal.ending_, cal.n_iter_) == ("limit", 1)


def test_transformed_logits_are_asked_for() -> None:
    logits, labels, transformed = make_data(50, 4)
    with pytest.raises(
        TypeError, match=r"must be a `hokical_paper.*\.Views`.*got logits"
    ):
        ReCal().fit(logits, labels)
    cal = ReCal(max_iter=2).fit(Views(logits, transformed), labels)
    with pytest.raises(
        TypeError, match=r"must be a `hokical_paper.*\.Views`.*got logits"
    ):
        cal.predict_confidence(logits)
    with pytest.raises(ValueError, match=r"the 4 transformations of the fit.*got 3"):
        cal.predict_proba(Views(logits, transformed[:3]))
    for wrong in (
        transformed[0],
        transformed[:, :9],
        transformed[:, :, :3],
        transformed[:0],
    ):
        with pytest.raises(ValueError, match="must have shape"):
            ReCal().fit(Views(logits, wrong), labels)
    transformed[2, 7, 1] = np.nan
    with pytest.raises(
        ValueError, match=r"`transformed\[2\]` must not hold NaN.*row 7, column 1"
    ):
        ReCal().fit(Views(logits, transformed), labels)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_iter", 0), ("n_bins", 1.5), ("tol", -1.0), ("stop_when_worse", "no")],
)
def test_parameters_are_checked(name: str, value: object) -> None:
    logits, labels, transformed = make_data(50, 4)
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        ReCal(**{name: value}).fit(Views(logits, transformed), labels)


def test_it_comes_back_from_its_file(tmp_path: Path) -> None:
    logits, labels, transformed = make_data(300, 4)
    cal = ReCal(max_iter=10).fit(Views(logits, transformed), labels)
    cal.save(tmp_path / "cal.json")
    loaded, views = load(tmp_path / "cal.json"), Views(logits, transformed)
    for twin in (loaded, loaded):
        np.testing.assert_array_equal(
            twin.predict_proba(views), cal.predict_proba(views)
        )
        np.testing.assert_array_equal(twin.ece_, cal.ece_)
    assert loaded.get_params() == cal.get_params()
