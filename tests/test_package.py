"""The package as a whole: what importing it costs, and what it guarantees in its
metadata.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import hokical

ROOT = Path(__file__).resolve().parents[1]
OPTIONAL = (
    "torch",
    "matplotlib",
    "onnx",
    "dask",
    "pyarrow",
    "numba",
    "rich",
    "typer",
    "scipy",
    "sklearn",
)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    loaded = run(
        f"import hokical, sys; print([m for m in {OPTIONAL} if m in sys.modules])"
    )
    assert loaded == "[]"


@pytest.mark.slow
def test_small_inputs_need_no_compiler() -> None:
    code = (
        "import numpy as np, sys; from hokical import Hoki;"
        "x = np.random.default_rng(0).normal(size=(1000, 10));"
        "cal = Hoki().fit(x, x.argmax(1) * (x.max(1) > 1)); cal.predict_proba(x);"
        "print('numba' in sys.modules)"
    )
    assert run(code) == "False"


@pytest.mark.slow
def test_a_first_fit_and_answer_need_little() -> None:
    code = (
        "import sys, hokical; from hokical.demo import demo_logits;"
        "(x, y), (z, _) = demo_logits(); hokical.make('temps').fit(x, "
        "y).predict_confidence(z);"
        f"print([m for m in {OPTIONAL} if m in sys.modules])"
    )
    assert run(code) == "[]"


def test_every_public_name_is_there() -> None:
    has_torch = find_spec("torch") is not None
    for name in hokical.__all__:
        if name == "calibrate" and not has_torch:
            with pytest.raises(ImportError, match=r"pip install '\.\[torch\]'"):
                hokical.calibrate  # noqa: B018
            continue
        assert getattr(hokical, name) is not None
        assert getattr(hokical, name).__doc__


def test_core_dependencies_are_few() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {requirement.split(">")[0] for requirement in project["dependencies"]}
    assert names == {
        "numpy",
        "array-api-compat",
        "scipy",
        "numba",
        "threadpoolctl",
        "typer",
        "rich",
    }
    extras = set(project["optional-dependencies"])
    assert {"sklearn", "plot", "torch", "onnx", "dask", "parquet", "all"} <= extras


#: Packages for PyTorch, which nothing else imports before it has met a tensor.
WITH_TORCH = ("integrations/torch",)


@pytest.mark.parametrize(
    "word",
    ["import torch", "from torch", "import matplotlib", "import pandas", "import onnx"],
)
def test_optional_libraries_are_imported_inside_functions(word: str) -> None:
    package = ROOT / "src" / "hokical"
    exempt = {path for name in WITH_TORCH for path in (package / name).rglob("*.py")}
    for path in set(package.rglob("*.py")) - exempt:
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.startswith(word)], path


WITHOUT_TORCH = """
import importlib.machinery, pkgutil, sys
import numpy as np

ABSENT = "torch onnx onnxruntime ndonnx spox jax triton".split()
PathFinder = importlib.machinery.PathFinder

class Present(PathFinder):
    @classmethod
    def find_spec(cls, name, *options):
        return None if name.split(".")[0] in ABSENT else PathFinder.find_spec(name, *options)

sys.meta_path[sys.meta_path.index(PathFinder)] = Present
import hokical
away = "integrations.torch", "integrations.onnx"
away = tuple(f"hokical.{name}" for name in away)
found = pkgutil.walk_packages(hokical.__path__, "hokical.", onerror=lambda name: None)
names = [module.name for module in found if not module.name.startswith(away)]
for name in names:
    importlib.import_module(name)
x = np.random.default_rng(0).normal(size=(500, 3))
cal = hokical.Hoki(noise=hokical.Gumbel(1.0)).fit(x, x.argmax(1) * (x.max(1) > 0.5))
print(len(names) > 50, cal.predict_confidence(x).shape)
"""


@pytest.mark.slow
def test_everything_else_works_without_torch_and_onnx() -> None:
    assert run(WITHOUT_TORCH) == "True (500,)"
