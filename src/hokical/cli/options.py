"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

import hokical


class Part(StrEnum):
    """The examples to use of a file that holds a validation and a test set."""

    val = "val"
    test = "test"

    @property
    def literal(self) -> Literal["val", "test"]:
        """As the library spells it."""
        return "val" if self is Part.val else "test"


def complete_method(incomplete: str) -> list[str]:
    """Names of methods that begin so, for the shell's completion."""
    names = ["auto", *hokical.calibrators.catalog.method_names()]
    return [name for name in names if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Bins = Annotated[int, typer.Option(min=1, help="Number of equal-width confidence bins.")]
Resamples = Annotated[
    int, typer.Option(min=0, help="Bootstrap resamples for intervals; 0 for no intervals.")
]
Seed = Annotated[int, typer.Option(min=0, metavar="<int>", help="Seed of everything random.")]
Labels = Annotated[
    Path | None, typer.Option(help="File with the labels, if not next to the logits.")
]
Probabilities = Annotated[
    bool, typer.Option("--probabilities", help="The scores are probabilities, not logits.")
]
#: The same where a calibrator may know.
Scores = Annotated[
    bool | None,
    typer.Option(
        "--probabilities/--logits",
        show_default=False,
        help="What the scores are: as in the fit, else logits.",
    ),
]
#: What a probability of 0 means, see `hokical.from_probabilities`.
Zero = StrEnum("Zero", ["unlikely", "impossible"])
Zeros = Annotated[
    Zero | None,
    typer.Option(
        metavar="WORD",
        show_default="unlikely",
        help="What a probability of 0 means: unlikely or impossible.",
    ),
]
BinaryScore = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The column with the score of class 1 of two; or none."),
]
Classes = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Class names in column order, e.g. cat,dog,bird."),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="Name from `hokical methods`.", show_default="auto", autocompletion=complete_method
    ),
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
