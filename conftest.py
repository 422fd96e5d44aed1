"""Which tests there are: doctests of all that can be imported, samples of long walks,
and what an earlier run has left out. And what they took, in seconds of CPU time.
"""

import gc
import os
import time
from collections import defaultdict
from collections.abc import Generator
from importlib.util import find_spec
from typing import Any

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


#: Where pytest's cache has the tests that passed in the last run.
_PASSED = "hokical/passed"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--left-out",
        action="store_true",
        help="what did not pass in the last run, and of sampled cases every fourth",
    )


class _Passed:
    """Notes which tests pass, for a later run with `--left-out`."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.names.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        session.config.cache.set(_PASSED, self.names)


def pytest_configure(config: pytest.Config) -> None:
    """Forget compiled kernels older than any kernel: numba looks at the caller's
    source alone.
    """
    if hasattr(config, "workerinput"):
        return
    if not config.getoption("--left-out") and hasattr(config, "cache"):
        config.pluginmanager.register(_Passed())
    source = config.rootpath / "src"
    kernels = source.rglob("*kernels.py")
    newest = max((path.stat().st_mtime for path in kernels), default=0.0)
    for stored in source.rglob("__pycache__/*.nbi"):
        if stored.stat().st_mtime < newest:
            stored.unlink(missing_ok=True)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Of tests marked `sample(n)`, all cases but n are slow: the first, the last, some
    between.

    Of the slow ones `--left-out` takes every fourth.
    """
    cases, thinned = defaultdict(list), set[pytest.Item]()
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for walk in cases.values():
        (wanted,) = walk[0].get_closest_marker("sample").args
        last, steps = len(walk) - 1, max(wanted - 1, 1)
        kept = {round(step * last / steps) for step in range(wanted)}
        left_out = [item for index, item in enumerate(walk) if index not in kept]
        for item in left_out:
            item.add_marker(pytest.mark.slow)
        thinned.update(item for index, item in enumerate(left_out) if index % 4)
    if config.getoption("--left-out"):
        passed = set(config.cache.get(_PASSED, ()))
        items[:] = [
            item for item in items if item not in thinned and item.nodeid not in passed
        ]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from all that is imported and collected, as it stays
    anyway.

    While importing it takes an eighth of the time; afterwards every full collection
    would walk over everything, for a third of a second with all libraries.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


#: Seconds of CPU time of the workers that have ended, and of what they started.
_WORKER_SECONDS = pytest.StashKey[float]()


def _cpu_seconds() -> float:
    """Of this process and of those that it started and waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells what it took."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu_seconds"] = _cpu_seconds()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    seconds = getattr(node, "workeroutput", {}).get("cpu_seconds", 0.0)
    stash = node.config.stash
    stash[_WORKER_SECONDS] = stash.get(_WORKER_SECONDS, 0.0) + seconds


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if _WORKER_SECONDS in config.stash:
        # Workers are children, which count or not as they were waited for by now.
        seconds = time.process_time() + config.stash[_WORKER_SECONDS]
    else:
        seconds = _cpu_seconds()
    terminalreporter.write_line(f"{seconds:.0f} s of CPU time")
