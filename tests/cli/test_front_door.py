"""Commands read what Python reads: ids, labels in other files, names of classes,
wrong orders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hokical
from tests.cli.running import hokical_command, one_line, run

NAMES = ("ant", "bee", "cow")
rng = np.random.default_rng(0)
LOGITS = 2.0 * rng.normal(size=(900, 3))
LABELS = np.argmax(LOGITS + rng.gumbel(size=LOGITS.shape), axis=1)
WORDS = np.array(NAMES)[LABELS]


def frame(rows: slice, **more: Any) -> Any:
    scores = {f"logit_{name}": LOGITS[rows, k] for k, name in enumerate(NAMES)}
    return pd.DataFrame(
        {"id": np.arange(900)[rows], **scores, "label": WORDS[rows], **more}
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    val, test = slice(0, 400), slice(400, 900)
    frame(val).to_csv(tmp_path / "val.csv", index=False)
    frame(test).to_csv(tmp_path / "test.csv", index=False)
    frame(test).drop(columns="label").to_csv(tmp_path / "scores.csv", index=False)
    labels = frame(test)[["id", "label"]]
    labels.sample(frac=1.0, random_state=1).to_csv(tmp_path / "labels.csv", index=False)
    labels.assign(id=labels["id"] + 7000).to_csv(tmp_path / "others.csv", index=False)
    run("fit", tmp_path / "val.csv", "-o", tmp_path / "cal.json", "--method", "temps")
    return tmp_path


def accuracy(*words: object) -> float:
    return float(
        hokical_command(*words, "--json").methods["temps"]["estimates"]["accuracy"][
            "value"
        ]
    )


def test_labels_of_another_file_are_joined_by_id(files: Path) -> None:
    cal = files / "cal.json"
    expected = accuracy("evaluate", cal, files / "test.csv")
    scores = ("evaluate", cal, files / "scores.csv", "--labels")
    assert accuracy(*scores, files / "labels.csv") == expected
    refused = hokical_command(*scores, files / "others.csv")
    assert refused.code != 0
    assert (
        "expected a label for each `id` of scores.csv; found none for '400'"
        in one_line(refused)
    )
    twice = pd.read_csv(files / "labels.csv")
    pd.concat([twice, twice[:1]]).to_csv(files / "twice.csv", index=False)
    assert "expected each `id` once" in one_line(
        hokical_command(*scores, files / "twice.csv")
    )


def test_compare_takes_labels_of_other_files(files: Path) -> None:
    every = pd.concat([pd.read_csv(files / f"{name}.csv") for name in ("val", "test")])
    every[["id", "label"]].sample(frac=1.0, random_state=2).to_csv(
        files / "all.csv", index=False
    )
    every[:400].drop(columns="label").to_csv(files / "bare.csv", index=False)
    plain = ("compare", files / "val.csv", files / "test.csv", "--methods", "temps")
    joined = (
        "compare",
        files / "bare.csv",
        files / "scores.csv",
        "--methods",
        "temps",
        "--labels",
    )
    assert accuracy(*joined, files / "all.csv") == accuracy(*plain)
    test_files = (files / "all.csv", "--test-labels", files / "labels.csv")
    assert accuracy(*joined, *test_files) == accuracy(*plain)


@pytest.mark.parametrize("label", ["label", "outcome"])
def test_a_monitor_takes_a_file_of_ids_and_labels_alone(
    files: Path, label: str
) -> None:
    labels = pd.read_csv(files / "labels.csv").rename(columns={"label": label})
    labels.to_csv(files / "late.csv", index=False)
    state = ("--state", files / "m.json", "--id-column", "id", "--json")
    first = hokical_command(
        "monitor",
        files / "cal.json",
        files / "scores.csv",
        *state,
        "--label-column",
        "outcome",
    ).json
    assert (first["n"], first["n_waiting"]) == (0, 500)
    second = hokical_command(
        "monitor", files / "cal.json", files / "late.csv", *state
    ).json
    assert (second["n"], second["n_waiting"]) == (500, 0)
    at_once = hokical_command(
        "monitor", files / "cal.json", files / "test.csv", "--json"
    ).json
    assert second["accuracy"] == at_once["accuracy"]
    refused = hokical_command("monitor", files / "cal.json", files / "late.csv", *state)
    assert refused.code != 0
    assert "has one already" in one_line(refused)


def test_names_given_in_python_are_known_to_commands(files: Path) -> None:
    hokical.auto(LOGITS[:400], LABELS[:400], classes=NAMES).save(files / "named.json")
    np.savez(files / "new.npz", logits=LOGITS[400:], labels=LABELS[400:])
    assert "3: ant, bee, cow" in run("show", files / "named.json")
    run("apply", files / "named.json", files / "new.npz", "-o", files / "out.csv")
    assert set(pd.read_csv(files / "out.csv")["label"]) == {*NAMES}
    assert "bee" in run("evaluate", files / "named.json", files / "new.npz")
    words = np.savez(files / "words.npz", logits=LOGITS[400:], labels=WORDS[400:])
    assert words is None
    found = hokical_command(
        "evaluate", files / "named.json", files / "words.npz", "--json"
    )
    assert found.code == 0, found.err


def test_swapped_classes_are_told_of(files: Path) -> None:
    two = LOGITS[:, :2]
    right = np.argmax(two + np.random.default_rng(1).gumbel(size=two.shape), axis=1)
    table = pd.DataFrame(
        {"z0": two[:, 0], "z1": two[:, 1], "y": np.array(["no", "yes"])[right]}
    )
    table.to_csv(files / "two.csv", index=False)
    words = (
        "fit",
        files / "two.csv",
        "-o",
        files / "two.json",
        "--method",
        "temps",
        "--classes",
    )
    assert "contradict" not in hokical_command(*words, "no,yes").words
    assert "`labels` contradict the scores" in hokical_command(*words, "yes,no").words


def test_percentages_are_reported_as_they_stand_in_the_file(files: Path) -> None:
    share = np.round(100.0 / (1.0 + np.exp(-LOGITS[:, 0])), 1)
    table = pd.DataFrame(
        {"p": share, "label": (rng.random(900) < share / 100).astype(int)}
    )
    table.to_csv(files / "percent.csv", index=False)
    command = (
        "fit",
        files / "percent.csv",
        "--score-columns",
        "p",
        "-o",
        files / "x.json",
    )
    refused = one_line(hokical_command(*command, "--probabilities"))
    assert f"got {share[0]:g} in line 2" in refused
    assert "divide by 100" in refused


def test_columns_that_are_not_used_are_named(files: Path) -> None:
    frame(slice(0, 400), amount=1.0).to_csv(files / "more.csv", index=False)
    completed = hokical_command(
        "fit", files / "more.csv", "-o", files / "x.json", "--method", "temps"
    )
    assert "not used: amount" in completed.words
