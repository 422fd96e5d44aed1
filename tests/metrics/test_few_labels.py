"""Prediction-powered accuracy: coverage and width by simulation, and a regression by
hand.
"""

from __future__ import annotations

import numpy as np
import pytest

from hokical.metrics import prediction_powered_accuracy


def world(kind: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Confidences and labels (n,), and the true accuracy."""
    rng = np.random.default_rng(seed)
    score = rng.beta(1.0, 1.0, size=n)
    truth = {
        "strong": np.where(score < 0.5, 0.15, 0.95),
        "weak": 0.4 + 0.3 * score,
        "backwards": 0.9 - 0.6 * score,
        "useless": np.full(n, 0.7),
        "nearly all right": np.full(n, 0.97),
    }[kind]
    exact = {"strong": 0.55, "weak": 0.55, "backwards": 0.6, "useless": 0.7}
    return score, rng.random(n) < truth, exact.get(kind, 0.97)


@pytest.mark.sample(1)
@pytest.mark.parametrize("n", [100, 300])
@pytest.mark.parametrize(
    ("kind", "narrowest", "widest"),
    [
        ("strong", 0.4, 0.8),
        ("backwards", 0.8, 0.97),
        ("weak", 0.95, 1.005),
        ("useless", 0.98, 1.005),
        ("nearly all right", 0.99, 1.0),
    ],
)
def test_intervals_hold_and_are_never_wider(
    kind: str, narrowest: float, widest: float, n: int
) -> None:
    runs, hits, widths = 300, 0, []
    for seed in range(runs):
        score, right, truth = world(kind, 4000, seed)
        found = prediction_powered_accuracy(score[:n], right[:n], score[n:])
        _, low, high = found.labels_alone
        hits += found.low <= truth <= found.high
        widths.append((found.high - found.low) / (high - low))
    assert hits / runs >= 0.95 - 3.0 * (0.05 * 0.95 / runs) ** 0.5
    assert narrowest <= np.mean(widths) <= widest
    assert max(widths) <= 1.02


def test_each_label_is_predicted_by_the_others() -> None:
    score, right, _ = world("strong", 500, 0)
    own, rest = score[:60], score[60:]
    found = prediction_powered_accuracy(own, right[:60], rest)

    def columns(values: np.ndarray) -> np.ndarray:
        inside = np.clip(values, 0.01, 0.99)
        table = np.stack([values, np.log(inside / (1 - inside))], axis=1)
        return np.column_stack([np.ones(len(values)), (table - mean) / spread])

    mean, spread = np.zeros(2), np.ones(2)
    both = columns(score)[:, 1:]
    mean, spread = both.mean(axis=0), both.std(axis=0)
    gaps, means = [], []
    for k in range(60):  # ridge regression without label k
        others = np.arange(60) != k
        a, y = columns(own[others]), right[:60][others]
        weights = np.linalg.solve(a.T @ a + np.diag([0.0, 1.0, 1.0]), a.T @ y)
        gaps.append(right[k] - (columns(own[k : k + 1]) @ weights)[0])
        means.append((columns(rest) @ weights).mean())
    assert found.accuracy == pytest.approx(np.mean(gaps) + np.mean(means), abs=1e-9)
    assert found.effective > 60


def test_groups_events_and_signals() -> None:
    score, right, _ = world("strong", 6000, 1)
    site = np.where(np.arange(6000) % 3 == 0, "north", "south")
    found = prediction_powered_accuracy(
        score[:600],
        right[:600],
        score[600:],
        groups=site[:600],
        unlabelled_groups=site[600:],
    )
    assert {*found.by_group} == {"north", "south"}
    for name, part in found.by_group.items():
        assert part.n == (site[:600] == name).sum()
        assert part.low < right[site == name].mean() < part.high
        assert found.high - found.low < part.high - part.low
        assert part.effective > part.n
    rng = np.random.default_rng(0)
    both = np.stack([score, rng.random(6000)], axis=1)
    two = prediction_powered_accuracy(both[:600], right[:600], both[600:])
    assert two.accuracy == pytest.approx(found.accuracy, abs=0.01)
    assert "as precise as" in str(two)


def test_mistakes_are_named() -> None:
    score, right, _ = world("weak", 200, 0)
    with pytest.raises(
        ValueError, match=r"`confidence` must lie in \[0, 1\].*percentages"
    ):
        prediction_powered_accuracy(100 * score, right, score)
    with pytest.raises(ValueError, match="`unlabelled` must have the 1 signals"):
        prediction_powered_accuracy(score, right, np.stack([score, score], axis=1))
    with pytest.raises(ValueError, match="`unlabelled_groups` must be given too"):
        prediction_powered_accuracy(score, right, score, groups=np.zeros(200))
    with pytest.raises(ValueError, match="`correct`"):
        prediction_powered_accuracy(score, right[:5], score)
    with pytest.raises(
        ValueError, match=r"`unlabelled` must be numbers .* got shape \(0,\)"
    ):
        prediction_powered_accuracy(score, right, [])
    few = prediction_powered_accuracy(score[:20], np.ones(20, bool), score)
    assert (few.accuracy, few.low, few.high) == few.labels_alone
    assert "of no use" in str(few)
