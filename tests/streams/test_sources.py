"""Sources: every kind gives the same rows in order, from any row on, and says what
is wrong.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import hokical
from hokical import Gaussian, Hoki
from hokical._core.reading import Rows
from hokical.calibrators import make
from hokical.io import DataFileError
from hokical.streams import fit, open_source, reblock, rows_per_chunk
from tests.conftest import max_examples, synthetic_logits


def rows_of(source: Any) -> tuple[np.ndarray, np.ndarray]:
    chunks = list(source)
    logits = np.concatenate([chunk.scores for chunk in chunks])
    return logits, np.concatenate([np.asarray(chunk.labels) for chunk in chunks])


def check_rows(source: Any, examples: tuple[np.ndarray, np.ndarray]) -> None:
    """All rows, and again."""
    logits, labels = examples
    for _ in range(2):
        found = rows_of(source)
        assert_array_equal(found[0], logits)
        assert_array_equal(found[1], labels)
    assert source.n_classes == 5
    assert source.n_rows in (None, 4000)


def cut(
    examples: tuple[np.ndarray, np.ndarray], size: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    logits, labels = examples
    return [
        (logits[i : i + size], labels[i : i + size])
        for i in range(0, len(labels), size)
    ]


@given(sizes=st.lists(st.integers(0, 9), max_size=8), rows=st.integers(1, 12))
def test_reblocking_keeps_rows_and_order(sizes: list[int], rows: int) -> None:
    whole = np.arange(2 * sum(sizes)).reshape(-1, 2)
    ends = np.cumsum(sizes)
    parts = [
        Rows(whole[end - size : end], whole[end - size : end, 0])
        for size, end in zip(sizes, ends, strict=True)
    ]
    found = list(reblock(parts, rows))
    assert [chunk.n_rows for chunk in found[:-1]] == [rows] * (len(found) - 1)
    if found:
        assert 0 < found[-1].n_rows <= rows
        assert_array_equal(np.concatenate([chunk.scores for chunk in found]), whole)
        assert_array_equal(
            np.concatenate([np.asarray(c.labels) for c in found]), whole[:, 0]
        )
    else:
        assert whole.size == 0


def test_lists_functions_and_mappings(examples) -> None:
    chunks = cut(examples, 333)
    check_rows(open_source(chunks), examples)
    check_rows(open_source(lambda: iter(chunks)), examples)
    check_rows(open_source([{"logits": z, "labels": y} for z, y in chunks]), examples)


def test_an_iterator_is_gone_through_once(examples) -> None:
    source = open_source(iter(cut(examples, 500)))
    assert not source.repeatable
    assert source.n_classes == 5  # a look at the first chunk loses nothing
    assert_array_equal(rows_of(source)[0], examples[0])
    with pytest.raises(ValueError, match=r"can be used once, and it has been\. Give"):
        list(source)


def test_arrays_and_maps(examples, tmp_path) -> None:
    logits, labels = examples
    check_rows(open_source(logits, labels, chunk_rows=700), examples)
    np.save(tmp_path / "val_logits.npy", logits)
    np.save(tmp_path / "val_labels.npy", labels)
    check_rows(open_source(tmp_path / "val_logits.npy"), examples)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_archives(examples, tmp_path, save, order) -> None:
    logits, labels = examples
    save(
        tmp_path / "v.npz",
        val_logits=np.asarray(logits, order=order),
        val_labels=labels,
    )
    check_rows(open_source(tmp_path / "v.npz"), examples)


@pytest.mark.sample(1)
@pytest.mark.parametrize("listed", [False, True])
def test_parquet_folders(examples, tmp_path, listed) -> None:
    write_parquet(tmp_path, examples, n_files=3, listed=listed)
    source = open_source(tmp_path)
    assert source.n_rows == 4000
    check_rows(source, examples)
    check_rows(open_source(tmp_path / "part-*.parquet"), examples)
    dataset = pytest.importorskip("pyarrow.dataset")
    check_rows(open_source(dataset.dataset(tmp_path)), examples)


def test_parquet_weights(examples, tmp_path) -> None:
    arrow, parquet = (
        pytest.importorskip("pyarrow"),
        pytest.importorskip("pyarrow.parquet"),
    )
    logits, labels = examples
    columns = {f"logit_{k}": logits[:, k] for k in range(5)}
    table = arrow.table(columns | {"label": labels, "weight": np.arange(4000.0)})
    parquet.write_table(table, tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    check_rows(source, examples)
    weights = np.concatenate([np.asarray(chunk.weights) for chunk in source])
    assert_array_equal(weights, np.arange(4000.0))
    parquet.write_table(
        table.rename_columns([*columns, "label", "split"]), tmp_path / "a.parquet"
    )
    with pytest.raises(DataFileError, match="found a column `split`"):
        open_source(tmp_path / "a.parquet")


def test_files_with_other_columns_are_named(examples, tmp_path) -> None:
    logits, labels = examples
    for name, data in (("whole", examples), ("less", (logits[:9, :4], labels[:9] % 4))):
        (tmp_path / name).mkdir()
        write_parquet(tmp_path / name, data, n_files=1)
    files = [tmp_path / name / "part-0.parquet" for name in ("whole", "less")]
    with pytest.raises(
        DataFileError, match=r"less.*expected the columns of part-0.*`logit_4` is"
    ):
        rows_of(open_source(files))


def test_chunks_may_be_of_several_types(examples) -> None:
    logits, labels = examples[0].astype(np.float32), examples[1]
    mixed = [
        (logits[:1500], labels[:1500]),
        (logits[1500:].astype(np.float64), labels[1500:]),
    ]
    known = fit(make("temps"), open_source(mixed)).temperature_
    assert fit(make("temps"), iter(mixed)).temperature_ == known


@pytest.mark.parametrize(
    "kinds", [(np.int64, np.int32), (np.int32, np.int64), (np.uint8, np.int8)]
)
def test_labels_may_be_of_several_whole_kinds(examples, kinds) -> None:
    logits, labels = examples
    mixed = iter(
        [
            (logits[:1000], labels[:1000].astype(kinds[0])),
            (logits[1000:], labels[1000:].astype(kinds[1])),
        ]
    )
    found = fit(make("temps"), mixed)
    assert found.temperature_ == fit(make("temps"), open_source(*examples)).temperature_


def test_formats_that_cannot_be_cut_are_read_at_once(examples, tmp_path) -> None:
    header = "logit_0,logit_1,logit_2,logit_3,logit_4,label"
    table = np.column_stack(examples)
    np.savetxt(
        tmp_path / "v.csv",
        table,
        delimiter=",",
        header=header,
        comments="",
        fmt="%.17g",
    )
    check_rows(open_source(tmp_path / "v.csv"), examples)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: open_source(3), "chunks or a function that returns them"),
        (lambda: fit(make("temps"), np.zeros((3, 2))), "labels are needed"),
        (
            lambda: list(open_source([3])),
            r"a chunk must be logits \(n, classes\), or a",
        ),
        (
            lambda: list(open_source([np.zeros(3)])),
            r"chunk must be logits \(n, classes\); got shape \(3,",
        ),
        (
            lambda: list(open_source([(np.zeros((3, 2)), np.zeros(2))])),
            r"one entry per row \(3\); got shape \(2,\)",
        ),
        (
            lambda: list(
                open_source([(np.zeros((3, 2)), np.zeros(3, int), np.ma.ones(3))])
            ),
            "`sample_weight` must not be a masked array",
        ),
        (
            lambda: open_source(np.zeros((3, 2)), np.zeros(4, int)),
            r"per row \(3\); got shape \(4,\)",
        ),
        (
            lambda: open_source(np.zeros(3)),
            r"must have a shape \(n, classes\); got \(3,\)",
        ),
        (lambda: open_source([]).n_classes, "at least one row; got none"),
    ],
)
def test_what_is_wrong_is_said(make, words) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_folders_without_data_and_patterns_without_files(tmp_path) -> None:
    with pytest.raises(DataFileError, match=r"expected \.parquet files; found none"):
        open_source(tmp_path)
    with pytest.raises(DataFileError, match=r"expected \.parquet files; found none"):
        open_source(tmp_path / "*.parquet")


def test_a_shared_iterator_keeps_its_first_chunk(examples) -> None:
    shared = iter(cut(examples, 500))
    cal = fit(Hoki(noise=Gaussian(4.0)), lambda: shared)
    assert cal.table_.total == 4000
    with pytest.raises(ValueError, match="at least one row; got none"):
        fit(Hoki(noise=Gaussian(4.0)), lambda: shared)


def test_a_function_is_called_once_per_pass(examples) -> None:
    calls = []

    def chunks():
        calls.append(1)
        return iter(cut(examples, 500))

    source = open_source(chunks)
    assert source.n_classes == source.first_chunk().n_classes == 5
    assert_array_equal(rows_of(source)[0], examples[0])
    assert len(calls) == 1
    assert_array_equal(rows_of(source)[0], examples[0])
    assert len(calls) == 2


def test_a_second_pass_with_fewer_rows_is_refused(examples, monkeypatch) -> None:
    # So that Hoki reads twice.
    monkeypatch.setattr("hokical._fitting.examples.MOST_LOGITS", 10_000)
    shared = iter(cut(examples, 500))
    with pytest.raises(ValueError, match="same rows in every pass; got 0 after 4000"):
        fit(Hoki(), lambda: shared)
    lengths = iter([8, 7])
    with pytest.raises(
        ValueError, match=r"got 3500 after 4000.*must return a new iterator"
    ):
        fit(Hoki(), lambda: cut(examples, 500)[: next(lengths)])


def test_readers_of_a_compressed_archive_do_not_meet(examples, tmp_path) -> None:
    np.savez_compressed(
        tmp_path / "v.npz", val_logits=examples[0], val_labels=examples[1]
    )
    source = open_source(tmp_path / "v.npz")
    source.chunk_rows = 50  # type: ignore[attr-defined]
    with ThreadPoolExecutor(4) as readers:
        for logits, labels in readers.map(lambda _: rows_of(source), range(8)):
            assert_array_equal(logits, examples[0])
            assert_array_equal(labels, examples[1])


def test_datasets_keep_their_filter_and_tables_are_taken(examples, tmp_path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import RecordBatchReader, dataset

    write_parquet(tmp_path, examples, n_files=3)
    whole = dataset.dataset(tmp_path)
    check_rows(open_source(whole.to_table()), examples)
    kept = examples[1] != 2
    source = open_source(whole.filter(dataset.field("label") != 2))
    assert source.n_rows == kept.sum()
    assert_array_equal(rows_of(source)[0], examples[0][kept])
    assert_array_equal(rows_of(source)[1], examples[1][kept])
    assert fit(Hoki(noise=Gaussian(4.0)), whole.to_table()).table_.total == 4000
    batch = whole.to_table().combine_chunks().to_batches()[0]
    check_rows(open_source(batch), examples)
    reader = RecordBatchReader.from_batches(batch.schema, [batch])
    check_rows(open_source(reader), examples)


def test_anything_with_an_arrow_stream_is_a_table(examples) -> None:
    arrow = pytest.importorskip("pyarrow")
    columns = {f"logit_{k}": examples[0][:, k] for k in range(5)} | {
        "label": examples[1]
    }
    table = arrow.table(columns)

    class Frame:
        """A frame of another library."""

        shape = (4000, 6)

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return table.__arrow_c_stream__(requested_schema)

    check_rows(open_source(Frame()), examples)
    check_rows(open_source(pytest.importorskip("pandas").DataFrame(columns)), examples)


@pytest.mark.parametrize("kind", ["probabilities", "logits"])
def test_tables_of_other_names_and_kinds(examples, tmp_path, kind) -> None:
    arrow, parquet = (
        pytest.importorskip("pyarrow"),
        pytest.importorskip("pyarrow.parquet"),
    )
    logits, labels = examples
    names = ("cat", "dog", "bird", "fish", "cow")
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = (
        powers / powers.sum(axis=1, keepdims=True)
        if kind == "probabilities"
        else logits
    )
    columns = dict(zip(names, scores.T, strict=True)) | {
        "truth": np.array(names)[labels]
    }
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match="--score-columns cat,dog,bird,fish"):
        open_source(tmp_path)
    source = open_source(tmp_path, score_columns=names, label_column="truth")
    assert source.classes == names
    found = rows_of(source)
    expected = np.log(scores) if kind == "probabilities" else logits
    np.testing.assert_allclose(found[0], expected)
    assert_array_equal(found[1], labels)


@pytest.mark.parametrize(
    ("days", "others"), [((1, 2), ""), (("mon", "tue"), "target=7")]
)
def test_partitions_are_columns(examples, tmp_path, days, others) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from pyarrow import dataset

    logits, labels = examples
    names = ("cat", "dog", "bird", "fish", "cow")
    for day, rows in zip(days, (slice(0, 3000), slice(3000, None)), strict=True):
        folder = tmp_path / f"day={day}" / others / f"weight={len(labels[rows])}"
        folder.mkdir(parents=True)
        columns = dict(zip(names, logits[rows].T, strict=True)) | {
            "label": labels[rows]
        }
        pq.write_table(pa.table(columns), folder / "a.parquet")
    for data in (tmp_path, dataset.dataset(tmp_path, partitioning="hive")):
        source = open_source(data, classes=names)
        check_rows(source, examples)
        assert source.classes == names
        assert {w for chunk in source for w in chunk.weights} == {1000, 3000}


def test_lists_are_read_a_block_at_a_time(examples, tmp_path) -> None:
    logits = np.tile(examples[0][:600], (1, 200))
    write_parquet(tmp_path, (logits, examples[1][:600]), n_files=1, listed=True)
    from pyarrow import dataset

    for data in (tmp_path, dataset.dataset(tmp_path)):
        source = open_source(data)
        assert max(chunk.n_rows for chunk in source) <= rows_per_chunk(1000) < 600
        assert_array_equal(rows_of(source)[0], logits)


@max_examples(10)
@given(size=st.integers(1, 1500))
def test_bad_rows_are_found_in_whatever_chunk(size: int) -> None:
    logits, labels = np.zeros((3000, 3)), np.zeros(3000, int)
    logits[2500, 1] = np.nan
    with pytest.raises(ValueError, match="got NaN in row 2500, column 1"):
        fit(Hoki(noise=Gaussian(1.0)), open_source(logits, labels, chunk_rows=size))


def write_parquet(folder, examples, *, n_files, listed=False):
    """The examples in that many files."""
    arrow, parquet = (
        pytest.importorskip("pyarrow"),
        pytest.importorskip("pyarrow.parquet"),
    )
    logits, labels = examples
    for i, rows in enumerate(np.array_split(np.arange(len(labels)), n_files)):
        if listed:
            columns = {"logits": list(logits[rows])}
        else:
            columns = {f"logit_{k}": logits[rows, k] for k in range(logits.shape[1])}
        table = arrow.table(columns | {"label": labels[rows]})
        parquet.write_table(table, folder / f"part-{i}.parquet", row_group_size=200)


def test_labels_of_another_format(tmp_path) -> None:
    np.save(tmp_path / "logits.npy", np.eye(3))
    (tmp_path / "labels.csv").write_text("label\n0\n1\n2\n")
    source = open_source(tmp_path / "logits.npy", tmp_path / "labels.csv")
    assert_array_equal(rows_of(source)[1], [0, 1, 2])


def test_frames_are_sources_with_labels_beside_them() -> None:
    """By name, or as an array; columns in the order of the fit, rows in one order."""
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(300, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    frame = pd.DataFrame(logits, columns=["logit_a", "logit_b", "logit_c"])
    plain = make("temps").fit(logits, labels)
    for source in (
        open_source(frame, labels),
        open_source(frame, pd.Series(labels)),
        open_source(frame.assign(truth=labels), "truth"),
        open_source(pa.table(frame.assign(truth=labels)), label_column="truth"),
        open_source(frame.assign(truth=np.array(["a", "b", "c"])[labels]), "truth"),
        [(frame, np.array(["a", "b", "c"])[labels])],
    ):
        found = fit(make("temps"), source)
        assert found.temperature_ == pytest.approx(plain.temperature_, rel=1e-12)
    assert found.class_names == ("a", "b", "c")
    turned = open_source(
        frame[["logit_c", "logit_a", "logit_b"]], labels, fitted_by=found
    )
    assert_array_equal(rows_of(turned)[0], logits)


def a_table(logits: np.ndarray) -> Any:
    columns = {f"z{k}": column for k, column in enumerate(logits.T)}
    return pytest.importorskip("pyarrow").table(columns)


@pytest.mark.parametrize(
    "work",
    [
        lambda z, y: open_source([(z, y)], y),
        lambda z, y: open_source(lambda: iter([(z, y)]), sample_weight=np.ones(len(y))),
        lambda z, y: open_source(open_source(z, y), y),
        lambda z, y: open_source(a_table(z), sample_weight=y),
    ],
)
def test_labels_and_weights_that_would_be_ignored_are_refused(work) -> None:
    with pytest.raises(TypeError, match="cannot stand beside such a source"):
        work(np.zeros((4, 2)), np.zeros(4, int))


def test_columns_of_ensembles_in_chunks_are_put_in_order() -> None:
    columns = ["cat", "dog", "cow"]
    logits, labels = synthetic_logits(300, 3, seed=5)
    frames = [pd.DataFrame(scale * logits, columns=columns) for scale in (1.0, 0.5)]
    cal = hokical.make("temps").fit(hokical.Ensemble(frames), labels)
    turned = hokical.Ensemble([frame[columns[::-1]] for frame in frames])
    chunks = [(turned[:90], labels[:90]), (turned[90:], labels[90:])]
    streamed = hokical.evaluate(cal, chunks).score("log_loss")
    whole = hokical.evaluate(cal, hokical.Ensemble(frames), labels).score("log_loss")
    assert streamed == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(
    "function", [fit, hokical.streams.predict, hokical.streams.certify]
)
def test_what_is_no_calibrator_is_named(function: Any) -> None:
    rows = [(np.zeros((4, 2)), [0, 1, 0, 1])]
    with pytest.raises(TypeError, match=r"`calibrator` must be.*make\('auto'\)"):
        function("auto", rows)
    with pytest.raises(TypeError, match=r"of logits; got Multilabel.*in memory"):
        function(hokical.MultilabelCalibrator(), rows)
