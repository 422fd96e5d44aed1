"""Which columns of a table, or arrays of an archive, hold what: one convention, or explicit names.

| What | Names |
|---|---|
| labels | `label`, `labels` or `y`; beside confidences first `right` or `correct` |
| logits | `logits`, an array or a column of lists; `logit_*`; `z0`, `z1`, ... |
| probabilities | `probabilities`, `proba` or `probs`; `probability_*`, `proba_*` or `prob_*` |
| confidences | `confidence` |
| weights | `sample_weight` or `weight` |
| part | a column `split` with `val` or `test`; arrays `val_logits`, `test_logits`, ... |

Upper and lower case are the same. `*` is the name of a class, or its number.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hokical._core.conversion import Zeros
from hokical.io._errors import DataFileError

FileSplit = Literal["val", "test"]
Kind = Literal["logits", "probabilities", "confidence"]

LABELS = ("label", "labels", "y")
RIGHT = ("right", "correct", *LABELS)
WEIGHTS = ("sample_weight", "weight")
LOGITS = ("logits",)
PROBABILITIES = ("probabilities", "probability", "proba", "probs")
PARTS: dict[FileSplit, tuple[str, ...]] = {"val": ("val", "validation"), "test": ("test",)}
#: Arrays and columns with all scores, and columns with the score of one class, by their kind.
_WHOLE: dict[str, Kind] = {
    **dict.fromkeys(LOGITS, "logits"),
    **dict.fromkeys(PROBABILITIES, "probabilities"),
}
_BY_CLASS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("logits", re.compile(r"logit_(.+)", re.IGNORECASE)),
    ("logits", re.compile(r"z_?(\d+)", re.IGNORECASE)),
    ("probabilities", re.compile(r"prob(?:a|ability)?_(.+)", re.IGNORECASE)),
)
_ID = re.compile(r"(.*_)?id", re.IGNORECASE)
#: `keep` for every column that is not a score.
ALL = ("all",)


@dataclass(frozen=True)
class Columns:
    """What to read; see `read_examples`."""

    split: FileSplit = "val"
    kind: Kind | None = None
    score_columns: tuple[str, ...] = ()
    label_column: str | None = None
    classes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = ()
    zeros: Zeros = "unlikely"


@dataclass(frozen=True)
class Roles:
    """Names of the columns or arrays that are read; `kind` is None if names do not say it."""

    scores: tuple[str, ...]
    kind: Kind | None
    classes: tuple[str, ...] = ()
    labels: str | None = None
    weights: str | None = None
    split: str | None = None
    groups: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    #: The part that is read, if the file has parts.
    part: FileSplit | None = None
    #: The array of an archive with the names of the classes.
    class_names: str | None = None

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that are no scores, each once."""
        single = (self.labels, self.weights, self.split, self.class_names)
        found = (*single, *self.groups, *self.kept)
        return tuple(dict.fromkeys(name for name in found if name is not None))


class Names:
    """Names in a file, found in any case; of arrays, those of the `part` come first."""

    def __init__(self, path: Path, names: Sequence[str], part: FileSplit | None = None) -> None:
        self.path, self.all, self.part = path, list(names), part
        known = [name.strip().lower() for name in names]
        if len(set(known)) < len(known):
            twice = Counter(known).most_common(1)[0][0]
            raise DataFileError(
                path, f"expected every column once; found `{twice}` twice.", "Rename one of them."
            )
        self.places = dict(zip(known, names, strict=True))
        if part is not None:
            own = {k: name for k, name in self.places.items() if k.startswith(f"{part}_")}
            self.places |= {k.removeprefix(f"{part}_"): name for k, name in own.items()}

    def first(self, spellings: Iterable[str]) -> str | None:
        """The first of the spellings that is there, as the file spells it."""
        found = (self.places.get(name.strip().lower()) for name in spellings)
        return next((name for name in found if name is not None), None)

    def require(self, name: str, option: str) -> str:
        """A column or array that the user named."""
        found = self.first([name])
        if found is None:
            raise DataFileError(
                self.path,
                f"expected a column or array `{name}`, named by {option}; found {self.listed()}.",
                "Check the name.",
            )
        return found

    def listed(self) -> str:
        return listed(self.all)


def listed(names: Iterable[str]) -> str:
    """At most eight of the names, for messages."""
    shown = [f"`{name}`" if name else "numbers without a name" for name in names]
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return ", ".join(shown[:8]) + more if shown else "no arrays"


