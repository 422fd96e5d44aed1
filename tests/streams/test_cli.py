"""The commands on folders: fitted, applied and measured in parts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hokical import Hoki, load
from hokical.cli import app
from tests.streams.test_sources import write_parquet

pytest.importorskip("pyarrow")


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_folders_from_end_to_end(examples, tmp_path) -> None:
    (tmp_path / "in").mkdir()
    write_parquet(tmp_path / "in", examples, n_files=3)
    cal, checkpoint = tmp_path / "cal.json", tmp_path / "ckpt"
    fit = ("fit", tmp_path / "in", "-o", cal, "--noise", "gaussian:4", "--json")
    done = run(*fit, "--checkpoint", checkpoint)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["examples"], facts["classes"]) == (4000, 5)
    logits, labels = examples
    assert facts["accuracy"] == pytest.approx((logits.argmax(axis=1) == labels).mean())
    whole = Hoki(noise=load(cal).noise_).fit(logits, labels)
    np.testing.assert_array_equal(load(cal).alpha_, whole.alpha_)

    apply = ("apply", cal, tmp_path / "in", "-o", tmp_path / "out", "--json")
    first, second = json.loads(run(*apply).stdout), json.loads(run(*apply).stdout)
    assert (first["parts"], first["examples"], first["already_done"]) == (3, 4000, 0)
    assert second == first | {"already_done": 3}
    assert first["mean_confidence"] == pytest.approx(whole.predict_confidence(logits).mean())
    shown = run(*apply[:-1])
    assert "3 files in" in shown.output
    assert "3 of them were there already" in shown.output

    evaluated = run("evaluate", tmp_path / "in", "--calibrator", cal, "--full", "--json")
    found = json.loads(evaluated.stdout)
    assert found["hoki"]["n"] == found["uncalibrated"]["n"] == 4000
    assert "brier_full" in found["hoki"]["estimates"]
    assert "ECE" in run("evaluate", tmp_path / "in").output


def test_a_method_that_may_change_labels_says_what_it_knows(examples, tmp_path) -> None:
    write_parquet(tmp_path, examples, n_files=2)
    done = run("fit", tmp_path / "part-*.parquet", "-o", tmp_path / "cal.json", "--method", "vecs")
    assert done.exit_code == 0, done.output
    assert "4,000 examples, 5 classes" in done.output


def test_bad_usage_is_one_line(examples, tmp_path) -> None:
    write_parquet(tmp_path, examples, n_files=1)
    Hoki().fit(*examples).save(tmp_path / "cal.json")
    apply = ("apply", tmp_path / "cal.json", tmp_path)
    refused = run(*apply, "-o", tmp_path / "out", "--risk", "0.1")
    assert refused.exit_code == 2
    assert "not on a folder" in refused.output
    same = run(*apply, "-o", tmp_path)
    assert same.exit_code == 2
    assert "is the input folder too" in same.output
    other = run("fit", tmp_path, "-o", tmp_path / "c.json", "--checkpoint", tmp_path)
    assert other.exit_code != 0
    assert "something else in it" in other.output
