"""Results are whole or not there, and never take the place of something else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hokical.io import DataFileError, check_output, write_npz


def test_round_trip_keeps_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_text("old")
    path.chmod(0o640)
    write_npz(path, labels=[1, 2], confidence=np.array([0.5, 1.0]))
    with np.load(path, allow_pickle=False) as stored:
        assert stored["labels"].tolist() == [1, 2]
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_failure_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    def fail(*args: object) -> None:
        raise error

    path = tmp_path / "a.npz"
    path.write_text("old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(error):
        write_npz(path, x=[1.0])
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_objects_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Object arrays"):
        write_npz(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_output(tmp_path / "out.npz", suffix=".npz")
    check_output(str(tmp_path / "out.npz"), suffix=".npz")
    with pytest.raises(DataFileError, match=r"ends in \.npz"):
        check_output(tmp_path / "out.csv", suffix=".npz")
    with pytest.raises(DataFileError, match="no folder"):
        check_output(tmp_path / "none" / "out.npz")
    with pytest.raises(DataFileError, match="not a file"):
        check_output(tmp_path)
    with pytest.raises(DataFileError, match="not a file"):
        check_output(Path(os.devnull))
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(DataFileError, match="no right to write"):
        check_output(tmp_path / "out.npz")
