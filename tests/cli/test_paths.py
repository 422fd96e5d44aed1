"""Outputs never destroy inputs, whatever the command; names cannot speak to the
terminal.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from hokical import Gaussian, Hoki
from hokical.cli import app
from hokical.cli.options import OUTPUTS
from tests.cli.running import hokical_command
from tests.conftest import synthetic_logits

LOGITS, LABELS = synthetic_logits(200, 3, seed=1)
#: Paths that commands read; a new one of any command belongs here or into OUTPUTS.
INPUTS = {
    "val",
    "test",
    "data",
    "first",
    "second",
    "calibrator",
    "labels",
    "test_labels",
    "reference",
    "attach",
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """What commands read, each in a file of its own."""
    np.save(tmp_path / "x_logits.npy", LOGITS)
    np.save(tmp_path / "x_labels.npy", LABELS)
    np.savez(tmp_path / "r.npz", logits=LOGITS, labels=LABELS)
    Hoki(noise=Gaussian(2.0)).fit(LOGITS, LABELS).save(tmp_path / "cal.json")
    return {path.name: path for path in tmp_path.iterdir()}


def test_every_path_of_every_command_is_known() -> None:
    paths = {
        name
        for command in app.registered_commands
        for name, kind in get_type_hints(command.callback).items()
        if kind in (Path, Path | None)
    }
    assert paths <= INPUTS | OUTPUTS
    assert {"val", "output"} <= paths


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "words",
    [
        "fit x_logits.npy -o x_labels.npy",
        "fit x_logits.npy -o x_logits.npy",
        "fit r.npz --labels x_labels.npy -o x_labels.npy",
        "fit r.npz -o ./link.json",
        "apply cal.json x_logits.npy -o cal.json",
        "apply cal.json r.npz -o r.npz",
        "compare r.npz x_logits.npy --report x_labels.npy",
        "monitor cal.json r.npz --state cal.json",
        "monitor cal.json x_logits.npy --state x_labels.npy",
        "monitor cal.json x_logits.npy --reference r.npz --state r.npz",
        "export cal.json -o cal.json",
    ],
)
def test_inputs_stay(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link.json").symlink_to("r.npz")
    before = {path: path.read_bytes() for path in files.values()}
    found = hokical_command(*words.split())
    assert found.code == 2
    assert found.err.count("\n") == 1
    assert "would be lost" in found.err
    assert {path: path.read_bytes() for path in files.values()} == before


def test_names_do_not_speak_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "\x1b]0;title\x07\x9b31m\u202e\udcff"
    monkeypatch.chdir(tmp_path)
    np.savez(f"a{evil}.npz", **{f"b{evil[:-1]}": LOGITS})
    Path("a.csv").write_text("\x9b31m\u202e,\x9b31m\u202e,label\n1,2,0\n")
    np.savez(f"good{evil}.npz", val_logits=LOGITS, val_labels=LABELS)
    for words in (
        ("evaluate", f"a{evil}.npz"),
        ("evaluate", "a.csv"),
        ("evaluate", f"good{evil}.npz", "--split", "val"),
        ("apply", f"no{evil}.json", "a.csv", "-o", "b.csv"),
    ):
        found = hokical_command(*words)
        assert not set("\x1b\x07\x9b\u202e") & set(found.out + found.err)
        assert "\\x1b" in found.out + found.err or "\\x9b" in found.err
    assert found.code == 2
