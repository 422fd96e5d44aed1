"""How many examples a promise needs."""

from __future__ import annotations

import numpy as np
import pytest

from hokical import make
from hokical.guarantees import plan


def test_below_the_fewest_nothing_is_accepted() -> None:
    found = plan(risk=0.05, confidence=np.full(100, 0.999), examples=(30, 200))
    assert 30 < found.fewest < 200
    assert found.accepted[0] == 0.0
    assert found.accepted[1] > 0.9
    assert str(found).startswith(f"At least {found.fewest} labelled examples")


def test_a_classifier_without_a_sure_answer_accepts_nothing() -> None:
    found = plan(risk=0.01, confidence=np.full(50, 0.6), examples=(100, 10**6))
    assert found.best == 0.0
    assert found.accepted == (0.0, 0.0)


def test_the_plan_is_what_happens() -> None:
    """A calibrated classifier of its own: what `certify` accepts is what was planned."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3)) * 4
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    cal = make("temps").fit(logits[:2000], labels[:2000])
    confidence = cal.predict_confidence(logits[2000:])
    found = plan(risk=0.05, confidence=confidence, examples=(600,))
    assert found.best is not None
    assert found.accepted[0] <= found.best
    shares = []
    for seed in range(10):
        rows = 2000 + np.random.default_rng(seed).choice(2000, size=600, replace=False)
        cal.certify(logits[rows], labels[rows])
        shares.append(cal.predict_or_abstain(logits[2000:], risk=0.05).accepted.mean())
    assert found.accepted[0] == pytest.approx(np.mean(shares), abs=0.12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"risk": 0.0}, "`risk`"),
        ({"coverage": 1.0}, "`coverage`"),
        ({"risk": 0.1, "confidence": [[0.5]]}, r"`confidence` must be \(m,\)"),
        ({"risk": 0.1, "examples": [0]}, "examples"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**options)  # type: ignore[arg-type]


def test_one_promise_at_a_time() -> None:
    for options in ({}, {"risk": 0.1, "coverage": 0.9}):
        with pytest.raises(TypeError, match="either `coverage` or `risk`"):
            plan(**options)
