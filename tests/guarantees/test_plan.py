"""How many examples a guarantee needs."""

from __future__ import annotations

import numpy as np
import pytest

from hokical import make
from hokical.guarantees import plan


def test_more_examples_accept_more_and_never_more_than_the_best() -> None:
    found = plan(0.05, 0.8, examples=(100, 1000, 4000), n_simulations=10)
    assert list(found.coverage) == sorted(found.coverage)
    assert found.coverage[-1] <= 1.1 * found.best  # a lucky sample may go a little too low
    assert found.needed in (1000, 4000)
    assert "labelled examples are needed" in str(found)


def test_below_the_fewest_nothing_is_accepted() -> None:
    found = plan(0.05, 0.99, examples=(30,), n_simulations=5)
    assert found.fewest > 30
    assert found.coverage == (0.0,)
    assert found.nothing == (1.0,)
    assert str(found).startswith("More than 30")


def test_a_number_that_was_the_first_to_be_tried_is_a_bound() -> None:
    found = plan(0.3, 0.8, examples=(100, 200), n_simulations=5)
    assert found.needed == 100
    assert str(found).startswith("At most 100 labelled examples")


def test_a_classifier_without_a_sure_answer_is_told() -> None:
    found = plan(0.01, 0.6, auroc=0.55, examples=(100,), n_simulations=2)
    assert found.best == 0.0
    assert "No threshold" in str(found)


def test_the_simulation_is_what_happens() -> None:
    """A calibrated classifier of its own: what `certify` accepts is what was planned."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3)) * 4
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    cal = make("temps").fit(logits[:2000], labels[:2000])
    confidence = cal.predict_confidence(logits[2000:])
    planned = plan(0.05, confidence=confidence, examples=(600,), n_simulations=20).coverage[0]
    shares = []
    for seed in range(10):
        rows = 2000 + np.random.default_rng(seed).choice(2000, size=600, replace=False)
        cal.certify(logits[rows], labels[rows])
        shares.append(cal.predict_or_abstain(logits[2000:], risk=0.05).accepted.mean())
    assert planned == pytest.approx(np.mean(shares), abs=0.12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"risk": 0.0}, "`risk`"),
        ({"accuracy": 1.0}, "`accuracy`"),
        ({"auroc": 0.5}, "`auroc`"),
        ({"confidence": [[0.5]]}, r"`confidence` must be \(m,\)"),
        ({"n_simulations": 0}, "n_simulations"),
        ({"examples": [0]}, "examples"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**options)  # type: ignore[arg-type]
