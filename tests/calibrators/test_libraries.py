"""Every method answers every array library in kind, equal to NumPy: one walk over
both lists.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from hokical import Gaussian, Gumbel, Uniform, from_probabilities
from hokical.calibrators import Calibrator, make, method_names
from hokical.rules.base import FlooredRule
from tests.conftest import quiet_fit, synthetic_logits
from tests.libraries import DEVICES, NAMES, get_library

#: Every method as it comes, and Hoki in each of its forms.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in method_names(2)},
    "auto": ("auto", {}),
    "hoki gaussian": ("hoki", {"noise": Gaussian(2.0)}),
    "hoki uniform": ("hoki", {"noise": Uniform(-4.0, 4.0)}),
    "hoki gumbel": ("hoki", {"noise": Gumbel(1.5)}),
    "hoki sampled": ("hoki", {"noise": Gaussian(2.0), "draws": 50}),
    "temps floored": ("temps", {}),
}
ANSWERS = ("predict", "predict_confidence", "predict_proba")


@cache
def fitted(case: str, n_classes: int) -> Calibrator:
    name, options = CASES[case]
    calibrator = make(name, **options)
    n_classes = 2 if calibrator.method.binary_only else n_classes
    logits, labels = synthetic_logits(400, n_classes, seed=3)
    if case == "temps floored":
        votes = np.random.default_rng(0).multinomial(5, softmax(logits, axis=1))
        logits = from_probabilities(votes / 5)
    quiet_fit(calibrator, logits, labels)
    assert isinstance(calibrator.rule_, FlooredRule) == (case == "temps floored")
    return calibrator


def hard_rows(n_classes: int) -> np.ndarray:
    """Usual rows, then ties, masks, one class alone, large and tiny differences."""
    logits, _ = synthetic_logits(12, n_classes, seed=8)
    logits[0] = 0.0
    logits[1, :2] = logits[1].max()
    logits[2, 1] = -np.inf
    logits[3, 1:] = -np.inf
    logits[4] *= 100.0
    logits[5] *= 1e-3
    return logits


@pytest.mark.sample(24)
@pytest.mark.parametrize("n_classes", [3, 20])
@pytest.mark.parametrize("library", [*NAMES, *DEVICES])
@pytest.mark.parametrize("case", list(CASES))
def test_every_method_answers_every_library_in_kind(
    case: str, library: str, n_classes: int
) -> None:
    calibrator, kind = fitted(case, n_classes), get_library(library)
    logits = hard_rows(calibrator.n_classes_)
    uniform = (
        "uniform" in case
        or getattr(getattr(calibrator, "noise_", None), "low", None) is not None
    )
    for answer in ANSWERS:
        with kind.scope():
            found = getattr(calibrator, answer)(kind.make(logits))
            assert kind.owns(found)
            expected = getattr(calibrator, answer)(logits)
            got = kind.read(found)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(
            got, expected, rtol=0.0, atol=1e-6 if uniform else 1e-12
        )


@pytest.mark.parametrize("library", [name for name in NAMES if name != "numpy"])
def test_single_precision_comes_back_in_single_precision(library: str) -> None:
    kind = get_library(library)
    logits = hard_rows(3).astype(np.float32)
    with kind.scope():
        found = fitted("temps", 3).predict_confidence(kind.make(logits))
        assert kind.read(found).dtype == np.float32


def test_jax_proves_in_single_precision_what_numpy_does() -> None:
    """Without JAX's own float64; its warnings about that would be errors here."""
    jax = pytest.importorskip("jax")
    logits, labels = synthetic_logits(600, 3, seed=5)
    logits, group = logits.astype(np.float32), np.arange(600) % 2
    given = jax.numpy.asarray(logits)
    mine, other = (
        make("temps").fit(*synthetic_logits(400, 3, seed=3)) for _ in range(2)
    )
    mine.certify(given, labels, groups=group)
    other.certify(logits, labels, groups=group)
    for by in ("all", "group"):
        found, known = (
            cal.predict_or_abstain(rows, risk=0.3, by=by, groups=group)
            for cal, rows in ((mine, given), (other, logits))
        )
        assert found.guarantee == known.guarantee
        np.testing.assert_array_equal(np.asarray(found.labels_or()), known.labels_or())
    for label in (None, 1):
        ends = mine.predict_interval(given, label=label)
        assert isinstance(ends, jax.Array)
        np.testing.assert_allclose(
            ends, other.predict_interval(logits, label=label), atol=1e-6
        )
    assert mine.score(given, labels) == pytest.approx(other.score(logits, labels))
    members = mine.predict_set(given, coverage=0.9, by="group", groups=group).members
    expected = other.predict_set(logits, coverage=0.9, by="group", groups=group).members
    np.testing.assert_array_equal(np.asarray(members), expected)
