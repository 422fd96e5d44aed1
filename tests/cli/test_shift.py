"""A new class balance on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hokical import load
from tests.cli.running import run
from tests.guarantees.test_shift import NEW, class_gaussians


@pytest.fixture
def files(tmp_path: Path) -> Path:
    logits, labels = class_gaussians(3000, seed=0)
    np.savez(tmp_path / "val.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "new.npz", logits=class_gaussians(2000, NEW, seed=1)[0])
    np.savez(tmp_path / "odd.npz", logits=0.5 * class_gaussians(2000, seed=2)[0])
    names = ("--classes", "a,b,c,d,e")
    run(
        "fit",
        tmp_path / "val.npz",
        "--method",
        "temps",
        "-o",
        tmp_path / "cal.json",
        *names,
    )
    return tmp_path


def test_shift_says_what_python_says(files: Path) -> None:
    found = load(files / "cal.json").estimate_shift(
        np.load(files / "new.npz")["logits"]
    )
    words = ("shift", files / "cal.json", files / "new.npz")
    told = json.loads(run(*words, "--json"))
    assert told["accuracy"] == found.accuracy
    assert told["class_frequencies"] == found.class_frequencies.tolist()
    text = run(*words)
    assert "consistent with label shift" in text
    assert f"{found.class_frequencies[4]:.1%}" in text
    odd = run("shift", files / "cal.json", files / "odd.npz", code=3)
    assert "not label shift" in odd
    assert "Label some hundred" in " ".join(odd.split())
    assert "%" not in odd, "no number that may be wrong"
    told = json.loads(
        run("shift", files / "cal.json", files / "odd.npz", "--json", code=3)
    )
    assert not told["holds"]
    assert told["accuracy"] is told["class_frequencies"] is None, (
        "no number that is wrong"
    )
    labels = load(files / "cal.json").predict(np.load(files / "odd.npz")["logits"])
    np.testing.assert_allclose(told["label_shares"], np.bincount(labels) / labels.size)


def test_apply_adapts(files: Path) -> None:
    cal, out = files / "cal.json", files / "out.npz"
    logits = np.load(files / "new.npz")["logits"]
    run("apply", cal, files / "new.npz", "-o", out, "--adapt")
    adapted = load(cal).estimate_shift(logits).adapt()
    np.testing.assert_array_equal(np.load(out)["labels"], adapted.predict(logits))
    text = run("apply", cal, files / "odd.npz", "-o", out, "--adapt", code=2)
    assert "not label shift" in " ".join(text.split())
    run("apply", cal, files / "new.npz", "-o", out, "--adapt", "--risk", "0.1", code=2)


@pytest.mark.slow
def test_what_learned_from_groups(files: Path) -> None:
    rng = np.random.default_rng(4)
    logits = 2.0 * rng.normal(size=(3000, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    site = np.where(np.arange(3000) % 2 == 0, "a", "b")
    logits[site == "a"] *= 3.0
    np.savez(files / "grouped.npz", logits=logits, labels=labels, site=site)
    cal, out = files / "grouped.json", files / "adapted.npz"
    run("fit", files / "grouped.npz", "-o", cal, "--groups", "site")
    words = ("apply", cal, files / "grouped.npz", "-o", out, "--adapt", "--proba")
    run(*words, "--groups", "site")
    adapted = (
        load(cal).estimate_shift(logits).adapt().predict_proba(logits, groups=site)
    )
    np.testing.assert_array_equal(np.load(out)["probabilities"], adapted)
    run(*words)  # the columns of the fit are found by their names
    np.testing.assert_array_equal(np.load(out)["probabilities"], adapted)
    np.savez(files / "without.npz", logits=logits)
    for name in ("grouped", "without"):  # estimates are without them
        told = json.loads(run("shift", cal, files / f"{name}.npz", "--json"))
        assert told["accuracy"] == load(cal).estimate_shift(logits).accuracy
    told = json.loads(
        run("shift", cal, files / "grouped.npz", "--groups", "site", "--json")
    )
    assert {name: part["holds"] for name, part in told["by_group"].items()} == {
        "a": True,
        "b": True,
    }
    text = run("apply", cal, files / "without.npz", "-o", out, "--adapt", code=2)
    assert "site" in " ".join(text.split())


def test_groups(files: Path) -> None:
    logits = np.load(files / "new.npz")["logits"]
    site = np.where(np.arange(2000) % 3 == 0, "<b>", "rest")
    np.savez(files / "sites.npz", logits=logits, site=site)
    words = ("shift", files / "cal.json", files / "sites.npz", "--groups", "site")
    text = run(*words)
    found = load(files / "cal.json").estimate_shift(logits, groups=site)
    assert f"<b>, 667 rows: accuracy {found.by_group['<b>'].accuracy:.1%}" in text
    told = json.loads(run(*words, "--json"))["by_group"]
    assert told["rest"]["accuracy"] == found.by_group["rest"].accuracy
