"""Columns of files and tables by name: put in the order of the fit, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import hokical
from hokical.cli import app
from hokical.io import DataFileError
from tests.conftest import synthetic_logits

LOGITS, LABELS = synthetic_logits(600, 3, seed=4)
NAMES = ["logit_cat", "logit_dog", "logit_cow"]
FRAME = pd.DataFrame(LOGITS, columns=NAMES)
WORDS = np.array(["cat", "dog", "cow"])[LABELS]


def write(path: Path, frame: Any, labels: Any = LABELS) -> Path:
    table = frame.assign(label=labels)
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)
    return path


def run(*words: object) -> str:
    found = CliRunner().invoke(app, [*map(str, words)])
    return (
        found.output
        if found.exit_code == 0
        else f"failed: {found.output} {found.exception}"
    )


@pytest.fixture
def cal() -> hokical.Calibrator:
    return hokical.make("temps").fit(FRAME[:300], LABELS[:300])


@pytest.mark.parametrize("file", ["new.csv", "new.parquet"])
@pytest.mark.parametrize("labels", [LABELS, WORDS], ids=["numbers", "names"])
def test_streams_put_columns_in_order(
    cal: hokical.Calibrator, file: str, labels: Any, tmp_path: Path
) -> None:
    turned = write(tmp_path / file, FRAME[NAMES[::-1]][300:], labels[300:])
    expected = hokical.evaluate(cal, LOGITS[300:], LABELS[300:])
    val = write(tmp_path / f"val_{file}", FRAME[:300], LABELS[:300])
    streamed = hokical.streams.fit(hokical.make("temps"), val)
    for each in (cal, streamed):
        assert hokical.evaluate(each, turned).score("brier") == pytest.approx(
            expected.score("brier"), rel=1e-6
        )
        found = np.concatenate([*hokical.streams.predict(each, turned, what="proba")])
        np.testing.assert_allclose(found, each.predict_proba(LOGITS[300:]), rtol=1e-9)
        sets = hokical.streams.certify(each, turned).predict_set(LOGITS, coverage=0.9)
        twin = each.certify(LOGITS[300:], LABELS[300:]).predict_set(
            LOGITS, coverage=0.9
        )
        np.testing.assert_array_equal(sets.members, twin.members)
    with pytest.raises(
        ValueError, match="a source must have its columns in the order of the fit"
    ):
        hokical.evaluate(cal, hokical.streams.open_source(turned))
    other = write(
        tmp_path / file, FRAME[300:].set_axis(["z0", "z1", "z2"], axis=1), LABELS[300:]
    )
    with pytest.raises(
        DataFileError, match=r"columns used in `fit`, .*missing: logit_cat"
    ):
        hokical.evaluate(cal, other)


def test_columns_named_as_classes_are_found(tmp_path: Path) -> None:
    bare = FRAME.set_axis(["cat", "dog", "cow"], axis=1)
    cal = hokical.make("temps").fit(bare[:300], LABELS[:300])
    path = write(
        tmp_path / "new.parquet", bare[["cow", "cat", "dog"]][300:], LABELS[300:]
    )
    expected = hokical.evaluate(cal, LOGITS[300:], LABELS[300:]).score("brier")
    assert hokical.evaluate(cal, path).score("brier") == pytest.approx(expected)


def test_python_and_command_line_know_the_same_columns(
    cal: hokical.Calibrator, tmp_path: Path
) -> None:
    turned = write(tmp_path / "new.parquet", FRAME[NAMES[::-1]][300:], LABELS[300:])
    cal.save(tmp_path / "py.json")
    found = json.loads(run("evaluate", tmp_path / "py.json", turned, "--json"))
    assert (
        found["headline"] == hokical.evaluate(cal, LOGITS[300:], LABELS[300:]).headline
    )
    numbered = FRAME.set_axis(["logit_0", "logit_1", "logit_2"], axis=1)
    for frame in (FRAME, numbered):
        val = write(tmp_path / "val.csv", frame[:300], LABELS[:300])
        assert "failed" not in run(
            "fit", val, "-o", tmp_path / "cli.json", "--method", "temps"
        )
        loaded = hokical.load(tmp_path / "cli.json")
        for order in (
            frame,
            frame[[*frame][::-1]],
            frame.rename(columns=lambda n: n[6:]),
        ):
            np.testing.assert_array_equal(
                loaded.predict_proba(order), loaded.predict_proba(LOGITS)
            )


@pytest.mark.parametrize("of_fit", ["logit", "prob"])
def test_another_kind_of_scores_is_named(of_fit: str, tmp_path: Path) -> None:
    logits = FRAME
    proba = pd.DataFrame(
        hokical.make("uncalibrated").fit(LOGITS, LABELS).predict_proba(LOGITS)
    )
    proba.columns = pd.Index(["prob_cat", "prob_dog", "prob_cow"])
    first, second = (logits, proba) if of_fit == "logit" else (proba, logits)
    val, new = write(tmp_path / "val.csv", first), write(tmp_path / "new.csv", second)
    run("fit", val, "-o", tmp_path / "cal.json", "--method", "temps")
    kinds = ["logits", "probabilities"][:: 1 if of_fit == "logit" else -1]
    found = " ".join(
        run("apply", tmp_path / "cal.json", new, "-o", tmp_path / "out.csv").split()
    )
    assert f"expected {kinds[0]}, as asked for or as in the fit; " in found
    assert f"; found {kinds[1]} in `{second.columns[0]}`" in found


def test_chunks_may_be_frames(cal: hokical.Calibrator) -> None:
    chunks = [
        (FRAME[:100], LABELS[:100]),
        (FRAME[NAMES[::-1]][100:300], LABELS[100:300]),
    ]
    fitted = hokical.streams.fit(hokical.make("temps"), chunks)
    for each in (cal, fitted):
        (found,) = hokical.streams.predict(each, [FRAME[NAMES[::-1]]], what="proba")
        np.testing.assert_allclose(found, cal.predict_proba(LOGITS), rtol=1e-6)
    with pytest.raises(ValueError, match=r"missing: logit_cat"):
        list(
            hokical.streams.predict(fitted, [FRAME.rename(columns={"logit_cat": "ox"})])
        )


def test_compare_of_files_puts_columns_in_order(tmp_path: Path) -> None:
    val = write(tmp_path / "val.csv", FRAME[:300], LABELS[:300])
    new = write(tmp_path / "new.csv", FRAME[300:], LABELS[300:])
    turned = write(tmp_path / "turned.csv", FRAME[NAMES[::-1]][300:], LABELS[300:])
    found = [
        json.loads(run("compare", val, path, "--methods", "temps", "--json"))[
            "headline"
        ]
        for path in (new, turned)
    ]
    assert found[0] == found[1]
