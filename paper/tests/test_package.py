"""The distribution as a whole: what it imports, what it is called, what it contains."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest

import hokical
import hokical_paper
from hokical_paper.suite import manifest as suite

PACKAGE = Path(hokical_paper.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


def imported_names(path: Path) -> Iterator[str]:
    """The full name of everything that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def names_of_hokical(path: Path) -> Iterator[tuple[str, str]]:
    """Module and name of everything that a module imports from hokical."""
    for node in ast.walk(ast.parse(path.read_text())):
        module = node.module if isinstance(node, ast.ImportFrom) else None
        if module and module.partition(".")[0] == "hokical":
            yield from ((module, alias.name) for alias in node.names)


def test_only_one_folder_imports_what_hokical_does_not_export() -> None:
    """`hokical_paper.core` is the list of exceptions: all else is in an `__all__`."""
    for path in SOURCES:
        if path.parent == PACKAGE / "core":
            continue
        for module, name in names_of_hokical(path):
            assert not re.search(r"\._", module), f"{path}: {module}"
            assert name in import_module(module).__all__, f"{path}: {module}.{name}"


@pytest.mark.slow
def test_exceptions_are_used() -> None:
    """Each name that `hokical_paper.core` has from hokical is used outside of it."""
    text = "\n".join(
        path.read_text() for path in SOURCES if path.parent != PACKAGE / "core"
    )
    for path in (PACKAGE / "core").glob("*.py"):
        for _, name in names_of_hokical(path):
            assert re.search(rf"\b{name}\b", text), f"{path}: {name}"


@pytest.mark.slow
def test_hokical_does_not_import_the_paper() -> None:
    for path in Path(hokical.__file__).parent.rglob("*.py"):
        names = [name.partition(".")[0] for name in imported_names(path)]
        assert "hokical_paper" not in names, path


def test_class_names_are_unique() -> None:
    names = [
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_package_data_is_inside_the_package() -> None:
    folder = files("hokical_paper")
    assert (folder / "py.typed").is_file()
    assert {"page.css", "page.html"} <= {
        path.name for path in (folder / "pages").iterdir()
    }
    tables = [
        path for path in (folder / "published").iterdir() if path.name.endswith(".csv")
    ]
    assert len(tables) == 9


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", hokical_paper.__version__)


def test_the_suite_of_the_checkout_is_found() -> None:
    root = Path(__file__).resolve().parents[2]
    assert suite._checkout() == root
    assert suite.find_suite(root / "suite") == root / "suite"
