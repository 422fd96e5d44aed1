"""The documentation is true: its code runs and shows what it says.

Per page, in order and in one namespace and folder:

- a `python` block is executed; a `text` block right after it is what it prints;
- a `console` block runs each line that starts with `$ hokical`, and what follows is
  what it prints;
- `sh` blocks (installation, sketches of commands) are not run.

In what is shown `...` stands for anything, and a number with a decimal point may be off
by one in its last digit, because other processors round differently. After `<!--
numbers vary -->` the next block's numbers may be any (a time, a size of a file, or what
training a network gives elsewhere). From `<!-- needs: module -->` on, a page is run
only where that module is installed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from hokical.calibrators import make, method_names

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.parent.name not in ("api", "evidence")
    ),
]
#: Pages of many commands or large fits, whose parts have tests of their own.
SLOW = {
    "docs/choosing.md",
    "docs/dense.md",
    "docs/gallery.md",
    "docs/groups-and-shift.md",
    "docs/guarantees.md",
    "docs/monitoring.md",
    "docs/multilabel.md",
    "docs/onnx.md",
    "docs/recipes/answers-without-review.md",
    "docs/recipes/command-line.md",
    "docs/recipes/free-answers.md",
    "docs/recipes/multiple-choice.md",
    "docs/language-models.md",
    "docs/metrics.md",
    "docs/peers.md",
    "docs/scikit-learn.md",
    "docs/selective-prediction.md",
    "docs/sets.md",
}
LANGUAGES = {"python", "text", "console", "sh"}

_PART = re.compile(
    r"^```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^```$"
    r"|^<!-- needs: (?P<module>\w+) -->$|^<!-- (?P<vary>numbers vary) -->$",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, and the line on which the text begins."""

    language: str
    text: str
    line: int
    follows: bool  # nothing but a line's end between it and the block before
    needs: frozenset[str]
    vary: bool = False  # its numbers, and those of its output, differ from run to run


def blocks_of(page: Path) -> Iterator[Block]:
    source = page.read_text(encoding="utf-8")
    needs: frozenset[str] = frozenset()
    end, vary = 0, False
    for part in _PART.finditer(source):
        if part["module"]:
            needs |= {part["module"]}
            continue
        if part["vary"]:
            vary = True
            continue
        line = source.count("\n", 0, part.start("body"))
        follows = not source[end : part.start()].strip()
        yield Block(part["language"], part["body"], line, follows, needs, vary)
        end, vary = part.end(), vary and part["language"] == "python"


def matches(shown: str, printed: str, vary: bool = False) -> bool:
    """Whether what a page shows is what was printed, up to spaces, `...` and last
    digits.

    With `vary`, numbers may be any.
    """
    want, got = " ".join(shown.split()), " ".join(printed.split())
    numbers = _NUMBER.findall(want)
    pieces = [
        re.escape(piece).replace(r"\.\.\.", ".*?") for piece in _NUMBER.split(want)
    ]
    found = re.fullmatch(f"({_NUMBER.pattern})".join(pieces), got)
    return found is not None and (vary or all(map(_close, numbers, found.groups())))


def _close(shown: str, printed: str) -> bool:
    decimals = len(shown.partition(".")[2])
    if not decimals or "e" in shown:
        return shown == printed
    difference = float(shown.replace(",", "")) - float(printed.replace(",", ""))
    return abs(difference) < 1.5 * 10.0**-decimals


