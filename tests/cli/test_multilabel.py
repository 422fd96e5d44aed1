"""`hokical fit --multilabel`, and `certify`, `evaluate` and `apply` of its files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import hokical
from hokical.cli import app
from tests.calibrators.test_multilabel import N_LABELS, tags
from tests.cli.test_confidence import run

NAMES = [f"finding {k}" for k in range(N_LABELS)]


def write(path: Path, n: int, seed: int = 0, marks: tuple[str, str] = ("score_", "label_")) -> Path:
    scores, labels = tags(n, seed)
    columns = {f"{marks[0]}{name}": scores[:, k] for k, name in enumerate(NAMES)}
    columns |= {f"{marks[1]}{name}": labels[:, k] for k, name in enumerate(NAMES)}
    pd.DataFrame({"id": range(n)} | columns).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("multilabel")
    run("fit", write(folder / "val.csv", 400), "--multilabel", "-o", folder / "cal.json")
    return folder / "cal.json"


def test_fit_and_apply_equal_the_library(saved: Path, tmp_path: Path) -> None:
    cal = hokical.MultilabelCalibrator().fit(*tags(400))
    new, out = write(tmp_path / "new.csv", 50, 1), tmp_path / "out.csv"
    told = json.loads(run("apply", saved, new, "-o", out, "--json").stdout)
    scores, _ = tags(50, 1)
    written = pd.read_csv(out, keep_default_na=False)
    assert list(written) == ["id", "labels", *(f"probability_{name}" for name in NAMES)]
    np.testing.assert_allclose(written.iloc[:, 2:], cal.predict_proba(scores), atol=1e-9)
    given = [{*cell.split("|")} - {""} for cell in written.labels]
    assert given == [{NAMES[k] for k in np.flatnonzero(row)} for row in cal.predict(scores)]
    assert told["labels_per_example"] == pytest.approx(np.mean([len(row) for row in given]))


def test_columns_by_pattern_are_remembered_in_any_order(saved: Path, tmp_path: Path) -> None:
    val = write(tmp_path / "val.csv", 400, marks=("p of ", "is "))
    options = ["--score-columns", "p of {label}", "--label-column", "is {label}"]
    run("fit", val, "--multilabel", *options, "-o", tmp_path / "cal.json")
    new = pd.read_csv(write(tmp_path / "new.csv", 30, 1, ("p of ", "is ")))
    new.iloc[:, ::-1].to_csv(tmp_path / "new.csv", index=False)
    tables = []
    run("apply", tmp_path / "cal.json", tmp_path / "new.csv", "-o", tmp_path / "a.csv")
    run("apply", saved, write(tmp_path / "b_in.csv", 30, 1), "-o", tmp_path / "b.csv")
    tables = [pd.read_csv(tmp_path / name).sort_values("id") for name in ("a.csv", "b.csv")]
    pd.testing.assert_frame_equal(*tables)


def test_recall_is_promised_after_certify(saved: Path, tmp_path: Path) -> None:
    held = write(tmp_path / "held.csv", 800, 2)
    run("certify", saved, held, "-o", tmp_path / "certified.json")
    new = write(tmp_path / "new.csv", 100, 1)
    promise = ["--recall", "0.8", "--delta", "0.2"]
    out = run("apply", tmp_path / "certified.json", new, "-o", tmp_path / "out.npz", *promise)
    assert "at least 0.8 of its positives" in " ".join(out.output.split())
    cal = hokical.load(tmp_path / "certified.json")
    expected = cal.predict(tags(100, 1)[0], recall=0.8, delta=0.2)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["labels"], expected)


def test_sets_are_promised_after_certify(saved: Path, tmp_path: Path) -> None:
    held, certified = write(tmp_path / "held.csv", 800, 2), tmp_path / "certified.json"
    run("certify", saved, held, "-o", certified)
    new, out = write(tmp_path / "new.csv", 100, 1), tmp_path / "out.csv"
    found = run("apply", certified, new, "-o", out, "--coverage", "0.9")
    assert "all labels that are in and none that are out" in " ".join(found.output.split())
    sets = hokical.load(certified).predict_set(tags(100, 1)[0], coverage=0.9)
    written = pd.read_csv(out, keep_default_na=False)
    for column, members in (("in", sets.inside), ("open", sets.open)):
        names = [{*cell.split("|")} - {""} for cell in written[column]]
        assert names == [{NAMES[k] for k in np.flatnonzero(row)} for row in members]
    by_label = ["--coverage", "0.8", "--by", "label", "--delta", "0.2"]
    found = run("apply", certified, new, "-o", tmp_path / "out.npz", *by_label)
    assert "for each label, with confidence 0.8" in " ".join(found.output.split())
    sets = hokical.load(certified).predict_set(tags(100, 1)[0], coverage=0.8, by="label", delta=0.2)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["open"], sets.open)


def test_compared_with_none(tmp_path: Path) -> None:
    val, test = write(tmp_path / "val.csv", 400), write(tmp_path / "test.csv", 600, 1)
    page = tmp_path / "page.html"
    found = run("compare", val, test, "--multilabel", "--report", page, "--json")
    told = {row["method"]: row for row in json.loads(found.stdout)["methods"]}
    assert set(told) == {"uncalibrated", "multilabel"}
    assert page.exists()
    bad = CliRunner().invoke(
        app, ["compare", str(val), str(test), "--multilabel", "--methods", "x"]
    )
    assert "does not go with --multilabel" in " ".join(bad.output.split())
    bad = CliRunner().invoke(app, ["compare", str(val), "--multilabel"])
    assert "pass TEST" in " ".join(bad.output.split())


def test_evaluated_label_by_label(saved: Path, tmp_path: Path) -> None:
    scores, labels = tags(1000, 5)
    arrays = {"scores": scores, "labels": labels.astype(float), "classes": np.array(NAMES)}
    arrays["labels"][:100, 3] = np.nan
    np.savez(tmp_path / "new.npz", **arrays)
    page = tmp_path / "page.html"
    command = ["evaluate", tmp_path / "new.npz", "--calibrator", saved, "--report", page]
    found = json.loads(run(*command, "--json").stdout)
    known = ~np.isnan(arrays["labels"])
    proba = hokical.load(saved).predict_proba(scores)
    loss = -np.log(np.where(labels == 1, proba, 1.0 - proba))[known].mean()
    assert found["multilabel"]["estimates"]["log_loss"]["value"] == pytest.approx(loss)
    assert found["multilabel"]["n"] == known.sum()
    assert not found["multilabel"]["bounds"]  # labels of one example go together
    rows = {row["name"]: row for row in found["multilabel"]["groups"]["rows"]}
    assert rows[NAMES[3]]["n"] == 900
    assert rows[NAMES[5]]["says"] == pytest.approx(proba[:, 5].mean())
    assert "Which labels is it wrong about?" in page.read_text()
    assert "labels of 1,000 examples" in run(*command).output


def test_cells_of_words_and_empty_ones(tmp_path: Path) -> None:
    frame = pd.read_csv(write(tmp_path / "plain.csv", 300))
    words = frame.copy()
    for name in NAMES:
        words[f"label_{name}"] = frame[f"label_{name}"].map({0: "False", 1: "TRUE"})
    words.loc[:9, "label_finding 2"] = ""
    words.to_csv(tmp_path / "words.csv", index=False)
    words.to_parquet(tmp_path / "words.parquet")
    scores, labels = tags(300)
    truth = labels.astype(float)
    truth[:10, 2] = np.nan
    expected = hokical.MultilabelCalibrator().fit(scores, truth).predict_proba(scores)
    for file in ("words.csv", "words.parquet"):
        run("fit", tmp_path / file, "--multilabel", "-o", tmp_path / "cal.json")
        found = hokical.load(tmp_path / "cal.json").predict_proba(scores)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_probabilities_are_remembered(tmp_path: Path) -> None:
    scores, labels = tags(300)
    proba = 1.0 / (1.0 + np.exp(-scores))
    np.savez(tmp_path / "val.npz", probabilities=proba, labels=labels)
    run("fit", tmp_path / "val.npz", "--multilabel", "--probabilities", "-o", tmp_path / "c.json")
    run("apply", tmp_path / "c.json", tmp_path / "val.npz", "-o", tmp_path / "out.npz")
    cal = hokical.MultilabelCalibrator().fit(scores, labels)
    written = np.load(tmp_path / "out.npz")["probabilities"]
    np.testing.assert_allclose(written, cal.predict_proba(scores), atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--groups", "id"], "does not go with several labels"),
        (["--score-columns", "p_{label}"], "expected a column like p_"),
        (["--label-column", "y_{label}"], "expected a column `y_finding 0`"),
        (["--class-axis", "1"], "works on one file"),
        (["--method", "temps"], "does not go with --multilabel"),
        (["--confidence", "id", "--right", "id"], "--multilabel and --confidence exclude"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    val = write(tmp_path / "val.csv", 30)
    command = ["fit", str(val), "--multilabel", "-o", str(tmp_path / "cal.json"), *arguments]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 2, found.output
    assert words in " ".join(found.output.split())


def test_the_option_is_named_where_it_lacks(tmp_path: Path) -> None:
    np.savez(tmp_path / "val.npz", probabilities=np.full((30, 2), 0.5), labels=np.eye(2)[[0] * 30])
    for given, words in (
        ([write(tmp_path / "val.csv", 30)], "add --multilabel"),
        ([tmp_path / "val.npz", "--multilabel"], "`hokical.from_binary_probabilities`"),
    ):
        command = ["fit", *given, "-o", tmp_path / "cal.json"]
        found = CliRunner().invoke(app, [*map(str, command)])
        assert found.exit_code != 0
        assert words in " ".join(found.output.split())


def test_a_risk_of_answers_is_refused(saved: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.csv", 20, 1)
    command = ["apply", str(saved), str(new), "-o", str(tmp_path / "out.csv"), "--risk", "0.1"]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 2
    assert "see --recall" in " ".join(found.output.split())


@pytest.mark.slow
def test_classes_of_an_archive_are_put_in_the_order_of_the_fit(tmp_path: Path) -> None:
    """As columns of tables are, whether labels are numbers, names or marks."""
    rng = np.random.default_rng(0)
    names, turned = np.array(["a", "b", "c"]), [2, 0, 1]
    labels = rng.integers(0, 3, 400)
    logits = rng.normal(size=(400, 3)) + 2.0 * np.eye(3)[labels]
    marks = (rng.logistic(size=(400, 3)) < logits).astype(float)
    numbers = np.argsort(turned)[labels]
    written = {
        "fit": (logits, labels, names),
        "numbers": (logits[:, turned], numbers, names[turned]),
        "names": (logits[:, turned], names[labels], names[turned]),
        "several": (logits, marks, names),
        "turned": (logits[:, turned], marks[:, turned], names[turned]),
        "others": (logits, labels, np.array(["a", "b", "d"])),
    }
    for name, (scores, truth, own) in written.items():
        np.savez(tmp_path / f"{name}.npz", logits=scores, labels=truth, classes=own)
    for kind, files in (([], ["numbers", "names"]), (["--multilabel"], ["turned"])):
        first, cal = ("several" if kind else "fit"), tmp_path / "cal.json"
        run("fit", tmp_path / f"{first}.npz", "-o", cal, *kind)
        told = []
        for name in (first, *files):
            found = run("evaluate", tmp_path / f"{name}.npz", "--calibrator", cal, "--json").stdout
            told.append(json.loads(found) | {"data": None})
            run("apply", cal, tmp_path / f"{name}.npz", "-o", tmp_path / f"{name}.csv")
        assert all(one == told[0] for one in told[1:])
        expected = (tmp_path / f"{first}.csv").read_text()
        assert all((tmp_path / f"{name}.csv").read_text() == expected for name in files)
        bad = CliRunner().invoke(
            app, ["evaluate", str(tmp_path / "others.npz"), "--calibrator", str(cal)]
        )
        assert bad.exit_code == 2, bad.output
        assert "a, b, c; got a, b, d" in " ".join(bad.output.split())
