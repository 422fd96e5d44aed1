"""Sources: every kind gives the same rows in order, from any row on, and says what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from hokical.calibrators import make
from hokical.files import DataFileError
from hokical.noise import Gaussian
from hokical.streams import Source, fit, from_arrays, from_chunks, open_source
from hokical.streams.chunks import Chunk, reblocked, skipped
from hokical.streams.datasets import ParquetSource
from hokical.streams.sources import OneShotSource


def rows_of(source: Source, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
    chunks = list(source.chunks(start))
    logits = np.concatenate([chunk.logits for chunk in chunks])
    return logits, np.concatenate([np.asarray(chunk.labels) for chunk in chunks])


def check_rows(source: Source, examples: tuple[np.ndarray, np.ndarray]) -> None:
    """All rows, and again, and from the middle of a chunk."""
    logits, labels = examples
    for start in (0, 0, 1, 1234, 3999):
        found = rows_of(source, start)
        assert_array_equal(found[0], logits[start:])
        assert_array_equal(found[1], labels[start:])
    assert source.n_classes == 5
    assert source.n_rows in (None, 4000)


def cut(examples: tuple[np.ndarray, np.ndarray], size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    logits, labels = examples
    return [(logits[i : i + size], labels[i : i + size]) for i in range(0, len(labels), size)]


@given(sizes=st.lists(st.integers(0, 9), max_size=8), rows=st.integers(1, 12))
def test_reblocking_keeps_rows_and_order(sizes: list[int], rows: int) -> None:
    whole = np.arange(2 * sum(sizes)).reshape(-1, 2)
    ends = np.cumsum(sizes)
    parts = [
        Chunk(whole[end - size : end], whole[end - size : end, 0])
        for size, end in zip(sizes, ends, strict=True)
    ]
    found = list(reblocked(parts, rows))
    assert [chunk.n_rows for chunk in found[:-1]] == [rows] * (len(found) - 1)
    if found:
        assert 0 < found[-1].n_rows <= rows
        assert_array_equal(np.concatenate([chunk.logits for chunk in found]), whole)
        assert_array_equal(np.concatenate([np.asarray(c.labels) for c in found]), whole[:, 0])
    else:
        assert whole.size == 0


@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), skip=st.integers(0, 20))
def test_skipping_leaves_the_rest(sizes: list[int], skip: int) -> None:
    whole = np.arange(2 * sum(sizes)).reshape(-1, 2)
    ends = np.cumsum(sizes)
    parts = [Chunk(whole[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    found = [chunk.logits for chunk in skipped(parts, skip)]
    assert_array_equal(np.concatenate([*found, whole[:0]]), whole[skip:])


def test_lists_functions_and_mappings(examples) -> None:
    chunks = cut(examples, 333)
    check_rows(from_chunks(chunks), examples)
    check_rows(from_chunks(lambda: iter(chunks)), examples)
    check_rows(from_chunks([{"logits": z, "labels": y} for z, y in chunks]), examples)


def test_an_iterator_is_gone_through_once(examples) -> None:
    source = from_chunks(iter(cut(examples, 500)))
    assert isinstance(source, OneShotSource)
    assert source.n_classes == 5  # a look at the first chunk loses nothing
    assert_array_equal(rows_of(source)[0], examples[0])
    with pytest.raises(ValueError, match=r"can be gone through once, and it has been\. Give"):
        list(source.chunks())


def test_arrays_and_maps(examples, tmp_path) -> None:
    logits, labels = examples
    check_rows(from_arrays(logits, labels, chunk_rows=700), examples)
    np.save(tmp_path / "val_logits.npy", logits)
    np.save(tmp_path / "val_labels.npy", labels)
    check_rows(open_source(tmp_path / "val_logits.npy"), examples)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_archives_mapped_or_unpacked_in_slices(examples, tmp_path, save, order) -> None:
    logits, labels = examples
    save(tmp_path / "v.npz", val_logits=np.asarray(logits, order=order), val_labels=labels)
    source = open_source(tmp_path / "v.npz")
    stored = source.logits  # type: ignore[attr-defined]
    if save is np.savez:
        assert isinstance(stored, np.memmap)
    elif order == "C":
        assert not isinstance(stored, np.ndarray)
    check_rows(source, examples)


@pytest.mark.parametrize("listed", [False, True])
def test_parquet_folders(examples, tmp_path, listed) -> None:
    write_parquet(tmp_path, examples, n_files=3, listed=listed)
    source = open_source(tmp_path)
    assert source.n_rows == 4000
    check_rows(source, examples)
    check_rows(open_source(tmp_path / "part-*.parquet"), examples)
    dataset = pytest.importorskip("pyarrow.dataset")
    check_rows(open_source(dataset.dataset(tmp_path)), examples)


def test_parquet_weights_and_splits(examples, tmp_path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    logits, labels = examples
    columns = {f"logit_{k}": logits[:, k] for k in range(5)}
    split = np.where(np.arange(4000) % 3 == 0, "test", "valid")
    parquet.write_table(
        arrow.table(columns | {"label": labels, "weight": np.arange(4000.0), "split": split}),
        tmp_path / "a.parquet",
    )
    for part, kept in (("test", split == "test"), ("val", split == "valid")):
        source = open_source(tmp_path / "a.parquet", split=part)
        assert_array_equal(rows_of(source)[0], logits[kept])
        assert_array_equal(rows_of(source, 1000)[1], labels[kept][1000:])
        weights = np.concatenate([np.asarray(chunk.weights) for chunk in source])
        assert_array_equal(weights, np.flatnonzero(kept))


def test_files_with_other_columns_are_named(examples, tmp_path) -> None:
    logits, labels = examples
    for name, data in (("whole", examples), ("less", (logits[:9, :4], labels[:9] % 4))):
        (tmp_path / name).mkdir()
        write_parquet(tmp_path / name, data, n_files=1)
    files = [tmp_path / name / "part-0.parquet" for name in ("whole", "less")]
    with pytest.raises(DataFileError, match=r"less.*expected the columns of part-0.*`logit_4` is"):
        rows_of(ParquetSource(files))


def test_spooled_chunks_must_be_of_one_kind(examples) -> None:
    logits, labels = examples
    mixed = iter([(logits, labels), (logits.astype(np.float32), labels)])
    with pytest.raises(ValueError, match="`logits` of all chunks must be of one kind"):
        fit(make("temps"), mixed, spool=True)


def test_zarr(examples, tmp_path) -> None:
    zarr = pytest.importorskip("zarr")
    logits, labels = examples
    group = zarr.open_group(str(tmp_path / "v.zarr"), mode="w")
    group.create_array("logits", data=logits, chunks=(300, 5))
    group.create_array("labels", data=labels, chunks=(1000,))
    check_rows(open_source(tmp_path / "v.zarr"), examples)
    check_rows(from_arrays(group["logits"], group["labels"]), examples)


def test_formats_that_cannot_be_cut_are_read_at_once(examples, tmp_path) -> None:
    header = "logit_0,logit_1,logit_2,logit_3,logit_4,label"
    table = np.column_stack(examples)
    np.savetxt(tmp_path / "v.csv", table, delimiter=",", header=header, comments="", fmt="%.17g")
    check_rows(open_source(tmp_path / "v.csv"), examples)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: from_chunks(3), "must be a sequence of chunks, a function"),
        (lambda: fit(make("temps"), np.zeros((3, 2))), "must not be an array; got ndarray"),
        (lambda: list(from_chunks([3]).chunks()), r"a chunk must be logits \(n, classes\), or a"),
        (lambda: list(from_chunks([np.zeros(3)]).chunks()), r"2-D \(n, classes\); got shape \(3,"),
        (
            lambda: list(from_chunks([(np.zeros((3, 2)), np.zeros(2))]).chunks()),
            r"one entry per row of its logits; got shape \(2,\) beside \(3, 2\)",
        ),
        (lambda: from_arrays(np.zeros((3, 2)), np.zeros(4, int)), "got 4 for 3 rows"),
        (lambda: from_arrays([[1.0, 2.0]]), "For chunks in a list or an iterator use"),
        (lambda: from_chunks([]).n_classes, "at least one row; got none"),
    ],
)
def test_what_is_wrong_is_said(make, words) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_folders_without_data_and_patterns_without_files(tmp_path) -> None:
    with pytest.raises(DataFileError, match=r"folder of \.parquet files or a Zarr store"):
        open_source(tmp_path)
    with pytest.raises(DataFileError, match="no file matches"):
        open_source(tmp_path / "*.parquet")


@settings(max_examples=10)
@given(size=st.integers(1, 1500))
def test_bad_rows_are_found_in_whatever_chunk(size: int) -> None:
    from hokical import Hoki

    logits, labels = np.zeros((3000, 3)), np.zeros(3000, int)
    logits[2500, 1] = np.nan
    with pytest.raises(ValueError, match=r"got NaN in row \d+, column 1\..* from row \d+ of the"):
        Hoki(noise=Gaussian(1.0)).fit(from_arrays(logits, labels, chunk_rows=size))


def write_parquet(folder, examples, *, n_files, listed=False):
    """The examples in that many files."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    logits, labels = examples
    for i, rows in enumerate(np.array_split(np.arange(len(labels)), n_files)):
        if listed:
            columns = {"logits": list(logits[rows])}
        else:
            columns = {f"logit_{k}": logits[rows, k] for k in range(logits.shape[1])}
        table = arrow.table(columns | {"label": labels[rows]})
        parquet.write_table(table, folder / f"part-{i}.parquet", row_group_size=200)
