"""What the pages name exists: modules, functions, methods, attributes, options of
the commands.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.parent.name not in ("api", "evidence")
    ),
]
#: What other libraries have, by the name before the dot, and functions of theirs.
FOREIGN = {
    "np",
    "torch",
    "jax",
    "pl",
    "plt",
    "da",
    "duckdb",
    "sklearn",
    "matplotlib",
    "nn",
    "df",
    "data",
    "trainer",
    "ray_dataset",
    "pandas",
    "Trainer",
    "transformers",
    "lazy_logits",
    "skl2onnx",
    "distributed",
    "statsmodels",
    "json",
    "frame",
    "pyplot",
    "style",
    "joblib",
}
FOREIGN_CALLS = {
    "GroupKFold",
    "argmax",
    "cross_val_score",
    "softmax",
    "astype",
    "eval",
    "cpu",
    "half",
    "to",
    "LabelEncoder",
    "bfloat16",
    "map_batches",
    "mapInArrow",
    "cached_file",
    "repr",
    "pipeline",
    "batches",
}
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(
    r"[/*]|\.(?:md|py|json|npz|npy|csv|parquet|onnx|html?|gz|toml|jsonl|pt2?|txt|cat)\b"
)


@cache
def defined() -> frozenset[str]:
    """Every name that the packages define: functions, classes, arguments, fields,
    attributes.
    """
    found: set[str] = set()
    for folder in ("src/hokical", "paper/src/hokical_paper"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= {
                *path.relative_to(ROOT / folder).with_suffix("").parts,
                path.parents[0].name,
            }
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    found.add(node.name)
                elif isinstance(node, ast.arg):
                    found.add(node.arg)
                elif isinstance(node, ast.AnnAssign | ast.Attribute | ast.Name):
                    target = node.target if isinstance(node, ast.AnnAssign) else node
                    found.add(getattr(target, "attr", getattr(target, "id", "")))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)  # keys of mappings, options, `__all__`
    return frozenset(found)


def spans(page: Path) -> list[str]:
    """Inline code of a page, without the names of files."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return [span for span in _SPAN.findall(text) if not _FILE.search(span)]


def as_case(page: Path) -> object:
    return pytest.param(page, id=page.relative_to(ROOT).as_posix())


@pytest.mark.parametrize("page", [as_case(page) for page in PAGES])
def test_names_of_inline_code_exist(page: Path) -> None:
    missing = set()
    for span in spans(page):
        plain = re.sub(r"\"[^\"]*\"|'[^']*'", "", span)
        for chain, call in re.findall(r"(?<![\w.)\]])([A-Za-z_][\w.]*)(\()?", plain):
            root, *rest = chain.split(".")
            if root in FOREIGN or chain.startswith("hokical.") or not (rest or call):
                continue
            names = [*rest, *([root] if call and not rest else [])]
            missing |= {
                name for name in names if name and name not in FOREIGN_CALLS | defined()
            }
    assert not missing, f"{page.name} names {sorted(missing)}"


@cache
def public_classes() -> dict[str, type]:
    """Classes of the public packages that can be imported here, by name."""
    found = {}
    for public in (ROOT / "tests" / "public_names.txt").read_text("utf-8").split():
        package, _, name = public.partition(":")
        try:
            one = getattr(import_module(package), name)
        except ImportError:
            continue
        if isinstance(one, type):
            found[name] = one
    return found


@pytest.mark.parametrize("page", [as_case(page) for page in PAGES])
def test_members_of_classes_exist(page: Path) -> None:
    for span in spans(page):
        for name, member in re.findall(
            r"\b([A-Z]\w+)(?:\([^()]*\))?\.([a-z]\w*)", span
        ):
            one = public_classes().get(name)
            if one is not None and not member.endswith("_"):
                fields = {
                    key
                    for kind in one.__mro__
                    for key in vars(kind).get("__annotations__", ())
                }
                assert hasattr(one, member) or member in fields, (
                    f"{page.name} names {name}.{member}"
                )


@pytest.mark.parametrize("page", [as_case(page) for page in PAGES])
def test_full_names_can_be_imported(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"\bhokical(?:\.[a-z]\w*)+(?:\.[A-Z]\w*)?", text)):
        if _FILE.search(name) or name.endswith((".json", ".auto_")):
            continue
        parts = name.split(".")
        found = import_module(parts[0])
        if parts[1] == "calibrate" and find_spec("torch") is None:
            pytest.skip(f"{name} needs PyTorch")
        for k, part in enumerate(parts[1:], 1):
            try:  # shells around libraries import them when they are asked for
                if (
                    not hasattr(found, part)
                    and find_spec(".".join(parts[: k + 1])) is not None
                ):
                    import_module(".".join(parts[: k + 1]))
            except ImportError as wanting:
                pytest.skip(f"{name}: {wanting}")
            assert hasattr(found, part), f"{page.name} names {name}"
            found = getattr(found, part)


def test_options_of_commands_exist() -> None:
    source = "".join(
        path.read_text("utf-8")
        for folder in (
            "src/hokical/cli",
            "paper/src/hokical_paper",
            "benchmarks",
            "paper/studies",
        )
        for path in (ROOT / folder).rglob("*.py")
    )
    known = set(re.findall(r"--[a-z][\w-]+", source)) | {
        "--no-deps",
        "--headless",
        "--screenshot",
    }
    known |= {
        "--" + name.replace("_", "-") for name in re.findall(r"\b([a-z]\w+):", source)
    }
    for page in PAGES:
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]+", page.read_text("utf-8")):
            bare = "--" + option.removeprefix("--no-")
            assert option in known or bare in known, f"{page.name} names {option}"
