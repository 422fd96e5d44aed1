"""Dense outputs that cannot be used: what is wrong, where it is, and what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hokical import Gaussian, Hoki
from hokical.dense import Dense
from tests.dense.test_dense import maps

LOGITS, LABELS = maps(n=2, h=5, w=6)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: Dense().fit(LOGITS), "`labels` must be given"),
        (
            lambda: Dense().fit(LOGITS, LABELS),
            r"got 255 in position \(0, 0, 0\).*ignore_label=255",
        ),
        (lambda: Dense().fit(LOGITS, LABELS + 0.5), "must be integers.*float64"),
        (lambda: Dense().fit(LOGITS[0, 0, 0], LABELS), "after an axis of items"),
        (lambda: Dense(class_axis=4).fit(LOGITS, LABELS), "got shape.*class_axis=4"),
        (
            lambda: Dense(class_axis=1.0).fit(LOGITS, LABELS),
            "`class_axis` must be an integer",
        ),
        (lambda: Dense(class_axis=1).fit(LOGITS, LABELS), "Give `class_axis`"),
        (lambda: Dense().fit(LOGITS, LABELS[:, :3]), r"\(2, 5, 6\); got \(2, 3, 6\)"),
        (
            lambda: Dense().fit(LOGITS, LABELS, mask=LABELS[0]),
            "`mask` must have the shape",
        ),
        (lambda: Dense().fit(LOGITS, LABELS, mask=LABELS), "`mask` must be True"),
        (
            lambda: Dense().fit(LOGITS, LABELS, mask=LABELS > 300),
            "at least one position",
        ),
        (
            lambda: Dense(ignore_label=255).fit(LOGITS, LABELS * 0 + 255),
            "at least one position",
        ),
        (
            lambda: Dense().fit(LOGITS, LABELS, sample_weight=[1.0]),
            "`sample_weight` must have",
        ),
        (
            lambda: Dense(ignore_label="sky").fit(LOGITS, LABELS),
            "`ignore_label` must be",
        ),
        (
            lambda: Dense(max_positions_per_item=0).fit(LOGITS, LABELS),
            "`max_positions_per_item`",
        ),
        (lambda: Dense(random_state=None).fit(LOGITS, LABELS), "`random_state`"),
        (lambda: Dense("hokey").fit(LOGITS, LABELS), "one of"),
        (
            lambda: Dense().fit([(LOGITS, LABELS)], mask=LABELS > 300),
            "come with the batches",
        ),
        (lambda: Dense().fit([{"x": LOGITS}]), "a batch must be"),
        (lambda: Dense().fit(LOGITS[..., :1], LABELS), "at least two classes"),
        (
            lambda: Dense().fit([LOGITS, LOGITS]),
            "`labels` must be given.*in each batch",
        ),
        (
            lambda: Dense().fit({"logits": LOGITS, "labels": LABELS}),
            "got dict.*by name",
        ),
        (lambda: Dense().fit((LOGITS, LABELS)), "got tuple.*by name"),
        (lambda: Dense().fit([]), "at least one position"),
        (lambda: Dense().fit(LOGITS.tolist(), LABELS), "come with the batches"),
        (lambda: Dense().fit("maps.npz"), "got str.*numpy.load"),
        (
            lambda: Dense(class_axis=0).fit(LOGITS, LABELS),
            r"one item as `logits\[None\]`",
        ),
    ],
)
def test_what_cannot_be_fitted(fit, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        fit()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_logits_are_named_by_their_position(value) -> None:
    logits, labels = maps()
    cal = Dense("temps", class_axis=1, ignore_label=255)
    shaped = np.moveaxis(logits, -1, 1).copy()
    cal.fit(shaped, labels)
    shaped[4, 3, 7, 9] = value
    parts = [(shaped[:3], labels[:3]), (shaped[3:], labels[3:])]
    hoki = Dense(Hoki(noise=Gaussian(4.0)), class_axis=1, ignore_label=255)
    for work in (
        lambda: cal.fit(shaped, labels),
        lambda: cal.fit(parts),
        lambda: hoki.fit(iter(parts)),
        lambda: Dense("irm", class_axis=1, ignore_label=255).fit(parts),
        lambda: cal.score(shaped, labels),
        lambda: cal.predict(shaped),
        lambda: list(cal.predict_confidence(parts)),
    ):
        with pytest.raises(
            ValueError, match=r"NaN or \+inf; got .* in position \(4, 7, 9\)"
        ):
            work()
    shaped[4, :, 7, 9] = -np.inf
    with pytest.raises(ValueError, match=r"position \(4, 7, 9\)"):
        cal.predict_confidence(shaped)


def test_what_cannot_be_predicted() -> None:
    logits, labels = maps()
    cal = Dense("temps", ignore_label=255).fit(logits, labels)
    with pytest.raises(
        ValueError, match=r"4 classes of the fit on axis 3.*`class_axis`"
    ):
        cal.predict(np.moveaxis(logits, -1, 1))
    with pytest.raises(TypeError, match="come with the batches"):
        next(cal.predict([logits], mask=labels > 0))
    with pytest.raises(ValueError, match="Call `certify"):
        cal.predict_or_abstain(logits)


def test_odd_arguments_are_named(tmp_path) -> None:
    dense = Dense("temps", ignore_label=255).fit(LOGITS, LABELS)
    with pytest.raises(ValueError, match="`logits` must have at least one item"):
        dense.predict_proba(LOGITS[:0])
    with pytest.raises(TypeError, match="`metadata` must be a dict"):
        dense.save(tmp_path / "c.json", metadata=[1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`logits` must be an iterable of chunks"):
        next(dense.predict_proba(int))
    with pytest.raises(TypeError, match="`mask` of type list cannot be read"):
        dense.predict_proba(LOGITS, mask=[[True, False], [True]])


def test_frames_are_arrays() -> None:
    dense = Dense("temps", ignore_label=255).fit(LOGITS, LABELS)
    rows = LOGITS[0, 0]
    columns = pd.MultiIndex.from_product([["a"], range(rows.shape[1])])
    predicted = dense.predict(pd.DataFrame(rows, columns=columns))
    np.testing.assert_array_equal(predicted, dense.predict(rows))
