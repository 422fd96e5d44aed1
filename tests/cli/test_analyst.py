"""Tables in, tables out; what is inside a calibrator; how many examples; names;
help.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import hokical
from hokical.cli.options import complete_method
from tests.cli.running import hokical_command, one_line, process
from tests.cli.test_cli import COMMANDS
from tests.conftest import synthetic_logits
from tests.fitted import label_scores

NAMES = ("cat", "dog", "bird")


def write(path: Path, seed: int, *, columns: tuple[str, ...] = NAMES) -> Path:
    """A table with ids, a place, a column per class (in the given order), labels by
    name.
    """
    logits, labels = synthetic_logits(150, 3, seed=seed)
    order = [NAMES.index(name) for name in columns]
    rows = [
        [f"{row:04d}", "here, there", *map(repr, scores[order].tolist()), NAMES[label]]
        for row, (scores, label) in enumerate(zip(logits, labels, strict=True))
    ]
    header = ["id", "place", *columns, "label"]
    quoted = (
        [f'"{cell}"' if "," in cell else cell for cell in line]
        for line in (header, *rows)
    )
    path.write_text("\n".join(",".join(line) for line in quoted))
    return path


@pytest.fixture
def fitted(tmp_path: Path) -> Path:
    val, path = write(tmp_path / "val.csv", 1), tmp_path / "cal.json"
    done = hokical_command(
        "fit", val, "--classes", ",".join(NAMES), "--method", "temperature", "-o", path
    )
    assert done.code == 0, done.err
    return path


def test_apply_writes_a_row_per_row(tmp_path: Path, fitted: Path) -> None:
    new, out = write(tmp_path / "new.csv", 2), tmp_path / "out.csv"
    completed = hokical_command(
        "apply", fitted, new, "-o", out, "--proba", "--keep", "id,place"
    )
    assert completed.code == 0, completed.err
    lines = out.read_text().splitlines()
    assert lines[0] == (
        "id,place,label,confidence,probability_cat,probability_dog,probability_bird"
    )
    assert len(lines) == 151
    logits, _ = synthetic_logits(150, 3, seed=2)
    cal = hokical.load(fitted)
    labels, confidence = cal.predict(logits), cal.predict_confidence(logits)
    for row, line in enumerate(lines[1:]):
        assert line.startswith(f'{row:04d},"here, there",{NAMES[labels[row]]},')
        assert float(line.split(",")[4]) == pytest.approx(confidence[row])


def test_columns_to_keep_may_have_none_in_their_names(
    tmp_path: Path, fitted: Path
) -> None:
    new, out = write(tmp_path / "new.csv", 2), tmp_path / "out.csv"
    new.write_text(new.read_text().replace("place", "nonempty"))
    for keep, columns in (("nonempty", ["nonempty"]), ("none", [])):
        assert (
            hokical_command("apply", fitted, new, "-o", out, "--keep", keep).code == 0
        )
        assert out.read_text().splitlines()[0].split(",") == [
            *columns,
            "label",
            "confidence",
        ]


@pytest.mark.parametrize("suffix", ["csv.gz", "parquet", "npz"])
def test_apply_to_other_formats(tmp_path: Path, fitted: Path, suffix: str) -> None:
    new, out = write(tmp_path / "new.csv", 2), tmp_path / f"out.{suffix}"
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    completed = hokical_command("apply", fitted, new, "-o", out, "--keep", "all")
    assert completed.code == 0, completed.err
    if suffix == "csv.gz":
        header = gzip.decompress(out.read_bytes()).decode().splitlines()[0]
        assert header == "id,place,input_label,label,confidence"
    elif suffix == "npz":
        with np.load(out) as arrays:
            assert set(arrays) == {"id", "place", "label", "labels", "confidence"}
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        table = parquet.read_table(out)
        assert table.column_names == [
            "id",
            "place",
            "input_label",
            "label",
            "confidence",
        ]
        assert table.column("id")[7].as_py() == "0007"


def test_columns_are_found_in_the_order_of_the_fit(
    tmp_path: Path, fitted: Path
) -> None:
    outs = []
    for order in (NAMES, ("bird", "cat", "dog")):
        new = write(tmp_path / "new.csv", 2, columns=order)
        outs.append(tmp_path / f"{order[0]}.csv")
        assert hokical_command("apply", fitted, new, "-o", outs[-1]).code == 0
    assert outs[0].read_text() == outs[1].read_text()


def test_binary_scores_and_probabilities(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(200, 2, seed=3)
    chance = 1.0 / (1.0 + np.exp(logits[:, 0] - logits[:, 1]))
    text = [
        f"{c!r},{'yes' if label else 'no'}"
        for c, label in zip(chance.tolist(), labels, strict=True)
    ]
    val, path = tmp_path / "val.csv", tmp_path / "cal.json"
    val.write_text("\n".join(["risk,label", *text]))
    options = ("--score-columns", "risk", "--classes", "no,yes", "--method", "temps")
    unsure = hokical_command("fit", val, *options, "-o", path)
    assert "--probabilities or --logits" in unsure.err
    completed = hokical_command("fit", val, *options, "--probabilities", "-o", path)
    assert completed.code == 0
    assert "Warning" not in completed.err
    in_python = hokical.make("temps").fit(hokical.from_probabilities(chance), labels)
    assert hokical.load(path).rule_.temperature == pytest.approx(in_python.temperature_)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "out.csv",
            ("--keep", "nothing_such"),
            "named by --keep, --cluster or --id-column;",
        ),
        ("out.xlsx", (), "ends in .npz or .csv"),
        ("out.csv", ("-o", "other.csv"), "it was given more than once"),
    ],
)
def test_bad_options_of_apply(
    tmp_path: Path, fitted: Path, name: str, options: tuple[str, ...], message: str
) -> None:
    new, out = write(tmp_path / "new.csv", 2), tmp_path / name
    assert message in one_line(
        hokical_command("apply", fitted, new, "-o", out, *options)
    )
    assert not out.exists()


def test_show_tells_what_is_inside(fitted: Path) -> None:
    shown = hokical_command("show", fitted, columns=80)
    assert "Temperature scaling (temps)" in shown.out
    assert "3: cat, dog, bird" in shown.out
    assert "150 examples" in shown.out
    assert f"{hokical.load(fitted).rule_.temperature:.5g}" in shown.out
    values = hokical_command("show", fitted, "--json").json
    calibrator = hokical.load(fitted)
    assert values["learned"] == {"temperature": calibrator.rule_.temperature}
    assert (values["method"], values["title"]) == ("temps", "Temperature scaling")
    assert (values["n_classes"], values["classes"]) == (3, list(NAMES))
    assert (values["examples"], values["scores"]) == (150, "logits")
    counts = label_scores(calibrator)
    assert values["accuracy"] == pytest.approx(1.0 - counts.wrong.sum() / counts.total)
    assert (values["guarantee"]["risk"], values["guarantee"]["delta"]) == (0.05, 0.1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", ["auto", "hoki", "vecs", "irm"])
def test_show_of_other_methods(tmp_path: Path, method: str) -> None:
    logits, labels = synthetic_logits(200, 3, seed=1)
    cal = hokical.make(method).fit(logits, labels)
    cal.save(tmp_path / "cal.json")
    shown = hokical_command("show", tmp_path / "cal.json")
    assert shown.code == 0, shown.err
    learned = hokical_command("show", tmp_path / "cal.json", "--json").json["learned"]
    if method == "hoki":
        assert learned["noise"] == cal.noise_.to_dict()
    if method == "vecs":
        assert np.shape(learned["scale"]) == (3,)
    if method == "auto":
        assert cal.reason_ in shown.words
    if method == "hoki":
        assert repr(cal.noise_) in shown.out


@pytest.mark.parametrize(
    ("method", "n_classes", "base"),
    [
        ("auto", 4, "a scale and a bias for each of 4 classes, 2 shape terms"),
        ("auto", 32, ", a scale and a bias for each of 32 classes"),
        ("adaptive", 4, None),
    ],
)
def test_show_describes_a_base_and_a_correction(
    tmp_path: Path, method: str, n_classes: int, base: str | None
) -> None:
    logits, labels = synthetic_logits(1500, n_classes, seed=1)
    logits *= np.where(np.arange(1500) % 2, 0.3, 1.0)[:, None]
    logits[:, 0] -= 2.0
    cal = hokical.make(method).fit(logits, labels)
    assert cal.correction_ is not None
    cal.save(tmp_path / "cal.json")
    shown = hokical_command("show", tmp_path / "cal.json").out
    joined = re.sub(r"\n +", " ", shown)  # wrapped values
    lines = {line.split()[0]: line for line in joined.splitlines() if line}
    assert "a temperature and a shift of the label for each row" in lines["correction"]
    assert ("base" in lines) == (base is not None)
    assert base is None or base in lines["base"]
    assert "keep_labels" not in shown
    assert "array(" not in shown
    learned = hokical_command("show", tmp_path / "cal.json", "--json").json["learned"]
    assert len(learned["correction"]["shift"]) == 8


def test_show_of_no_calibrator(tmp_path: Path) -> None:
    (tmp_path / "cal.json").write_text("{}")
    one_line(hokical_command("show", tmp_path / "cal.json"))
    one_line(hokical_command("show", tmp_path / "absent.json"))


def test_names_of_methods_complete() -> None:
    assert complete_method("te") == ["temps"]
    assert {"auto", "hoki"} <= set(complete_method(""))


@pytest.mark.slow
def test_the_shell_completes_methods() -> None:
    """As bash asks: `hokical fit --method te<TAB>`."""
    shell = {
        "_HOKICAL_COMPLETE": "complete_bash",
        "COMP_WORDS": "hokical fit --method te",
    }
    completed = process(env={**os.environ, **shell, "COMP_CWORD": "3"})
    assert completed.out.split() == ["temps"], completed.err


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("isotonic", "scikit-learn's isotonic is nearest to `irova_ts`"),
        ("sigmoid", "scikit-learn's sigmoid is `platt`"),
        ("tempz", "Did you mean temps"),
        ("odirr", "Did you mean ms_odir"),
    ],
)
def test_unknown_methods_are_answered_with_a_question(
    tmp_path: Path, name: str, hint: str
) -> None:
    val = write(tmp_path / "val.csv", 1)
    error = one_line(
        hokical_command("fit", val, "--method", name, "-o", tmp_path / "cal.json")
    )
    assert hint in error
    with pytest.raises(ValueError, match=hint):
        hokical.make(name)


@pytest.mark.sample(4)
@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_fits_80_columns(command: tuple[str, ...]) -> None:
    shown = hokical_command(*command, "--help", columns=80).out
    assert max(map(len, shown.splitlines())) <= 80
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown


def test_the_default_method_is_auto(tmp_path: Path) -> None:
    val = tmp_path / "val.npz"
    logits, labels = synthetic_logits(120, 3, seed=1)
    np.savez(val, logits=logits, labels=labels)
    path = tmp_path / "cal.json"
    assert hokical_command("fit", val, "-o", path, "--json").json["method"] == "auto"
    assert json.loads(path.read_text())


def test_other_commands_take_the_same_scores(tmp_path: Path, fitted: Path) -> None:
    new, options = write(tmp_path / "new.csv", 2), ("--json",)
    methods = hokical_command("evaluate", fitted, new, *options).methods
    assert methods["temps"]["n"] == 150
    val, classes = tmp_path / "val.csv", ("--classes", ",".join(NAMES))
    command = (
        "compare",
        val,
        new,
        *classes,
        "--methods=temps",
        "--report",
        tmp_path / "r.html",
    )
    summary = hokical_command(*command, *options).json
    assert [row["method"] for row in summary["methods"]] == ["uncalibrated", "temps"]
    page = (tmp_path / "r.html").read_text("utf-8")
    assert all(f'"name":"{name}"' in page for name in NAMES)


@pytest.mark.filterwarnings("default::FutureWarning")
def test_a_retired_name_of_a_method_warns_and_works(tmp_path: Path) -> None:
    val = write(tmp_path / "val.csv", 1)
    options = ("--classes", ",".join(NAMES), "-o", tmp_path / "cal.json")
    fit = hokical_command("fit", val, "--method", "vector", *options)
    assert fit.code == 0, fit.err
    assert fit.err.count("'vector' is 'vecs' now") == 1
