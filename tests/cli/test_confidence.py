"""`hokical fit --confidence` and `hokical apply` of its files."""

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
from tests.calibrators.test_confidence import answers


@pytest.fixture
def table(tmp_path: Path) -> Path:
    stated, right, subject = answers(800)
    frame = pd.DataFrame(
        {"stated": stated * 100, "right": right, "subject": subject, "id": range(800)}
    )
    frame.to_csv(tmp_path / "answers.csv", index=False)
    return tmp_path / "answers.csv"


def run(*arguments: Any) -> Any:
    found = CliRunner().invoke(app, [*map(str, arguments)])
    assert found.exit_code == 0, found.output
    return found


def test_fit_and_apply_equal_the_library(table: Path, tmp_path: Path) -> None:
    columns = ["--confidence", "stated", "--right", "right", "--groups", "subject"]
    saved, out = tmp_path / "cal.json", tmp_path / "out.csv"
    told = run("fit", table, "-o", saved, *columns, "--set", "scale=100", "--json")
    stated, right, subject = answers(800)
    cal = hokical.calibrate_confidence(100 * stated, right, {"subject": subject}, scale=100)
    assert json.loads(told.stdout)["reason"] == cal.reason_
    said = run("apply", saved, table, "-o", out, "--json")
    written = pd.read_csv(out)
    assert list(written) == ["id", "subject", "confidence"]
    np.testing.assert_allclose(written.confidence, cal.predict(100 * stated, subject), atol=1e-9)
    assert json.loads(said.stdout)["unknown_groups"] == {"subject": 0}


def test_scale_and_monotone_are_options(table: Path, tmp_path: Path) -> None:
    columns = ["--confidence", "stated", "--right", "right"]
    run("fit", table, "-o", tmp_path / "cal.json", *columns, "--scale", "100", "--monotone")
    cal = hokical.load(tmp_path / "cal.json")
    assert cal.get_params() == {"scale": 100.0, "monotone": True}
    bad = CliRunner().invoke(app, ["fit", str(table), "-o", "cal.json", "--monotone"])
    assert bad.exit_code == 2
    assert "go with --confidence" in " ".join(bad.output.split())


def test_export(table: Path, tmp_path: Path) -> None:
    pytest.importorskip("ndonnx")
    pytest.importorskip("onnxruntime")
    columns = ["--confidence", "stated", "--right", "right", "--groups", "subject"]
    run("fit", table, "-o", tmp_path / "cal.json", *columns, "--scale", "100")
    said = run("export", tmp_path / "cal.json", "-o", tmp_path / "cal.onnx", "--json")
    told = json.loads(said.stdout)
    assert told["largest_difference"] < 1e-6
    assert [name.split()[0] for name in told["inputs"]] == ["confidence", "groups"]
    both = ["export", "cal.json", "-o", "b.onnx", "--attach", "a.onnx"]
    bad = CliRunner().invoke(app, [str(tmp_path / n) if "." in n else n for n in both])
    assert "takes calibrators of logits" in " ".join(bad.output.split())


