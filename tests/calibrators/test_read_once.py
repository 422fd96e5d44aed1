"""Logits and groups are read once in every call, in the room that reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hokical
from hokical._core import schema
from hokical._core.groups import GroupCoding
from hokical.calibrators import Calibrator, fit_rows

N_CLASSES = 4
GROUPS = np.arange(2000) % 3


def draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of which every third is much less reliable."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(GROUPS.size, N_CLASSES))
    scale = np.where(GROUPS == 1, 0.2, 1.0)[:, None]
    noise = rng.gumbel(size=logits.shape)
    return logits, np.argmax(scale * logits + noise, axis=1)


def covered(proba: Any, labels: Any, threshold: float) -> Any:
    return proba[np.arange(len(labels)), labels] < threshold


CALLS: dict[str, Callable[[Calibrator, Any, Any, Any], object]] = {
    "predict": lambda cal, x, y, g: cal.predict(x, groups=g),
    "predict_proba": lambda cal, x, y, g: cal.predict_proba(x, groups=g),
    "predict_support": lambda cal, x, y, g: cal.predict_support(x, groups=g),
    "predict_set": lambda cal, x, y, g: cal.predict_set(x, groups=g),
    "predict_interval": lambda cal, x, y, g: cal.predict_interval(x, groups=g),
    "predict_or_abstain": lambda cal, x, y, g: cal.predict_or_abstain(x, groups=g),
    "predict_action": lambda cal, x, y, g: cal.predict_action(
        x, 1.0 - np.eye(N_CLASSES), groups=g
    ),
    "detect": lambda cal, x, y, g: cal.detect(x, 1, groups=g),
    "score": lambda cal, x, y, g: cal.score(x, y, groups=g),
    "certify": lambda cal, x, y, g: cal.certify(x, y, groups=g),
    "estimate_shift": lambda cal, x, y, g: cal.estimate_shift(x, groups=g),
    "control_risk": lambda cal, x, y, g: cal.control_risk(
        x, y, groups=g, loss=covered, risk=0.5
    ),
}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often logits are checked, and groups are coded."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counted(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(owner, name, counted)

    count(schema, "as_logits")
    count(fit_rows, "as_logits")
    count(GroupCoding, "codes")
    return counts


@pytest.fixture(scope="module")
def by_group() -> Calibrator:
    cal = hokical.auto(*draw(0), groups=GROUPS)
    assert cal.schema_.groups is not None
    return cal


@pytest.mark.parametrize("name", CALLS)
def test_logits_and_groups_are_read_once(
    name: str, by_group: Calibrator, counts: Counter[str]
) -> None:
    logits, labels = draw(1)
    CALLS[name](by_group, logits, labels, GROUPS)
    assert counts == {"as_logits": 1, "codes": 1}


def test_a_fit_reads_logits_once(counts: Counter[str]) -> None:
    hokical.make("temps").fit(*draw(0))
    assert counts == {"as_logits": 1}
