"""Confidences without logits: the probability that an answer is right, by group."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import hokical
from hokical import ConfidenceCalibrator, FitDataWarning, calibrate_confidence

SUBJECTS = np.array(["law", "maths", "music", "physics"])


def grouped(work: Any, rows: tuple[Any, Any, Any], **options: Any) -> Any:
    """What `work` makes of confidences, outcomes and groups."""
    return work(rows[0], rows[1], groups=rows[2], **options)


def answers(n: int, seed: int = 0, *, spread: float = 1.0) -> tuple[Any, Any, Any]:
    """Stated confidences that pile up, whether answers are right, and their
    subjects.
    """
    rng = np.random.default_rng(seed)
    stated = np.where(
        rng.random(n) < 0.7, rng.choice([0.8, 0.9, 0.95, 1.0], n), rng.random(n)
    )
    subject = rng.integers(0, 4, n)
    truth = 1.0 / (
        1.0
        + np.exp(-(2.0 * stated - 1.2 + spread * np.array([-1, 1, 0, 0.5])[subject]))
    )
    return stated, rng.random(n) < truth, SUBJECTS[subject]


def log_loss(proba: Any, right: Any) -> float:
    return float(-np.log(np.where(right, proba, 1.0 - proba)).mean())


@pytest.fixture(scope="module")
def fitted() -> ConfidenceCalibrator:
    return grouped(calibrate_confidence, answers(3000))


def test_answers_are_right_as_often_as_they_say_in_every_group(fitted: Any) -> None:
    stated, right, subject = answers(20_000, 1)
    proba = fitted.predict(stated, groups=subject)
    for name in SUBJECTS:
        here = subject == name
        assert abs(proba[here].mean() - right[here].mean()) < 0.04
    assert log_loss(proba, right) < log_loss(fitted.predict(stated), right) - 0.03
    assert "corrections by group" in fitted.reason_
    assert list(fitted.held_out_log_loss_) == [
        "as stated",
        "line",
        "curve",
        "average",
        "groups",
    ]


@pytest.mark.slow
def test_groups_that_do_not_differ_are_left_out() -> None:
    left_out, harm = 0, []
    for seed in range(6):
        stated, right, _ = answers(1500, seed, spread=0.0)
        subject = np.random.default_rng(seed + 99).choice(SUBJECTS, 1500)
        cal = calibrate_confidence(stated, right, groups=subject)
        left_out += cal.rule_.coding is None
        one = calibrate_confidence(stated, right)
        test, truth, _ = answers(20_000, 50 + seed, spread=0.0)
        names = np.random.default_rng(seed).choice(SUBJECTS, 20_000)
        harm.append(
            log_loss(cal.predict(test, groups=names), truth)
            - log_loss(one.predict(test), truth)
        )
    assert left_out >= 4
    assert np.mean(harm) < 1e-3


def divergence(truth: Any, proba: Any) -> float:
    """What probabilities lose against the true ones, in nats."""
    lost = truth * np.log(truth / proba) + (1.0 - truth) * np.log(
        (1.0 - truth) / (1.0 - proba)
    )
    return float(lost.mean())


@pytest.mark.sample(0)
@pytest.mark.parametrize("grouped", [False, True])
def test_calibrated_confidence_is_hardly_changed(grouped: bool) -> None:
    harm: dict[int, list[float]] = {60: [], 400: []}
    for seed, n in np.ndindex(40, 2):
        n = (60, 400)[n]
        rng = np.random.default_rng(seed)
        p = (
            rng.uniform(0.05, 0.95, 2000)
            if seed % 2
            else rng.choice([0.6, 0.8, 0.9, 0.95], 2000)
        )
        subject = rng.choice(SUBJECTS, 2000) if grouped else None
        part = None if subject is None else subject[:n]
        cal = calibrate_confidence(p[:n], rng.random(n) < p[:n], groups=part)
        harm[n].append(divergence(p, cal.predict(p, groups=subject)))
    assert np.mean(harm[60]) < 6e-3
    assert max(harm[60]) < 0.08
    assert np.mean(harm[400]) < 1.5e-3


@pytest.mark.slow
@pytest.mark.parametrize("n", [40, 150])
def test_few_examples_of_an_overconfident_model_are_enough(n: int) -> None:
    """Little is lost against the best line of the log-odds, which knows all answers."""
    lost = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        stated = rng.choice([0.8, 0.9, 0.95, 0.99], 2000)
        odds = np.log(stated / (1.0 - stated))
        truth = 1.0 / (1.0 + np.exp(0.8 - 0.6 * odds))
        cal = calibrate_confidence(stated[:n], rng.random(n) < truth[:n])
        lost.append(divergence(truth, cal.predict(stated)))
    assert (
        np.mean(lost) < 1.2 / n
    )  # two parameters fitted by maximum likelihood lose 1 / n
    assert max(lost) < 0.1


@pytest.mark.parametrize(("hits", "size"), [(12, 12), (20, 40), (1, 30), (300, 400)])
@pytest.mark.parametrize("monotone", [False, True])
def test_a_single_value_is_as_sure_as_its_count(
    hits: int, size: int, monotone: bool
) -> None:
    right = np.arange(size) < hits
    cal = calibrate_confidence(np.ones(size), right, monotone=monotone)
    assert abs(cal.predict([1.0])[0] - (hits + 1) / (size + 2)) < 0.01


@pytest.mark.parametrize("rest", [0.0, 0.5])
@pytest.mark.parametrize("monotone", [False, True])
def test_a_value_without_errors_is_not_certain(rest: float, monotone: bool) -> None:
    stated = np.repeat([1.0, 0.8], [12, 20])
    right = np.append(np.ones(12, bool), np.arange(20) % 2 < 2 * rest)
    found = calibrate_confidence(stated, right, monotone=monotone).predict([1.0, 0.8])
    assert 0.85 < found[0] < 0.97
    assert abs(found[1] - rest) < 0.15
    by_topic = calibrate_confidence(
        np.full(32, 0.9), right, groups=np.where(stated == 1.0, "a", "b")
    )
    assert by_topic.predict([0.9], groups=["a"])[0] < 0.97


def test_few_or_equal_examples_keep_the_confidence() -> None:
    stated, right, subject = answers(15)
    with pytest.warns(FitDataWarning, match=r"9 examples are too few \(at least 10"):
        few = calibrate_confidence(stated[:9], right[:9], groups=subject[:9])
    np.testing.assert_allclose(few.predict([0.0, 0.3, 1.0]), [0.001, 0.3, 0.999])
    assert few.reason_.startswith(
        "the stated confidence was kept: 9 examples are too few"
    )
    with pytest.warns(FitDataWarning, match="all 15 examples are right. Check `right`"):
        cal = calibrate_confidence(stated, np.ones(15, bool), groups=subject)
    found = cal.predict([stated.min(), stated.max()])
    assert (found >= [stated.min() - 0.05, 0.85]).all()
    assert (found < 1.0 - 0.5 / 17).all()
    signals = np.column_stack([stated, stated])
    with pytest.warns(FitDataWarning, match="all 15 examples are wrong"):
        cal = calibrate_confidence(signals, np.zeros(15, bool))
    assert (cal.predict(signals) < 0.3).all()


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize(("value", "n"), [(0.5, 12), (0.9, 12), (0.9, 300), (1.0, 60)])
def test_one_outcome_alone_is_as_sure_as_its_count(
    value: float, n: int, monotone: bool
) -> None:
    for right in (True, False):
        cal = calibrate_confidence(
            np.full(n, value), np.full(n, right), monotone=monotone
        )
        found = cal.predict([value])[0]
        assert (1.0 - found if right else found) == pytest.approx(
            1.0 / (n + 2), rel=0.3
        )


def test_the_loss_of_a_monotone_curve_is_its_own() -> None:
    stated, right = [0.5] * 20 + [1.0] * 20, [True] * 25 + [False] * 15
    cal = calibrate_confidence(stated, right, monotone=True)
    proba = cal.predict(stated)
    seen = -np.log(np.where(right, proba, 1.0 - proba)).mean()
    assert seen < cal.held_out_log_loss_["average"] < seen + 0.1


def test_a_confidence_that_is_kept_is_kept_where_no_example_is() -> None:
    cal = calibrate_confidence([0.8, 0.85, 0.9], [True, False, True], monotone=True)
    np.testing.assert_allclose(cal.predict([0.1, 0.82, 0.99]), [0.1, 0.82, 0.99])


def test_groups_of_weight_0_are_not_known() -> None:
    stated, right, subject = answers(1000)
    odd = np.arange(1000) % 2 == 1
    named = np.where(odd, subject, "elsewhere")
    cal = calibrate_confidence(stated, right, groups=named, sample_weight=odd)
    alone = calibrate_confidence(stated[odd], right[odd], groups=subject[odd])
    np.testing.assert_array_equal(
        cal.predict(stated, groups=subject), alone.predict(stated, groups=subject)
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "groups",
    [["a"] * 300, [None] * 300, list(range(300)), [f"g{k}" for k in range(300)]],
)
@pytest.mark.parametrize("kind", ["constant", "separated", "inverted"])
@pytest.mark.filterwarnings("ignore:`groups` has rows")
def test_odd_examples_have_sound_answers(kind: str, groups: Any) -> None:
    rng = np.random.default_rng(0)
    stated = np.full(300, 0.9) if kind == "constant" else rng.random(300)
    right = stated > 0.5 if kind == "separated" else rng.random(300) < 1.0 - stated
    for monotone in (False, True):
        cal = calibrate_confidence(stated, right, groups=groups, monotone=monotone)
        proba = cal.predict(np.append(stated[:-2], [0.0, 1.0]), groups=groups)
        assert ((proba > 0.0) & (proba < 1.0)).all()
        assert cal.converged_


def test_unknown_and_missing_groups_get_the_common_answer(fitted: Any) -> None:
    common = fitted.predict([0.9, 0.9, 0.9])
    with pytest.warns(UserWarning, match="not in the fit: 3 in 'group'"):
        unknown = fitted.predict([0.9] * 3, groups=["chess", None, "art"])
    np.testing.assert_array_equal(unknown, common)
    assert (fitted.predict([0.9] * 4, groups=SUBJECTS) != common[0]).all()


def test_missing_groups_of_a_fit_are_counted() -> None:
    stated, right, subject = answers(300)
    with pytest.warns(
        UserWarning, match="of 300, whose group is missing .*: 100 in 'group'"
    ):
        calibrate_confidence(
            stated, right, groups=np.where(np.arange(300) < 100, None, subject)
        )


def test_fractions_on_another_scale_are_told() -> None:
    stated, right, _ = answers(300)
    with pytest.warns(
        UserWarning, match="look like fractions: none is above 1 on a scale to 100"
    ):
        calibrate_confidence(stated, right, scale=100)
    cal = calibrate_confidence(100 * stated, right, scale=100)
    with pytest.warns(UserWarning, match="look like fractions"):
        cal.predict([0.9])
    assert cal.predict([0.0]).size == 1


def test_no_answers(fitted: Any) -> None:
    monotone = grouped(calibrate_confidence, answers(300), monotone=True)
    for cal in (fitted, monotone):
        assert cal.predict([]).shape == cal.predict([], groups=[]).shape == (0,)
    for learn in (calibrate_confidence, monotone.certify):
        with pytest.raises(
            ValueError, match="at least one answer to learn from; got none"
        ):
            learn([], [])


def test_several_columns_add_up() -> None:
    stated, right, subject = answers(6000, spread=0.7)
    rng = np.random.default_rng(3)
    region = rng.integers(0, 3, 6000)
    right = np.where(region == 2, rng.random(6000) < 0.2, right)
    columns = {"subject": subject, "region": region}
    cal = calibrate_confidence(stated, right, groups=columns)
    assert cal.rule_.coding.columns == ("subject", "region")
    assert "Groups: 'subject', 'region' was used" in cal.reason_
    proba = cal.predict(stated, groups=columns)
    for names in columns.values():
        for name in np.unique(names):
            assert abs((proba - right)[names == name].mean()) < 0.02
    with pytest.raises(ValueError, match="columns of the fit"):
        cal.predict(stated, groups={"subject": subject})


@pytest.mark.parametrize("seed", range(3))
def test_monotone_curves_do_not_fall(seed: int) -> None:
    stated, right, subject = answers(800, seed)
    right = np.where(stated == 0.95, np.arange(800) % 3 == 0, right)
    free, rising = (
        calibrate_confidence(stated, right, groups=subject, monotone=monotone)
        for monotone in (False, True)
    )
    grid = np.sort(np.append(np.linspace(0.0, 1.0, 501), [0.8, 0.9, 0.95]))
    for name in SUBJECTS:
        assert (np.diff(rising.predict(grid, groups=[name] * grid.size)) >= 0.0).all()
    assert (np.diff(rising.predict(grid)) >= 0.0).all()
    assert (np.diff(free.predict(grid)) < 0.0).any()
    assert abs(rising.predict(stated, groups=subject).mean() - right.mean()) < 0.03


def test_percentages_and_other_libraries(fitted: Any) -> None:
    stated, right, subject = answers(3000)
    cal = calibrate_confidence(100 * stated, right, groups=subject, scale=100)
    np.testing.assert_allclose(
        cal.predict(100 * stated, groups=subject),
        fitted.predict(stated, groups=subject),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        fitted.predict(stated.astype(np.float32), groups=subject),
        fitted.predict(stated, groups=subject),
        atol=1e-5,
    )
    torch = pytest.importorskip("torch")
    found = fitted.predict(torch.tensor(stated), groups=subject)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), fitted.predict(stated, groups=subject))


def test_rows_of_weight_0_are_not_there() -> None:
    stated, right, subject = answers(400)
    seen = np.where(np.arange(400) < 300, 1.0, 0.0)
    one = calibrate_confidence(stated, right, groups=subject, sample_weight=seen)
    two = calibrate_confidence(stated[:300], right[:300], groups=subject[:300])
    np.testing.assert_allclose(one.predict(stated), two.predict(stated))


def test_only_ratios_of_weights_count() -> None:
    stated, right, subject = answers(1500)
    weights = np.random.default_rng(0).integers(1, 4, 1500)
    fits = [
        calibrate_confidence(stated, right, groups=subject, sample_weight=weights * k)
        for k in (1, 8)
    ]
    found, other = (cal.predict(stated, groups=subject) for cal in fits)
    np.testing.assert_allclose(found, other, rtol=1e-9)


@pytest.mark.parametrize(
    ("confidence", "words"),
    [
        (
            [0.5, 85.0],
            r"must lie in \[0, 1\]; got 85.0 in row 1. For percentages pass "
            r"`scale=100`",
        ),
        ([0.5, -3.0], "apply a sigmoid"),
        ([np.nan, 0.5], "got nan in row 0. Drop answers without a confidence"),
        ([[0.5, 0.5]], r"of the fit; got \(1, 2\).*for logits"),
        (["high", "low"], "must be numbers"),
    ],
)
def test_errors_say_what_to_do(fitted: Any, confidence: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fitted.predict(confidence)


def test_a_signal_of_log_probabilities_is_named() -> None:
    stated = np.column_stack([np.full(40, 0.5), np.linspace(-3.0, -0.1, 40)])
    stated[::5, 1] = np.nan
    with pytest.raises(ValueError, match=r"log-probabilities: pass `numpy.exp"):
        calibrate_confidence(stated, np.arange(40) % 2)


def test_errors_of_the_fit() -> None:
    with pytest.raises(ValueError, match="`right` must be True or False"):
        calibrate_confidence([0.5, 0.6], [2, 3])
    with pytest.raises(
        ValueError, match=r"`right` must be 1-D with one entry per row \(2\); got shape"
    ):
        calibrate_confidence([0.5, 0.6], [1])
    with pytest.raises(ValueError, match="not fitted"):
        ConfidenceCalibrator().predict([0.5])
    with pytest.raises(ValueError, match="`scale` must be a finite number"):
        calibrate_confidence([0.5, 0.6], [0, 1], scale=0)
    with pytest.raises(ValueError, match="`monotone` must be"):
        calibrate_confidence([0.5, 0.6], [0, 1], monotone="yes")  # type: ignore[arg-type]


def test_certified_answers_keep_their_guarantee() -> None:
    """Over many draws the error rate among accepted answers exceeds the risk rarely."""
    stated, right, subject = answers(1000)
    right = right | (stated > 0.9)
    cal = calibrate_confidence(stated, right, groups=subject)
    broken = 0
    for seed in range(40):
        test, truth, names = answers(1000, 100 + seed)
        truth = truth | (test > 0.9)
        cal.certify(test[:500], truth[:500], groups=names[:500])
        found = cal.predict_or_abstain(
            test[500:], groups=names[500:], risk=0.1, delta=0.1
        )
        broken += found.accepted.any() and (~truth[500:][found.accepted]).mean() > 0.14
    assert found.accepted.mean() > 0.3
    assert found.labels.min() == 1
    assert broken <= 4


def test_abstention_needs_examples(fitted: Any) -> None:
    with pytest.raises(ValueError, match="Call `certify"):
        fitted.predict_or_abstain([0.9])
    with pytest.raises(ValueError, match="whole numbers"):
        grouped(clone(fitted).fit, answers(100)).certify(
            [0.9, 0.8], [1, 0], sample_weight=[16, 1]
        )


RUN = """
import json, sys
import hokical
cal = hokical.load(sys.argv[1])
found = cal.predict([0.9, 0.2], groups=["law", "art"]).tolist()
print(json.dumps([found, cal.reason_, sorted(sys.modules)]))
"""


@pytest.mark.slow
def test_files_answer_alike_without_heavy_libraries(tmp_path: Path) -> None:
    stated, right, subject = answers(500)
    cal = calibrate_confidence(stated, right, groups=subject, monotone=True)
    grouped(cal.certify, answers(300, 7))
    cal.save(tmp_path / "cal.json", metadata={"model": "m"})
    twin = hokical.load(tmp_path / "cal.json")
    assert isinstance(twin, ConfidenceCalibrator)
    assert twin.metadata_ == {"model": "m"}
    for asked in (cal, twin):
        asked.answer = asked.predict_or_abstain(
            stated, groups=subject, risk=0.3
        ).accepted
    np.testing.assert_array_equal(cal.answer, twin.answer)
    command = [sys.executable, "-c", RUN, tmp_path / "cal.json"]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    )
    found, reason, loaded = json.loads(run.stdout)
    with pytest.warns(UserWarning, match="1 in 'group'"):
        np.testing.assert_array_equal(
            found, cal.predict([0.9, 0.2], groups=["law", "art"])
        )
    assert reason == cal.reason_
    assert not {"scipy", "sklearn", "numba"} & set(loaded)


def test_metrics_and_monitor_take_its_answers(fitted: Any) -> None:
    stated, right, subject = answers(5000, 5)
    proba = fitted.predict(stated, groups=subject)
    assert hokical.metrics.ece(proba, right) < hokical.metrics.ece(stated, right) / 3
    monitor = hokical.CalibrationMonitor(None).update(proba, right)
    assert str(monitor.status().verdict).startswith("calibrated")


@pytest.mark.parametrize("values", [4, 1 << 20])
def test_answers_of_the_fit_cannot_certify_it(values: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stated = rng.integers(1, values + 1, (2, 400)) / values
    right = rng.random((2, 400)) < stated
    calibrate_confidence(stated[0], right[0]).save(tmp_path / "cal.json")
    cal = hokical.load(tmp_path / "cal.json")
    order = np.arange(400) if values == 4 else rng.permutation(400)[:100]
    with pytest.raises(
        ValueError, match=r"`confidence` must be of .* got rows of the fit"
    ):
        cal.certify(stated[0, order], right[0, order])
    assert cal.certify(stated[0], right[0], reused="ignore").held_out_.total == 400
    assert cal.certify(stated[1], right[1]).held_out_.total == 400


def signals(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A sharp overconfident signal, a rounded one, and one that means nothing."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=n)
    right = rng.logistic(size=n) < odds
    first = 1.0 / (1.0 + np.exp(-(2.0 * odds + 2.0 + rng.normal(size=n))))
    second = np.round(1.0 / (1.0 + np.exp(-(odds + rng.normal(size=n)))), 1)
    return np.column_stack([first, second, rng.random(n)]), right


def test_several_signals_are_better_than_each(tmp_path: Path) -> None:
    stated, right = signals(1500, 0)
    new, truth = signals(20_000, 1)
    cal = hokical.calibrate_confidence(stated, right)
    assert cal.reason_.startswith("3 signals were combined")
    loss = hokical.metrics.log_loss(cal.predict(new), truth)
    for k in range(3):
        one = hokical.calibrate_confidence(stated[:, k], right)
        assert loss < hokical.metrics.log_loss(one.predict(new[:, k]), truth) - 0.002
    assert abs(cal.predict(new).mean() - truth.mean()) < 0.03
    cal.save(tmp_path / "cal.json")
    np.testing.assert_array_equal(
        hokical.load(tmp_path / "cal.json").predict(new), cal.predict(new)
    )
    chosen = cal.certify(*signals(2000, 2)).predict_or_abstain(new, risk=0.3)
    assert chosen.accepted.any()
    assert truth[chosen.accepted].mean() > 0.69


def test_one_signal_is_a_confidence() -> None:
    stated, right = signals(600, 0)
    one = hokical.calibrate_confidence(stated[:, :1], right)
    np.testing.assert_array_equal(
        one.predict(stated[:, :1]),
        hokical.calibrate_confidence(stated[:, 0], right).predict(stated[:, 0]),
    )


def test_signals_of_another_number_are_refused() -> None:
    stated, right = signals(600, 0)
    cal = hokical.calibrate_confidence(stated, right)
    with pytest.raises(
        ValueError, match=r"shape \('n', 3\) of the fit; got \(600, 2\)"
    ):
        cal.predict(stated[:, :2])
    stated[5, 1] = 7.0
    with pytest.raises(ValueError, match=r"got 7.0 in row 5"):
        cal.predict(stated)


def paired_answers(n: int, seed: int, effect: float) -> tuple[Any, Any, dict[str, Any]]:
    """Answers of models on question sets, right by model and set together."""
    rng = np.random.default_rng(seed)
    model, topic = rng.integers(0, 5, n), rng.integers(0, 4, n)
    stated = rng.choice([0.6, 0.7, 0.8, 0.9], n)
    pair = effect * np.random.default_rng(7).normal(size=(5, 4))[model, topic]
    odds = np.log(stated / (1.0 - stated)) - 0.5 + 0.7 * (model - 2) + pair
    groups = {"model": model.astype(str), "topic": topic.astype(str)}
    return stated, rng.random(n) < 1.0 / (1.0 + np.exp(-odds)), groups


def test_pairs_of_group_columns_are_learned_where_they_matter(tmp_path: Path) -> None:
    stated, right, groups = paired_answers(2500, 0, 1.0)
    cal = hokical.calibrate_confidence(stated, right, groups=groups)
    assert "'model' x 'topic' was used" in cal.reason_
    assert cal.rule_.pairs == ((0, 1),)
    assert cal.held_out_log_loss_["groups"] < cal.held_out_log_loss_["average"] - 0.05
    new, truth, theirs = paired_answers(8000, 1, 1.0)
    found = cal.predict(new, groups=theirs)
    alone = hokical.calibrate_confidence(
        stated, right, groups={"model": groups["model"]}
    )
    others = alone.predict(new, groups={"model": theirs["model"]})
    losses = [-np.mean(np.log(np.where(truth, p, 1.0 - p))) for p in (found, others)]
    assert losses[0] < losses[1] - 0.02
    cal.save(tmp_path / "cal.json")
    np.testing.assert_array_equal(
        hokical.load(tmp_path / "cal.json").predict(new, groups=theirs), found
    )
    by_codes = cal.rule_.proba(new, cal.group_codes(theirs))
    np.testing.assert_array_equal(by_codes, found)
    with pytest.warns(UserWarning, match="not in the fit"):
        unknown = cal.predict(
            [0.9, 0.9], groups={"model": ["1", "1"], "topic": ["new", "newer"]}
        )
    assert unknown[0] == unknown[1]


def test_pairs_that_do_not_matter_are_left_out() -> None:
    found = [
        grouped(calibrate_confidence, paired_answers(2500, seed, 0.0)).rule_
        for seed in range(4)
    ]
    assert sum(bool(rule.pairs) for rule in found) <= 1
    assert all(rule.coding is not None for rule in found)


def test_a_guarantee_for_each_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)

    def ask(n: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        topic, stated = rng.integers(3, size=n), rng.uniform(0.5, 1.0, size=n)
        right = rng.random(n) < stated - 0.3 * (topic == 2)
        return stated, right, {"topic": np.array(["law", "art", "math"])[topic]}

    cal = grouped(ConfidenceCalibrator().fit(*ask(3000)[:2]).certify, ask(6000))
    stated, right, groups = ask(20_000)
    together = cal.predict_or_abstain(stated, groups=groups, risk=0.15)
    found = cal.predict_or_abstain(stated, groups=groups, risk=0.15, by="group")
    math = groups["topic"] == "math"
    assert (~right)[
        math & together.accepted
    ].mean() > 0.25  # which one guarantee for all allows
    assert not found.accepted[math].any()
    for name in ("law", "art"):
        accepted = found.accepted & (groups["topic"] == name)
        assert accepted.any()
        assert (~right)[accepted].mean() < 0.15
    assert "of each group" in found.guarantee
    cal.save(tmp_path / "cal.json")
    again = hokical.load(tmp_path / "cal.json").predict_or_abstain(
        stated, groups=groups, risk=0.15, by="group"
    )
    np.testing.assert_array_equal(again.accepted, found.accepted)
    with pytest.warns(UserWarning, match="group was not in `certify`"):
        assert not cal.predict_or_abstain(
            stated[:5], groups=["bio"] * 5, by="group"
        ).accepted.any()
    with pytest.raises(ValueError, match='`groups` must be given with `by="group"`'):
        cal.predict_or_abstain(stated, by="group")
    with pytest.raises(ValueError, match="`by` must be"):
        cal.predict_or_abstain(stated, by="topic")  # type: ignore[arg-type]


def test_files_with_tables_of_classes_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stated = rng.random(200)
    cal = ConfidenceCalibrator().fit(stated, rng.random(200) < stated)
    logits, labels = rng.normal(size=(400, 3)), rng.integers(3, size=400)
    other = hokical.make("uncalibrated").fit(logits[:200], labels[:200])
    cal.held_out_ = other.certify(
        logits[200:], labels[200:]
    ).predictor_.held_out.class_scores
    cal.save(tmp_path / "cal.json")
    with pytest.raises(hokical.CalibratorFileError, match="no usable `held_out`"):
        hokical.load(tmp_path / "cal.json")


def cascade(n: int, seed: int) -> tuple[np.ndarray, ...]:
    """Confidences of two models and whether each is right, (n,) each."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=n)
    found: list[np.ndarray] = []
    for skill in (0.5, 2.0):
        odds = skill - 1.5 * hard
        stated = 1.0 / (1.0 + np.exp(-(1.5 * odds + rng.normal(size=n))))
        found += [stated, rng.random(n) < 1.0 / (1.0 + np.exp(-odds))]
    return tuple(found)


