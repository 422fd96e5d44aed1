"""Names of classes instead of column numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hokical
from tests.conftest import softmax_examples, synthetic_logits

NAMES = ["cat", "dog", "bird"]


def test_labels_may_be_names(tmp_path: Path) -> None:
    logits, labels = softmax_examples(600, 3, seed=1)
    words = np.array(NAMES)[labels]
    plain = hokical.auto(logits[:300], labels[:300])
    cal = hokical.auto(logits[:300], words[:300].tolist(), classes=NAMES)
    np.testing.assert_array_equal(
        cal.predict_proba(logits), plain.predict_proba(logits)
    )
    assert cal.score(logits[300:], words[300:]) == plain.score(
        logits[300:], labels[300:]
    )
    cal.certify(logits[300:], words[300:])
    found = cal.predict_set(logits, coverage=0.9)
    assert set(found.labels(0)) <= set(NAMES)
    assert (
        cal.detect(logits, "dog").flagged.tolist()
        == cal.detect(logits, 1).flagged.tolist()
    )
    assert "class dog" in cal.detect(logits, "dog").guarantee
    cal.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    assert loaded.class_names == tuple(NAMES)
    assert loaded.predict_set(logits, coverage=0.9).labels(0) == found.labels(0)
    loaded.certify(logits[300:], words[300:])
    numbers = hokical.auto(logits[:300], labels[:300], classes=NAMES)
    assert numbers.predict_set(logits, coverage=0.9).classes == tuple(NAMES)


def test_wrong_names_are_told_of() -> None:
    logits, labels = softmax_examples(60, 3)
    with pytest.raises(ValueError, match="`classes` must name each of the 3 columns"):
        hokical.auto(logits, labels, classes=["cat", "dog"])
    with pytest.raises(
        ValueError, match=r"columns of `logits` once; got \['a', 'a', 'b'\]\. Give"
    ):
        hokical.auto(logits, labels, classes=["a", "a", "b"])
    with pytest.raises(
        ValueError, match=r"names of the classes, .*; got 'fish' in row 0"
    ):
        hokical.auto(logits, np.array(["fish"] * 60), classes=NAMES)
    with pytest.raises(TypeError, match=r"`hokical.auto\(logits, labels, classes="):
        hokical.auto(logits, np.array(NAMES)[labels])


def test_columns_of_a_frame_are_put_in_order(tmp_path: Path) -> None:
    logits, labels = softmax_examples(300, 3, seed=1)
    frame = pd.DataFrame(logits, columns=NAMES)
    turned, new = frame[NAMES[::-1]], frame.set_axis(["x", "y", "z"], axis=1)
    cal = hokical.auto(frame, labels, classes=NAMES)
    cal.save(tmp_path / "cal.json")
    for fitted in (
        cal,
        hokical.make("temps").fit(frame, labels),
        hokical.load(tmp_path / "cal.json"),
    ):
        expected = fitted.predict_proba(logits)
        for given in (frame, turned):
            np.testing.assert_array_equal(fitted.predict_proba(given), expected)
        for ask in (fitted.predict_proba, fitted.predict, fitted.predict_interval):
            with pytest.raises(ValueError, match="cat, dog, bird; got x, y, z"):
                ask(new)
    truth = frame > 0.0
    tags = hokical.MultilabelCalibrator().fit(frame, truth)
    again = hokical.MultilabelCalibrator().fit(frame, truth[NAMES[::-1]])
    for cal in (tags, again):
        np.testing.assert_array_equal(
            cal.predict_proba(turned), tags.predict_proba(logits)
        )
    with pytest.raises(
        ValueError, match="`scores` must have the columns used in `fit`"
    ):
        tags.certify(new, truth)


@pytest.mark.parametrize("odd", [None, 3.0, "logits", object()])
@pytest.mark.parametrize("classes", [(), NAMES])
def test_what_is_no_array_of_logits_is_named(
    odd: object, classes: tuple[str, ...]
) -> None:
    with pytest.raises((TypeError, ValueError), match="logits"):
        hokical.auto(odd, ["a"], classes=classes)


def test_labels_of_a_table_may_be_names() -> None:
    logits, labels = softmax_examples(300, 3, seed=1)
    table = pd.DataFrame(logits, columns=["z0", "z1", "z2"]).assign(
        y=np.array(NAMES)[labels]
    )
    cal = hokical.auto(table, "y", classes=NAMES)
    assert cal.class_names == tuple(NAMES)
    plain = hokical.auto(logits, labels)
    np.testing.assert_array_equal(
        cal.predict_proba(logits), plain.predict_proba(logits)
    )


def test_names_may_be_numbers() -> None:
    logits, labels = synthetic_logits(90, 3, seed=2)
    plain = hokical.make("temps").fit(logits, labels)
    named = hokical.make("temps").fit(logits, (labels + 1) * 10, classes=[10, 20, 30])
    assert named.class_names == ("10", "20", "30")
    assert named.temperature_ == plain.temperature_
    with pytest.raises(ValueError, match=r"must lie in \[0, 2\]"):
        hokical.make("temps").fit(logits, labels + 7, classes=[10, 20, 30])
