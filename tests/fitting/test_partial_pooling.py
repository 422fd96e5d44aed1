"""Partial pooling against the joint objective written out, and against fits without
an example.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from hokical._fitting.partial_pooling import (
    LEAST_PRECISION,
    BinaryTerms,
    PooledFit,
    SoftmaxTerms,
    fit_pooled,
)
from tests.conftest import max_examples


def binary_terms(
    rng: np.random.Generator, codes: Any, *, spread: float = 0.7
) -> BinaryTerms:
    """Outcomes whose intercept and slope differ by group."""
    n = len(codes)
    features = np.stack([np.ones(n), rng.normal(size=n)], axis=1)
    offset = 0.2 * (rng.random(n) < 0.3) + rng.normal(size=n)
    eta = offset + features @ [0.3, -0.5]
    for column in codes.T:
        own = np.vstack(
            [rng.normal(0.0, spread, size=(column.max() + 1, 2)), np.zeros(2)]
        )
        eta += (features * own[column]).sum(axis=1)
    hits = rng.logistic(size=n) < eta
    return BinaryTerms(features, hits, offset, rng.choice([0.5, 1.0, 2.0], n))


def take(terms: BinaryTerms, rows: Any) -> BinaryTerms:
    return BinaryTerms(*(part[rows] for part in vars(terms).values()))


def softmax_terms(
    rng: np.random.Generator, codes: Any, biased: bool = True
) -> SoftmaxTerms:
    n, k = len(codes), 3
    logits = rng.normal(size=(n, k)) * 2.0
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    tilt = rng.normal(0.0, 0.8, size=(codes.max() + 1, k))
    labels = np.argmax(0.5 * logs + tilt[codes[:, 0]] + rng.gumbel(size=(n, k)), axis=1)
    return SoftmaxTerms(logs, labels, logs.copy(), np.ones(n), biased)


def random_codes(rng: np.random.Generator, n: int, sizes: tuple[int, ...]) -> Any:
    """Groups of which every one occurs, and some examples without one."""
    columns = [
        rng.permutation(np.append(np.arange(k), rng.integers(-1, k, n - k)))
        for k in sizes
    ]
    return np.stack(columns, axis=1)


def design(terms: Any, codes: Any, sizes: tuple[int, ...]) -> Any:
    """All parameters as one matrix (n, outputs, parameters), in the order of a fit's
    vector.
    """
    if isinstance(terms, BinaryTerms):
        own = terms.features[:, None, :]
    else:
        k = terms.log_proba.shape[1]
        eye = np.broadcast_to(np.eye(k), (len(codes), k, k))
        own = np.concatenate([terms.log_proba[:, :, None], eye], axis=2)[
            :, :, : terms.n_features
        ]
    parts = [own]
    for column in sorted(range(len(sizes)), key=lambda j: sizes[j]):
        member = (codes[:, [column]] == np.arange(sizes[column])).astype(float)
        each = np.einsum("ng,nkd->nkgd", member, own)
        parts.append(each.reshape(*own.shape[:2], -1))
    return np.concatenate(parts, axis=2)


def precision(found: PooledFit, sizes: tuple[int, ...]) -> Any:
    """That of each parameter, in the order of a fit's vector."""
    order = np.argsort(sizes, kind="stable")
    own = [np.tile(found.precisions[1 + k], sizes[k]) for k in order]
    return np.concatenate([found.precisions[0], *own])


def losses(terms: Any, table: Any, x: Any) -> Any:
    """Log loss (n,) and its gradient (n, parameters), written out."""
    if isinstance(terms, BinaryTerms):
        eta = terms.offset + table[:, 0] @ x
        chance = 1.0 / (1.0 + np.exp(-eta))
        value = -np.log(np.where(terms.hits, chance, 1.0 - chance))
        return value, (chance - terms.hits)[:, None] * table[:, 0], chance
    scores = terms.offset + table @ x
    proba = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    pull = proba - np.eye(proba.shape[1])[terms.labels]
    return (
        -np.log(proba[np.arange(len(pull)), terms.labels]),
        np.einsum("nk,nkp->np", pull, table),
        proba,
    )


def dense_minimum(terms: Any, table: Any, precision: Any, weights: Any) -> Any:
    def objective(x: Any) -> Any:
        value, slope, _ = losses(terms, table, x)
        return weights @ value + 0.5 * precision @ x**2, weights @ slope + precision * x

    start = np.zeros(table.shape[2])
    found = minimize(objective, start, jac=True, options={"gtol": 1e-9}, method="BFGS")
    return found.x