COSTS = {"answer": (1.0, 0.0), "larger model": 0.2, "person": 0.35}


def test_actions_are_those_of_least_expected_cost() -> None:
    stated, right, *_ = cascade(2000, seed=0)
    cal = hokical.calibrate_confidence(stated, right)
    new = cascade(300, seed=1)[0]
    proba, found = cal.predict(new), cal.predict_action(new, COSTS)
    table = np.array([1.0 - proba, np.full(300, 0.2), np.full(300, 0.35)])
    np.testing.assert_array_equal(found.actions, table.argmin(axis=0))
    np.testing.assert_allclose(found.costs, table.min(axis=0))
    assert set(found.named) == {"answer", "larger model"}
    assert "larger model" in str(found)
    same = cal.predict_action(new, [[1.0, 0.2, 0.35], [0.0, 0.2, 0.35]])
    np.testing.assert_array_equal(same.actions, found.actions)
    assert same.named is same.actions
    # What a larger model costs may depend on how hard the question is for this one.
    dear = cal.predict_action(new, COSTS | {"larger model": (0.6, 0.1)})
    assert (dear.named == "person").any()


@pytest.mark.parametrize(
    "costs",
    [{}, {"answer": (1.0, 0.0, 2.0)}, [[1.0, 2.0]], {"a": 1.0}, {"a": (np.nan, 0.0)}],
)
def test_costs_of_actions_are_checked(costs: Any) -> None:
    stated, right, *_ = cascade(500, seed=0)
    with pytest.raises(ValueError, match=r"`costs` (by name )?must"):
        hokical.calibrate_confidence(stated, right).predict_action(stated, costs)


