"""Install the wheel, not the source tree, into clean environments, and use it as a
stranger would.

    python tools/smoke_wheel.py             # the Python that runs this python
    tools/smoke_wheel.py --all       # every supported Python that is installed python
    tools/smoke_wheel.py --lowest    # the oldest dependencies that pyproject.toml
    allows python tools/smoke_wheel.py --tests     # and the tests of methods, metrics
    and guarantees

Each environment gets the package without extras, and in the end with scikit-learn's.
`uv` makes and fills it where it is installed, otherwise `venv` and `pip`; `--lowest`
needs `uv`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: With `t`: without the global interpreter lock.
SUPPORTED = ("3.11", "3.12", "3.13", "3.14", "3.13t", "3.14t")
#: Of the wheel, 2.8 MB are the two sets of logits that the demos use.
MOST_BYTES = 4_000_000
#: Not with the oldest: `predict_confidence` and `predict_proba` of `irm` differ by
#: 6e-16.
NEWER = ("tests/calibrators/test_irm.py::test_it_agrees_on_real_logits",)
#: What `--tests` runs, and what it needs beside the package.
TESTS = ("tests/calibrators", "tests/metrics", "tests/guarantees")
TEST_TOOLS = (
    "pytest>=8",
    "hypothesis",
    "pytest-timeout",
    "pytest-xdist",
    "pandas>=2.2",
)

FIT = """
import hokical
from hokical.demo import demo_logits

(val_logits, val_labels), (test_logits, _) = demo_logits()
for name in ("hoki", "temps", "auto"):
    cal = hokical.make(name).fit(val_logits, val_labels)
    cal.save(f"{name}.json")
assert abs(cal.predict_proba(test_logits).sum() - len(test_logits)) < 1e-6
try:
    hokical.CalibratedClassifier
except ImportError as error:
    assert ".[sklearn]" in str(error)
else:
    raise SystemExit("scikit-learn must be an extra.")
"""
WITH_SKLEARN = """
from importlib.metadata import version

from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hokical

print("with scikit-learn", version("scikit-learn"))
X, y = load_digits(return_X_y=True)
scaled = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
wrapped = hokical.CalibratedClassifier(scaled, method="temps", ensemble=False)
model = clone(wrapped).fit(X, y)
assert model.score(X, y) > 0.9
"""
LOAD = """
import sys
import hokical
from hokical.demo import demo_logits

for name in ("hoki", "temps", "auto"):
    confidence = hokical.load(f"{name}.json").predict_confidence(demo_logits()[1][0])
    assert 0.88 < confidence.mean() < 0.95, confidence.mean()
assert not {"sklearn", "scipy", "numba"} & set(sys.modules), "loading must stay light"
"""
FACTS = """
import sys
from importlib.metadata import version

names = "hokical numpy scipy numba threadpoolctl array-api-compat typer rich".split()
locked = getattr(sys, "_is_gil_enabled", lambda: True)()
print(f"Python {sys.version.split()[0]}{'' if locked else ' without the lock'}:",
      ", ".join(f"{name} {version(name)}" for name in names))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--all", action="store_true", help="every supported Python found here"
    )
    which.add_argument(
        "--python", action="append", help="this interpreter; may be repeated"
    )
    parser.add_argument(
        "--lowest", action="store_true", help="oldest versions of dependencies"
    )
    parser.add_argument(
        "--tests", action="store_true", help="run a part of the tests with each"
    )
    options = parser.parse_args()
    pythons = options.python or (
        list(find_pythons()) if options.all else [sys.executable]
    )
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        for number, python in enumerate(pythons):
            place = Path(folder, str(number))
            place.mkdir()
            programs = install(wheel, python, place, lowest=options.lowest)
            smoke(programs, place)
            install(wheel, python, place, lowest=options.lowest, extra="sklearn")
            run([programs / "python", "-I", "-W", "error", "-c", WITH_SKLEARN], place)
            if options.tests:
                run_tests(programs, place, lowest=options.lowest)


