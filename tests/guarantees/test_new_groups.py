"""Groups that were never seen: guarantees that count groups, simulated and through
every method.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from hokical import ConfidenceCalibrator, MultilabelCalibrator, auto, make
from hokical._core.groups import GroupNames
from hokical.calibrators import with_sets
from hokical.guarantees import control
from hokical.guarantees.scores import (
    AbstentionOptions,
    ScoreTable,
    prove_abstention,
    score_levels,
)
from tests.conftest import synthetic_logits

#: How far apart groups are: not at all, little, much.
SPREADS = (0.0, 0.3, 1.0)


def draw_groups(
    rng: np.random.Generator, n_groups: int, spread: float, sizes: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group, score and noise-free shift (n,) of rows of groups with sizes from
    `sizes`.
    """
    each = np.exp(rng.uniform(*np.log(sizes), n_groups)).astype(int)
    group = np.repeat(np.arange(n_groups), each)
    return (
        group,
        rng.normal(1.5, 1.5, group.size),
        (spread * rng.normal(size=n_groups))[group],
    )


def margin(n: int, share: float = 0.1) -> float:
    """Three standard errors of a share of n runs."""
    return share + 3.0 * (share * (1.0 - share) / n) ** 0.5


# what is proven, simulated


@pytest.mark.sample(1)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("n_groups", [9, 13, 40])
def test_coverage_of_a_new_group(spread: float, n_groups: int) -> None:
    rng, runs, missed, mean, all_missed = np.random.default_rng(1), 400, 0, [], 0
    for _ in range(runs):
        group, score, shift = draw_groups(rng, n_groups + 1, spread, (20, 300))
        score = score + shift
        old, new = group < n_groups, score[group == n_groups]
        given = (score[old], group[old], 0.8)
        counts = np.ones(int(old.sum()))
        sure = control.new_group_threshold(*given, 0.1, counts).values[0]
        average = control.new_group_threshold(*given, None, counts).values[0]
        missed += (new <= sure).mean() < 0.8
        all_missed += (new <= np.quantile(score[old], 0.8)).mean() < 0.8
        mean.append((new <= average).mean())
    assert missed / runs <= margin(runs)
    assert (
        all_missed / runs > 0.3
    )  # what the same check finds where groups are not counted
    assert np.mean(mean) >= 0.8 - 3.0 * np.std(mean) / runs**0.5


@pytest.mark.sample(2)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(
    ("n_groups", "sizes"), [(9, (20, 21)), (13, (20, 1000)), (30, (200, 201))]
)
def test_error_rate_of_a_new_group(
    spread: float, n_groups: int, sizes: tuple[int, int]
) -> None:
    rng, runs, risk, broken, true = np.random.default_rng(n_groups), 120, 0.2, 0, 0
    names, accepts = GroupNames(("site",), tuple((k,) for k in range(n_groups))), 0
    for _ in range(runs):
        group, score, shift = draw_groups(rng, n_groups + 1, spread, sizes)
        chance = 1.0 / (1.0 + np.exp(score + shift))
        wrong, level = rng.random(group.size) < chance, score_levels(score)
        old, new = group < n_groups, group == n_groups
        table = ScoreTable.from_examples(
            level[old], wrong[old], None, (names, group[old])
        )
        options = AbstentionOptions(risk, 0.1, "new group")
        least = prove_abstention(table, options, "held-out", True).levels[0]
        accepted = new & (level >= least)
        shown = accepted.sum() >= min(control.least_shown(risk), 0.5 * new.sum())
        broken += shown and wrong[accepted].mean() > risk
        true += accepted.any() and chance[accepted].mean() > risk
        accepts += accepted.any()
    assert broken / runs <= margin(runs)
    assert true / runs <= margin(runs)
    assert accepts > (0.05 if sizes[1] < 100 else 0.5) * runs


@pytest.mark.sample(0)
@pytest.mark.parametrize("spread", SPREADS)
def test_losses_of_a_new_group(spread: float) -> None:

    rng, runs, broken, average = np.random.default_rng(3), 200, 0, []
    tried = np.linspace(9.0, -2.0, 111)
    for _ in range(runs):
        group, score, shift = draw_groups(rng, 13, spread, (30, 300))
        losses = (score + shift)[:, None] > tried[None, :]  # grow along the thresholds
        old, new = group < 12, losses[group == 12]
        groups = {"by": "new group", "groups": group[old]}
        options = control.RiskOptions(losses[old].astype(float), 0.3, 0.1, tried)
        sure = control.control_risk(None, group[old], options, **groups)
        options = replace(options, delta=None)
        mean = control.control_risk(None, group[old], options, **groups)
        broken += new[:, np.flatnonzero(tried == sure.threshold)].mean() > 0.3
        average.append(new[:, np.flatnonzero(tried == mean.threshold)].mean())
    assert broken / runs <= margin(runs)
    assert np.mean(average) <= 0.3 + 3.0 * np.std(average) / runs**0.5
    assert np.mean(average) > 0.2


