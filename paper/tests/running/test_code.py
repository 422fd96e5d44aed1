"""The code that results depend on: what is covered, what is not, and what is an
error.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hokical
import hokical_paper
from hokical_paper.running import code, experiments
from hokical_paper.running.methods import INPUT_METHODS, METHODS
from hokical_paper.suite.manifest import open_suite

#: A package whose entry module leads to everything but `other`.
TOY = {
    "__init__": '__version__ = "1"',
    "entry": "from typing import TYPE_CHECKING\n"
    "from toy.facade import double\n"
    "if TYPE_CHECKING:\n    from toy.other import Other\n"
    "def run():\n    from toy import lazy\n    return double(lazy.ONE)\n",
    "lazy": "ONE = 1\n",
    "other": "class Other: pass\n",
    "facade/__init__": '"""Only names."""\n'
    "from toy.facade import effects as _effects\n"
    "from .numbers import twice as double\nfrom .words import say\n"
    '__all__ = ["double", "say"]\n',
    "facade/effects": "REGISTERED = True\n",
    "facade/numbers": "def twice(x):\n    return 2 * x\n",
    "facade/words": "def say(): pass\n",
}


def write_toy(folder: Path, **changes: str | None) -> Path:
    """The package with some modules changed, or left out where the source is None."""
    for name, source in (TOY | changes).items():
        path = folder / "toy" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        if source is not None:
            path.write_text(source)
    return folder


def toy_sources(folder: Path) -> dict[str, str]:
    """What the entry module of the package in this folder leads to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setattr(code, "PACKAGES", ("toy",))
        for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
            del sys.modules[name]
        code._read.cache_clear()
        return code.executed_sources("toy.entry")


def test_imports_are_followed_by_name(tmp_path: Path) -> None:
    found = toy_sources(write_toy(tmp_path))
    executed = {
        "toy",
        "toy.entry",
        "toy.lazy",
        "toy.facade.numbers",
        "toy.facade.effects",
    }
    assert set(found) == executed
    assert found["toy.lazy"] == TOY["lazy"]


def test_folders_and_unrelated_modules_do_not_matter(tmp_path: Path) -> None:
    here = toy_sources(write_toy(tmp_path / "here"))
    changes = {
        "other": "CHANGED = 1",
        "new": "NEW = 1",
        "facade/words": "def say(): return 1",
    }
    assert toy_sources(write_toy(tmp_path / "there", **changes)) == here


@pytest.mark.parametrize(
    "name", ["__init__", "entry", "lazy", "facade/numbers", "facade/effects"]
)
def test_every_change_of_executed_code_counts(tmp_path: Path, name: str) -> None:
    before = toy_sources(write_toy(tmp_path / "before"))
    changed = {name: TOY[name] + "\nCHANGED = 1\n"}
    assert toy_sources(write_toy(tmp_path / "after", **changed)) != before


@pytest.mark.parametrize("name", ["lazy", "facade/numbers", "facade/effects"])
def test_a_missing_module_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(code.CodeNotFoundError, match=r"no source found for toy\."):
        toy_sources(write_toy(tmp_path, **{name: None}))


@pytest.mark.slow
@pytest.mark.parametrize("method", [*METHODS, *INPUT_METHODS])
def test_every_executed_function_is_covered(
    suite_folder: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The method is run under a tracer: no module with an executed function may be
    missing.
    """
    monkeypatch.setattr(experiments, "N_DRAWS", 4)
    pair = open_suite(suite_folder).pairs[0]
    data = pair.load()
    executed: set[str] = set()
    hokical.calibrators.method_names()  # loads this package's methods, which run none of each other

    def trace(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            executed.add(frame.f_globals.get("__name__", ""))

    before = sys.getprofile()
    sys.setprofile(trace)
    threading.setprofile(trace)
    try:
        experiments.run_method(pair, data, method)
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
    ours = {name for name in executed if name.partition(".")[0] in code.PACKAGES}
    # Other tests may have loaded PyTorch, whose kernels are then asked whether they are
    # usable.
    ours = {name for name in ours if not name.startswith("hokical.integrations")}
    assert len(ours) > 10
    covered = code.executed_sources(*experiments.entry_modules(method))
    assert ours <= set(covered)


@pytest.mark.slow
def test_showing_results_is_not_covered() -> None:
    shown = (
        "hokical.cli",
        "hokical.monitoring",
        "hokical.report",
        "hokical_paper.tables.builders",
    )
    for method in (*METHODS, *INPUT_METHODS):
        covered = code.executed_sources(*experiments.entry_modules(method))
        assert not [name for name in covered if name.startswith(shown)]


#: Run on a copy of both packages.
IN_A_COPY = """
import inspect, sys
from pathlib import Path
import hokical_paper, hokical_paper.running.experiments
from hokical.metrics import ece
from hokical_paper.running import code

root = Path(hokical_paper.__file__).parents[1]
assert root == Path(sys.argv[1]), root

def digest():
    code.code_digest.cache_clear()
    code._read.cache_clear()
    return code.code_digest(*entries)

entries = hokical_paper.running.experiments.entry_modules("temps")
first = digest()
print(first)
(root / "hokical" / "cli" / "new.py").write_text("NEW = 1")
for unrelated in ("hokical/cli/fitting.py", "hokical_paper/tables/builders.py"):
    (root / unrelated).write_text((root / unrelated).read_text() + "\\nCHANGED = 1\\n")
assert digest() == first, "unrelated files count"
path = Path(inspect.getsourcefile(ece))
body, start = inspect.getsourcelines(ece)
lines = path.read_text().splitlines()
lines.insert(start + len(body) - 2, "    assert True")
path.write_text("\\n".join(lines))
assert digest() != first, "an executed function does not count"
found = code.executed_sources(*entries)
name = next(name for name in found if name.startswith("hokical._fitting."))
(root / name.replace(".", "/")).with_suffix(".py").unlink()
try:
    digest()
except code.CodeNotFoundError as error:
    assert name in str(error)
else:
    raise AssertionError("a missing module is not covered and not an error")
"""


@pytest.mark.slow
def test_a_changed_function_changes_the_digest_of_a_copy(tmp_path: Path) -> None:
    for package in (hokical, hokical_paper):
        folder = Path(package.__file__).parent
        ignored = shutil.ignore_patterns("__pycache__", "*.npz")
        shutil.copytree(folder, tmp_path / folder.name, ignore=ignored)
    done = subprocess.run(
        [sys.executable, "-c", IN_A_COPY, str(tmp_path)],
        env={"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    code._read.cache_clear()
    code.code_digest.cache_clear()
    assert done.stdout.strip() == code.code_digest(*experiments.entry_modules("temps"))
