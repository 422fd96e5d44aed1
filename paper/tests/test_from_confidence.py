"""Hoki from the softmax confidence: the printed algorithm, its steps, files of
earlier versions.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from tests import references
from tests.calibrators.test_golden import rows
from tests.conftest import quiet_fit, read_pair, synthetic_logits
from tests.libraries import NAMES as LIBRARIES
from tests.libraries import get_library

from hokical import (
    CalibratorFileError,
    Gaussian,
    Gumbel,
    Hoki,
    TopK,
    label_stability,
    load,
)
from hokical._core import storage
from hokical.calibrators import catalog
from hokical.demo import demo_logits
from hokical.rules import as_logits
from hokical.rules.hoki import Curve
from hokical_paper.from_confidence import HokiFromConfidence, Steps

Data = tuple[np.ndarray, np.ndarray]
GOLDEN = Path(__file__).parent / "golden"
LEVELS = 1000

#: Cycles are legitimate here; the tests that are about them ask for the warning.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def stretched() -> Data:
    """Logits of an overconfident classifier, and labels."""
    return synthetic_logits(1500, 6, seed=5)


@pytest.mark.parametrize("draws", [None, 300])
@pytest.mark.parametrize("n_bins", [1, 15])
def test_it_is_the_printed_algorithm(
    draws: int | None, n_bins: int, stretched: Data
) -> None:
    logits, labels = stretched
    options = {
        "draws": draws,
        "n_bins": n_bins,
        "random_state": 1,
        "unseen": "as_printed",
    }
    cal = HokiFromConfidence(noise=Gaussian(3.0), **options).fit(logits, labels)
    correct, start = (
        logits.argmax(axis=1) == labels,
        label_stability(logits, Gumbel(1.0)),
    )
    p, alphas, betas = references.hoki_confidence(
        cal.stability(logits), correct, start, n_bins=n_bins, max_iter=cal.n_iter_
    )
    np.testing.assert_allclose(cal.predict_confidence(logits), p, atol=1e-12)
    np.testing.assert_allclose(cal.alpha_, alphas, atol=1e-12)
    np.testing.assert_allclose(cal.beta_, betas, atol=1e-12)


@pytest.mark.sample(1)
@pytest.mark.parametrize("max_iter", [4, 5, 199, 200])
def test_a_cycle_ends_where_the_printed_algorithm_ends(max_iter: int) -> None:
    """An example that alternates between two bins: the last of K steps counts, odd
    or even.
    """
    (logits, labels), (new, _) = demo_logits()
    logits, labels, new = logits[:2000], labels[:2000], new[:500]
    hoki = HokiFromConfidence(
        noise=Gaussian(2.0),
        draws=300,
        random_state=3,
        unseen="as_printed",
        max_iter=max_iter,
    )
    with pytest.warns(ConvergenceWarning, match=r"did not converge \((cycle|limit)\)"):
        hoki.fit(logits, labels)
    seen, unseen, steps = references.printed_hoki(
        logits,
        labels,
        new,
        hoki.draws_.values,
        n_bins=15,
        max_iter=max_iter,
        from_confidence=True,
    )
    assert (hoki.n_iter_, hoki.converged_) == (steps, False) == (max_iter, False)
    assert hoki.ending_ == ("limit" if max_iter == 4 else "cycle")
    np.testing.assert_allclose(
        hoki.predict_confidence(logits), seen, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(hoki.predict_confidence(new), unseen, rtol=0, atol=1e-12)


def test_a_cycle_through_a_step_that_fits_needs_no_warning() -> None:
    (logits, labels), _ = demo_logits()
    hoki = HokiFromConfidence(noise=Gaussian(2.0), draws=300, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hoki.fit(logits[:2000], labels[:2000])
    assert (hoki.ending_, hoki.converged_, hoki.n_iter_) == ("cycle", False, 5)
    assert hoki.validation_ece_ < 1e-12  # all bins fit, but it is no fixed point


@given(st.integers(0, 2**32 - 1))
def test_steps_extrapolate_as_curves_do(seed: int) -> None:
    """For rows that start in one place and go through one bin, both say the same."""
    rng = np.random.default_rng(seed)
    alpha, beta = rng.random((2, 1, 1))
    least, most = np.sort(rng.integers(1, LEVELS + 1, size=2))
    chance = float(rng.uniform(0.01, 0.5))
    seen = np.unique([least, *rng.integers(least, most + 1, size=100), most])
    curve = Curve.from_steps(alpha, beta, LEVELS, 0.5).held_by(seen, LEVELS, chance)
    steps = Steps(alpha, beta, np.array([least, most]) / LEVELS, chance)
    stability = np.arange(LEVELS + 1) / LEVELS
    rows = as_logits(np.zeros((1, 2)))
    found = steps.replay(stability, np.full(LEVELS + 1, 0.5), rows)
    np.testing.assert_allclose(
        found, curve.at(np.arange(LEVELS + 1), LEVELS), atol=1e-9
    )


@given(seed=st.integers(0, 10**6), levels=st.sampled_from([2, 50, 3000]))
def test_a_curve_is_the_replay_of_its_steps(seed: int, levels: int) -> None:
    """`Curve.from_steps` gives what the recursion gives for rows that start in one
    place.
    """
    rng = np.random.default_rng(seed)
    alpha, beta = rng.random((2, 4, 7))
    empty = rng.random(alpha.shape) < 0.3
    alpha, beta = (np.where(empty, np.nan, part) for part in (alpha, beta))
    steps = Steps(alpha, beta)
    start = float(rng.random())
    table = Curve.from_steps(alpha, beta, levels, start).at(
        np.arange(levels + 1), levels
    )
    stability = np.arange(levels + 1) / levels
    logits = as_logits(np.eye(2)[np.zeros(levels + 1, int)])
    replayed = steps.replay(stability, np.full(levels + 1, start), logits)
    np.testing.assert_allclose(table, replayed, atol=1e-12)


def test_two_halves_are_one_whole(stretched: Data) -> None:
    logits, labels = stretched
    whole, left, right, streamed = (
        HokiFromConfidence(noise=Gaussian(2.5)) for _ in range(4)
    )
    whole.fit(logits, labels)
    merged = left.fit(logits[:700], labels[:700]).merge(
        right.fit(logits[700:], labels[700:])
    )
    for part in np.array_split(np.arange(1500), 4):
        streamed.partial_fit(logits[part], labels[part])
    for other in (merged, streamed):
        np.testing.assert_array_equal(other.alpha_, whole.alpha_)
        np.testing.assert_array_equal(
            other.predict_confidence(logits), whole.predict_confidence(logits)
        )
    with pytest.raises(ValueError, match="must have equal levels"):
        left.merge(Hoki(noise=Gaussian(2.5)).fit(logits[700:], labels[700:]))


def test_a_calibrator_from_a_file_goes_on(stretched: Data, tmp_path: Path) -> None:
    logits, labels = stretched
    cal = HokiFromConfidence(noise=Gaussian(2.0), draws=40).fit(
        logits[:700], labels[:700]
    )
    cal.save(tmp_path / "cal.json")
    loaded, again = load(tmp_path / "cal.json"), pickle.loads(pickle.dumps(cal))
    expected = cal.predict_proba(logits)
    cal.partial_fit(logits[700:], labels[700:])
    for other in (loaded, again):
        np.testing.assert_array_equal(other.predict_proba(logits), expected)
        other.partial_fit(logits[700:], labels[700:])
        np.testing.assert_array_equal(other.alpha_, cal.alpha_)


@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_of_every_library(library: str, stretched: Data) -> None:
    arrays = get_library(library)
    cal = HokiFromConfidence(noise=Gaussian(2.0)).fit(*stretched)
    few = stretched[0][:20]
    with arrays.scope():
        found = arrays.read(cal.predict_confidence(arrays.make(few)))
    np.testing.assert_allclose(found, cal.predict_confidence(few), atol=1e-9)


def test_gradient_of_hoki_from_confidence_is_that_of_its_steps() -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    data = synthetic_logits(1000, 5, seed=1)
    module = as_module(quiet_fit(HokiFromConfidence(noise=Gaussian(2.0)), *data))
    logits = torch.tensor(synthetic_logits(300, 5, seed=9)[0]).requires_grad_()
    (slope,) = torch.autograd.grad(module(logits).confidence.sum(), logits)
    assert torch.isfinite(slope).all()
    reach = 0.02
    with torch.no_grad():
        step = reach * torch.eye(5, dtype=torch.float64)[0]
        up, down = module(logits + step).confidence, module(logits - step).confidence
    difference = (up - down) / (2.0 * reach)
    inside = difference.abs() < 0.05
    assert inside.sum() > 150
    np.testing.assert_allclose(
        slope[inside, 0].numpy(), difference[inside].numpy(), atol=1e-3
    )


def test_of_the_best_classes(stretched: Data) -> None:
    seen = TopK.from_logits(stretched[0], 3)
    cal = HokiFromConfidence(noise=Gaussian(2.0)).fit(seen, stretched[1])
    assert cal.predict_confidence(seen).shape == (1500,)


@pytest.mark.slow
def test_flat_rows_of_a_real_network_are_guesses() -> None:
    pair = read_pair("cifar10_resnet110")
    cal = HokiFromConfidence(noise=Gaussian(2.0)).fit(
        pair["val_logits"], pair["val_labels"]
    )
    assert cal.predict_confidence(np.zeros((1, 10)))[0] < 0.2


def test_files_of_0_4_are_read(tmp_path: Path) -> None:
    loaded = load(GOLDEN / "hoki_from_confidence.json")
    loaded.save(tmp_path / "again.json")
    for cal in (loaded, load(tmp_path / "again.json")):
        assert type(cal) is HokiFromConfidence
        with np.load(GOLDEN / "hoki_from_confidence.npz") as stored:
            np.testing.assert_array_equal(cal.predict(rows()), stored["labels"])
            for name in ("confidence", "proba"):
                found = getattr(cal, f"predict_{name}")(rows())
                np.testing.assert_allclose(found, stored[name], rtol=0.0, atol=1e-8)


def test_without_hokical_paper_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(GOLDEN / "hoki_from_confidence.json").save(tmp_path / "again.json")
    monkeypatch.setattr(catalog, "_find_entry_points", lambda: None)
    monkeypatch.setattr(catalog, "_registered", {})
    for name in ("rule:hoki_from_p0", "hoki-steps"):
        monkeypatch.delitem(storage._records, name)
    said = r"the method 'hoki_from_p0'.*`pip install \./paper` in a clone, or fit again"
    for file in (GOLDEN / "hoki_from_confidence.json", tmp_path / "again.json"):
        with pytest.raises(CalibratorFileError, match=said):
            load(file)