def test_the_numbers_of_groups() -> None:
    assert control.fewest_examples(0.1) == 9
    rng = np.random.default_rng(0)
    score, group = rng.normal(size=900), np.arange(900) % 9
    nine = control.new_group_threshold(score, group, 0.9, 0.1, np.ones(900))
    own = [np.sort(score[group == k])[89] for k in range(9)]
    assert nine.values[0] == max(own)
    eight = control.new_group_threshold(
        score, np.minimum(group, 7), 0.9, 0.1, np.ones(900)
    )
    assert np.isinf(eight.values[0])
    assert eight.fewest == 9


# through the methods


def hospitals(
    n: int, n_sites: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits (n, 3) that are off by a site's own constants, labels and sites."""
    rng = np.random.default_rng(seed)
    site = rng.integers(n_sites, size=n)
    logits = 2.0 * rng.normal(size=(n, 3))
    shown = logits + 0.5 * rng.normal(size=(n_sites, 3))[site]
    return shown, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1), site


@pytest.fixture(scope="module")
def sites() -> Any:
    return hospitals(6000, 12, 0)


def test_every_method_of_a_calibrator(sites: Any, tmp_path: Path) -> None:
    logits, labels, site = sites
    cal = (
        make("temps")
        .fit(*hospitals(500, 12, 1)[:2])
        .certify(logits, labels, groups=site)
    )
    new = hospitals(800, 1, 2)[0]
    found = cal.predict_or_abstain(new, risk=0.2, by="new group")
    assert (
        0.1
        < found.accepted.mean()
        < cal.predict_or_abstain(new, risk=0.2).accepted.mean()
    )
    assert "a new group, drawn like the 12 of `certify`" in found.guarantee
    assert "its true rate" in found.guarantee
    sizes = [
        cal.predict_set(new, coverage=0.9, **options).sizes.mean()
        for options in ({}, {"by": "new group"}, {"by": "new group", "delta": 0.1})
    ]
    assert sizes[0] < min(sizes[1:])
    assert max(sizes[1:]) < 3.0
    words = cal.predict_set(new, coverage=0.9, by="new group").guarantee
    assert "on average over such groups" in words
    flags = cal.detect(new, 1, recall=0.9, delta=0.1, by="new group")
    assert cal.detect(new, 1, recall=0.9).flagged.sum() < flags.flagged.sum() < len(new)
    assert "in a new group" in flags.guarantee
    cal.save(tmp_path / "cal.json")
    again = hokical.load(tmp_path / "cal.json")
    same = again.predict_or_abstain(new, risk=0.2, by="new group")
    assert (same.accepted == found.accepted).all()
    assert same.guarantee == found.guarantee
    exported = with_sets(again, coverage=0.9, by="new group", delta=0.1)
    assert exported.fitted.predict("members", new).sum() == sizes[2] * len(new)


def missed(proba: np.ndarray, labels: np.ndarray, threshold: float) -> np.ndarray:
    return proba[np.arange(len(labels)), labels] < threshold


def test_control_risk(sites: Any) -> None:
    logits, labels, site = sites
    cal = make("temps").fit(*hospitals(500, 12, 1)[:2])
    given: dict[str, Any] = {
        "loss": missed,
        "risk": 0.1,
        "groups": site,
        "by": "new group",
    }
    sure, mean = (
        cal.control_risk(logits, labels, delta=d, **given) for d in (0.1, None)
    )
    assert min(sure.threshold, mean.threshold) > 0.0
    assert (
        max(sure.threshold, mean.threshold)
        < cal.control_risk(logits, labels, loss=missed, risk=0.1).threshold
    )
    few = cal.control_risk(
        logits[site < 5],
        labels[site < 5],
        delta=0.1,
        **given | {"groups": site[site < 5]},
    )
    assert np.isnan(few.threshold)
    assert (
        "at least 9 groups; with these `delta` must be at least 0.1667" in few.guarantee
    )
    with pytest.raises(ValueError, match="`sample_weight` cannot be given"):
        cal.control_risk(logits, labels, sample_weight=np.ones(6000), **given)


