"""Models checked, and written so that a crash leaves the old file or the new one."""

import os
from typing import Any

from hokical.core.files import replace_file
from hokical.integrations.onnx.package import onnx_module

#: A protobuf file cannot be larger; some room is left for its head.
LARGEST_FILE = (1 << 31) - (1 << 20)


def write_model(model: Any, path: str | os.PathLike[str] | None) -> None:
    """Check a model and, if there is a path, write it there."""
    check_size(model)
    checker = onnx_module("onnx.checker")
    errors = checker.ValidationError, onnx_module("onnx.shape_inference").InferenceError
    try:
        checker.check_model(model, full_check=True)
    except errors as error:
        raise ValueError(f"the model must be valid ONNX; onnx's checker says: {error}") from error
    if path is not None:
        with replace_file(path) as stream:
            stream.write(model.SerializeToString())


def check_size(model: Any) -> None:
    """Refuse what does not fit into one file."""
    try:
        fits = model.ByteSize() <= LARGEST_FILE
    except onnx_module("google.protobuf.message").EncodeError:  # it cannot even be measured
        fits = False
    if not fits:
        raise ValueError(
            "the model must be at most 2 GB to be one file; got a larger one. Export the "
            "calibrator by itself and run it on the network's output, or store the network in "
            "float16."
        )
