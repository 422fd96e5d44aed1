"""The proof: a real cluster of processes, data that no worker holds, a worker that
is killed.
"""

from __future__ import annotations

import os
import signal
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hokical import Gaussian, Hoki, metrics
from hokical.calibrators import make
from tests.conftest import synthetic_logits

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N_BLOCKS, ROWS = 24, 500

#: Workers are killed here: run by itself, on cores that nothing else uses.
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def data():
    return synthetic_logits(N_BLOCKS * ROWS, 5, seed=8)


@pytest.fixture(scope="module")
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of the cluster's own making, about ports and loops
        with distributed.LocalCluster(
            n_workers=3,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
        ) as running:
            yield running


@contextmanager
def one_worker():
    """A cluster of one worker, which its nanny starts again when it dies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as running:
            yield running


def dies_once(marker: str):
    """A function that kills the process it is first called in, and only that one."""

    def die() -> None:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    return die


def test_fit_and_predict_survive_the_death_of_a_worker(
    data, cluster, tmp_path: Path
) -> None:
    logits, labels = data
    whole = Hoki(noise=Gaussian(4.0)).fit(logits, labels)
    with distributed.Client(cluster) as client:
        parts = [
            da.from_array(logits[i : i + ROWS], chunks=-1)
            for i in range(0, len(labels), ROWS)
        ]
        lazy = client.persist(da.concatenate(parts))
        truth = da.from_array(labels, chunks=7 * ROWS // 2)
        distributed.wait(lazy)
        held = [len(keys) for keys in client.has_what().values()]
        assert max(held) < N_BLOCKS <= sum(held)  # no worker holds all of it
        before = set(client.scheduler_info(n_workers=-1)["workers"])

        die = dies_once(str(tmp_path / "fit"))

        def deadly(block, block_info=None):
            if block_info and block_info[0]["chunk-location"][0] == N_BLOCKS // 2:
                die()
            return block

        dangerous = lazy.map_blocks(deadly, dtype=logits.dtype, meta=np.empty((0, 0)))
        cal = Hoki(noise=Gaussian(4.0)).fit(dangerous, truth)
        assert (tmp_path / "fit").exists()  # a worker has died
        assert_array_equal(cal.alpha_, whole.alpha_)
        assert_array_equal(cal.beta_, whole.beta_)
        assert cal.table_.total == len(labels)  # no row lost or doubled
        assert_array_equal(cal.table_.weight, whole.table_.weight)
        assert set(client.scheduler_info(n_workers=-1)["workers"]) != before

        die = dies_once(str(tmp_path / "predict"))
        dangerous = lazy.map_blocks(
            deadly, dtype=logits.dtype, meta=np.empty((0, 0)), name="again"
        )
        confidence = cal.predict_confidence(dangerous)
        assert_array_equal(confidence.compute(), whole.predict_confidence(logits))
        assert (tmp_path / "predict").exists()
        found = metrics.ece(cal.predict_confidence(lazy), cal.predict(lazy) == truth)
    right = whole.predict(logits) == labels
    assert found == metrics.ece(whole.predict_confidence(logits), right)


def test_several_passes_on_the_cluster(data, cluster) -> None:
    logits, labels = data
    with distributed.Client(cluster):
        lazy = (
            da.from_array(logits, chunks=(2000, 3)),
            da.from_array(labels, chunks=1500),
        )
        cal = make("temps").fit(*lazy)
    assert cal.temperature_ == pytest.approx(
        make("temps").fit(*data).temperature_, rel=1e-12
    )


def test_the_only_worker_dies(data, tmp_path: Path) -> None:
    logits, labels = (part[:3000] for part in data)
    cal = Hoki(noise=Gaussian(4.0)).fit(logits, labels)
    die = dies_once(str(tmp_path / "died"))

    def deadly(block, block_info=None):
        if block_info and block_info[0]["chunk-location"][0] == 3:
            die()
        return block

    with one_worker() as alone, distributed.Client(alone):
        lazy = da.from_array(logits, chunks=(ROWS, 5))
        dangerous = lazy.map_blocks(deadly, dtype=logits.dtype, meta=np.empty((0, 0)))
        found = cal.predict_confidence(dangerous).compute()
    assert (tmp_path / "died").exists()
    assert_array_equal(found, cal.predict_confidence(logits))
