"""Many Parquet files: where results may go, what is refused, and how often work is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hokical import Calibrator, Hoki
from hokical.cli import app
from hokical.io._errors import DataFileError
from hokical.stability._noise import Gaussian
from hokical.streams._parts import PartTask, apply_parts, plan_parts
from tests.streams.test_sources import write_parquet

pytest.importorskip("pyarrow")


@pytest.fixture
def folder(examples, tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    write_parquet(tmp_path / "in", examples, n_files=3)
    return tmp_path


@pytest.fixture
def saved(examples, folder: Path) -> Path:
    Hoki(noise=Gaussian(4.0)).fit(*examples).save(folder / "cal.json")
    return folder / "cal.json"


def complaint(*args: object) -> str:
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    assert done.exit_code == 2, done.output
    return " ".join(done.output.replace("│", " ").split())


def test_paths_are_sent_in_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for data in ("in", "in/*.parquet", "in/part-0.parquet"):
        for job in plan_parts(data, "out"):
            assert job.input == folder / "in" / job.output.name
            assert job.output.parent == folder / "out"


def test_results_beside_the_input_and_never_in_it(examples, folder: Path) -> None:
    cal = Hoki(noise=Gaussian(4.0)).fit(*examples)
    for inside in ("out", "deep/out"):
        with pytest.raises(DataFileError, match="would mix with the input files"):
            plan_parts(folder / "in", folder / "in" / inside)
    pattern, target = folder / "in" / "**" / "*.parquet", folder / "in" / "out"
    apply_parts(PartTask(cal), plan_parts(pattern, target))
    with pytest.raises(DataFileError, match="would mix with the input files"):
        plan_parts(pattern, target)
    narrow = folder / "in" / "*.parquet"  # finds no results the next time either
    assert plan_parts(narrow, target) == plan_parts(narrow, target)
    assert len(plan_parts(narrow, folder)) == 3


def test_results_never_replace_input(examples, tmp_path: Path) -> None:
    (tmp_path / "a" / "a").mkdir(parents=True)
    write_parquet(tmp_path / "a", examples, n_files=1)
    write_parquet(tmp_path / "a" / "a", examples, n_files=1)  # would go to a/part-0.parquet
    with pytest.raises(DataFileError, match="would mix with the input files"):
        plan_parts(tmp_path / "a", tmp_path)


def test_a_file_is_no_folder(folder: Path, saved: Path) -> None:
    (folder / "there").write_bytes(b"a file")
    with pytest.raises(DataFileError, match="is a file; results of several files go into a folder"):
        plan_parts(folder / "in", folder / "there")
    said = complaint("apply", saved, folder / "in", "-o", folder / "f.npz")
    assert "must be a folder" in said


def test_the_calibrator_is_stamped_once(examples, folder: Path, monkeypatch) -> None:
    calls = []
    stamp = property(lambda self: calls.append(1) or "a stamp")
    monkeypatch.setattr(Calibrator, "stamp", stamp)
    cal = Hoki(noise=Gaussian(4.0)).fit(*examples)
    apply_parts(PartTask(cal), plan_parts(folder / "in", folder / "out"))
    assert calls == [1]
