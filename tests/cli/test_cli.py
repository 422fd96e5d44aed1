"""Every command, through typer's runner and, for what only a process shows, the
entry point.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hokical
from hokical.calibrators import method_names
from tests.cli.running import hokical_command, one_line, process
from tests.conftest import synthetic_logits

COMMANDS = (
    "fit",
    "apply",
    "evaluate",
    "compare",
    "monitor",
    "export",
    "demo",
    "methods",
    "show",
    "certify",
    "shift",
)
HOKI = ("--method", "hoki", "--set", "noise=gaussian:2.5")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file with both parts, 400 examples each of 4 classes."""
    val, test = (synthetic_logits(400, 4, seed=seed) for seed in (1, 2))
    path = tmp_path / "data.npz"
    np.savez(
        path,
        val_logits=val[0],
        val_labels=val[1],
        test_logits=test[0],
        test_labels=test[1],
    )
    return path


@pytest.fixture
def calibrator(tmp_path: Path, data: Path) -> Path:
    path = tmp_path / "cal.json"
    assert hokical_command("fit", data, "-o", path, *HOKI).code == 0
    return path


# fit and apply


def test_fit_then_apply_equals_the_library(tmp_path: Path, data: Path) -> None:
    path = tmp_path / "cal.json"
    fitted = hokical_command("fit", data, "-o", path, "--method", "hoki")
    assert fitted.code == 0
    assert "400 examples, accuracy " in fitted.out
    assert "val part" in fitted.err
    applied = hokical_command(
        "apply", path, data, "-o", tmp_path / "out.npz", "--proba"
    )
    assert applied.code == 0
    with np.load(data) as raw, np.load(tmp_path / "out.npz") as out:
        in_python = hokical.Hoki().fit(raw["val_logits"], raw["val_labels"])
        logits = raw["test_logits"]
        assert np.array_equal(out["labels"], in_python.predict(logits))
        assert np.array_equal(out["confidence"], in_python.predict_confidence(logits))
        assert np.array_equal(out["probabilities"], in_python.predict_proba(logits))


def test_fit_options_reach_hoki(tmp_path: Path, data: Path) -> None:
    path = tmp_path / "cal.json"
    chosen = ("noise=uniform:-2,4", "draws=50", "n_bins=7", "random_state=3")
    options = (
        "--method",
        "hoki",
        *(argument for setting in chosen for argument in ("--set", setting)),
    )
    summary = hokical_command("fit", data, "-o", path, *options, "--json").json
    assert summary["learned"]["noise"] == {
        "family": "uniform",
        "low": -2.0,
        "high": 4.0,
    }
    loaded = hokical.load(path)
    assert (loaded.draws, loaded.n_bins, loaded.draws_.seed) == (50, 7, 3)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [n for n in method_names(3) if n != "hoki"])
def test_every_method_can_be_fitted_and_applied(
    tmp_path: Path, data: Path, name: str
) -> None:
    path, out = tmp_path / "cal.json", tmp_path / "out.npz"
    assert hokical_command("fit", data, "-o", path, "--method", name, "--json").json[
        "method"
    ]
    summary = hokical_command("apply", path, data, "-o", out, "--json").json
    assert summary["examples"] == 400
    assert summary["arrays"] == ["labels", "confidence"]


def test_fit_passes_warnings_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", logits=np.eye(3) * 9.0, labels=np.arange(3))
    completed = hokical_command(
        "fit", tmp_path / "a.npz", "-o", tmp_path / "c.json", "--method=temps"
    )
    assert completed.code == 0
    assert "Warning: " in completed.err
    assert "Warning" not in completed.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "nonsense"), "no method 'nonsense'; there are uncalibrated"),
        (("--method", "temps", "--set", "draws=9"), "option of temps"),
        ((*HOKI[:3], "noise=gaussian:-1"), "must be a number from 1e-100"),
        ((*HOKI[:3], "noise=triangle:1"), "family must be one of"),
        ((*HOKI[:3], "draws=few"), "`draws` must be an integer from 1"),
        (("--colour", "red"), "--colour"),
        (("--split", "train"), "--split"),
    ],
)
def test_bad_options_of_fit(
    tmp_path: Path, data: Path, options: tuple[str, ...], message: str
) -> None:
    refused = hokical_command("fit", data, "-o", tmp_path / "cal.json", *options)
    assert message in one_line(refused)
    assert not (tmp_path / "cal.json").exists()