def dense_hessian(terms: Any, table: Any, precision: Any, x: Any) -> Any:
    proba = losses(terms, table, x)[2]
    if isinstance(terms, BinaryTerms):
        curvature = (proba * (1.0 - proba))[:, None, None]
    else:
        curvature = np.einsum("nk,kl->nkl", proba, np.eye(proba.shape[1]))
        curvature = curvature - proba[:, :, None] * proba[:, None, :]
    whole = np.einsum(
        "n,nkp,nkl,nlq->pq", terms.weights, table, curvature, table, optimize=True
    )
    return whole + np.diag(precision)


CASES = [
    ("binary", (0,)),
    ("binary", (4,)),
    ("binary", (2, 5)),
    ("binary", (3, 2, 4)),
    ("softmax", (3,)),
    ("softmax", (2, 3)),
    ("scale", (3,)),
]


def make_case(
    kind: str, sizes: tuple[int, ...], seed: int, n: int = 150
) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    codes = random_codes(rng, n, sizes)
    if kind == "binary":
        return binary_terms(rng, codes), codes
    return softmax_terms(rng, codes, biased=kind == "softmax"), codes


@pytest.mark.parametrize(("kind", "sizes"), CASES)
def test_minimum_is_that_of_the_joint_objective(
    kind: str, sizes: tuple[int, ...]
) -> None:
    terms, codes = make_case(kind, sizes, 1)
    found = fit_pooled(terms, codes, sizes)
    table = design(terms, codes, sizes)
    wanted = dense_minimum(terms, table, precision(found, sizes), terms.weights)
    np.testing.assert_allclose(found.solution.x, wanted, atol=2e-6)
    assert found.common.size == terms.n_features
    assert [part.shape for part in found.groups] == [
        (size, terms.n_features) for size in sizes
    ]


@pytest.mark.parametrize(("kind", "sizes"), CASES[1:])
def test_precisions_are_fixed_points_of_the_rule(
    kind: str, sizes: tuple[int, ...]
) -> None:
    terms, codes = make_case(kind, sizes, 2, n=600)
    found = fit_pooled(terms, codes, sizes)
    assert found.solution.converged
    table = design(terms, codes, sizes)
    hessian = dense_hessian(terms, table, precision(found, sizes), found.solution.x)
    variance = np.diagonal(np.linalg.inv(hessian))
    start = width = terms.n_features
    for k in np.argsort(sizes, kind="stable"):
        block = np.arange(start, start + sizes[k] * width).reshape(sizes[k], width)
        start += sizes[k] * width
        for places, tau in zip(block.T, found.precisions[1 + k], strict=True):
            wanted = (1.0 - tau * variance[places]).sum() / (
                found.solution.x[places] ** 2
            ).sum()
            assert tau == pytest.approx(np.clip(wanted, 1e-2, 1e6), rel=0.15)
    assert (found.precisions[0] == LEAST_PRECISION).all()


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "sizes"), CASES)
def test_left_out_losses_are_those_of_fits_without_the_example(
    kind: str, sizes: tuple[int, ...]
) -> None:
    terms, codes = make_case(kind, sizes, 3, n=200)
    found = fit_pooled(terms, codes, sizes)
    table = design(terms, codes, sizes)
    told = terms.losses(found.scores_left_out())
    within = losses(terms, table, found.solution.x)[0]
    for row in range(0, 200, 25):
        weights = terms.weights.copy()
        weights[row] = 0.0
        x = dense_minimum(terms, table, precision(found, sizes), weights)
        real = losses(terms, table, x)[0][row]
        assert told[row] == pytest.approx(
            real, abs=0.05 * abs(real - within[row]) + 1e-3
        )


def paired(codes: Any, sizes: tuple[int, ...]) -> Any:
    """The codes with a column more: the combinations of the first two."""
    known = (codes[:, :2] >= 0).all(axis=1)
    return np.column_stack(
        [codes, np.where(known, codes[:, 0] * sizes[1] + codes[:, 1], -1)]
    )


