"""The site builds strictly, fetches nothing, can be searched offline, and knows its
versions.
"""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import pytest

import hokical

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if page.parent.name not in ("api", "evidence")
]
#: Pages that are also notebooks.
TUTORIALS = {
    "pytorch": "recipes/pytorch.md",
    "scikit-learn": "scikit-learn.md",
    "language-models": "language-models.md",
    "segmentation": "dense.md",
    "monitoring": "monitoring.md",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this version, built strictly: any warning fails."""
    for module in ("zensical", "mkdocstrings", "latex2mathml"):
        if find_spec(module) is None:
            pytest.skip(
                f"{module} is not installed; `pip install '.[docs]'` builds the site"
            )
    place = tmp_path_factory.mktemp(
        "build"
    )  # a copy, so that nothing is left in the repository
    for name in ("docs", "tools", "src"):
        ignored = shutil.ignore_patterns("__pycache__", "notebooks", "evidence")
        shutil.copytree(ROOT / name, place / name, ignore=ignored)
    (place / "tests").mkdir()
    shutil.copytree(ROOT / "paper" / "docs", place / "paper" / "docs")
    for name in (
        "mkdocs.yml",
        "pyproject.toml",
        "CHANGELOG.md",
        "tests/public_names.txt",
    ):
        shutil.copy(ROOT / name, place / name)
    command = [sys.executable, "tools/make_site.py"]
    done = subprocess.run(
        command, cwd=place, capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "site" / hokical.__version__


def test_site_has_every_page(site: Path) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        name = page.relative_to(DOCS)
        assert (site / name.with_suffix(".html")).is_file()
        assert f": {name.as_posix()}\n" in navigation


def test_links_and_pictures_of_the_site_lead_somewhere(site: Path) -> None:
    used = re.compile(
        r"<(?:a|img|source)[^>]*?\s(?:href|src|srcset)=[\"']?([^\"'\s>]+)"
    )
    ids = {
        page: set(re.findall(r"\sid=[\"']?([^\"'\s>]+)", page.read_text("utf-8")))
        for page in site.rglob("*.html")
    }
    for page, own in ids.items():
        if page.name == "404.html":  # links from the root of a server
            continue
        for link in set(used.findall(page.read_text("utf-8"))):
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{page.name}: {link}"
            if (
                anchor
                and target.suffix == ".html"
                and not anchor.startswith(("only-", "__"))
            ):
                known = own if target == page else ids[target]
                assert anchor in known, f"{page.name}: {link}"


def test_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(?:https?:)?//[^>]*>"
    )
    linked = re.compile(
        r"<link[^>]*rel=[\"']?(?:stylesheet|preconnect|icon)[^>]*//[^>]*>"
    )
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert not fetched.findall(html), page
        assert not linked.findall(html), page


def test_formulas_are_mathml(site: Path) -> None:
    for name in ("theory.html", "default.html"):
        html = (site / name).read_text(encoding="utf-8")
        assert "<math" in html
        assert "arithmatex" not in html
        assert "<merror" not in html
        assert not re.search(r"<(?:mi|mo|mtext)>\s*\\", html), (
            "an unknown command of LaTeX"
        )


def test_lines_of_the_reference_are_text(site: Path) -> None:
    """An attribute with one line has no type in its place, and no empty description."""
    html = (site / "api" / "hokical.AutoCalibrator.html").read_text(encoding="utf-8")
    assert "\N{EN DASH} what was fitted, in words" in html
    assert not re.search(r'<div class="doc-md-description">\s*</div>', html)


def test_long_signatures_of_the_reference_are_broken_into_lines(site: Path) -> None:
    html = (site / "api" / "hokical.evaluate.html").read_text(encoding="utf-8")
    shown = re.search(r'<div class="doc-signature.*?</div>', html, re.DOTALL)
    assert shown is not None
    lines = unescape(re.sub(r"<[^>]+>", "", shown[0])).splitlines()
    assert max(map(len, lines)) <= 88


def test_no_line_of_a_page_begins_with_a_per_cent_sign(site: Path) -> None:
    html = (site / "index.html").read_text(encoding="utf-8")
    text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    assert "92\N{NO-BREAK SPACE}%" in text
    assert not re.search(r"\d %", text)


def test_doctests_in_the_reference_are_code(site: Path) -> None:
    for page in (site / "api").glob("*.html"):
        assert "<blockquote>" not in page.read_text(encoding="utf-8"), page


def test_every_public_name_has_a_page_with_an_example(site: Path) -> None:
    """Under the path that users import, wherever it is defined and whatever is
    installed.
    """
    listed = (ROOT / "tests" / "public_names.txt").read_text("utf-8").split()
    overview = (site / "api" / "index.html").read_text("utf-8")
    shown = dict(
        re.findall(r'<td><a href="([^"]+\.html)"><code>(\w+)</code></a></td>', overview)
    )
    assert {name.partition(":")[2] for name in listed} == set(shown.values())
    for link in shown:
        html = (site / "api" / link).read_text("utf-8")
        headings = re.findall(r"<h[1-6][^>]*>(.*?)</h[1-6]>", html, re.DOTALL)
        plain = [re.sub(r"<[^>]+>", "", each).strip() for each in headings]
        assert link.removesuffix(".html") in plain[0]
        assert not [each for each in plain if "._" in each], "a private path"
        assert "&gt;&gt;&gt;" in html, link


def test_a_public_name_that_is_not_found_ends_the_build() -> None:
    pytest.importorskip("griffe")
    pages = runpy.run_path(str(ROOT / "tools" / "make_reference.py"))["pages"]
    with pytest.raises(SystemExit, match=r"hokical\.metrics\.absent is not found"):
        pages(["hokical.metrics.ece", "hokical.metrics.absent"])


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("conformal", "sets.html"),
        ("selective prediction", "selective-prediction.html"),
        ("drift", "monitoring.html"),
        ("multilabel", "multilabel.html"),
        ("ensemble", "ensembles.html"),
        ("test-time augmentation", "ensembles.html"),
        ("covariate shift", "groups-and-shift.html"),
        ("label shift", "shift.html"),
    ],
)
def test_search_finds_the_words_of_the_field(site: Path, words: str, page: str) -> None:
    """In a title: these come first, and the page about it is among them."""
    index = (site / "search.js").read_text("utf-8")
    items = json.loads(index[index.index("{") : index.rindex("}") + 1])["items"]
    titled = [item["location"] for item in items if words in item["title"].lower()]
    assert page in {location.partition("#")[0] for location in titled}


def test_site_lists_its_versions(site: Path) -> None:
    version = site.name
    listed = json.loads((site.parent / "versions.json").read_text("utf-8"))
    assert listed == [{"version": version, "title": version, "aliases": ["latest"]}]
    assert f"url={version}/index.html" in (site.parent / "index.html").read_text(
        "utf-8"
    )


def test_earlier_versions_stay_and_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("0.9.0", "0.10.0", "0.10.0rc1", "assets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    tool = runpy.run_path(str(ROOT / "tools" / "make_site.py"))
    assert tool["list_versions"](tmp_path) == ["0.10.0", "0.10.0rc1", "0.9.0"]
    entries = json.loads((tmp_path / "versions.json").read_text("utf-8"))
    assert [entry["aliases"] for entry in entries] == [["latest"], [], []]
    assert "0.10.0/index.html" in (tmp_path / "index.html").read_text("utf-8")


def test_every_tutorial_is_a_notebook_with_the_code_of_its_page() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "make_notebooks.py"))["notebooks"]()
    assert {path.stem for path in made} == set(TUTORIALS)
    for path, text in made.items():
        page = (DOCS / TUTORIALS[path.stem]).read_text("utf-8")
        cells = json.loads(text)["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        blocks = re.findall(r"^```python\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
        python = [
            "".join(cell["source"])
            for cell in code
            if not cell["source"][0].startswith("!")
        ]
        assert python == blocks
        shown = "".join(
            line for cell in code for out in cell["outputs"] for line in out["text"]
        )
        assert shown or path.stem in {"pytorch", "scikit-learn"}, (
            "pages that print nothing"
        )
        assert not re.search(r"\]\((?!https?:)", text), (
            "a link that a downloaded file lacks"
        )
        assert len({cell["id"] for cell in cells}) == len(cells)


def test_search_needs_no_server(site: Path) -> None:
    """The index is a script, and what stands in for a worker is loaded before it is
    needed.
    """
    assert (site / "search.js").read_text("utf-8").startswith("var __index = {")
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # links from the root of a server
            continue
        html = page.read_text("utf-8")
        own = re.search(r'<script src="([./]*assets/search-from-files\.js)">', html)
        assert own is not None, page
        assert (page.parent / own[1]).is_file()
        assert own.start() < html.index("assets/javascripts/bundle"), page
