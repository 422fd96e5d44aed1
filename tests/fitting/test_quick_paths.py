"""Shorter ways to the same numbers, against the obvious ones."""

from itertools import product

import numpy as np
import pytest

from hokical._core.logits import as_logits
from hokical._core.special import (
    clip,
    contract,
    contract_row,
    horner,
    log_ndtr,
    log_ndtr_below,
    row_argmax,
)
from hokical._fitting.searches import moment_sums, odds_sums
from hokical._fitting.structured import leave_out_changes
from hokical.rules import scaling
from hokical.rules.base import softmax


@pytest.mark.parametrize("size", [1e-3, 0.05, 3.0])
def test_series_gives_what_elimination_gives(size: float) -> None:
    """Small leverages are a series of terms, large ones an elimination, mixed here."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(40, 5, 7)) * np.sqrt(size * rng.random((40, 1, 1)))
    spreads = roots @ roots.transpose(0, 2, 1)
    proba = rng.dirichlet(np.ones(5), size=40)
    residual = proba - np.eye(5)[rng.integers(5, size=40)]
    columns = (spreads.transpose(1, 2, 0), proba.T.copy(), residual.T.copy())
    changes = leave_out_changes(*columns).T
    for spread, p, r, change in zip(spreads, proba, residual, changes, strict=True):
        curvature = np.diag(p) - np.outer(p, p)
        solved = np.linalg.solve(np.eye(5) - curvature @ spread, r)
        np.testing.assert_allclose(change, spread @ solved, rtol=1e-7, atol=1e-9 * size)


def test_odds_alone_are_the_first_moment() -> None:
    rng = np.random.default_rng(1)
    logits = as_logits(rng.normal(size=(3000, 40)) * 3.0)
    beta = rng.random(3000) + 0.1
    np.testing.assert_array_equal(odds_sums(logits, beta), moment_sums(logits, beta)[0])
    assert odds_sums(logits, 0.5).shape == (3000,)


@pytest.mark.parametrize("n_classes", [3, 40])
def test_margins_of_blocks_are_those_of_the_whole(n_classes: int) -> None:
    values = np.random.default_rng(2).normal(size=(500, n_classes))
    values[::9, 1] = -np.inf
    fresh = as_logits(values)
    known = as_logits(values).with_margins()
    for rows in (slice(0, 200), slice(200, 500)):
        first = fresh.take(rows)
        second = known.take(rows)
        np.testing.assert_array_equal(first.margins, second.margins)
        assert first.all_possible == second.all_possible
        np.testing.assert_array_equal(
            softmax(-first.margins, first), softmax(-second.margins, second)
        )


@pytest.mark.parametrize("n_columns", [2, 10, 32, 300])
def test_first_maximum_of_many_short_rows_is_that_of_numpy(n_columns: int) -> None:
    table = np.random.default_rng(3).integers(0, 4, (700, n_columns)).astype(float)
    table[5, 1:] = np.nan
    table[9] = -np.inf
    expected = table.argmax(axis=1)
    np.testing.assert_array_equal(row_argmax(np.asfortranarray(table), np), expected)
    np.testing.assert_array_equal(row_argmax(table, np), expected)


def test_labels_do_not_depend_on_known_margins() -> None:
    values = np.random.default_rng(4).integers(0, 3, (500, 6)).astype(np.float32)
    values[::7, 2] = -np.inf
    for rows in (values, values[:, 3:]):
        fresh = as_logits(rows)
        known = as_logits(rows).with_margins()
        np.testing.assert_array_equal(fresh.labels, rows.argmax(axis=1))
        np.testing.assert_array_equal(known.labels, rows.argmax(axis=1))


def default_rule(
    n_classes: int, seed: int, parts: tuple[bool, ...]
) -> scaling.AutoRule:
    """A default with random numbers, and with or without a floor, shape terms, terms
    between classes and a row correction.
    """
    floor, shape, cross, corrected = parts
    rng = np.random.default_rng(seed)
    base = scaling.StructuredRule(
        floor=1e-4 * floor,
        temperature=1.7,
        shape=rng.normal(size=2 * shape),
        scale=rng.normal(1.0, 0.1, n_classes),
        bias=rng.normal(size=n_classes),
        cross=0.1 * rng.normal(size=(n_classes * cross,) * 2),
        even=1e-3 * corrected,
    )
    size = scaling.N_FEATURES
    numbers = rng.normal(size=(2, size + 1)) * 0.2
    correction = scaling.RowCorrection(np.zeros(size), np.full(size, 0.7), *numbers)
    return scaling.AutoRule(base, correction if corrected else None, keep_labels=False)


@pytest.mark.parametrize("n_classes", [2, 10, 32, 40])
def test_one_row_in_floats_is_a_row_of_many_to_the_bit(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    rows = rng.normal(size=(40, n_classes)) * rng.lognormal(1.0, 2.0, (40, 1))
    rows[3] = 0.0
    rows[4, :2] = rows[4].max()
    rows[5, 0] = 1e200
    rows[6, 1] = -np.inf
    for seed, parts in enumerate(product((False, True), repeat=4)):
        rule = default_rule(n_classes, seed, parts)
        expected = rule.proba(as_logits(rows))
        for i in range(40):
            twice = as_logits(rows[[i, i]] if n_classes <= 32 else rows[[i]])
            np.testing.assert_array_equal(rule.proba(twice)[-1], expected[i])
        pair = rule.proba(as_logits(rows[7:9]))
        np.testing.assert_array_equal(pair, expected[7:9])


@pytest.mark.parametrize("size", [2, 10, 30])
def test_products_of_columns_do_not_depend_on_the_batch(size: int) -> None:
    rng = np.random.default_rng(size)
    rows = np.asfortranarray(rng.normal(size=(100, size)))
    matrix = rng.normal(size=(size, size))
    products = contract(rows, matrix, np)
    np.testing.assert_allclose(products, rows @ matrix, atol=1e-12)
    for start, count in ((0, 2), (3, 16), (5, 17), (40, 33)):
        some = np.asfortranarray(rows[start : start + count])
        np.testing.assert_array_equal(
            contract(some, matrix, np), products[start : start + count]
        )
    for i in range(20):
        alone = contract_row(rows[i].tolist(), matrix)
        np.testing.assert_array_equal(alone, products[i])


@pytest.mark.parametrize("n_rows", [3, 900])
@pytest.mark.parametrize(("low", "high"), [(-1.0, None), (None, 0.5), (-1.0, 0.5)])
def test_clipping_where_needed_is_clipping(
    n_rows: int, low: float | None, high: float | None
) -> None:
    table = np.random.default_rng(5).normal(size=(n_rows, 4))
    table[1, 2] = np.nan
    for values in (table, 0.1 * table):
        expected = np.clip(values, low, high)
        np.testing.assert_array_equal(clip(values, low, high, np), expected)


def test_the_lower_tail_alone_is_that_of_both_to_the_bit() -> None:
    x = -np.random.default_rng(6).exponential(8.0, 2000)
    np.testing.assert_array_equal(log_ndtr_below(x, np), log_ndtr(x, np))


def test_polynomials_of_arrays_are_those_of_numbers_to_the_bit() -> None:
    x = np.random.default_rng(7).normal(size=50)
    coefficients = (0.3, -1.7, 2.0)
    numbers = [horner(coefficients, float(number)) for number in x]
    np.testing.assert_array_equal(horner(coefficients, x), numbers)
