"""Tables, figures and the page into files; each is whole or not there at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from hokical.files.errors import DataFileError
from hokical.paper.figures import figure_builders, to_png
from hokical.paper.findings import findings
from hokical.paper.page import render_page
from hokical.paper.pictures import PictureCache
from hokical.paper.render import to_csv, to_html, to_markdown
from hokical.paper.results import Results
from hokical.paper.table_data import Table
from hokical.paper.tables import all_tables
from hokical.progress import track
from hokical.storage import replacing, write_text_atomically

#: How a table becomes text, by format, and the ending of its file.
TEXTS: dict[str, Callable[[Table], str]] = {"markdown": to_markdown, "csv": to_csv, "html": to_html}
_ENDINGS = {"markdown": "md", "csv": "csv", "html": "html"}

Figures = Mapping[str, tuple[str, bytes]]


def draw_all(
    results: Results, cache: Path, *, progress: bool | None = None
) -> dict[str, tuple[str, bytes]]:
    """Caption and PNG of every figure; what was drawn before comes from the folder `cache`."""
    builders, known = figure_builders(results), PictureCache(cache, results)
    drawn = {}
    for name in track(builders, "Drawing {}", len(builders), progress):
        caption, draw = builders[name]
        drawn[name] = (caption, known.get(name, lambda draw=draw: to_png(draw())))  # type: ignore[misc]
    return drawn


def write_tables(tables: Mapping[str, Table], folder: Path, style: str) -> list[Path]:
    """One file per table."""
    _make(folder)
    written = []
    for name, table in tables.items():
        path = folder / f"{name}.{_ENDINGS[style]}"
        write_text_atomically(path, TEXTS[style](table))
        written.append(path)
    return written


def write_figures(figures: Figures, folder: Path) -> list[Path]:
    """One PNG file per figure."""
    _make(folder)
    written = []
    for name, (_, png) in figures.items():
        path = folder / f"{name}.png"
        with replacing(path) as stream:
            stream.write(png)
        written.append(path)
    return written


def write_everything(results: Results, folder: Path, cache: Path) -> list[Path]:
    """Tables as Markdown and CSV, figures, findings, and the page as index.html."""
    _make(folder)
    tables, figures = all_tables(results), draw_all(results, cache)
    written = write_tables(tables, folder / "tables", "markdown")
    written += write_tables(tables, folder / "tables", "csv")
    written += write_figures(figures, folder / "figures")
    said = "\n".join(f"- {text}" for text in findings(results)) + "\n"
    for name, text in (
        ("findings.md", said),
        ("index.html", render_page(results, tables, figures)),
    ):
        write_text_atomically(folder / name, text)
        written.append(folder / name)
    return written


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataFileError(
            folder, f"cannot be made: {error.strerror}.", "Choose another folder."
        ) from error
