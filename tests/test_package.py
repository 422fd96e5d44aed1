"""The package as a whole: what importing it costs, and what it promises in its metadata."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hokical

ROOT = Path(__file__).resolve().parents[1]
OPTIONAL = ("torch", "matplotlib", "onnx", "dask", "pyarrow", "numba", "rich", "typer")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    loaded = run(f"import hokical, sys; print([m for m in {OPTIONAL} if m in sys.modules])")
    assert loaded == "[]"


def test_small_inputs_need_no_compiler() -> None:
    code = (
        "import numpy as np, sys; from hokical import Hoki;"
        "x = np.random.default_rng(0).normal(size=(1000, 10));"
        "cal = Hoki().fit(x, x.argmax(1) * (x.max(1) > 1)); cal.predict_proba(x);"
        "print('numba' in sys.modules)"
    )
    assert run(code) == "False"


def test_every_public_name_is_there() -> None:
    for name in hokical.__all__:
        assert getattr(hokical, name) is not None
        assert getattr(hokical, name).__doc__


def test_core_dependencies_are_few() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {requirement.split(">")[0] for requirement in project["dependencies"]}
    assert names == {"numpy", "scipy", "scikit-learn", "numba", "typer", "rich"}
    extras = set(project["optional-dependencies"])
    assert {"plot", "torch", "onnx", "dask", "parquet", "paper", "all"} <= extras


@pytest.mark.parametrize("word", ["import torch", "import matplotlib", "import pandas"])
def test_optional_libraries_are_imported_inside_functions(word: str) -> None:
    package = ROOT / "src" / "hokical"
    for path in set(package.rglob("*.py")) - set((package / "paper" / "making").rglob("*.py")):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.startswith(word)], path
