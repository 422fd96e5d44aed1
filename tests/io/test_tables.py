"""Tables as analysts have them: names of classes, probabilities, one score, ids, compression."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from hokical import from_binary_scores, from_probabilities
from hokical.io import DataFileError, Wanted, read_examples, write_table

SCORES = np.array([[2.0, 0.5, -1.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]])
NAMED = "id,cat,dog,bird,place,label\n" + "\n".join(
    f"00{row},{','.join(map(str, scores))},{place},{label}"
    for row, (scores, place, label) in enumerate(
        zip(SCORES, ("north", "", '"south, far"'), ("cat", "bird", "bird"), strict=True)
    )
)
CLASSES = ("cat", "dog", "bird")


def put(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_labels_may_be_names_of_the_classes(tmp_path: Path) -> None:
    found = read_examples(put(tmp_path, NAMED), wanted=Wanted(classes=CLASSES))
    assert found.labels is not None
    assert found.labels.tolist() == [0, 2, 2]
    assert found.classes == CLASSES
    np.testing.assert_array_equal(found.logits.values, SCORES)


def test_classes_say_the_order_of_the_columns(tmp_path: Path) -> None:
    found = read_examples(put(tmp_path, NAMED), wanted=Wanted(classes=("bird", "cat", "dog")))
    np.testing.assert_array_equal(found.logits.values, SCORES[:, [2, 0, 1]])
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 0]


def test_names_of_columns_are_names_of_classes(tmp_path: Path) -> None:
    for header in ("cat,dog,label", " cat , dog,label "):
        found = read_examples(put(tmp_path, f"{header}\n1,2,dog\n3,1, dog\n"))
        assert found.classes == ("cat", "dog")
        assert found.labels is not None
        assert found.labels.tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_whole_numbers_beside_logits_are_no_class(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    table = {"cat": rng.normal(size=50), "dog": rng.normal(size=50), "masked": np.full(50, -np.inf)}
    table |= {"label": rng.integers(2, size=50), "age": rng.integers(20, 70, size=50)}
    path = tmp_path / f"table.{kind}"
    frame = pytest.importorskip("pandas").DataFrame(table)
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    with pytest.raises(DataFileError, match=r"`age`, whole numbers, beside others.*--classes"):
        read_examples(path)
    found = read_examples(path, wanted=Wanted(classes=("cat", "dog", "masked")))
    assert found.classes == ("cat", "dog", "masked")


def test_classes_called_by_numbers(tmp_path: Path) -> None:
    path = put(tmp_path, "logit_0,logit_1,label\n1,2,7\n3,1,3\n")
    found = read_examples(path, wanted=Wanted(classes=("3", "7")))
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "wanted", "message"),
    [
        ("cat,dog,label\n1,2,cow\n", Wanted(), "got 'cow' in row 0"),
        ("logit_0,logit_1,label\n1,2,cat\n", Wanted(), "--classes"),
        (NAMED, Wanted(), "`id` beside others.*--classes"),
        ("logit_0,logit_1,label\n1,2,0\n", Wanted(classes=("a",)), "each of the 2 columns"),
        (NAMED, Wanted(classes=CLASSES, keep=("town",)), "`town`, named by --keep"),
        (NAMED, Wanted(binary_score="risk"), "`risk`, named by --binary-score"),
        ("p,label\n1.5,0\n", Wanted(binary_score="p", probabilities=True), r"lie in \[0, 1\]"),
    ],
)
def test_bad_tables_are_named(tmp_path: Path, text: str, wanted: Wanted, message: str) -> None:
    with pytest.raises(DataFileError, match=message):
        read_examples(put(tmp_path, text), wanted=wanted)


@pytest.mark.parametrize("header", ["prob_0,prob_1,label", "no,yes,label", "p_no,p_yes,y"])
def test_probabilities_are_read_if_said_so(tmp_path: Path, header: str) -> None:
    path = put(tmp_path, f"{header}\n0.25,0.75,1\n0.5,0.5,0\n")
    found = read_examples(path, wanted=Wanted(probabilities=True))
    expected = from_probabilities([[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_array_equal(found.logits.values, expected)


@pytest.mark.parametrize("probabilities", [False, True])
def test_one_binary_score(tmp_path: Path, probabilities: bool) -> None:
    path = put(tmp_path, "id,region,score,fraud,label\n1,n,0.25,0.1,no\n2,s,0.75,0.9,yes\n")
    wanted = Wanted(
        binary_score="fraud", probabilities=probabilities, classes=("no", "yes"), keep=("region",)
    )
    found = read_examples(path, wanted=wanted)
    convert = from_probabilities if probabilities else from_binary_scores
    np.testing.assert_array_equal(found.logits.values, convert(np.array([0.1, 0.9])))
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1]
    assert found.kept["region"].tolist() == ["n", "s"]


def test_arrays_in_npz_as_well(tmp_path: Path) -> None:
    path = tmp_path / "val.npz"
    np.savez(path, test_fraud=[0.1, 0.9], labels=[0, 1], names=["a", "b"], classes=["no", "yes"])
    wanted = Wanted(binary_score="fraud", probabilities=True, keep=("names",))
    found = read_examples(path, split="test", wanted=wanted, need_labels=False)
    assert found.classes == ("no", "yes")
    assert found.kept["names"].tolist() == ["a", "b"]
    np.testing.assert_allclose(np.exp(found.logits.values)[:, 1], [0.1, 0.9])


def test_kept_columns_belong_to_the_rows_of_the_part(tmp_path: Path) -> None:
    path = put(tmp_path, "id,a,b,split\n007,1,2,val\n008,2,1,test\n009,0,1,test\n")
    found = read_examples(path, split="test", need_labels=False, wanted=Wanted(keep=None))
    assert found.kept["id"].tolist() == ["008", "009"]
    assert found.logits.n_rows == 2


def test_a_table_of_labels_alone(tmp_path: Path) -> None:
    logits = put(tmp_path, "cat,dog\n1,2\n3,1\n")
    for name, text in (("a.csv", "label\ndog\ncat\n"), ("b.csv", "label\n1\n0\n")):
        found = read_examples(logits, labels=put(tmp_path, text, name))
        assert found.labels is not None
        assert found.labels.tolist() == [1, 0]


def test_compressed_tables(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(NAMED.encode()))
    found = read_examples(path, wanted=Wanted(classes=CLASSES))
    np.testing.assert_array_equal(found.logits.values, SCORES)


def test_zstandard_is_named(tmp_path: Path) -> None:
    (tmp_path / "table.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd\x04\x00")
    with pytest.raises(DataFileError, match=r"compressed by Zstandard\. Unpack it first"):
        read_examples(tmp_path / "table.csv.zst")


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "npz"])
def test_written_tables_are_read_again(tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out.{suffix}"
    columns = {"id": np.array(["007", "a,b", 'say "x"']), "n": np.array([1, 2, 3])}
    write_table(path, columns | {"cat": SCORES[:, 0], "dog": SCORES[:, 1] / 3})
    if suffix == "npz":
        with np.load(path) as arrays:
            assert arrays["id"].tolist() == columns["id"].tolist()
        return
    wanted = Wanted(keep=("id", "n"), classes=("cat", "dog"))
    found = read_examples(path, need_labels=False, wanted=wanted)
    np.testing.assert_array_equal(found.logits.values[:, 1], SCORES[:, 1] / 3)
    assert found.kept["id"].tolist() == columns["id"].tolist()
    assert [int(n) for n in found.kept["n"]] == [1, 2, 3]
