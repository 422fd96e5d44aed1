"""The bounds: their values, their order, and how often they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hokical import calibration_bound


def test_values_of_the_derivations() -> None:
    assert calibration_bound(0.0, 10_000) == pytest.approx(0.0632, abs=5e-5)
    assert calibration_bound(0.0, 10_000, method="union") == pytest.approx(
        0.2861, abs=5e-5
    )
    assert calibration_bound(0.0, 10_000, method="paper") == pytest.approx(
        0.4441, abs=5e-5
    )
    tight = calibration_bound(0.0, 10_000, method="bousquet", brier=0.05)
    assert (
        tight
        < calibration_bound(0.0, 10_000, brier=0.05)
        < calibration_bound(0.0, 10_000)
    )


def test_the_published_bound_follows_from_the_union_bound_up_to_116_bins() -> None:
    """The excess over the ECE, at a size where neither is cut to 1; N cancels."""
    n = 10**9
    for delta in [*np.logspace(-9, -1, 33), 0.3, 0.5, 0.9, 1.0 - 1e-9]:
        for n_bins in range(1, 117):
            union = calibration_bound(0.0, n, n_bins, delta, method="union")
            assert (
                union < calibration_bound(0.0, n, n_bins, delta, method="paper") < 1.0
            )
    beyond = [
        calibration_bound(0.0, n, 117, 1.0 - 1e-9, method=m) for m in ("union", "paper")
    ]
    assert beyond[0] > beyond[1]


@given(
    st.floats(0.0, 1.0),
    st.integers(1, 10**7),
    st.integers(1, 200),
    st.floats(1e-6, 0.5),
    st.sampled_from(["mcdiarmid", "union", "paper"]),
)
def test_bounds_are_bounds_and_shrink_with_data(
    ece: float, n: int, n_bins: int, delta: float, method: str
) -> None:
    bound = calibration_bound(ece, n, n_bins, delta, method=method)
    assert ece <= bound <= 1.0
    assert calibration_bound(ece, 4 * n, n_bins, delta, method=method) <= bound


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ece": 1.2, "n": 10}, r"`ece` must lie in \[0, 1\]; got 1.2"),
        ({"ece": 0.1, "n": 0}, "`n` must be an integer of at least 1; got 0"),
        ({"ece": 0.1, "n": "a"}, "`n` must be an integer of at least 1; got 'a'"),
        (
            {"ece": 0.1, "n": float("inf")},
            "`n` must be an integer of at least 1; got inf",
        ),
        (
            {"ece": 0.1, "n": 10, "delta": "a"},
            "`delta` must lie strictly between 0 and 1",
        ),
        (
            {"ece": 0.1, "n": 10, "n_bins": 0},
            "`n_bins` must be an integer of at least 1",
        ),
        (
            {"ece": 0.1, "n": 10, "delta": 1.0},
            "`delta` must lie strictly between 0 and 1",
        ),
        ({"ece": 0.1, "n": 10, "method": "hope"}, "`method` must be one of"),
        ({"ece": 0.1, "n": 10, "method": "bousquet"}, "needs `brier`"),
        (
            {"ece": 0.1, "n": 10, "method": "paper", "brier": 0.1},
            "`brier` cannot be used",
        ),
        ({"ece": 0.1, "n": 10, "brier": -0.1}, r"`brier` must lie in \[0, 1\]"),
    ],
)
def test_bad_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibration_bound(**arguments)


def sums_by_bin(confidence: np.ndarray, values: np.ndarray, n_bins: int) -> np.ndarray:
    """Sums over bins of equal width, closed on the right."""
    place = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    return np.bincount(place, values, n_bins)


class World:
    """Confidences uniform on a grid of atoms, each with a known true accuracy: the
    CE is known.
    """

    def __init__(self, n_bins: int, tilt: float) -> None:
        self.n_bins = n_bins
        self.confidence = (np.arange(40) + 0.5) / 40
        self.accuracy = np.clip(self.confidence * (1.0 - tilt), 0.0, 1.0)
        gap = sums_by_bin(self.confidence, self.accuracy - self.confidence, n_bins)
        self.true_error = np.abs(gap).sum() / 40

    def measure(self, n: int, rng: np.random.Generator) -> tuple[float, float]:
        """ECE and Brier score of one simulated test set."""
        atom = rng.integers(40, size=n)
        gap = (rng.random(n) < self.accuracy[atom]) - self.confidence[atom]
        sums = sums_by_bin(self.confidence[atom], gap, self.n_bins)
        return float(np.abs(sums).sum() / n), float((gap**2).mean())


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "method", ["mcdiarmid", "mcdiarmid+brier", "bousquet", "union", "paper"]
)
@pytest.mark.parametrize("tilt", [0.0, 0.3])
def test_coverage_by_simulation(method: str, tilt: float) -> None:
    """2000 test sets: a valid bound may fail in at most delta of them. The published
    one is shown beside the others; it holds because it is wide, not because it was
    proven.
    """
    n, n_bins = (4000, 5) if method in ("union", "paper") else (300, 15)
    world, rng = World(n_bins, tilt), np.random.default_rng(0)
    delta, held = 0.1, 0
    name = method.removesuffix("+brier")
    uses_brier = method in ("mcdiarmid+brier", "bousquet")
    for _ in range(2000):
        ece, brier = world.measure(n, rng)
        extra = {"brier": brier} if uses_brier else {}
        bound = calibration_bound(ece, n, n_bins, delta, method=name, **extra)
        assert bound < 1.0  # or it could not fail
        held += world.true_error <= bound
    assert held / 2000 >= 1.0 - delta


def test_the_coverage_simulation_can_fail() -> None:
    """The same simulation catches a bound that is no bound: the measured ECE itself."""
    world, rng = World(15, 0.3), np.random.default_rng(0)
    held = sum(world.true_error <= world.measure(300, rng)[0] for _ in range(500))
    assert held / 500 < 0.9
