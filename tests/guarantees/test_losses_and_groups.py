"""One guarantee: losses of one's own, groups, weights, rows of the fit, and what is
remembered.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from hokical import MultilabelCalibrator, make
from hokical.dense import Dense
from hokical.guarantees.sets import Conformity, SetOptions, prove_sets
from tests.conftest import peak_memory, softmax_examples


def truth_missing(
    proba: np.ndarray, labels: np.ndarray, threshold: float
) -> np.ndarray:
    """The true class is less likely than the threshold: grows with it."""
    return proba[np.arange(len(labels)), labels] < threshold


def wrong_among_found(
    proba: np.ndarray, labels: np.ndarray, threshold: float
) -> np.ndarray:
    """Of the rows that are found to be of class 1, those that are not; not monotone."""
    return np.where(proba[:, 1] >= threshold, labels != 1, np.nan)


def cost(proba: np.ndarray, labels: np.ndarray, threshold: float) -> np.ndarray:
    """Neither 0 nor 1: a missing class costs by its number."""
    return truth_missing(proba, labels, threshold) * (labels + 1.0) / proba.shape[1]


FALLING = np.linspace(1.0, 0.0, 51)


# losses of one's own


@pytest.mark.sample(0)
@pytest.mark.parametrize("n", [40, 300])
@pytest.mark.parametrize("weighted", [False, True])
def test_risk_on_average_is_kept(n: int, weighted: bool) -> None:
    cal = make("temps").fit(*softmax_examples(500, 4, seed=1))
    new, truth = softmax_examples(20_000, 4, seed=2)
    proba = cal.predict_proba(new)
    rng, reached = np.random.default_rng(n), []
    likely = np.where(truth == 0, 3.0, 1.0)  # new examples, if weights say so
    for _ in range(150):
        rows = rng.choice(20_000, size=n, replace=False)
        weight = 7.0 * likely[rows] if weighted else None
        found = cal.control_risk(
            new[rows],
            truth[rows],
            loss=cost,
            risk=0.1,
            sample_weight=weight,
            reused="ignore",
        )
        losses = cost(proba, truth, found.threshold)
        reached.append(np.average(losses, weights=likely if weighted else None))
    reached = np.array(reached)
    assert reached.mean() <= 0.1 + 2.0 * reached.std() / len(reached) ** 0.5
    if n == 300:
        assert reached.mean() > 0.06


@pytest.mark.sample(0)
@pytest.mark.parametrize("loss", [truth_missing, wrong_among_found, cost])
def test_risk_with_confidence_is_kept(loss: Any) -> None:
    cal = make("temps").fit(*softmax_examples(500, 4, seed=1))
    new, truth = softmax_examples(20_000, 4, seed=2)
    proba, rng = cal.predict_proba(new), np.random.default_rng(3)
    falls = loss is wrong_among_found
    tried, risk = (FALLING, 0.35) if falls else (FALLING[::-1], 0.15)
    broken, proven, repeats = 0, 0, 150
    for _ in range(repeats):
        rows = rng.choice(20_000, size=600, replace=False)
        found = cal.control_risk(
            new[rows],
            truth[rows],
            loss=loss,
            risk=risk,
            delta=0.1,
            thresholds=tried,
            reused="ignore",
        )
        if np.isfinite(found.threshold):
            proven += 1
            broken += np.nanmean(loss(proba, truth, found.threshold)) > risk
    assert broken <= 0.1 * repeats + 2.0 * (repeats * 0.09) ** 0.5
    assert proven > 0.5 * repeats


def test_several_losses_groups_and_tables() -> None:
    cal = make("temps").fit(*softmax_examples(500, 4, seed=1))
    logits, labels = softmax_examples(2000, 4, seed=2)
    both = cal.control_risk(
        logits,
        labels,
        loss={"missing": truth_missing, "cost": cost},
        risk={"missing": 0.2, "cost": 0.05},
        delta=0.1,
    )
    for name, limit in (("missing", 0.2), ("cost", 0.05)):
        alone = cal.control_risk(
            logits,
            labels,
            loss={"missing": truth_missing, "cost": cost}[name],
            risk=limit,
            delta=0.1,
        )
        assert both.threshold <= alone.threshold
        at = both.thresholds == both.threshold
        assert both.losses[name][at] <= limit
    table = np.stack(
        [truth_missing(cal.predict_proba(logits), labels, t) for t in both.thresholds]
    )
    given = cal.control_risk(logits, labels, loss=table.T, risk=0.1)
    called = cal.control_risk(logits, labels, loss=truth_missing, risk=0.1)
    assert given.threshold == called.threshold
    groups = np.where(labels < 2, "low", "high")
    found = cal.control_risk(
        logits, labels, loss=cost, risk=0.1, by="group", groups=groups
    )
    assert set(found.by_group) == {"low", "high"}
    assert found.by_group["low"].threshold > found.by_group["high"].threshold
    assert set(
        cal.control_risk(logits, labels, loss=cost, risk=0.1, by="class").by_group
    ) == {0, 1, 2, 3}
    assert (
        "No threshold is proven"
        in cal.control_risk(
            logits[:20], labels[:20], loss=cost, risk=0.001, delta=0.1
        ).guarantee
    )


def test_an_unproven_risk_comes_with_what_can_be_proven() -> None:
    cal = make("temps").fit(*softmax_examples(500, 4, seed=1))
    logits, labels = softmax_examples(2000, 4, seed=2)

    def ask(n: int, risk: Any, delta: float | None, loss: Any = cost) -> Any:
        return cal.control_risk(
            logits[:n], labels[:n], loss=loss, risk=risk, delta=delta
        )

    for delta in (None, 0.1):  # by one threshold, at which a fifth is lost
        lost = np.tile((np.arange(2000) % 5 == 0)[:, None], 101)
        found = ask(300, 0.15, delta, lost[:300])
        assert np.isnan(found.threshold)
        assert "More examples will hardly help" in found.guarantee
        best = float(
            found.guarantee.split("smallest risk that they prove is ")[1].split(". ")[0]
        )
        assert np.isfinite(ask(300, best + 1e-3, delta, lost[:300]).threshold)
        assert np.isnan(ask(300, best - 2e-3, delta, lost[:300]).threshold)
    close = ask(300, 0.21, 0.1, lost[:300])
    needed = int(close.guarantee.split("About ")[1].split()[0].replace(",", ""))
    assert needed > 300
    assert "It takes at least 2,302 examples" in ask(20, 0.001, 0.1).guarantee
    two = ask(300, {"a": 0.15, "b": 0.1}, 0.1, {"a": lost[:300], "b": 0.0 * lost[:300]})
    assert "(a) and " in two.guarantee.split("they prove is ")[1]


def test_what_cannot_be_bounded_is_refused() -> None:
    cal = make("temps").fit(*softmax_examples(300, 4, seed=1))
    logits, labels = softmax_examples(200, 4, seed=2)
    for loss, message in (
        (wrong_among_found, "`delta` must be given"),
        (lambda p, y, t: 1.0 - truth_missing(p, y, t), "`delta` must be given"),
        (
            lambda p, y, t: 2.0 + 0.0 * y,
            r"`loss` must lie in \[0, 1\].*got 2.0 in row 0, .* Divide",
        ),
        (lambda p, y, t: p, "one number per example"),
        (np.zeros((200, 3)), r"shape \(200, 101\)"),
        (np.zeros((20, 101)), r"shape \(200, 101\), a row for each example"),
        ("precision", "`loss` must be numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            cal.control_risk(logits, labels, loss=loss, risk=0.1)
    with pytest.raises(ValueError, match="not used in `fit`"):
        make("temps").fit(logits, labels).control_risk(
            logits, labels, loss=cost, risk=0.1
        )


# groups


def by_two_columns(
    n: int, seed: int
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """One group of four is much harder than the others."""
    rng = np.random.default_rng(seed + 1000)
    logits, labels = softmax_examples(n, 4, seed=seed)
    columns = {"female": rng.integers(0, 2, n), "smoker": rng.integers(0, 2, n)}
    hard = (columns["female"] == 1) & (columns["smoker"] == 0)
    labels = np.where(hard & (rng.random(n) < 0.5), rng.integers(0, 4, n), labels)
    return logits, labels, columns


def test_group_columns_are_matched_by_name_and_values_by_meaning() -> None:
    logits, labels, columns = by_two_columns(4000, 3)
    cal = (
        make("temps")
        .fit(*softmax_examples(500, 4, seed=1))
        .certify(logits, labels, groups=columns)
    )
    new, truth, own = by_two_columns(4000, 4)
    turned = {
        "smoker": own["smoker"].astype(float),
        "female": own["female"].astype(str),
    }
    found = cal.predict_set(new, coverage=0.9, by="group", groups=turned)
    same = cal.predict_set(new, coverage=0.9, by="group", groups=own)
    np.testing.assert_array_equal(found.members, same.members)
    covered = found.members[np.arange(4000), truth]
    for female in (0, 1):
        for smoker in (0, 1):
            rows = (own["female"] == female) & (own["smoker"] == smoker)
            assert covered[rows].mean() > 0.86
    for wrong in (
        {"female": own["female"]},
        own | {"age": own["female"]},
        {"a": 0, "b": 0},
    ):
        given = {name: np.broadcast_to(values, 4000) for name, values in wrong.items()}
        with pytest.raises(
            ValueError, match="the columns of `certify`, female, smoker; got"
        ):
            cal.predict_set(new, coverage=0.9, by="group", groups=given)
    some = {name: [None, *values[1:].tolist()] for name, values in own.items()}
    with pytest.warns(
        UserWarning, match="1 of 4,000 rows whose group was not in `certify`"
    ):
        one = cal.predict_set(new, coverage=0.9, by="group", groups=some)
    assert one.n_unknown == 1
    np.testing.assert_array_equal(one.members[1:], same.members[1:])


def test_abstention_by_group_keeps_the_risk_of_each() -> None:
    logits, labels, columns = by_two_columns(8000, 5)
    cal = (
        make("temps")
        .fit(*softmax_examples(500, 4, seed=1))
        .certify(logits, labels, groups=columns)
    )
    new, truth, own = by_two_columns(8000, 6)
    hard = (own["female"] == 1) & (own["smoker"] == 0)
    one, each = (
        cal.predict_or_abstain(
            new, risk=0.25, by=by, groups=own if by == "group" else None
        )
        for by in ("all", "group")
    )
    wrong = [(f.labels != truth) & f.accepted & hard for f in (one, each)]
    assert wrong[0].sum() > 0.35 * (one.accepted & hard).sum()
    assert wrong[1].sum() <= 0.27 * (each.accepted & hard).sum()
    assert each.accepted[~hard].mean() > one.accepted[~hard].mean()
    assert "for each group" in each.guarantee
    with pytest.warns(UserWarning, match="are not accepted"):
        other = cal.predict_or_abstain(
            new, risk=0.25, by="group", groups=own | {"smoker": np.full(8000, 7)}
        )
    assert not other.accepted.any()
    with pytest.raises(ValueError, match="certify"):
        cal.predict_or_abstain(new, by="group")


def long_tail(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """40 classes, the first fifty times as frequent as the last; logits are
    calibrated.
    """
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, 40)) - np.linspace(0.0, np.log(50.0), 40)
    return logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def test_many_classes_with_few_examples_each() -> None:
    """Sets of one threshold that have the same mean coverage of the classes are
    larger.
    """
    cal = make("uncalibrated").fit(*long_tail(100, 1))
    new, truth = long_tail(20_000, 2)
    pool, labels = long_tail(20_000, 3)
    sizes = np.bincount(truth, minlength=40)
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(4):
        rows = np.random.default_rng(seed).choice(20_000, size=300, replace=False)
        cal.certify(pool[rows], labels[rows], reused="ignore")
        asked: dict[str, dict[str, Any]] = {
            "pooled": {"by": "class", "pooled": True},
            "all": {},
        }
        asked |= {f"all {c}": {"coverage": c} for c in (0.92, 0.94, 0.96, 0.98)}
        for name, options in asked.items():
            members = cal.predict_set(
                new, **{"coverage": 0.9} | options, allow_empty=True
            ).members
            inside = members[np.arange(20_000), truth]
            macro = (np.bincount(truth, inside, 40) / sizes).mean()
            found.setdefault(name, []).append(
                (inside.mean(), macro, members.sum(axis=1).mean())
            )
    means = {name: np.mean(each, axis=0) for name, each in found.items()}
    assert means["pooled"][1] > means["all"][1] + 0.03
    others = np.array([mean for name, mean in means.items() if name != "pooled"])
    same = np.interp(
        means["pooled"][1], others[:, 1], others[:, 2]
    )  # size at that macro coverage
    assert means["pooled"][2] < 0.95 * same


@pytest.mark.parametrize("n", [60, 300])
def test_frequencies_of_the_examples_themselves_cost_no_coverage(n: int) -> None:
    logits, labels = long_tail(50_000, 9)
    scores = -softmax(logits, axis=1)[np.arange(50_000), labels]
    rng, reached = np.random.default_rng(0), []
    for _ in range(300):
        rows = rng.integers(50_000, size=n)
        asked = SetOptions(coverage=0.9, by="class", pooled=True)
        known = Conformity(
            labels[rows], -scores[rows], np.zeros(n), np.ones(n, np.int64)
        )
        found = prove_sets(known, asked, "held-out", 40).thresholds.values
        reached.append((scores <= found[labels]).mean())
    assert 0.9 - 2.0 * np.std(reached) / 300**0.5 <= np.mean(reached) <= 0.95


# all guarantees, in worlds of every kind


def draw_population(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Continuous scores, scores with many ties, or rows with masked classes."""
    logits, labels = softmax_examples(20_000, 4, seed=7)
    if kind == "tied":
        return np.round(logits / 2.0), labels
    if kind == "masked":
        hidden = np.random.default_rng(8).random(logits.shape) < 0.2
        hidden[np.arange(len(labels)), labels] = False
        logits[hidden] = -np.inf
    return logits, labels


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ["continuous", "tied", "masked"])
@pytest.mark.parametrize("n", [40, 10_000])
def test_every_guarantee_holds(kind: str, n: int) -> None:
    """On average within two standard errors; with `delta`, failing in at most that
    share.
    """
    logits, labels = draw_population(kind)
    cal = make("temps").fit(logits[:1000], labels[:1000])
    groups, rng, repeats = np.arange(20_000) % 2, np.random.default_rng(n), 40
    means: dict[str, list[float]] = {}
    failed = dict.fromkeys(("sets", "detect", "abstain"), 0)
    for _ in range(repeats):
        rows = rng.choice(20_000, size=n, replace=False)
        cal.certify(logits[rows], labels[rows], groups=groups[rows], reused="ignore")
        new = np.setdiff1d(np.arange(20_000), rows)[:8000]
        x, y, own = logits[new], labels[new], groups[new]

        def covered(x: Any = x, y: Any = y, **options: Any) -> np.ndarray:
            found = cal.predict_set(
                x, coverage=0.8, allow_empty=True, **options
            ).members
            return found[np.arange(len(y)), y]

        means.setdefault("all", []).append(covered().mean())
        means.setdefault("class", []).append(covered(by="class")[y == 2].mean())
        by_group = covered(by="group", groups=own)
        means.setdefault("group", []).append(by_group[own == 1].mean())
        failed["sets"] += (
            covered(delta=0.2).mean() < 0.8 - 0.01
        )  # 8000 rows tell no more
        found = cal.detect(x, 1, recall=0.8, delta=0.2).flagged[y == 1]
        failed["detect"] += found.mean() < 0.8 - 0.02
        answer = cal.predict_or_abstain(x, risk=0.2, delta=0.2)
        wrong = (answer.labels != y)[answer.accepted]
        failed["abstain"] += wrong.size > 0 and wrong.mean() > 0.2 + 0.01
    for name, shares in means.items():
        error = np.std(shares) / repeats**0.5 + 0.003  # and that of 8000 rows
        assert np.mean(shares) >= 0.8 - 2.0 * error, name
    assert max(failed.values()) <= 0.2 * repeats + 2.0 * (0.16 * repeats) ** 0.5, failed


