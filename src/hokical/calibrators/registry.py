"""Which calibrators there are, and how a saved one comes back."""

from __future__ import annotations

import os

from hokical.calibrators.base import Calibrator
from hokical.calibrators.hoki import Hoki
from hokical.storage import CalibratorFileError, read_document

CALIBRATORS: dict[str, type[Calibrator]] = {kind.name: kind for kind in (Hoki,)}


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a calibrator that `save` wrote. Raises CalibratorFileError for anything else."""
    document = read_document(path)
    kinds = {kind.__name__: kind for kind in CALIBRATORS.values()}
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise CalibratorFileError(f"{path} holds a {kind!r}; this version knows {sorted(kinds)}.")
    try:
        calibrator = kinds[kind](**document["parameters"])
        calibrator._remember_classes(document["n_classes"])
        calibrator._restore(document["state"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CalibratorFileError(f"{path} does not hold a usable {kind}: {error}") from error
    return calibrator
