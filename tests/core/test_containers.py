"""Logits, labels, weights and groups in every container: the same numbers, or an error
that names the argument and what it got.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse

from hokical import Calibrator, make
from hokical._core.groups import read_columns
from tests.conftest import synthetic_logits

LOGITS, LABELS = synthetic_logits(80, 3, seed=7, stretch=1.5)
WHOLE = np.round(4.0 * LOGITS)  # which every type holds
NAMES = ("ant", "bee", "cow")
TEXTS = np.array(NAMES)[LABELS]
WEIGHTS = np.random.default_rng(8).integers(1, 4, 80)
Make = Callable[[], Any]


def polars() -> ModuleType:
    """The library, which is not among those that `make test` installs."""
    module: ModuleType = pytest.importorskip("polars")
    return module


def columns_of(array: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(NAMES, array.T, strict=True))


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def spread_out(array: np.ndarray) -> np.ndarray:
    """The same numbers with gaps between them in memory."""
    wide = np.zeros(tuple(2 * size for size in array.shape), array.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def frame(dtype: str | None = None) -> pd.DataFrame:
    made = pd.DataFrame(columns_of(WHOLE))
    return made if dtype is None else made.astype(dtype)


SCORES: dict[str, Make] = {
    "list": WHOLE.tolist,
    "tuple of arrays": lambda: (*WHOLE,),
    "list of series": lambda: [pd.Series(row) for row in WHOLE],
    "objects": lambda: WHOLE.astype(object),
    "text": lambda: WHOLE.astype(str).astype(object),
    "Fortran": lambda: np.asfortranarray(WHOLE),
    "read-only": lambda: read_only(WHOLE),
    "gaps": lambda: spread_out(WHOLE),
    "negative strides": lambda: WHOLE[::-1, ::-1].copy()[::-1, ::-1],
    "big-endian": lambda: WHOLE.astype(">f8"),
    "int8": lambda: WHOLE.clip(-100, 100).astype(np.int8),
    "uint8": lambda: (WHOLE - WHOLE.min()).astype(np.uint8),
    "long double": lambda: WHOLE.astype(np.longdouble),
    "matrix": lambda: np.asmatrix(WHOLE),
    "memory map": lambda: WHOLE.view(np.memmap),
    "pandas": frame,
    "pandas Float64": lambda: frame("Float64"),
    "pandas Int64": lambda: frame("Int64"),
    "pandas Arrow": lambda: frame("double[pyarrow]"),
    "pandas objects": lambda: frame("object"),
    "pandas, other index": lambda: frame().set_index(np.arange(80) + 5),
    "polars": lambda: polars().DataFrame(columns_of(WHOLE)),
    "polars Int32": lambda: polars().DataFrame(columns_of(WHOLE.astype(np.int32))),
    "pyarrow": lambda: pa.table(columns_of(WHOLE)),
    "pyarrow in chunks": lambda: pa.concat_tables(
        [pa.table(columns_of(WHOLE[:30])), pa.table(columns_of(WHOLE[30:]))]
    ),
    "record batch": lambda: pa.RecordBatch.from_pydict(columns_of(WHOLE)),
}
BAD_SCORES: dict[str, tuple[Make, str]] = {
    "None": (lambda: None, "got None"),
    "0-d": (lambda: np.array(1.0), r"2-D .* got shape \(\)"),
    "number": (lambda: 1.0, r"2-D .* got shape \(\)"),
    "empty": (lambda: WHOLE[:0], "at least one row"),
    "empty list": (list, "2-D"),
    "no columns": (lambda: WHOLE[:, :0], "two columns|one column per class"),
    "3-D": (lambda: WHOLE[None], r"2-D .* got shape \(1, 80, 3\)"),
    "generator": (lambda: (row for row in WHOLE), "got generator"),
    "iterator": (lambda: iter(WHOLE), "got iterator"),
    "mapping": (lambda: columns_of(WHOLE), "got dict"),
    "set": (lambda: {1.0, 2.0}, "got set"),
    "text": (lambda: "logits.npy", "got str"),
    "function": (lambda: len, "got builtin_function"),
    "sparse": (lambda: scipy.sparse.csr_matrix(WHOLE), "must be dense"),
    "sparse array": (lambda: scipy.sparse.coo_array(WHOLE), "must be dense"),
    "masked": (lambda: np.ma.masked_array(WHOLE, WHOLE > 2), "masked array"),
    "booleans": (lambda: WHOLE > 0, "floating point|numbers"),
    "complex": (lambda: WHOLE.astype(complex), "real"),
    "dates": (lambda: WHOLE.astype("M8[s]"), "floating point; got dtype datetime64"),
    "durations": (lambda: WHOLE.astype("m8[s]"), "floating point; got dtype timedelta"),
    "dtype U": (lambda: np.full((80, 3), "x"), "floating point; got dtype <U1"),
    "words": (lambda: np.full((80, 3), "x", object), "numbers; got 'x' in row 0"),
    "ragged": (lambda: [[1.0, 2.0, 0.0], [1.0]], "logits"),
    "structured": (
        lambda: np.zeros(80, [(name, "f8") for name in NAMES]),
        "`logits` must be",
    ),
    "missing": (lambda: frame("Float64").mask(frame() > 2.0), "<NA>|nan|NaN"),
    "None in it": (lambda: np.where(WHOLE > 2, None, WHOLE), "got None in row"),
}
CODES: dict[str, Make] = {
    "list": LABELS.tolist,
    "tuple": lambda: (*LABELS.tolist(),),
    "range": lambda: range(3),
    "int8": lambda: LABELS.astype(np.int8),
    "uint64": lambda: LABELS.astype(np.uint64),
    "big-endian": lambda: LABELS.astype(">i4"),
    "objects": lambda: LABELS.astype(object),
    "NumPy's scalars": lambda: [*LABELS],
    "read-only": lambda: read_only(LABELS),
    "gaps": lambda: spread_out(LABELS),
    "negative strides": lambda: LABELS[::-1].copy()[::-1],
    "series": lambda: pd.Series(LABELS),
    "Int64": lambda: pd.Series(LABELS, dtype="Int64"),
    "Int64 array": lambda: pd.array(LABELS, dtype="Int64"),
    "Arrow series": lambda: pd.Series(LABELS, dtype="int64[pyarrow]"),
    "Categorical": lambda: pd.Categorical(LABELS),
    "Index": lambda: pd.Index(LABELS),
    "polars": lambda: polars().Series(LABELS),
    "pyarrow": lambda: pa.array(LABELS),
    "chunked": lambda: pa.chunked_array([LABELS[:30], LABELS[30:]]),
}
WORDS: dict[str, Make] = {
    "list": TEXTS.tolist,
    "array": lambda: TEXTS,
    "objects": lambda: TEXTS.astype(object),
    "series": lambda: pd.Series(TEXTS),
    "values": lambda: pd.Series(TEXTS).values,
    "string": lambda: pd.array(TEXTS, dtype="string"),
    "Arrow": lambda: pd.array(TEXTS, dtype="string[pyarrow]"),
    "Categorical": lambda: pd.Categorical(TEXTS),
    "ordered": lambda: pd.Categorical(TEXTS, categories=NAMES[::-1], ordered=True),
    "Index": lambda: pd.Index(TEXTS),
    "CategoricalIndex": lambda: pd.CategoricalIndex(TEXTS),
    "polars": lambda: polars().Series(TEXTS),
    "polars Categorical": lambda: polars().Series(TEXTS).cast(polars().Categorical),
    "polars Enum": lambda: polars().Series(
        TEXTS.tolist(), dtype=polars().Enum([*NAMES[::-1]])
    ),
    "pyarrow": lambda: pa.array(TEXTS),
    "dictionary": lambda: pa.array(TEXTS).dictionary_encode(),
    "chunked": lambda: pa.chunked_array([TEXTS[:30], TEXTS[30:]]),
}
BAD_LABELS: dict[str, tuple[Make, str]] = {
    "0-d": (lambda: np.array(1), r"1-D .* got shape \(\)"),
    "empty": (lambda: LABELS[:0], r"got shape \(0,\)"),
    "short": (lambda: LABELS[:9], r"one entry per row \(80\); got shape \(9,\)"),
    "2-D": (lambda: LABELS[:, None], "1-D"),
    "generator": (lambda: (label for label in LABELS), "got generator"),
    "masked": (lambda: np.ma.masked_array(LABELS, LABELS > 1), "masked array"),
    "sparse": (lambda: scipy.sparse.csr_matrix(LABELS), "must be dense"),
    "floats": (lambda: LABELS.astype(float), "must be integers.*astype"),
    "dates": (lambda: LABELS.astype("M8[s]"), "must be integers"),
    "durations": (lambda: LABELS.astype("m8[s]"), "must be integers"),
    "NaN": (lambda: np.where(LABELS == 1, np.nan, LABELS), "got nan in row"),
    "None": (lambda: np.where(LABELS == 1, None, LABELS), "got None in row"),
    "NA": (lambda: pd.array([None, *LABELS[1:]], dtype="Int64"), "in row 0"),
    "NaT": (lambda: np.full(80, np.datetime64("NaT", "s")), "must be integers"),
    "booleans": (lambda: LABELS > 0, "got booleans for 3 classes"),
    "words": (lambda: TEXTS, "must be integers.*classes="),
    "large": (lambda: [2**70, *LABELS[1:].tolist()], "64 bits|must lie"),
    "structured": (lambda: np.zeros(80, [("a", "i8")]), "must be integers"),
    "bytes": (lambda: TEXTS.astype("S"), "must be integers"),
}


pytestmark = [
    pytest.mark.filterwarnings("ignore:the matrix subclass"),
    pytest.mark.filterwarnings("ignore::hokical._core.runtime.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@cache
def fitted() -> Calibrator:
    return make("vecs").fit(WHOLE, LABELS)


@pytest.mark.parametrize("kind", SCORES)
def test_scores_in_every_container(kind: str) -> None:
    scores = SCORES[kind]()
    expected = WHOLE
    if kind == "int8":
        expected = WHOLE.clip(-100, 100)
    proba = np.asarray(fitted().predict_proba(scores))
    np.testing.assert_allclose(proba, fitted().predict_proba(expected), atol=1e-12)
    again = make("vecs").fit(SCORES[kind](), LABELS)
    np.testing.assert_allclose(again.predict_proba(WHOLE)[0], proba[0], atol=1e-6)


@pytest.mark.parametrize("kind", BAD_SCORES)
def test_bad_scores_are_named(kind: str) -> None:
    bad, message = BAD_SCORES[kind]
    for call in (fitted().predict_proba, lambda x: make("vecs").fit(x, LABELS)):
        with pytest.raises((TypeError, ValueError), match=message) as error:
            call(bad())
        assert "`logits`" in str(error.value)


@pytest.mark.parametrize("kind", CODES)
def test_labels_in_every_container(kind: str) -> None:
    labels = CODES[kind]()
    n_rows = len(labels)
    expected = np.arange(3) if kind == "range" else LABELS
    learned = make("vecs").fit(WHOLE[:n_rows], labels)
    same = make("vecs").fit(WHOLE[:n_rows], expected)
    assert learned.fitted.fingerprint() == same.fitted.fingerprint()
    assert learned.score(WHOLE[:n_rows], labels) == same.score(WHOLE[:n_rows], expected)


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("scores", ["pandas", "polars", "pyarrow", "list"])
def test_names_in_every_container(kind: str, scores: str) -> None:
    named = {"classes": NAMES} if scores == "list" else {}
    learned = make("vecs").fit(SCORES[scores](), WORDS[kind](), **named)
    assert learned.class_names == NAMES
    assert learned.fitted.fingerprint() == fitted().fitted.fingerprint()


@pytest.mark.parametrize("kind", BAD_LABELS)
def test_bad_labels_are_named(kind: str) -> None:
    bad, message = BAD_LABELS[kind]
    for call in (make("vecs").fit, fitted().certify, fitted().score):
        with pytest.raises((TypeError, ValueError), match=message) as error:
            call(WHOLE, bad())
        assert "`labels`" in str(error.value)


@pytest.mark.parametrize(
    "weights",
    [
        WEIGHTS.tolist(),
        WEIGHTS.astype(np.uint8),
        WEIGHTS.astype(">f4"),
        WEIGHTS.astype(object),
        WEIGHTS[::-1].copy()[::-1],
        pd.Series(WEIGHTS),
        pd.array(WEIGHTS, dtype="Int64"),
        pd.array(WEIGHTS, dtype="Float64"),
        pd.Index(WEIGHTS),
        pa.array(WEIGHTS),
    ],
)
def test_weights_in_every_container(weights: Any) -> None:
    weights_are_read(weights)


def test_weights_in_polars() -> None:
    weights_are_read(polars().Series(WEIGHTS))


def weights_are_read(weights: Any) -> None:
    learned = make("vecs").fit(WHOLE, LABELS, weights)
    same = make("vecs").fit(WHOLE, LABELS, WEIGHTS.astype(float))
    assert learned.fitted.fingerprint() == same.fitted.fingerprint()


@pytest.mark.parametrize(
    "bad",
    [
        np.ma.masked_array(WEIGHTS, WEIGHTS > 1),
        scipy.sparse.csr_matrix(WEIGHTS),
        (weight for weight in WEIGHTS),
        WEIGHTS.astype(str),
        WEIGHTS.astype("M8[s]"),
        np.where(WEIGHTS > 1, None, WEIGHTS),
        pd.array([None, *WEIGHTS[1:]], dtype="Int64"),
        WEIGHTS[:5],
        WEIGHTS[:, None],
    ],
)
def test_bad_weights_are_named(bad: Any) -> None:
    with pytest.raises(
        (TypeError, ValueError), match=r"`sample_weight`|Sample weights"
    ):
        make("vecs").fit(WHOLE, LABELS, bad)


GROUPS = np.array(["p", "q", "r"])[np.arange(80) % 3]
GROUP_COLUMNS: dict[str, Make] = {
    "list": GROUPS.tolist,
    "array": lambda: GROUPS,
    "column": lambda: GROUPS[:, None],
    "objects": lambda: GROUPS.astype(object),
    "series": lambda: pd.Series(GROUPS),
    "Categorical": lambda: pd.Categorical(GROUPS),
    "Index": lambda: pd.Index(GROUPS),
    "Arrow strings": lambda: pd.array(GROUPS, dtype="string[pyarrow]"),
    "frame": lambda: pd.DataFrame({"site": GROUPS}),
    "mapping": lambda: {"site": pd.Categorical(GROUPS)},
    "structured": lambda: GROUPS.astype([("site", "U1")]),
    "polars": lambda: polars().Series(GROUPS),
    "polars frame": lambda: polars().DataFrame({"site": GROUPS}),
    "pyarrow": lambda: pa.array(GROUPS),
    "pyarrow table": lambda: pa.table({"site": GROUPS}),
}


@pytest.mark.parametrize("kind", GROUP_COLUMNS)
def test_groups_in_every_container(kind: str) -> None:
    (column,) = read_columns(GROUP_COLUMNS[kind](), 80).values()
    assert [*map(str, column)] == GROUPS.tolist()


@pytest.mark.parametrize(
    "bad",
    [
        np.ma.masked_array(LABELS, LABELS > 1),
        scipy.sparse.csr_matrix(LABELS),
        (name for name in GROUPS),
        np.array("p"),
        GROUPS[:5],
        {},
        pd.DataFrame({"site": GROUPS[:5]}),
    ],
)
def test_bad_groups_are_named(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="`groups"):
        read_columns(bad, 80)
