"""Make the notebooks of the documentation from its pages: one source, run by the tests.

A page that links to `notebooks/NAME.ipynb` becomes that notebook:

- prose becomes text, without links to other pages, which a downloaded file does not
  have;
- `python` blocks become code, and a `text` block after one its output;
- lines `$ hokical ...` of `console` blocks become `!hokical ...`.

    python tools/make_notebooks.py  # writes docs/notebooks/; `make docs` does it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDER = "notebooks"

_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
_DOWNLOAD = re.compile(
    rf"^\[[^\]]*\]\((?:\.\./)*{FOLDER}/([\w-]+)\.ipynb\)[^\n]*\n", re.MULTILINE
)
_RELATIVE_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")
_NOTE = (
    "*A page of hokical's documentation, as a notebook. It needs hokical, installed "
    "from a clone (`pip install .`).*\n"
)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def notebooks(docs: Path = DOCS) -> dict[Path, str]:
    """Path and text of every notebook."""
    found = {}
    for page in sorted(docs.rglob("*.md")):
        source = page.read_text(encoding="utf-8")
        for link in _DOWNLOAD.finditer(source):
            path = docs / FOLDER / f"{link[1]}.ipynb"
            if path in found:
                raise ValueError(
                    f"two pages link to {path.name}; each notebook has one page."
                )
            text = _DOWNLOAD.sub(_NOTE, source)
            found[path] = (
                json.dumps(as_notebook(text), indent=1, ensure_ascii=False) + "\n"
            )
    return found


def as_notebook(source: str) -> dict[str, Any]:
    """The notebook (nbformat 4.5) of a page."""
    cells = list(_cells(source))
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _cells(source: str) -> Iterator[dict[str, Any]]:
    """Cells in order; an output is given to the code before it."""
    code: dict[str, Any] | None = None
    end = 0
    for block in _BLOCK.finditer(source):
        between = source[end : block.start()]
        language, body = block[1], block[2]
        end = block.end()
        if code is not None:
            if language == "text" and not between.strip() and "..." not in body:
                code["outputs"] = [_output(body)]
            yield code
            code = None
        yield from _prose(between)
        if language == "python":
            code = _code(body)
        elif language == "console":
            yield _code("".join(re.findall(r"^\$ (.*\n)", body, re.MULTILINE)), "!")
        elif language != "text":
            yield from _prose(f"```{language}\n{body}```\n")
    if code is not None:
        yield code
    yield from _prose(source[end:])


def _prose(text: str) -> Iterator[dict[str, Any]]:
    text = _RELATIVE_LINK.sub(r"\1", _COMMENT.sub("", text)).strip()
    if text:
        yield {"cell_type": "markdown", "metadata": {}, "source": _lines(text)}


def _code(body: str, before: str = "") -> dict[str, Any]:
    source = [before + line for line in _lines(body.strip("\n"))]
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    return {**cell, "source": source}


def _output(text: str) -> dict[str, Any]:
    return {"name": "stdout", "output_type": "stream", "text": _lines(text)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    for path, text in notebooks().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
