"""One calibrator, fitted or loaded: the same class, members, parameters and
predictions.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from hokical.calibrators import catalog, make, method_names
from tests.conftest import QUICK, quiet_fit, synthetic_logits

NAMES = [*method_names(2), "auto"]


def fitted(name: str) -> tuple[Any, np.ndarray]:
    cal = make(name, **QUICK.get(name, {}))
    logits, labels = synthetic_logits(200, 2 if cal.method.binary_only else 4, seed=1)
    quiet_fit(cal, logits, labels)
    return cal, logits


def test_public_names_are_listed() -> None:
    assert set(hokical.__all__) <= set(dir(hokical))
    assert not any(name.startswith("_") for name in dir(hokical))


@pytest.mark.parametrize("name", NAMES)
def test_loading_gives_what_was_saved(name: str, tmp_path: Path) -> None:
    cal, logits = fitted(name)
    cal.save(tmp_path / "cal.json")
    found = hokical.load(tmp_path / "cal.json")
    assert type(found) is type(cal)
    assert repr(found) == repr(cal)
    assert found.get_params() == cal.get_params()
    fitted_attributes = {key for key in vars(cal) if key.endswith("_")}
    assert fitted_attributes == {key for key in vars(found) if key.endswith("_")}
    for what in ("predict", "predict_confidence", "predict_proba"):
        np.testing.assert_array_equal(
            getattr(found, what)(logits), getattr(cal, what)(logits)
        )


@pytest.mark.parametrize("name", NAMES)
def test_fitted_attributes_are_declared(name: str) -> None:
    """A search for an attribute finds the class that has it."""
    cal, _ = fitted(name)
    declared: set[str] = set()
    for kind in type(cal).__mro__:
        declared |= set(getattr(kind, "__annotations__", {}))
    if type(cal).__module__.startswith("hokical.calibrators"):
        own = {
            key for key in vars(cal) if key.endswith("_") and not key.startswith("_")
        }
        # Fields of a rule that another method chose, such as the temperature of the
        # default.
        assert own - declared <= set(vars(cal.rule_.core)) | {
            f"{field}_" for field in cal.rule_.own_fields()
        }
    missing = {key for key in declared if key.endswith("_") and not hasattr(cal, key)}
    assert missing <= {
        "log_loss_",
        "n_iter_",
        "converged_",
        "message_",
    }  # of a search, if any


def test_a_loaded_calibrator_can_be_fitted_again(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(300, 3, seed=2)
    make("vecs", ridge=0.1).fit(logits, labels).save(tmp_path / "cal.json")
    again = hokical.load(tmp_path / "cal.json").fit(3.0 * logits, labels)
    assert again.ridge == 0.1
    expected = make("vecs", ridge=0.1).fit(3.0 * logits, labels)
    np.testing.assert_array_equal(again.scale_, expected.scale_)


def test_a_method_that_is_not_known_is_named(tmp_path: Path) -> None:
    cal, _ = fitted("temps")
    body = {
        "method": "unheard",
        "rule": cal.rule_,
        "parameters": {},
        "report": {},
        "beside": {},
    }
    hokical._core.storage.write_document(tmp_path / "cal.json", body)
    with pytest.raises(
        hokical.CalibratorFileError, match=r"another package or version.*unheard"
    ):
        hokical.load(tmp_path / "cal.json")


@pytest.mark.parametrize("kind", ["pickle", "npz"])
def test_other_files_are_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "cal.json"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(fitted("temps")[0]))
    else:
        with path.open("wb") as stream:
            np.savez(stream, logits=np.eye(3))
    with pytest.raises(
        hokical.CalibratorFileError, match=r"not a hokical .* JSON that `save"
    ):
        hokical.load(path)


@pytest.mark.parametrize("old", ["softmax", "vector", "isotonic_ovr"])
def test_retired_names_of_methods_warn_and_work(old: str) -> None:
    name = catalog.RETIRED_NAMES[old]
    with pytest.warns(FutureWarning, match=f"{old!r} is {name!r} now") as caught:
        cal = make(old)
    assert type(cal) is type(make(name))
    assert [warning.filename for warning in caught] == [__file__]


def test_a_retired_name_in_a_comparison_warns_at_the_users_line() -> None:
    examples = synthetic_logits(200, 4, seed=1)
    with pytest.warns(FutureWarning, match="'vector' is 'vecs' now") as caught:
        hokical.compare(examples, examples, ["vector"])
    assert {warning.filename for warning in caught} == {__file__}


def test_the_name_of_scikit_learn_stays() -> None:
    assert type(make("temperature")) is type(make("temps"))
