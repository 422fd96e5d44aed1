"""What a release consists of: its public names, its version, and how an index shows
the README.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import hokical

ROOT = Path(__file__).resolve().parents[1]
LISTED = (ROOT / "tests" / "public_names.txt").read_text("utf-8").split()
PACKAGES = sorted({name.partition(":")[0] for name in LISTED})
NEEDED = {
    "hokical.integrations.onnx": ("onnx", "ndonnx", "spox"),
    "hokical.integrations.torch": ("torch",),
}


def skip_without_needed(package: str) -> None:
    missing = [name for name in NEEDED.get(package, ()) if find_spec(name) is None]
    if missing:
        pytest.skip(f"{package} needs {missing}")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_appears_or_vanishes_unannounced(package: str) -> None:
    skip_without_needed(package)
    found = {f"{package}:{name}" for name in import_module(package).__all__}
    listed = {name for name in LISTED if name.startswith(f"{package}:")}
    if find_spec("torch") is None:
        listed.discard("hokical:calibrate")
    assert found == listed, (
        "public names changed: say so in CHANGELOG.md (a name that goes is deprecated "
        "first, see docs/production.md), then edit tests/public_names.txt: "
        f"{sorted(found ^ listed)}"
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_help_shows_signatures_and_the_parameters_they_have(package: str) -> None:
    skip_without_needed(package)
    for name in import_module(package).__all__:
        found = getattr(import_module(package), name)
        if not callable(found) or (
            isinstance(found, type) and issubclass(found, Exception)
        ):
            continue
        parts = [getattr(found, part) for part in dir(found) if part[0] != "_"]
        methods = [
            part for part in parts if inspect.isfunction(part) or inspect.ismethod(part)
        ]
        for public in (found, *methods):
            text = str(inspect.signature(public))
            assert "numpy._typing" not in text, f"{public}: annotations must be strings"
        section = re.search(
            r"\nParameters\n-+\n(.*?)(\n\n|$)", inspect.getdoc(found) or "", re.S
        )
        lines = re.findall(r"^\w.*", section[1], re.M) if section else []
        named = {
            each for line in lines for each in line.partition(" : ")[0].split(", ")
        }
        assert named <= set(inspect.signature(found).parameters), f"{package}:{name}"


def test_every_package_with_public_names_is_listed() -> None:
    folder = ROOT / "src" / "hokical"
    named = {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        )
        for path in folder.rglob("*.py")
        if "\n__all__ = " in path.read_text("utf-8")
    }
    # Of the first only the command is public, of the second the package around it.
    assert named - {"hokical.cli", "hokical.stability.noise"} == set(PACKAGES)


def test_one_version_everywhere() -> None:
    cited = re.search(
        r"^version: (.*)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M
    )
    newest = re.search(
        r"^## (\d\S*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M
    )
    assert cited is not None
    assert newest is not None
    assert cited[1] == newest[1] == hokical.__version__
    paper = tomllib.loads((ROOT / "paper" / "pyproject.toml").read_text("utf-8"))
    lower, upper = re.findall(
        r"hokical>=([\d.]+),<([\d.]+)", str(paper["project"]["dependencies"])
    )[0]
    assert hokical.__version__.startswith(f"{lower}.")
    assert not hokical.__version__.startswith(f"{upper}.")


def test_an_index_shows_a_readme_without_broken_links() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / "README.md").read_text("utf-8")
    for rule in hook["substitutions"]:
        text, count = re.subn(rule["pattern"], rule["replacement"], text)
        assert count, f"{rule['pattern']} is not in README.md any more"
    assert not re.findall(r"\]\((?!https?:)[^)]*\)", text)
    assert "\n    make " not in text
    assert "pip install hokical " in text
    assert "pip install ." not in text


def test_pages_say_how_to_get_hokical(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the address of the project, once it has one; until then, from a clone."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    clone_command = import_module("addresses").clone_command()
    by_hand = "hokical is not on a package index yet; install it from a clone"
    for name in ("README.md", "docs/index.md"):
        text = (ROOT / name).read_text("utf-8")
        assert (clone_command or by_hand) in text, name


def test_nothing_says_to_install_from_an_index() -> None:
    """Where it cannot be found yet; the pages of an index are made by substitutions."""
    folders = [ROOT / name for name in ("src", "docs", "examples", "paper/src")]
    files = [path for folder in folders for path in folder.rglob("*.*")]
    for path in [ROOT / "README.md", *files]:
        if path.suffix in (".py", ".md"):
            text = path.read_text("utf-8")
            assert not re.search(r"pip install ['\"]?hokical", text), path


def test_actions_of_others_are_pinned() -> None:
    """A tag can be moved, a hash cannot; the comment says which version it is."""
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for used in re.findall(r"uses: (.*)", workflow.read_text("utf-8")):
            pinned = re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used)
            assert pinned or used.startswith("./"), f"{workflow.name}: {used}"


def test_a_monitor_of_this_release_is_read_and_goes_on() -> None:
    monitor = hokical.CalibrationMonitor.load(
        ROOT / "tests" / "monitoring" / "golden" / "monitor-0.6.json"
    )
    status = monitor.status()
    assert (status.n, status.n_window, status.n_waiting) == (700, 120, 0)
    assert monitor.update([0.9], [True]).status().n == 701


def test_words_that_are_not_those_of_the_field_stay_away() -> None:
    """A guarantee is called a guarantee, in code, messages, help and documentation."""
    coined = re.compile(r"promis|foretold|hopeless|spoilt", re.IGNORECASE)
    places = [*(ROOT / "src").rglob("*.py"), *(ROOT / "paper" / "src").rglob("*.py")]
    places += [
        path
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "changelog.md" and path.parent.name not in ("api", "evidence")
    ]
    places += [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    places += (ROOT / ".github").glob("*.md")
    found = [path.name for path in places if coined.search(path.read_text("utf-8"))]
    assert not found
