"""log gamma and log(1 - gamma) at several widths: precise at both ends, by slow
obvious twins.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr, logsumexp
from tests.conftest import random_rows

from hokical import Gaussian, TopK, label_stability, threads
from hokical.rules import Logits, as_logits
from hokical_paper.profile import stabilities as profile


def slow_log_chances(margins: np.ndarray) -> tuple[float, float]:
    """Both integrals on a fine grid, from the margins of all classes but the label."""
    step = 0.01
    u = np.arange(-45.0, 9.0, step)
    log_survival = log_ndtr(u + margins[:, None]).sum(axis=0)
    log_weight = np.log(step) - 0.5 * u * u - 0.5 * np.log(2.0 * np.pi)
    with np.errstate(divide="ignore"):
        log_loss = np.log(-np.expm1(log_survival))
    return float(logsumexp(log_weight + log_survival)), float(
        logsumexp(log_weight + log_loss)
    )


def chances(logits: Logits, scale: float) -> tuple[np.ndarray, np.ndarray]:
    _, both = profile.log_odds_and_profile(logits, 1.0, [scale])
    return both[:, 0], both[:, 1]


def ladder(n_classes: int, n: int = 60) -> Logits:
    """Rows whose label leads by 0 to 20."""
    rng = np.random.default_rng(n_classes)
    values = rng.normal(size=(n, n_classes)) - 1.0
    values[:, 1] = values.max(axis=1) + np.linspace(0.0, 20.0, n)
    return as_logits(values)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("n_classes", "near", "far"), [(2, 4e-4, 1e-9), (10, 4e-3, 0.02)]
)
@pytest.mark.parametrize("scale", [0.7, 1.0, 2.5])
def test_against_the_integrals(
    n_classes: int, near: float, far: float, scale: float
) -> None:
    logits = ladder(n_classes)
    kept, lost = chances(logits, scale)
    margins = np.delete(logits.margins, 1, axis=1) / scale
    want_kept, want_lost = np.transpose([slow_log_chances(row) for row in margins])
    np.testing.assert_allclose(kept, want_kept, atol=3e-7)
    gap = margins.min(axis=1)
    close = gap <= profile.FAR_FROM
    np.testing.assert_allclose(lost[close], want_lost[close], atol=near)
    np.testing.assert_allclose(lost[~close], want_lost[~close], atol=far)


@pytest.mark.sample(0)
@pytest.mark.parametrize("second", [0.0, 0.7])
@pytest.mark.parametrize(("n_classes", "most"), [(10, 0.01), (1000, 0.1)])
def test_many_rivals_just_behind_the_first(
    n_classes: int, most: float, second: float
) -> None:
    gaps = np.array([4.5, 6.0, 7.4, 7.6, 8.5, 10.0, 13.9, 14.1, 20.0])
    values = np.repeat(-gaps[:, None] - second, n_classes, axis=1)
    values[:, 0], values[:, 1] = 0.0, -gaps
    _, lost = chances(as_logits(values), 1.0)
    want = [slow_log_chances(-row[1:])[1] for row in values]
    np.testing.assert_allclose(lost, want, atol=most)
    equal = np.abs(lost - want).max() if second == 0.0 else 0.0
    assert equal < 2e-3  # equal rivals are what the correction is made for
    assert (np.diff(lost) < 0.0).all()


def test_almost_certain_labels_are_told_apart() -> None:
    """gamma is 1 to the last digit, and 1 - gamma is still right: one rival has a
    closed form.
    """
    gaps = np.linspace(10.0, 50.0, 21)
    logits = as_logits(np.column_stack([np.zeros(21), -gaps]))
    kept, lost = chances(logits, 1.0)
    np.testing.assert_allclose(lost, log_ndtr(-gaps / np.sqrt(2.0)), rtol=1e-12)
    assert lost[0] < np.log(1e-12)
    assert (np.diff(lost) < 0.0).all()
    assert (kept <= 0.0).all()
    assert (kept >= -1e-12).all()


@given(
    st.integers(2, 30),
    st.floats(0.01, 30.0),
    st.integers(0, 10**6),
    st.floats(0.1, 10.0),
)
def test_chances_sum_to_one_and_are_the_stability(
    n_classes: int, spread: float, seed: int, scale: float
) -> None:
    logits = random_rows(n_classes, spread, seed)
    kept, lost = chances(logits, scale)
    np.testing.assert_allclose(np.exp(kept) + np.exp(lost), 1.0, atol=1e-6)
    gamma = label_stability(logits, Gaussian(scale))
    np.testing.assert_allclose(np.exp(kept), gamma, atol=1e-6)


@given(
    st.integers(2, 30),
    st.floats(0.01, 300.0),
    st.integers(0, 10**6),
    st.floats(0.1, 10.0),
)
def test_log_odds_of_the_softmax(
    n_classes: int, spread: float, seed: int, temperature: float
) -> None:
    logits = random_rows(n_classes, spread, seed)
    found, _ = profile.log_odds_and_profile(logits, temperature, [1.0])
    margins = logits.margins / temperature
    margins[np.arange(logits.n_rows), logits.labels] = np.inf
    np.testing.assert_allclose(
        found, -logsumexp(-margins, axis=1), rtol=1e-12, atol=1e-12
    )


def test_masked_classes() -> None:
    low = -np.inf
    logits = as_logits(
        [[0.0, low, low], [1.0, 0.0, low], [0.0, 0.0, low], [1e308, -1e308, low]]
    )
    odds, chance = profile.log_odds_and_profile(logits, 1.0, [1.0])
    np.testing.assert_allclose(odds[:3], [np.inf, 1.0, 0.0], atol=1e-15)
    np.testing.assert_array_equal(chance[[0, 3]], [[0.0, low]] * 2)
    np.testing.assert_allclose(chance[2], np.log(0.5), atol=1e-7)


def test_batches_and_threads_change_nothing() -> None:
    logits = ladder(12, n=500)
    whole = profile.log_odds_and_profile(logits, 1.3, [1.0, 4.0])
    with threads(1):
        alone = profile.log_odds_and_profile(logits, 1.3, [1.0, 4.0])
    parts = [
        profile.log_odds_and_profile(
            logits.take(np.arange(i, min(i + 7, 500))), 1.3, [1.0, 4.0]
        )
        for i in range(0, 500, 7)
    ]
    for k in range(2):
        np.testing.assert_array_equal(alone[k], whole[k])
        joined = np.concatenate([part[k] for part in parts])
        np.testing.assert_allclose(joined, whole[k], rtol=1e-8)


def test_hidden_classes_are_the_tail() -> None:
    """Twin: the same logits with a column for every hidden class."""
    logits = ladder(30)
    cut = TopK.from_logits(logits.values, 5)
    found = profile.log_odds_and_profile(cut, 0.8, [0.8, 3.0])
    want = profile.log_odds_and_profile(cut.fill(), 0.8, [0.8, 3.0])
    np.testing.assert_allclose(found[0], want[0], rtol=1e-9)
    np.testing.assert_allclose(found[1], want[1], atol=2e-3)
    one = TopK.from_logits(logits.values, 1)
    odds, _ = profile.log_odds_and_profile(one, 1.0, [1.0])
    np.testing.assert_allclose(
        odds, profile.log_odds_and_profile(one.fill(), 1.0, [1.0])[0]
    )
