"""Every format gives the same examples, found by content; names and parts as people
spell them.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from hokical import make
from hokical.io import DataFileError, read_examples
from tests.io.samples import LIBRARIES, TEST, VAL, WRITERS, write_npz

PARTS: dict[str, tuple[np.ndarray, np.ndarray]] = {"val": VAL, "test": TEST}


def same(found, expected) -> bool:
    logits, labels = expected
    return np.array_equal(found.scores.values, logits) and np.array_equal(
        found.labels, labels
    )


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("named", ["right", "wrong"])
def test_every_format_gives_the_same(
    tmp_path: Path, kind: str, split: str, named: str
) -> None:
    if kind in LIBRARIES:
        pytest.importorskip(LIBRARIES[kind])
    path = WRITERS[kind](tmp_path / f"data.{kind}")
    if named == "wrong":
        path = path.rename(tmp_path / "data.bin")
    found = read_examples(path, split=split)
    assert same(found, PARTS[split if kind == "npz" else "val"])
    assert found.part == (split if kind == "npz" else None)


@pytest.mark.parametrize(
    "names",
    [
        ("logits", "labels"),
        ("Logits", "label"),
        ("val_logits", "val_y"),
        ("VAL_logits", "labels"),
    ],
)
def test_names_of_arrays(tmp_path: Path, names: tuple[str, str]) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **dict(zip(names, VAL, strict=True)))
    assert same(read_examples(path), VAL)


def test_the_wanted_part_wins_over_a_plain_pair(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, logits=TEST[0], labels=TEST[1], val_logits=VAL[0], val_labels=VAL[1])
    assert same(read_examples(path, split="val"), VAL)
    assert same(read_examples(path, split="test"), TEST)


def test_npy_pair_is_found_by_name_or_given(tmp_path: Path) -> None:
    np.save(tmp_path / "val_logits.npy", VAL[0])
    np.save(tmp_path / "val_labels.npy", VAL[1])
    np.save(tmp_path / "other.npy", VAL[1][:, None].astype(np.float32))
    assert same(read_examples(tmp_path / "val_logits.npy"), VAL)
    assert same(
        read_examples(tmp_path / "val_logits.npy", labels=tmp_path / "other.npy"), VAL
    )


def test_npy_stays_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VAL[0])
    found = read_examples(tmp_path / "x.npy", labelled="none")
    assert isinstance(found.scores.values.base, np.memmap)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_delimiters_byte_order_mark_and_blank_lines(
    tmp_path: Path, delimiter: str
) -> None:
    path = tmp_path / "data.csv"
    text = "logit_0,logit_1,label\n1.5,-inf,0\n\n2,3,1\n".replace(",", delimiter)
    path.write_text("\ufeff" + text, encoding="utf-8")
    found = read_examples(path)
    assert found.scores.values.tolist() == [[1.5, -np.inf], [2.0, 3.0]]
    assert found.labels.tolist() == [0, 1]


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "1.5,2.5\n3,4\n"])
def test_csv_without_a_header_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(
        DataFileError, match=r"found numbers in line 1\. Name the columns there"
    ):
        read_examples(tmp_path / "a.csv")


def test_numbered_columns_go_by_their_numbers(tmp_path: Path) -> None:
    header = ",".join(f"logit_{k}" for k in sorted(range(12), key=str))
    values = ",".join(str(k) for k in sorted(range(12), key=str))
    (tmp_path / "a.csv").write_text(f"{header},label\n{values},3\n")
    assert read_examples(tmp_path / "a.csv").scores.values.tolist() == [list(range(12))]


def test_parquet_column_of_lists(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"logits": VAL[0].tolist(), "label": VAL[1]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert same(read_examples(tmp_path / "a.parquet"), VAL)
    ragged = pyarrow.table({"logits": [[1.0, 2.0], [1.0]], "label": [0, 1]})
    pyarrow.parquet.write_table(ragged, tmp_path / "b.parquet")
    with pytest.raises(DataFileError, match="as many scores in every row"):
        read_examples(tmp_path / "b.parquet")


@pytest.mark.parametrize("kind", LIBRARIES)
def test_missing_library_is_named_with_its_extra(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(LIBRARIES[kind])
    path = WRITERS[kind](tmp_path / f"data.{kind}")
    monkeypatch.setitem(sys.modules, LIBRARIES[kind], None)
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(ImportError, match=rf"\[{kind}\]"):
        read_examples(path)


def test_fitted_calibrator_decides_the_number_of_classes(tmp_path: Path) -> None:
    fitted = make("uncalibrated").fit(np.eye(5), range(5))
    with pytest.raises(DataFileError, match="expecting 5"):
        read_examples(write_npz(tmp_path / "a.npz"), fitted_by=fitted)


@pytest.mark.parametrize("width", [2, 3])
def test_csv_header_of_numbers_is_no_row(tmp_path: Path, width: int) -> None:
    logits = VAL[0][:, :width]
    header = ",".join(str(k) for k in range(width))
    np.savetxt(
        tmp_path / "logits.csv", logits, delimiter=",", header=header, comments=""
    )
    found = read_examples(tmp_path / "logits.csv", labelled="none")
    assert np.array_equal(found.scores.values, logits)


@pytest.mark.parametrize("length", [2, 640, 896, 1152, 1408])
def test_safetensors_that_look_like_a_pickle_are_refused(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}".ljust(length))
    with pytest.raises(
        DataFileError, match=r"found another kind\. Save .* `numpy\.savez`"
    ):
        read_examples(path)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "jsonl.gz"])
def test_json_lines_are_tables(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(20, 3)), rng.integers(3, size=20)
    rows = [
        {
            "text": 'with, commas;\nand "quotes"',
            "logits": row.tolist(),
            "label": int(label),
        }
        for row, label in zip(logits, labels, strict=True)
    ]
    rows[3]["note"] = {"nested": True}
    path = tmp_path / f"val.{suffix}"
    text = (
        json.dumps(rows, indent=1)
        if suffix == "json"
        else "\n".join(map(json.dumps, rows))
    )
    path.write_bytes(
        gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode()
    )
    found = read_examples(path)
    assert same(found, (logits, labels))


def test_errors_in_json_lines_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "val.jsonl"
    path.write_text(
        '{"prob_0": 0.5, "prob_1": 0.5, "label": 0}\n{"prob_0": "x", "label": 1}\n'
    )
    with pytest.raises(DataFileError, match=r"line 2, column `prob_0`; found 'x'"):
        read_examples(path)
    path.write_text('{"prob_0": 0.5, "label": 0}\n[1, 2]\n')
    with pytest.raises(DataFileError, match="entry 1 is no JSON object"):
        read_examples(path)


def test_lines_of_json_end_where_json_says(tmp_path: Path) -> None:
    answers = ["one\u2028line", "one\x85line", "one\x0cline"]
    lines = [
        json.dumps({"answer": text, "confidence": 0.9, "right": 1}, ensure_ascii=False)
        for text in answers
    ]
    path = tmp_path / "answers.jsonl"
    path.write_bytes("\r\n".join([*lines, "", lines[0]]).encode())
    assert read_examples(path).labels.size == 4
    path.write_text("\n".join([*lines, "{oops", lines[0]]))
    with pytest.raises(DataFileError, match=r"quotes in line 4, column 2\. Copy"):
        read_examples(path)
