"""Scores and labels from files, and results into files.

The format is found by a file's first bytes; nothing in a file is ever run.

>>> import tempfile, pathlib
>>> import numpy as np
>>> from hokical.io import read_examples
>>> path = pathlib.Path(tempfile.mkdtemp()) / "val.npz"
>>> np.savez(path, logits=[[2.0, 0.0], [0.5, 1.0]], labels=[0, 1])
>>> read_examples(path).n_rows
2
"""

from hokical._core.reading import Rows
from hokical.io.answers import (
    read_lm_eval,
    read_logprobs,
    read_sequence_logprobs,
)
from hokical.io.examples import read_examples
from hokical.io.juries import jury
from hokical.io.member_files import read_ensemble
from hokical.io.self_consistency import agreement
from hokical.io.stated import STATED_WORDS, read_stated
from hokical.io.tables import DataFileError, write_table

__all__ = [
    "STATED_WORDS",
    "DataFileError",
    "Rows",
    "agreement",
    "jury",
    "read_ensemble",
    "read_examples",
    "read_lm_eval",
    "read_logprobs",
    "read_sequence_logprobs",
    "read_stated",
    "write_table",
]