def test_fewer_groups_prove_less_and_say_what(sites: Any) -> None:
    logits, labels, site = (part[sites[2] < 7] for part in sites)
    cal = (
        make("temps")
        .fit(*hospitals(500, 12, 1)[:2])
        .certify(logits, labels, groups=site)
    )
    found = cal.predict_or_abstain(logits, risk=0.3, by="new group")
    assert not found.accepted.any()
    assert (
        "at least 9 groups; with these `delta` must be at least 0.125"
        in found.guarantee
    )
    assert cal.predict_or_abstain(
        logits, risk=0.3, delta=0.125, by="new group"
    ).accepted.any()
    sets = cal.predict_set(logits, coverage=0.9, delta=0.1, by="new group")
    assert (sets.sizes == 3).all()
    assert "it takes at least 9 groups" in sets.guarantee
    tight = cal.predict_or_abstain(logits, risk=0.01, delta=0.2, by="new group")
    assert "The smallest risk that they prove is" in tight.guarantee


@pytest.mark.filterwarnings("ignore:.*groups.*not in the fit")
def test_groups_of_the_fit_are_predicted_like_new_ones(
    sites: Any, tmp_path: Path
) -> None:
    logits, labels, site = sites
    cal = auto(logits[::2], labels[::2], groups=site[::2])
    assert cal.rule_.needed_groups is not None
    cal.certify(logits[1::2], labels[1::2], groups=site[1::2])
    cal.save(tmp_path / "cal.json")
    new = hospitals(500, 1, 2)[0]
    plain = cal.without_groups()
    for one in (cal, hokical.load(tmp_path / "cal.json")):
        found = one.predict_or_abstain(new, risk=0.3, by="new group")
        assert (found.labels == plain.predict(new)).all()
        alone = copy(plain).certify(logits[1::2], labels[1::2], groups=site[1::2])
        assert (
            found.guarantee
            == alone.predict_or_abstain(new, risk=0.3, by="new group").guarantee
        )
        sets = one.predict_set(new, coverage=0.9, by="new group")
        assert (
            sets.members == alone.predict_set(new, coverage=0.9, by="new group").members
        ).all()


def test_stated_confidences_with_groups_in_the_fit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    subject, stated = rng.integers(12, size=9000), rng.random(9000)
    right = rng.random(9000) < np.clip(
        stated + 0.1 * rng.normal(size=12)[subject], 0.0, 1.0
    )
    cal = ConfidenceCalibrator().fit(stated[:3000], right[:3000], groups=subject[:3000])
    cal.certify(stated[3000:], right[3000:], groups=subject[3000:])
    found = cal.predict_or_abstain(stated, risk=0.3, by="new group")
    assert 0.05 < found.accepted.mean() < 0.6
    assert found.accepted[
        stated > found.threshold + 0.1
    ].all()  # one threshold, one curve
    cal.save(tmp_path / "cal.json")
    again = hokical.load(tmp_path / "cal.json").predict_or_abstain(
        stated, risk=0.3, by="new group"
    )
    assert (again.accepted == found.accepted).all()


def test_losses_of_stated_confidences() -> None:
    rng = np.random.default_rng(8)
    group, odds, shift = draw_groups(rng, 30, 0.5, (40, 120))
    right = rng.logistic(size=odds.size) < odds + shift
    stated, names = 1.0 / (1.0 + np.exp(-odds)), group.astype(str)
    old = group < 20
    cal = ConfidenceCalibrator().fit(stated[old], right[old], groups=names[old])

    def wrong(proba: Any, right: Any, threshold: float) -> Any:
        return (proba >= 1.0 - threshold) & ~right

    asked: dict[str, Any] = {
        "loss": wrong,
        "risk": 0.15,
        "delta": 0.2,
        "reused": "ignore",
    }
    rows = (stated[~old], right[~old])
    found = cal.control_risk(*rows, by="new group", groups=names[~old], **asked)
    alone = ConfidenceCalibrator().fit(stated[old], right[old])
    assert "drawn like the 10 given" in found.guarantee
    assert 0.0 < found.threshold < 1.0
    each = alone.control_risk(*rows, by="group", groups=names[~old], **asked)
    assert len(each.by_group) == 10
    with pytest.raises(ValueError, match='"group" or "new group" with `groups`'):
        alone.control_risk(*rows, by="new group", **asked)


