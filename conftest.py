"""Doctests are collected from every module that can be imported here."""

from importlib.util import find_spec

_NEEDED_BY = {
    "torch": ["paper/making/*", "integrations/torch/*", "integrations/lightning.py"],
    "triton": ["integrations/torch/kernels/triton_*"],
    "onnx": ["integrations/onnx/*"],
}

collect_ignore_glob = [
    f"src/hokical/{pattern}"
    for library, patterns in _NEEDED_BY.items()
    if not find_spec(library)
    for pattern in patterns
]
