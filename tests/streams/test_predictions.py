"""Predictions over sources: order kept, files whole or not there."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError

import hokical
from hokical import Gaussian, Hoki, TopK
from hokical.io import DataFileError
from hokical.streams import fit, open_source, predict, predict_to

METHODS = {
    "confidence": "predict_confidence",
    "labels": "predict",
    "proba": "predict_proba",
}


@pytest.fixture(scope="module")
def calibrator(examples):
    return Hoki(noise=Gaussian(4.0)).fit(*examples)


@pytest.mark.parametrize("what", METHODS)
def test_results_come_chunk_by_chunk_in_order(
    examples, calibrator, what, tmp_path
) -> None:
    method = getattr(calibrator, METHODS[what])
    source = open_source(examples[0], chunk_rows=333)
    parts = list(predict(calibrator, source, what=what))
    assert [len(part) for part in parts] == [chunk.n_rows for chunk in source]
    assert_array_equal(np.concatenate(parts), method(examples[0]))
    assert predict_to(calibrator, source, tmp_path / "out.npy", what=what) == 4000
    assert_array_equal(np.load(tmp_path / "out.npy"), method(examples[0]))
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_generators_of_logits_alone_will_do(examples, calibrator) -> None:
    chunks = (examples[0][i : i + 100] for i in range(0, 4000, 100))
    parts = predict(calibrator, chunks, what="labels")
    assert_array_equal(np.concatenate(list(parts)), examples[0].argmax(axis=1))


def test_a_writer_that_fails_leaves_no_file(examples, calibrator, tmp_path) -> None:
    logits = examples[0].copy()
    logits[3900] = np.nan
    with pytest.raises(ValueError, match="NaN in row 3900, column 0"):
        predict_to(
            calibrator, open_source(logits, chunk_rows=500), tmp_path / "out.npy"
        )
    assert not list(tmp_path.iterdir())


def test_bad_arguments_are_named(examples, calibrator, tmp_path) -> None:
    with pytest.raises(ValueError, match="`what` must be one of"):
        predict_to(calibrator, open_source(examples[0]), tmp_path / "o.npy", what="all")
    with pytest.raises(DataFileError, match=r"ends in \.npy"):
        predict_to(calibrator, open_source(examples[0]), tmp_path / "o.txt")
    with pytest.raises(ValueError, match="X has 4 features, but Hoki is expecting 5"):
        list(predict(calibrator, open_source(examples[0][:, :4])))
    with pytest.raises(ValueError, match="at least one row; got none"):
        predict_to(calibrator, open_source([]), tmp_path / "o.npy")


def test_evaluation_of_a_stream_is_that_of_its_arrays(examples, calibrator) -> None:
    streamed = hokical.evaluate(calibrator, open_source(*examples, chunk_rows=300))
    known = hokical.evaluate(calibrator, *examples)
    assert streamed.n == known.n == 4000
    for name in ("accuracy", "ece", "brier"):
        assert streamed[name].value == pytest.approx(known[name].value, abs=1e-12)


@pytest.mark.parametrize("what", METHODS)
def test_lists_and_functions_of_chunks(examples, calibrator, what) -> None:
    logits, labels = examples
    whole = getattr(calibrator, METHODS[what])(logits)
    pairs = [(logits[i : i + 900], labels[i : i + 900]) for i in range(0, 4000, 900)]
    alone = [part for part, _ in pairs]
    named = [{"logits": part} for part in alone]
    for chunks in (
        pairs,
        alone,
        named,
        tuple(pairs),
        lambda: pairs,
        lambda: iter(alone),
    ):
        parts = list(predict(calibrator, chunks, what=what))
        assert_array_equal(np.concatenate(parts), whole)


def test_an_unfitted_calibrator_says_so_at_once(examples, tmp_path) -> None:
    for work in (
        lambda: predict(Hoki(), [examples]),
        lambda: predict_to(Hoki(), open_source(*examples), tmp_path / "o.npy"),
    ):
        with pytest.raises(NotFittedError):
            work()


@pytest.mark.slow
def test_an_iterator_is_evaluated_in_its_one_pass(examples, calibrator) -> None:
    calls = []

    def chunks():
        calls.append(1)
        return iter([examples])

    known = hokical.evaluate(calibrator, open_source(*examples)).to_dict()
    assert hokical.evaluate(calibrator, iter([examples])).to_dict() == known
    assert hokical.evaluate(calibrator, chunks).to_dict() == known
    assert len(calls) == 1


def test_chunks_of_the_best_logits_are_refused(examples, calibrator) -> None:
    top = TopK(np.zeros((3, 2)), np.tile([0, 1], (3, 1)), n_classes=5)
    for work in (
        lambda: fit(Hoki(noise=Gaussian(4.0)), [(top, np.zeros(3, int))]),
        lambda: list(predict(calibrator, [top, top])),
    ):
        with pytest.raises(
            TypeError, match="got TopK, which can be used in memory only"
        ):
            work()
