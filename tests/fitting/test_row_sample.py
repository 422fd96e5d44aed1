"""A large number of rows is sampled: the same rows for every container and every
chunking.
"""

from __future__ import annotations

import operator
import pickle
import warnings
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hokical
from hokical import Gaussian, Hoki
from hokical._fitting import examples
from hokical.calibrators import Examples, make, method_names
from hokical.rules import as_logits
from hokical.streams import fit, open_source
from tests.conftest import max_examples, synthetic_logits
from tests.fitted import label_scores

N, CLASSES = 4000, 5
LOGITS, LABELS = synthetic_logits(N, CLASSES, seed=4)
#: Rows that are used as a whole, and rows of a sample.
WHOLE, MOST = 2000, 900


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "MOST_LOGITS", WHOLE * CLASSES)
    monkeypatch.setattr(examples, "MOST_ROWS", MOST)
    monkeypatch.setattr("hokical.streams._KERNEL_BLOCKS", 1)
    monkeypatch.setattr("hokical.streams._FLOATS_BESIDE", 700)


def expected_rows(weights: np.ndarray | None = None) -> np.ndarray:
    """All rows with a weight; of too many, those with the smallest hashed numbers."""
    n = N if weights is None else weights.size
    rows = np.arange(n) if weights is None else np.flatnonzero(weights)
    if rows.size > WHOLE:
        rows = np.sort(rows[np.argsort(examples.row_draws(0, n)[rows])[:MOST]])
    return rows


def kept_of(start: int, stop: int, weights: np.ndarray | None) -> Any:
    own = None if weights is None else weights[start:stop]
    block = Examples(as_logits(LOGITS[start:stop]), LABELS[start:stop], own, start)
    return examples._keep_block(block)


@max_examples(60)
@given(
    cuts=st.lists(st.integers(1, N - 1), max_size=12, unique=True).map(sorted),
    weightless=st.sampled_from([None, 0.0, 0.3, 0.6, 0.9]),
    in_pairs=st.booleans(),
)
def test_the_sample_does_not_depend_on_chunks(
    cuts: list[int], weightless: float | None, in_pairs: bool
) -> None:
    weights = None
    if weightless is not None:
        rng = np.random.default_rng(1)
        weights = rng.exponential(size=N) * (rng.random(N) >= weightless)
    edges = [0, *cuts, N]
    parts = [kept_of(a, b, weights) for a, b in pairwise(edges)]
    while in_pairs and len(parts) > 1:  # as a cluster does
        parts = [
            reduce(operator.add, parts[k : k + 2]) for k in range(0, len(parts), 2)
        ]
    sample = reduce(operator.add, parts).sample()
    block, expected = sample.block, expected_rows(weights)
    np.testing.assert_array_equal(sample.rows, expected)
    np.testing.assert_array_equal(block.logits.values, LOGITS[expected])
    np.testing.assert_array_equal(block.labels, LABELS[expected])
    np.testing.assert_array_equal(
        block.counts, 1.0 if weights is None else weights[expected]
    )


def test_parts_travel_between_processes() -> None:
    """As on a cluster: pickled rows are those of NumPy, and give the same sample."""
    parts = [
        pickle.loads(pickle.dumps(kept_of(k, k + 800, None))) for k in range(0, N, 800)
    ]
    sample = reduce(operator.add, parts).sample()
    assert sample.block.logits.is_numpy
    np.testing.assert_array_equal(sample.rows, expected_rows())


def test_what_is_kept_while_reading_is_at_most_two_samples() -> None:
    kept = kept_of(0, 500, None)
    for start in range(500, N, 500):
        kept += kept_of(start, start + 500, None)
        assert kept.keys.size <= (WHOLE if start < WHOLE else 2 * MOST)


def test_few_rows_are_used_as_they_are() -> None:
    weights = np.arange(WHOLE) % 2.0
    block = Examples(as_logits(LOGITS[:WHOLE]), LABELS[:WHOLE], weights)
    kept = examples._keep_block(block)
    assert kept.n_rows <= kept.max_whole
    assert kept.sample().block is block


def containers(folder: Path) -> Iterator[tuple[str, Any]]:
    """The examples as every kind of source."""
    yield "array", (LOGITS, LABELS)
    yield "columns", (np.asfortranarray(LOGITS), LABELS)
    np.save(folder / "x_logits.npy", LOGITS)
    np.save(folder / "x_labels.npy", LABELS)
    yield "memory map", (np.load(folder / "x_logits.npy", mmap_mode="r"), LABELS)
    yield "file", folder / "x_logits.npy"
    for step in (77, 1000):
        yield f"slices of {step}", open_source(LOGITS, LABELS, chunk_rows=step)
        cuts = range(0, N, step)
        yield (
            f"generator of {step}",
            ((LOGITS[k : k + step], LABELS[k : k + step]) for k in cuts),
        )
    arrow, parquet = (
        pytest.importorskip("pyarrow"),
        pytest.importorskip("pyarrow.parquet"),
    )
    table = arrow.table(
        {f"logit_{k}": LOGITS[:, k] for k in range(CLASSES)} | {"label": LABELS}
    )
    yield "table", table
    parquet.write_table(table, folder / "x.parquet", row_group_size=700)
    yield "Parquet", folder / "x.parquet"
    dask = pytest.importorskip("dask.array")
    for step in (333, 2500):
        lazy = dask.from_array(LOGITS, chunks=(step, 3))
        yield f"Dask of {step}", (lazy, dask.from_array(LABELS, chunks=900))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["auto", "hoki", "temps"])
