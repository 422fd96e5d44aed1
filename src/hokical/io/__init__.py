"""Scores and labels from files, and results into files.

One module per format. The format is found by a file's first bytes; nothing in a file is ever run.

>>> import tempfile, pathlib
>>> import numpy as np
>>> from hokical.io import read_examples
>>> path = pathlib.Path(tempfile.mkdtemp()) / "val.npz"
>>> np.savez(path, logits=[[2.0, 0.0], [0.5, 1.0]], labels=[0, 1])
>>> read_examples(path).n_rows
2
"""

from hokical.io.answers import (
    STATED_WORDS,
    agreement,
    read_lm_eval,
    read_logprobs,
    read_sequence_logprobs,
    read_stated,
)
from hokical.io.examples import Examples
from hokical.io.reading import read_examples
from hokical.io.tables import DataFileError, write_table

__all__ = [
    "STATED_WORDS", "DataFileError", "Examples", "agreement", "read_examples", "read_lm_eval",
    "read_logprobs", "read_sequence_logprobs", "read_stated", "write_table",
]  # fmt: skip
