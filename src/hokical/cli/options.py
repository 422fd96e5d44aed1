"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

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


def text(help: str, *names: str, **options: Any) -> Any:
    """An option with its help text first; typer makes the names that are not given."""
    counts = {"metavar": "<int>"} if "min" in options else {}
    return typer.Option(*names, help=help, **counts | options)


def argument(name: str, help: str, **options: Any) -> Any:
    """An argument that the help page calls by a name in capitals."""
    return typer.Argument(metavar=name, help=help, **options)


def complete_method(incomplete: str) -> list[str]:
    """Names of methods that begin so, for the shell's completion."""
    names = ("auto", *hokical.calibrators._catalog.method_names())
    return [name for name in names if name.startswith(incomplete)]


def method(help: str) -> Any:
    """The name of a method, which the shell completes."""
    return text(help, show_default="auto", autocompletion=complete_method)


Json = Annotated[bool, text("Print the result as JSON.", "--json")]
Bins = Annotated[int, text("Number of equal-width confidence bins.", min=1)]
Resamples = Annotated[int, text("Bootstrap resamples for intervals; 0 for no intervals.", min=0)]
Seed = Annotated[int, text("Seed of everything random.", min=0)]
Labels = Annotated[Path | None, text("File with the labels, if not next to the logits.")]
Probabilities = Annotated[bool, text("Scores are probabilities, not logits.", "--probabilities")]
#: The same where a calibrator may know.
_SCORES = "What the scores are: as in the fit, else logits."
Scores = Annotated[bool | None, text(_SCORES, "--probabilities/--logits", show_default=False)]
#: What a probability of 0 means, see `hokical.from_probabilities`.
Zero = StrEnum("Zero", ["unlikely", "impossible"])
_ZEROS = "What a probability of 0 means: unlikely or impossible."
Zeros = Annotated[Zero | None, text(_ZEROS, metavar="WORD", show_default="unlikely")]
BinaryScore = Annotated[str | None, text("Score of class 1 of two, or none.", metavar="COLUMN")]
Classes = Annotated[str | None, text("Class names in column order: cat,dog,bird.", metavar="NAMES")]
Method = Annotated[str | None, method("Name from `hokical methods`.")]
Split = Annotated[Part, text("Part of a file with val_logits and test_logits.")]
ClassAxis = Annotated[
    int | None, text("For maps and tokens: axis of the classes, 1 for (n, classes, h, w).")
]
IgnoreLabel = Annotated[
    list[int] | None,
    text("With --class-axis: a label to ignore, e.g. 255; repeatable.", metavar="<int>"),
]
PositionsPerItem = Annotated[
    int | None, text("With --class-axis: positions to use per item.", min=1)
]
CalibratorFile = Annotated[Path, argument("CALIBRATOR", "File that `fit` saved.")]
_VALIDATION = "Logits and labels to fit on: .npz, .npy, .csv, .parquet, .safetensors."
Validation = Annotated[Path, argument("VAL", _VALIDATION, show_default=False)]
