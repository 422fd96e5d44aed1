"""The public edge: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from hokical import (
    Gaussian,
    Hoki,
    from_binary_probabilities,
    from_binary_scores,
    from_probabilities,
    label_stability,
)
from hokical._core.reading import as_labels, as_weights, to_numpy
from hokical.rules import Logits, as_logits
from tests.libraries import DEVICES, NAMES, get_library

GOOD = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])


class OnlyDlpack:
    """An array of another library that speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize(
    "same",
    [
        GOOD.tolist(),
        GOOD.astype(np.float32),
        GOOD.astype(np.float16),
        np.asfortranarray(GOOD),
        GOOD.astype(np.longdouble),
        GOOD.astype(object),
        pd.DataFrame(GOOD, columns=["a", "b", "c"]),
        OnlyDlpack(GOOD),
    ],
    ids=["list", "f4", "f2", "fortran", "longdouble", "object", "frame", "dlpack"],
)
def test_every_kind_of_array_is_read(same: object) -> None:
    checked = as_logits(same)
    np.testing.assert_array_equal(np.asarray(checked.values, np.float64), GOOD)
    np.testing.assert_array_equal(checked.top, [2.0, 3.0])
    np.testing.assert_array_equal(checked.labels, [1, 2])


def test_torch_tensors_are_read_where_they_lie() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    plain = torch.tensor(GOOD)
    read = as_logits(plain)
    assert read.is_numpy
    assert np.shares_memory(read.values, plain.numpy())
    assert torch.is_tensor(as_logits(torch.tensor(GOOD, requires_grad=True)).values)
    np.testing.assert_array_equal(
        to_numpy(torch.tensor(GOOD).bfloat16(), "logits"), GOOD
    )


