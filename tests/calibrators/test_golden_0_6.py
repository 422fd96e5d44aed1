"""What is new in files of 0.6 is read: ensembles, numbers among groups, missing signals,
several labels with held-out examples, transformations.

`python -m tests.calibrators.test_golden_0_6` writes files that are not here. Files that
are here already stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from hokical.calibrators import SurvivalCalibrator
from tests.calibrators.test_multilabel import tags
from tests.conftest import synthetic_logits

FOLDER = Path(__file__).parent / "golden"
#: Sums may be rounded in another order.
SAME = {"rtol": 0.0, "atol": 1e-12}
N_FIT, N_HELD_OUT, N_NEW = 120, 60, 12

Answers = dict[str, np.ndarray]
Case = tuple[Callable[[], Any], Callable[[Any], Answers]]


def part(start: int, n: int) -> slice:
    return slice(start, start + n)


FIT, HELD_OUT, NEW = (
    part(0, N_FIT),
    part(N_FIT, N_HELD_OUT),
    part(N_FIT + N_HELD_OUT, N_NEW),
)
N = N_FIT + N_HELD_OUT + N_NEW


def members(exchangeable: bool) -> tuple[hokical.Ensemble, np.ndarray]:
    """Three views, of which one was not evaluated for every example."""
    logits, labels = synthetic_logits(N, 3, seed=60, signal=1.2)
    noise = np.random.default_rng(61).normal(size=(3, *logits.shape))
    views = logits + [[[0.5]], [[1.5]], [[4.0]]] * noise
    if exchangeable:
        return hokical.Ensemble(views, exchangeable=True), labels
    views[1, ::7] = np.nan
    named = dict(zip(("plain", "mirrored", "rotated"), views, strict=True))
    return hokical.Ensemble(named), labels


def fit_ensemble(*, exchangeable: bool, **options: Any) -> Any:
    ensemble, labels = members(exchangeable)
    cal = hokical.AutoCalibrator().fit(ensemble[FIT], labels[FIT], **options)
    return cal.certify(ensemble[HELD_OUT], labels[HELD_OUT])


def answers_of_ensemble(cal: Any, *, exchangeable: bool) -> Answers:
    return predictions(cal, members(exchangeable)[0][NEW])


def predictions(cal: Any, logits: Any, **own: Any) -> Answers:
    return {
        "labels": cal.predict(logits, **own),
        "proba": cal.predict_proba(logits, **own),
        "members": cal.predict_set(logits, coverage=0.8, **own).members,
        "accepted": cal.predict_or_abstain(logits, risk=0.4, **own).accepted,
    }


def aged() -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Labels are right more rarely, the older the patient."""
    logits, labels = synthetic_logits(4 * N, 3, seed=62)
    rng = np.random.default_rng(63)
    age = rng.uniform(20.0, 90.0, 4 * N).round(1)
    wrong = rng.uniform(size=4 * N) < (age - 20.0) / 100.0
    labels = np.where(wrong, rng.integers(3, size=4 * N), labels)
    return logits, labels, {"age": age, "site": rng.choice(["north", "south"], 4 * N)}


def rows_of(groups: dict[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
    return {name: column[rows] for name, column in groups.items()}


def fit_numbers() -> Any:
    logits, labels, groups = aged()
    first = slice(0, -N_NEW)
    return hokical.auto(logits[first], labels[first], groups=rows_of(groups, first))


def answers_of_numbers(cal: Any) -> Answers:
    logits, _, groups = aged()
    last = slice(-N_NEW, None)
    own = {"groups": rows_of(groups, last)}
    return {
        "labels": cal.predict(logits[last], **own),
        "proba": cal.predict_proba(logits[last], **own),
    }


def signals() -> tuple[np.ndarray, np.ndarray]:
    """A stated confidence and a probability of tokens, each missing at times."""
    rng = np.random.default_rng(64)
    odds = rng.normal(1.0, 1.5, N)
    right = rng.logistic(size=N) < odds
    noisy = odds[:, None] + rng.normal(size=(N, 2))
    columns = 1.0 / (1.0 + np.exp(-2.0 * noisy))
    columns[::5, 0] = np.nan
    columns[2::10, 1] = np.nan
    return columns, right


def fit_signals() -> Any:
    columns, right = signals()
    return hokical.calibrate_confidence(columns[FIT], right[FIT])


def answers_of_signals(cal: Any) -> Answers:
    return {"confidence": cal.predict(signals()[0][NEW])}


def fit_labels() -> Any:
    scores, labels = tags(N)
    cal = hokical.MultilabelCalibrator().fit(scores[FIT], labels[FIT])
    return cal.certify(scores[HELD_OUT], labels[HELD_OUT])


def answers_of_labels(cal: Any) -> Answers:
    scores, _ = tags(N)
    sets = cal.predict_set(scores[NEW], coverage=0.7)
    return {
        "proba": cal.predict_proba(scores[NEW]),
        "inside": np.asarray(sets.inside),
        "possible": np.asarray(sets.possible),
    }


def survived() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(65)
    ease = rng.random(N)
    return rng.random((8, N)) < ease, rng.random(N) < 0.5 + 0.4 * ease


def fit_survival() -> Any:
    kept_labels, right = survived()
    return SurvivalCalibrator(n_bins=4).fit(kept_labels[:, FIT], right[FIT])


def answers_of_survival(cal: Any) -> Answers:
    return {"confidence": cal.predict(survived()[0][:, NEW])}


CASES: dict[str, Case] = {
    "ensemble_0_6": (
        lambda: fit_ensemble(exchangeable=False),
        lambda cal: answers_of_ensemble(cal, exchangeable=False),
    ),
    "ensemble_two_0_6": (
        lambda: fit_ensemble(exchangeable=False, most_members=2),
        lambda cal: answers_of_ensemble(cal, exchangeable=False),
    ),
    "passes_0_6": (
        lambda: fit_ensemble(exchangeable=True),
        lambda cal: answers_of_ensemble(cal, exchangeable=True),
    ),
    "numbers_0_6": (fit_numbers, answers_of_numbers),
    "signals_0_6": (fit_signals, answers_of_signals),
    "labels_0_6": (fit_labels, answers_of_labels),
    "survival_0_6": (fit_survival, answers_of_survival),
}


@pytest.mark.parametrize("case", list(CASES))
def test_it_predicts_as_before(case: str) -> None:
    _, answers_of = CASES[case]
    found = answers_of(hokical.load(FOLDER / f"{case}.json"))
    with np.load(FOLDER / f"{case}.npz") as stored:
        assert set(stored) == set(found)
        for name, answer in stored.items():
            np.testing.assert_allclose(found[name], answer, err_msg=name, **SAME)


def test_the_files_have_what_is_new() -> None:
    two = hokical.load(FOLDER / "ensemble_two_0_6.json")
    assert len(two.needed_members_) == 2
    numbers = hokical.load(FOLDER / "numbers_0_6.json")
    assert numbers.group_codes(rows_of(aged()[2], NEW)).dtype == np.float64


def write_missing() -> None:
    for case, (fit, answers_of) in CASES.items():
        if (FOLDER / f"{case}.json").exists():
            continue
        cal = fit()
        cal.save(FOLDER / f"{case}.json")
        np.savez_compressed(FOLDER / f"{case}.npz", **answers_of(cal))


if __name__ == "__main__":
    write_missing()
