"""Dense outputs of any library: the answers of NumPy, in arrays of the library."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hokical.dense import Dense
from tests.conftest import quiet_fit
from tests.dense.test_dense import maps

LIBRARIES = ["jax.numpy", "array_api_strict", "dask.array"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("method", ["hoki", "vecs"])
def test_answers_are_of_the_library(name, method) -> None:
    library = pytest.importorskip(name)
    logits, labels = (
        part.astype(kind) for part, kind in zip(maps(), ("f4", int), strict=True)
    )
    shaped = np.moveaxis(logits, -1, 1)
    given, truth = library.asarray(shaped), library.asarray(labels)
    host = quiet_fit(Dense(method, class_axis=1, ignore_label=255), shaped, labels)
    cal = quiet_fit(Dense(method, class_axis=1, ignore_label=255), given, truth)
    mask = labels != 255
    for what in ("predict", "predict_confidence", "predict_proba"):
        found = getattr(cal, what)(given, mask=mask)
        known = getattr(host, what)(shaped, mask=mask)
        if name != "dask.array":  # computed at once
            assert type(found) is type(given)
        assert_allclose(np.asarray(found), known, rtol=0, atol=1e-6)
    accepted = (
        cal.certify(1.0625 * given, truth).predict_or_abstain(given, risk=0.3).accepted
    )
    known = (
        host.certify(1.0625 * shaped, labels)
        .predict_or_abstain(shaped, risk=0.3)
        .accepted
    )
    assert_array_equal(np.asarray(accepted), known)


def test_a_dask_array_is_computed_a_slab_at_a_time() -> None:
    da = pytest.importorskip("dask.array")
    logits, labels = maps()
    sizes = []

    def block(part):
        sizes.append(part.shape[0])
        return part

    lazy = da.from_array(logits, chunks=(1, 20, 25, 4)).map_blocks(
        block, meta=np.empty((0,) * 4)
    )
    cal = Dense("temps", ignore_label=255, max_positions_per_item=3)
    found = quiet_fit(cal, lazy[2:4], labels[2:4]).predict(lazy[4:])
    assert set(sizes) == {1}
    assert_array_equal(found, logits[4:].argmax(axis=-1))
