"""What every calibrator in the registry must do, run on each of them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from hokical import Gaussian, load
from hokical.calibrators import make, method_names
from tests.conftest import synthetic_logits
from tests.fitted import fingerprint

#: Options that make results comparable to rounding: no search over penalties or noise,
#: whose outcome may jump when the data changes in the last bit.
OPTIONS: dict[str, dict[str, Any]] = {
    "hoki": {"noise": Gaussian(2.0)},
    "hoki_from_p0": {"noise": Gaussian(2.0)},
    "ms_odir": {"lambdas": [1e-2], "mus": [1e-2]},
    "dir_odir": {"lambdas": [1e-2], "mus": [1e-2]},
}
NAMES = method_names(2)
OF_PAPER = ("recal", "hoki_from_p0", "ms_odir", "dir_odir", "profile", "auto-profiled")
Data = tuple[np.ndarray, np.ndarray]
BINARY = ("platt", "beta", "venn_abers")
METHODS = ("predict", "predict_confidence", "predict_proba")


#: Degenerate data may have no finite optimum: the methods say so, and must still
#: answer.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Subject:
    """One method, with options that make its results comparable."""

    def __init__(self, name: str) -> None:
        self.calibrator = make(name, **OPTIONS.get(name, {}))

    def examples(self, n: int, n_classes: int, *, seed: int) -> Data:
        """Logits and labels, of two classes if the method takes no more."""
        return synthetic_logits(
            n, 2 if self.calibrator.method.binary_only else n_classes, seed=seed
        )

    def fit(
        self, logits: np.ndarray, labels: np.ndarray, weights: Any = None
    ) -> Subject:
        self.calibrator.fit(logits, labels, weights)
        return self

    def answer(self, method: str, logits: np.ndarray) -> np.ndarray:
        return getattr(self.calibrator, method)(logits)


@pytest.fixture(params=NAMES)
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject(request.param)


@pytest.fixture
def data(subject: Subject) -> Data:
    return subject.examples(600, 5, seed=11)


def check_answers(subject: Subject, logits: np.ndarray) -> None:
    """Shapes, ranges, sums, and agreement of the three answers with each other."""
    labels = subject.answer("predict", logits)
    confidence = subject.answer("predict_confidence", logits)
    proba = subject.answer("predict_proba", logits)
    n, c = logits.shape
    assert labels.shape == (n,)
    assert np.issubdtype(labels.dtype, np.integer)
    assert confidence.dtype == proba.dtype == np.float64
    assert proba.shape == (n, c)
    assert np.isfinite(proba).all()
    assert proba.min() >= 0.0
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_allclose(proba[np.arange(n), labels], confidence, atol=1e-12)
    if subject.calibrator.rule_.preserves_labels:
        np.testing.assert_array_equal(labels, logits.argmax(axis=1))
        # These give the label its due, however little.
        if subject.calibrator.name not in ("hoki", "hoki_from_p0", "profile"):
            np.testing.assert_array_equal(labels, proba.argmax(axis=1))


def test_the_registry_is_complete() -> None:
    expected = [
        "uncalibrated",
        "temps",
        "vecs",
        "structured",
        "adaptive",
        "ets",
        "irm",
        "irova_ts",
        "hoki",
        "platt",
        "beta",
        "venn_abers",
    ]
    assert expected == [name for name in NAMES if name not in OF_PAPER]
    for wrong in ("plat", ["temps"]):
        with pytest.raises(ValueError, match="`name` must be one of"):
            make(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'temps' has no parameter 'foo'; it has"):
        make("temps", foo=1)
    methods = [make(name).method for name in method_names()]
    assert [method.name for method in methods] == method_names()
    for method in methods:
        assert method.title
        assert method.reference
        assert method.cost
    assert {m.name for m in methods if m.changes_labels} - set(OF_PAPER) == {
        "vecs",
        "structured",
        "irova_ts",
        "platt",
        "beta",
        "venn_abers",
    }
    assert [m.name for m in methods if m.binary_only] == ["platt", "beta", "venn_abers"]
    assert set(method_names(2)) - set(method_names(3)) == set(BINARY)


def test_answers_fit_together(subject: Subject, data: Data) -> None:
    logits, labels = data
    check_answers(subject.fit(logits[:300], labels[:300]), logits[300:])


def test_it_helps(subject: Subject, data: Data) -> None:
    """Logits stretched threefold: every method must say less than the softmax, and
    less wrongly.
    """
    logits, labels = subject.examples(4000, 5, seed=5)
    subject.fit(logits[:2000], labels[:2000])
    confidence = subject.answer("predict_confidence", logits[2000:])
    right = subject.answer("predict", logits[2000:]) == labels[2000:]
    error = abs(confidence.mean() - right.mean())
    if subject.calibrator.name == "uncalibrated":
        assert error > 0.08
    else:
        assert error < 0.04


@pytest.mark.sample(3)
def test_clone_and_refit(subject: Subject, data: Data) -> None:
    logits, labels = data
    first = subject.fit(logits, labels).answer("predict_proba", logits)
    again = Subject(subject.calibrator.name)
    again.calibrator = clone(subject.calibrator)
    with pytest.raises(NotFittedError):
        again.answer("predict_confidence", logits)
    np.testing.assert_array_equal(
        again.fit(logits, labels).answer("predict_proba", logits), first
    )
    np.testing.assert_array_equal(
        again.fit(logits, labels).answer("predict_proba", logits), first
    )


def test_save_and_load(subject: Subject, data: Data, tmp_path: Path) -> None:
    logits, labels = data
    subject.fit(logits, labels).calibrator.save(tmp_path / "cal.json")
    loaded = load(tmp_path / "cal.json")
    assert type(loaded) is type(subject.calibrator)
    assert loaded.get_params() == subject.calibrator.get_params()
    assert repr(loaded) == repr(subject.calibrator)
    assert fingerprint(loaded) == fingerprint(subject.calibrator)
    for method in METHODS:
        np.testing.assert_array_equal(
            getattr(loaded, method)(logits), subject.answer(method, logits)
        )


def test_nothing_given_is_changed(subject: Subject, data: Data) -> None:
    logits, labels = (part.copy() for part in data)
    weights = np.linspace(0.5, 2.0, len(labels))
    for array in (logits, labels, weights):
        array.flags.writeable = False
    subject.fit(logits, labels, weights)
    for method in METHODS:
        subject.answer(method, logits)
    np.testing.assert_array_equal(logits, data[0])


def test_batches_change_nothing(subject: Subject, data: Data) -> None:
    logits, labels = data
    subject.fit(logits, labels)
    for method in METHODS:
        parts = [subject.answer(method, logits[i : i + 83]) for i in range(0, 600, 83)]
        np.testing.assert_allclose(
            np.concatenate(parts), subject.answer(method, logits), atol=1e-12
        )


def test_class_order_changes_nothing(subject: Subject, data: Data) -> None:
    logits, labels = data
    order = np.array([3, 0, 4, 1, 2] if logits.shape[1] == 5 else [1, 0])
    expected = subject.fit(logits, labels).answer("predict_proba", logits)
    turned = Subject(subject.calibrator.name).fit(
        logits[:, order], np.argsort(order)[labels]
    )
    np.testing.assert_allclose(
        turned.answer("predict_proba", logits[:, order]), expected[:, order], atol=2e-5
    )


def test_a_constant_per_row_changes_nothing(subject: Subject, data: Data) -> None:
    logits, labels = data
    shifted = logits + np.linspace(-30, 30, len(labels))[:, None]
    expected = subject.fit(logits, labels).answer("predict_proba", logits)
    moved = Subject(subject.calibrator.name).fit(shifted, labels)
    np.testing.assert_allclose(
        moved.answer("predict_proba", shifted), expected, atol=1e-6
    )


@pytest.mark.sample(14)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_precision(subject: Subject, data: Data, dtype: type) -> None:
    logits, labels = data[0].astype(dtype), data[1]
    check_answers(subject.fit(logits, labels), logits)
    wide = Subject(subject.calibrator.name).fit(logits.astype(np.float64), labels)
    np.testing.assert_allclose(
        subject.answer("predict_confidence", logits),
        wide.answer("predict_confidence", logits.astype(np.float64)),
        atol=1e-5,
    )


def test_probabilities_of_half_the_size(subject: Subject, data: Data) -> None:
    logits = subject.examples(500, 5, seed=4)[0]
    cal = subject.fit(*subject.examples(600, 5, seed=3)).calibrator
    wide, narrow = cal.predict_proba(logits), cal.predict_proba(logits, dtype="float32")
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, rtol=2e-7)
    np.testing.assert_array_equal(narrow.argmax(axis=1), wide.argmax(axis=1))
    with pytest.raises(ValueError, match="'float32' or 'float64'; got 'int8'"):
        cal.predict_proba(logits, dtype="int8")


def test_weights_are_repetitions(subject: Subject, data: Data) -> None:
    logits, labels = data[0][:300], data[1][:300]
    times = np.random.default_rng(0).integers(0, 4, size=300)
    weighted = subject.fit(logits, labels, times)
    repeated = Subject(subject.calibrator.name).fit(
        np.repeat(logits, times, axis=0), np.repeat(labels, times)
    )
    found, expected = (
        one.answer("predict_proba", data[0]) for one in (weighted, repeated)
    )
    if subject.calibrator.name in (
        "structured",
        "adaptive",
        "auto",
    ):  # whose weights are relative
        assert np.abs(found - expected).mean() < 0.02
    else:
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.sample(40)
@pytest.mark.parametrize(
    "case",
    [
        "missing class",
        "two classes",
        "n = C",
        "all right",
        "all wrong",
        "ties",
        "masked",
        "one row",
    ],
)
def test_awkward_data_is_answered(subject: Subject, case: str) -> None:
    logits, labels = subject.examples(120, 2 if case == "two classes" else 4, seed=3)
    last = logits.shape[1] - 1
    if case == "missing class":
        labels[labels == last] = 0
    elif case == "n = C":
        logits, labels = logits[: last + 1], np.arange(last + 1)
    elif case == "all right":
        labels = logits.argmax(axis=1)
    elif case == "all wrong":
        labels = logits.argmin(axis=1)
    elif case == "ties":
        logits = np.round(logits / 6.0)
    elif case == "masked":
        labels[labels == 1] = 0
        logits[:, 1] = -np.inf
        logits[::7, last] = np.where(labels[::7] == last, logits[::7, last], -np.inf)
        logits[1::7, 1] = -1.0  # or two classes would have nothing to learn from
    elif case == "one row":
        logits, labels = logits[:1], labels[:1]
    subject.fit(logits, labels)
    check_answers(subject, logits)
    if case == "masked":
        assert np.all(
            subject.answer("predict_proba", logits)[np.isneginf(logits)] == 0.0
        )


@pytest.mark.sample(14)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_near_ties_keep_their_label(subject: Subject, dtype: type) -> None:
    logits, labels = subject.examples(200, 4, seed=3)
    size = logits.shape[1]
    logits = np.round(logits).astype(dtype)
    logits[::3] = np.nextafter(
        np.full(size, 1, dtype), np.arange(size, dtype=dtype) % 3
    )
    subject.fit(logits, labels)
    check_answers(subject, logits)


def test_a_fit_without_a_finite_optimum_says_so(subject: Subject) -> None:
    """Every label right: no finite temperature is best. Methods that count need no
    optimum.
    """
    logits, _ = subject.examples(120, 4, seed=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        subject.fit(logits, logits.argmax(axis=1))
    said = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    if subject.calibrator.name in (
        "uncalibrated",
        "irm",
        "hoki",
        "hoki_from_p0",
        *BINARY,
    ):
        assert not said
    else:
        assert said
        assert not subject.calibrator.converged_
        assert Path(said[0].filename).name.startswith("test_conformance")


def test_an_impossible_truth_is_mentioned(subject: Subject, data: Data) -> None:
    logits, labels = data[0].copy(), data[1]
    logits[5, labels[5]] = -np.inf
    if subject.calibrator.name in ("uncalibrated", "hoki", "hoki_from_p0"):
        subject.fit(
            logits, labels
        )  # they look at whether the label was right, and at no more
    else:
        with pytest.warns(RuntimeWarning, match="1 of 600 examples"):
            subject.fit(logits, labels)
    check_answers(subject, logits)


def test_large_and_tiny_logits_stay_finite(subject: Subject) -> None:
    logits, labels = subject.examples(200, 4, seed=8)
    for factor in (1e-6, 1e4):
        check_answers(subject.fit(factor * logits, labels), factor * logits)


def test_wrong_width_is_named(subject: Subject, data: Data) -> None:
    logits, labels = data
    subject.fit(logits, labels)
    with pytest.raises(ValueError, match="one column per class"):
        subject.answer("predict", logits[:, [0, 1, 1]])


@pytest.mark.parametrize("name", ["temps", "hoki", "vecs"])
def test_a_fitted_calibrator_says_what_it_learned(name: str, tmp_path: Path) -> None:
    logits, labels = synthetic_logits(100, 3, seed=0)
    cal = make(name)
    assert repr(cal) == f"{type(cal).__name__}()"
    cal.fit(logits, labels).save(tmp_path / "cal.json")
    for text in (repr(cal), repr(load(tmp_path / "cal.json"))):
        assert "3 classes" in text
        assert {"temps": "temperature ", "hoki": "100 examples", "vecs": ""}[
            name
        ] in text
