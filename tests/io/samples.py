"""Small examples in every format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.conftest import synthetic_logits

VAL = synthetic_logits(40, 3, seed=1)
TEST = synthetic_logits(30, 3, seed=2)


def write_npz(path: Path) -> Path:
    np.savez(path, val_logits=VAL[0], val_labels=VAL[1], test_logits=TEST[0], test_labels=TEST[1])
    return path


def write_csv(path: Path) -> Path:
    """Columns in an order that a tool might leave them in, with an id and a split."""
    lines = ["id,split,logit_2,label,logit_0,logit_1"]
    for part, (logits, labels) in (("val", VAL), ("test", TEST)):
        for i, (row, label) in enumerate(zip(logits, labels, strict=True)):
            a, b, c = (repr(float(value)) for value in row)
            lines.append(f"x{i},{part},{c},{label},{a},{b}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_parquet(path: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    logits = np.concatenate([VAL[0], TEST[0]])
    columns = {f"logit_{k}": logits[:, k] for k in (2, 0, 1)}
    columns["label"] = np.concatenate([VAL[1], TEST[1]])
    columns["split"] = np.repeat(["validation", "test"], [40, 30])
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "npz": write_npz,
    "csv": write_csv,
    "parquet": write_parquet,
}
LIBRARIES = {"parquet": "pyarrow"}