# weights


def test_the_scale_of_weights_changes_no_guarantee() -> None:
    logits, labels = softmax_examples(600, 4, seed=2)
    weights = np.where(labels == 0, 4.0, 1.0)
    new = softmax_examples(300, 4, seed=3)[0]
    cal = make("temps").fit(*softmax_examples(300, 4, seed=1))
    sets, words = [], []
    for scale in (1.0, 0.25, 4.0):
        cal.certify(logits, labels, sample_weight=scale * weights)
        found = cal.predict_set(new, coverage=0.9)
        sets.append(found.members)
        words.append(found.guarantee)
        with pytest.raises(
            ValueError, match="`delta` needs examples that all count alike"
        ):
            cal.predict_set(new, coverage=0.9, delta=0.1)
        for ask in (
            cal.predict_or_abstain,
            cal.predict_interval,
        ):  # not by the rows of the fit
            with pytest.raises(
                ValueError, match="needs held-out examples of equal weight"
            ):
                ask(new)
    assert words[0] == words[1] == words[2]
    assert "if the weights of the examples are right" in words[0]
    np.testing.assert_array_equal(sets[0], sets[1])
    np.testing.assert_array_equal(sets[0], sets[2])
    equal = cal.certify(logits, labels, sample_weight=np.full(600, 4.0))
    plain = make("temps").fit(*softmax_examples(300, 4, seed=1)).certify(logits, labels)
    for ask in (
        lambda c: c.predict_set(new, coverage=0.9, delta=0.1),
        lambda c: c.predict_or_abstain(new, risk=0.3),
    ):
        assert ask(equal).guarantee == ask(plain).guarantee


