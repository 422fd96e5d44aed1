"""Small examples in every format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.conftest import synthetic_logits

VAL = synthetic_logits(40, 3, seed=1)
TEST = synthetic_logits(30, 3, seed=2)


def write_npz(path: Path) -> Path:
    np.savez(
        path,
        val_logits=VAL[0],
        val_labels=VAL[1],
        test_logits=TEST[0],
        test_labels=TEST[1],
    )
    return path


def write_csv(path: Path) -> Path:
    """Columns in an order that a tool might leave them in, with an id."""
    lines = ["id,logit_2,label,logit_0,logit_1"]
    for i, (row, label) in enumerate(zip(*VAL, strict=True)):
        a, b, c = (repr(float(value)) for value in row)
        lines.append(f"x{i},{c},{label},{a},{b}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_parquet(path: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    columns = {f"logit_{k}": VAL[0][:, k] for k in (2, 0, 1)} | {"label": VAL[1]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "npz": write_npz,
    "csv": write_csv,
    "parquet": write_parquet,
}
LIBRARIES = {"parquet": "pyarrow"}