def test_named_actions_of_logits() -> None:
    logits, labels = np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
    cal = hokical.make("uncalibrated").fit(logits, labels)
    found = cal.predict_action(logits, {"wait": (0.0, 5.0), "treat": 1.0})
    assert found.named.tolist() == ["wait", "treat"]


@pytest.mark.slow
def test_the_error_rate_of_a_cascade_is_controlled() -> None:
    """A question goes to the larger model, then to a person, where confidence is too
    low.
    """
    risk, delta, thresholds = 0.15, 0.2, np.linspace(1.0, 0.0, 41)
    fit = cascade(1500, seed=0)
    small = hokical.calibrate_confidence(*fit[:2])
    large = hokical.calibrate_confidence(*fit[2:])

    def is_wrong(
        p: np.ndarray, a: np.ndarray, q: np.ndarray, b: np.ndarray, t: float
    ) -> Any:
        return np.where(p >= t, ~a, np.where(q >= t, ~b, False))

    many = cascade(200_000, seed=99)
    p, q = small.predict(many[0]), large.predict(many[2])
    exceeded, used = 0, []
    for seed in range(1, 41):
        stated, right, second, right_too = cascade(800, seed=seed)
        own = large.predict(second)
        found = small.control_risk(
            stated,
            right,
            loss=lambda proba, truth, t, own=own, too=right_too: is_wrong(
                proba, truth, own, too, t
            ),
            risk=risk,
            delta=delta,
            thresholds=thresholds,
        )
        error = is_wrong(p, many[1], q, many[3], found.threshold).mean()
        exceeded += error > risk
        used.append(error)
    # 40 runs with probability 0.2 at most: more than 15 happen with probability 0.2 %.
    assert exceeded <= 15
    assert np.mean(used) > 0.1


