"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer


class Part(StrEnum):
    """The examples to use of a file that holds a validation and a test set."""

    val = "val"
    test = "test"

    @property
    def literal(self) -> Literal["val", "test"]:
        """As the library spells it."""
        return "val" if self is Part.val else "test"


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Bins = Annotated[int, typer.Option(min=1, help="Number of equal-width confidence bins.")]
Resamples = Annotated[
    int, typer.Option(min=0, help="Bootstrap resamples for intervals; 0 for no intervals.")
]
Seed = Annotated[int, typer.Option(min=0, metavar="<int>", help="Seed of everything random.")]
Labels = Annotated[
    Path | None, typer.Option(help="File with the labels, if not next to the logits.")
]
Split = Annotated[Part, typer.Option(help="Part of a file with val_logits and test_logits.")]
ClassAxis = Annotated[
    int | None,
    typer.Option(help="For maps and tokens: axis of the classes, 1 for (n, classes, h, w)."),
]
IgnoreLabel = Annotated[
    list[int] | None,
    typer.Option(
        metavar="<int>", help="With --class-axis: a label to ignore, e.g. 255; repeatable."
    ),
]
PositionsPerItem = Annotated[
    int | None,
    typer.Option(min=1, metavar="<int>", help="With --class-axis: positions to use per item."),
]
CalibratorFile = Annotated[
    Path, typer.Argument(metavar="CALIBRATOR", help="File that `fit` saved.")
]
Validation = Annotated[
    Path,
    typer.Argument(
        metavar="VAL",
        show_default=False,
        help="Logits and labels to fit on: .npz, .npy, .csv, .parquet, .safetensors, pickle.",
    ),
]
