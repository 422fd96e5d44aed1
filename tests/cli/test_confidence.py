"""`hokical fit --confidence` and `hokical apply` of its files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hokical
from tests.calibrators.test_confidence import answers
from tests.cli.running import Result, hokical_command

SCALE = ("--set", "scale=100")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    stated, right, subject = answers(800)
    frame = pd.DataFrame(
        {"stated": stated * 100, "right": right, "subject": subject, "id": range(800)}
    )
    frame.to_csv(tmp_path / "answers.csv", index=False)
    return tmp_path / "answers.csv"


def run(*arguments: object) -> Result:
    completed = hokical_command(*arguments)
    assert completed.code == 0, completed.err
    return completed


def test_fit_and_apply_equal_the_library(table: Path, tmp_path: Path) -> None:
    columns = [
        "--confidence",
        "stated",
        "--label-column",
        "right",
        "--groups",
        "subject",
    ]
    saved, out = tmp_path / "cal.json", tmp_path / "out.csv"
    told = run("fit", table, "-o", saved, *columns, *SCALE, "--json")
    stated, right, subject = answers(800)
    cal = hokical.calibrate_confidence(
        100 * stated, right, groups={"subject": subject}, scale=100
    )
    assert told.json["reason"] == cal.reason_
    completed = run("apply", saved, table, "-o", out, "--json")
    written = pd.read_csv(out)
    assert list(written) == ["id", "confidence"]
    np.testing.assert_allclose(
        written.confidence, cal.predict(100 * stated, groups=subject), atol=1e-6
    )
    assert completed.json["examples"] == 800
    assert completed.err == ""


def test_options_of_the_calibrator(table: Path, tmp_path: Path) -> None:
    columns = ["--confidence", "stated", "--label-column", "right"]
    run(
        "fit",
        table,
        "-o",
        tmp_path / "cal.json",
        *columns,
        *SCALE,
        "--set",
        "monotone=true",
    )
    cal = hokical.load(tmp_path / "cal.json")
    assert cal.get_params() == {"scale": 100.0, "monotone": True}
    bad = hokical_command("fit", table, "-o", "cal.json", *columns, "--set", "n_bins=3")
    assert "must be an option of confidence" in bad.words


def test_export(table: Path, tmp_path: Path) -> None:
    pytest.importorskip("ndonnx")
    pytest.importorskip("onnxruntime")
    columns = [
        "--confidence",
        "stated",
        "--label-column",
        "right",
        "--groups",
        "subject",
    ]
    run("fit", table, "-o", tmp_path / "cal.json", *columns, *SCALE)
    completed = run(
        "export", tmp_path / "cal.json", "-o", tmp_path / "cal.onnx", "--json"
    )
    told = completed.json
    assert told["largest_difference"] < 1e-6
    assert [name.split()[0] for name in told["inputs"]] == ["confidence", "groups"]
    arguments = ["export", "cal.json", "-o", "b.onnx", "--attach", "a.onnx"]
    bad = hokical_command(
        *(tmp_path / name if "." in name else name for name in arguments)
    )
    assert "takes calibrators of logits" in bad.words


def test_groups_that_the_fit_did_not_have_are_told(table: Path, tmp_path: Path) -> None:
    columns = [
        "--confidence",
        "stated",
        "--label-column",
        "right",
        "--groups",
        "subject",
    ]
    run("fit", table, "-o", tmp_path / "cal.json", *columns, *SCALE)
    frame = pd.read_csv(table).assign(subject="chess")
    frame.to_csv(tmp_path / "new.csv", index=False)
    completed = run(
        "apply", tmp_path / "cal.json", tmp_path / "new.csv", "-o", tmp_path / "out.csv"
    )
    assert "missing or was not in the fit: 800 in 'subject'" in completed.words


def test_a_file_of_the_library_is_applied_by_the_names_of_its_columns(
    table: Path, tmp_path: Path
) -> None:
    stated, right, subject = answers(800, 1)
    cal = hokical.calibrate_confidence(
        100 * stated, right, groups={"subject": subject}, scale=100
    )
    cal.save(tmp_path / "cal.json")
    column = ["--score-columns", "stated"]
    run("certify", tmp_path / "cal.json", table, *column)
    run("apply", tmp_path / "cal.json", table, "-o", tmp_path / "out.csv", *column)
    written = pd.read_csv(tmp_path / "out.csv")
    stated, _, subject = answers(800)
    np.testing.assert_allclose(
        written.confidence, cal.predict(100 * stated, groups=subject), atol=1e-6
    )


def test_a_file_of_numbers_alone_has_the_groups_of_one_with_a_word(
    tmp_path: Path,
) -> None:
    stated, right, subject = answers(800)
    code = pd.Series(subject).map(
        {"law": "1", "maths": "02", "music": "x", "physics": "3"}
    )
    frame = pd.DataFrame({"stated": stated, "right": right, "site": code})
    frame.to_csv(tmp_path / "fit.csv", index=False)
    frame[code != "x"].to_csv(tmp_path / "new.csv", index=False)
    columns = ["--confidence", "stated", "--label-column", "right", "--groups", "site"]
    run("fit", tmp_path / "fit.csv", "-o", tmp_path / "cal.json", *columns)
    run(
        "apply", tmp_path / "cal.json", tmp_path / "new.csv", "-o", tmp_path / "out.csv"
    )
    cal = hokical.calibrate_confidence(stated, right, groups=code)
    expected = cal.predict(stated[code != "x"], groups=code[code != "x"])
    written = pd.read_csv(tmp_path / "out.csv").confidence
    np.testing.assert_allclose(written, expected, atol=1e-6)


def test_what_cannot_be_is_refused(table: Path, tmp_path: Path) -> None:
    saved = tmp_path / "cal.json"
    for arguments, words in (
        (["--confidence", "stated"], "--set scale=100"),
        (
            ["--confidence", "statd", "--label-column", "right"],
            "column or array `statd`",
        ),
        (["--confidence", "stated", "--label-column", "rigt"], "`rigt`"),
        (
            ["--confidence", "stated", "--label-column", "subject"],
            "must be 0 or 1, true or false",
        ),
    ):
        found = hokical_command("fit", table, "-o", saved, *arguments)
        assert found.code == 2
        assert words in found.words
        assert not saved.exists()
    columns = ["--confidence", "stated", "--label-column", "right"]
    run("fit", table, "-o", saved, *columns, *SCALE)
    for command, words in (
        (
            ["monitor", saved, table, "--coverage", "0.9"],
            "needs a calibrator of logits",
        ),
        (
            ["apply", saved, table, "-o", "out.csv", "--proba"],
            "needs a calibrator of logits",
        ),
        (
            ["apply", saved, table, "-o", "out.csv", "--coverage", "0.8"],
            "--coverage: needs a",
        ),
        (
            ["apply", saved, table, "-o", "out.csv", "--positive", "yes"],
            "--positive: needs a",
        ),
        (["shift", saved, table], "needs a calibrator of logits"),
        (
            ["fit", table, "-o", saved, *columns, "--method", "temps"],
            "does not go with",
        ),
    ):
        found = hokical_command(*command)
        assert found.code == 2
        assert words in found.words


def test_evaluated_before_and_after(table: Path, tmp_path: Path) -> None:
    saved, page = tmp_path / "cal.json", tmp_path / "page.html"
    columns = [
        "--confidence",
        "stated",
        "--label-column",
        "right",
        "--groups",
        "subject",
    ]
    run("fit", table, "-o", saved, *columns, *SCALE)
    stated, right, subject = answers(900, 3)
    frame = pd.DataFrame({"stated": 100 * stated, "right": right, "subject": subject})
    frame.to_csv(tmp_path / "new.csv", index=False)
    few = ["--report", page]
    told = run("evaluate", saved, tmp_path / "new.csv", *few, "--json")
    methods = told.methods
    calibrated = hokical.load(saved).predict(100 * stated, groups=subject)
    for name, confidence in (("uncalibrated", stated), ("confidence", calibrated)):
        assert methods[name]["estimates"]["ece"]["value"] == pytest.approx(
            hokical.metrics.ece(confidence, right), abs=1e-6
        )
        assert {row["name"] for row in methods[name]["groups"]["rows"]} == set(subject)
    assert "law" in page.read_text()
    frame.assign(stated=stated).to_csv(tmp_path / "shares.csv", index=False)
    alone = run("evaluate", tmp_path / "shares.csv", *columns, *few, "--json").methods
    values = [
        evaluation["uncalibrated"]["estimates"]["ece"]["value"]
        for evaluation in (alone, methods)
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_certified_in_the_shell(table: Path, tmp_path: Path) -> None:
    saved, out = tmp_path / "cal.json", tmp_path / "out.csv"
    columns = [
        "--confidence",
        "stated",
        "--label-column",
        "right",
        "--groups",
        "subject",
    ]
    run("fit", table, "-o", saved, *columns, *SCALE)
    assert '"certified": "no"' in run("show", saved, "--json").out
    stated, right, subject = answers(900, 3)
    held_out = pd.DataFrame(
        {"stated": 100 * stated, "right": right, "subject": subject}
    )
    held_out.to_csv(tmp_path / "held_out.csv", index=False)
    assert (
        run("certify", saved, tmp_path / "held_out.csv", "--json").json["examples"]
        == 900
    )
    run("apply", saved, table, "-o", out, "--risk", "0.35")
    stated_confidence, _, names = answers(800)
    cal = hokical.load(saved)
    wanted = cal.predict_or_abstain(
        100 * stated_confidence, groups=names, risk=0.35
    ).accepted
    assert 0.1 < wanted.mean() < 1.0
    np.testing.assert_array_equal(pd.read_csv(out).accepted, wanted)
    with pytest.raises(
        hokical.CalibratorFileError, match="must hold a calibrator of logits"
    ):
        hokical.Dense.load(saved)


def test_monitor(table: Path, tmp_path: Path) -> None:
    columns = [
        "--confidence",
        "stated",
        "--label-column",
        "right",
        "--groups",
        "subject",
    ]
    saved, state = tmp_path / "cal.json", tmp_path / "state.json"
    run("fit", table, "-o", saved, *columns, *SCALE)

    def batch(name: str, seed: int, wrong: float = 0.0) -> Path:
        stated, right, subject = answers(2000, seed)
        right = right & (np.random.default_rng(seed).random(2000) >= wrong)
        frame = pd.DataFrame({"stated": stated * 100, "right": right.astype(object)})
        frame.loc[:99, "right"] = None
        frame.assign(subject=subject).to_csv(tmp_path / name, index=False)
        return tmp_path / name

    given = ["--state", state, "--reference", table, "--json"]
    told = run("monitor", saved, batch("a.csv", 1), *given).json
    assert (told["n"], told["n_observed"]) == (1900, 2000)
    assert told["inputs"] is not None
    assert {row["name"] for row in told["groups"]} >= set(answers(10)[2][:1])
    again = hokical_command("monitor", saved, tmp_path / "a.csv", *given)
    assert "were counted before" in again.words
    alarmed = hokical_command("monitor", saved, batch("b.csv", 2, 0.3), *given)
    assert alarmed.code == 3, alarmed.err
    assert json.loads(alarmed.out)["verdict"]["kind"] == "over-confident"
    run("fit", table, "-o", tmp_path / "other.json", *columns[:4], *SCALE)
    refused = hokical_command(
        "monitor", tmp_path / "other.json", batch("c.csv", 3), *given
    )
    assert "must be the one that this monitor was made with" in refused.words


def test_labelled_rows_with_ids_are_monitored(tmp_path: Path) -> None:
    """They have scores under names that only the fit knows, so no label is late."""
    stated, right, _ = answers(400)
    frame = pd.DataFrame({"stated": stated, "right": right, "id": range(400)})
    frame[:200].to_csv(tmp_path / "fit.csv", index=False)
    frame[200:].to_csv(tmp_path / "new.csv", index=False)
    saved = tmp_path / "cal.json"
    columns = ["--confidence", "stated", "--label-column", "right"]
    run("fit", tmp_path / "fit.csv", "-o", saved, *columns)
    given = ["--id-column", "id", "--json"]
    assert run("monitor", saved, tmp_path / "new.csv", *given).json["n"] == 200


def test_a_repeated_option_takes_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    truth = rng.normal(size=500)
    frame = pd.DataFrame(
        {
            "stated": 1 / (1 + np.exp(-truth - rng.normal(size=500))),
            "agreement": 1 / (1 + np.exp(-truth - rng.normal(size=500))),
            "right": (rng.random(500) < 1 / (1 + np.exp(-2 * truth))).astype(int),
            "site": rng.choice(["a", "b"], 500),
            "sex": rng.choice(["f", "m"], 500),
        }
    )
    frame.to_csv(tmp_path / "answers.csv", index=False)
    data, saved = tmp_path / "answers.csv", tmp_path / "cal.json"
    repeated = ["--confidence", "stated", "--confidence", "agreement"]
    told = run("fit", data, "-o", saved, *repeated, "--json").json
    assert "2 signals were combined" in told["reason"]
    cal = hokical.calibrate_confidence(
        frame[["stated", "agreement"]].to_numpy(), frame.right.to_numpy()
    )
    run("apply", saved, data, "-o", tmp_path / "out.csv")
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "out.csv").confidence,
        cal.predict(frame[["stated", "agreement"]].to_numpy()),
        atol=1e-6,
    )
    commas = ["--confidence", "stated,agreement"]
    assert (
        run("fit", data, "-o", saved, *commas, "--json").json["reason"]
        == (told["reason"])
    )
    groups = ["--groups", "site", "--groups", "sex"]
    reason = run(
        "fit", data, "-o", saved, "--confidence", "stated", *groups, "--json"
    ).json["reason"]
    assert "'site'" in reason
    assert "'sex'" in reason
    alone = hokical_command("evaluate", data, *repeated)
    assert alone.code != 0
    assert "takes one column without a calibrator" in alone.err


@pytest.mark.slow
def test_a_signal_may_be_missing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    right = rng.random(200) < 0.7
    signals = np.clip(0.5 + 0.3 * right[:, None] + 0.2 * rng.random((200, 2)), 0, 1)
    signals[rng.random(200) < 0.3, 1] = np.nan
    frame = pd.DataFrame(signals, columns=["stated", "token"]).assign(right=right)
    table, saved, out = (tmp_path / name for name in ("a.csv", "cal.json", "out.csv"))
    frame.to_csv(table, index=False)
    columns = ("--confidence", "stated,token", "--label-column", "right")
    run("fit", table, "-o", saved, *columns)
    run("apply", saved, table, "-o", out)
    expected = hokical.calibrate_confidence(signals, right).predict(signals)
    np.testing.assert_allclose(pd.read_csv(out)["confidence"], expected, atol=1e-6)

    frame.loc[3, ["stated", "token"]] = np.nan
    frame.to_csv(table, index=False)
    refused = hokical_command("fit", table, "-o", saved, *columns)
    assert "expected a number in line 5, column `stated`" in refused.err
    told = run("fit", table, "-o", saved, *columns, "--missing", "drop", "--json")
    assert told.json["examples"] == 199


@pytest.mark.parametrize(
    "words", [("no", "yes"), ("wrong", "right"), ("Incorrect", "CORRECT")]
)
def test_labels_say_in_words_whether_answers_were_right(
    words: tuple[str, str], tmp_path: Path
) -> None:
    stated, right, _ = answers(200)
    names = np.where(right, words[1], words[0])
    frame = pd.DataFrame({"confidence": stated, "right": names})
    frame.to_csv(tmp_path / "answers.csv", index=False)
    told = run("fit", tmp_path / "answers.csv", "-o", tmp_path / "cal.json", "--json")
    assert told.json["reason"] == hokical.calibrate_confidence(stated, right).reason_


def test_answers_are_accepted_by_group(table: Path, tmp_path: Path) -> None:
    columns = ["--confidence", "stated", "--label-column", "right"]
    grouped = ("--groups", "subject")
    saved, out = tmp_path / "cal.json", tmp_path / "out.csv"
    run("fit", table, "-o", saved, *columns, *SCALE)
    stated, right, subject = answers(3000, seed=5)
    new = pd.DataFrame({"stated": 100 * stated, "right": right, "subject": subject})
    new.to_csv(tmp_path / "more.csv", index=False)
    told = run("certify", saved, tmp_path / "more.csv", *grouped, "--json")
    assert told.json["groups"] == np.unique(subject).size
    by_group = ("--risk", "0.4", "--by", "group")
    run("apply", saved, table, "-o", out, *by_group, *grouped)
    of_table = pd.read_csv(table)
    expected = hokical.load(saved).predict_or_abstain(
        of_table.stated, groups=of_table.subject, risk=0.4, by="group"
    )
    accepted = pd.read_csv(out).accepted
    np.testing.assert_array_equal(accepted, expected.accepted)
    assert 0 < accepted.mean() < 1
    found = hokical_command("apply", saved, table, "-o", out, *by_group)
    assert found.code == 2
    assert "--groups COLUMN" in found.words


def test_few_answers_are_evaluated_in_folds(tmp_path: Path) -> None:
    stated, right, _ = answers(200)
    partial = np.where(np.arange(200) % 5 == 0, np.nan, 1.0 - stated)
    frame = pd.DataFrame({"stated": stated, "token": partial, "right": right})
    path = tmp_path / "answers.csv"
    frame.to_csv(path, index=False)
    named = ("--confidence", "stated,token", "--label-column", "right", "--folds", "4")
    told = run("evaluate", path, *named, "--json").json
    expected = hokical.evaluate(
        hokical.ConfidenceCalibrator(), frame[["stated", "token"]], right, folds=4
    )
    assert told["headline"] == expected.headline
    found = hokical_command("evaluate", path, *named, "--method", "temps")
    assert "--method: does not go with confidences" in found.words
    found = hokical_command("evaluate", path)
    assert "Name the scores: --confidence stated,token." in found.words


def test_lines_of_json_keep_numbers_and_truth_values(tmp_path: Path) -> None:
    stated, right, _ = answers(60)
    rows = [
        {"id": k, "code": f"0{k}", "cost": 0.5 * k, "seen": k % 2 == 0, "note": None}
        | {"confidence": float(c), "right": bool(r), "part": "a" if k else 1}
        for k, (c, r) in enumerate(zip(stated, right, strict=True))
    ]
    new, out = tmp_path / "new.jsonl", tmp_path / "out.jsonl"
    new.write_text("\n".join(map(json.dumps, rows)))
    run("fit", new, "-o", tmp_path / "cal.json")
    keep = ("--keep", "id,code,cost,seen,part")
    run("apply", tmp_path / "cal.json", new, "-o", out, *keep)
    for row, line in zip(rows, out.read_text().splitlines(), strict=True):
        written = json.loads(line)
        assert written.pop("confidence") > 0.0
        assert written == {name: row[name] for name in written} | {
            "part": str(row["part"])
        }