def test_answers_of_the_fit_do_not_control_a_risk() -> None:
    stated, right, *_ = cascade(800, seed=0)
    cal = hokical.calibrate_confidence(stated, right)
    with pytest.raises(ValueError, match="fit"):
        cal.control_risk(
            stated, right, loss=lambda p, r, t: (p < t) & ~r, risk=0.2, delta=0.1
        )


def with_missing(
    stated: np.ndarray, seed: int, share: float = 0.3
) -> tuple[np.ndarray, np.ndarray]:
    """Signals of which some are NaN, and the rows that have all."""
    missing = np.random.default_rng(seed).random(stated.shape) < share
    missing[missing.all(axis=1), 0] = False
    return np.where(missing, np.nan, stated), ~missing.any(axis=1)


@pytest.mark.slow
def test_signals_may_be_missing(tmp_path: Path) -> None:
    stated, right = signals(900, 0)
    partial, complete = with_missing(stated, 1)
    cal = hokical.calibrate_confidence(partial, right)
    counts = ", ".join(str(count) for count in np.isnan(partial).sum(axis=0))
    assert f"missing in {counts} of 900 answers" in cal.reason_
    new, truth = signals(20_000, 2)
    gaps, complete_rows = with_missing(new, 3)
    proba = cal.predict(gaps)
    dropped = hokical.calibrate_confidence(partial[complete], right[complete])
    # Rows that lack a signal are learned from: complete ones lose nothing by them.
    loss = log_loss(cal.predict(new), truth)
    assert loss < log_loss(dropped.predict(new), truth) + 0.003
    base = truth.mean()
    for k in range(3):
        rows = np.isnan(gaps[:, k])
        assert abs(proba[rows].mean() - truth[rows].mean()) < 0.04
        assert log_loss(proba[rows], truth[rows]) < log_loss(base, truth[rows]) - 0.02
    assert loss < log_loss(proba, truth) < loss + 0.06
    cal.save(tmp_path / "cal.json")
    twin = hokical.load(tmp_path / "cal.json")
    np.testing.assert_array_equal(twin.predict(gaps), proba)
    np.testing.assert_array_equal(
        cal.predict(gaps[complete_rows][:9]), proba[complete_rows][:9]
    )
    one_by_one = np.concatenate([cal.predict(row[None]) for row in gaps[:40]])
    np.testing.assert_array_equal(one_by_one, proba[:40])


