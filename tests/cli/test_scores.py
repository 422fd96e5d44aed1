"""The kind of scores that a calibrator knows, its own examples, rows that were
counted before.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import hokical
from hokical import CalibratorFileError
from tests.cli.running import Result, hokical_command, one_line
from tests.conftest import synthetic_logits

OWN = "holds the examples that the calibrator was fitted on"


def table(path: Path, seed: int, *, n_classes: int = 3) -> Path:
    """Probabilities by column, or the probability of class 1 of two in a column
    `risk`.
    """
    logits, labels = synthetic_logits(120, n_classes, seed=seed)
    proba = softmax(logits, axis=1)
    names = ["risk"] if n_classes == 2 else [f"prob_{k}" for k in range(n_classes)]
    columns = proba[:, 1:] if n_classes == 2 else proba
    lines = [",".join([*names, "label"])]
    lines += [
        ",".join(map(repr, [*row, y]))
        for row, y in zip(columns.tolist(), labels.tolist(), strict=True)
    ]
    path.write_text("\n".join(lines))
    return path


def fit(tmp_path: Path, *options: object, n_classes: int = 3) -> Path:
    val, path = (
        table(tmp_path / "val.csv", 1, n_classes=n_classes),
        tmp_path / "cal.json",
    )
    done = hokical_command("fit", val, "--method", "temps", "-o", path, *options)
    assert done.code == 0, done.err
    return path


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", ["apply", "evaluate", "monitor"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_commands_read_scores_as_the_fit_did(
    tmp_path: Path, command: str, n_classes: int
) -> None:
    binary = ["--score-columns", "risk"] if n_classes == 2 else []
    cal = fit(tmp_path, "--probabilities", *binary, n_classes=n_classes)
    new, out = table(tmp_path / "new.csv", 2, n_classes=n_classes), tmp_path / "out.npz"
    assert hokical.load(cal).metadata_.get("scores") == "probabilities"
    words = {
        "apply": ["apply", cal, new, "-o", out],
        "evaluate": ["evaluate", cal, new],
        "monitor": ["monitor", cal, new, "--reference", tmp_path / "val.csv"],
    }[command]
    told = hokical_command(*words, "--probabilities", *binary, "--json")
    silent = hokical_command(*words, "--json")
    assert told.json == silent.json
    assert told.err == silent.err == ""
    if command == "apply":
        logits, _ = synthetic_logits(120, n_classes, seed=2)
        with np.load(out) as found:
            expected = hokical.load(cal).predict_confidence(logits)
            np.testing.assert_allclose(found["confidence"], expected, rtol=1e-9)
        wrong = hokical_command(*words, "--logits", "--strict")
        assert wrong.code == (
            1 if n_classes == 2 else 2
        )  # columns prob_0, ... are no logits
        assert "The scores are logits; the calibrator was fitted on" in wrong.err


def test_export_says_what_the_model_takes(tmp_path: Path) -> None:
    pytest.importorskip("ndonnx")
    cal, out = fit(tmp_path, "--probabilities"), tmp_path / "cal.onnx"
    assert (
        "takes their logarithms"
        in hokical_command("export", cal, "-o", out, "--no-check").err
    )


def test_old_files_know_nothing_of_their_scores(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(120, 3, seed=1)
    path = tmp_path / "cal.json"
    hokical.make("temps").fit(logits, labels).save(path)
    assert hokical.load(path).metadata_.get("scores") is None
    new, out = table(tmp_path / "new.csv", 2), tmp_path / "out.csv"
    completed = hokical_command("apply", path, new, "-o", out, "--probabilities")
    assert (completed.code, completed.err) == (0, "")


@pytest.mark.parametrize(
    "about", [{"classes": 3}, {"classes": [1]}, {"scores": "odds"}]
)
def test_forged_facts_are_refused(tmp_path: Path, about: dict[str, object]) -> None:
    logits, labels = synthetic_logits(120, 3, seed=1)
    path = tmp_path / "cal.json"
    hokical.make("temps").fit(logits, labels).save(path, metadata=about)
    assert "unusable facts" in one_line(hokical_command("show", path))


def test_classes_of_a_folder_are_found_in_the_order_of_the_fit(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    logits, labels = synthetic_logits(120, 3, seed=1)
    names, tables = ["cat", "dog", "bird"], []
    for order in ([0, 1, 2], [2, 0, 1]):
        folder = tmp_path / f"in{order[0]}"
        folder.mkdir()
        columns = {names[k]: logits[:, k] for k in order} | {"label": labels}
        pq.write_table(pa.table(columns), folder / "a.parquet")
        cal = tmp_path / "cal.json"
        if not tables:
            fit = (
                "fit",
                folder,
                "-o",
                cal,
                "--method",
                "vecs",
                "--classes",
                ",".join(names),
            )
            assert hokical_command(*fit).code == 0
        out = tmp_path / f"out{order[0]}"
        assert hokical_command("apply", cal, folder, "-o", out).code == 0
        tables.append(pq.read_table(out / "a.parquet"))
        methods = hokical_command("evaluate", cal, folder, "--json").methods
        assert methods["vecs"]["estimates"]["accuracy"]["value"] > 0.5
    assert tables[0].equals(tables[1])


def monitor(tmp_path: Path, *arguments: object) -> Result:
    state = (
        "--state",
        tmp_path / "m.json",
        "--reference",
        tmp_path / "val.npz",
        "--json",
    )
    return hokical_command("monitor", tmp_path / "cal.json", *arguments, *state)


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    for name, seed in (("val", 1), ("new", 2)):
        logits, labels = synthetic_logits(300, 3, seed=seed)
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
        np.save(tmp_path / f"{name}_logits.npy", logits)
    hokical_command(
        "fit", tmp_path / "val.npz", "-o", tmp_path / "cal.json", "--method", "temps"
    )
    np.save(tmp_path / "later.npy", labels)
    lines = (
        ",".join(map(repr, [*row, int(y)]))
        for row, y in zip(logits.tolist(), labels, strict=True)
    )
    (tmp_path / "new.csv").write_text("\n".join(["z0,z1,z2,label", *lines]))
    return tmp_path / "new_logits.npy"


def test_rows_of_any_format_count_once(tmp_path: Path, watched: Path) -> None:
    first = monitor(tmp_path, watched).json
    assert (first["n"], first["n_observed"]) == (0, 300)
    for again in (
        (watched,),
        (watched, "--labels", tmp_path / "later.npy"),
        (tmp_path / "new.npz",),  # the same rows in another format
        (tmp_path / "new.csv",),
    ):
        assert "counted before" in one_line(monitor(tmp_path, *again))
    assert monitor(tmp_path, tmp_path / "new.npz", "--again").json["n"] == 300


@pytest.mark.sample(1)
@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("name", ["val.npz", "val_logits.npy", "copy.npz"])
def test_own_examples_are_noticed(tmp_path: Path, name: str) -> None:
    shutil.copy(tmp_path / "val.npz", tmp_path / "copy.npz")
    np.save(tmp_path / "val_labels.npy", np.load(tmp_path / "val.npz")["labels"])
    for command in (
        (
            "monitor",
            tmp_path / "cal.json",
            tmp_path / name,
            "--reference",
            tmp_path / "val.npz",
        ),
        ("evaluate", tmp_path / "cal.json", tmp_path / name),
        (
            "apply",
            tmp_path / "cal.json",
            tmp_path / name,
            "-o",
            tmp_path / "o.npz",
            "--risk",
            0.2,
        ),
    ):
        completed = hokical_command(*command, "--strict")
        assert completed.code == 1
        assert completed.err.count(OWN) == 1
        on_new_rows = [str(argument).replace(name, "new.npz") for argument in command]
        if "--reference" not in command or name != "val.npz":
            assert OWN not in hokical_command(*on_new_rows, "--strict").err


def test_the_verdict_names_the_class(tmp_path: Path) -> None:
    labels = np.arange(900) % 3
    logits = np.where(np.eye(3)[labels] > 0, 3.0, 0.0)
    wrong = np.where(
        (labels == 1) & (np.arange(900) % 2 > 0), 0, labels
    )  # half of the dogs
    np.savez(tmp_path / "val.npz", logits=logits, labels=np.roll(labels, 1))
    np.savez(tmp_path / "new.npz", logits=logits, labels=wrong)
    names, cal = ["--classes", "cat,dog,bird"], tmp_path / "cal.json"
    command = ["fit", tmp_path / "val.npz", "--method", "uncalibrated", "-o", cal]
    assert hokical_command(*command, *names).code == 0
    command = [
        "monitor",
        cal,
        tmp_path / "new.npz",
        "--reference",
        tmp_path / "new.npz",
    ]
    completed = hokical_command(*command)
    assert completed.code == 3
    assert "predicted class dog: confidence" in completed.out
    status = json.loads(hokical_command(*command, "--json").out)
    assert "predicted class dog: confidence" in status["verdict"]["text"]
    assert (status["classes"][0]["label"], status["classes"][0]["name"]) == (1, "dog")


def test_a_wrong_name_of_a_class_is_named(tmp_path: Path) -> None:
    text = "id,cat,dog,age,label\n1,2.0,1.0,7,cat\n2,0.5,1.5,8,dog\n"
    (tmp_path / "a.csv").write_text(text)
    fit = ("fit", tmp_path / "a.csv", "-o", tmp_path / "cal.json", "--method", "temps")
    assert (
        "not used: age" in hokical_command(*fit).words
    )  # columns named like the labels
    (tmp_path / "a.csv").write_text(text.replace(",dog\n", ",wolf\n"))
    assert "--score-columns cat,dog,age" in one_line(hokical_command(*fit))
    (tmp_path / "a.csv").write_text(text)
    assert "`dgo`" in one_line(hokical_command(*fit, "--score-columns", "cat,dgo"))
    numbered = text.replace("cat,dog,age", "logit_0,logit_1,dog", 1)
    (tmp_path / "a.csv").write_text(numbered)  # a column of that name that is no class
    assert hokical_command(*fit, "--classes", "cat,dog").code == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_class_may_be_called_id_if_it_is_named(tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    logits, labels = synthetic_logits(120, 3, seed=1)
    names, path = ("en", "de", "id"), tmp_path / f"lang.{suffix}"
    columns = dict(zip(names, logits.T, strict=True)) | {
        "label": np.array(names)[labels]
    }
    hokical.io.write_table(path, columns)
    cal, out = tmp_path / "cal.json", tmp_path / "out.csv"
    fit = ("fit", path, "-o", cal, "--method", "temps", "--classes")
    done = hokical_command(*fit, ",".join(names))
    assert done.code == 0, done.err
    assert "120 examples, accuracy " in done.out
    assert "classes    3: en, de, id\n" in done.out
    assert hokical_command("apply", cal, path, "-o", out).code == 0
    lines = out.read_text().splitlines()
    assert lines[0] == "label,confidence"
    assert [line.split(",")[0] for line in lines[1:]] == [
        names[k] for k in logits.argmax(axis=1)
    ]
    assert hokical_command("evaluate", cal, path).code == 0
    assert hokical_command("monitor", cal, path, "--reference", path).code == 0
    completed = hokical_command("apply", cal, path, "-o", out, "--keep", "id")
    assert completed.code == 0, completed.err
    assert float(out.read_text().splitlines()[1].split(",")[0]) == logits[0, 2]


def test_names_of_labels_of_one_score_need_an_option(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("risk,label\n1.5,yes\n-0.5,no\n")
    fit = (
        "fit",
        tmp_path / "a.csv",
        "-o",
        tmp_path / "cal.json",
        "--score-columns",
        "risk",
    )
    assert "Name the classes, class 0 first: --classes" in one_line(
        hokical_command(*fit)
    )


def test_a_folder_without_rows_is_named(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "folder"
    folder.mkdir()
    none = {
        name: pa.array([], pa.float64()) for name in ("logit_0", "logit_1", "label")
    }
    pq.write_table(pa.table(none), folder / "a.parquet")
    refused = one_line(hokical_command("fit", folder, "-o", tmp_path / "cal.json"))
    assert f"{folder}: a source must have at least one row" in refused


def test_unknown_differences_are_not_shown_as_numbers(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(90, 3, seed=1)
    impossible = np.where(np.eye(3)[labels] > 0, -np.inf, 0.0)
    test = {"test_logits": impossible, "test_labels": labels}
    np.savez(tmp_path / "d.npz", val_logits=logits, val_labels=labels, **test)
    for command in (("compare", "--methods", "temps"), ("evaluate",)):
        completed = hokical_command(*command, tmp_path / "d.npz")
        assert completed.code == 0, completed.err
        assert "infinite" in completed.out
        assert not {"nan", "+nan", "inf"} & set(completed.out.split())
        strict = hokical_command(*command, tmp_path / "d.npz", "--json").out
        assert "null" in strict
        json.loads(strict, parse_constant=pytest.fail)


def test_the_file_stays_small(tmp_path: Path) -> None:
    beside = json.loads(fit(tmp_path, "--probabilities").read_text())["beside"]
    assert set(beside) == {"examples", "accuracy", "classes", "scores", "zeros"}
    with pytest.raises(CalibratorFileError):
        hokical.load(tmp_path / "val.csv")


@pytest.mark.parametrize("command", ["apply", "monitor"])
def test_probabilities_given_to_a_calibrator_of_logits_are_noticed(
    tmp_path: Path, command: str
) -> None:
    logits, labels = synthetic_logits(120, 3, seed=3)
    val, test, path = (tmp_path / name for name in ("val.npz", "test.npz", "cal.json"))
    np.savez(val, logits=logits, labels=labels)
    np.savez(test, logits=softmax(logits, axis=1), labels=labels)
    assert hokical_command("fit", val, "--method", "temps", "-o", path).code == 0
    words = [command, path, test]
    words += (
        ["-o", tmp_path / "out.csv"] if command == "apply" else ["--reference", val]
    )
    assert "look like probabilities" in hokical_command(*words).words
    assert hokical_command(*words, "--strict").code == (
        1 if command == "apply" else 3
    )  # an alarm


def test_a_method_for_two_classes_is_refused_with_more(tmp_path: Path) -> None:
    val, output = table(tmp_path / "val.csv", 1), tmp_path / "cal.json"
    done = hokical_command(
        "fit", val, "--probabilities", "--method", "platt", "-o", output
    )
    assert "`platt` takes two classes; got 3" in one_line(done)
    assert not output.exists()


def test_classes_in_another_order_than_the_fit_are_refused(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(300, 3, seed=1)
    np.savez(tmp_path / "val.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "new.npz", logits=logits[::-1] + 0.1, labels=labels[::-1])
    cal = tmp_path / "cal.json"
    fit = ("fit", tmp_path / "val.npz", "--method", "temps", "-o", cal)
    assert hokical_command(*fit, "--classes", "cat,dog,bird").code == 0
    words = ("evaluate", cal, tmp_path / "new.npz")
    refused = hokical_command(*words, "--classes", "dog,cat,bird")
    assert refused.code == 2
    assert (
        "must be in the order of the fit, cat, dog, bird; got dog, cat, bird. "
        "Leave it out: the calibrator knows them." in refused.words
    )
    completed = hokical_command(*words, "--classes", "cat,dog,bird")
    assert completed.code == 0, completed.err
