"""Where the project can be found: the one setting for it is `Source` in
`[project.urls]` of pyproject.toml.

It is empty until the project is published. Then it is what the site, the package's
metadata and an index show, and `tests/test_release.py` sees to it that the pages say
how to clone it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def source_address() -> str:
    """The address of the repository, "" before it has one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["urls"].get("Source", ""))


def clone_command() -> str:
    """How to get a clone: in a sentence of the pages."""
    address = source_address()
    return f"git clone {address}" if address else ""