def test_a_signal_that_is_missing_where_answers_are_wrong_says_so() -> None:
    def ask(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        stated, right = signals(n, seed)
        silent = ~right & (np.random.default_rng(seed).random(n) < 0.6)
        stated[silent, 0] = np.nan
        return stated, right

    cal = hokical.calibrate_confidence(*ask(900, 0))
    new, truth = ask(5000, 1)
    missing = np.isnan(new[:, 0])
    assert cal.predict(new)[missing].mean() < 0.1
    assert not truth[missing].any()
    assert abs(cal.predict(new).mean() - truth.mean()) < 0.03


def test_signals_that_were_complete_in_the_fit_may_be_missing_later() -> None:
    stated, right = signals(900, 0)
    cal = hokical.calibrate_confidence(stated, right)
    new, truth = signals(5000, 1)
    for k in range(3):
        gaps = new.copy()
        gaps[:, k] = np.nan
        proba = cal.predict(gaps)
        assert abs(proba.mean() - truth.mean()) < 0.05
        assert log_loss(proba, truth) < log_loss(truth.mean(), truth) - 0.02
    with pytest.warns(FitDataWarning, match="too few"):
        few = hokical.calibrate_confidence(stated[:9], right[:9])
    np.testing.assert_allclose(few.predict([[0.3, np.nan, 0.3]]), [0.3])


@pytest.mark.slow
def test_answers_with_missing_signals_are_certified_and_evaluated() -> None:
    cal = hokical.calibrate_confidence(*partial_signals(900, 0))
    cal.certify(*partial_signals(3000, 1))
    new, truth = partial_signals(5000, 2)
    chosen = cal.predict_or_abstain(new, risk=0.35)
    assert chosen.accepted.mean() > 0.2
    assert truth[chosen.accepted].mean() > 0.63
    found = hokical.evaluate(cal, new, truth)
    assert found.score("ece") < 0.05
    assert found.before is not None
    assert found.before.score("brier") > found.score("brier")


def partial_signals(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    stated, right = signals(n, seed)
    return with_missing(stated, seed + 100)[0], right


@pytest.mark.slow
def test_missing_signals_come_as_none_and_pandas_na() -> None:
    pandas = pytest.importorskip("pandas")
    stated, right = partial_signals(300, 0)
    cal = hokical.calibrate_confidence(stated, right)
    rows = [[None if np.isnan(x) else float(x) for x in row] for row in stated]
    frame = pandas.DataFrame(stated, columns=["a", "b", "c"]).convert_dtypes()
    for same in (rows, frame):
        fitted = hokical.calibrate_confidence(same, right)
        np.testing.assert_array_equal(fitted.predict(same), cal.predict(stated))


def test_an_answer_needs_a_signal_and_a_signal_an_answer() -> None:
    stated, right = signals(100, 0)
    stated[7] = np.nan
    with pytest.raises(ValueError, match="a signal for each answer; got nan in row 7"):
        hokical.calibrate_confidence(stated, right)
    stated, right = signals(100, 0)
    stated[:, 1] = np.nan
    with pytest.raises(ValueError, match="signal 1 of `confidence` is missing in all"):
        hokical.calibrate_confidence(stated, right)
    with pytest.raises(ValueError, match=r"got nan in row 0\. Drop answers"):
        hokical.calibrate_confidence([np.nan, 0.5], [0, 1])


@pytest.mark.slow
def test_moments_of_missing_signals_are_those_of_the_normal_distribution() -> None:
    from hokical._fitting.signal_moments import fit_moments

    rng = np.random.default_rng(0)
    covariance = np.array([[2.0, 1.2, 0.3], [1.2, 1.0, 0.0], [0.3, 0.0, 0.5]])
    odds = rng.multivariate_normal([0.5, -0.3, 0.0], covariance, size=20_000)
    confidence = 1.0 / (1.0 + np.exp(-odds))
    partial, _ = with_missing(confidence, 0, 0.3)
    found = fit_moments(partial, np.ones(len(odds)), 1e-6)
    np.testing.assert_allclose(found.mean, [0.5, -0.3, 0.0], atol=0.04)
    np.testing.assert_allclose(found.covariance, covariance, atol=0.06)
    # The second given the first and the third: the mean of a normal distribution.
    filled = found.complete(np.array([[1.5, np.nan, 0.2]]))
    within = covariance[np.ix_([0, 2], [0, 2])]
    slopes = np.linalg.solve(within, covariance[[0, 2], 1])
    assert filled[0, 1] == pytest.approx(-0.3 + slopes @ [1.0, 0.2], abs=0.05)


@pytest.mark.parametrize("n_signals", [1, 2])
def test_copies_of_answers_cannot_certify(n_signals: int) -> None:
    rng = np.random.default_rng(0)
    level = rng.random((400, n_signals))
    level[:20, 1:] = np.nan
    right = rng.random(400) < level[:, 0]
    cal = calibrate_confidence(level[:200], right[:200])
    copied = np.repeat(level[200:], 5, axis=0)
    outcomes = np.repeat(right[200:], 5)
    with pytest.raises(ValueError, match=r"80% of 1,000 rows are exact copies"):
        cal.certify(copied, outcomes)
    order = rng.integers(0, 200, 1000)  # a bootstrap
    with pytest.raises(ValueError, match="`confidence` must be of independent"):
        cal.certify(level[200:][order], right[200:][order])
    cal.certify(copied, outcomes, cluster=np.repeat(np.arange(200), 5))
    assert cal.held_out_ is not None
    cal.certify(copied, outcomes, reused="ignore")


@pytest.mark.parametrize("accuracy", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("digits", [1, 2, 3])
def test_equal_confidences_of_other_answers_are_no_copies(
    accuracy: float, digits: int
) -> None:
    rng = np.random.default_rng(digits)
    level = rng.random(1200).round(digits)
    right = rng.random(1200) < accuracy
    cal = calibrate_confidence(level[:400], right[:400])
    assert cal.certify(level[400:], right[400:]).held_out_ is not None
