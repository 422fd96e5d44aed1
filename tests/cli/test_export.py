"""`hokical export`: labels that are accepted at a risk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hokical import load
from tests.cli.running import hokical_command, run
from tests.conftest import softmax_examples

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    logits, labels = softmax_examples(1000, 3, seed=1)
    np.savez(tmp_path / "val.npz", logits=3.0 * logits, labels=labels)
    run(
        "fit",
        tmp_path / "val.npz",
        "--method",
        "temps",
        "-o",
        tmp_path / "cal.json",
    )
    return tmp_path


def test_labels_that_are_accepted_are_exported(files: Path) -> None:
    options = ["--risk", "0.2", "--delta", "0.05", "--json"]
    output = files / "cal.onnx"
    text = run("export", files / "cal.json", "-o", output, *options)
    result = json.loads(text)
    logits = softmax_examples(500, 3, seed=2)[0].astype(np.float32)
    session = onnxruntime.InferenceSession(output)
    (accepted,) = session.run(["accepted"], {"logits": logits})
    expected = load(files / "cal.json").predict_or_abstain(logits, risk=0.2, delta=0.05)
    assert 0.0 < accepted.mean() < 1.0
    np.testing.assert_array_equal(accepted, expected.accepted)
    assert "At most 20% errors" in result["guarantee"]
    assert any("accepted" in name for name in result["outputs"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--delta", "0.1"], "only goes with --risk"),
        (["--risk", "0.1", "--float32"], "does not go with --float32"),
        (["--risk", "2"], "risk"),
    ],
)
def test_wrong_options_are_refused(files: Path, options: list[str], words: str) -> None:
    arguments = ["export", files / "cal.json", "-o", files / "cal.onnx", *options]
    result = hokical_command(*arguments)
    assert result.code != 0
    assert words in " ".join(result.err.split())
    assert not (files / "cal.onnx").exists()