def test_every_container_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    options = {"noise": Gaussian(3.0)} if name == "hoki" else {}
    expected = None
    for kind, given_ in containers(tmp_path):
        cal = make(name, **options)
        found = cal.fit(*given_) if isinstance(given_, tuple) else fit(cal, given_)
        assert label_scores(found).total == N
        proba = found.predict_proba(LOGITS)
        expected = proba if expected is None else expected
        np.testing.assert_array_equal(proba, expected, err_msg=kind)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "name", sorted({*method_names(2)} - {"hoki", "hoki_from_p0", "uncalibrated"})
)
def test_a_method_is_fitted_on_the_sample(name: str) -> None:
    logits, labels = LOGITS, LABELS
    if make(name).method.binary_only:
        logits, labels = synthetic_logits(3 * N, 2, seed=1)
        rows = np.sort(np.argsort(examples.row_draws(0, 3 * N))[:MOST])
    else:
        rows = expected_rows()
    weights = np.random.default_rng(0).exponential(size=labels.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = make(name).fit(logits, labels, weights)
        expected = make(name).fit(logits[rows], labels[rows], weights[rows])
    np.testing.assert_array_equal(
        found.predict_proba(logits), expected.predict_proba(logits)
    )


def test_hoki_counts_all_rows_and_chooses_the_noise_on_the_sample(
    tmp_path: Path,
) -> None:
    rows = expected_rows()
    noise = hokical.select_noise(LOGITS[rows], LABELS[rows]).noise
    assert hokical.select_noise(LOGITS, LABELS).noise == noise
    whole = Hoki(noise=noise).fit(LOGITS, LABELS)
    assert whole.table_.weight.sum() == N
    chunks = [(LOGITS[k : k + 600], LABELS[k : k + 600]) for k in range(0, N, 600)]
    for found in (Hoki().fit(LOGITS, LABELS), fit(Hoki(), lambda: iter(chunks))):
        assert found.noise_ == noise
        np.testing.assert_array_equal(found.table_.weight, whole.table_.weight)
        np.testing.assert_array_equal(found.table_.correct, whole.table_.correct)
    with pytest.raises(
        ValueError, match=r'`noise` must be given .*; got "auto".*new iterator'
    ):
        fit(Hoki(), iter(chunks))


def test_rows_outside_the_sample_are_checked_and_counted() -> None:
    outside = np.setdiff1d(np.arange(N), expected_rows())
    logits, labels = LOGITS.copy(), LABELS.copy()
    logits[outside[-1], 2] = np.nan
    for work in (make("temps").fit, lambda *a: fit(make("temps"), open_source(*a))):
        with pytest.raises(ValueError, match="NaN in row"):
            work(logits, LABELS)
        labels[outside[-1]] = CLASSES
        with pytest.raises(ValueError, match="labels"):
            work(LOGITS, labels)
    found = make("temps").fit(LOGITS, LABELS)
    right = (LOGITS.argmax(axis=1) == LABELS).mean()
    counts = label_scores(found)
    assert 1.0 - counts.wrong.sum() / counts.total == pytest.approx(right)


@pytest.mark.parametrize("order", ["by class", "by turns", "as given"])
def test_the_sample_is_uniform_in_every_order(order: str) -> None:
    n = 60_000
    names = {
        "by class": np.arange(n) * 8 // n,
        "by turns": np.arange(n) % 8,
        "as given": np.random.default_rng(0).integers(8, size=n),
    }[order]
    block = Examples(as_logits(np.eye(8)[names]), names, None)
    found = examples.sample_block(block)
    expected = MOST * np.bincount(names, minlength=8) / n
    chi_square = (np.bincount(found.labels, minlength=8) - expected) ** 2 / expected
    assert found.n_rows == MOST
    assert (
        chi_square.sum() < 24.3
    )  # 7 degrees of freedom: exceeded by one in a thousand


@pytest.mark.parametrize(
    ("rows_per_class", "n_rows"), [(0, 250), (5, 250), (10, 400), (20, 700)]
)
def test_methods_that_need_them_get_more_rows_of_many_classes(
    rows_per_class: int, n_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "MOST_FOR_CLASSES", 28_000)
    logits, labels = synthetic_logits(800, 40, seed=0)
    block = Examples(as_logits(logits), labels)
    sample = examples._keep_block(block, rows_per_class=rows_per_class).sample()
    assert sample.block.n_rows == sample.rows.size == n_rows
    assert make("vecs").method.rows_per_class == 25


def test_no_weight_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="`sample_weight` must not be zero everywhere"):
        fit(make("temps"), open_source(LOGITS, LABELS, np.zeros(N)))


def test_weights_in_some_chunks_only_are_refused() -> None:
    chunks = [
        (LOGITS[:2500], LABELS[:2500], np.ones(2500)),
        (LOGITS[2500:], LABELS[2500:]),
    ]
    with pytest.raises(
        ValueError, match="`sample_weight` must be in every chunk or in none"
    ):
        fit(make("temps"), chunks)
