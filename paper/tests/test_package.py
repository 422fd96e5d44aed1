"""The distribution as a whole: what it imports, what it is called, what it contains."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import hokical
import hokical_paper
from hokical_paper import suite

PACKAGE = Path(hokical_paper.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


def imported_names(path: Path) -> Iterator[str]:
    """The full name of everything that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_private_name_of_hokical_is_imported() -> None:
    """Its modules may be: the two distributions are released together."""
    for path in SOURCES:
        for name in imported_names(path):
            ours = name.partition(".")[0] == "hokical"
            assert not ours or not name.rpartition(".")[2].startswith("_"), (
                f"{path}: {name}"
            )


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
    assert {"page.css", "page.html", "py.typed"} <= {
        path.name for path in folder.iterdir()
    }
    assert len(list((folder / "published").iterdir())) == 9


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", hokical_paper.__version__)


def test_the_suite_of_the_checkout_is_found() -> None:
    root = Path(__file__).resolve().parents[2]
    assert suite._checkout() == root
    assert suite.find_suite(root / "suite") == root / "suite"
