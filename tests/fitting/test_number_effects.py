"""Numbers beside the logits: linear corrections of a row, by held-out loss."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

import hokical
from hokical._core.groups import GroupCoding
from hokical._fitting import number_effects
from hokical._fitting.number_effects import learn_numbers
from hokical._fitting.partial_pooling import SoftmaxTerms
from hokical.metrics import log_loss


def examples(
    n: int,
    seed: int,
    *,
    shift: float = 0.0,
    prevalence: float = 0.0,
    n_classes: int = 4,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, labels, and a number by which the label's score or classes' change."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    number = rng.normal(50.0, 10.0, size=n)
    unit = (number - 50.0) / 10.0
    is_top = logits == logits.max(axis=1, keepdims=True)
    slope = np.linspace(-1.0, 1.0, n_classes)
    scores = logits + shift * unit[:, None] * is_top
    scores = scores + prevalence * unit[:, None] * slope
    labels = np.argmax(scores + rng.gumbel(size=logits.shape), axis=1)
    return logits, labels, number


def terms_of(
    logits: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
) -> SoftmaxTerms:
    log_proba = log_softmax(logits, axis=1)
    counts = np.ones(len(labels)) if weights is None else weights
    return SoftmaxTerms(log_proba, labels, log_proba, counts)


def learn(terms: SoftmaxTerms, groups: object) -> number_effects.NumberFit:
    n = terms.labels.size
    coding = GroupCoding.read(groups, n)[0].with_numbers()
    return learn_numbers(terms, coding, coding.inputs(groups, n))


def slow_scores(
    theta: np.ndarray, log_proba: np.ndarray, units: np.ndarray, n_kinds: int
) -> np.ndarray:
    """Scores by the formula of the documentation, entry by entry."""
    table = theta.reshape(n_kinds, -1)
    scores = log_proba.copy()
    for i in range(len(scores)):
        label = int(log_proba[i].argmax())
        for number, unit in enumerate(units[i]):
            for k in range(scores.shape[1]):
                if k == label:
                    scores[i, k] += table[0, number] * unit
                if n_kinds > 1:
                    scores[i, k] += table[1, number] * unit * log_proba[i, k]
                if n_kinds > 2:
                    scores[i, k] += table[2 + k, number] * unit
    return scores


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", [1, 2, 3])
def test_fits_and_estimates_without_each_example_are_those_of_an_obvious_search(
    form: int,
) -> None:
    rng = np.random.default_rng(form)
    n, n_classes = 40, 3
    log_proba = log_softmax(2.0 * rng.normal(size=(n, n_classes)), axis=1)
    labels = rng.integers(0, n_classes, n)
    units = rng.normal(size=(n, 2))
    weights = rng.uniform(0.5, 3.0, n)
    terms = SoftmaxTerms(log_proba, labels, log_proba, weights)
    problem = number_effects._LinearProblem(terms, units, form)
    n_kinds = problem.n_kinds

    def row_losses(theta: np.ndarray) -> np.ndarray:
        scores = slow_scores(theta, log_proba, units, n_kinds)
        return -log_softmax(scores, axis=1)[np.arange(n), labels]

    def loss(theta: np.ndarray) -> float:
        penalty = 0.5 * number_effects._RIDGE * theta @ theta
        return float(weights @ row_losses(theta) + penalty)

    optimum = minimize(loss, np.zeros(2 * n_kinds), tol=1e-12).x
    table, fitted, left_out = problem.solve()
    np.testing.assert_allclose(table.ravel(), optimum, atol=2e-6)
    expected = slow_scores(table.ravel(), log_proba, units, n_kinds) - log_proba
    np.testing.assert_allclose(fitted, expected, atol=1e-12)
    # One Newton step of the fit without an example, with differences as derivatives.
    theta, step = table.ravel(), 1e-4
    eye = step * np.eye(theta.size)

    def loss_without(row: int, at: np.ndarray) -> float:
        return loss(at) - float(weights[row] * row_losses(at)[row])

    for row in (0, 7):
        ups, downs = (
            np.array([loss_without(row, theta + sign * e) for e in eye])
            for sign in (1.0, -1.0)
        )
        slope = (ups - downs) / (2.0 * step)
        bent = np.array(
            [
                [
                    loss_without(row, theta + a + b)
                    - loss_without(row, theta + a - b)
                    - loss_without(row, theta - a + b)
                    + loss_without(row, theta - a - b)
                    for b in eye
                ]
                for a in eye
            ]
        ) / (4.0 * step**2)
        moved = theta - np.linalg.solve(bent, slope)
        change = slow_scores(moved, log_proba, units, n_kinds)[row] - log_proba[row]
        np.testing.assert_allclose(left_out[row], change, atol=1e-5)


@pytest.mark.slow
def test_a_number_that_matters_beats_its_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = []
    for seed in range(6):
        logits, labels, number = examples(4000, seed, shift=0.25)
        fit, new = slice(0, 1000), slice(1000, None)
        groups = [{"agreement": number[rows]} for rows in (fit, new)]
        by_number = hokical.auto(logits[fit], labels[fit], groups=groups[0])
        with monkeypatch.context() as patch:
            patch.setattr(GroupCoding, "with_numbers", lambda coding: coding)
            by_bins = hokical.auto(logits[fit], labels[fit], groups=groups[0])
        plain = hokical.auto(logits[fit], labels[fit])
        losses = [
            log_loss(cal.predict_proba(logits[new], groups=groups[1]), labels[new])
            for cal in (by_number, by_bins)
        ]
        without = log_loss(plain.predict_proba(logits[new]), labels[new])
        gains.append([without - losses[0], losses[1] - losses[0]])
    over_plain, over_bins = np.mean(gains, axis=0)
    assert over_plain > 0.002
    assert over_bins > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 300])
def test_a_number_without_meaning_does_no_harm(n: int) -> None:
    harm = []
    used = 0
    for seed in range(60):
        logits, labels, number = examples(n, seed)
        fit = learn(terms_of(logits, labels), {"noise": number})
        if fit.effects is None:
            harm.append(0.0)
            continue
        used += 1
        new, _, numbers = examples(2000, 1000 + seed)
        truth = softmax(new, axis=1)
        scores = corrected(fit, new, numbers)
        changed = log_softmax(scores, axis=1)
        harm.append(float((truth * (log_softmax(new, axis=1) - changed)).sum(1).mean()))
    assert np.mean(harm) < 0.0003  # .00005 to .0001
    assert used < 15


def corrected(
    fit: number_effects.NumberFit, logits: np.ndarray, number: np.ndarray
) -> np.ndarray:
    """Scores of rows with their corrections."""
    assert fit.effects is not None
    scale, shift, bias = fit.effects.corrections(number[:, None], np)
    log_proba = log_softmax(logits, axis=1)
    is_top = log_proba == log_proba.max(axis=1, keepdims=True)
    return (1.0 + scale)[:, None] * log_proba + bias + shift[:, None] * is_top


@pytest.mark.sample(0)
@pytest.mark.parametrize("n_columns", [1, 6])
@pytest.mark.parametrize("n", [200, 1000])
def test_columns_of_noise_do_no_harm_to_the_default(n: int, n_columns: int) -> None:
    harm = []
    for seed in range(20_000 // n):
        rng = np.random.default_rng(seed)
        logits, labels, _ = examples(n + 4000, seed)
        numbers = {str(k): rng.normal(size=n + 4000) for k in range(n_columns)}
        fit, new = slice(0, n), slice(n, None)
        groups = [{k: v[rows] for k, v in numbers.items()} for rows in (fit, new)]
        cal = hokical.auto(logits[fit], labels[fit], groups=groups[0])
        plain = hokical.auto(logits[fit], labels[fit]).predict_proba(logits[new])
        proba = cal.predict_proba(logits[new], groups=groups[1])
        truth = softmax(logits[new], axis=1)
        harm.append(float((truth * np.log(plain / proba)).sum(axis=1).mean()))
    assert np.mean(harm) < 0.0005


@pytest.fixture(scope="module")
def fitted() -> hokical.AutoCalibrator:
    logits, labels, number = examples(2000, 0, shift=0.4, prevalence=0.3)
    site = np.array(["a", "b"])[np.arange(2000) % 2]
    logits[:, 0] -= 1.5 * (site == "b")
    groups = {"site": site, "age": number}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cal = hokical.auto(logits, labels, groups=groups)
    assert cal.groups_ == ["age", "site"]
    return cal


NEW = {
    "age": [31.5, 50.0, 68.25, 1e300, -np.inf, np.inf, np.nan, None, "61.5", 61.5],
    "site": ["a", "b", "a", "b", "a", "a", "b", "b", "a", "a"],
}


def new_logits() -> np.ndarray:
    return examples(10, 5)[0]


def quietly(cal: hokical.AutoCalibrator, logits: np.ndarray, groups: object):
    with warnings.catch_warnings():  # of missing numbers
        warnings.simplefilter("ignore")
        return cal.predict_proba(logits, groups=groups)


def test_the_rule_is_its_formula(fitted: hokical.AutoCalibrator) -> None:
    logits = new_logits()
    proba = quietly(fitted, logits, NEW)
    rule = fitted.rule_
    effects = rule.effects
    inner = np.log(fitted.without_groups().predict_proba(logits))
    assert rule.terms == ((1,),)
    for i in range(10):
        raw = NEW["age"][i]
        value = np.nan if raw is None else float(raw)
        unit = 0.0
        if not np.isnan(value):
            value = min(max(value, effects.low[0]), effects.high[0])
            unit = (value - effects.centre[0]) / effects.spread[0]
        group = ["a", "b"].index(NEW["site"][i])
        scale = 1.0 + rule.scale[group] + unit * effects.scale[0]
        scores = scale * inner[i] + rule.bias[group] + unit * effects.bias[0]
        scores[inner[i].argmax()] += unit * effects.shift[0]
        np.testing.assert_allclose(proba[i], softmax(scores), rtol=1e-10)


def test_missing_numbers_and_extremes(fitted: hokical.AutoCalibrator) -> None:
    logits = np.tile(new_logits()[:1], (10, 1))
    proba = quietly(fitted, logits, NEW | {"site": ["a"] * 10})
    assert np.isfinite(proba).all()
    np.testing.assert_array_equal(proba[3], proba[5])  # clipped to the range of the fit
    np.testing.assert_array_equal(proba[6], proba[7])  # missing
    np.testing.assert_array_equal(proba[8], proba[9])  # a number and its text
    assert not np.allclose(proba[3], proba[4])
    with pytest.warns(UserWarning, match=r"of 10, .* missing .*: 2 in 'age'\."):
        fitted.schema_.group_inputs(NEW, 10)


def test_rows_are_predicted_alike_in_every_batch(
    fitted: hokical.AutoCalibrator,
) -> None:
    logits, _, number = examples(700, 8)
    groups = {"age": number, "site": np.array(["a", "b", None] * 234)[:700]}
    proba = quietly(fitted, logits, groups)
    for rows in (slice(0, 1), slice(3, 10), slice(100, 357)):
        subset = {name: column[rows] for name, column in groups.items()}
        np.testing.assert_array_equal(
            quietly(fitted, logits[rows], subset), proba[rows]
        )


@pytest.mark.slow
def test_the_order_of_columns_does_not_matter() -> None:
    logits, labels, number = examples(1500, 9, shift=0.4)
    more = number + np.random.default_rng(0).normal(0.0, 8.0, 1500)
    site = np.array(["a", "b", "c"])[np.arange(1500) % 3]
    groups = {"site": site, "more": more, "age": number}
    turned = {name: groups[name] for name in ("age", "site", "more")}
    first, second = (hokical.auto(logits, labels, groups=g) for g in (groups, turned))
    assert set(first.groups_) == set(second.groups_) >= {"age"}
    np.testing.assert_allclose(
        first.predict_proba(logits, groups=groups),
        second.predict_proba(logits, groups=groups),
        atol=1e-8,
    )


def test_files_hold_the_effects(fitted: hokical.AutoCalibrator, tmp_path: Path) -> None:
    fitted.save(tmp_path / "cal.json")
    loaded = hokical.load(tmp_path / "cal.json")
    logits = new_logits()
    np.testing.assert_array_equal(
        quietly(loaded, logits, NEW), quietly(fitted, logits, NEW)
    )
    assert loaded.reason_ == fitted.reason_
    assert "'age' as a number was used" in loaded.reason_


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spread": np.zeros(1)}, "`spread` must hold numbers from 1e-100"),
        ({"low": np.array([1e9])}, "`low` must not be above `high`"),
        ({"columns": (0, 0)}, "`columns` must be 1 different columns"),
        ({"columns": (1,)}, r"`effects` must be of the numeric columns \[0\]"),
        ({"shift": np.array([np.nan])}, "`shift` must hold numbers"),
        ({"bias": np.zeros((1, 7))}, "biases of as many classes as groups"),
    ],
)
def test_impossible_effects_are_refused(
    fitted: hokical.AutoCalibrator, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(fitted.rule_, effects=replace(fitted.rule_.effects, **changes))


def test_which_columns_are_numbers() -> None:
    rng = np.random.default_rng(0)
    groups = {
        "share": rng.integers(0, 6, 500) / 5,
        "votes": rng.integers(0, 6, 500),
        "age": rng.integers(20, 80, 500),
        "length": rng.lognormal(size=500),
        "word": rng.choice(["a", "b"], 500),
        "half": rng.integers(0, 2, 500) / 2,
        "mixed": np.array(["x", 0.5, 1.5] * 167, object)[:500],
    }
    coding = GroupCoding.read(groups, 500)[0].with_numbers()
    numeric = [name for k, name in enumerate(groups) if coding.is_numeric(k)]
    assert numeric == ["share", "age", "length"]
    ids = GroupCoding.read(rng.integers(0, 200, 500), 500)[0].with_numbers()
    assert not ids.has_numbers
    assert ids.inputs(np.arange(3), 3).dtype == np.int64


def test_codes_are_found_again_in_numbers() -> None:
    rng = np.random.default_rng(1)
    groups = {
        "share": rng.integers(0, 6, 500) / 5,
        "age": rng.normal(size=500),
        "word": rng.choice(["a", "b"], 500),
    }
    coding = GroupCoding.read(groups, 500)[0].with_numbers()
    new = {
        "share": [0.2, 0.3, np.nan, 1.0, 0.0],
        "age": [-9.0, 9.0, None, np.inf, coding.levels[1][3]],
        "word": ["a", "c", "b", None, "a"],
    }
    inputs = coding.inputs(new, 5)
    assert inputs.dtype == np.float64
    np.testing.assert_array_equal(coding.codes_of_inputs(inputs), coding.codes(new, 5))
    assert coding.are_unknown(inputs).sum(axis=0).tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    "kind", ["constant", "missing", "nearly constant", "few", "huge"]
)
def test_columns_that_say_nothing(kind: str) -> None:
    logits, labels, number = examples(300, 3)
    columns = {
        "constant": np.full(300, 0.5),
        "missing": np.full(300, np.nan),
        "nearly constant": np.where(np.arange(300) < 297, 0.5, number),
        "few": np.where(np.arange(300) < 5, number, np.nan),
        "huge": np.where(np.arange(300) % 2, 1e200, -1e200) * number,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cal = hokical.auto(logits, labels, groups={"number": columns[kind]})
    assert cal.groups_ == []
    np.testing.assert_array_equal(
        cal.predict_proba(logits), hokical.auto(logits, labels).predict_proba(logits)
    )


def test_infinite_numbers_are_the_farthest() -> None:
    logits, labels, number = examples(1500, 4, shift=0.5)
    number[:3] = [np.inf, -np.inf, 1e308]
    cal = hokical.auto(logits, labels, groups={"distance": number})
    assert cal.groups_ == ["distance"]
    proba = cal.predict_proba(logits, groups={"distance": number})
    assert np.isfinite(proba).all()


def test_a_bend_is_left_to_bins() -> None:
    rng = np.random.default_rng(5)
    logits = 2.0 * rng.normal(size=(4000, 3))
    age = rng.normal(size=4000)
    scores = logits + 1.5 * np.outer(np.abs(age) - 0.8, [1, 0, -1])
    labels = np.argmax(scores + rng.gumbel(size=logits.shape), axis=1)
    cal = hokical.auto(logits, labels, groups={"age": age})
    assert "'age', cut at " in cal.reason_
    plain = hokical.auto(logits, labels)
    gain = log_loss(plain.predict_proba(logits), labels) - log_loss(
        cal.predict_proba(logits, groups={"age": age}), labels
    )
    assert gain > 0.05


def test_weights_count_examples() -> None:
    logits, labels, number = examples(400, 6, shift=0.6)
    counts = np.random.default_rng(0).integers(1, 4, 400)
    weighted = learn(terms_of(logits, labels, counts.astype(float)), {"number": number})
    rows = np.repeat(np.arange(400), counts)
    repeated = learn(terms_of(logits[rows], labels[rows]), {"number": number[rows]})
    assert weighted.effects is not None
    assert repeated.effects is not None
    for name in ("low", "high", "centre", "spread"):
        np.testing.assert_allclose(
            getattr(weighted.effects, name), getattr(repeated.effects, name)
        )
    np.testing.assert_allclose(
        weighted.effects.shift, repeated.effects.shift, atol=0.03
    )


def test_masked_classes_stay_masked() -> None:
    logits, labels, number = examples(1500, 7, shift=0.5)
    masked = np.arange(1500) % 5 == 0
    logits[masked, 3] = -np.inf
    labels[masked & (labels == 3)] = 0
    cal = hokical.auto(logits, labels, groups={"number": number})
    assert cal.groups_ == ["number"]
    proba = cal.predict_proba(logits, groups={"number": number})
    assert (proba[masked, 3] == 0.0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


@pytest.mark.slow
def test_shift_and_certificates_go_by_bins(fitted: hokical.AutoCalibrator) -> None:
    logits, labels, number = examples(3000, 10, shift=0.4, prevalence=0.3)
    site = np.array(["a", "b"])[np.arange(3000) % 2]
    groups = {"age": number, "site": site}
    by_group = fitted.estimate_shift(logits, groups=groups).by_group
    assert len(by_group) == 20  # deciles of two sites
    assert any("age=below" in name for name in by_group)
    fitted.certify(logits, labels, groups=groups)
    first = {name: column[:50] for name, column in groups.items()}
    decisions = fitted.predict_or_abstain(logits[:50], risk=0.3, groups=first)
    assert decisions.accepted.any()
    monitor = hokical.CalibrationMonitor(fitted)
    monitor.update_logits(logits, labels, groups=groups)
    assert len(monitor.status().groups) == 12  # deciles, and sites
