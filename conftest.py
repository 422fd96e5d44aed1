"""Doctests are collected from every module that can be imported here."""

import gc
from importlib.util import find_spec

_NEEDED_BY = {
    "torch": [
        "src/hokical/integrations/torch/*",
        "src/hokical/integrations/lightning.py",
        "paper/src/hokical_paper/making/*",
    ],
    "triton": ["src/hokical/integrations/torch/kernels/_triton_*"],
    "onnx": ["src/hokical/integrations/onnx/*"],
}

collect_ignore_glob = [
    pattern
    for library, patterns in _NEEDED_BY.items()
    if not find_spec(library)
    for pattern in patterns
]


def pytest_collection_finish() -> None:
    """Exempt all that was imported and collected from the garbage collector, as it stays anyway.

    Every full collection would walk over it, for a third of a second with all libraries.
    """
    gc.collect()
    gc.freeze()
