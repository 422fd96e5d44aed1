"""Models checked, and written so that a crash leaves the old file or the new one."""

from __future__ import annotations

import os
from typing import Any

from hokical.integrations.onnx.library import library
from hokical.storage import replacing

#: A protobuf file cannot be larger; some room is left for its head.
LARGEST_FILE = (1 << 31) - (1 << 20)


def write_model(model: Any, path: str | os.PathLike[str] | None) -> None:
    """Check a model and, if there is a path, write it there."""
    check_size(model)
    library("onnx.checker").check_model(model, full_check=True)
    if path is not None:
        with replacing(path) as stream:
            stream.write(model.SerializeToString())


def check_size(model: Any) -> None:
    """Refuse what does not fit into one file."""
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size > LARGEST_FILE:
        raise ValueError(
            f"the model must be at most 2 GB to be one file; got {size / 1e9:.1f} GB. Export the "
            "calibrator by itself and run it on the network's output, or store the network in "
            "float16."
        )
