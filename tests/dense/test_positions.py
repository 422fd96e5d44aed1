"""Slabs and positions: nothing is lost, nothing is doubled, and the choice among
them is fair.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from hokical import evaluate, load, streams
from hokical.calibrators import make
from hokical.dense import Dense
from tests.conftest import repetitions
from tests.fitted import label_scores

shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


def all_rows(dense: Dense, *data, **options):
    """Logits and labels of all positions that count."""
    return dense.draw_positions(*data, per_item=10**6, **options)


orders = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "backwards": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
}


@given(
    positions=shapes,
    classes=st.integers(2, 4),
    axis=st.integers(1, 4),
    order=st.sampled_from(sorted(orders)),
    masked=st.booleans(),
    ignored=st.sampled_from([None, 255, (255, 0), -1]),
    seed=st.integers(0, 2**31),
)
def test_rows_are_the_flattened_positions_that_count(
    positions, classes, axis, order, masked, ignored, seed
) -> None:
    rng = np.random.default_rng(seed)
    axis = 1 + axis % len(positions)
    axis -= (len(positions) + 1) * (seed % 2)  # counted from the end
    flat = rng.normal(size=(*positions, classes))
    labels = rng.integers(classes, size=positions)
    counts = np.ones(positions, bool)
    if ignored is not None:
        for label in np.atleast_1d(ignored):
            labels[rng.random(positions) < 0.2] = label
            counts &= labels != label
        counts = ~np.isin(labels, ignored)
    mask = rng.random(positions) < 0.7 if masked else None
    counts &= True if mask is None else mask
    dense = Dense(class_axis=axis, ignore_label=ignored)
    data = orders[order](np.moveaxis(flat, -1, axis)), labels
    if not counts.any():
        with pytest.raises(ValueError, match="at least one position must count"):
            all_rows(dense, *data, mask=mask)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_KERNEL_BLOCKS", 1)
        patch.setattr(streams, "_FLOATS_BESIDE", 2**15)  # slabs of one item
        found_logits, found_labels = all_rows(dense, *data, mask=mask)
    assert_array_equal(found_logits, flat[counts])
    assert_array_equal(found_labels, labels[counts])


@given(per_item=st.integers(1, 12), cut=st.integers(1, 5), seed=st.integers(0, 1000))
def test_a_choice_per_item_does_not_depend_on_batches(per_item, cut, seed) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(6, 3, 4, 2))
    labels = np.arange(6 * 12).reshape(6, 3, 4) % 2
    mask = rng.random(labels.shape) < 0.6
    dense, options = Dense(random_state=seed), {"per_item": per_item}
    whole = dense.draw_positions(logits, labels, mask=mask, **options)
    parts = [slice(0, cut), slice(cut, None)]
    batches = [
        {"logits": logits[p], "labels": labels[p], "mask": mask[p]} for p in parts
    ]
    assert_array_equal(dense.draw_positions(batches, **options)[0], whole[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_KERNEL_BLOCKS", 1)
        patch.setattr(streams, "_FLOATS_BESIDE", 2**15)  # slabs of one item
        again = dense.draw_positions(logits, labels, mask=mask, **options)
        assert_array_equal(again[0], whole[0])
    counts = np.minimum(mask.sum(axis=(1, 2)), per_item)
    assert whole[0].shape[0] == counts.sum()
    known = {tuple(row) for row in logits[mask]}
    assert len({tuple(row) for row in whole[0]} & known) == counts.sum()


def test_a_choice_is_even_and_changes_with_the_seed_and_the_item() -> None:
    numbers = np.tile(np.arange(20.0), (500, 1))
    logits = np.stack([numbers, -numbers], axis=-1)
    taken = []
    for seed in range(2):
        labels = np.zeros(numbers.shape, int)
        rows = Dense(random_state=seed).draw_positions(logits, labels, per_item=5)[0]
        taken.append(rows[:, 0].reshape(500, 5))
    assert (taken[0] != taken[1]).any()
    assert (taken[0][0] != taken[0][1]).any()
    counts = np.bincount(taken[0].astype(int).ravel(), minlength=20)
    assert (np.abs(counts - 125) < 5 * math.sqrt(125 * 0.75)).all()


def correct_together(n: int, rng: np.random.Generator, accuracy: float):
    """Items of 8 x 8 positions that are all right or all wrong, each said to be 95 %
    sure.
    """
    logits = np.zeros((n, 8, 8, 2))
    logits[..., 1] = math.log(19.0)
    labels = np.broadcast_to((rng.random(n) < accuracy)[:, None, None], (n, 8, 8))
    return logits, labels.astype(np.int64)


@pytest.mark.slow
def test_bounds_are_by_item() -> None:
    """True calibration error 0.1; bounds that may fail in a tenth of the cases."""
    rng = np.random.default_rng(0)
    cal = Dense("uncalibrated").fit(*correct_together(2, rng, 0.5))
    failed = {"by item": 0, "by position": 0}
    for _ in range(20):
        data = correct_together(100, rng, 0.85)
        found = evaluate(cal, *data, delta=0.1).summary.bounds
        failed["by item"] += min(found.values()) < 0.1
        flat = data[0].reshape(-1, 2), data[1].ravel()
        found = evaluate(cal.calibrator_, *flat, delta=0.1).summary.bounds
        failed["by position"] += min(found.values()) < 0.1
    assert failed["by item"] <= 2 < failed["by position"]


def test_intervals_are_by_item() -> None:
    """The accuracy of items whose positions are right together, in 95 % intervals."""
    rng = np.random.default_rng(5)
    cal = Dense("uncalibrated").fit(*correct_together(2, rng, 0.5))
    held = 0
    for _ in range(20):
        found = evaluate(cal, *correct_together(60, rng, 0.8))
        held += found["accuracy"].low <= 0.8 <= found["accuracy"].high
    assert held >= 16


def test_items_count_alike_however_they_are_cut(monkeypatch) -> None:
    """Slabs of an item, batches, ignored positions: the same intervals and bounds."""
    rng = np.random.default_rng(6)
    labels = rng.integers(3, size=(20, 6, 7))
    logits = 2 * (rng.normal(size=(20, 6, 7, 3)) + np.eye(3)[labels])
    labels[3], labels[:, 0] = 255, 255
    cal = Dense("temps", ignore_label=255).fit(logits, labels)
    whole = evaluate(cal, logits, labels)
    parts = evaluate(cal, [(logits[:3], labels[:3]), (logits[3:], labels[3:])])
    monkeypatch.setattr(streams, "_KERNEL_BLOCKS", 1)
    monkeypatch.setattr(streams, "_FLOATS_BESIDE", 1000)
    small = evaluate(cal, logits, labels)
    for other in (parts, small):
        assert other.summary.bounds == pytest.approx(whole.summary.bounds)
        assert other["brier"].low == pytest.approx(whole["brier"].low)
    once = evaluate(
        cal, iter([(logits, labels)])
    )  # comes once: no second look at its items
    assert once.summary.bounds == {}
    assert evaluate(cal, logits, labels, sample_weight=np.ones(20)).summary.bounds == {}


@pytest.mark.slow
def test_a_guarantee_holds_when_certified_and_is_not_given_by_the_fit(tmp_path) -> None:
    """A rule that accepts everything is wrong at the rate 0.25; at most 0.2 was
    asked for.
    """
    rng = np.random.default_rng(1)
    broken = {"certified": 0, "positions": 0}
    new = correct_together(1, rng, 0.75)[0]
    simulated = repetitions(100, 40)
    for _ in range(simulated):
        data = correct_together(30, rng, 0.75)
        cal = Dense("uncalibrated").fit(*data).certify(*data)
        found = cal.predict_or_abstain(new, risk=0.2, delta=0.1)
        broken["certified"] += bool(found.accepted.any())
        flat = make("uncalibrated").fit(data[0].reshape(-1, 2), data[1].ravel())
        found = flat.predict_or_abstain(new[0, 0], risk=0.2, delta=0.1)
        broken["positions"] += bool(found.accepted.any())
    assert broken["certified"] <= 0.1 * simulated < broken["positions"]


@pytest.mark.slow
def test_neither_the_calibrator_nor_its_file_take_positions_for_examples(
    tmp_path,
) -> None:
    data = correct_together(30, np.random.default_rng(1), 0.95)
    given_calibrator = make("temps").fit(data[0].reshape(-1, 2), data[1].ravel())
    assert given_calibrator.predict_interval(data[0][0, 0]).shape == (8, 2)
    for number, cal in enumerate((Dense("hoki").fit(*data), Dense(given_calibrator))):
        cal.save(tmp_path / f"{number}.json")
        held = [load(tmp_path / f"{number}.json")] + (
            [cal.calibrator_] if number == 0 else []
        )
        for calibrator in held:
            for ask in (calibrator.predict_or_abstain, calibrator.predict_interval):
                with pytest.raises(
                    ValueError, match=r"pixels or tokens.*`certify\(logits"
                ):
                    ask(data[0][0, 0])
    assert label_scores(given_calibrator) is not None


def test_what_is_accepted_keeps_the_shape() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=(300, 6, 7))
    logits = 2 * (rng.normal(size=(300, 6, 7, 3)) + 2 * np.eye(3)[labels])
    cal = Dense("temps").fit(logits, labels).certify(1.01 * logits, labels)
    mask = rng.random((300, 6, 7)) < 0.5
    found = cal.predict_or_abstain(logits, risk=0.1, mask=mask)
    flat = cal.calibrator_.predict_or_abstain(logits[mask], risk=0.1)
    assert found.accepted.shape == (300, 6, 7)
    assert found.accepted.dtype == np.bool_
    assert_array_equal(found.accepted[mask], flat.accepted)
    assert_array_equal(found.labels[mask], flat.labels)
    assert_array_equal(found.confidence[mask], flat.confidence)
    assert not found.accepted[~mask].any()
    assert (found.labels_or()[~mask] == -1).all()
    assert found.guarantee == flat.guarantee
    assert str(found).startswith(f"{flat.accepted.sum():,} of 12,600 accepted.")
    nothing = cal.predict_or_abstain(logits, risk=0.1, mask=np.zeros_like(mask))
    assert not nothing.accepted.any()
    assert np.isnan(nothing.confidence).all()
    assert nothing.guarantee == flat.guarantee


def test_batches_are_accepted_one_by_one() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=(300, 6, 7))
    logits = 2 * (rng.normal(size=(300, 6, 7, 3)) + 2 * np.eye(3)[labels])
    cal = Dense("temps").fit(logits, labels).certify(1.01 * logits, labels)
    mask = rng.random((100, 6, 7)) < 0.5
    batches = [(logits[:100], labels[:100]), {"logits": logits[100:200], "mask": mask}]
    for given_batches in (batches, iter(batches), lambda: iter(batches)):
        one, two = cal.predict_or_abstain(given_batches, risk=0.1)
        assert_array_equal(
            one.accepted, cal.predict_or_abstain(logits[:100], risk=0.1).accepted
        )
        assert not two.accepted[~mask].any()
        assert two.accepted[mask].any()
    with pytest.raises(ValueError, match="`risk` must lie"):
        cal.predict_or_abstain(
            batches, risk=2.0
        )  # at once, and not with the first batch


def test_certifying_leaves_the_given_calibrator_alone() -> None:
    data = correct_together(50, np.random.default_rng(0), 0.9)
    given_calibrator = make("uncalibrated").fit(data[0].reshape(-1, 2), data[1].ravel())
    cal = Dense(given_calibrator).certify(*data)
    assert given_calibrator.predictor_.held_out is None
    assert cal.calibrator_.predictor_.held_out.label_scores.total == 50
    before = cal.calibrator_
    with pytest.raises(ValueError, match="NaN"):
        cal.certify(data[0] * np.nan, data[1])
    assert cal.calibrator_ is before


def test_a_fit_takes_the_chosen_positions() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=(30, 10, 10))
    logits = 2 * (rng.normal(size=(30, 10, 10, 3)) + 2 * np.eye(3)[labels])
    cal = Dense("temps", max_positions_per_item=7, random_state=5).fit(logits, labels)
    flat = make("temps").fit(*cal.draw_positions(logits, labels, per_item=7))
    assert label_scores(flat).count.sum() == 210
    np.testing.assert_allclose(
        cal.calibrator_.temperature_, flat.temperature_, rtol=1e-10
    )


@pytest.mark.slow
def test_sets_count_an_item_once() -> None:
    """Coverage on average over items, certified with items whose positions are right
    together.
    """
    rng = np.random.default_rng(7)
    covered = []
    for _ in range(60):
        data = correct_together(60, rng, 0.8)
        cal = Dense("uncalibrated").fit(*data).certify(*data)
        logits, labels = correct_together(200, rng, 0.8)
        members = cal.predict_set(logits, coverage=0.9).members
        covered.append(np.take_along_axis(members, labels[..., None], axis=-1).mean())
    assert np.mean(covered) > 0.9


def test_weights_of_items_say_which_are_likely() -> None:
    """With weights of 0 and 1 sets are those of the items that count; the scale
    means nothing.
    """
    rng = np.random.default_rng(11)
    labels = rng.integers(4, size=(300, 5, 6))
    hard = np.arange(300) % 3 == 0
    scale = np.where(hard, 0.5, 2.0)[:, None, None, None]
    logits = rng.normal(size=(300, 5, 6, 4)) + scale * np.eye(4)[labels]
    fit, held_out = slice(0, 100), slice(100, 300)
    cal = make("temps").fit(logits[fit].reshape(-1, 4), labels[fit].ravel())
    given, truth, some = logits[held_out], labels[held_out], hard[held_out]
    alone = Dense(cal).certify(given[some], truth[some])
    for weight in (1.0, 7.0):
        found = Dense(cal).certify(given, truth, weight * some)
        one, two = found.predict_set(given), alone.predict_set(given)
        assert one.guarantee == two.guarantee
        assert_array_equal(one.members, two.members)
        assert found.predict_or_abstain(given, risk=0.9).accepted.any()
    likelier, plain = np.where(some, 9.0, 1.0), Dense(cal).certify(given, truth)
    found = Dense(cal).certify(given, truth, likelier)
    assert (
        "if the weights of the examples are right" in found.predict_set(given).guarantee
    )
    sizes = [each.predict_set(given).sizes.mean() for each in (plain, found, alone)]
    assert sizes[0] < sizes[1] < sizes[2]
    parts = slice(0, 90), slice(90, 200)
    batches = [(given[part], truth[part], likelier[part]) for part in parts]
    assert_array_equal(
        Dense(cal).certify(batches).predict_set(given).members,
        found.predict_set(given).members,
    )
    with pytest.raises(ValueError, match="examples of equal weight"):
        found.predict_or_abstain(given)
    with pytest.raises(ValueError, match="must be one per item"):
        Dense(cal).certify(given, truth, rng.random((200, 5, 6)))