def test_maps_of_new_patients() -> None:
    """Items of 30 patients: each item counts once, and patients are what is counted."""
    rng = np.random.default_rng(9)
    shift = np.repeat(rng.normal(size=(45, 1, 1, 3)), 4, axis=0)
    logits = 2.0 * rng.normal(size=(180, 4, 4, 3))
    labels = (logits + shift + rng.gumbel(size=logits.shape)).argmax(axis=-1)
    patient = np.repeat(np.arange(45), 4)
    dense = hokical.dense.Dense(make("temps")).fit(logits[:60], labels[:60])
    dense.certify(logits[60:], labels[60:], groups=patient[60:])
    sets = dense.predict_set(logits[:2], coverage=0.7, by="new group")
    sure = dense.predict_set(logits[:2], coverage=0.7, by="new group", delta=0.1)
    assert "a new group, drawn like the 30 of `certify`" in sets.guarantee
    assert "120 held-out items" in sets.guarantee
    assert sure.sizes.sum() >= sets.sizes.sum()
    kept = dense.predict_or_abstain(logits[:2], risk=0.45, delta=0.2, by="new group")
    assert "a new group, drawn like the 30" in kept.guarantee
    assert kept.accepted.any()

    def missed(proba: Any, labels: Any, threshold: float) -> Any:
        return (
            np.take_along_axis(proba, labels[..., None], -1)[..., 0] < threshold
        ).mean((1, 2))

    asked: dict[str, Any] = {"loss": missed, "risk": 0.5, "delta": 0.2}
    rows, own = (logits[60:], labels[60:]), {"by": "new group", "groups": patient[60:]}
    found = dense.control_risk(*rows, **own, **asked)
    assert "drawn like the 30 given" in found.guarantee
    assert 0.0 < found.threshold < 1.0
    with pytest.raises(ValueError, match="one entry per item, at least 120; got 45"):
        dense.certify(logits[60:], labels[60:], groups=np.arange(45))
    with pytest.raises(ValueError, match=r"`by` must be one of \['all', 'new group'\]"):
        dense.predict_set(logits[:2], coverage=0.9, by="group")


def test_several_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    site = rng.integers(12, size=4000)
    odds = rng.normal(-1.0, 3.0, size=(4000, 3))
    labels = rng.logistic(size=odds.shape) < odds + rng.normal(size=(12, 3))[site]
    cal = MultilabelCalibrator().fit(odds[:1000], labels[:1000])
    cal.certify(odds[1000:], labels[1000:], groups=site[1000:])
    rows = cal.predict_set(odds, coverage=0.8)
    found = cal.predict_set(odds, coverage=0.8, delta=0.1, by="new group")
    assert rows.open.mean() < found.open.mean() < 1.0
    assert "a new group, drawn like the 12 of `certify`" in found.guarantee
    cal.save(tmp_path / "cal.json")
    again = hokical.load(tmp_path / "cal.json")
    assert (
        again.predict_set(odds, coverage=0.8, delta=0.1, by="new group").open
        == found.open
    ).all()

    def missing(proba: np.ndarray, truth: np.ndarray, threshold: float) -> np.ndarray:
        return ((proba < threshold) & (truth == 1.0)).mean(axis=1)

    given: dict[str, Any] = {"loss": missing, "risk": 0.1}
    new = cal.control_risk(
        odds[1000:], labels[1000:], by="new group", groups=site[1000:], **given
    )
    assert (
        0.0
        < new.threshold
        < cal.control_risk(odds[1000:], labels[1000:], **given).threshold
    )
    with pytest.raises(ValueError, match="with `groups`; got"):
        cal.control_risk(odds[1000:], labels[1000:], by="new group", **given)
    with pytest.raises(ValueError, match="has no groups to go by"):
        cal.certify(odds[1000:], labels[1000:]).predict_set(
            odds, coverage=0.8, by="new group"
        )


