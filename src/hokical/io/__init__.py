"""Logits and labels from files, and results into files.

One module per format. The format is found by a file's first bytes; nothing in a file is ever run.

>>> import tempfile, pathlib
>>> from hokical.io import read_examples, write_npz
>>> path = pathlib.Path(tempfile.mkdtemp()) / "val.npz"
>>> write_npz(path, logits=[[2.0, 0.0], [0.5, 1.0]], labels=[0, 1])
>>> read_examples(path).logits.n_rows
2
"""

from hokical.io._agreement import agreement
from hokical.io._errors import DataFileError
from hokical.io._labelled import LabelledRows, read_examples
from hokical.io._logprobs import read_lm_eval, read_logprobs
from hokical.io._names import Wanted
from hokical.io._opening import is_pattern
from hokical.io._writing import check_output, write_npz, write_table

__all__ = [
    "DataFileError", "LabelledRows", "Wanted", "agreement", "check_output", "is_pattern",
    "read_examples", "read_lm_eval", "read_logprobs", "write_npz", "write_table",
]  # fmt: skip
