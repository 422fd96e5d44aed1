"""The short forms of two classes are those of any number of classes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hokical._core.logits import Logits
from hokical._fitting import level, searches, structured, two_classes
from hokical._fitting.default import Mixture, gain_of
from hokical._fitting.searches import (
    choose_base,
    least_quadratic,
    log_losses,
    moment_sums,
)
from hokical.calibrators import Examples
from hokical.rules import as_logits

SIZES = (40, 300, 3000)


def draw_examples(n: int, seed: int = 0) -> Examples:
    """Two classes that are too sure, some masked, with weights."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 2)) * rng.lognormal(0.5, 0.8, (n, 1))
    labels = np.argmax(0.4 * logits + rng.gumbel(size=(n, 2)), axis=1)
    labels[:2] = 0, 1
    masked = rng.random(n) < 0.05
    logits[masked, 1 - labels[masked]] = -np.inf
    return Examples(as_logits(logits), labels, rng.uniform(0.5, 2.0, n))


def odds_of(table: np.ndarray) -> np.ndarray:
    return table[..., 1] - table[..., 0]


@pytest.mark.parametrize("n", SIZES)
def test_structured_scaling(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the end, the general search has the same coefficients and left-out scores."""
    monkeypatch.setattr(structured, "RIDGE_TOLERANCE", 1e-11)
    monkeypatch.setattr(two_classes, "TOLERANCE", 1e-11)
    base = choose_base(draw_examples(n), with_prior=True)
    general = structured.fit_ridges(base, (10.0, 0.1), 0, 0.3)
    special = two_classes.fit_ridges(base, (10.0, 0.1), 0, 0.3)
    for rule, other in zip(special[0], general[0], strict=True):
        for name in ("shape", "scale", "bias", "cross", "even"):
            np.testing.assert_allclose(
                getattr(rule, name), getattr(other, name), atol=1e-4, err_msg=name
            )
    rows = base.examples.logits.possible.all(axis=1)
    for table, other_table in zip(special[1], general[1], strict=True):
        gaps = np.abs(odds_of(table) - odds_of(other_table))[rows]
        assert gaps.max() < 0.1
        assert gaps.mean() < 1e-3
    assert special[3]
    assert general[3]


def test_structured_scaling_of_some_rows() -> None:
    """The scores of some rows are those rows of the scores of all."""
    base = choose_base(draw_examples(9000), with_prior=True)
    _, (every,), _, _ = two_classes.fit_ridges(base, (1.0,), 0)
    _, (some,), rows, _ = two_classes.fit_ridges(base, (1.0,), 3)
    assert rows.size == 3000
    np.testing.assert_allclose(some, every[rows], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("n", "even"), list(product(SIZES, (0.0, 0.02))))
def test_level(n: int, even: float) -> None:
    examples = draw_examples(n)
    scores = np.random.default_rng(1).normal(size=(n, 2)) + np.array([0.0, 1.5])
    general = level.LevelProblem(scores, examples, even, ridge=0.3).fit()
    special = level.fit_level(scores, examples, even, ridge=0.3)
    np.testing.assert_allclose(odds_of(special.bias), odds_of(general.bias), rtol=1e-6)
    np.testing.assert_allclose(
        odds_of(special.without_each), odds_of(general.without_each), rtol=1e-6
    )


def test_level_of_scores_that_are_far_apart() -> None:
    """Newton's steps alone would go to and fro between saturated rows."""
    rng = np.random.default_rng(3)
    for seed in range(30):
        examples = draw_examples(20, seed)
        scores = rng.normal(size=(20, 2)) * 300.0
        pair = two_classes.PairLevel.of(scores, examples, 0.0, 0.1)
        slope, _ = pair.slope_and_curvature(pair.fit())
        assert abs(slope) < 1e-6


def test_weights_of_scores() -> None:
    examples = draw_examples(500)
    rng = np.random.default_rng(2)
    tables = [rng.normal(size=(500, 2)) for _ in "abc"]
    weights = np.array([0.2, 0.5, 0.3])
    general = Mixture.of(tables, examples).evaluate(weights)
    special = two_classes.PairMixture.of(tables, examples).evaluate(weights)
    for number, expected in zip(special, general, strict=True):
        np.testing.assert_allclose(number, expected, rtol=1e-10, atol=1e-13)


def as_three(logits: Logits) -> Logits:
    """The same with a third class that is masked."""
    third = np.full((logits.n_rows, 1), -np.inf)
    return as_logits(np.hstack([logits.values, third]))


def test_losses_gains_and_moments() -> None:
    examples = draw_examples(500)
    before = examples.logits
    after = as_logits(0.6 * before.values + np.array([0.0, 0.3]))
    losses = log_losses(before, examples.labels)
    general = log_losses(as_three(before), examples.labels)
    np.testing.assert_allclose(losses, general, rtol=1e-12, atol=1e-15)
    wide = Examples(as_three(before), examples.labels, examples.weights)
    expected = gain_of(as_three(before), as_three(after), wide)
    np.testing.assert_allclose(gain_of(before, after, examples), expected, rtol=1e-9)
    for beta in (0.7, np.linspace(0.1, 3.0, 500)):
        np.testing.assert_array_equal(
            moment_sums(before, beta), moment_sums(as_three(before), beta)
        )


def test_temperatures_of_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The floor and its temperature are those of the search for any classes."""
    for seed in range(6):
        examples = draw_examples(400, seed)
        whole = examples.take(examples.logits.possible.all(axis=1))
        special = choose_base(whole)
        monkeypatch.setattr(searches, "_are_whole_pairs", lambda logits: False)
        general = choose_base(whole)
        monkeypatch.undo()
        assert special.floor == general.floor
        assert special.temperature.x == pytest.approx(general.temperature.x, rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_least_quadratic_on_the_simplex(size: int) -> None:
    """No point of a fine grid on the simplex is lower, whatever the rank."""
    rng = np.random.default_rng(size)
    shares = rng.dirichlet(np.full(size, 0.5), 3000)
    grid = np.vstack([np.eye(size), shares])
    for rank in range(5):
        root = rng.normal(size=(rank, size))
        hessian = root.T @ root
        linear = rng.normal(size=size)

        best = least_quadratic(linear, hessian)
        assert best.min() >= 0.0
        assert best.sum() == pytest.approx(1.0)
        points = np.vstack([best, grid])
        values = points @ linear + 0.5 * np.sum(points @ hessian * points, axis=1)
        assert values[0] <= values[1:].min() + 1e-12