def find_roles(names: Names, wanted: Columns) -> Roles:
    """The roles of columns, by the names given or by the convention."""
    groups = tuple(names.require(name, "--groups") for name in wanted.groups)
    kept = tuple(names.require(n, "--keep") for n in wanted.keep or () if wanted.keep != ALL)
    label_words: tuple[str, ...] = RIGHT if wanted.kind == "confidence" else LABELS
    if wanted.label_column is not None:
        label_words = (names.require(wanted.label_column, "--label-column"),)
    labels, weights = names.first(label_words), names.first(WEIGHTS)
    split = names.first(["split"]) if names.part is None else None
    taken = {labels, weights, split, *groups, *kept}
    kind, by_class = _find_scores(names, wanted, taken)
    if kind == "confidence" and wanted.label_column is None:
        labels = names.first(RIGHT)
    scores = tuple(by_class.values())
    if wanted.keep is None:
        kept = tuple(n for n in names.all if _ID.fullmatch(n.strip()) and n not in scores)
    elif wanted.keep == ALL:
        kept = tuple(name for name in names.all if name not in scores)
    classes = () if len(scores) < 2 or all(map(str.isdigit, by_class)) else tuple(by_class)
    own_part = names.part is not None and scores[0].lower().startswith(f"{names.part}_")
    return Roles(
        scores, wanted.kind or kind, classes, labels, weights, split, groups, kept,
        part=wanted.split if own_part or split is not None else None,
        class_names=None if names.part is None else names.first(["classes"]),
    )  # fmt: skip


def _find_scores(
    names: Names, wanted: Columns, taken: set[str | None]
) -> tuple[Kind | None, Mapping[str, str]]:
    """The kind of scores, if names say it, and the columns by class or by their own names."""
    if wanted.score_columns:
        return None, _named_scores(names, wanted)
    if wanted.classes and all(names.first([name]) for name in wanted.classes):
        return None, {name: names.require(name, "--classes") for name in wanted.classes}
    kinds: tuple[Kind, ...] = ("logits", "probabilities")
    for kind in kinds if wanted.kind is None else (wanted.kind,):
        whole = names.first(name for name, own in _WHOLE.items() if own == kind)
        if whole is not None:
            return kind, {whole: whole}
        for own, pattern in _BY_CLASS:
            found = _match(names, pattern, taken) if own == kind else {}
            if len(found) > 1:
                return kind, _in_order(names, found, wanted)
    confidence = names.first(["confidence"]) if wanted.kind in (None, "confidence") else None
    if confidence is not None:
        return "confidence", {confidence: confidence}
    if names.all == [""]:
        return wanted.kind or "logits", {"": ""}
    raise _no_scores(names, taken)


def _named_scores(names: Names, wanted: Columns) -> Mapping[str, str]:
    pattern = wanted.score_columns[0].replace("{class}", "*")  # as files of version 0.3 have it
    if "*" not in pattern:
        chosen = [names.require(name, "--score-columns") for name in wanted.score_columns]
        own = wanted.classes if len(chosen) == len(wanted.classes) > 1 else wanted.score_columns
        return dict(zip(own, chosen, strict=True))
    before, _, after = pattern.partition("*")
    found = _match(names, re.compile(f"{re.escape(before)}(.+){re.escape(after)}"), set())
    if len(found) < 2:
        raise DataFileError(
            names.path,
            f"expected columns like {pattern}, one for every class; found {names.listed()}.",
            "Check --score-columns; `*` is the name of a class.",
        )
    return _in_order(names, found, wanted)


def _match(names: Names, pattern: re.Pattern[str], taken: set[str | None]) -> dict[str, str]:
    """Columns that match, by the class in their name; numbered ones alone if there are such."""
    matches = ((pattern.fullmatch(name.strip()), name) for name in names.all if name not in taken)
    found = {match[1]: name for match, name in matches if match}
    return {key: name for key, name in found.items() if key.isdigit()} or found


def _in_order(names: Names, found: dict[str, str], wanted: Columns) -> Mapping[str, str]:
    """Columns in the order of the classes: by number, or as they are asked for."""
    if all(map(str.isdigit, found)):
        by_number = sorted(found, key=int)
        numbers = [int(key) for key in by_number]
        if numbers[0] > 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise DataFileError(
                names.path,
                f"expected columns of scores numbered 0, 1, 2, ...; found {numbers}.",
                "Add the missing columns, or name the columns: --score-columns a,b,c.",
            )
        return {key: found[key] for key in by_number}
    missing = next((name for name in wanted.classes if name not in found), None)
    if missing is not None:
        raise DataFileError(
            names.path,
            f"expected a column for each class; found none for {missing} among "
            f"{listed(found.values())}.",
            "Check --classes and --score-columns.",
        )
    return {name: found[name] for name in wanted.classes} or found


def _no_scores(names: Names, taken: set[str | None]) -> DataFileError:
    free = [n for n in names.all if n not in taken and not _ID.fullmatch(n.strip())]
    remedy = f"--score-columns {','.join(free[:4]) or 'NAMES'}{',...' if len(free) > 4 else ''}."
    for part in PARTS:
        if names.part is not None and any(n.startswith(f"{part}_") for n in names.places):
            remedy = f"--score-columns, or the part: --split {part}."
    return DataFileError(
        names.path,
        "expected scores in `logits`, `logit_*`, `probabilities`, `prob_*` or `confidence`; found "
        f"{names.listed()}.",
        f"Name the scores: {remedy}",
    )
