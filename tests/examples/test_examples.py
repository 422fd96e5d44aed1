"""The programs under `examples/` run, and print what their readers want to see."""

from __future__ import annotations

import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
#: Each program, the package it needs, and what it prints.
PRINTS = {
    "arrow_batches": ("pyarrow", r"'set': \[.*10,000 rows in batches"),
    "cascade": (
        "numpy",
        r"at most 0\.1 at the threshold.*small .*person .*errors: [0-9]\.[0-9]%",
    ),
    "clinical_risk": (
        "sklearn",
        r"95 % interval.*calibration slope.*net benefit.*Recall of class .* at least "
        r"90%",
    ),
    "compare_methods": ("sklearn", r"digits.*log loss.*Automatic.*wine"),
    "language_model": ("numpy", r"all +log loss .*of each group.*legal +answers"),
    "monitor_late_labels": ("numpy", r"no change; with labels: calibrated.*alarm"),
    "pytorch_network": ("torch", r"softmax .*calibrated .*At most 5%"),
    "segmentation": ("numpy", r"ECE .* before.*At most 10%"),
    "sklearn_model": (
        "sklearn",
        r"CalibratedClassifier +accuracy.*Coverage at least 90%",
    ),
    "tabular_groups": ("pandas", r"west: .*no group of 4 is clearly miscalibrated"),
}


def test_every_program_is_tested_and_listed() -> None:
    found = {path.stem for path in FOLDER.glob("*.py")}
    assert found == set(PRINTS)
    listed = re.findall(r"\]\((\w+)\.py\)", (FOLDER / "README.md").read_text("utf-8"))
    assert set(listed) == found


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", sorted(PRINTS))
def test_a_program_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    needs, pattern = PRINTS[name]
    if find_spec(needs) is None:
        pytest.skip(f"{name}.py needs {needs}")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert re.search(pattern, capsys.readouterr().out, re.DOTALL)
