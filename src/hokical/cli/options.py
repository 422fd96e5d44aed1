"""The options of all commands, each defined once: a name means the same everywhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import hokical

#: What to do with rows that lack a score or a label.
Missing = StrEnum("Missing", ["error", "drop"])


#: The examples to use of a file that holds a validation and a test set.
Part = StrEnum("Part", ["val", "test"])


def text(help: str, *names: str, **options: Any) -> Any:
    """An option with its help text first; typer derives names that are not given."""
    counts = {"metavar": "<int>"} if "min" in options else {}
    return typer.Option(*names, help=help, **counts | options)


def argument(name: str, help: str, **options: Any) -> Any:
    """An argument that the help page calls by a name in capitals."""
    return typer.Argument(metavar=name, help=help, **options)


def complete_method(incomplete: str) -> list[str]:
    """Names of methods with this beginning, for the shell's completion."""
    names = ("auto", *hokical.calibrators.method_names())
    return [name for name in names if name.startswith(incomplete)]


def split_names(given: str | None) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in (given or "").split(",") if name.strip())


#: Options that say how data are read have a part of their own on help pages.
_DATA: dict[str, Any] = {"rich_help_panel": "Input format"}
_COLUMN, _COLUMNS = _DATA | {"metavar": "COLUMN"}, _DATA | {"metavar": "COLUMNS"}

CalibratorFile = Annotated[Path, argument("CALIBRATOR", "File that `fit` saved.")]
_FILE = "Logits and labels: .npz, .npy, .csv, .parquet."
Validation = Annotated[Path, argument("VAL", _FILE, show_default=False)]
HeldOut = Annotated[Path, argument("FILE", "Logits and labels that nothing was fitted on.")]
NewData = Annotated[Path, argument("FILE", "New logits; labels are not needed.")]

# How data are read. What is not given is as in the fit of the calibrator, where there is one.
Labels = Annotated[Path | None, text("File with the labels, if not beside the scores.", **_DATA)]
LabelColumn = Annotated[str | None, text("Column of the labels.", **_COLUMN)]
ScoreColumns = Annotated[
    str | None, text("Columns of the scores: a,b,c, or a pattern: 'P(*)'.", **_COLUMNS)
]
Probabilities = Annotated[
    bool | None,
    text("What the scores are.", "--probabilities/--logits", show_default="by name", **_DATA),
]
Confidence = Annotated[
    str | None, text("Column of one confidence per row; labels say if it was right.", **_COLUMN)
]
Classes = Annotated[
    str | None, text("Class names in column order: cat,dog.", metavar="NAMES", **_DATA)
]
Positive = Annotated[
    str | None, text("Of two classes: the event.", metavar="NAME", show_default="the second")
]
Groups = Annotated[str | None, text("Columns with the groups of rows: sex,site.", **_COLUMNS)]
Cluster = Annotated[
    str | None, text("Column that says which rows belong together: patient.", **_COLUMN)
]
MissingRows = Annotated[
    Missing, text("Rows without a score or label: error, or drop.", metavar="WORD", **_DATA)
]
Split = Annotated[Part, text("Part of a file with val_logits and test_logits.", **_DATA)]

# What is done.
Method = Annotated[
    str | None,
    text("Name from `hokical methods`.", show_default="auto", autocompletion=complete_method),
]
Settings = Annotated[
    list[str] | None,
    text("An option of the method: n_bins=20; repeatable.", "--set", metavar="K=V"),
]
LookAlike = Annotated[bool, text("Accept rows identical to calibration rows.", "--look-alike")]
Coverage = Annotated[float | None, text("Conformal prediction sets with this coverage, e.g. 0.9.")]
Delta = text("Probability that what is guaranteed fails to hold.")
Proba = text("Also give the probabilities of all classes.", "--proba/--no-proba")
Seed = Annotated[int, text("Seed of everything random.", min=0)]

# Where results go.
Output = text("File to write.", "-o", "--output")
Report = Annotated[Path | None, text("Write an HTML report here (.html).")]
Json = Annotated[bool, text("Print the result as JSON.", "--json")]
