"""Which tests there are: doctests of all that can be imported, and samples of long walks."""

import gc
from collections import defaultdict
from collections.abc import Generator
from importlib.util import find_spec

import pytest

_NEEDED_BY = {
    "torch": [
        "src/hokical/integrations/torch/*",
        "paper/src/hokical_paper/making/*",
    ],
    "triton": ["src/hokical/integrations/torch/kernels.py"],
    "onnx": ["src/hokical/integrations/onnx/*"],
}

collect_ignore_glob = [
    pattern
    for library, patterns in _NEEDED_BY.items()
    if not find_spec(library)
    for pattern in patterns
]


def pytest_configure(config: pytest.Config) -> None:
    """Forget compiled kernels older than any kernel: numba looks at the caller's source alone."""
    if hasattr(config, "workerinput"):
        return
    source = config.rootpath / "src"
    kernels = source.rglob("*kernels.py")
    newest = max((path.stat().st_mtime for path in kernels), default=0.0)
    for stored in source.rglob("__pycache__/*.nbi"):
        if stored.stat().st_mtime < newest:
            stored.unlink(missing_ok=True)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests marked `sample(n)`, all cases but n are slow: the first, the last, some between."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for walk in cases.values():
        (wanted,) = walk[0].get_closest_marker("sample").args
        last, steps = len(walk) - 1, max(wanted - 1, 1)
        kept = {round(step * last / steps) for step in range(wanted)}
        for index, item in enumerate(walk):
            if index not in kept:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from all that is imported and collected, as it stays anyway.

    While importing it takes an eighth of the time; afterwards every full collection would walk over
    everything, for a third of a second with all libraries.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
