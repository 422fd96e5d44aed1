"""The comparison with other libraries: its page, and how it measures."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
PAGE = ROOT / "benchmarks" / "peers.md"


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        PAGE.with_suffix(".json").read_text(encoding="utf-8")
    )
    return found


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import peer_page

    return peer_page


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import peer_worker

    return peer_worker


SCRIPTS = [
    *BENCHMARKS.glob("bench_*.py"),
    *(ROOT / "paper" / "studies").glob("[a-z]*.py"),
]


@pytest.mark.parametrize("script", sorted(SCRIPTS), ids=lambda path: path.stem)
def test_what_a_script_imports_is_there(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(script.parent)
    try:
        found = runpy.run_path(str(script), run_name="benchmark")
    except SystemExit as wanting:
        pytest.skip(f"{script.name}: {wanting}")
    assert callable(found["main"])


def test_the_page_shows_what_was_measured(
    page: ModuleType, results: dict[str, Any]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page.fill_page(text, results) == text
    assert text.count("| temperature scaling |") == len(results["uncalibrated"])


def test_the_results_name_the_machine_and_nothing_else(results: dict[str, Any]) -> None:
    assert set(results["machine"]) == {
        "processor",
        "cores",
        "memory_gb",
        "system",
        "load",
    }
    assert {"Python", "NumPy", "hokical"} <= set(results["versions"])
    assert not re.search(r"(?<![\w.])/\w+/", json.dumps(results)), "a path"


def test_every_measurement_has_ours_first(results: dict[str, Any]) -> None:
    seen = set()
    for one in results["results"]:
        case = (*one["size"], one["method"])
        assert case in seen or one["library"] == "hokical"
        assert (
            "failed" in one or min(one["fit_s"], one["predict_s"], one["row_s"]) > 0.0
        )
        seen.add(case)


def test_failures_and_notes_are_shown(
    page: ModuleType, results: dict[str, Any]
) -> None:
    ours = {
        "size": [10, 3],
        "method": "m",
        "library": "hokical",
        "called": "`a`",
        "log_loss": 0.5,
    }
    ours |= {"fit_s": 0.002, "predict_s": 1e-3, "row_s": 1e-4, "note": "not converged"}
    other = {"size": [10, 3], "method": "m", "library": "other", "called": "`b`"}
    lost = other | {"library": "lost", "failed": "over 30 s"}
    other |= {"fit_s": 0.004, "predict_s": 0.0005, "row_s": 2e-3}
    made = results | {"results": [ours, other, lost], "uncalibrated": {"10x3": 0.7}}
    text = page.to_markdown(made | {"missing": ["absent"]})
    assert (
        "| m | **hokical** `a` | 2.0 ms | 1.0 ms | 100 us | 0.500, not converged |"
        in text
    )
    assert "|  | other `b` | 4.0 ms (2.0x) | 500 us (0.5x) | 2.0 ms (20x) |  |" in text
    assert "|  | lost `b` | over 30 s |  |  |  |" in text
    assert "Not installed, so not measured: absent." in text


@pytest.mark.slow
def test_a_trial_measures_what_it_says(worker: ModuleType) -> None:
    kept: list[Any] = []

    def fit(x: Any, y: Any) -> Any:
        kept.append(np.ones(4_000_000))
        return np.full(x.shape, 1.0 / x.shape[1])

    contender = worker.Contender("f", np.asarray, fit, lambda model, x: model[: len(x)])
    trial = worker.Trial(contender, 50, 4)
    found = trial.fit()
    assert found["seconds"] > 0.0
    if found["megabytes"] is not None:
        assert found["megabytes"] == pytest.approx(32.0, abs=8.0)
    assert trial.predict()["log_loss"] == pytest.approx(np.log(4.0))
    assert trial.one_row()["seconds"] > 0.0


@pytest.mark.slow
def test_a_worker_reports_errors(worker: ModuleType) -> None:
    one = worker.Worker("hokical", limit=60.0)
    try:
        assert one.ask("fit")["failed"].startswith(
            "AttributeError"
        )  # nothing was opened
        assert one.ask("open", "no such method", 10, 3) == {
            "failed": "KeyError: 'no such method'"
        }
    finally:
        one.stop()


def test_the_exponent_is_that_of_the_two_largest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from bench_growth import exponent

    assert exponent([1, 10, 20], [5.0, 3.0, 12.0]) == pytest.approx(2.0)
