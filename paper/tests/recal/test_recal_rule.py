"""ReCal's rule: against its definition row by row, in every library, in files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from scipy.special import log_softmax, softmax
from tests.conftest import max_examples, quiet_fit, synthetic_logits
from tests.fitted import fingerprint
from tests.libraries import NAMES, answers, get_library
from tests.rules.making import assert_chances, class_counts, make_rows, seeds

import hokical
from hokical.calibrators import Calibrator, load, make, method_names
from hokical.rules import as_logits
from hokical.rules.base import Output, predict_blocks
from hokical_paper.recal import ReCal, ReCalRule, Views

N_TRANSFORMS = 3
ANSWERS: tuple[Output, ...] = ("labels", "confidence", "proba")
FOLDER = Path(__file__).parents[1] / "golden"


def make_rule(seed: int) -> ReCalRule:
    """One with random valid numbers."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(1, 6)
    temperatures = np.exp(rng.uniform(np.log(0.1), np.log(10.0), (steps, 4)))
    temperatures = np.where(rng.random((steps, 4)) < 0.4, 1.0, temperatures)
    return ReCalRule(rng.integers(N_TRANSFORMS, size=steps), temperatures, N_TRANSFORMS)


def make_views(seed: int, rows: np.ndarray) -> np.ndarray:
    """Transformed logits (N_TRANSFORMS, n, classes) that react in every way."""
    rng = np.random.default_rng(seed)
    shape = (N_TRANSFORMS, *rows.shape)
    moved = rows[None] * rng.choice([0.5, 1.0], shape[:2])[..., None]
    # Not added to -inf or to what is so large that nothing can be added.
    noise = np.where(np.abs(moved) < 1e6, rng.normal(size=shape), 0.0)
    return (moved + noise).astype(rows.dtype)


def ordinary_rows(seed: int, n_classes: int) -> np.ndarray:
    """float64 rows with ties and masked classes, and none so large that softmaxes
    need care.
    """
    rows = make_rows(seed, n_classes).astype(np.float64)
    rng = np.random.default_rng(seed)
    rows[4:8] = rng.normal(size=(4, n_classes)) * np.array(
        [[20.0], [5.0], [1.0], [0.1]]
    )
    return rows


def proba_by_hand(rule: ReCalRule, row: np.ndarray, views: np.ndarray) -> np.ndarray:
    """The steps as the method has them, on probabilities themselves."""
    current, others = log_softmax(row), [log_softmax(view) for view in views]
    label = row.argmax()
    for chosen, temperatures in zip(
        rule.transformations, rule.temperatures, strict=True
    ):
        kept = views[chosen].argmax() == label
        risen = np.exp(others[chosen][label]) > np.exp(current[label]) * (1 + 1e-9)
        temperature = temperatures[2 * kept + (not risen)]
        if temperature != 1.0:
            current = raise_and_multiply(current, row, temperature)
            others[chosen] = raise_and_multiply(
                others[chosen], views[chosen], temperature
            )
    return np.exp(current)


def raise_and_multiply(
    logs: np.ndarray, row: np.ndarray, temperature: float
) -> np.ndarray:
    """Probabilities raised to 1e-16, then log-probabilities multiplied; masked
    classes stay 0.
    """
    raised = np.where(row > -np.inf, np.maximum(logs, np.log(1e-16)), -np.inf)
    return log_softmax(temperature * raised)


@given(seed=seeds, n_classes=class_counts)
def test_probabilities_and_confidence(seed: int, n_classes: int) -> None:
    rule, rows = make_rule(seed), ordinary_rows(seed, n_classes)
    views = make_views(seed, rows)
    labels, confidence, proba = answers(rule, as_logits(Views(rows, views)))
    for i, row in enumerate(rows):
        expected = proba_by_hand(rule, row, views[:, i])
        np.testing.assert_allclose(proba[i], expected, atol=1e-10)
        np.testing.assert_allclose(confidence[i], expected[labels[i]], atol=1e-10)


