"""scikit-learn's own `check_estimator` on every calibrator, as it comes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sklearn.utils.estimator_checks import check_estimator

from hokical import Gaussian
from hokical.calibrators import Calibrator, make, method_names

_INDICES = (
    "labels are column indices of the logits; the check has more labels than columns"
)
_NAMES = "the arguments are called `logits` and `labels`, not `X` and `y`"
#: The checks that cannot hold, and why; docs/scikit-learn.md has the same table.
CANNOT_HOLD = {
    "check_estimators_overwrite_params": _INDICES,
    "check_estimators_fit_returns_self": _INDICES,
    "check_readonly_memmap_input": _INDICES,
    "check_n_features_in_after_fitting": _NAMES,
    "check_sample_weights_pandas_series": _INDICES,
    "check_sample_weights_not_an_array": _INDICES,
    "check_sample_weights_shape": _INDICES,
    "check_sample_weights_not_overwritten": _INDICES,
    "check_estimators_nan_inf": "labels are integers; the check has floats",
    "check_fit_score_takes_y": _NAMES,
    "check_sample_weight_equivalence_on_dense_data": _NAMES,
}
CALIBRATORS = [
    *(make(name) for name in method_names(n_classes=3) if not name.endswith("odir")),
    make("auto"),
    make("hoki", noise=Gaussian(1.0), draws=20, random_state=0),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("calibrator", CALIBRATORS, ids=lambda cal: cal.name)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks(calibrator: Calibrator) -> None:
    found = check_estimator(
        calibrator, expected_failed_checks=CANNOT_HOLD, on_skip=None
    )
    assert sum(one["status"] == "passed" for one in found) >= 30


def test_the_documentation_lists_what_cannot_hold() -> None:
    page = Path(__file__).parents[3] / "docs" / "scikit-learn.md"
    listed = set(re.findall(r"check_\w+", page.read_text(encoding="utf-8"))) - {
        "check_estimator"
    }
    assert listed == set(CANNOT_HOLD)