def awkward_rows() -> np.ndarray:
    """Ties, impossible classes, one class alone, numbers whose difference overflows."""
    low = -np.inf
    return np.array(
        [
            [1.0, 3.0, 3.0, 0.5],
            [0.0, 0.0, 0.0, 0.0],
            [low, 2.0, low, low],
            [low, 2.0, 1.5, low],
            [1e308, -1e308, 0.0, low],
        ]
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_of_rows_is_the_same_in_every_library(name: str) -> None:
    library, rows = get_library(name), awkward_rows()
    with library.scope():
        logits = as_logits(library.make(rows.copy()))
        found = {
            what: logits.to_host(getattr(logits, what))
            for what in ("labels", "margins", "possible_counts", "gaps", "top")
        }
        chosen = logits.of_class(np.array([1, 0, 1, 2, 0]))
    np.testing.assert_array_equal(found["labels"], [1, 0, 1, 1, 0])
    np.testing.assert_array_equal(found["top"], rows.max(axis=1))
    np.testing.assert_array_equal(found["possible_counts"], [4.0, 4.0, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(found["gaps"], [0.0, 0.0, np.inf, 0.5, 1e308])
    np.testing.assert_array_equal(chosen, [3.0, 0.0, 2.0, 1.5, 1e308])
    with np.errstate(over="ignore"):
        margins = np.minimum(rows.max(axis=1, keepdims=True) - rows, 1e150)
    np.testing.assert_array_equal(found["margins"], margins)


@pytest.mark.parametrize("name", NAMES)
def test_some_of_the_rows(name: str) -> None:
    library, rows = get_library(name), awkward_rows()
    with library.scope():
        logits = as_logits(library.make(rows.copy()))
        parts = {
            "slice": (logits.take(slice(1, 4)), rows[1:4]),
            "numbers": (logits.take(np.array([3, 0, 3])), rows[[3, 0, 3]]),
            "mask": (logits.take(np.arange(5) % 2 == 1), rows[1::2]),
            "every": (logits.take(slice(None, None, 2)), rows[::2]),
        }
        for part, expected in parts.values():
            np.testing.assert_array_equal(part.to_host(part.values), expected)
            np.testing.assert_array_equal(part.to_host(part.top), expected.max(axis=1))


@pytest.mark.parametrize("name", NAMES)
def test_bad_rows_are_named_in_every_library(name: str) -> None:
    library = get_library(name)
    with library.scope():
        with pytest.raises(ValueError, match="got NaN in row 4, column 1"):
            as_logits(library.make(with_entry(np.nan)))
        with pytest.raises(ValueError, match="must be 2-D"):
            as_logits(library.make(np.zeros(5)))
        with pytest.raises(ValueError, match="at least two columns"):
            as_logits(library.make(np.zeros((5, 1))))


def test_kernels_read_any_order_and_type() -> None:
    wide = np.round(8.0 * np.random.default_rng(0).normal(size=(30, 40))) / 8.0
    expected = label_stability(wide, Gaussian(1.0))
    for same in (wide.astype(">f8"), np.asfortranarray(wide), wide.astype(np.float16)):
        np.testing.assert_allclose(
            label_stability(same, Gaussian(1.0)), expected, rtol=1e-12
        )


def test_checked_logits_are_not_checked_again() -> None:
    checked = as_logits(GOOD)
    assert as_logits(checked) is checked
    assert type(checked) is Logits


def test_memory_mapped_files_stay_on_disk(tmp_path) -> None:
    path = tmp_path / "logits.npy"
    np.save(path, GOOD.astype(np.float32))
    mapped = np.load(path, mmap_mode="r")
    checked = as_logits(mapped)
    assert np.shares_memory(checked.values, mapped)
    assert label_stability(mapped, Gaussian(1.0)).shape == (2,)


def test_nothing_is_copied_or_changed() -> None:
    values = GOOD.copy()
    values.flags.writeable = False
    assert as_logits(values).values is values
    Hoki(noise=Gaussian(1.0)).fit(values, np.array([1, 2])).predict_proba(values)
    np.testing.assert_array_equal(values, GOOD)


def with_entry(value: float) -> np.ndarray:
    bad = np.tile(GOOD, (3, 1))
    bad[4, 1] = value
    return bad


@pytest.mark.parametrize(
    ("bad", "kind", "message"),
    [
        (
            np.zeros(512),
            ValueError,
            r"must be 2-D \(n, classes\); got shape \(512,\).*from_binary",
        ),
        (
            np.zeros((2, 3, 4)),
            ValueError,
            r"got shape \(2, 3, 4\).*hokical.Ensemble",
        ),
        (np.zeros((0, 3)), ValueError, "at least one row"),
        (np.zeros((5, 1)), ValueError, "at least two columns"),
        (with_entry(np.nan), ValueError, "got NaN in row 4, column 1"),
        (with_entry(np.inf), ValueError, r"got \+inf in row 4, column 1"),
        (np.full((3, 2), -np.inf), ValueError, "row 0 has no finite value"),
        (GOOD > 0, TypeError, "must be floating point; got dtype bool"),
        (GOOD.astype(str), TypeError, "must be floating point"),
        (GOOD.astype(complex), ValueError, "must be real"),
        (np.array([["a", "b"]], dtype=object), TypeError, "must be numbers"),
        (
            np.ma.masked_array(GOOD, GOOD > 2),
            TypeError,
            r"masked array.*filled\(-np.inf\)",
        ),
        (None, TypeError, "got None"),
        (scipy.sparse.csr_array(GOOD), TypeError, "must be dense"),
    ],
)
def test_bad_logits_are_named(bad: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"(?s)`logits`.*{message}"):
        as_logits(bad)


@pytest.mark.parametrize(
    ("bad", "kind", "message"),
    [
        ([0, 1], ValueError, r"one entry per row \(4\); got shape \(2,\)"),
        ([0, 1, 3, 0], ValueError, r"must lie in \[0, 2\].*got 3 in row 2"),
        ([0, -1, 2, 0], ValueError, "got -1 in row 1"),
        (
            [0.0, 1.0, 2.0, 0.0],
            TypeError,
            r"must be integers.*got 0\.0 in row 0 \(dtype float64\)",
        ),
        ([0.0, np.nan, 2.0, 0.0], TypeError, "nan in row 1.*drop rows without a label"),
        (["a", "b", "a", "b"], TypeError, "must be integers.*classes="),
        (np.array([0, None, 1, 2], dtype=object), TypeError, "got None in row 1"),
        (np.array([[0], [1, 2], 1, 2], dtype=object), TypeError, r"got \[0\] in row 0"),
        (None, TypeError, "got None"),
        (np.eye(4), ValueError, r"must be 1-D .*; got shape \(4, 4\)"),
    ],
)
def test_bad_labels_are_named(bad: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"(?s)`labels`.*{message}"):
        as_labels(bad, 4, 3)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([1.0, 2.0], "one entry per row"),
        ([1.0, -2.0, 1.0], "got -2.0 in row 1"),
        ([1.0, 1.0, np.nan], "got nan in row 2"),
        ([0.0, 0.0, 0.0], "must not be zero everywhere"),
        ([1e308, 1e308, 1e308], "finite sum"),
    ],
)
def test_bad_weights_are_named(bad: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"`sample_weight`.*{message}"):
        as_weights(bad, 3)


def test_unsigned_and_boolean_labels_are_fine() -> None:
    for dtype in (np.uint8, np.int16, bool):
        labels = as_labels(np.array([0, 1, 1], dtype), 3, 2)
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, [0, 1, 1])


