"""A fit that is killed goes on and ends with the same numbers; a wrong checkpoint is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hokical import Hoki
from hokical.calibrators import make
from hokical.noise import Gaussian
from hokical.streams import CheckpointError, fit, from_arrays, from_chunks
from tests.streams import killed_fit

ROWS_OF_A_BLOCK = 261
#: How often the first chunk is looked at before the first pass.
LOOKS = 2


def run(*args: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which may die."""
    command = [sys.executable, killed_fit.__file__, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def run_here(*args: object) -> None:
    killed_fit.main(*map(str, args))


@pytest.mark.parametrize(("method", "death"), [("hoki", 12), ("temps", 43)])
def test_kill_minus_nine_loses_at_most_a_block(tmp_path: Path, method: str, death: int) -> None:
    whole, resumed, folder = tmp_path / "whole.json", tmp_path / "again.json", tmp_path / "ckpt"
    run_here(method, tmp_path / "other", whole, 0)
    killed = run(method, folder, resumed, death)
    assert killed.returncode == -9, killed.stderr
    assert not resumed.exists()
    with np.load(folder / "running.npz") as state:
        rows = int(state["position"][1])
    read = killed_fit.CHUNK_ROWS * ((death - 1 - LOOKS) % killed_fit.N_CHUNKS)
    assert 0 <= read - rows < ROWS_OF_A_BLOCK
    run_here(method, folder, resumed, 0)
    assert resumed.read_bytes() == whole.read_bytes()


class Stopped(Exception):
    """Stands for a crash."""


def batches(examples, stop_at: list[int]):
    """A source that raises at each of the given numbers of chunks read, and 500 rows a chunk."""
    given = [0]

    def chunks():
        for start in range(0, 4000, 500):
            given[0] += 1
            if given[0] in stop_at:
                raise Stopped
            yield examples[0][start : start + 500], examples[1][start : start + 500]

    return from_chunks(chunks)


@pytest.mark.parametrize("name", ["hoki", "temps", "vecs", "ets", "irm", "uncalibrated"])
def test_broken_off_again_and_again(examples, tmp_path: Path, name: str) -> None:
    whole = make(name).fit(from_arrays(*examples))
    source = batches(examples, stop_at=[3, 5, 9, 21, 22, 23, 40, 57, 90])
    for _ in range(20):
        cal = make(name)
        try:
            fit(cal, source, checkpoint=tmp_path / "ckpt")
        except Stopped:
            assert not hasattr(cal, "n_classes_")
            continue
        break
    assert repr(cal._state()) == repr(whole._state())
    assert cal.predict_confidence(examples[0][:100]).tolist() == (
        whole.predict_confidence(examples[0][:100]).tolist()
    )


def test_a_finished_fit_is_there_at_once(examples, tmp_path: Path) -> None:
    first = fit(make("temps"), batches(examples, []), checkpoint=tmp_path / "c")
    # The source is looked at, but not gone through: one more chunk than the look would raise.
    again = fit(make("temps"), batches(examples, [3]), checkpoint=tmp_path / "c")
    assert again.temperature_ == first.temperature_


def test_every_so_often_is_often_enough(examples, tmp_path: Path) -> None:
    source = batches(examples, stop_at=[6])
    with pytest.raises(Stopped):
        fit(Hoki(noise=Gaussian(4.0)), source, checkpoint=tmp_path / "c", every=1e9)
    assert not (tmp_path / "c" / "running.npz").exists()
    cal = fit(Hoki(noise=Gaussian(4.0)), source, checkpoint=tmp_path / "c", every=1e9)
    assert cal.table_.total == 4000


def test_other_fits_are_refused(examples, tmp_path: Path) -> None:
    logits, labels = examples
    source = from_arrays(logits, labels)
    fit(Hoki(noise=Gaussian(4.0)), source, checkpoint=tmp_path / "c")
    for cal, other, words in (
        (Hoki(noise=Gaussian(5.0)), source, "its parameters was"),
        (make("temps"), source, "its calibrator was"),
        (Hoki(noise=Gaussian(4.0)), from_arrays(logits + 1, labels), "its first rows was"),
        (Hoki(noise=Gaussian(4.0)), from_arrays(logits[:-1], labels[:-1]), "its source was"),
    ):
        with pytest.raises(CheckpointError, match=f"belongs to another fit: {words}"):
            fit(cal, other, checkpoint=tmp_path / "c")


def test_folders_that_are_no_checkpoints_are_left_alone(examples, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(CheckpointError, match="something else in it"):
        fit(make("temps"), from_arrays(*examples), checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_damage_is_said(examples, tmp_path: Path) -> None:
    fit(make("temps"), from_arrays(*examples), checkpoint=tmp_path / "c")
    (tmp_path / "c" / "pass-0000.npz").write_bytes(b"no")
    with pytest.raises(CheckpointError, match=r"cannot be read: .*start afresh"):
        fit(make("temps"), from_arrays(*examples), checkpoint=tmp_path / "c")


def test_bad_options(examples, tmp_path: Path) -> None:
    source = from_arrays(*examples)
    with pytest.raises(ValueError, match="exclude each other"):
        fit(make("temps"), source, checkpoint=tmp_path / "c", spool=True)
    with pytest.raises(ValueError, match="`every` must be a number of seconds"):
        fit(make("temps"), source, checkpoint=tmp_path / "c", every=-1.0)
    with pytest.raises(ValueError, match="`random_state` must be an integer"):
        fit(Hoki(noise=Gaussian(1.0), draws=9), source, checkpoint=tmp_path / "c")
