"""The ensembles that ship with the package: what documentation says of them holds."""

from __future__ import annotations

import numpy as np
import pytest

import hokical
from hokical.demo import EnsembleKind, demo_ensemble
from tests.ensembles import log_loss


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kind", "n_members", "gain"),
    [("views", 12, 0.01), ("networks", 3, 0.03), ("passes", 12, 0.015)],
)
def test_pooled_evaluations_beat_one_of_them(
    kind: EnsembleKind, n_members: int, gain: float
) -> None:
    (ensemble, labels), (new, new_labels) = demo_ensemble(kind)
    assert (ensemble.n_members, ensemble.n_rows, new.n_rows) == (n_members, 2000, 3000)
    single = hokical.auto(np.asarray(ensemble.members[0], np.float64), labels)
    alone = single.predict_proba(np.asarray(new.members[0], np.float64))
    pooled = hokical.auto(ensemble, labels).predict_proba(new)
    assert log_loss(pooled, new_labels) < log_loss(alone, new_labels) - gain
