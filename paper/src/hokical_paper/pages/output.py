"""Write tables, figures and the page to files, each completely or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from hokical.io import DataFileError
from hokical_paper.core import track
from hokical_paper.core.files import replace_file, write_text_atomically
from hokical_paper.figures.figures import figure_builders, to_png
from hokical_paper.figures.pictures import PictureCache
from hokical_paper.pages.page import render_page
from hokical_paper.pages.stored import RESULTS, store_results
from hokical_paper.running.results import Results
from hokical_paper.tables.builders import all_tables
from hokical_paper.tables.findings import findings
from hokical_paper.tables.render import to_csv, to_html, to_markdown
from hokical_paper.tables.table import Table

#: How a table is converted to text, by format, and the file extension.
TEXTS: dict[str, Callable[[Table], str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "html": to_html,
}
_EXTENSIONS = {"markdown": "md", "csv": "csv", "html": "html"}

Figures = Mapping[str, tuple[str, bytes]]


def draw_all(
    results: Results, cache: Path, *, progress: bool | None = None
) -> dict[str, tuple[str, bytes]]:
    """Caption and PNG of every figure; figures drawn before are read from the folder
    `cache`.
    """
    builders = figure_builders(results)
    pictures = PictureCache(cache, results)
    drawn = {}
    for name in track(builders, "Drawing {}", len(builders), progress):
        caption, draw = builders[name]
        drawn[name] = (caption, pictures.get(name, lambda draw=draw: to_png(draw())))  # type: ignore[misc]
    return drawn


def write_tables(tables: Mapping[str, Table], folder: Path, style: str) -> list[Path]:
    """One file per table."""
    _create(folder)
    written = []
    for name, table in tables.items():
        path = folder / f"{name}.{_EXTENSIONS[style]}"
        write_text_atomically(path, TEXTS[style](table))
        written.append(path)
    return written


def write_figures(figures: Figures, folder: Path) -> list[Path]:
    """One PNG file per figure."""
    _create(folder)
    written = []
    for name, (_, png) in figures.items():
        path = folder / f"{name}.png"
        with replace_file(path) as stream:
            stream.write(png)
        written.append(path)
    return written


def write_everything(results: Results, folder: Path, cache: Path) -> list[Path]:
    """Tables as Markdown and CSV, figures, findings, and the page as index.html."""
    _create(folder)
    tables = all_tables(results)
    figures = draw_all(results, cache)
    written = write_tables(tables, folder / "tables", "markdown")
    written += write_tables(tables, folder / "tables", "csv")
    written += write_figures(figures, folder / "figures")
    sentences = findings(results)
    store_results(folder / RESULTS, tables, sentences)
    written.append(folder / RESULTS)
    listed = "\n".join(f"- {text}" for text in sentences) + "\n"
    page = render_page(results, tables, figures)
    for name, text in (("findings.md", listed), ("index.html", page)):
        write_text_atomically(folder / name, text)
        written.append(folder / name)
    return written


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataFileError(
            folder, f"cannot be created: {error.strerror}.", "Choose another folder."
        ) from error