def test_declared_counts_are_examples() -> None:
    logits, labels = softmax_examples(300, 4, seed=2)
    often = np.arange(300) % 3
    new = softmax_examples(100, 4, seed=3)[0]
    cal = make("temps").fit(*softmax_examples(300, 4, seed=1))
    counted = cal.certify(logits, labels, sample_weight=often, counts=True)
    sets = counted.predict_set(new, coverage=0.9, delta=0.1).members
    accepted = counted.predict_or_abstain(new, risk=0.3).accepted
    again = np.repeat(np.arange(300), often)
    twin = (
        make("temps")
        .fit(*softmax_examples(300, 4, seed=1))
        .certify(logits[again], labels[again], reused="ignore")
    )
    np.testing.assert_array_equal(
        sets, twin.predict_set(new, coverage=0.9, delta=0.1).members
    )
    np.testing.assert_array_equal(
        accepted, twin.predict_or_abstain(new, risk=0.3).accepted
    )
    with pytest.raises(
        ValueError, match=r"numbers with `counts=True`; got \d\.5\. Leave"
    ):
        cal.certify(logits, labels, sample_weight=often + 0.5, counts=True)


# rows of the fit


@pytest.mark.parametrize(
    "change",
    [
        lambda z: z + 1.0,
        lambda z: log_softmax(z, axis=1),
        lambda z: z.astype(np.float32),
    ],
)
def test_rows_of_the_fit_are_recognised_after_a_shift(change: Any) -> None:
    logits, labels = softmax_examples(400, 5, seed=1)
    cal = make("temps").fit(logits, labels)
    with pytest.raises(ValueError, match="not used in `fit`"):
        cal.certify(change(logits), labels)
    cal.certify(change(logits), labels, reused="ignore")
    assert cal.predictor_.held_out.label_scores is not None
    with pytest.raises(ValueError, match="`reused` must be one of"):
        cal.certify(logits, labels, reused="maybe")


