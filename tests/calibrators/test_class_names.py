"""Names of classes instead of column numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hokical
from tests.guarantees.test_sets import world

NAMES = ["cat", "dog", "bird"]


def test_labels_may_be_names(tmp_path: Path) -> None:
    logits, labels = world(600, 3, seed=1)
    words = np.array(NAMES)[labels]
    plain = hokical.auto(logits[:300], labels[:300])
    cal = hokical.auto(logits[:300], words[:300].tolist(), classes=NAMES)
    np.testing.assert_array_equal(cal.predict_proba(logits), plain.predict_proba(logits))
    assert cal.score(logits[300:], words[300:]) == plain.score(logits[300:], labels[300:])
    cal.certify(logits[300:], words[300:])
    found = cal.predict_set(logits, coverage=0.9)
    assert set(found.labels(0)) <= set(NAMES)
    assert cal.detect(logits, "dog").flagged.tolist() == cal.detect(logits, 1).flagged.tolist()
    assert "class dog" in cal.detect(logits, "dog").guarantee
    cal.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    assert loaded.class_names == tuple(NAMES)
    assert loaded.predict_set(logits, coverage=0.9).names() == found.names()
    loaded.certify(logits[300:], words[300:])
    numbers = hokical.auto(logits[:300], labels[:300], classes=NAMES)
    assert numbers.predict_set(logits, coverage=0.9).classes == tuple(NAMES)


def test_wrong_names_are_told_of() -> None:
    logits, labels = world(60, 3)
    with pytest.raises(ValueError, match="`classes` must name each of the 3 columns"):
        hokical.auto(logits, labels, classes=["cat", "dog"])
    with pytest.raises(ValueError, match=r"names of the classes, .*; got '?np?.*fish.* in row 0"):
        hokical.auto(logits, np.array(["fish"] * 60), classes=NAMES)
    with pytest.raises(TypeError, match=r"`hokical.auto\(logits, labels, classes="):
        hokical.auto(logits, np.array(NAMES)[labels])
