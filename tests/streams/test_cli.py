"""The commands on folders: fitted, applied and measured in parts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hokical import Hoki, load
from hokical.calibrators import make
from hokical.cli import app
from hokical.metrics import summary
from tests.streams.test_sources import write_parquet

pytest.importorskip("pyarrow")


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.mark.slow
def test_folders_from_end_to_end(examples, tmp_path) -> None:
    (tmp_path / "in").mkdir()
    write_parquet(tmp_path / "in", examples, n_files=3)
    cal = tmp_path / "cal.json"
    fit = (
        "fit",
        tmp_path / "in",
        "-o",
        cal,
        "--method",
        "hoki",
        "--set",
        "noise=gaussian:4",
        "--json",
    )
    done = run(*fit)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["examples"], facts["n_classes"]) == (4000, 5)
    logits, labels = examples
    assert facts["accuracy"] == pytest.approx((logits.argmax(axis=1) == labels).mean())
    whole = Hoki(noise=load(cal).noise_).fit(logits, labels)
    np.testing.assert_array_equal(load(cal).alpha_, whole.alpha_)

    apply = ("apply", cal, tmp_path / "in", "-o", tmp_path / "out", "--json")
    first, second = json.loads(run(*apply).stdout), json.loads(run(*apply).stdout)
    assert (first["files"], first["examples"]) == (3, 4000)
    assert second == first
    assert first["mean_confidence"] == pytest.approx(
        whole.predict_confidence(logits).mean()
    )
    shown = run(*apply[:-1])
    assert "3 files in" in shown.output

    evaluated = run("evaluate", cal, tmp_path / "in", "--json")
    found = {one["method"]: one for one in json.loads(evaluated.stdout)["methods"]}
    assert found["hoki"]["n"] == found["uncalibrated"]["n"] == 4000
    assert "brier" in found["hoki"]["estimates"]
    assert "ECE" in run("evaluate", tmp_path / "in").output


def test_a_method_that_may_change_labels_says_what_it_knows(examples, tmp_path) -> None:
    write_parquet(tmp_path, examples, n_files=2)
    done = run(
        "fit",
        tmp_path / "part-*.parquet",
        "-o",
        tmp_path / "cal.json",
        "--method",
        "vecs",
    )
    assert done.exit_code == 0, done.output
    assert "4,000 examples, accuracy " in done.output


def test_bad_usage_is_one_line(examples, tmp_path) -> None:
    write_parquet(tmp_path, examples, n_files=1)
    Hoki().fit(*examples).save(tmp_path / "cal.json")
    apply = ("apply", tmp_path / "cal.json", tmp_path)
    for place in (tmp_path, tmp_path / "out"):
        same = run(*apply, "-o", place)
        assert same.exit_code == 2
        assert "would mix with the input files" in " ".join(same.output.split())
    assert "must be a folder" in run(*apply, "-o", tmp_path / "out.csv").output


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
def test_weights_count_the_same_however_they_are_read(
    examples, weights, tmp_path, kind
) -> None:
    logits, labels = examples
    path, found = tmp_path / f"v.{kind}", {}
    if kind == "npz":
        np.savez(path, logits=logits, labels=labels, sample_weight=weights)
    else:
        columns = {f"logit_{k}": logits[:, k] for k in range(5)} | {"label": labels}
        write_table(path, columns | {"weight": weights})
    known = make("temps").fit(logits, labels, sample_weight=weights)
    places = [path, tmp_path / "*.parquet"] if kind == "parquet" else [path]
    output = tmp_path / "cal.json"
    for place in places:
        done = run("fit", place, "-o", output, "--method", "temps")
        assert done.exit_code == 0, done.output
        assert "Rows count by the weights in" in done.output
        assert load(output).temperature_ == pytest.approx(known.temperature_, rel=1e-6)
    known_ece = summary(
        known.predict_confidence(logits),
        known.predict(logits) == labels,
        sample_weight=weights,
    )["ece"].value
    for place in places:
        done = run("evaluate", output, place, "--json")
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)["methods"][1]
        assert "Rows count by the weights in" in done.stderr
        assert ece_of(found) == pytest.approx(known_ece, rel=1e-5)


def ece_of(found: dict) -> float:
    return found["estimates"]["ece"]["value"]


def write_table(path, columns: dict) -> None:
    if path.suffix == ".csv":
        table = np.column_stack(list(columns.values()))
        header = ",".join(columns)
        np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.17g")
        return
    from pyarrow import parquet
    from pyarrow import table as arrow_table

    parquet.write_table(arrow_table(columns), path)


def test_commands_that_do_not_use_weights_say_so(examples, weights, tmp_path) -> None:
    np.savez(
        tmp_path / "v.npz",
        logits=examples[0],
        labels=examples[1],
        sample_weight=weights,
    )
    done = run("compare", *[tmp_path / "v.npz"] * 2, "--methods", "temps")
    assert done.stderr.count("Rows count alike, whatever the weights in") == 2
    assert "by the weights" not in done.stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "words",
    ["fit {} -o c.json --method temps", "evaluate {}", "apply cal.json {} -o out"],
)
def test_errors_about_rows_name_the_file_and_the_row(
    examples, tmp_path, monkeypatch, words
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    logits = examples[0].copy()
    logits[3500, 2] = np.nan
    write_parquet(tmp_path / "in", (logits, examples[1]), n_files=4)
    make("temps").fit(*examples).save(tmp_path / "cal.json")
    done = run(*words.format("in").split())
    assert done.exit_code == 2, done.output
    assert "part-3.parquet: " in done.output
    assert "in row " in done.output
    assert not (tmp_path / "c.json").exists()


def test_a_bad_first_row_names_the_folder(examples, tmp_path) -> None:
    logits = examples[0].copy()
    logits[0, 0] = np.inf
    write_parquet(tmp_path, (logits, examples[1]), n_files=2)
    done = run("evaluate", tmp_path)
    assert done.exit_code == 2
    assert f"{tmp_path.name}" in done.output.replace("\n", "")


def test_missing_labels_name_the_file(examples, tmp_path) -> None:
    table = {f"logit_{k}": examples[0][:, k] for k in range(5)}
    write_table(tmp_path / "v.parquet", table)
    done = run("fit", tmp_path / "*.parquet", "-o", tmp_path / "c.json")
    assert done.exit_code == 2
    assert "*.parquet: labels are needed" in done.output
