"""Two classes on the command line: the event first, in words that its users know."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from tests.cli.running import hokical_command, run


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Scores of loans and what became of them, and calibrators, the second one
    certified.
    """
    folder, rng = tmp_path_factory.mktemp("loans"), np.random.default_rng(0)
    found = {name: folder / f"{name}.csv" for name in ("val", "held", "test")}
    for path in found.values():
        score = rng.normal(-1.6, 1.1, 700)
        default = rng.uniform(size=700) < 1.0 / (1.0 + np.exp(-0.5 - score))
        rows = [
            (0.0, x, "default" if y else "paid")
            for x, y in zip(score, default, strict=True)
        ]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("paid", "default", "label"), *rows])
    found |= {name: folder / f"{name}.json" for name in ("cal", "sure")}
    assert run("fit", found["val"], "-o", found["cal"], "--method", "platt")
    assert run("certify", found["cal"], found["held"], "-o", found["sure"])
    return found


def as_json(*arguments: Any) -> Any:
    return hokical_command(*arguments, "--json").json


@pytest.mark.slow
def test_evaluate_prints_the_event_first(files: dict[str, Path]) -> None:
    text = run("evaluate", files["cal"], files["test"])
    words = [
        "and the event (default) happened in",
        "Observed events are",
        "O:E ratio",
        "By band of probability",
        "Predicted label",
        "\nECE",
    ]
    places = [text.index(each) for each in words]
    assert places == sorted(places)
    values = as_json("evaluate", files["cal"], files["test"])
    assert values["methods"][0]["binary"]["estimates"]["oe_ratio"]["low"] > 1.0
    other = as_json("evaluate", files["cal"], files["test"], "--positive", "paid")
    shares = [
        each["methods"][1]["binary"]["estimates"]["prevalence"]["value"]
        for each in (values, other)
    ]
    assert sum(shares) == pytest.approx(1.0)


def test_apply_writes_the_probability_of_the_event_with_its_ends(
    files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    run("apply", files["sure"], files["test"], "-o", out, "--interval")
    rows = list(csv.DictReader(out.read_text().splitlines()))
    cal = hokical.load(files["sure"])
    scores, _ = _read(files["test"])
    known = cal.predict_interval(scores, label=1)
    low, p, high = (
        np.array([float(row[k]) for row in rows])
        for k in ("low", "probability", "high")
    )
    np.testing.assert_allclose(np.column_stack([low, high]), known, atol=1e-6)
    np.testing.assert_allclose(p, cal.predict_proba(scores)[:, 1], atol=1e-6)
    assert "certify" in run(
        "apply", files["cal"], files["test"], "-o", out, "--interval", code=2
    )
    for option in (("--interval", "--positive", "late"), ("--positive", "paid")):
        run("apply", files["sure"], files["test"], "-o", out, *option, code=2)


def test_shift_and_monitor_speak_of_the_event(files: dict[str, Path]) -> None:
    assert "Events (default): " in run("shift", files["cal"], files["test"])
    text = run("monitor", files["cal"], files["test"])
    found = as_json("monitor", files["cal"], files["test"])["event"]
    p = hokical.evaluate(
        hokical.load(files["cal"]),
        *_read(files["test"]),
        classes=("paid", "default"),
    ).binary
    assert found["predicted"] == pytest.approx(p["mean_probability"].value)
    assert found["observed"] == pytest.approx(p["prevalence"].value)
    assert (
        f"predicted {found['predicted']:.1%}, observed {found['observed']:.1%}" in text
    )


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = list(csv.DictReader(path.read_text().splitlines()))
    scores = np.array([(float(row["paid"]), float(row["default"])) for row in rows])
    return scores, np.array([int(row["label"] == "default") for row in rows])


def test_the_event_may_be_named_by_its_number(files: dict[str, Path]) -> None:
    words = ("evaluate", files["cal"], files["test"], "--positive")
    by_name = as_json(*words, "paid")
    assert as_json(*words, "0") == by_name
    refused = hokical_command(*words, "late")
    assert refused.code == 2
    assert "--positive: the event must be one of ['paid', " in refused.words