@pytest.mark.parametrize(("n_fit", "n_new"), [(100, 1000), (300, 300)])
def test_fresh_rows_of_few_values_are_accepted(n_fit: int, n_new: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        fit, new = (rng.normal(size=(n, 3)).round(1) for n in (n_fit, n_new))
        truth = [(z + rng.gumbel(size=z.shape)).argmax(axis=1) for z in (fit, new)]
        make("temps").fit(fit, truth[0]).certify(new, truth[1])


# what is remembered


@pytest.mark.slow
def test_one_row_asks_no_more_of_the_examples() -> None:
    """What they guarantee is found once; then a row needs no array that is as long
    as they are.
    """
    logits, labels = softmax_examples(50_000, 10, seed=1)
    cal = (
        make("temps")
        .fit(*softmax_examples(500, 10, seed=2))
        .certify(logits, labels, reused="ignore")
    )
    row = logits[:1]
    for ask in (
        lambda: cal.predict_set(row, coverage=0.9),
        lambda: cal.predict_set(row, coverage=0.9, by="class", delta=0.1),
        lambda: cal.detect(row, 3, recall=0.9),
        lambda: cal.predict_or_abstain(row, risk=0.2),
        lambda: cal.predict_or_abstain(row, risk=1e-4),
    ):
        at_first, afterwards = peak_memory(ask), peak_memory(ask)
        assert afterwards < 100_000 < at_first


# several labels, maps, and the risk of one class


def missed_share(proba: np.ndarray, labels: np.ndarray, threshold: float) -> np.ndarray:
    """The share of an item's positives that is below the threshold."""
    axes = tuple(range(1, labels.ndim))
    there = labels == 1
    return ((proba < threshold) & there).sum(axis=axes) / np.maximum(
        there.sum(axis=axes), 1
    )


def test_several_labels_and_maps_have_losses_too() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=(3000, 6)) * 2.0
    labels = (rng.logistic(size=odds.shape) < odds).astype(int)
    cal = MultilabelCalibrator().fit(odds[:1000], labels[:1000])
    found = cal.control_risk(
        odds[1000:2000], labels[1000:2000], loss=missed_share, risk=0.1
    )
    reached = missed_share(
        cal.predict_proba(odds[2000:]), labels[2000:], found.threshold
    ).mean()
    assert 0.05 < reached < 0.12
    with pytest.raises(ValueError, match="not used in `fit`"):
        cal.control_risk(odds[:1000], labels[:1000], loss=missed_share, risk=0.1)

    maps = rng.normal(size=(300, 8, 8, 2)) * 2.0
    truth = (maps + rng.gumbel(size=maps.shape)).argmax(axis=-1)
    dense = Dense("temps").fit(maps[:100], truth[:100])
    found = dense.control_risk(
        maps[100:200],
        truth[100:200],
        risk=0.1,
        delta=0.1,
        loss=lambda proba, labels, t: missed_share(proba[..., 1], labels, t),
    )
    new = dense.predict_proba(maps[200:])[..., 1]
    assert 0.0 < missed_share(new, truth[200:], found.threshold).mean() < 0.1


