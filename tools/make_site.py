"""Build the documentation: `make docs`.

Each version has a folder of its own, `site/0.2.0/`; `site/versions.json` feeds the menu
of versions in the page's head, and `site/index.html` leads to the newest. Folders of
earlier versions in `site/` are kept and listed: to publish, build into a copy of what
is published.

    python tools/make_site.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from addresses import source_address
from make_evidence import main as make_evidence
from make_notebooks import main as make_notebooks
from make_reference import PACKAGES
from make_reference import main as make_reference

ROOT = Path(__file__).resolve().parents[1]
#: mkdocs.yml with the pages of the reference in its menu; written next to it, as paths
#: are relative to the file.
CONFIG = ROOT / "mkdocs.site.yml"
#: The line of mkdocs.yml after which the pages of the reference are listed.
OVERVIEW = "      - Overview: api/index.md\n"
#: A picture of a page for light or for dark pages.
_PICTURE = re.compile(
    r'<img\b[^>]*\bsrc="?(?P<name>[^">\s]*)-(?P<theme>light|dark)\.png[^>]*>'
)
#: A parameter or attribute of the reference of which the docstring says one line, which
#: is shown as its type.
_ONE_LINE = re.compile(
    r"\(<code>(?P<line>[^<]*)</code>\)\s*(?P<dash>\u2013)\s*"
    r'<div class="doc-md-description">\s*</div>'
)
#: A per cent sign after a number, outside of code.
_PER_CENT = re.compile(
    r"(?P<code><(?P<tag>pre|code|script|style)\b.*?</(?P=tag)>)|(?<=\d) %", re.DOTALL
)
REDIRECT = """<!doctype html>
<meta charset="utf-8">
<title>hokical</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">hokical {version}</a>
"""
#: Served for any missing address, at any depth: nothing in it is a link to a file
#: beside it.
MISSING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Page not found - hokical</title>
<style>
body { font: 1.05rem/1.6 system-ui, sans-serif; max-width: 36rem; }
body { margin: 15vh auto; padding: 0 1.5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; } a { color: #00897b; }
p.number { color: #00897b; font-size: 4rem; font-weight: 700; line-height: 1; margin: 0; }
</style>
<p class="number">404</p>
<h1>This page does not exist</h1>
<p>It may have moved, or belong to another version of hokical. Go to the
<a id="home" href="/">documentation</a>, and search there.</p>
<script>
const home = /^.*?\\/\\d+\\.\\d+[^/]*\\//.exec(location.pathname);
if (home) document.getElementById("home").href = home[0] + "index.html";
</script>
</html>
"""