# evaluate, compare, demo


def test_evaluate_shows_before_and_after(data: Path, calibrator: Path) -> None:
    methods = hokical_command("evaluate", calibrator, data, "--json").methods
    assert list(methods) == ["uncalibrated", "hoki"]
    before, after = (methods[name]["estimates"]["ece"]["value"] for name in methods)
    assert after < before
    shown = hokical_command("evaluate", calibrator, data, columns=80)
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "…" not in shown.out
    assert f"{before:.4f}" in shown.out
    assert "With 95% confidence the calibration error is below" in shown.words


def test_evaluate_needs_data_beside_a_calibrator(calibrator: Path) -> None:
    assert "FILE: is missing" in one_line(hokical_command("evaluate", calibrator))


def test_compare_of_one_file_with_two_parts(data: Path) -> None:
    summary = hokical_command(
        "compare", data, "--methods", "temps, hoki", "--json"
    ).json
    assert [row["method"] for row in summary["methods"]] == [
        "uncalibrated",
        "temps",
        "hoki",
    ]
    assert summary["report"] is None
    assert summary["validation"]["n_rows"] == 400


@pytest.mark.parametrize("columns", [80, 120])
def test_compare_fits_the_terminal(data: Path, columns: int) -> None:
    completed = hokical_command("compare", data, "--methods=temps", columns=columns)
    assert completed.code == 0
    assert max(map(len, completed.out.splitlines())) <= columns
    assert "uncalibrated" in completed.out
    assert "…" not in completed.out
    assert "the calibration error (ECE) fell from" in completed.words


def test_compare_writes_a_report_and_says_where(tmp_path: Path, data: Path) -> None:
    report = tmp_path / "report.html"
    completed = hokical_command(
        "compare", data, "--methods=temps", "--report", report, "--json"
    )
    assert completed.json["report"] == str(report)
    assert str(report) in completed.err
    assert "<html" in report.read_text(encoding="utf-8")


def test_compare_of_npy_pairs_and_the_same_data_twice(tmp_path: Path) -> None:
    logits, labels = synthetic_logits(200, 3, seed=4)
    np.save(tmp_path / "a_logits.npy", logits)
    np.save(tmp_path / "a_labels.npy", labels)
    path = tmp_path / "a_logits.npy"
    completed = hokical_command("compare", path, path, "--methods=temps")
    assert completed.code == 0
    assert (
        "a_logits.npy holds the examples that the calibrator was fitted on"
        in completed.err
    )


def test_bad_usage_of_compare(tmp_path: Path, data: Path) -> None:
    logits, labels = synthetic_logits(50, 3, seed=4)
    np.savez(tmp_path / "other.npz", logits=logits, labels=labels)
    one_part = tmp_path / "other.npz"
    assert "pass TEST" in one_line(hokical_command("compare", one_part))
    assert "one column per class" in one_line(
        hokical_command("compare", data, one_part)
    )
    assert "at least one" in one_line(
        hokical_command("compare", data, "--methods", ",")
    )


@pytest.mark.slow
def test_demo_writes_its_report_here(tmp_path: Path) -> None:
    """All of it, on fewer digits; `make demo` is the whole."""
    fewer = (
        "import hokical.demo as shipped; all_of = shipped.demo_logits\n"
        "shipped.demo_logits = lambda: tuple((x[:800], y[:800]) for x, y in all_of())"
    )
    completed = process(
        "demo", cwd=tmp_path, env=os.environ | {"COLUMNS": "80"}, code=fewer
    )
    assert completed.code == 0, completed.err
    for name in method_names():
        assert (name in completed.out) == (name in method_names(10))
    assert "…" not in completed.out
    assert str(tmp_path / "report.html") in completed.err
    assert (tmp_path / "report.html").stat().st_size > 10_000


# methods


