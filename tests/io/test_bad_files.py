"""Files that cannot be used: one line each, with the path, the rule, the finding and
the remedy.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hokical.io import DataFileError, read_examples
from tests.io.samples import LIBRARIES, TEST, VAL, WRITERS, write_npz


def npz_of(**arrays: object) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy_of(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def zip_of(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, "x")
    return stream.getvalue()


def headless_labels() -> bytes:
    """An archive with labels that do not begin as an array does."""
    stream = io.BytesIO(npz_of(logits=VAL[0]))
    with zipfile.ZipFile(stream, "a") as archive:
        archive.writestr("labels.npy", "x")
    return stream.getvalue()


X, Y = VAL
NAN = np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X)

BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "found nothing"),
    "text": (b"Dear reader,\nthis is a letter.\n", "expected"),
    "json": (b'{"logits": [[1, 2]]}', "expected a table"),
    "binary": (bytes(range(256)), "found another kind"),
    "gzip": (gzip.compress(npz_of(logits=X, labels=Y)), "found another kind"),
    "truncated gzip": (gzip.compress(b"a,b,label\n" * 99)[:-9], "truncated"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "found another kind"),
    "utf-16": ("a,b\n".encode("utf-16"), "found another kind"),
    "short row": (
        b"logit_0,logit_1,label\n1,2,1\n1,2\n",
        "found 2 in line 3. Complete or drop",
    ),
    "torch": (zip_of("archive/data.pkl"), "found another archive"),
    "other zip": (zip_of("word/document.xml"), "found another archive"),
    "labels without a header": (headless_labels(), "`labels` is no array"),
    "raised number": ("logit_0,logit_²,label\n1,2,1\n".encode(), "expected"),
    "empty zip": (b"PK\x05\x06" + bytes(18), "found another kind"),
    "wrong keys": (npz_of(a=X, b=Y), "found `a`, `b`"),
    "probabilities": (npz_of(probs=X, labels=Y), "must lie in"),
    "other part": (npz_of(test_logits=X, test_labels=Y), "--split test"),
    "no labels": (npz_of(logits=X), "--labels"),
    "1-D": (
        npz_of(logits=np.linspace(0, 1, 40), labels=Y),
        "--probabilities or --logits",
    ),
    "3-D": (npz_of(logits=X[None], labels=Y), "must be 2-D"),
    "0 rows": (npz_of(logits=X[:0], labels=Y[:0]), "at least one row"),
    "0 rows npy": (npy_of(X[:0]), "found numbers without a name"),
    "0 columns": (npz_of(logits=X[:, :0], labels=Y), "at least two columns"),
    "too few labels": (npz_of(logits=X, labels=Y[1:]), "one entry per row"),
    "label too large": (npz_of(logits=X, labels=Y + 1), "must lie in"),
    "one-hot": (npz_of(logits=X, labels=np.eye(3)[Y]), "argmax"),
    "fractions": (npz_of(logits=X, labels=Y + 0.5), "must be integers"),
    "huge float labels": (npz_of(logits=X, labels=Y + 1e300), "must be integers"),
    "names": (
        npz_of(logits=X, labels=np.array(["a", "b", "c"])[Y]),
        "Name the classes",
    ),
    "objects": (npz_of(logits=X.astype(object), labels=Y), "Object arrays"),
    "objects npy": (npy_of(X.astype(object)), "Python objects in dtype"),
    "complex": (npz_of(logits=X + 1j, labels=Y), "must be real"),
    "words": (npz_of(logits=X.astype(str), labels=Y), "floating point"),
    "NaN": (
        npz_of(logits=NAN, labels=Y),
        "in row 2, column `logits`; found none",
    ),
    "infinite": (npz_of(logits=X + np.inf, labels=Y), r"\+inf in row 0"),
    "csv header only": (b"logit_0,logit_1,label\n", "0 rows"),
    "csv ragged": (
        b"logit_0,logit_1,label\n1,2,0\n1,2\n",
        "expected 3 cells in a row, as in the first; found 2 in line 3",
    ),
    "csv long row": (
        b"logit_0,logit_1,label\n1,2,0\n1,2,0,9\n",
        "expected 3 cells in a row, as in the first; found 4 in line 3",
    ),
    "csv words": (
        b"logit_a,logit_b,label\n1,2,0\n1,x,0\n",
        "line 3, column `logit_b`; found 'x'",
    ),
    "csv gap": (
        b"logit_a,logit_b,label\n1,,0\n",
        "line 2, column `logit_b`; found none",
    ),
    "csv twice": (b"a,a,label\n1,2,0\n", "`a` twice"),
    "csv id": (b"id,cat,dog,label\n1,2,3,0\n", "--score-columns cat,dog."),
    "csv probabilities": (
        b"prob_0,prob_1,label\n0.5,0.9,0\n",
        "rows must sum to 1; got 1.4 in line 2",
    ),
    "csv missing class": (b"logit_0,logit_2,label\n1,2,0\n", r"found \[0, 2\]"),
    "csv labels only": (b"label,part\n1,val\n", "expected scores in `logits`"),
    "csv negative weight": (
        b"logit_0,logit_1,label,weight\n1,2,0,-3\n",
        "finite and >= 0",
    ),
    "csv decimal comma": (
        b"logit_0;logit_1;label\n1,5,3;2,5;0\n",
        "Write a decimal point",
    ),
    "csv decimal and comma": (
        b"logit_0,logit_1,label\n1,5,2,5,0\n",
        "found 5.*decimal point",
    ),
    "csv row names": (b"logit_0,logit_1,label\nx,1,2,0\n", "expected 3 cells in a row"),
    "csv text cell": (b"logit_0,logit_1,label\n1,cat,0\n", "Write a number there"),
    "csv split": (
        b"logit_0,logit_1,label,split\n1,2,0,val\n",
        "found a column `split`",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_content_is_named(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=message) as caught:
        read_examples(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", WRITERS)
def test_truncated_anywhere(tmp_path: Path, kind: str) -> None:
    if kind in LIBRARIES:
        pytest.importorskip(LIBRARIES[kind])
    whole = WRITERS[kind](tmp_path / f"whole.{kind}").read_bytes()
    path = tmp_path / f"cut.{kind}"
    for share in (0.001, 0.02, 0.3, 0.7, 0.9):
        path.write_bytes(whole[: max(1, int(share * len(whole)))])
        if kind == "csv" and share > 0.02:
            continue  # half a table is a table; below, where a row is cut
        with pytest.raises(DataFileError):
            read_examples(path, split="test")


def test_damaged_bytes(tmp_path: Path) -> None:
    whole = bytearray(write_npz(tmp_path / "a.npz").read_bytes())
    whole[200:260] = bytes(60)
    (tmp_path / "a.npz").write_bytes(whole)
    with pytest.raises(DataFileError, match="damaged or truncated"):
        read_examples(tmp_path / "a.npz")


def test_unused_members_stop_nobody(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "a.npz", logits=X, labels=Y, notes=np.array([{"a": 1}], dtype=object)
    )
    assert read_examples(tmp_path / "a.npz").n_rows == len(X)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "found a directory"),
        (lambda path: None, "No such file"),
        (os.mkfifo, "pipe or device"),
        (lambda path: path.symlink_to(path), "cannot be read"),
    ],
)
def test_what_is_no_file(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "x.npz")
    with pytest.raises(DataFileError, match=message):
        read_examples(tmp_path / "x.npz")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_npz(tmp_path / "x.npz")
    path.chmod(0)
    if (
        os.geteuid() == 0
    ):  # root may read everything, so the system's answer is played to it

        def refuse(*args: object, **kwargs: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataFileError, match=r"Permission denied.*permissions"):
        read_examples(path)


def test_bad_labels_file_is_the_one_that_is_blamed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y[1:])
    np.savez(tmp_path / "z.npz", a=Y, b=Y)
    with pytest.raises(DataFileError, match=r"y\.npy: .*one entry per row"):
        read_examples(tmp_path / "x.npy", labels=tmp_path / "y.npy")
    with pytest.raises(DataFileError, match=r"z\.npz: expected labels in `label`"):
        read_examples(tmp_path / "x.npy", labels=tmp_path / "z.npz")


def test_test_part_only_can_be_chosen(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", test_logits=TEST[0], test_labels=TEST[1])
    assert read_examples(tmp_path / "a.npz", split="test").n_rows == len(TEST[0])


def test_text_in_a_table_is_not_called_damage(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("logit_0,logit_1,label\n1,cat,0\n")
    with pytest.raises(DataFileError, match="'cat'") as caught:
        read_examples(tmp_path / "a.csv")
    assert "damaged" not in str(caught.value)


def test_a_pickle_names_the_package_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hokical.io.tables.entry_points", lambda **options: ())
    path = tmp_path / "a.p"
    path.write_bytes(pickle.dumps({"logits": VAL[0]}))
    with pytest.raises(DataFileError, match=r"is a pickle, .*pip install ./paper"):
        read_examples(path)
