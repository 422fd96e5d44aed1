"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Part(StrEnum):
    """Which examples of a file that holds a validation and a test set."""

    val = "val"
    test = "test"


_PART_HELP = "Which part of a file with val_logits and test_logits."

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Bins = Annotated[int, typer.Option(min=1, help="Number of equal-width bins of confidence.")]
Resamples = Annotated[
    int, typer.Option(min=0, help="Bootstrap resamples for the intervals; 0 leaves them out.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Labels = Annotated[
    Path | None,
    typer.Option(help="File with the labels, if they are not beside the logits."),
]
Split = Annotated[Part, typer.Option(help=_PART_HELP)]
ClassAxis = Annotated[
    int | None,
    typer.Option(help="For maps and tokens: axis of the classes, 1 for (n, classes, h, w)."),
]
IgnoreLabel = Annotated[
    list[int] | None,
    typer.Option(
        metavar="<int>",
        help="With --class-axis: a label that does not count, say 255; may be repeated.",
    ),
]
PositionsPerItem = Annotated[
    int | None,
    typer.Option(
        min=1, help="With --class-axis: learn from at most so many positions of an item, say 300."
    ),
]
Validation = Annotated[
    Path,
    typer.Argument(
        metavar="VAL",
        show_default=False,
        help="Logits and labels to learn from: .npz, .npy, .csv, .parquet, .safetensors, pickle.",
    ),
]