@pytest.mark.parametrize("classes", [2, 5])
def test_intervals_for_the_risk_of_a_class(classes: int) -> None:
    """They hold the true share of class 1 among rows with similar probabilities."""
    cal = make("temps").fit(*softmax_examples(2000, classes, seed=1))
    logits = softmax_examples(20_000, classes, seed=3)[0]
    with pytest.raises(ValueError, match="`label` has no examples to go by"):
        cal.predict_interval(logits, label=1)
    cal.certify(*softmax_examples(2000, classes, seed=2))
    truth = softmax(logits / 2.0, axis=1)[:, 1]
    low, high = cal.predict_interval(logits, label=1, delta=0.1).T
    proba = cal.predict_proba(logits)[:, 1]
    assert ((low <= proba) & (proba <= high)).all()
    bins = np.array_split(np.argsort(proba), 12)
    inside = [
        low[b].mean() - 0.02 <= truth[b].mean() <= high[b].mean() + 0.02 for b in bins
    ]
    assert np.mean(inside) >= 10 / 12
    assert (high - low).mean() < 0.25
    parts = [
        (
            logits[k : k + 1000],
            softmax_examples(20_000, classes, seed=3)[1][k : k + 1000],
        )
        for k in range(0, 3000, 1000)
    ]
    whole, streamed = copy(cal), copy(cal)
    whole.certify(logits[:3000], softmax_examples(20_000, classes, seed=3)[1][:3000])
    streamed.certify_parts(parts)
    np.testing.assert_array_equal(
        *(each.predict_interval(logits, label=0) for each in (whole, streamed))
    )