def test_binary_scores_become_two_columns() -> None:
    scores = np.array([-3.0, 0.0, 2.0])
    logits = from_binary_scores(scores)
    np.testing.assert_array_equal(logits.argmax(axis=1), scores > 0)
    with pytest.raises(
        ValueError, match=r"`scores` must be 1-D \(n,\); got shape \(2, 3\)"
    ):
        from_binary_scores(GOOD)
    with pytest.raises(ValueError, match="got nan in row 1"):
        from_binary_scores([0.0, np.nan])


def test_one_column_is_told_of_both_conversions() -> None:
    with pytest.raises(
        ValueError, match=r"`from_probabilities`, for its scores.*`from_binary_sc"
    ):
        Hoki().fit([0.2, 0.8, 0.7], [0, 1, 1])


def test_probabilities_become_logits() -> None:
    proba = np.array([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25]])
    logits = from_probabilities(proba, zeros="impossible")
    np.testing.assert_allclose(np.exp(logits), proba)
    kept = from_probabilities(proba)
    np.testing.assert_array_equal(kept < -744.0, proba == 0.0)
    np.testing.assert_array_equal(kept[proba > 0.0], logits[proba > 0.0])
    with pytest.raises(
        ValueError, match=r"`zeros` must be one of .*'impossible'.*; got True"
    ):
        from_probabilities(proba, zeros=True)  # type: ignore[arg-type]
    np.testing.assert_allclose(np.exp(from_probabilities([0.3])), [[0.7, 0.3]])
    with pytest.raises(ValueError, match=r"rows must sum to 1; got 1.5 in row 1"):
        from_probabilities([[0.5, 0.5], [0.75, 0.75]])
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\].*in row 0"):
        from_probabilities([[1.5, -0.5]])
    assert from_probabilities([[1.0000001, 0.0]])[0, 0] == 0.0
    for shape in ((0, 3), (3, 1), (2, 2, 2)):
        with pytest.raises(ValueError, match="at least one row and two classes"):
            from_probabilities(np.ones(shape))


