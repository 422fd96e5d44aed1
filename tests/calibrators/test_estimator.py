"""Estimators of our own, with scikit-learn's base class as the reference, and
without it.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_html_repr, get_tags

from hokical import Dense, Gaussian, Hoki, TemperatureScaling
from hokical.calibrators import (
    Calibrator,
    Fit,
    MethodInfo,
    VectorScaling,
    make,
    method_names,
)
from hokical.rules.base import UncalibratedRule
from tests.conftest import synthetic_logits

NAMES = [*method_names(), "auto"]
#: Estimators with parameters that are not the default ones.
CHANGED = [
    Hoki(noise=Gaussian(2.0), n_bins=10),
    VectorScaling(ridge=0.01),
    Dense("temps", class_axis=1),
]


def in_sklearn(estimator: Calibrator) -> BaseEstimator:
    """The same estimator with the methods of scikit-learn's base class in front."""
    kind = type(estimator)
    twin = type(kind.__name__, (Sklearn, kind), {"__init__": kind.__init__})
    return twin(**estimator.get_params(deep=False))


class Sklearn(BaseEstimator):
    """scikit-learn's own methods, so that they come first."""


@pytest.mark.parametrize("estimator", [*map(make, NAMES), *CHANGED], ids=str)
def test_parameters_are_those_of_scikit_learn(estimator: Calibrator) -> None:
    twin = in_sklearn(estimator)
    assert estimator.get_params() == twin.get_params()
    assert list(estimator.get_params(deep=False)) == list(twin.get_params(deep=False))
    assert repr(estimator) == " ".join(repr(twin).split())


def test_parameters_are_set_and_unknown_ones_refused() -> None:
    assert Dense(Hoki()).set_params(class_axis=1).class_axis == 1
    with pytest.raises(
        ValueError, match=r"Hoki has no parameter 'bins'; it has .*'n_bins'"
    ):
        Hoki().set_params(bins=7)


def test_clones_are_unfitted_and_share_nothing() -> None:
    logits, labels = synthetic_logits(200, 3, seed=1)
    fitted = Hoki(noise=Gaussian(2.0)).fit(logits, labels)
    dense = Dense(fitted)
    for given, made in ((fitted, clone(fitted)), (fitted, clone(dense).calibrator)):
        assert made is not given
        assert not hasattr(made, "rule_")
        assert made.get_params() == given.get_params()


def test_it_goes_through_a_search_a_pipeline_and_joblib(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(300, 3, seed=2)
    pipe = make_pipeline(FunctionTransformer(), Hoki(noise=Gaussian(2.0)))
    search = GridSearchCV(pipe, {"hoki__n_bins": [5, 10]}, cv=3).fit(logits, labels)
    best = search.best_estimator_[-1]
    assert search.best_params_["hoki__n_bins"] == best.n_bins
    expected = best.predict_confidence(logits)
    joblib.dump(best, tmp_path / "best")
    for again in (pickle.loads(pickle.dumps(best)), joblib.load(tmp_path / "best")):
        np.testing.assert_array_equal(again.predict_confidence(logits), expected)
    assert "Hoki" in estimator_html_repr(pipe)
    assert get_tags(best).target_tags.required


def test_errors_and_warnings_are_scikit_learns_where_it_is_loaded() -> None:
    logits, _ = synthetic_logits(100, 3, seed=3)
    with pytest.raises(NotFittedError, match="This Hoki instance is not fitted yet"):
        Hoki().predict(logits)
    with pytest.warns(ConvergenceWarning):
        TemperatureScaling().fit(logits, logits.argmax(axis=1))


WITHOUT = """
import sys, warnings
import numpy as np

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "sklearn":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import hokical
from hokical.calibrators import make, method_names

try:
    hokical.CalibratedClassifier
except ImportError as error:
    print(error)
rng = np.random.default_rng(0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name in [*method_names(2), "auto"]:
        cal = make(name)
        logits = 2 * rng.normal(size=(200, 2 if cal.method.binary_only else 3))
        try:
            cal.predict(logits)
        except AttributeError:  # as scikit-learn's `NotFittedError`
            pass
        labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        cal.fit(logits, labels).predict_proba(logits)
        hokical.calibrators.stored.clone(cal)
    make("temps").fit(logits, logits.argmax(axis=1))
print('ConvergenceWarning' in {w.category.__name__ for w in caught})
hokical.compare((logits, labels), (logits, labels), methods=["temps"])
hokical.Dense("temps").fit(logits[:, None], labels[:, None]).predict(logits[:, None])
print("sklearn" in sys.modules)
"""


@pytest.mark.slow
def test_everything_but_the_classifier_works_without_scikit_learn() -> None:
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=300
    )
    said = (
        "`CalibratedClassifier` needs scikit-learn: `pip install '.[sklearn]'` in a "
        "clone of hokical."
    )
    assert done.stdout.splitlines() == [said, "True", "False"]


def test_the_catalogue_knows_what_the_classes_say() -> None:
    kinds = {name: make(name) for name in NAMES}
    assert [kind.name for kind in kinds.values()] == [*kinds]
    binary = {name for name, kind in kinds.items() if kind.method.binary_only}
    assert (
        set(method_names(2)) - set(method_names(3))
        == binary
        == {"platt", "beta", "venn_abers"}
    )


@pytest.mark.slow
def test_names_are_known_without_importing_methods() -> None:
    code = (
        "import sys, hokical.calibrators as c; c.make('temps');"
        "print(sorted(n for n in sys.modules if n.startswith('hokical.calibrators.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = {name.rpartition(".")[2] for name in eval(done.stdout)}
    assert loaded & {"methods", "hoki", "confidence"} == {"methods"}


def test_a_fit_that_did_not_converge_says_so_by_its_report() -> None:
    """The message of the report is that of the warning, for any method."""

    class Stuck(Calibrator):
        method = MethodInfo(UncalibratedRule)

        def _fit(self, examples: object) -> Fit:
            message = "it went in circles. Use another example."
            return Fit(UncalibratedRule(), {"converged": False, "message": message})

    told = "Stuck did not converge: it went in circles. Use another example."
    with pytest.warns(ConvergenceWarning, match=told):
        cal = Stuck().fit(*synthetic_logits(200, 3, seed=0))
    assert cal.message_ in told