@given(seed=seeds, n_classes=class_counts)
def test_answers_are_probabilities_of_rows_by_themselves(
    seed: int, n_classes: int
) -> None:
    rule, rows = make_rule(seed), make_rows(seed, n_classes, 70)
    logits = as_logits(Views(rows, make_views(seed, rows)))
    whole = labels, confidence, proba = answers(rule, logits)
    assert_chances(proba)
    assert_chances(confidence)
    assert (proba[rows == -np.inf] == 0.0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(labels, rows.argmax(axis=1))
    np.testing.assert_array_equal(proba.argmax(axis=1), labels)
    for i in (0, 3, 9, 69):
        for part in (logits.take(np.array([i])), logits.take(slice(i, i + 1))):
            for one, batch in zip(answers(rule, part), whole, strict=True):
                np.testing.assert_array_equal(one[0], batch[i])


@pytest.mark.parametrize("library", NAMES)
@given(seed=seeds)
@max_examples(4)
def test_every_library_answers_alike(library: str, seed: int) -> None:
    kind = get_library(library)
    rule, rows = make_rule(seed), make_rows(seed, 6)
    views = make_views(seed, rows)
    expected = answers(rule, as_logits(Views(rows, views)))
    with kind.scope(), np.errstate(all="ignore"):
        given = as_logits(Views(kind.make(rows), kind.make(views)))
        found = answers(rule, given)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("library", NAMES)
def test_fits_and_answers_are_those_of_numpy(library: str) -> None:
    kind = get_library(library)
    logits, labels = synthetic_logits(200, 4, seed=3)
    views = make_views(1, logits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = ReCal(max_iter=6).fit(Views(logits, views), labels)
        with kind.scope():
            given = Views(kind.make(logits), kind.make(views))
            found = ReCal(max_iter=6).fit(given, labels)
            confidence = found.predict_confidence(given)
            assert kind.owns(confidence)
            numbers = kind.read(confidence)
    np.testing.assert_allclose(found.temperatures_, expected.temperatures_, rtol=1e-9)
    wanted = expected.predict_confidence(Views(logits, views))
    np.testing.assert_allclose(numbers, wanted, atol=1e-9)


def test_gradients_hold_the_groups_fixed() -> None:
    torch = pytest.importorskip("torch")
    logits, labels = synthetic_logits(300, 5, seed=2)
    views = make_views(1, logits)
    cal = quiet_fit(ReCal(max_iter=6), Views(logits, views), labels)
    beside = torch.tensor(views[:, :6])
    rows = torch.tensor(logits[:6], requires_grad=True)
    confident = lambda z: cal.predict_confidence(Views(z, beside))  # noqa: E731
    assert torch.autograd.gradcheck(confident, (rows,), atol=1e-7)


def test_recal_says_how_many_transformations_it_needs() -> None:
    rule = ReCalRule(np.array([0]), np.full((1, 4), 2.0), 2)
    rows = np.eye(3)
    with pytest.raises(ValueError, match=r"2 transformations of the fit.*got 1"):
        predict_blocks(rule, "confidence", as_logits(Views(rows, rows[None])))
    with pytest.raises(ValueError, match="got none"):
        predict_blocks(rule, "confidence", as_logits(rows))


def test_recal_ignores_steps_that_were_undone() -> None:
    rows = make_rows(1, 4)
    views = Views(rows, make_views(1, rows))
    some = ReCalRule(np.array([0, 2]), np.array([[2.0, 3.0, 0.5, 0.7]] * 2), 3)
    more = ReCalRule(
        np.array([1, 0, 1, 2]), np.insert(some.temperatures, [0, 1], 1.0, axis=0), 3
    )
    for what in ("confidence", "proba"):
        expected = predict_blocks(some, what, as_logits(views))
        np.testing.assert_array_equal(
            predict_blocks(more, what, as_logits(views)), expected
        )


def test_recal_leaves_rows_of_temperature_1_alone() -> None:
    """Their smallest probabilities too, which are raised to 1e-16 before others are
    multiplied.
    """
    rule = ReCalRule(np.array([0]), np.array([[1.0, 1.0, 1.0, 2.0]]), 1)
    row = np.array([60.0, 59.0, 0.0])
    risen, fallen = [90.0, 0.0, 0.0], [30.0, 30.0, 0.0]
    proba = predict_blocks(
        rule, "proba", as_logits(Views([row, row], [[risen, fallen]]))
    )
    np.testing.assert_allclose(proba[0], softmax(row), rtol=1e-12)
    raised = np.maximum(softmax(row), 1e-16) ** 2
    np.testing.assert_allclose(proba[1], raised / raised.sum(), rtol=1e-12)


@pytest.mark.parametrize(
    "numbers",
    [
        {"n_transforms": 0},
        {"n_transforms": 2**40},
        {"transformations": np.array([7]), "temperatures": np.ones((1, 4))},
        {"transformations": np.array([0]), "temperatures": np.zeros((1, 4))},
    ],
)
def test_numbers_that_no_fit_makes_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        make_rule(5).with_numbers(numbers, check=True)


def golden_rows() -> np.ndarray:
    logits, _ = synthetic_logits(8, 3, seed=21)
    logits[6, :2] = logits[6].max()
    logits[7, 1] = -np.inf
    return logits


def test_a_file_of_hokical_0_2_is_read() -> None:
    """Written when ReCal was part of hokical itself."""
    calibrator, rows = load(FOLDER / "recal.json"), golden_rows()
    data = Views(rows, np.stack([0.7 * rows, 0.9 * rows]))
    with np.load(FOLDER / "recal.npz") as stored:
        np.testing.assert_array_equal(calibrator.predict(data), stored["labels"])
        np.testing.assert_allclose(
            calibrator.predict_confidence(data),
            stored["confidence"],
            rtol=0.0,
            atol=1e-8,
        )
        np.testing.assert_allclose(
            calibrator.predict_proba(data), stored["proba"], rtol=0.0, atol=1e-8
        )
    assert fingerprint(calibrator) == fingerprint(calibrator)


def test_guarantees_and_support(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(600, 4, seed=2, signal=3.0)
    first, second = (Views(part, 0.8 * part[None]) for part in np.split(logits, 2))
    cal = ReCal().fit(first, labels[:300])
    cal.save(tmp_path / "cal.json")
    for fitted in (cal, load(tmp_path / "cal.json")):
        assert fitted.predict_or_abstain(first, risk=0.2).certified_on == "fit"
        assert fitted.predict_support(first).all()
        fitted.certify(second, labels[300:])
        assert fitted.predict_or_abstain(first, risk=0.2).certified_on == "held-out"
        low, high = fitted.predict_interval(first).T
        confidence = fitted.predict_confidence(first)
        assert ((low <= confidence) & (confidence <= high)).all()


def test_hokical_finds_it() -> None:
    assert type(make("recal")) is ReCal
    assert "recal" not in method_names(2)
    assert isinstance(make("recal"), Calibrator)
    method = make("recal").method
    assert (method.changes_labels, "arXiv" in method.reference) == (False, True)


def test_streams_have_no_transformed_inputs() -> None:
    with pytest.raises(
        TypeError, match=r"must be `hokical_paper\.recal\.Views\(logits"
    ):
        hokical.streams.fit(
            ReCal(), hokical.streams.open_source(*synthetic_logits(50, 3, seed=0))
        )
