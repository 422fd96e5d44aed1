"""Which source code a result depends on: every module that its entry modules lead to.

The import statements are followed from the entry modules, also those inside functions,
to modules of `hokical` and `hokical_paper`. Names decide, not folders, so the digest
does not change when files move on disk, and a module that cannot be found is an error.

A package that only re-exports names (`__all__`) is looked through: `from hokical.plots
import reliability` leads to the module that defines it and not to the other plots. What
such a package imports without exporting it, for its effects, is followed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from typing import NamedTuple

PACKAGES = ("hokical", "hokical_paper")
#: For arrays of other libraries and for exports. The experiments pass NumPy arrays.
NOT_EXECUTED = ("hokical.integrations",)


class CodeNotFoundError(ImportError):
    """A module that a result depends on has no source that could be hashed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no source found for {name}, so results cannot be tied to the code that "
            "computes them. Install hokical and hokical-paper again, in matching "
            "versions.",
            name=name,
        )


class _Import(NamedTuple):
    """`from module import name as bound`, or `import module` where both names are
    empty.
    """

    module: str
    name: str = ""
    bound: str = ""


class _Module(NamedTuple):
    """A module's name, source and imports; `exports` is the `__all__` of a mere
    facade.
    """

    name: str
    is_package: bool
    source: str
    imports: tuple[_Import, ...]
    exports: frozenset[str] | None


@cache
def code_digest(*entries: str) -> str:
    """SHA-256 of the names and sources of all modules that these modules lead to."""
    digest = hashlib.sha256()
    for name, source in sorted(executed_sources(*entries).items()):
        digest.update(f"{name}\0{source}\0".encode())
    return digest.hexdigest()


def executed_sources(*entries: str) -> dict[str, str]:
    """The source of every module that these modules lead to, by name."""
    sources: dict[str, str] = {}
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if name not in sources:
            module = _read(name)
            sources[name] = module.source
            waiting += (
                _home(item) for item in module.imports if _is_followed(item.module)
            )
            for parent in _parents(name):
                if parent.exports is None:
                    waiting.append(parent.name)
                else:
                    waiting += _effects(parent)
    return sources


def _is_followed(name: str) -> bool:
    excluded = any(name == root or name.startswith(f"{root}.") for root in NOT_EXECUTED)
    return name.partition(".")[0] in PACKAGES and not excluded


def _home(item: _Import) -> str:
    """The module that an import leads to, seen through packages that only re-export."""
    module = _read(item.module)
    if not item.name or not module.is_package:
        return item.module
    submodule = f"{item.module}.{item.name}"
    if _find(submodule) is not None:
        return submodule
    if module.exports is not None:
        for source in module.imports:
            if item.name == source.bound:
                return _home(source)
    else:  # such as `hokical`, which loads its names when they are used
        value = getattr(import_module(item.module), item.name, None)
        if value is not None:
            home = str(getattr(value, "__module__", item.module))
            return home if _is_followed(home) else item.module
    raise CodeNotFoundError(submodule)


def _effects(facade: _Module) -> Iterator[str]:
    """The modules that a facade imports without exporting a name of them."""
    for item in facade.imports:
        if item.bound not in (facade.exports or ()) and _is_followed(item.module):
            yield _home(item)


@cache
def _read(name: str) -> _Module:
    spec = _find(name)
    source = None
    if spec is not None and isinstance(spec.loader, InspectLoader):
        with suppress(
            ImportError
        ):  # the file of a module that was imported may be gone
            source = spec.loader.get_source(name)
    if spec is None or source is None:
        raise CodeNotFoundError(name)
    is_package = spec.submodule_search_locations is not None
    tree = ast.parse(source)
    imports = tuple(_imports(tree, name if is_package else name.rpartition(".")[0]))
    return _Module(
        name, is_package, source, imports, _facade_exports(tree) if is_package else None
    )


def _find(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except ImportError:  # of a package above it
        return None


def _facade_exports(tree: ast.Module) -> frozenset[str] | None:
    """The `__all__` of a package that holds nothing else but imports; else None."""
    exports: frozenset[str] = frozenset()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exports = frozenset(ast.literal_eval(node.value))
        elif not isinstance(node, ast.Import | ast.ImportFrom) and not _is_docstring(
            node
        ):
            return None
    return exports


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _parents(name: str) -> Iterator[_Module]:
    while name := name.rpartition(".")[0]:
        yield _read(name)


def _imports(tree: ast.Module, package: str) -> Iterator[_Import]:
    """All imports of a module in a package, except those for type checkers only."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith(
            "TYPE_CHECKING"
        ):
            waiting += node.orelse
        elif isinstance(node, ast.Import):
            yield from (_Import(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                yield _Import(source, alias.name, alias.asname or alias.name)
        elif not isinstance(node, ast.expr):
            waiting += ast.iter_child_nodes(node)