def find_pythons() -> Iterator[str]:
    """One working interpreter per supported version: from the path, or one of
    pyenv's.
    """
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in SUPPORTED:
        threaded = version.endswith("t")
        found = sorted(
            kept.glob(f"{version.rstrip('t')}.*{'t' * threaded}/bin/python{version}")
        )
        candidates = [shutil.which(f"python{version}"), *map(str, reversed(found))]
        working = [path for path in candidates if path and works(path)]
        if working:
            yield working[0]
        else:
            print(f"Python {version} is not installed here: skipped", flush=True)


def works(python: str) -> bool:
    """Whether it starts; pyenv's shims exist for versions that do not."""
    return (
        subprocess.run([python, "-c", "import venv"], capture_output=True).returncode
        == 0
    )


def build_wheel(folder: Path) -> Path:
    run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT],
        folder,
    )
    (wheel,) = folder.glob("*.whl")
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size:,} bytes", flush=True)
    if size > MOST_BYTES:
        sys.exit(f"The wheel must have at most {MOST_BYTES:,} bytes; got {size:,}.")
    return wheel


def install(
    wheel: Path, python: str, place: Path, *, lowest: bool, extra: str = ""
) -> Path:
    """An environment with the wheel and what it requires, made if it is not there yet.

    Returns its folder of programs.
    """
    home = place / "env"
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    uv = find_uv()
    wanted = f"{wheel}[{extra}]" if extra else wheel
    if uv[-1]:
        if not home.exists():
            run([*uv, "venv", "-q", "--python", python, home], place)
        fill = [*uv, "pip", "install", "-q", "--python", programs / "python"]
        if lowest:  # only what is asked for by name counts as direct
            oldest = ["--resolution", "lowest-direct", "--only-binary", ":all:"]
            extras = ["--extra", extra] if extra else []
            run([*fill, *oldest, "-r", ROOT / "pyproject.toml", *extras], place)
        run([*fill, wanted], place)
    elif lowest:
        sys.exit("`--lowest` needs uv: pip install uv")
    else:
        run([python, "-m", "venv", home], place)
        run([programs / "python", "-m", "pip", "install", "-q", wanted], place)
    return programs


def smoke(programs: Path, place: Path) -> None:
    """Import, fit, save; load in a process without scikit-learn; the commands."""
    for code in (FACTS, FIT, LOAD):
        run([programs / "python", "-I", "-W", "error", "-c", code], place)
    quiet = {"stdout": subprocess.DEVNULL}
    run([programs / "hokical", "--help"], place, **quiet)
    run([programs / "hokical", "demo"], place, **quiet)
    if "<html" not in (place / "report.html").read_text("utf-8")[:500]:
        sys.exit("`hokical demo` wrote no report.")


def run_tests(programs: Path, place: Path, *, lowest: bool) -> None:
    """A part of the tests, on the installed wheel and the dependencies that it came
    with.
    """
    python = programs / "python"
    kept = place / "kept.txt"  # what tests need must not move what is tested
    names = [
        "numpy",
        "scipy",
        "numba",
        "scikit-learn",
        "threadpoolctl",
        "array-api-compat",
        "typer",
        "rich",
    ]
    code = (
        f"from importlib.metadata import version as v\nfor n in {names}: print(n + "
        "'==' + v(n))"
    )
    kept.write_text(subprocess.check_output([python, "-c", code], text=True))
    install_tools = [*find_uv(), "pip", "install", "-q", "--python", python, "-c", kept]
    run([*install_tools, *TEST_TOOLS], place)
    # Old libraries tell of what newer ones beside them will drop: no failure of ours.
    quiet = ["-W", "default::DeprecationWarning", "-p", "no:cacheprovider"]
    chosen = [
        "-n",
        "auto",
        "-m",
        "not slow and not cluster",
        "--hypothesis-profile",
        "few",
    ]
    left = [f"--deselect={name}" for name in NEWER if lowest]
    run([python, "-m", "pytest", *quiet, *chosen, *left, *TESTS], ROOT)


def find_uv() -> list[str | None]:
    """The command `uv`, [None] where it is not installed."""
    return [sys.executable, "-m", "uv"] if find_spec("uv") else [shutil.which("uv")]


def run(command: list[str | Path | None], place: Path, **options: int) -> None:
    # Without what could lead to the source tree.
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }
    done = subprocess.run(
        list(map(str, command)), cwd=place, env=environment, **options
    )  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{command[0]} failed with exit code {done.returncode}.")


if __name__ == "__main__":
    main()
