"""A fit that is killed goes on and ends with the same numbers; a wrong checkpoint is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hokical import Hoki
from hokical.calibrators import make
from hokical.stability._noise import Gaussian
from hokical.streams import CheckpointError, fit, from_arrays, from_chunks
from tests.streams import killed_fit

ROWS_OF_A_BLOCK = 261


def run(*args: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which may die and whose kernels nobody has compiled: bits agree."""
    command = [sys.executable, killed_fit.__file__, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "death"), [("hoki", 12), ("temps", 43)])
def test_kill_minus_nine_loses_at_most_a_block(tmp_path: Path, method: str, death: int) -> None:
    whole, resumed, folder = tmp_path / "whole.json", tmp_path / "again.json", tmp_path / "ckpt"
    assert run(method, tmp_path / "other", whole, 0).returncode == 0
    killed = run(method, folder, resumed, death)
    assert killed.returncode == -9, killed.stderr
    assert not resumed.exists()
    with np.load(folder / "running.npz") as state:
        rows = int(state["position"][1])
    read = killed_fit.CHUNK_ROWS * ((death - 1) % killed_fit.N_CHUNKS)
    assert 0 <= read - rows < ROWS_OF_A_BLOCK
    assert run(method, folder, resumed, 0).returncode == 0
    assert resumed.read_bytes() == whole.read_bytes()


class Stopped(Exception):
    """Stands for a crash."""


def batches(examples, stop_at: list[int]):
    """A source that raises at each of the given numbers of chunks read, and 500 rows a chunk."""
    given = [0]

    def chunks():
        for start in range(0, len(examples[1]), 500):
            given[0] += 1
            if given[0] in stop_at:
                raise Stopped
            yield examples[0][start : start + 500], examples[1][start : start + 500]

    return from_chunks(chunks)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["hoki", "temps", "vecs", "ets", "irm", "uncalibrated"])
def test_broken_off_again_and_again(examples, tmp_path: Path, name: str) -> None:
    whole = fit(make(name), from_arrays(*examples))
    source = batches(examples, stop_at=[3, 5, 9, 21, 22, 23, 40, 57, 90])
    for _ in range(20):
        cal = make(name)
        try:
            fit(cal, source, checkpoint=tmp_path / "ckpt")
        except Stopped:
            assert not hasattr(cal, "rule_")
            continue
        break
    assert cal.stamp == whole.stamp
    assert cal.predict_confidence(examples[0][:100]).tolist() == (
        whole.predict_confidence(examples[0][:100]).tolist()
    )


def test_a_finished_fit_is_read_once_to_compare_the_rows(examples, tmp_path: Path) -> None:
    first = fit(make("temps"), batches(examples, []), checkpoint=tmp_path / "c")
    again = fit(make("temps"), batches(examples, [9]), checkpoint=tmp_path / "c")
    assert again.temperature_ == first.temperature_
    rows = from_arrays(*examples)
    first = fit(make("temps"), rows, checkpoint=tmp_path / "d")
    rows._slices = None  # type: ignore[attr-defined, assignment]  # arrays are hashed instead
    rows.first_chunk = from_arrays(*examples).first_chunk  # type: ignore[method-assign]
    assert fit(make("temps"), rows, checkpoint=tmp_path / "d").temperature_ == first.temperature_


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
        with pytest.raises(CheckpointError, match=f"belongs to other work: {words}"):
            fit(cal, other, checkpoint=tmp_path / "c")