@pytest.mark.parametrize("columns", [80, 120])
def test_methods_lists_every_method(columns: int) -> None:
    shown = hokical_command("methods", columns=columns)
    printed = shown.out.split()
    assert all(name in printed for name in method_names())
    assert max(map(len, shown.out.splitlines())) <= columns
    rows = hokical_command("methods", "--json").json
    assert [row["name"] for row in rows] == ["auto", *method_names()]


# help, version, errors


@pytest.mark.slow
def test_help_documents_exit_codes_and_completion() -> None:
    shown = hokical_command("--help")
    assert "Exit codes: 0 done; 1" in shown.out
    assert "--install-completion" in shown.out
    assert "paper" in shown.out
    for command in COMMANDS:
        assert command in shown.out
        page = hokical_command(command, "--help", columns=80)
        assert "Exit codes" in page.out
        assert "--json" in page.out
        assert "…" not in page.out or command == "export"  # which has longer names


@pytest.mark.slow
def test_version_and_help_load_nothing_heavy() -> None:
    heavy = ("sklearn", "scipy", "numba", "pyarrow", "matplotlib")
    after = (
        f"import atexit, sys; atexit.register(lambda: print([m for m in {heavy} if m "
        "in "
    )
    completed = process("--version", code=after + "sys.modules]))")
    assert completed.out.splitlines() == [f"hokical {hokical.__version__}", "[]"]


@pytest.mark.slow
def test_shell_completion_knows_the_commands() -> None:
    environment = {
        "_HOKICAL_COMPLETE": "complete_bash",
        "COMP_WORDS": "hokical e",
        "COMP_CWORD": "1",
    }
    assert process(env=os.environ | environment).out.split() == ["evaluate", "export"]


def test_unknown_commands_and_options() -> None:
    assert "--nonsense" in one_line(hokical_command("--nonsense"))
    assert "nonsense" in one_line(hokical_command("nonsense"))
    assert hokical_command().code in (0, 2)


