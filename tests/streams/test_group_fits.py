"""Groups in fits that read examples in parts: the same as in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from hokical import AutoCalibrator
from hokical.streams import certify, fit, open_source, predict, predict_to
from tests.conftest import grouped_examples
from tests.fitted import fingerprint

LOGITS, LABELS, SITE = grouped_examples(1500, seed=0)


def chunks() -> Any:
    return ((LOGITS[k : k + 400], LABELS[k : k + 400]) for k in range(0, 1500, 400))


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of 700 rows."""
    monkeypatch.setattr("hokical._fitting.examples.MOST_LOGITS", 4000)
    monkeypatch.setattr("hokical._fitting.examples.MOST_ROWS", 700)


@pytest.fixture(scope="module")
def in_memory() -> AutoCalibrator:
    return hokical.auto(LOGITS, LABELS, groups={"site": SITE})


@pytest.mark.slow
def test_few_examples_give_what_memory_gives(in_memory: AutoCalibrator) -> None:
    for source in (chunks, chunks(), open_source(LOGITS, LABELS)):
        found = fit(AutoCalibrator(), source, groups={"site": SITE})
        assert (fingerprint(found), found.reason_) == (
            fingerprint(in_memory),
            in_memory.reason_,
        )
    dask = pytest.importorskip("dask.array")
    lazy = dask.from_array(LOGITS, chunks=(400, 4))
    groups = {"site": dask.from_array(SITE, chunks=500)}
    found = AutoCalibrator().fit(
        lazy, dask.from_array(LABELS, chunks=300), groups=groups
    )
    assert (fingerprint(found), found.reason_) == (
        fingerprint(in_memory),
        in_memory.reason_,
    )
    by_block = dask.blockwise(
        lambda x, g: found.predict_proba(x, groups={"site": g}),
        *("ik", lazy, "ik", dask.from_array(SITE, chunks=400), "i"),
        dtype=float,
    )
    expected = in_memory.predict_proba(LOGITS, groups={"site": SITE})
    np.testing.assert_array_equal(by_block.compute(), expected)
    with pytest.raises(TypeError, match="must be in memory where there are `groups`"):
        found.predict_proba(lazy, groups={"site": SITE})


def test_rows_of_weight_0_are_not_looked_at() -> None:
    weights = (SITE != "e").astype(float)
    found = fit(AutoCalibrator(), open_source(LOGITS, LABELS, weights), groups=SITE)
    assert fingerprint(found) == fingerprint(
        hokical.auto(LOGITS, LABELS, weights, groups=SITE)
    )
    assert found.rule_.needed_groups.levels == (("a", "b", "c", "d"),)


@pytest.mark.usefixtures("few_at_a_time")
def test_groups_are_learned_from_a_sample_of_many_examples(
    in_memory: AutoCalibrator,
) -> None:
    weights = (SITE != "e").astype(float)
    noise = np.arange(1500) % 3
    found = fit(
        AutoCalibrator(),
        open_source(LOGITS, LABELS, weights),
        groups={"noise": noise, "site": SITE},
    )
    assert found.groups_ == ["site"]
    assert found.rule_.needed_groups.levels == (("a", "b", "c", "d"),)
    rows = np.flatnonzero(SITE != "e")
    assert found.reason_.endswith(f"It was fitted on 700 of {rows.size:,} rows.")
    said, whole = (
        cal.predict_proba(LOGITS[rows], groups={"site": SITE[rows]})
        for cal in (found, in_memory)
    )
    loss, best = (
        -np.log(proba[np.arange(rows.size), LABELS[rows]]).mean()
        for proba in (said, whole)
    )
    assert loss < best + 0.02  # a row's code of another row would cost .1


@pytest.mark.usefixtures("few_at_a_time")
def test_the_sample_is_the_same_in_dask_and_in_chunks() -> None:
    dask = pytest.importorskip("dask.array")
    lazy = dask.from_array(LOGITS, chunks=(350, 4))
    found = AutoCalibrator().fit(lazy, LABELS, groups=SITE)
    expected = fit(AutoCalibrator(), chunks, groups=SITE)
    assert "Groups: " in expected.reason_
    assert expected.reason_.endswith("It was fitted on 700 of 1,500 rows.")
    assert found.reason_ == expected.reason_
    np.testing.assert_array_equal(
        found.predict_proba(LOGITS, groups=SITE),
        expected.predict_proba(LOGITS, groups=SITE),
    )


@pytest.mark.slow
def test_columns_of_files_are_named(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {f"logit_{k}": LOGITS[:, k] for k in range(4)}
    columns |= {"label": LABELS, "site": SITE, "odd": np.arange(1500) % 2}
    for k, folder in enumerate(("val", "val", "val", "val", "test")):
        (tmp_path / folder).mkdir(exist_ok=True)
        part = pa.table(columns)[300 * k : 300 * (k + 1)]
        parquet.write_table(part, tmp_path / folder / f"{k}.parquet")
    val = tmp_path / "val"
    found = fit(AutoCalibrator(), open_source(val), groups=("site", "odd"))
    given = {"site": SITE[:1200], "odd": np.arange(1200) % 2}
    assert fingerprint(found) == fingerprint(
        hokical.auto(LOGITS[:1200], LABELS[:1200], groups=given)
    )
    assert found.groups_ == ["site"]
    listed = fit(AutoCalibrator(), open_source(val), groups=["site", "odd"])
    assert fingerprint(listed) == fingerprint(found)
    expected = found.predict_confidence(LOGITS[:1200], groups=given)
    assert np.allclose(np.concatenate([*predict(found, val, groups="site")]), expected)
    assert predict_to(found, val, tmp_path / "out.npy", groups=["site"]) == 1200
    assert np.allclose(np.load(tmp_path / "out.npy"), expected)
    rest = {"site": SITE[1200:]}
    found.certify(LOGITS[1200:], LABELS[1200:], groups=rest)
    certify(listed, tmp_path / "test", groups="site")
    both = [
        c.predict_or_abstain(LOGITS[1200:], risk=0.3, groups=rest)
        for c in (found, listed)
    ]
    assert both[0].accepted.any()
    assert both[0].guarantee == both[1].guarantee
    with pytest.raises(
        ValueError, match=r"names of columns \(logit_0, .*\); got 'town'"
    ):
        fit(AutoCalibrator(), open_source(val), groups="town")
    with pytest.raises(ValueError, match="no scores; got `logit_1`"):
        fit(AutoCalibrator(), open_source(val), groups="logit_1")


def test_wrong_groups_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one entry per row \(1500\)"):
        fit(AutoCalibrator(), chunks, groups=SITE[1:])
    with pytest.raises(ValueError, match="`groups` must be None for `temps`; got some"):
        fit(hokical.make("temps"), chunks, groups=SITE)
    with pytest.raises(ValueError, match=r"\(this source has none\); got 'site'"):
        fit(AutoCalibrator(), chunks, groups="site")
