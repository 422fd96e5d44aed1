"""Make the reference of the documentation from the packages: every public name, and nothing else.

    python tools/make_reference.py  # writes docs/api/; `make docs` does it

`docs/api/index.md` lists the names by package, with the first line of their docstrings; the other
pages hold the docstrings themselves, each name once, at the page of its package.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "api"
#: Page, its title, and the packages whose names it has.
PAGES = {
    "calibrators": (
        "Calibrators",
        ("hokical.calibrators", "hokical.rules", "hokical.stability", "hokical"),
    ),
    "evaluation": ("Evaluation", ("hokical.metrics", "hokical.report", "hokical.plots")),
    "guarantees": ("Guarantees and monitoring", ("hokical.guarantees", "hokical.monitoring")),
    "data": ("Files, streams and maps", ("hokical.io", "hokical.streams", "hokical.dense")),
    "integrations": (
        "Integrations",
        (
            "hokical.integrations.sklearn",
            "hokical.integrations.torch",
            "hokical.integrations.onnx",
            "hokical.integrations.arrow",
        ),
    ),
}
INTRODUCTION = """# Reference

Every public name, by package; most programs need those of `hokical` alone. Which of them are
stable: [production](../production.md#compatibility).
"""


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
    print(f"{FOLDER}: {len(PAGES) + 1} pages")


def pages() -> dict[str, str]:
    """Text of every page, by its name."""
    homes: dict[str, str] = {}  # the page of each object, by its full name
    made = {}
    for page, (title, packages) in PAGES.items():
        parts = [f"# {title}\n"]
        for module in filter(None, map(find_package, packages)):
            new = [name for name in names_of(module) if full_name(module, name) not in homes]
            homes |= {full_name(module, name): page for name in new}
            if new:
                parts.append(f"\n## `{module.__name__}`\n")
            parts += [entry(module, name) for name in new]
        made[page] = "".join(parts)
    return {"index": overview(homes)} | made


def find_package(name: str) -> ModuleType | None:
    """A package, None where what it needs is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def names_of(module: ModuleType) -> list[str]:
    """The public names of a package, those that cannot be loaded here left out."""
    found = []
    for name in sorted(module.__all__, key=str.lower):
        try:
            getattr(module, name)
        except ImportError:
            continue
        found.append(name)
    return found


def full_name(module: ModuleType, name: str) -> str:
    """Where an object is defined; where it is public, if it does not know."""
    found = getattr(module, name)
    home = getattr(found, "__module__", None)
    return f"{home}.{found.__qualname__}" if home else f"{module.__name__}.{name}"


def entry(module: ModuleType, name: str) -> str:
    """What the page has of a name."""
    return f"\n::: {full_name(module, name)}\n{options(getattr(module, name))}"


def options(found: Any) -> str:
    """Methods that all calibrators share are shown once, at the base."""
    base = import_module("hokical.calibrators").Calibrator
    if not inspect.isclass(found) or found is base or not issubclass(found, base):
        return ""
    return "    options:\n      inherited_members: false\n"


def overview(homes: dict[str, str]) -> str:
    """The page that lists every name."""
    parts = [INTRODUCTION]
    for package in ("hokical", *(p for _, all_ in PAGES.values() for p in all_ if p != "hokical")):
        module = find_package(package)
        if module is None:
            continue
        parts.append(f"\n## `{package}`\n\n| name | what it is |\n| --- | --- |\n")
        for name in names_of(module):
            full = full_name(module, name)
            link = f"[`{name}`]({homes[full]}.md#{full})"
            parts.append(f"| {link} | {first_line(getattr(module, name))} |\n")
    return "".join(parts)


def first_line(found: Any) -> str:
    """The summary of a docstring, on one line of a table."""
    text = (inspect.getdoc(found) or "").split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
