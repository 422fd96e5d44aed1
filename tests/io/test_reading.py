"""Tables and archives by one convention of names, or by explicit names; rows and
their places.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hokical import from_binary_scores, from_probabilities
from hokical.io import DataFileError, read_examples
from hokical.io.examples import encode_labels, options_from

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


def values(found: Any) -> np.ndarray:
    return np.asarray(found.scores.values)


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("logit_0,logit_1,label", "1.5,2,0"),
        ("label,logit_1,logit_0", "0,2,1.5"),
        ("z0,z1,y", "1.5,2,0"),
        ("Logit_1,Logit_2,Label", "1.5,2,0"),
        ("id,logit_no,logit_yes,labels", "7,1.5,2,no"),
    ],
)
def test_logits_by_the_convention(tmp_path: Path, header: str, cells: str) -> None:
    found = read_examples(put(tmp_path, f"{header}\n{cells}\n"))
    assert values(found).tolist() == [[1.5, 2.0]]
    assert found.labels is not None
    assert found.labels.tolist() == [0]
    assert found.about == {"scores": "logits"}
    assert found.classes == (("no", "yes") if "logit_no" in header else ())


@pytest.mark.parametrize("stem", ["prob", "proba", "probability"])
def test_probabilities_by_the_convention_become_logits(
    tmp_path: Path, stem: str
) -> None:
    path = put(tmp_path, f"{stem}_no,{stem}_yes,label\n0.25,0.75,yes\n0.5,0.5,no\n")
    found = read_examples(path)
    expected = from_probabilities([[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_array_equal(values(found), expected)
    assert found.about == {"scores": "probabilities", "zeros": "unlikely"}


def test_confidences_by_the_convention(tmp_path: Path) -> None:
    path = put(tmp_path, "confidence,right,subject\n0.9,True,math\n0.4,no,law\n")
    found = read_examples(path, groups=("subject",))
    assert found.kind == "confidence"
    assert np.asarray(found.scores).tolist() == [0.9, 0.4]
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0]
    assert found.groups is not None
    assert found.groups["subject"].tolist() == ["math", "law"]
    with pytest.raises(DataFileError, match=r"'maybe' in line 3.*Correct or drop"):
        read_examples(put(tmp_path, "confidence,right\n0.9,1\n0.4,maybe\n"))


@pytest.mark.parametrize("options", [{"classes": CLASSES}, {"score_columns": CLASSES}])
def test_columns_of_other_names_are_named(tmp_path: Path, options: Any) -> None:
    found = read_examples(put(tmp_path, NAMED), **options, keep=("place",))
    assert found.labels is not None
    assert found.labels.tolist() == [0, 2, 2]
    assert found.classes == CLASSES
    np.testing.assert_array_equal(values(found), SCORES)
    assert found.kept["place"].tolist() == ["north", "", "south, far"]
    again = ("bird", "cat", "dog")
    name = next(iter(options))
    found = read_examples(put(tmp_path, NAMED), **{name: again})
    np.testing.assert_array_equal(values(found), SCORES[:, [2, 0, 1]])
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 0]


def test_without_names_the_error_shows_the_option(tmp_path: Path) -> None:
    with pytest.raises(DataFileError) as caught:
        read_examples(put(tmp_path, NAMED.replace(",cat\n", ",ant\n")))
    message = str(caught.value)
    assert "found `id`, `cat`, `dog`, `bird`, `place`, `label`" in message
    assert (
        "--score-columns cat,dog,bird." in message
    )  # no id and no text is taken for a class
    with pytest.raises(DataFileError, match=r"expected labels.*--label-column NAME"):
        read_examples(put(tmp_path, "logit_0,logit_1,truth\n1,2,0\n"))


def test_class_indices_are_not_suggested_as_scores(tmp_path: Path) -> None:
    table = "cat,dog,truth\n1.5,2.5,0\n0.2,1.2,1\n"
    with pytest.raises(DataFileError, match=r"--score-columns cat,dog\."):
        read_examples(put(tmp_path, table))
    counts = table.replace(",1\n", ",7\n")  # no index of two classes
    with pytest.raises(DataFileError, match=r"--score-columns cat,dog,truth\."):
        read_examples(put(tmp_path, counts))


def test_columns_named_like_the_labels_are_classes(tmp_path: Path) -> None:
    found = read_examples(put(tmp_path, NAMED))
    assert found.classes == ("cat", "bird")
    assert found.unused == ("dog", "place")  # which no label names
    np.testing.assert_array_equal(values(found), SCORES[:, [0, 2]])
    whole = read_examples(put(tmp_path, NAMED.replace(",bird\n", ",dog\n")))
    assert whole.classes == CLASSES


def test_a_pattern_names_columns_and_classes(tmp_path: Path) -> None:
    path = put(tmp_path, "P(dog),P(cat),truth\n0.25,0.75,cat\n0.5,0.5,dog\n")
    options: Any = {"score_columns": ("P(*)",), "label_column": "truth"}
    found = read_examples(path, **options)
    assert found.classes == ("dog", "cat")
    assert found.about["scores"] == "probabilities"  # by the values
    found = read_examples(path, **options, classes=("cat", "dog"))
    np.testing.assert_allclose(np.exp(values(found)), [[0.75, 0.25], [0.5, 0.5]])
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1]
    with pytest.raises(DataFileError, match=r"columns like Q\(\*\)"):
        read_examples(path, score_columns=("Q(*)",))


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_one_score_is_that_of_class_1(tmp_path: Path, kind: Any) -> None:
    text = "id,risk,label\n1,0.1,no\n2,0.9,yes\n"
    path = put(tmp_path, text)
    options: Any = {"score_columns": ("risk",), "classes": ("no", "yes")}
    with pytest.raises(
        DataFileError, match=r"can be either\..*--probabilities or --logits"
    ):
        read_examples(path, **options)
    found = read_examples(path, kind=kind, **options)
    convert = from_probabilities if kind == "probabilities" else from_binary_scores
    np.testing.assert_array_equal(values(found), convert(np.array([0.1, 0.9])))
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1]
    np.savez(tmp_path / "a.npz", logits=[-1.0, 2.0], labels=[0, 1])
    np.testing.assert_array_equal(
        values(read_examples(tmp_path / "a.npz")), from_binary_scores([-1.0, 2.0])
    )


def test_arrays_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "val.npz"
    np.savez(path, test_fraud=[0.1, 0.9], labels=[0, 1], names=["a", "b"])
    found = read_examples(
        path,
        split="test",
        kind="probabilities",
        score_columns=("fraud",),
        keep=("names",),
    )
    assert found.part == "test"
    assert found.kept["names"].tolist() == ["a", "b"]
    np.testing.assert_allclose(np.exp(values(found))[:, 1], [0.1, 0.9])


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
def test_rows_without_a_value_keep_their_place(tmp_path: Path, kind: str) -> None:
    logits, labels = np.arange(8.0).reshape(4, 2) % 3, np.array([0, 1, 1, 0])
    logits[1, 1] = np.nan
    path = tmp_path / f"t.{kind}"
    if kind == "npz":
        np.savez(
            path, logits=logits, labels=labels, sample_weight=np.arange(4.0), id=labels
        )
    else:
        frame = pytest.importorskip("pandas").DataFrame(
            logits, columns=["logit_0", "logit_1"]
        )
        frame = frame.assign(label=labels, sample_weight=np.arange(4.0), id=labels)
        write = frame.to_csv if kind == "csv" else frame.to_parquet
        write(path, **({"index": False} if kind == "csv" else {}))
    where = "line 3" if kind == "csv" else "row 1"
    with pytest.raises(
        DataFileError, match=rf"a number in {where}, column.*--missing drop"
    ):
        read_examples(path)
    found = read_examples(path, missing="drop", keep=("id",))
    assert found.labels is not None
    assert found.weights is not None
    assert (found.labels.tolist(), found.weights.tolist()) == (
        [0, 1, 0],
        [0.0, 2.0, 3.0],
    )
    assert (found.n_dropped, found.used.tolist()) == (1, [True, False, True, True])
    assert [int(value) for value in found.kept["id"]] == [0, 1, 1, 0]
    assert np.isnan(found.fill(np.array([0.5, 0.6, 0.7]))).tolist() == [
        False,
        True,
        False,
        False,
    ]
    assert found.fill(np.array([1, 2, 3])).tolist() == [1, None, 2, 3]
    assert found.fill(np.array(["a", "b", "c"])).tolist() == ["a", None, "b", "c"]


def test_na_labels_of_r_are_missing(tmp_path: Path) -> None:
    path = put(tmp_path, "logit_a,logit_b,label\n1,2,a\n1,2,NA\n1,2,b\n")
    with pytest.raises(DataFileError, match="got no label in line 3"):
        read_examples(path)
    found = read_examples(path, missing="drop")
    assert found.used.tolist() == [True, False, True]
    some = read_examples(path, labelled="some")
    assert some.labels is not None
    assert some.labels.tolist() == [0, -1, 1]
    named = put(
        tmp_path, "logit_NA,logit_US,label\n1,2,NA\n"
    )  # Namibia is a class here
    assert read_examples(named, missing="drop").n_dropped == 0


def test_errors_name_the_lines_of_the_file(tmp_path: Path) -> None:
    text = "logit_0,logit_1,label\n\n1,2,0\n1,2,0\n\n1,2,7\n"
    with pytest.raises(DataFileError, match=r"got 7 in line 6"):
        read_examples(put(tmp_path, text))
    with pytest.raises(
        DataFileError, match=r"number in line 3, column `logit_1`; found 'x'"
    ):
        read_examples(put(tmp_path, "logit_0,logit_1,label\n1,2,0\n1,x,0\n"))
    quoted = 'logit_0,logit_1,label,note\n1,2,0,"a\nb"\n1,inf,0,c\n'
    with pytest.raises(DataFileError, match=r"\+inf in line 4"):
        read_examples(put(tmp_path, quoted))


@pytest.mark.parametrize("text", ["15,92 %;84,08 %;b", "15.92%;84.08%;b"])
def test_percentages_and_decimal_commas(tmp_path: Path, text: str) -> None:
    path = put(tmp_path, f"P(a);P(b);label\n{text}\n")
    found = read_examples(path, score_columns=("P(*)",))
    np.testing.assert_allclose(np.exp(values(found)), [[0.1592, 0.8408]])
    with pytest.raises(DataFileError, match="decimal point, or put semicolons"):
        read_examples(put(tmp_path, 'prob_a,prob_b,label\n"15,92 %","84,08 %",b\n'))


@pytest.mark.parametrize("names", ["prob_a,prob_b", "logit_a,logit_b", "a,b"])
def test_percentages_without_a_sign_are_refused_as_such(
    tmp_path: Path, names: str
) -> None:
    path = put(tmp_path, f"{names},label\n15.92,84.08,1\n60,40,0\n")
    with pytest.raises(
        DataFileError, match=r"percentages; got 84.08 in line 2, .* sum to 100\. Divide"
    ):
        read_examples(path, score_columns=tuple(names.split(",")))


def test_text_is_utf_8_or_of_windows(tmp_path: Path) -> None:
    text = "logit_0,logit_1,label,city\n1,2,0,K\xf6ln\n"
    (tmp_path / "t.csv").write_bytes(text.encode("utf-8-sig"))
    assert read_examples(tmp_path / "t.csv", keep=("city",)).kept["city"].tolist() == [
        "K\xf6ln"
    ]
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    with pytest.warns(UserWarning, match="is read as Windows-1252") as told:
        found = read_examples(tmp_path / "t.csv", keep=("city",))
    assert told[0].filename == __file__
    assert found.kept["city"].tolist() == ["K\xf6ln"]


def test_true_and_false_may_be_missing() -> None:
    for words in (["true", "NA", "false"], ["True", "", "-1", "FALSE"]):
        known = [{"true": 1, "false": 0}.get(word.lower(), -1) for word in words]
        assert encode_labels(np.array(words), []).tolist() == known
    with pytest.raises(ValueError, match="Name the classes"):
        encode_labels(np.array(["true", "NA", "maybe"]), [])


def test_columns_called_id_are_kept(tmp_path: Path) -> None:
    path = put(tmp_path, "id,Image_ID,logit_0,logit_1,valid\n007,a,1,2,x\n")
    found = read_examples(path, keep=None, labelled="none")
    assert {name: column.tolist() for name, column in found.kept.items()} == {
        "id": ["007"],
        "Image_ID": ["a"],
    }
    assert list(read_examples(path, keep=("all",), labelled="none").kept) == [
        "id",
        "Image_ID",
        "valid",
    ]


def test_a_table_with_a_column_split_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "id,logit_0,logit_1,split\n007,1,2,val\n008,2,1,test\n")
    with pytest.raises(DataFileError, match=r"found a column `split`\. Save its parts"):
        read_examples(path, labelled="none")
    found = read_examples(path, labelled="none", keep=("split",))
    assert found.kept["split"].tolist() == ["val", "test"]


def test_labels_in_another_file(tmp_path: Path) -> None:
    logits = put(tmp_path, "logit_cat,logit_dog\n1,2\n3,1\n")
    tables = {"a": "label\ndog\ncat\n", "c": "n,truth\n5,1\n6,0\n"}
    for name, text in tables.items():
        other = put(tmp_path, text, f"{name}.csv")
        column = "truth" if name == "c" else None
        found = read_examples(logits, labels=other, label_column=column)
        assert found.labels is not None
        assert found.labels.tolist() == [1, 0]


def test_compressed_tables(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(NAMED.encode()))
    np.testing.assert_array_equal(values(read_examples(path, classes=CLASSES)), SCORES)


def test_what_a_calibrator_stores_reads_later_files(tmp_path: Path) -> None:
    path = put(tmp_path, "risk,truth\n0.1,0\n0.9,1\n")
    options: Any = {
        "kind": "probabilities",
        "score_columns": ("risk",),
        "label_column": "truth",
    }
    found = read_examples(path, **options)
    assert options_from(found.about) == {**options, "zeros": "unlikely"}
    assert options_from({"score_columns": "P({class})"}) == {"score_columns": ("P(*)",)}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("logit_cat,logit_dog,label\n1,2,cow\n", {}, "got 'cow' in line 2"),
        ("logit_0,logit_1,label\n1,2,cat\n", {}, "--classes"),
        (
            "logit_0,logit_1,label\n1,2,0\n",
            {"classes": ("a",)},
            "each of the 2 columns",
        ),
        (NAMED, {"classes": CLASSES, "keep": ("town",)}, "`town`, named by --keep"),
        (NAMED, {"score_columns": ("risk",)}, "`risk`, named by --score-columns"),
        (
            NAMED,
            {"classes": CLASSES, "label_column": "x"},
            "`x`, named by --label-column",
        ),
        (
            "p,label\n1.5,0\n",
            {"score_columns": ("p",), "kind": "probabilities"},
            r"in \[0, 1\]",
        ),
        ("logit_0,logit_2,label\n1,2,0\n", {}, r"found \[0, 2\]"),
        ("logit_0,logit_1,label,weight\n1,2,0,-3\n", {}, "finite and >= 0"),
    ],
)
def test_bad_tables_are_named(
    tmp_path: Path, text: str, options: Any, message: str
) -> None:
    with pytest.raises(DataFileError, match=message):
        read_examples(put(tmp_path, text), **options)