@given(seed=st.integers(0, 2**32 - 1))
def test_the_label_of_probabilities_is_that_of_their_logits(seed: int) -> None:
    """The first of the largest; neighbouring floats can have the same logarithm."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(4), size=8)
    proba[::2] = np.round(proba[::2] * 3) / 3  # ties and zeros
    proba[::2, 3] = np.maximum(1.0 - proba[::2, :3].sum(axis=1), 0.0)
    proba[1::2, 1] = np.nextafter(proba[1::2, 0], 1.0)
    proba /= proba.sum(axis=1, keepdims=True)
    for zeros in ("unlikely", "impossible"):
        logits = from_probabilities(proba, zeros=zeros)
        np.testing.assert_array_equal(as_logits(logits).labels, proba.argmax(axis=1))


CONVERSIONS = {
    "probabilities": (
        from_probabilities,
        [[0.25, 0.75, 0.0], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]],
    ),
    "impossible": (
        lambda proba: from_probabilities(proba, zeros="impossible"),
        [[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]],
    ),
    "rounded": (from_probabilities, [[0.33, 0.33, 0.32], [0.2, 0.3, 0.5]]),
    "of class 1": (from_probabilities, [0.0, 0.25, 1.0]),
    "scores": (from_binary_scores, [-3.0, 0.0, 2.0]),
    "labels": (from_binary_probabilities, [[0.25, 0.5], [1e-3, 1.0 - 1e-3]]),
}


@pytest.mark.parametrize("library", [*NAMES, *DEVICES])
@pytest.mark.parametrize("case", CONVERSIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_conversions_answer_in_kind(case: str, library: str, dtype: type) -> None:
    convert, values = CONVERSIONS[case]
    array, kind = np.array(values, dtype), get_library(library)
    expected = convert(array.astype(np.float64))
    with kind.scope():
        found = convert(kind.make(array))
        assert kind.owns(found)
        got = kind.read(found)
    assert got.dtype == (np.float64 if library == "numpy" else dtype)
    np.testing.assert_allclose(
        got, expected, rtol=1e-5 if dtype == np.float32 else 1e-14
    )
    assert (got.argmax(axis=1) == expected.argmax(axis=1)).all()


@pytest.mark.parametrize("library", NAMES)
def test_conversions_refuse_alike(library: str) -> None:
    kind = get_library(library)
    for convert, values, message in (
        (from_probabilities, [[0.5, 0.4]], "rows must sum to 1; got 0.9 in row 0"),
        (
            from_probabilities,
            [[0.5, 0.5], [-0.5, 1.5]],
            "must lie in .*got -0.5 in row 1, column",
        ),
        (from_probabilities, [[1.0]], "two classes"),
        (from_binary_scores, [0.0, np.nan], "must be finite; got nan in row 1"),
        (from_binary_scores, [[0.0], [1.0]], r"Use `scores\[:, 0\]`"),
        (from_binary_probabilities, [0.0, 2.0], "must lie in .*got 2.0 in row 1"),
    ):
        with kind.scope(), pytest.raises(ValueError, match=message):
            convert(kind.make(np.array(values)))


def test_conversions_keep_gradients() -> None:
    torch = pytest.importorskip("torch")
    odds = torch.tensor([[0.5, -1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(from_probabilities(odds.softmax(dim=1)).sum(), odds)
    (wanted,) = torch.autograd.grad(odds.log_softmax(dim=1).sum(), odds)
    torch.testing.assert_close(slope, wanted)
    (slope,) = torch.autograd.grad(
        from_binary_probabilities(odds.sigmoid()).sum(), odds
    )
    torch.testing.assert_close(slope, torch.ones_like(odds))
    (slope,) = torch.autograd.grad(from_binary_scores(odds[0])[:, 1].sum(), odds)
    torch.testing.assert_close(slope, torch.ones_like(odds))
    zero = torch.tensor([[0.0, 1.0]], requires_grad=True)
    (slope,) = torch.autograd.grad(from_probabilities(zero).sum(), zero)
    assert slope.isfinite().all()


@given(
    st.lists(st.floats(1e-30, 1.0), min_size=2, max_size=5),
    st.sampled_from(["f4", "f8"]),
)
@settings(max_examples=50)
def test_labels_of_probabilities_are_kept_in_every_library(
    values: list[float], dtype: str
) -> None:
    torch = pytest.importorskip("torch")
    row = np.array([values, np.nextafter(values, 1.0)], dtype).reshape(1, -1)
    row = (row / row.sum()).astype(dtype)
    found = from_probabilities(torch.from_numpy(row))
    assert int(found.argmax(dim=1)) == row.argmax()
