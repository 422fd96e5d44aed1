"""Pickles: arrays of every kind come back equal; anything else is refused and not
run.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from tests.io.samples import TEST, VAL

from hokical.io import DataFileError, read_examples
from hokical_paper.pickles import open_pickle


def write_pickle(path: Path, protocol: int = 4) -> Path:
    """As the field does: nested pairs, labels as a column."""
    content = ((VAL[0], VAL[1][:, None]), (TEST[0], TEST[1][:, None]))
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(tmp_path: Path, protocol: int) -> None:
    path = write_pickle(tmp_path / "a.p", protocol)
    for split, (logits, labels) in (("val", VAL), ("test", TEST)):
        found = read_examples(path, split=split)
        assert np.array_equal(found.scores.values, logits)
        assert np.array_equal(found.labels, labels)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "f2", "i1", "<u8", ">i2", "?"])
@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_arrays_come_back_equal(
    tmp_path: Path, protocol: int, dtype: str, layout: str
) -> None:
    array = (np.arange(24).reshape(4, 6) % 7).astype(dtype)
    array = array[:, ::2] if layout == "strided" else np.asarray(array, order=layout)
    (tmp_path / "a.p").write_bytes(pickle.dumps({"x": array}, protocol=protocol))
    found = open_pickle(tmp_path / "a.p")["x"]
    assert np.array_equal(found, array)
    assert found.dtype == array.dtype


def test_pairs_dicts_and_lists_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    for content in ((VAL[0], VAL[1].tolist()), {"logits": VAL[0], "labels": VAL[1]}):
        path.write_bytes(pickle.dumps(content))
        assert np.array_equal(read_examples(path).labels, VAL[1])


def test_a_pickle_of_python_2(tmp_path: Path) -> None:
    """Python 2 wrote bytes as text; this is what it wrote for two rows of float32."""
    row = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I2\nI2\nt"
        b"cnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n"
        b"S'\\x00\\x00\\x80?\\x00\\x00\\x00@\\x00\\x00@@\\x00\\x00\\x80@'\ntb."
    )
    (tmp_path / "a.p").write_bytes(row)
    found = read_examples(tmp_path / "a.p", labelled="none")
    assert found.scores.values.tolist() == [[1.0, 2.0], [3.0, 4.0]]


class Harmful:
    """Runs a command when it is unpickled the usual way."""

    def __init__(self, function, *arguments) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def harmful_contents(mark: Path) -> list[object]:
    bomb = Harmful(os.system, f"touch {mark}")
    return [
        bomb,
        ((VAL[0], bomb), TEST),
        {"logits": VAL[0], "labels": VAL[1], "more": bomb},
        Harmful(eval, f"open({str(mark)!r}, 'w')"),
        Harmful(Path.touch, mark),
        Harmful(getattr, "text", "upper"),
        np.array([bomb], dtype=object),
    ]


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("which", range(7))
def test_malicious_pickles_are_refused_and_not_run(
    tmp_path: Path, which: int, protocol: int
) -> None:
    mark, path = tmp_path / "harmed", tmp_path / "a.p"
    path.write_bytes(pickle.dumps(harmful_contents(mark)[which], protocol=protocol))
    with pytest.raises(DataFileError, match=r"was not run|not numbers"):
        read_examples(path)
    assert not mark.exists()
    if which == 0:  # the same bytes do harm elsewhere, so the test means something
        pickle.loads(path.read_bytes())
        assert mark.exists()


def test_dotted_names_do_not_reach_into_modules(tmp_path: Path) -> None:
    (tmp_path / "a.p").write_bytes(
        b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93)R."
    )  # STACK_GLOBAL numpy, "ndarray.tofile", then a call
    with pytest.raises(DataFileError, match="was not run"):
        read_examples(tmp_path / "a.p")


def test_a_pickle_cannot_write_on_the_stand_ins(tmp_path: Path) -> None:
    """BUILD may set attributes of what a name gave; the next file must not see them."""
    evil = b"\x80\x02c_codecs\nencode\nN}U\x0c__defaults__N)R\x86b0."
    (tmp_path / "evil.p").write_bytes(evil)
    with pytest.raises(DataFileError):
        read_examples(tmp_path / "evil.p")
    assert read_examples(write_pickle(tmp_path / "a.p", 2)).n_rows == len(VAL[0])


@pytest.mark.parametrize(
    "content",
    [
        1,
        "text",
        (),
        [VAL, TEST, VAL],
        (VAL[0], "labels"),
        OrderedDict(logits=VAL[0]),
        (np.array([["a", "b"]]), VAL[1]),
        (np.array([[{}, 1]], dtype=object), VAL[1]),
    ],
    ids=repr,
)
def test_other_contents_are_refused(tmp_path: Path, content: object) -> None:
    (tmp_path / "a.p").write_bytes(pickle.dumps(content))
    with pytest.raises(DataFileError, match=r"a\.p: expected a pickle of"):
        read_examples(tmp_path / "a.p")


def test_an_absurd_shape_takes_no_memory(tmp_path: Path) -> None:
    data = pickle.dumps({"logits": np.zeros((7, 5))}, protocol=4)
    (tmp_path / "a.p").write_bytes(data.replace(b"K\x07K\x05", b"K\xffK\xff"))
    with pytest.raises(DataFileError, match="do not fill an array of shape"):
        read_examples(tmp_path / "a.p")


PAIRS = (
    b"\x80\x04K\x01" + b"2\x86" * 40
)  # forty times DUP, TUPLE2: (t, t) of (t, t) of ...


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04K\x01r" + struct.pack("<I", 4_000_000_000) + b".", "found a int"),
        (b"\x80\x04}" + PAIRS[2:] + b"K\x01s.", "a tuple of 2 for a key"),
        (b"\x80\x04}(" + PAIRS[2:] + b"K\x01u.", "a tuple of 2 for a key"),
        (b"(" + PAIRS[2:] + b"K\x01d.", "a tuple of 2 for a key"),
        (b"\x80\x04\x8f(" + PAIRS[2:] + b"\x90.", "found a set"),
        (b"\x80\x04(" + PAIRS[2:] + b"\x91.", "found a set"),
        (b"\x80\x02cnumpy\ndtype\n" + PAIRS[2:] + b"\x85R.", "found a dtype"),
        (
            b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00a" + PAIRS[2:] + b"\x86R.",
            "latin-1",
        ),
        (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"a.", "bytes announced"),
        (pickle.dumps({1: VAL[0]}), "a int for a key"),
    ],
)
def test_few_bytes_cannot_ask_for_much(
    tmp_path: Path, content: bytes, message: str
) -> None:
    """Neither memory nor time: each of these would take gigabytes or years."""
    (tmp_path / "a.p").write_bytes(content)
    with pytest.raises(DataFileError, match=message):
        read_examples(tmp_path / "a.p")


@pytest.mark.parametrize("protocol", [0, 1])
@pytest.mark.parametrize("name", ["a.PKL", "a.p"])
def test_old_protocols_are_found_by_name(
    tmp_path: Path, protocol: int, name: str
) -> None:
    assert np.array_equal(
        read_examples(write_pickle(tmp_path / name, protocol)).labels, VAL[1]
    )
