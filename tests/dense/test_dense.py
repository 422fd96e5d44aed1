"""Dense outputs: the same as a calibrator on the flattened positions that count."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.validation import check_is_fitted

from hokical import CalibratorFileError, Gaussian, Hoki, Uniform, load, streams
from hokical.calibrators import make
from hokical.dense import Dense
from hokical.streams import fit as fit_stream
from hokical.streams import open_source
from tests.conftest import quiet_fit
from tests.same_fits import assert_same_fit

GATHERING = ["irm", "irova_ts"]
STREAMING = ["uncalibrated", "temps", "vecs", "ets"]
HOKIS = [
    {"noise": Gaussian(4.0)},
    {"noise": Uniform(-3, 5)},
    {"noise": Gaussian(4.0), "draws": 50, "random_state": 3},
    {},
]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, and so slabs, of a few hundred positions."""
    monkeypatch.setattr(streams, "_KERNEL_BLOCKS", 1)
    monkeypatch.setattr(streams, "_FLOATS_BESIDE", 1000)


def maps(n: int = 6, h: int = 20, w: int = 25, classes: int = 4, seed: int = 0):
    """Overconfident logits (n, h, w, classes) and labels, 255 along the edges."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=(n, h, w))
    logits = 3 * (rng.normal(size=(n, h, w, classes)) + 2 * np.eye(classes)[labels])
    labels[:, :2], labels[:, :, -1] = 255, 255
    return logits, labels


def counting(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return logits[labels != 255], labels[labels != 255]


@pytest.mark.sample(3)
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("options", HOKIS)
@pytest.mark.parametrize("class_axis", [-1, 1])
def test_hoki_is_the_same_to_the_bit(options, class_axis) -> None:
    logits, labels = maps()
    flat = quiet_fit(Hoki(**options), *counting(logits, labels))
    shaped = np.moveaxis(logits, -1, class_axis)
    dense = Dense(Hoki(**options), class_axis=class_axis, ignore_label=255)
    quiet_fit(dense, shaped, labels)
    flat.forget_examples()
    assert_same_fit(flat, dense.calibrator_)


@pytest.mark.sample(2)
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", STREAMING)
def test_methods_that_stream_agree_to_rounding_and_do_not_see_the_shape(name) -> None:
    logits, labels = maps()
    rows, truth = counting(logits, labels)
    flat = quiet_fit(make(name), rows, truth)
    streamed = fit_stream(make(name), open_source(rows, truth))
    dense = quiet_fit(
        Dense(name, class_axis=1, ignore_label=255), np.moveaxis(logits, -1, 1), labels
    )
    proba = dense.calibrator_.predict_proba(rows)
    assert_allclose(proba, flat.predict_proba(rows), rtol=0, atol=1e-10)
    assert_array_equal(proba, streamed.predict_proba(rows))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", GATHERING)
def test_methods_that_gather_see_the_counting_positions_alone(name) -> None:
    logits, labels = maps(n=2, h=10, w=12, classes=3)
    rows, truth = counting(logits, labels)
    logits[labels == 255] = np.nan
    flat = quiet_fit(make(name), rows, truth)
    dense = quiet_fit(Dense(name, ignore_label=255), logits, labels)
    assert_array_equal(dense.calibrator_.predict_proba(rows), flat.predict_proba(rows))


@pytest.mark.usefixtures("small_blocks")
def test_masks_and_weights_of_positions_and_of_items() -> None:
    logits, labels = maps()
    rng = np.random.default_rng(1)
    mask = rng.random(labels.shape) < 0.7
    per_item = np.arange(1.0, 7.0)
    per_position = np.broadcast_to(per_item[:, None, None], labels.shape)
    keep = mask & (labels != 255)
    flat = make("temps").fit(logits[keep], labels[keep], per_position[keep])
    logits[~mask] = np.nan
    for weights in (per_item, per_position):
        for given in (mask, mask.astype(np.int64)):
            dense = Dense("temps", ignore_label=255)
            dense.fit(logits, labels, mask=given, sample_weight=weights)
            assert_allclose(
                dense.calibrator_.temperature_, flat.temperature_, rtol=1e-10
            )


def test_several_labels_can_be_ignored_also_real_classes() -> None:
    logits, labels = maps()
    keep = (labels != 255) & (labels != 0)
    flat = make("temps").fit(logits[keep], labels[keep])
    dense = Dense("temps", ignore_label=(255, 0)).fit(logits, labels)
    assert_allclose(dense.calibrator_.temperature_, flat.temperature_, rtol=1e-10)


@pytest.mark.sample(5)
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["hoki", "vecs", "irova_ts"])
@pytest.mark.parametrize("class_axis", [1, 2, -1])
def test_predictions_keep_the_shape(name, class_axis) -> None:
    logits, labels = maps(n=3, h=9, w=40)
    cal = quiet_fit(Dense(name, class_axis=-1, ignore_label=255), logits, labels)
    cal.set_params(class_axis=class_axis)
    rows = logits.reshape(-1, 4)
    shaped = np.moveaxis(logits, -1, class_axis)
    flat = cal.calibrator_
    assert_array_equal(cal.predict(shaped), flat.predict(rows).reshape(labels.shape))
    confidence = cal.predict_confidence(shaped)
    assert_array_equal(confidence, flat.predict_confidence(rows).reshape(labels.shape))
    proba = np.moveaxis(cal.predict_proba(shaped), class_axis, -1)
    assert_array_equal(proba, flat.predict_proba(rows).reshape(logits.shape))


@pytest.mark.usefixtures("small_blocks")
def test_masked_positions_are_filled_and_may_hold_anything() -> None:
    logits, labels = maps()
    cal = Dense("temps", ignore_label=255).fit(logits, labels)
    whole = cal.predict_confidence(logits)
    mask = np.random.default_rng(2).random(labels.shape) < 0.5
    mask[0] = False  # a slab in which nothing counts
    logits[~mask] = np.nan
    confidence = cal.predict_confidence(logits, mask=mask)
    assert_array_equal(confidence[mask], whole[mask])
    assert np.isnan(confidence[~mask]).all()
    assert (cal.predict(logits, mask=mask)[~mask] == -1).all()
    proba = cal.predict_proba(logits, mask=mask)
    assert np.isnan(proba[~mask]).all()
    assert_allclose(proba[mask].sum(axis=-1), 1.0)
    nothing = cal.predict_confidence(logits, mask=np.zeros(labels.shape, bool))
    assert np.isnan(nothing).all()


def batches_of(logits, labels):
    """Batches of different sizes, shapes and kinds."""
    return [
        (logits[:1], labels[:1]),
        [logits[1:3, :10], labels[1:3, :10]],
        {"logits": logits[1:3, 10:], "labels": labels[1:3, 10:]},
        {
            "logits": logits[3:],
            "labels": labels[3:],
            "mask": np.ones(labels[3:].shape, bool),
        },
    ]


class Loader:
    """Iterable again and again, without a length, as a data loader is."""

    def __init__(self, batches) -> None:
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


@pytest.mark.sample(1)
@pytest.mark.parametrize("wrap", [list, Loader, lambda batches: lambda: iter(batches)])
def test_batches_are_the_same_as_one_array(wrap) -> None:
    """Sums over all rows, that is: a search for noise looks at some rows, by their
    order.
    """
    logits, labels = maps()
    whole = Dense(Hoki(noise=Gaussian(4.0)), ignore_label=255).fit(logits, labels)
    cal = clone(whole).fit(wrap(batches_of(logits, labels)))
    assert_same_fit(whole.calibrator_, cal.calibrator_)
    found = list(cal.predict_confidence(wrap(batches_of(logits, labels))))
    assert [part.shape for part in found] == [
        (1, 20, 25),
        (2, 10, 25),
        (2, 10, 25),
        (3, 20, 25),
    ]
    assert_array_equal(found[0], whole.predict_confidence(logits[:1]))


def test_an_iterator_is_enough() -> None:
    logits, labels = maps()
    for method in (Hoki(noise=Gaussian(4.0)), "temps"):
        once = Dense(method, ignore_label=255)
        quiet_fit(once, iter(batches_of(logits, labels)))
        whole = quiet_fit(clone(once), batches_of(logits, labels))
        assert_same_fit(whole.calibrator_, once.calibrator_)


def test_masks_of_batches_hold_for_predictions() -> None:
    logits, labels = maps()
    cal = Dense("temps", ignore_label=255).fit(logits, labels)
    mask = labels != 255
    (found,) = cal.predict([{"logits": logits, "attention_mask": mask.astype(int)}])
    assert_array_equal(found == -1, ~mask)


def peak(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["hoki", "temps"])
def test_memory_of_a_fit_does_not_grow_with_the_items(
    name, tmp_path, monkeypatch
) -> None:
    """Neither for a file that is mapped, nor for arrays whose order is the worst.

    (Hoki's own table has one entry per level of stability; of few draws it is full at
    once. The sample and the sketch that a fit keeps of its rows are full well before 60
    items.)
    """
    monkeypatch.setattr("hokical._fitting.examples.MOST_LOGITS", 40_000)
    monkeypatch.setattr(streams, "_KERNEL_BLOCKS", 1)  # a slab is an item
    monkeypatch.setattr(streams, "_FLOATS_BESIDE", 100)
    few = Hoki(noise=Gaussian(4.0), draws=20, random_state=0)
    calibrator = few if name == "hoki" else make(name)
    dense = Dense(calibrator, class_axis=1, ignore_label=255)
    peaks, sizes = [], []
    for n in (60, 120):
        logits, labels = maps(n, 20, 50, 32)
        np.save(tmp_path / f"{n}.npy", np.moveaxis(logits, -1, 1))
        mapped = np.load(tmp_path / f"{n}.npy", mmap_mode="r")
        backwards = np.moveaxis(np.asfortranarray(logits), -1, 1)[:, ::-1]
        sizes.append(logits.nbytes)
        for array in (mapped, backwards):
            quiet_fit(dense, array[:2], labels[:2])  # what is compiled or kept for good
            peaks.append(peak(lambda a=array, y=labels: quiet_fit(dense, a, y)))
    small, large = peaks[:2], peaks[2:]
    grown = sizes[1] - sizes[0]
    growth = [after - before for before, after in zip(small, large, strict=True)]
    assert max(growth) < 0.02 * grown


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_memory_of_a_prediction_is_that_of_the_answer() -> None:
    logits, labels = maps(300, 20, 50, 8)
    cal = Dense("temps", ignore_label=255, max_positions_per_item=50).fit(
        logits, labels
    )
    shaped = np.asfortranarray(logits)
    cal.predict_confidence(shaped[:1])
    assert peak(lambda: cal.predict_confidence(shaped)) < 1.5 * labels.nbytes


def test_it_is_an_estimator() -> None:
    logits, labels = maps()
    dense = Dense(
        make("hoki"), class_axis=1, ignore_label=255, max_positions_per_item=100
    )
    twin = clone(dense)
    assert twin.get_params()["ignore_label"] == 255
    assert twin.calibrator is not dense.calibrator
    twin.set_params(class_axis=-1).fit(logits, labels)
    assert not hasattr(twin.calibrator, "rule_")
    check_is_fitted(twin)
    assert twin.n_classes_ == 4
    with pytest.raises(NotFittedError, match="Call `fit` first"):
        dense.predict(logits)


def test_cross_validation_splits_items_and_not_positions() -> None:
    logits, labels = maps()
    dense = Dense("temps", ignore_label=255)
    scores = cross_val_score(dense, logits, labels, cv=3)
    first = clone(dense).fit(logits[2:], labels[2:]).score(logits[:2], labels[:2])
    assert scores.shape == (3,)
    assert scores[0] == first


def test_the_choice_among_methods_can_be_left_to_auto() -> None:
    logits, labels = maps()
    cal = quiet_fit(
        Dense("auto", ignore_label=255, max_positions_per_item=100), logits, labels
    )
    assert cal.predict_confidence(logits).shape == labels.shape


def test_saved_and_loaded_it_predicts_the_same(tmp_path) -> None:
    logits, labels = maps()
    options = {
        "ignore_label": (255, 254),
        "max_positions_per_item": 200,
        "random_state": 7,
    }
    cal = quiet_fit(Dense(class_axis=1, **options), np.moveaxis(logits, -1, 1), labels)
    cal.save(tmp_path / "cal.json")
    again = Dense.load(tmp_path / "cal.json")
    check_is_fitted(again)
    own, found = (each.get_params(deep=False) for each in (cal, again))
    assert {**own, "calibrator": 0} == {**found, "calibrator": 0}
    confidence = cal.predict_confidence(np.moveaxis(logits, -1, 1))
    assert_array_equal(again.predict_confidence(np.moveaxis(logits, -1, 1)), confidence)
    for other in (
        Dense.load(tmp_path / "cal.json", class_axis=-1),
        Dense(load(tmp_path / "cal.json")),
        Dense(load(tmp_path / "cal.json")),
    ):
        assert_array_equal(other.predict_confidence(logits), confidence)
    quiet_fit(again, np.moveaxis(logits, -1, 1), labels)
    assert_same_fit(again.calibrator_, cal.calibrator_)


def test_a_plain_calibrators_file_has_no_options(tmp_path) -> None:
    logits, labels = maps()
    cal = make("temps").fit(*counting(logits, labels))
    cal.save(tmp_path / "cal.json")
    assert Dense.load(tmp_path / "cal.json", class_axis=1).class_axis == 1
    assert Dense.load(tmp_path / "cal.json").class_axis == -1
    for options in (
        {"dense": {"colour": 3}},
        {"dense": {"class_axis": "left"}},
        {"dense": 4},
    ):
        cal.save(tmp_path / "cal.json", metadata=options)
        assert load(tmp_path / "cal.json").temperature_ == cal.temperature_
        with pytest.raises(CalibratorFileError, match="unusable options of Dense"):
            Dense.load(tmp_path / "cal.json")


@pytest.mark.usefixtures("small_blocks")
def test_the_score_is_that_of_the_flat_rows() -> None:
    logits, labels = maps()
    cal = Dense("temps", ignore_label=255).fit(logits, labels)
    flat = cal.calibrator_.score(*counting(logits, labels))
    assert_allclose(cal.score(logits, labels), flat, rtol=1e-12)


def test_mapped_files_are_read_as_arrays(tmp_path) -> None:
    logits, labels = maps()
    expected = (
        Dense("temps", ignore_label=255).fit(logits, labels).calibrator_.temperature_
    )
    np.save(tmp_path / "logits.npy", np.moveaxis(logits, -1, 1))
    mapped = np.load(tmp_path / "logits.npy", mmap_mode="r")
    found = Dense("temps", class_axis=1, ignore_label=255).fit(mapped, labels)
    assert found.calibrator_.temperature_ == expected