def main() -> None:
    make_notebooks()
    make_evidence()
    names = make_reference()
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    CONFIG.write_text(site_config(text, names, source_address()), encoding="utf-8")
    site = ROOT / "site"
    folder = site / current_version()
    clear_former_build(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    command += ["--config-file", CONFIG.name]
    environment = {**os.environ, "SITE_DIR": str(folder.relative_to(ROOT))}
    done = subprocess.run(command, cwd=ROOT, env=environment)
    CONFIG.unlink()
    if done.returncode:
        sys.exit(done.returncode)
    serve_search_locally(folder)
    stack_on_phones(folder)
    show_lines_as_text(folder / "api")
    keep_units_together(folder)
    for place in (folder, site):
        (place / "404.html").write_text(MISSING, encoding="utf-8")
    versions = list_versions(site)
    print(
        f"{', '.join(versions)}: open {site / 'index.html'} (the menu of versions "
        "needs a server:"
    )
    print(f"python -m http.server --directory {site})")


def clear_former_build(folder: Path) -> None:
    """Remove the site and the builder's own cache.

    `zensical build --clean` removes all of `.cache`, where studies keep what took hours.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for path in (ROOT / ".cache").glob("*"):
        if path.is_file():
            path.unlink()


def site_config(text: str, names: list[str], address: str = "") -> str:
    """mkdocs.yml with a place in the menu for each page of the reference, so that it
    is marked there, and has a page before and after it; and with the `address` of the
    project, where it has one.

    >>> print(site_config(OVERVIEW, ["hokical.auto", "hokical.metrics.ece"]))
          - Overview: api/index.md
          - hokical:
              - auto: api/hokical.auto.md
          - hokical.metrics:
              - ece: api/hokical.metrics.ece.md
    <BLANKLINE>
    >>> print(site_config(OVERVIEW, [], "https://example.org/hokical"))
          - Overview: api/index.md
          - Source: https://example.org/hokical
          - Report a problem: https://example.org/hokical/issues
    <BLANKLINE>
    """
    if OVERVIEW not in text:
        raise ValueError(f"mkdocs.yml must have the line {OVERVIEW!r}.")
    menu = OVERVIEW
    for package in PACKAGES:
        pages = [name for name in names if name.rpartition(".")[0] == package]
        pages.sort(key=str.lower)
        menu += f"      - {package}:\n" if pages else ""
        for name in pages:
            menu += f"          - {name.rpartition('.')[2]}: api/{name}.md\n"
    if address:  # `repo_url` would fetch counts of stars when a page is read
        menu += f"      - Source: {address}\n"
        menu += f"      - Report a problem: {address}/issues\n"
    return text.replace(OVERVIEW, menu)


def current_version() -> str:
    """The version that is built, without importing what it is built from."""
    text = (ROOT / "src" / "hokical" / "_core" / "version.py").read_text(
        encoding="utf-8"
    )
    found = re.search(r'"(\d+\.\d+\.\d+[^"]*)"', text)
    if found is None:
        raise ValueError(
            f"src/hokical/_core/version.py must hold a version; got {text!r}."
        )
    return found[1]


def serve_search_locally(folder: Path) -> None:
    """Replace what pages fetch from elsewhere, for search from the file system, by
    our own.
    """
    fetched = '<script src="https://unpkg.com/iframe-worker/shim" type="text/javascript"></script>'
    pages = [
        page for page in folder.rglob("*.html") if fetched in page.read_text("utf-8")
    ]
    if not pages:
        raise ValueError(
            f"no page in {folder} has {fetched}; does search still need it?"
        )
    for page in pages:
        up = "../" * (len(page.relative_to(folder).parts) - 1)
        own = f'<script src="{up}assets/search-from-files.js"></script>'
        page.write_text(page.read_text("utf-8").replace(fetched, own), encoding="utf-8")


def stack_on_phones(folder: Path) -> None:
    """Show the narrow form of a picture on narrow screens, where it has one."""
    for page in folder.rglob("*.html"):
        text = page.read_text("utf-8")

        def choose(image: re.Match[str], page: Path = page) -> str:
            narrow = f"{image['name']}-narrow-{image['theme']}.png"
            if not (page.parent / narrow).is_file():
                return image[0]
            source = f'<source media="(max-width: 600px)" srcset="{narrow}">'
            return f"<picture>{source}{image[0]}</picture>"

        changed = _PICTURE.sub(choose, text)
        if changed != text:
            page.write_text(changed, encoding="utf-8")


def keep_units_together(folder: Path) -> None:
    """No line begins with the per cent sign of a number."""
    for page in folder.rglob("*.html"):
        text = page.read_text("utf-8")
        changed = _PER_CENT.sub(lambda found: found["code"] or "\u00a0%", text)
        if changed != text:
            page.write_text(changed, encoding="utf-8")


def show_lines_as_text(folder: Path) -> None:
    """In the reference: `name - one line`, not a type without a description."""

    def say(item: re.Match[str]) -> str:
        line = re.sub(r"`([^`]+)`", r"<code>\1</code>", item["line"])
        return f"{item['dash']} {line}"

    for page in folder.rglob("*.html"):
        text = page.read_text("utf-8")
        changed = _ONE_LINE.sub(say, text)
        if changed != text:
            page.write_text(changed, encoding="utf-8")


def list_versions(site: Path) -> list[str]:
    """Write the list of versions in `site` and the way to the newest; return them,
    newest first.
    """
    found = [path.parent.name for path in site.glob("*/index.html")]
    versions = sorted(
        (name for name in found if name[:1].isdigit()), key=_order, reverse=True
    )
    entries = [{"version": name, "title": name, "aliases": []} for name in versions]
    entries[0]["aliases"] = ["latest"]
    (site / "versions.json").write_text(
        json.dumps(entries, indent=1) + "\n", encoding="utf-8"
    )
    (site / "index.html").write_text(
        REDIRECT.format(version=versions[0]), encoding="utf-8"
    )
    return versions


def _order(version: str) -> tuple[list[int], bool, str]:
    """0.10.0 after 0.9.0, and 0.2.0 after 0.2.0rc1."""
    numbers, rest = re.match(r"([\d.]*)(.*)", version).groups()  # type: ignore[union-attr]
    return [int(part) for part in numbers.split(".") if part], not rest, rest


if __name__ == "__main__":
    main()
