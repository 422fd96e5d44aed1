"""Calibrators from files; they predict without the libraries that a fit needs."""

import os
from typing import Any

from hokical._core.storage import CalibratorFileError, read_document
from hokical.calibrators._calibrator import Calibrator
from hokical.calibrators._catalog import class_of_file, find_rule


def load(path: str | os.PathLike[str]) -> Any:
    """Read a calibrator that `save` wrote: an object of the same class, fitted as it was.

    Raises CalibratorFileError for anything else. Loading and predicting need NumPy and
    array-api-compat alone: scikit-learn, SciPy and numba are not imported.
    """
    document = read_document(path, find_rule)
    kind = class_of_file(document)
    try:
        return kind._from_document(document)
    except (KeyError, AttributeError, TypeError, ValueError) as error:  # an edited file
        raise CalibratorFileError(f"{path} holds no usable {kind.__name__}: {error}") from error


def load_calibrator(path: str | os.PathLike[str]) -> Calibrator:
    """`load` where only a calibrator of logits will do."""
    found = load(path)
    if not isinstance(found, Calibrator):
        raise CalibratorFileError(
            f"{path} must hold a calibrator of logits; got a {type(found).__name__}. Read it with "
            "`hokical.load`."
        )
    return found