def test_groups_that_the_fit_did_not_have_are_told(table: Path, tmp_path: Path) -> None:
    columns = ["--confidence", "stated", "--right", "right", "--groups", "subject"]
    run("fit", table, "-o", tmp_path / "cal.json", *columns, "--set", "scale=100")
    frame = pd.read_csv(table).assign(subject="chess")
    frame.to_csv(tmp_path / "new.csv", index=False)
    said = run("apply", tmp_path / "cal.json", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert "missing or was not in the fit: 800 in 'subject'" in said.output


def test_a_file_of_the_library_is_applied_by_the_names_of_its_columns(
    table: Path, tmp_path: Path
) -> None:
    stated, right, subject = answers(800, 1)
    cal = hokical.calibrate_confidence(100 * stated, right, {"subject": subject}, scale=100)
    cal.save(tmp_path / "cal.json")
    column = ["--binary-score", "stated"]
    run("certify", tmp_path / "cal.json", table, *column)
    run("apply", tmp_path / "cal.json", table, "-o", tmp_path / "out.csv", *column)
    written = pd.read_csv(tmp_path / "out.csv")
    stated, _, subject = answers(800)
    np.testing.assert_allclose(written.confidence, cal.predict(100 * stated, subject), atol=1e-9)


def test_a_file_of_numbers_alone_has_the_groups_of_one_with_a_word(tmp_path: Path) -> None:
    stated, right, subject = answers(800)
    code = pd.Series(subject).map({"law": "1", "maths": "02", "music": "x", "physics": "3"})
    frame = pd.DataFrame({"stated": stated, "right": right, "site": code})
    frame.to_csv(tmp_path / "fit.csv", index=False)
    frame[code != "x"].to_csv(tmp_path / "new.csv", index=False)
    columns = ["--confidence", "stated", "--right", "right", "--groups", "site"]
    run("fit", tmp_path / "fit.csv", "-o", tmp_path / "cal.json", *columns)
    run("apply", tmp_path / "cal.json", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    cal = hokical.calibrate_confidence(stated, right, code)
    expected = cal.predict(stated[code != "x"], code[code != "x"])
    written = pd.read_csv(tmp_path / "out.csv").confidence
    np.testing.assert_allclose(written, expected, atol=1e-9)


def test_what_cannot_be_is_refused(table: Path, tmp_path: Path) -> None:
    saved = tmp_path / "cal.json"
    for arguments, words in (
        (["--confidence", "stated"], "--confidence and --right go together"),
        (["--confidence", "stated", "--right", "right"], "--set scale=100"),
        (["--confidence", "statd", "--right", "right"], "`statd`, named by --confidence; found"),
        (["--confidence", "stated", "--right", "rigt"], "`rigt`, named by --right; found"),
        (["--confidence", "stated", "--right", "subject"], "`right` must be 0 or 1, true or false"),
    ):
        found = CliRunner().invoke(app, ["fit", str(table), "-o", str(saved), *arguments])
        assert found.exit_code != 0
        assert words in " ".join(found.output.split()).replace("│ ", "")
        assert not saved.exists()
    columns = ["--confidence", "stated", "--right", "right"]
    run("fit", table, "-o", saved, *columns, "--set", "scale=100")
    for command, words in (
        (["monitor", saved, table, "--coverage", "0.9"], "watches logits, or confidences"),
        (["apply", saved, table, "-o", "out.csv", "--proba"], "takes rows of one file"),
        (["apply", saved, table, "-o", "out.csv", "--recall", "0.8"], "not for one answer per row"),
        (["fit", table, "-o", saved, *columns, "--method", "temps"], "does not go with"),
        (["evaluate", table, "--calibrator", saved, "--set", "scale=100"], "--set: is for"),
    ):
        found = CliRunner().invoke(app, [*map(str, command)])
        assert found.exit_code != 0
        assert words in " ".join(found.output.split())


def test_evaluated_before_and_after(table: Path, tmp_path: Path) -> None:
    saved, page = tmp_path / "cal.json", tmp_path / "page.html"
    columns = ["--confidence", "stated", "--right", "right", "--groups", "subject"]
    run("fit", table, "-o", saved, *columns, "--set", "scale=100")
    stated, right, subject = answers(900, 3)
    frame = pd.DataFrame({"stated": 100 * stated, "right": right, "subject": subject})
    frame.to_csv(tmp_path / "new.csv", index=False)
    few = ["--resamples", "20", "--report", page]
    told = run("evaluate", tmp_path / "new.csv", "--calibrator", saved, *few, "--json")
    found = json.loads(told.stdout)
    said = hokical.load(saved).predict(100 * stated, subject)
    for name, confidence in (("uncalibrated", stated), ("confidence", said)):
        assert found[name]["estimates"]["ece"]["value"] == pytest.approx(
            hokical.metrics.ece(confidence, right), abs=1e-6
        )
        assert {row["name"] for row in found[name]["groups"]["rows"]} == set(subject)
    assert "Who is it wrong about?" in page.read_text()
    alone = run("evaluate", tmp_path / "new.csv", *columns, "--set", "scale=100", *few, "--json")
    assert (
        json.loads(alone.stdout)["uncalibrated"]["estimates"] == found["uncalibrated"]["estimates"]
    )


def test_certified_in_the_shell(table: Path, tmp_path: Path) -> None:
    saved, out = tmp_path / "cal.json", tmp_path / "out.csv"
    columns = ["--confidence", "stated", "--right", "right", "--groups", "subject"]
    run("fit", table, "-o", saved, *columns, "--set", "scale=100")
    assert '"certified": "no"' in run("show", saved, "--json").stdout
    stated, right, subject = answers(900, 3)
    held_out = pd.DataFrame({"stated": 100 * stated, "right": right, "subject": subject})
    held_out.to_csv(tmp_path / "held_out.csv", index=False)
    assert (
        json.loads(run("certify", saved, tmp_path / "held_out.csv", "--json").stdout)["examples"]
        == 900
    )
    run("apply", saved, table, "-o", out, "--risk", "0.35")
    given, _, names = answers(800)
    cal = hokical.load(saved)
    wanted = cal.predict_or_abstain(100 * given, names, risk=0.35).accepted
    assert 0.1 < wanted.mean() < 1.0
    np.testing.assert_array_equal(pd.read_csv(out).accepted, wanted)
    with pytest.raises(hokical.CalibratorFileError, match="must hold a calibrator of logits"):
        hokical.Dense.load(saved)


def test_monitor(table: Path, tmp_path: Path) -> None:
    columns = ["--confidence", "stated", "--right", "right", "--groups", "subject"]
    saved, state = tmp_path / "cal.json", tmp_path / "state.json"
    run("fit", table, "-o", saved, *columns, "--scale", "100")

    def batch(name: str, seed: int, wrong: float = 0.0) -> Path:
        stated, right, subject = answers(2000, seed)
        right = right & (np.random.default_rng(seed).random(2000) >= wrong)
        frame = pd.DataFrame({"stated": stated * 100, "right": right.astype(object)})
        frame.loc[:99, "right"] = None
        frame.assign(subject=subject).to_csv(tmp_path / name, index=False)
        return tmp_path / name

    given = ["--state", state, "--reference", table, "--json"]
    told = json.loads(run("monitor", saved, batch("a.csv", 1), *given).stdout)
    assert (told["n"], told["n_observed"]) == (1900, 2000)
    assert told["inputs"] is not None
    assert {row["name"] for row in told["groups"]} >= set(answers(10)[2][:1])
    again = CliRunner().invoke(app, ["monitor", *map(str, [saved, tmp_path / "a.csv", *given])])
    assert "was counted before" in " ".join(again.output.split())
    worse = ["monitor", saved, batch("b.csv", 2, 0.3), *given]
    alarmed = CliRunner().invoke(app, [*map(str, worse)])
    assert alarmed.exit_code == 3, alarmed.output
    assert json.loads(alarmed.stdout)["verdict"]["kind"] == "over-confident"
    run("fit", table, "-o", tmp_path / "other.json", *columns[:4], "--scale", "100")
    other = ["monitor", tmp_path / "other.json", batch("c.csv", 3), *given]
    refused = CliRunner().invoke(app, [*map(str, other)])
    assert "must be the one that this monitor was made with" in " ".join(refused.output.split())


def test_compare(table: Path, tmp_path: Path) -> None:
    stated, right, subject = answers(900, 5)
    frame = pd.DataFrame({"stated": stated * 100, "right": right, "subject": subject})
    frame.to_csv(tmp_path / "test.csv", index=False)
    columns = ["--confidence", "stated", "--right", "right", "--groups", "subject"]
    options = ["--set", "confidence.scale=100", "--resamples", "0", "--json"]
    found = run("compare", table, tmp_path / "test.csv", *columns, *options)
    told = {row["method"]: row for row in json.loads(found.stdout)["methods"]}
    assert set(told) == {"uncalibrated", "confidence"}
