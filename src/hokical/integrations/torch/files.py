"""A network and its calibrator in one file: safetensors, with the calibrator as JSON beside."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.fitted import load
from hokical.core.optional import import_optional
from hokical.core.storage import CalibratorFileError

#: Under which name the calibrator stands in the file.
_CALIBRATOR = "hokical_calibrator"


def write_network(path: str | os.PathLike[str], network: nn.Module, fitted: Calibrator) -> None:
    """Write the network's numbers and the calibrator; an old file stays until all is written."""
    safetensors = import_optional("safetensors.torch", "safetensors")
    target = Path(path)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fitted.save(Path(folder, "cal.json"))
        about = {_CALIBRATOR: Path(folder, "cal.json").read_text(encoding="utf-8")}
        safetensors.save_model(network, str(Path(folder, "network")), metadata=about)
        os.replace(Path(folder, "network"), target)


def read_network(
    path: str | os.PathLike[str], network: nn.Module | Callable[[], nn.Module]
) -> tuple[nn.Module, Calibrator]:
    """The network with the file's numbers, and the calibrator."""
    module = network if isinstance(network, nn.Module) else network()
    if not isinstance(module, nn.Module):
        raise TypeError(
            "`model` must be the network, an nn.Module, or a function that makes it; got "
            f"{type(module).__name__}."
        )
    safetensors = import_optional("safetensors.torch", "safetensors")
    Path(path).open("rb").close()  # for an error that names the file
    try:
        with safetensors.safe_open(str(path), framework="pt") as stored:
            text = (stored.metadata() or {}).get(_CALIBRATOR)
    except Exception as error:  # of a kind of its own
        raise CalibratorFileError(f"{path} is not a safetensors file: {error}") from error
    if text is None:
        raise CalibratorFileError(
            f"{path} holds no calibrator; write it with `CalibratedModel.save`."
        )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cal.json").write_text(text, encoding="utf-8")
        fitted = load(Path(folder, "cal.json"))
    with torch.no_grad():
        safetensors.load_model(module, str(path))
    return module, fitted
