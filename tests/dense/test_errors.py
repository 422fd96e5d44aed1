"""Dense outputs that cannot be used: what is wrong, where it is, and what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hokical import Hoki
from hokical.dense import Dense, from_dense
from hokical.stability._noise import Gaussian
from tests.dense.test_dense import maps

LOGITS, LABELS = maps(n=2, h=5, w=6)
SOURCE = from_dense(LOGITS, LABELS, ignore_label=255)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: Dense().fit(LOGITS), "`labels` must be given"),
        (lambda: Dense().fit(LOGITS, LABELS), r"got 255 at position \(0, 0, 0\).*ignore_label=255"),
        (lambda: Dense().fit(LOGITS, LABELS + 0.5), "must be integers.*float64"),
        (lambda: Dense().fit(LOGITS[0, 0, 0], LABELS), "at least one of positions"),
        (lambda: Dense(class_axis=4).fit(LOGITS, LABELS), "from -4 to 3.*got 4"),
        (lambda: Dense(class_axis=1.0).fit(LOGITS, LABELS), "`class_axis` must be an integer"),
        (lambda: Dense(class_axis=1).fit(LOGITS, LABELS), "would fit `class_axis=3`"),
        (lambda: Dense().fit(LOGITS, LABELS[:, :3]), r"\(2, 5, 6\); got \(2, 3, 6\)"),
        (lambda: Dense().fit(LOGITS, LABELS, mask=LABELS[0]), "`mask` must have the shape"),
        (lambda: Dense().fit(LOGITS, LABELS, mask=LABELS), "`mask` must be True"),
        (lambda: Dense().fit(LOGITS, LABELS, mask=LABELS > 300), "at least one position"),
        (lambda: Dense(ignore_label=255).fit(LOGITS, LABELS * 0 + 255), "at least one position"),
        (lambda: Dense().fit(LOGITS, LABELS, sample_weight=[1.0]), "`sample_weight` must have"),
        (lambda: Dense(ignore_label="sky").fit(LOGITS, LABELS), "`ignore_label` must be"),
        (lambda: Dense(max_positions_per_item=0).fit(LOGITS, LABELS), "`max_positions_per_item`"),
        (lambda: Dense(random_state=None).fit(LOGITS, LABELS), "`random_state`"),
        (lambda: Dense("hokey").fit(LOGITS, LABELS), "one of"),
        (lambda: Dense().fit([(LOGITS, LABELS)], mask=LABELS > 300), "come with the batches"),
        (lambda: Dense().fit([{"x": LOGITS}]), "a batch must be"),
        (lambda: Dense().fit(LOGITS[..., :1], LABELS), "at least two classes"),
        (lambda: Dense().fit([LOGITS, LOGITS]), "batches must have labels"),
        (lambda: Dense().fit({"logits": LOGITS, "labels": LABELS}), "one batch in a dict"),
        (lambda: Dense().fit((LOGITS, LABELS)), r"one batch in a tuple"),
        (lambda: Dense().fit([LOGITS, LABELS]), r"one batch in a list"),
        (lambda: Dense().fit([]), "an empty list"),
        (lambda: Dense().fit("maps.npz"), "'maps.npz'.*`numpy.load"),
        (lambda: Dense().fit(Path("maps.npz")), "`numpy.load"),
        (lambda: Dense(max_positions_per_item=1).fit(SOURCE), "go to `from_dense`"),
        (lambda: Dense().fit(SOURCE, LABELS), "go to `from_dense`"),
        (
            lambda: Dense(class_axis=0, max_positions_per_item=1).fit(LOGITS, LABELS),
            "needs items on the first axis",
        ),
    ],
)
def test_what_cannot_be_fitted(fit, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        fit()


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, r"\+inf")])
def test_bad_logits_are_named_by_their_position(value, word) -> None:
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
        lambda: cal.evaluate(shaped, labels),
        lambda: cal.evaluate(iter(parts)),
        lambda: cal.predict(shaped),
        lambda: list(cal.predict_confidence(parts)),
    ):
        with pytest.raises(ValueError, match=rf"{word} for class 3 at position \(4, 7, 9\)"):
            work()
    shaped[4, :, 7, 9] = -np.inf
    with pytest.raises(ValueError, match=r"-inf for every class at position \(4, 7, 9\)"):
        cal.predict_confidence(shaped)


def test_what_cannot_be_predicted() -> None:
    logits, labels = maps()
    cal = Dense("temps", ignore_label=255).fit(logits, labels)
    with pytest.raises(ValueError, match=r"4 classes of the fit on axis 3.*`class_axis`"):
        cal.predict(np.moveaxis(logits, -1, 1))
    with pytest.raises(TypeError, match="`fill` must be a number"):
        cal.predict(logits, fill=None)
    for fill in (0.5, np.nan, np.inf, 2**70, -(2**5000)):
        with pytest.raises(ValueError, match="whole number of 64 bits"):
            cal.predict(logits, fill=fill)
    for name in ("maps.npz", Path("maps.npz")):
        with pytest.raises(TypeError, match=r"`numpy\.load"):
            cal.predict(name)
    for batches in (logits, [logits]):
        with pytest.raises(ValueError, match=r"labels.* given beside|batches must have labels"):
            cal.evaluate(batches)
    with pytest.raises(TypeError, match="masks come with the batches"):
        cal.predict([logits], mask=labels > 0)
    with pytest.raises(ValueError, match="Call `certify"):
        cal.predict_or_abstain(logits)