def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> str:
    """Execute a block as if it stood at its own lines of the page; return what it
    printed.
    """
    code = compile("\n" * block.line + block.text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_console(block: Block, page: Path, folder: Path) -> None:
    environment = {**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    for entry in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = entry.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "hokical", f"{page.name}: a test cannot run `{command}`"
        done = subprocess.run(
            [str(Path(sys.executable).with_name("hokical")), *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )
        assert done.returncode == 0, f"{page.name}: `{command}` failed: {done.stderr}"
        same = not shown or matches(shown, done.stdout, block.vary)
        assert same, f"`{command}` printed\n{done.stdout}"


def as_case(page: Path) -> Any:
    name = page.relative_to(ROOT).as_posix()
    return pytest.param(page, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.mark.filterwarnings(
    "ignore:The given buffer is not writable"
)  # of torch 2.11 itself
@pytest.mark.parametrize("page", [as_case(page) for page in PAGES])
def test_code_of_a_page_runs_and_prints_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "page"}
    printed: str | None = None
    for block in blocks_of(page):
        assert block.language in LANGUAGES, (
            f"{page.name}, line {block.line}: say which language"
        )
        missing = [module for module in block.needs if find_spec(module) is None]
        if missing:
            pytest.skip(f"from line {block.line} on {page.name} needs {missing}")
        if block.language == "text":
            assert printed is not None, (
                f"{page.name}, line {block.line}: whose output is this?"
            )
            assert block.follows, (
                f"{page.name}, line {block.line}: output goes right after code"
            )
            same = matches(block.text, printed, block.vary)
            assert same, f"line {block.line} shows, but printed\n{printed}"
        printed = (
            run_python(block, page, namespace) if block.language == "python" else None
        )
        if block.language == "console":
            run_console(block, page, tmp_path)


def test_pages_show_all_that_their_code_prints() -> None:
    for page in PAGES:
        blocks = list(blocks_of(page))
        for block, after in zip_longest(blocks, blocks[1:]):
            if block.language == "python" and "print(" in block.text:
                assert after is not None, (
                    f"{page.name}, line {block.line}: output is not shown"
                )
                assert (after.language, after.follows) == ("text", True), page.name


def test_outputs_are_real_and_not_left_out() -> None:
    """`...` may stand for lines that are left out, never for a part of a line, unless
    the printed object itself ends in `, ...)`.
    """
    for page in PAGES:
        for block in blocks_of(page):
            if block.language in ("text", "console"):
                shown = block.text.replace(", ...)", ")")
                assert not re.search(r"[^\n]\.\.\.|\.\.\.[^\n]", shown), page.name


def test_table_of_methods_is_that_of_the_registry() -> None:
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    for cal in map(make, method_names()):
        method = cal.method
        labels = "may change" if method.changes_labels else "kept"
        row = re.search(rf"^\| `{method.name}` \|.*$", text, re.MULTILINE)
        assert row is not None, method.name
        cells = [cell.strip(" `") for cell in row[0].strip("|").split("|")]
        assert cells[1] == labels
        assert cells[3:] == [type(cal).__name__]


def test_limitations_of_every_method_are_given() -> None:
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    reasons = text.partition("## Limitations\n")[2].partition("\n## ")[0]
    heads = "".join(re.findall(r"^- \*\*(.*?)\*\*:", reasons, re.MULTILINE))
    assert set(method_names()) <= set(re.findall(r"`(\w+)`", heads))


def test_theorems_have_one_numbering() -> None:
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"\*\*Theorem (\d+)", text)]
    assert numbers == list(range(1, len(numbers) + 1))
    meant = re.findall(r"Theorems? (\d+)(?: (?:to|and) (\d+))?", text)
    assert max(int(last or first) for first, last in meant) == len(numbers)


def test_every_guarantee_is_proven_or_called_approximate() -> None:
    """Each call that promises something is in the table of what is proven."""
    pages = {
        name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("guarantees", "theory")
    }
    rows = re.findall(r"^\|.*?\[`([^`]*)`\].*\| (.*) \|$", pages["guarantees"], re.M)
    promises = [call for call, promise in rows if not promise.startswith("nothing")]
    assert len(promises) > 8
    proven = pages["theory"].partition("## What is proven")[2].partition("```")[0]
    for call in promises:
        words = {"cluster": "`cluster=`", "weights": "weights"}
        option = next((words[word] for word in words if word in call), None)
        name = call.partition("(")[0].rpartition(".")[2]
        assert (option or f"`{name}") in proven, call


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("ECE 0.0061", "ECE  0.0062\n", True),
        ("ECE 0.0061", "ECE 0.0063", False),
        ("3 steps", "4 steps", False),
        ("took ... s, 10,000 rows", "took 0.48 s, 10,000 rows", True),
        ("uniform:-4.05,4.05 kept", "uniform:-4.05,4.06 kept", True),
        ("97.1% right", "96.9% right", False),
        ("a (b) [1 2]", "a (b) [1 2]", True),
        ("first\n...\nlast", "first\nlast", False),
    ],
)
def test_comparison_of_outputs(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


def test_numbers_that_vary_may_be_any_and_words_not() -> None:
    assert matches("took 0.12 s, 3 rows", "took 9.5 s, 4 rows", vary=True)
    assert not matches("took 0.12 s", "needed 0.12 s", vary=True)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        "benchmarks/README.md",
        ".github/GOVERNANCE.md",
        ".github/RELEASING.md",
        ".github/SECURITY.md",
    ],
)
def test_links_of_pages_outside_the_site_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for picture in re.findall(r'\s(?:src|srcset)="([^"]*)"', page.read_text("utf-8")):
        assert (page.parent / picture).is_file(), f"{name} shows {picture}"
    for path, anchor in re.findall(
        r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text("utf-8")
    ):
        target = page.parent / path if path else page
        assert target.exists(), f"{name} links to {path}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            known = {
                re.sub(r"[^a-z0-9 -]", "", t.lower()).replace(" ", "-") for t in titles
            }
            assert anchor in known, f"{name} links to {path}#{anchor}"


def test_overview_of_the_reference_lists_every_public_name() -> None:
    pytest.importorskip("griffe")
    made = runpy.run_path(str(ROOT / "tools" / "make_reference.py"))
    overview = made["pages"](made["public_names"]())["index"]
    rest = re.split(r"^## `", overview, flags=re.MULTILINE)[1:]
    parts = {part.partition("`")[0]: part for part in rest}
    for public in (ROOT / "tests" / "public_names.txt").read_text("utf-8").split():
        package, _, name = public.partition(":")
        if (
            package in parts and name in import_module(package).__all__
        ):  # what it needs is there
            assert f"[`{name}`]" in parts[package], f"the reference lacks {public}"