def test_folders_that_are_no_checkpoints_are_left_alone(examples, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(CheckpointError, match="something else in it"):
        fit(make("temps"), from_arrays(*examples), checkpoint=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_damage_is_said(examples, tmp_path: Path) -> None:
    fit(make("temps"), from_arrays(*examples), checkpoint=tmp_path / "c")
    (tmp_path / "c" / "pass-0000.npz").write_bytes(b"no")
    with pytest.raises(CheckpointError, match=r"cannot be read: .*start over"):
        fit(make("temps"), from_arrays(*examples), checkpoint=tmp_path / "c")


def test_bad_options(examples, tmp_path: Path) -> None:
    source = from_arrays(*examples)
    with pytest.raises(ValueError, match="exclude each other"):
        fit(make("temps"), source, checkpoint=tmp_path / "c", spool=True)
    with pytest.raises(ValueError, match="`every` must be a number of seconds"):
        fit(make("temps"), source, checkpoint=tmp_path / "c", every=-1.0)
    with pytest.raises(ValueError, match="`random_state` must be an integer"):
        fit(
            Hoki(noise=Gaussian(1.0), draws=9, random_state=None), source, checkpoint=tmp_path / "c"
        )


def changed_late(examples) -> tuple[np.ndarray, np.ndarray]:
    """Other data that begin with the same 3000 rows."""
    logits, labels = examples[0].copy(), examples[1].copy()
    logits[3000:] *= 2.0
    return logits, labels


def in_function(examples):
    return batches(examples, [])


def in_list(examples):
    return from_chunks(
        [(examples[0][:1500], examples[1][:1500]), (examples[0][1500:], examples[1][1500:])]
    )


def in_iterator(examples):
    return from_chunks(iter([examples]))


@pytest.mark.sample(2)
@pytest.mark.parametrize("give", [in_function, in_list, in_iterator, lambda e: from_arrays(*e)])
def test_rows_that_changed_late_are_refused(examples, tmp_path: Path, give) -> None:
    cal = Hoki(noise=Gaussian(4.0))
    fit(cal, give(examples), checkpoint=tmp_path / "c")
    fit(cal, give(examples), checkpoint=tmp_path / "c")
    shorter = examples[0][:-1], examples[1][:-1]
    longer = tuple(np.concatenate([part, part[:1]]) for part in examples)
    for other in (changed_late(examples), shorter, longer):
        with pytest.raises(CheckpointError, match=r"rows from|belongs to other work"):
            fit(cal, give(other), checkpoint=tmp_path / "c")
    fit(cal, give(examples), checkpoint=tmp_path / "c")


def test_rows_that_changed_before_a_restart_are_refused(examples, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        fit(make("temps"), batches(examples, [8]), checkpoint=tmp_path / "c")
    with (tmp_path / "c" / "rows.txt").open("a") as stream:
        stream.write("half a li")  # what a kill may leave
    with pytest.raises(CheckpointError, match="started with other data"):
        fit(make("temps"), batches(changed_late(examples), []), checkpoint=tmp_path / "c")
    cal = fit(make("temps"), batches(examples, []), checkpoint=tmp_path / "c")
    assert cal.temperature_ == fit(make("temps"), from_arrays(*examples)).temperature_


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_label_files_that_changed_are_refused(examples, tmp_path: Path, dtype) -> None:
    np.save(tmp_path / "logits.npy", examples[0])
    np.save(tmp_path / "labels.npy", examples[1].astype(dtype))
    fit(make("temps"), str(tmp_path / "logits.npy"), checkpoint=tmp_path / "c")
    late = examples[1].copy()
    late[3000:] = 0
    np.save(tmp_path / "labels.npy", late.astype(dtype))
    with pytest.raises(CheckpointError, match="belongs to other work: its source was"):
        fit(make("temps"), str(tmp_path / "logits.npy"), checkpoint=tmp_path / "c")


@pytest.mark.sample(1)
@pytest.mark.parametrize("in_memory", [False, True])
def test_zarr_stores_that_changed_are_refused(examples, tmp_path: Path, in_memory) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(None if in_memory else str(tmp_path / "v.zarr"), mode="w")
    group.create_array("logits", data=examples[0], chunks=(300, 5))
    group.create_array("labels", data=examples[1], chunks=(1000,))
    source = from_arrays(group["logits"], group["labels"])
    fit(make("temps"), source, checkpoint=tmp_path / "c")
    fit(make("temps"), source, checkpoint=tmp_path / "c")
    group["labels"][3999] = (examples[1][3999] + 1) % 5
    with pytest.raises(CheckpointError, match="belongs to other work: its source was"):
        fit(make("temps"), source, checkpoint=tmp_path / "c")


def test_what_a_kill_left_half_written_is_swept(examples, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    names = [f".{name}.0123456789ab" for name in ("about.json", "running.npz", "pass-0000.npz")]
    for _ in range(2):  # in an empty folder, and in a checkpoint
        for name in names:
            (folder / name).write_text("{")
        fit(make("temps"), from_arrays(*examples), checkpoint=folder)
        assert not list(folder.glob(".*"))


def test_a_second_process_on_one_checkpoint_is_refused(examples, tmp_path: Path) -> None:
    folder, refusals = tmp_path / "c", []

    def chunks():
        with pytest.raises(CheckpointError, match="in use by another process"):
            fit(make("temps"), from_arrays(*examples), checkpoint=folder)
        refusals.append(1)
        yield examples

    cal = fit(make("temps"), from_chunks(chunks), checkpoint=folder)
    assert refusals
    assert cal.temperature_ == fit(make("temps"), from_arrays(*examples)).temperature_
    assert not (folder / ".lock").exists()


def test_a_file_is_no_checkpoint(examples, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("thesis")
    with pytest.raises(CheckpointError, match="is a file, not a checkpoint"):
        fit(make("temps"), from_arrays(*examples), checkpoint=tmp_path / "c")
    assert (tmp_path / "c").read_text() == "thesis"


@pytest.mark.parametrize("text", ["{", "5", "[1]"])
def test_a_checkpoint_whose_note_is_damaged(text: str, examples, tmp_path: Path) -> None:
    (tmp_path / "about.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"about\.json cannot be read"):
        fit(make("temps"), from_arrays(*examples), checkpoint=tmp_path)