def test_other_requests_name_the_option(sites: Any) -> None:
    logits, labels, site = sites
    cal = (
        make("temps")
        .fit(*hospitals(500, 12, 1)[:2])
        .certify(logits, labels, groups=site)
    )
    other = np.full(20, "new site")
    for ask in (
        lambda: cal.predict_or_abstain(logits[:20], groups=other),
        lambda: cal.predict_or_abstain(logits[:20], groups=other, by="group"),
        lambda: cal.predict_set(logits[:20], coverage=0.9, groups=other),
        lambda: cal.predict_set(logits[:20], coverage=0.9, groups=other, by="group"),
    ):
        with pytest.warns(UserWarning, match=r'20 of 20 rows .* `by="new group"`'):
            ask()
    plain = make("temps").fit(*hospitals(500, 12, 1)[:2]).certify(logits, labels)
    for call in (
        lambda: plain.predict_or_abstain(logits, by="new group"),
        lambda: plain.predict_set(logits, coverage=0.9, by="new group"),
        lambda: plain.detect(logits, 1, by="new group"),
    ):
        with pytest.raises(ValueError, match=r'`by="new group"` .* groups=groups'):
            call()
    with pytest.raises(
        ValueError, match=r"must be one of .'all', 'new group'.*`predict_set`"
    ):
        cal.detect(logits, 1, by="group")  # type: ignore[arg-type]
    weighted = cal.certify(logits, labels, np.linspace(1.0, 2.0, 6000), groups=site)
    with pytest.raises(ValueError, match="needs examples that count alike"):
        weighted.predict_set(logits, coverage=0.9, by="new group")


def test_what_cannot_be_counted(sites: Any) -> None:
    logits, labels, site = sites
    cal = make("temps").fit(*hospitals(500, 12, 1)[:2])
    some = np.where(site == 3, None, site.astype(object))
    cal.certify(logits, labels, groups=some)
    for call in (
        lambda: cal.predict_or_abstain(logits, by="new group"),
        lambda: cal.predict_set(logits, coverage=0.9, by="new group"),
    ):
        with pytest.raises(ValueError, match="some rows of `certify` have none"):
            call()
    rng = np.random.default_rng(0)
    stated, subject = rng.random(2000), np.arange(2000) % 12
    right = rng.random(2000) < stated
    sure = ConfidenceCalibrator().fit(stated[:500], right[:500])
    weights = (subject < 5).astype(float)  # seven groups do not count
    sure.certify(stated[500:], right[500:], weights[500:], groups=subject[500:])
    words = sure.predict_or_abstain(stated, risk=0.3, by="new group").guarantee
    assert "5 groups do not prove it" in words
    odds = rng.normal(size=(2000, 2))
    several = MultilabelCalibrator().fit(
        odds[:500], rng.logistic(size=(500, 2)) < odds[:500]
    )
    truth = rng.logistic(size=(1500, 2)) < odds[500:]
    several.certify(
        odds[500:], truth, np.linspace(1.0, 2.0, 1500), groups=subject[500:]
    )
    with pytest.raises(ValueError, match="needs examples that all count alike"):
        several.predict_set(odds, coverage=0.9, by="new group")


def test_the_command_line(sites: Any, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from hokical.cli import app

    logits, labels, site = sites
    cal = (
        make("temps")
        .fit(*hospitals(500, 12, 1)[:2])
        .certify(logits, labels, groups=site)
    )
    cal.save(tmp_path / "cal.json")
    np.savez(tmp_path / "new.npz", test_logits=hospitals(50, 1, 2)[0])
    given = [
        "apply",
        str(tmp_path / "cal.json"),
        str(tmp_path / "new.npz"),
        "--risk",
        "0.2",
    ]
    given += [
        "-o",
        str(tmp_path / "out.csv"),
        "--coverage",
        "0.9",
        "--by",
        "new group",
        "--json",
    ]
    found = CliRunner().invoke(app, given)
    assert found.exit_code == 0, found.output
    assert found.output.count("a new group, drawn like the 12") == 2


def test_names_without_a_value_for_a_column_are_told() -> None:
    with pytest.raises(
        ValueError, match=r"one value for each of the columns \('a', 'b'\); got"
    ):
        GroupNames(("a", "b"), (("x",),))


def test_measured_numbers_are_no_new_groups() -> None:
    """An age hardly ever comes twice; a site that is new is told."""
    logits, labels = synthetic_logits(n=400, n_classes=3, seed=0)
    rng = np.random.default_rng(0)
    age = rng.uniform(20.0, 80.0, 400)
    site = np.array(["a", "b"])[np.arange(400) % 2]
    cal = hokical.make("temps").fit(logits[:100], labels[:100])
    cal.certify(
        logits[100:], labels[100:], groups={"age": age[100:], "site": site[100:]}
    )
    known = {"site": site[:100], "age": age[:100]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cal.predict_or_abstain(logits[:100], risk=0.5, groups=known)
        cal.predict_set(logits[:100], coverage=0.9, groups=known)
    new = {"age": age[:100], "site": np.where(np.arange(100) < 7, "c", site[:100])}
    with pytest.warns(UserWarning, match="7 of 100 rows whose group was not in"):
        cal.predict_or_abstain(logits[:100], risk=0.5, groups=new)