def bad_file(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.npz"
    logits, labels = synthetic_logits(50, 4, seed=3)
    if kind == "directory":
        path.mkdir()
    elif kind == "truncated":
        np.savez(path, logits=logits, labels=labels)
        path.write_bytes(path.read_bytes()[:900])
    elif kind == "wrong shapes":
        np.savez(path, logits=logits[:, 0], labels=labels)
    elif kind == "0 rows":
        np.savez(path, logits=logits[:0], labels=labels[:0])
    elif kind == "missing keys":
        np.savez(path, a=logits, b=labels)
    elif kind == "objects":
        np.savez(path, logits=logits.astype(object), labels=labels)
    elif kind == "NaN":
        np.savez(path, logits=logits * np.nan, labels=labels)
    elif kind != "absent":
        path.write_text("" if kind == "empty" else "This is not a table.\n")
    return path


BAD_FILES = (
    "empty",
    "truncated",
    "wrong shapes",
    "text",
    "0 rows",
    "directory",
    "missing keys",
    "objects",
    "NaN",
    "absent",
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files_end_in_one_line_and_touch_no_output(
    tmp_path: Path, data: Path, calibrator: Path, kind: str
) -> None:
    bad, old = bad_file(tmp_path, kind), tmp_path / "old.npz"
    old.write_text("precious")
    page = tmp_path / "page.html"
    commands = (
        ("fit", bad, "-o", old),
        ("apply", calibrator, bad, "-o", old),
        ("apply", bad, data, "-o", old),
        ("evaluate", bad),
        ("evaluate", bad, data),
        ("compare", bad, data, "--report", page),
        ("compare", data, bad, "--report", page),
    )
    for command in commands:
        assert str(bad) in one_line(hokical_command(*command)), command
        assert old.read_text() == "precious"
        assert not page.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_outputs_are_checked_before_the_work(
    tmp_path: Path, data: Path, calibrator: Path
) -> None:
    assert "no folder" in one_line(
        hokical_command("fit", data, "-o", tmp_path / "no" / "c.json")
    )
    assert "not a file" in one_line(hokical_command("fit", data, "-o", tmp_path))
    assert "input too" in one_line(
        hokical_command("apply", calibrator, data, "-o", data)
    )
    assert "ends in .npz" in one_line(
        hokical_command("apply", calibrator, data, "-o", "out.xls")
    )
    assert "no folder" in one_line(
        hokical_command("demo", "--report", tmp_path / "no" / "r.html")
    )
    for command in (("demo",), ("evaluate", data), ("compare", data)):
        refused = one_line(hokical_command(*command, "--report", tmp_path / "r.pdf"))
        assert "ends in .html or .htm" in refused


def test_classes_must_match_the_calibrator(tmp_path: Path, calibrator: Path) -> None:
    logits, labels = synthetic_logits(50, 7, seed=3)
    np.savez(tmp_path / "seven.npz", logits=logits, labels=labels)
    refused = hokical_command(
        "apply", calibrator, tmp_path / "seven.npz", "-o", tmp_path / "o.npz"
    )
    assert "expecting 4" in one_line(refused)


@pytest.mark.parametrize("place", [0, 3])
def test_debug_shows_the_traceback(tmp_path: Path, place: int) -> None:
    words = ["evaluate", str(tmp_path / "absent.npz"), "--json"]
    found = hokical_command(*words[:place], "--debug", *words[place:])
    assert found.code == 2
    assert "Traceback" in found.err
    assert "Traceback" not in hokical_command(*words).err


def test_unexpected_failures_end_in_exit_code_1(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise MemoryError("too much")

    monkeypatch.setattr(hokical.Hoki, "fit", fail)
    completed = hokical_command(
        "fit", data, "-o", tmp_path / "cal.json", "--method", "hoki"
    )
    assert completed.code == 1
    assert "Error: too much. (MemoryError; --debug shows where)" in completed.err
    assert "Traceback" not in completed.err


@pytest.mark.slow
def test_interrupt_leaves_no_half_written_file(
    tmp_path: Path, data: Path, calibrator: Path
) -> None:
    """Ctrl-C arrives while the result is being written."""
    out = tmp_path / "out.npz"
    out.write_text("precious")
    before = sorted(tmp_path.iterdir())
    interrupt = (
        "import os, signal\n"
        # A shell has its background jobs ignore it, and their children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGINT)"
    )
    completed = process("apply", calibrator, data, "-o", out, code=interrupt)
    assert completed.code == 130
    assert "Interrupted" in completed.err
    assert "Traceback" not in completed.err
    assert out.read_text() == "precious"
    assert sorted(tmp_path.iterdir()) == before


def test_installed_command_is_the_entry_point() -> None:
    from importlib.metadata import entry_points

    (command,) = entry_points(group="console_scripts", name="hokical")
    assert command.value == "hokical.cli:main"
    assert callable(command.load())


@pytest.mark.slow
def test_the_package_is_the_command() -> None:
    command = [sys.executable, "-m", "hokical", "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.startswith(
        "hokical "
    )


# narrow terminals, closed pipes, odd numbers


@pytest.mark.sample(1)
@pytest.mark.parametrize("columns", [20, 40, 60])
def test_narrow_terminals_cut_nothing(
    data: Path, calibrator: Path, columns: int
) -> None:
    for command in (
        ("evaluate", calibrator, data),
        ("compare", data, "--methods=temps"),
        ("methods",),
    ):
        narrow = hokical_command(*command, columns=columns)
        assert narrow.code == 0, narrow.err
        assert "…" not in narrow.out
        if (
            command[0] != "compare"
        ):  # which has more columns where there is room, and times
            wide = hokical_command(*command, columns=200)
            assert narrow.out.split() == wide.out.split() or command[0] == "methods"
        else:
            assert re.search(
                r"\nuncalibrated( +\d+\.\d%){2}( +\d\.\d{4}){4}", narrow.out
            )


@pytest.mark.sample(1)
@pytest.mark.parametrize("words", ["methods", "methods --json", "--help"])
def test_a_closed_pipe_ends_in_exit_code_0(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    script = [
        sys.executable,
        "-c",
        "from hokical.cli import main\nmain()",
        *words.split(),
    ]
    done = subprocess.run(
        script, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
