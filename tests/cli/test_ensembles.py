"""`fit`, `certify`, `apply`, `evaluate` and `show` of ensembles, as at a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hokical
from tests.cli.running import hokical_command, one_line, run
from tests.ensembles import NAMES, named

VALIDATION, LABELS = named(200, seed=1)
HELD_OUT, HELD_OUT_LABELS = named(400, seed=3)
NEW, NEW_LABELS = named(100, seed=2)


def write(
    folder: Path, part: str, ensemble: hokical.Ensemble, labels: np.ndarray
) -> list[Path]:
    paths = [folder / f"{part}_{name}.npz" for name in NAMES]
    for path, member in zip(paths, ensemble.members, strict=True):
        np.savez(path, logits=member, labels=labels, id=np.arange(labels.size))
    return paths


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ensemble")
    val = write(folder, "val", VALIDATION, LABELS)
    write(folder, "held", HELD_OUT, HELD_OUT_LABELS)
    write(folder, "test", NEW, NEW_LABELS)
    options = ("--ensemble", "--method", "temps", "--most-members", "2")
    run("fit", *val, *options, "-o", folder / "cal.json")
    run("fit", val[0], "--method", "temps", "-o", folder / "one.json")
    np.savez(folder / "three.npz", logits=np.stack(NEW.members[:3]))
    return folder


def files(folder: Path, part: str, names: tuple[str, ...] = NAMES) -> list[Path]:
    return [folder / f"{part}_{name}.npz" for name in names]


def test_the_file_is_that_of_the_library(folder: Path) -> None:
    expected = hokical.make("temps").fit(VALIDATION, LABELS, most_members=2)
    calibrator = hokical.load(folder / "cal.json")
    assert calibrator.members_.names == NAMES
    assert calibrator.needed_members_ == expected.needed_members_
    assert (calibrator.predict_proba(NEW) == expected.predict_proba(NEW)).all()


def test_only_the_needed_members_are_applied(folder: Path) -> None:
    calibrator = hokical.load(folder / "cal.json")
    needed = files(folder, "test", calibrator.needed_members_)
    out = folder / "out.npz"
    run("apply", folder / "cal.json", *needed, "--ensemble", "--proba", "-o", out)
    with np.load(out) as written:
        assert (written["probabilities"] == calibrator.predict_proba(NEW)).all()


def test_certify_then_apply_with_a_risk(folder: Path) -> None:
    certified = folder / "certified.json"
    held_out = files(folder, "held")
    text = run("certify", folder / "cal.json", *held_out, "--ensemble", "-o", certified)
    assert "400 examples of held_plain.npz" in " ".join(text.split())
    out = folder / "accepted.npz"
    new = files(folder, "test")
    run("apply", certified, *new, "--ensemble", "--risk", "0.3", "-o", out)
    expected = hokical.load(certified).predict_or_abstain(NEW, risk=0.3)
    with np.load(out) as written:
        assert (written["accepted"] == expected.accepted).all()
    refused = hokical_command("certify", certified, *files(folder, "val"), "--ensemble")
    assert refused.code != 0
    assert "of the fit" in refused.err


def log_losses(values: dict[str, list[Any]]) -> dict[str, float]:
    """The log loss of each method, of the JSON of an evaluation."""
    return {
        method["method"]: method["estimates"]["log_loss"]["value"]
        for method in values["methods"]
    }


def test_evaluate_with_a_calibrator_and_without(folder: Path) -> None:
    new = files(folder, "test")
    path = folder / "cal.json"
    found = hokical_command("evaluate", path, *new, "--ensemble", "--json")
    expected = hokical.evaluate(hokical.load(path), NEW, NEW_LABELS)
    assert log_losses(found.json) == log_losses(expected.to_dict())
    plain = hokical_command("evaluate", *new, "--ensemble", "--json")
    mean = hokical.evaluate(None, NEW, NEW_LABELS)
    assert log_losses(plain.json) == log_losses(mean.to_dict())


def test_show_prints_the_table_of_members(folder: Path) -> None:
    calibrator = hokical.load(folder / "cal.json")
    text = run("show", folder / "cal.json")
    assert str(calibrator.members_) in text
    assert calibrator.members_.describe() in " ".join(text.split())
    values = hokical_command("show", folder / "cal.json", "--json").json
    assert values["needed_members"] == [*calibrator.needed_members_]
    weights = {member["name"]: member["weight"] for member in values["members"]}
    assert sum(weights.values()) == pytest.approx(1.0)
    assert {name for name, weight in weights.items() if weight} == {
        *calibrator.needed_members_
    }
    assert "members" not in hokical_command("show", folder / "one.json", "--json").json


def test_passes_are_exchangeable_on_demand(folder: Path) -> None:
    stacked = folder / "stacked.npz"
    np.savez(stacked, logits=np.stack(VALIDATION.members), labels=LABELS)
    path = folder / "passes.json"
    run("fit", stacked, "--exchangeable", "--method", "temps", "-o", path)
    assert hokical.load(path).members_.exchangeable
    out = folder / "passes.npz"
    np.savez(folder / "new.npz", logits=np.stack(NEW.members))
    run("apply", path, folder / "new.npz", "-o", out)
    expected = hokical.Ensemble(np.stack(NEW.members), exchangeable=True)
    with np.load(out) as written:
        assert (written["labels"] == hokical.load(path).predict(expected)).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "val_plain", "val_flipped", "-o", "x.json"], "--ensemble: is missing"),
        (["fit", "val_plain", "--ensemble", "-o", "x.json"], "a file for each member"),
        (
            ["fit", "val_plain", "--most-members", "2", "-o", "x.json"],
            "--most-members: needs an ensemble",
        ),
        (["apply", "one.json", "test_plain", "test_flipped", "-o", "o.csv"], "one row"),
        (["apply", "cal.json", "test_plain", "-o", "o.csv"], "4 members of the fit"),
        (["apply", "cal.json", "three.npz", "-o", "o.csv"], "Error: `members` must be"),
        (
            ["apply", "cal.json", "test_blurred", "test_plain", "-o", "o.csv"],
            "test_blurred.npz: expected the members plain, flipped",
        ),
    ],
)
def test_other_files_are_told_plainly(
    folder: Path, words: list[str], message: str
) -> None:
    command, *names = words
    arguments = [
        word
        if word.startswith("-") or word.isdecimal()
        else folder / (word if "." in word else f"{word}.npz")
        for word in names
    ]
    assert message in one_line(hokical_command(command, *arguments))


def test_an_output_is_no_member(folder: Path) -> None:
    val = files(folder, "val")
    refused = hokical_command("fit", *val, "--ensemble", "-o", val[2])
    assert "cannot be the --output" in one_line(refused)
