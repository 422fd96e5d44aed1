"""Rows unlike the validation set are flagged, by every method and wherever it is
served.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hokical import Gaussian, Hoki, TopK, load, make
from hokical._core.storage import CalibratorFileError
from hokical.calibrators import method_names
from hokical.guarantees.scores import is_within
from hokical.rules import as_logits
from hokical.streams import fit as fit_stream
from tests.conftest import QUICK, quiet_fit, synthetic_logits
from tests.fitted import with_fit_record


def fitted(name: str, n: int = 300) -> tuple[Any, np.ndarray]:
    calibrator = make(name, **QUICK.get(name, {}))
    logits, labels = synthetic_logits(n, 3, seed=1)
    if calibrator.method.binary_only:
        logits, labels = logits[:, :2], labels % 2
    quiet_fit(calibrator, logits, labels)
    return calibrator, logits


@pytest.mark.parametrize("name", [*method_names(2), "auto"])
def test_every_method_knows_what_it_saw(name: str, tmp_path: Path) -> None:
    calibrator, logits = fitted(name)
    calibrator.save(tmp_path / "cal.json")
    for answering in (calibrator, load(tmp_path / "cal.json")):
        for seen in (logits, logits.astype(np.float32)):
            assert answering.predict_support(seen).all()
        for unlike in (30.0 * logits, 1e-3 * logits - 1.0, logits + 100.0):
            assert answering.predict_support(unlike).mean() < 0.5


def test_few_examples_of_the_same_kind_are_outside() -> None:
    outside = []
    for seed in range(50):
        logits, labels = synthetic_logits(140, 4, seed=seed)
        cal = make("temps").fit(logits[:40], labels[:40])
        outside.append(1.0 - cal.predict_support(logits[40:]).mean())
    assert np.mean(outside) < 4.0 / 41.0


def test_the_support_is_the_same_however_examples_come() -> None:
    logits, labels = synthetic_logits(400, 4, seed=2)
    weights = np.ones(400)
    weights[np.argmax(logits.max(axis=1))] = 0.0
    whole = Hoki(noise=Gaussian(2.0)).fit(logits, labels, weights)
    assert not whole.predict_support(logits).all()
    chunks = [(logits[:100], labels[:100]), (logits[100:], labels[100:])]
    halves = [Hoki(noise=Gaussian(2.0)).fit(*chunk) for chunk in chunks]
    everything = make("temps").fit(logits, labels).predictor_.fit_record.support
    streamed = fit_stream(make("temps"), chunks).predictor_.fit_record.support
    added = (
        Hoki(noise=Gaussian(2.0))
        .fit(*chunks[0])
        .partial_fit(*chunks[1])
        .predictor_.fit_record.support
    )
    for found in (
        streamed,
        added,
        halves[0].merge(halves[1]).predictor_.fit_record.support,
    ):
        assert_array_equal(found.edges, everything.edges)


def test_top_k_rows_and_rows_with_one_possible_class() -> None:
    cal, logits = fitted("temps")
    best = TopK.from_logits(logits, 2)
    assert cal.predict_support(best).all()
    alone = logits[:2].copy()
    alone[:, 1:] = -np.inf
    assert not cal.predict_support(alone).any()
    masked = np.where([True, False, False], logits, -np.inf)
    assert (
        make("uncalibrated")
        .fit(masked, np.zeros(300, int))
        .predict_support(masked)
        .all()
    )


def test_a_support_that_was_not_stored_is_missed_with_a_remedy() -> None:
    cal, logits = fitted("temps")
    cal = with_fit_record(cal, support=None)
    with pytest.raises(ValueError, match="Fit it again"):
        cal.predict_support(logits)


@pytest.mark.parametrize("bad", [[2.0, 1.0], [np.nan, 1.0], [1.0, 2.0, 3.0], None])
def test_ranges_in_a_file_are_checked(bad: Any, tmp_path: Path) -> None:
    cal, _ = fitted("temps")
    forged = replace(cal.predictor_.fit_record.support, top=np.array(bad))
    cal = with_fit_record(cal, support=forged)
    cal.save(tmp_path / "cal.json")
    with pytest.raises(CalibratorFileError, match="usable"):
        load(tmp_path / "cal.json")


def test_modules_and_graphs_give_the_flag() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ndonnx")
    runtime = pytest.importorskip("onnxruntime")
    from hokical.integrations.onnx import export
    from hokical.integrations.torch import as_module

    cal, logits = fitted("temps")
    rows = np.concatenate([logits[:5] * size for size in (1.0, 6.0, 0.01)]).astype(
        np.float32
    )
    rows[1, 0] = -np.inf
    wanted = cal.predict_support(rows)
    assert 0 < wanted.sum() < 15
    module = as_module(cal)
    assert_array_equal(module.support(torch.tensor(rows)).numpy(), wanted)
    assert_array_equal(cal.predict_support(torch.tensor(rows)).numpy(), wanted)
    wider = as_module(fitted("temps", 100)[0])
    wider.load_state_dict(module.state_dict())
    assert_array_equal(wider.support(torch.tensor(rows)).numpy(), wanted)
    session = runtime.InferenceSession(export(cal, support=True).SerializeToString())
    assert_array_equal(session.run(["support"], {"logits": rows})[0], wanted)
    broken = torch.tensor([[float("nan"), 0.0, 0.0]])
    assert not module.support(broken).any()


def test_lazy_arrays_have_lazy_flags() -> None:
    da = pytest.importorskip("dask.array")
    cal, logits = fitted("temps")
    found = cal.predict_support(
        da.from_array(np.concatenate([logits, 40 * logits]), (100, -1))
    )
    assert found.dtype == np.bool_
    assert found[:300].compute().all()
    assert not found.compute().all()


def test_the_flag_has_one_meaning_in_every_library() -> None:
    strict = pytest.importorskip("array_api_strict")
    cal, logits = fitted("temps")
    rows = np.concatenate([logits, 5.0 * logits])
    found = is_within(
        as_logits(strict.asarray(rows)), cal.predictor_.fit_record.support.edges
    )
    assert_array_equal(np.asarray(found), cal.predict_support(rows))
