"""Calibrators of confidences and of several labels as ONNX graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from tests.calibrators.test_confidence import answers
from tests.calibrators.test_multilabel import tags

pytest.importorskip("ndonnx")
runtime = pytest.importorskip("onnxruntime")
onnx = hokical.integrations.onnx


def run(model: Any, **feed: Any) -> Any:
    session = runtime.InferenceSession(model.SerializeToString())
    return session.run(None, feed)[0]


@pytest.mark.sample(1)
@pytest.mark.parametrize("rounded", [False, True])
def test_several_labels(rounded: bool, tmp_path: Path) -> None:
    scores, labels = tags(600)
    if rounded:
        scores = hokical.from_binary_probabilities(
            np.round(1.0 / (1.0 + np.exp(-scores)), 2)
        )
    cal = hokical.MultilabelCalibrator().fit(scores, labels)
    rows = np.concatenate([scores[:50], [[-np.inf] * 12, [np.inf] * 12]])
    model = onnx.export(cal, tmp_path / "cal.onnx", input_dtype="float64")
    assert (tmp_path / "cal.onnx").stat().st_size > 0
    np.testing.assert_allclose(
        run(model, scores=rows), cal.predict_proba(rows), rtol=1e-12
    )
    for options in (
        {},
        {"precision": "float32"},
        {"opset": 13},
        {"input_dtype": "float16"},
    ):
        model = onnx.export(cal, **options)
        given = rows.astype(options.get("input_dtype", "float32"))
        np.testing.assert_allclose(
            run(model, scores=given), cal.predict_proba(given), atol=1e-6
        )
        assert onnx.check(model, cal).agrees
    assert np.isnan(
        run(onnx.export(cal), scores=np.full((1, 12), np.nan, np.float32))
    ).all()
    with pytest.raises(
        ValueError, match="`support` and `risk` are for calibrators of log"
    ):
        onnx.export(cal, support=True)


@pytest.mark.sample(2)
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("columns", [0, 1, 2])
def test_confidences(columns: int, monotone: bool) -> None:
    stated, right, subject = answers(1500)
    other = np.where(np.arange(1500) % 3 > 0, "a", "b")
    right = right & ~((other == "b") & (np.arange(1500) % 2 > 0))
    groups = [None, subject, {"subject": subject, "other": other}][columns]
    cal = hokical.calibrate_confidence(
        100 * stated, right, groups=groups, scale=100, monotone=monotone
    )
    new = np.linspace(0.0, 100.0, 201)
    own, feed = None, {}
    if columns:
        assert cal.rule_.coding is not None
        own = {
            name: np.resize(column, 201)
            for name, column in zip(
                cal.rule_.coding.columns, (subject, other), strict=False
            )
        }
        own[cal.rule_.coding.columns[0]][::5] = "nowhere"
        feed = {"groups": cal.group_codes(own)}
        with pytest.warns(UserWarning, match="missing or was not in the fit"):
            expected = cal.predict(new, groups=own)
    else:
        expected = cal.predict(new)
    model = onnx.export(cal, input_dtype="float64")
    np.testing.assert_allclose(run(model, confidence=new, **feed), expected, rtol=1e-12)
    narrow = onnx.export(cal, precision="float32")
    found = run(narrow, confidence=new.astype(np.float32), **feed)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert onnx.check(model, cal).agrees
    assert np.isnan(
        run(model, confidence=new[:2] + 200.0, **{k: v[:2] for k, v in feed.items()})
    ).all()
