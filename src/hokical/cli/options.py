"""Options that several commands share."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

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
#: What to do with rows that lack a score or a label.
Missing = StrEnum("Missing", ["error", "drop"])
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
_VALIDATION = "Logits and labels to fit on: .npz, .npy, .csv, .parquet."
Validation = Annotated[Path, argument("VAL", _VALIDATION, show_default=False)]
Settings = Annotated[
    list[str] | None,
    text("An option of the method: n_bins=20; repeatable.", "--set", metavar="K=V"),
]
_GROUPS = "Columns with the groups of rows: sex,site."
_MISSING = "Rows without a score or label: error, or drop them."
_SCORE_COLUMNS = "Columns of the scores: a,b,c, or a pattern: 'P({class})'."
_CONFIDENCE = "Column of a confidence in place of logits."
_MULTILABEL = "Labels do not exclude each other; score_{label}, label_{label}."


@dataclass(frozen=True)
class Input:
    """How to read the data of a command: options that commands share."""

    labels: Labels = None
    probabilities: Scores = None
    zeros: Zeros = None
    binary_score: BinaryScore = None
    classes: Classes = None
    label_column: Annotated[str | None, text("Column of the labels.", metavar="COLUMN")] = None
    score_columns: Annotated[str | None, text(_SCORE_COLUMNS, metavar="COLUMNS")] = None
    decimal: Annotated[str, text("Decimal sign of a .csv.", metavar="SIGN")] = "."
    encoding: Annotated[str | None, text("Encoding of a .csv.", show_default="utf-8")] = None
    missing: Annotated[Missing, text(_MISSING, metavar="WORD")] = Missing.error
    groups: Annotated[str | None, text(_GROUPS, metavar="COLUMNS")] = None
    split: Split = Part.val
    class_axis: ClassAxis = None
    ignore_label: IgnoreLabel = None
    confidence: Annotated[str | None, text(_CONFIDENCE, metavar="COLUMN")] = None
    right: Annotated[
        str | None, text("With --confidence: whether answers are right.", metavar="COLUMN")
    ] = None
    multilabel: Annotated[bool, text(_MULTILABEL, "--multilabel")] = False


#: Of `Input`, what says that a file holds no logits; a calibrator knows it by itself.
BEYOND = ("confidence", "right", "multilabel")
#: Of `Input`, what goes with pixels and tokens.
MAPS = ("class_axis", "ignore_label")


def reads(
    split: Part = Part.val, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command's parameter `given: Input` as options, less those that it goes `without`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(Input, include_extras=True)
        if split is Part.val:  # no calibrator is given, which may know what the scores are
            hints["probabilities"] = Probabilities
        defaults: dict[str, Any] = {field.name: field.default for field in fields(Input)} | {
            "split": split
        }
        names = [name for name in hints if name not in without]
        shared = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hints[name])
            for name in names
        ]
        own = [
            part.replace(kind=Parameter.KEYWORD_ONLY)
            for part in signature(command, eval_str=True).parameters.values()
            if part.name != "given"
        ]

        @wraps(command)
        def run(**values: Any) -> None:
            given = Input(**defaults | {name: values.pop(name) for name in names})
            command(**values, given=given)

        run.__signature__ = Signature([*own[:-1], *shared, own[-1]])  # type: ignore[attr-defined]
        run.__annotations__ = {part.name: part.annotation for part in (*own, *shared)}
        return run

    return decorate
