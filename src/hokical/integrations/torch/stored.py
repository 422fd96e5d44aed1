"""Files with the tensors of a network and its calibrator (safetensors, no pickle)."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_args

import torch
from torch import nn

from hokical._core.runtime import import_optional
from hokical._core.storage import CalibratorFileError, StrPath
from hokical.calibrators.calibrator import Calibrator
from hokical.calibrators.confidence import MultilabelCalibrator
from hokical.integrations.torch.module import calibrator_text, parse_calibrator
from hokical.integrations.torch.networks import bare
from hokical.integrations.torch.outputs import Outputs

#: The entries of a file's metadata: the calibrator, and how it is used.
_CALIBRATOR = "hokical_calibrator"
USE = "hokical_use"
#: The entry of `USE` that names the members of an ensemble.
MEMBERS = "members"
#: The calibrator's file in the folder of a network of transformers.
CALIBRATOR_FILE = "hokical.json"


def save_network(
    path: StrPath,
    network: nn.Module,
    calibrator: Calibrator | MultilabelCalibrator,
    use: dict[str, Any],
) -> None:
    """Write the tensors of the bare network and its calibrator to one file."""
    safetensors = import_optional("safetensors.torch", "safetensors")
    metadata = {_CALIBRATOR: calibrator_text(calibrator), USE: json.dumps(use)}
    # A new file replaces the old one, which a crash leaves as it is.
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        file = Path(folder, "network")
        safetensors.save_model(bare(network), str(file), metadata=metadata)
        os.replace(file, path)


def check_use(use: object, path: StrPath) -> dict[str, Any]:
    """How a calibrator is used, as a file states it; raise unless this is sound."""
    if not isinstance(use, dict):
        raise CalibratorFileError(
            f"{path} is damaged: `{USE}` must be an object; got {use!r}."
        )
    for field, value in use.items():
        if field not in _USE_FIELDS:
            raise CalibratorFileError(
                f"{path} is damaged: `{USE}` must have the fields "
                f"{', '.join(_USE_FIELDS)} alone; got {field!r}."
            )
        is_sound, rule = _USE_FIELDS[field]
        if not is_sound(value):
            raise CalibratorFileError(
                f"{path} is damaged: `{field}` of `{USE}` must be {rule}; got "
                f"{value!r}."
            )
    return use


def _is_axis(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


#: What may be stated about the use of a calibrator, and how it is checked.
_USE_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "class_axis": (_is_axis, "an integer"),
    "outputs": (get_args(Outputs).__contains__, "logits or probabilities"),
    MEMBERS: (_are_names, "a list of names"),
}


@dataclass(frozen=True)
class StoredNetwork:
    """A file of `CalibratedModel.save`: the calibrator, and how it is used."""

    path: StrPath
    fitted: Calibrator | MultilabelCalibrator
    use: dict[str, Any]

    @classmethod
    def read(cls, path: StrPath) -> Self:
        """Everything in a file but the values of the network's tensors."""
        safetensors = import_optional("safetensors.torch", "safetensors")
        Path(path).open("rb").close()  # for an error that names the file
        try:
            with safetensors.safe_open(str(path), framework="pt") as tensors:
                metadata = tensors.metadata() or {}
        except Exception as error:  # safetensors has error classes of its own
            raise CalibratorFileError(
                f"{path} is not a safetensors file: {error}"
            ) from error
        if _CALIBRATOR not in metadata:
            raise CalibratorFileError(
                f"{path} holds no calibrator; write it with `CalibratedModel.save`."
            )
        try:
            fitted = parse_calibrator(metadata[_CALIBRATOR])
            use = json.loads(metadata.get(USE, "{}"))
        except (CalibratorFileError, json.JSONDecodeError) as error:
            raise CalibratorFileError(f"{path} is damaged: {error}") from error
        return cls(path, fitted, check_use(use, path))

    def load_into(self, network: nn.Module) -> None:
        """Load the file's tensors into a network of the same architecture."""
        safetensors = import_optional("safetensors.torch", "safetensors")
        with torch.no_grad():
            safetensors.load_model(bare(network), str(self.path))