def test_equal_weights_of_several_labels_mean_nothing() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=(900, 4))
    truth = (rng.logistic(size=odds.shape) < odds).astype(int)
    cal, site = MultilabelCalibrator().fit(odds[:300], truth[:300]), np.arange(600) % 60
    plain = cal.certify(odds[300:], truth[300:], groups=site).predict_set
    asked: list[dict[str, Any]] = [{"delta": 0.1}, {"by": "new group"}, {"by": "label"}]
    expected = [plain(odds, coverage=0.8, **options) for options in asked]
    for weights in (np.full(600, 2.0), np.ones(600)):
        cal.certify(odds[300:], truth[300:], weights, groups=site)
        for options, other in zip(asked, expected, strict=True):
            found = cal.predict_set(odds, coverage=0.8, **options)
            np.testing.assert_array_equal(found.thresholds, other.thresholds)
            assert found.guarantee == other.guarantee
    cal.certify(odds[300:], truth[300:], 1.0 + site, groups=site)
    for options, name in zip(asked[:2], ("`delta`", '`by="new group"`'), strict=True):
        with pytest.raises(ValueError, match=f"{name} needs examples.* alike") as told:
            cal.predict_set(odds, coverage=0.8, **options)
        assert "counts=True" not in str(
            told.value
        )  # `certify` has no such parameter here
