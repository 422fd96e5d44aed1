"""Sets of ordered classes: runs of neighbours with the guarantee of all sets; the
ranked score.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import hokical
from hokical.calibrators import with_sets
from hokical.metrics import brier, ranked_probability_score


def grades(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    logits = (
        rng.normal(size=(n, 5)) - 0.5 * (np.arange(5) - 5 * rng.random((n, 1))) ** 2
    )
    return logits, np.argmax(logits + rng.gumbel(size=(n, 5)), axis=1)


def reference(proba: np.ndarray, least: float) -> np.ndarray:
    members = np.zeros(proba.shape, bool)
    for row, p in zip(members, proba, strict=True):
        best = int(p.argmax())
        row[best] = True
        for step in (-1, 1):
            k = best + step
            while 0 <= k < p.size and p[k] >= least:
                row[k], k = True, k + step
    return members


@pytest.fixture(scope="module")
def cal() -> Any:
    return hokical.make("temps").fit(*grades(500, 0)).certify(*grades(2000, 1))


def test_sets_are_runs_and_cover(cal: Any) -> None:
    logits, labels = grades(20_000, 2)
    found = cal.predict_set(logits, coverage=0.9, kind="ordered")
    least = float(found.thresholds[0])
    expected = reference(cal.predict_proba(logits), least * (1 - 2.0**-20))
    np.testing.assert_array_equal(found.members, expected)
    assert abs(found.members[np.arange(20_000), labels].mean() - 0.9) < 0.02
    plain = cal.predict_set(logits, coverage=0.9)
    assert (np.abs(np.diff(plain.members.astype(int), axis=1)).sum(axis=1) > 2).any()


def test_coverage_is_guaranteed_on_average() -> None:
    shares = []
    for seed in range(60):
        own = (
            hokical.make("uncalibrated")
            .fit(*grades(50, 0))
            .certify(*grades(59, 100 + seed))
        )
        logits, labels = grades(1000, 1000 + seed)
        members = own.predict_set(
            logits, coverage=0.8, kind="ordered", allow_empty=True
        ).members
        shares.append(members[np.arange(1000), labels].mean())
    assert abs(np.mean(shares) - 0.8) < 3 * np.std(shares) / np.sqrt(60) + 1 / 60


def test_other_libraries_agree(cal: Any) -> None:
    torch = pytest.importorskip("torch")
    from hokical.integrations.torch import as_module

    logits = grades(200, 3)[0]
    expected = cal.predict_set(logits, coverage=0.9, kind="ordered").members
    module = as_module(with_sets(cal, coverage=0.9, kind="ordered"))
    np.testing.assert_array_equal(
        module.members(torch.as_tensor(logits)).numpy(), expected
    )


def test_what_would_have_gaps_is_refused(cal: Any) -> None:
    logits = grades(3, 4)[0]
    with pytest.raises(ValueError, match="sets would have gaps"):
        cal.predict_set(logits, coverage=0.9, kind="ordered", by="class")
    fresh = hokical.make("temps").fit(*grades(500, 5))
    with pytest.raises(ValueError, match=r"Call `certify\(logits, labels\)` first"):
        fresh.predict_set(logits, coverage=0.9, kind="ordered")


def test_the_ranked_probability_score() -> None:
    logits, labels = grades(300, 6)
    proba = softmax(logits, axis=1)
    truth = np.eye(5)[labels]
    expected = ((proba.cumsum(axis=1) - truth.cumsum(axis=1)) ** 2).sum(axis=1)
    assert ranked_probability_score(proba, labels) == pytest.approx(expected.mean())
    weights = np.arange(300)
    weighted = ranked_probability_score(proba, labels, sample_weight=weights)
    assert weighted == pytest.approx(np.average(expected, weights=weights))
    two = softmax(logits[:, :2], axis=1)
    assert 2 * ranked_probability_score(two, labels % 2) == pytest.approx(
        brier(two, labels % 2)
    )