@pytest.mark.parametrize(("kind", "sizes"), [("binary", (4, 3)), ("binary", (2, 3, 2))])
def test_pairs_of_columns_are_eliminated_first(
    kind: str, sizes: tuple[int, ...]
) -> None:
    terms, codes = make_case(kind, sizes, 4, n=400)
    codes, sizes = paired(codes, sizes), (*sizes, sizes[0] * sizes[1])
    found = fit_pooled(terms, codes, sizes)
    table, tau = design(terms, codes, sizes), precision(found, sizes)
    wanted = dense_minimum(terms, table, tau, terms.weights)
    np.testing.assert_allclose(found.solution.x, wanted, atol=5e-6)
    hessian = dense_hessian(terms, table, tau, found.solution.x)
    variance = np.diagonal(np.linalg.inv(hessian))
    np.testing.assert_allclose(
        found.solution.point.inverse.diagonal(), variance, rtol=1e-6
    )
    levers = np.einsum("nkp,pq,nkq->n", table, np.linalg.inv(hessian), table)
    inverse, problem = found.solution.point.inverse, found.solution.point.problem
    cells = inverse.covariances(np.arange(len(problem.rows)))[problem.cell]
    rows = problem.terms.features
    told = np.einsum("nf,nfg,ng->n", rows, cells, rows)
    np.testing.assert_allclose(told, levers[problem.places], rtol=1e-6)


def test_columns_of_very_many_groups_are_refused() -> None:
    terms, codes = make_case("binary", (40, 30), 5, n=300)
    with pytest.raises(
        ValueError, match="`groups` may have one column of very many groups"
    ):
        fit_pooled(terms, codes, (40, 30), most_dense=60)


def test_weights_count_examples() -> None:
    terms, codes = make_case("binary", (4,), 4)
    twice = np.repeat(np.arange(len(codes)), 2)
    doubled = BinaryTerms(terms.features, terms.hits, terms.offset, 2.0 * terms.weights)
    one = fit_pooled(doubled, codes, (4,))
    other = fit_pooled(take(terms, twice), codes[twice], (4,))
    np.testing.assert_allclose(one.solution.x, other.solution.x, atol=1e-8)


@max_examples(15)
@given(st.integers(0, 10**6))
def test_order_of_examples_does_not_matter(seed: int) -> None:
    terms, codes = make_case("binary", (2, 3), seed, n=80)
    order = np.random.default_rng(seed).permutation(len(codes))
    one, other = (
        fit_pooled(take(terms, rows), codes[rows], (2, 3))
        for rows in (slice(None), order)
    )
    np.testing.assert_allclose(one.solution.x, other.solution.x, atol=1e-6)
    np.testing.assert_allclose(
        one.scores_left_out()[order], other.scores_left_out(), atol=1e-5
    )


def pooled_groups(spread: float, n: int, groups: int = 30) -> PooledFit:
    rng = np.random.default_rng(5)
    codes = random_codes(rng, n, (groups,))
    return fit_pooled(binary_terms(rng, codes, spread=spread), codes, (groups,))


def test_precision_finds_how_much_groups_differ() -> None:
    tau = pooled_groups(0.7, 30_000).precisions[1]
    assert 0.5 < 0.7**2 * tau.min() <= 0.7**2 * tau.max() < 2.0


def test_groups_that_do_not_differ_get_the_common_answer() -> None:
    same = pooled_groups(0.0, 3000)
    assert np.abs(same.groups[0]).max() < 0.15
    assert np.abs(pooled_groups(0.7, 3000).groups[0]).max() > 0.7


def test_blocks_share_a_precision_and_common_ones_are_shrunk() -> None:
    terms, codes = make_case("binary", (4,), 6)
    found = fit_pooled(terms, codes, (4,), own_blocks=[0, 0], common_blocks=[-1, 0])
    common, own = found.precisions
    assert np.unique(own).size == 1
    assert common[0] == LEAST_PRECISION < common[1]


def test_thousands_of_groups() -> None:
    rng = np.random.default_rng(7)
    codes = random_codes(rng, 20_000, (4000,))
    found = fit_pooled(binary_terms(rng, codes), codes, (4000,))
    assert found.solution.converged
    assert found.solution.n_iter <= 25  # each inverts a (2, 2) block for every group
    truth = found.precisions[1] * 0.7**2
    assert 0.4 < truth.min() <= truth.max() < 2.5


def test_impossible_classes_and_certain_outcomes_stay_finite() -> None:
    terms, codes = make_case("softmax", (3,), 8)
    never = np.arange(3) == (terms.labels[:, None] + 1) % 3
    never[::2] = False
    masked = SoftmaxTerms(
        np.where(never, 0.0, terms.log_proba),
        terms.labels,
        np.where(never, -np.inf, terms.offset),
        terms.weights,
    )
    found = fit_pooled(masked, codes, (3,))
    assert np.isfinite(found.solution.x).all()
    assert np.isfinite(masked.losses(found.scores_left_out())).all()
    binary, codes = make_case("binary", (4,), 9)
    right = BinaryTerms(
        binary.features, np.full(150, True), binary.offset, binary.weights
    )
    found = fit_pooled(right, codes, (4,))
    assert found.solution.converged
    assert np.isfinite(found.scores_left_out()).all()
