"""Which columns of a table, or arrays of an archive, hold what: one convention, or explicit names.

| What | Names |
|---|---|
| labels | `label`, `labels` or `y`; beside confidences first `right` or `correct` |
| logits | `logits`, an array or a column of lists; `logit_*`; `z0`, `z1`, ...; `0`, `1`, ... |
| probabilities | `probabilities`, `proba` or `probs`; `probability_*`, `proba_*` or `prob_*` |
| confidences | `confidence` |
| weights | `sample_weight` or `weight` |
| part | of an archive: `val_logits`, `test_logits`, ... |

Upper and lower case are the same. `*` is the name of a class, or its number.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from hokical._core.conversion import Zeros
from hokical._core.reading import describe_columns, match_columns
from hokical.io._errors import DataFileError
from hokical.io._labels import MISSING
from hokical.io._tables import NAMELESS, FileSplit, Table

Kind = Literal["logits", "probabilities", "confidence"]
#: Whether each row must have a label, may have one, or labels are not read.
Labelled = Literal["all", "some", "none"]

LABELS = ("label", "labels", "y")
RIGHT = ("right", "correct", *LABELS)
WEIGHTS = ("sample_weight", "weight")
LOGITS = ("logits",)
#: Of each kind: arrays and columns with all scores, and patterns of columns with that of one class.
_SCORES: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "logits": (LOGITS, (r"logit_(.+)", r"z_?(\d+)", r"(\d+)")),
    "probabilities": (
        ("probabilities", "probability", "proba", "probs"),
        (r"prob(?:a|ability)?_(.+)",),
    ),
    "confidence": (("confidence",), ()),
}
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
    #: None: all rows must have labels where there are any.
    labelled: Labelled | None = None
    drop_missing: bool = False
    fitted_by: Any = None
    weight_column: str | None = None


@dataclass(frozen=True)
class Roles:
    """Names of the columns or arrays that are read; `kind` is None if names do not say it."""

    scores: tuple[str, ...]
    kind: Kind | None
    classes: tuple[str, ...] = ()
    labels: str | None = None
    weights: str | None = None
    groups: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    #: Names of the columns, if there is one for each class.
    columns: tuple[str, ...] = ()
    #: The part that is read, if the file has parts.
    part: FileSplit | None = None
    #: Columns that are used for nothing, though they might hold scores.
    unused: tuple[str, ...] = ()

    def others(self, *, with_labels: bool) -> tuple[str, ...]:
        """The columns that are no scores, each once."""
        labels = self.labels if with_labels else None
        found = (labels, self.weights, *self.groups, *self.kept)
        return tuple(dict.fromkeys(name for name in found if name is not None))


def is_id(name: str) -> bool:
    """Whether a column is one of ids, by its name."""
    return _ID.fullmatch(name.strip()) is not None


def options_from(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `read_examples` for files like the one of a fit, from what its calibrator stores.

    >>> options_from({"scores": "probabilities", "classes": ["a", "b"], "score_columns": ["P(*)"]})
    {'kind': 'probabilities', 'score_columns': ('P(*)',), 'classes': ('a', 'b')}
    """
    found = {"kind": metadata["scores"]} if "scores" in metadata else {}
    columns = metadata.get("score_columns", ())
    if isinstance(columns, str):  # as version 0.3 stored them
        columns = columns.replace("{class}", "*").split(",")
    for name, names in (("score_columns", columns), ("classes", metadata.get("classes"))):
        found |= {name: tuple(names)} if names else {}
    return found | {name: metadata[name] for name in ("label_column", "zeros") if name in metadata}


def find_roles(table: Table, wanted: Columns) -> Roles:
    """The roles of columns, by the names given or by the convention."""
    groups = tuple(table.require(name, "--groups") for name in wanted.groups)
    kept = tuple(table.require(n, "--keep") for n in wanted.keep or () if wanted.keep != ALL)
    labels, weights = table.first(*LABELS), table.first(*WEIGHTS)
    if wanted.label_column is not None and wanted.labelled == "some":
        labels = table.first(wanted.label_column) or labels
    elif wanted.label_column is not None:
        labels = table.require(wanted.label_column, "--label-column")
    if wanted.weight_column is not None:
        weights = table.require(wanted.weight_column, "`sample_weight`")
    taken = {labels, weights, *groups, *kept}
    kind, found = _find_scores(table, wanted, taken)
    by_class = _as_in_fit(table, found, wanted)
    kind = wanted.kind or kind
    if kind == "confidence" and wanted.label_column is None:
        labels = table.first(*RIGHT)
    scores = tuple(by_class.values())
    _refuse_parts(table, {*taken, *scores})
    if wanted.keep is None:
        kept = tuple(n for n in table.names if is_id(n) and n not in scores)
    elif wanted.keep == ALL:
        kept = tuple(name for name in table.names if name not in scores)
    classes = () if len(scores) < 2 or all(map(str.isdecimal, by_class)) else tuple(by_class)
    if [*by_class] == [*found]:
        classes = wanted.classes or classes
    used = {*taken, *scores, *kept} if len(scores) > 1 else {*table.names}
    own_part = table.part is not None and scores[0].lower().startswith(f"{table.part}_")
    return Roles(
        scores, kind, classes, labels, weights, groups, kept, scores if len(scores) > 1 else (),
        part=wanted.split if own_part else None,
        unused=table.numeric(n for n in table.names if n not in used and not is_id(n)),
    )  # fmt: skip


def _as_in_fit(table: Table, found: Mapping[str, str], wanted: Columns) -> Mapping[str, str]:
    """Columns by class in the order of the fit, if they are its columns.

    Others are refused, unless the user has named the columns or the classes.
    """
    known, names = (getattr(wanted.fitted_by, own, ()) for own in ("_columns", "class_names"))
    if len(found) < 2 or not (known or names):
        return found
    pairs = (([*found], names), ([*found], known), ([*found.values()], known))
    places = next((places for pair in pairs if (places := match_columns(*pair))), None)
    if places is not None:
        return dict([*found.items()][k] for k in places)
    if known and not (wanted.score_columns or wanted.classes):
        raise table.error(
            f"expected {describe_columns([*found.values()], known)}.",
            "Rename them, or name the scores in the order of the fit: --score-columns NAMES.",
        )
    return found


def _refuse_parts(table: Table, taken: set[str | None]) -> None:
    """Version 0.3 chose rows by a column `split`; now they would all be used without a word."""
    if table.part is None and table.first("split") not in {None, *taken}:
        raise table.error(
            "expected a table of one part; found a column `split`.",
            "Save its parts as tables of their own, or rename the column to use all rows.",
        )


def _find_scores(
    table: Table, wanted: Columns, taken: set[str | None]
) -> tuple[Kind | None, Mapping[str, str]]:
    """The kind of scores, if names say it, and the columns by class or by their own names."""
    if wanted.score_columns:
        return None, _named_scores(table, wanted)
    if wanted.classes and all(table.first(name) for name in wanted.classes):
        return None, {name: table.require(name, "--classes") for name in wanted.classes}
    by_kind = {kind: found for kind in _SCORES if (found := _by_convention(table, kind, taken))}
    for kind, found in by_kind.items():
        if wanted.kind in (None, kind):
            return kind, found if len(found) == 1 else _in_order(table, found, wanted)
    known = getattr(wanted.fitted_by, "_columns", ())
    of_other_kind = {name for found in by_kind.values() for name in found.values()}
    if known and all(table.first(name) not in {None, *of_other_kind} for name in known):
        return None, {name: table.require(name, "the fit") for name in known}
    if table.names == [NAMELESS]:
        return "logits", {NAMELESS: NAMELESS}
    if not by_kind and (by_label := _like_labels(table, wanted, taken)):
        return None, by_label
    for kind, found in by_kind.items():
        if not all(map(str.isdecimal, map(str.strip, found.values()))):
            raise table.error(
                f"expected {wanted.kind}, as the calibrator was fitted on or as asked for; found "
                f"{kind} in `{next(iter(found.values()))}`.",
                f"Pass {wanted.kind}, or use a calibrator that was fitted on {kind}.",
            )
    others = (n for n in table.names if n not in taken and not is_id(n))
    free = list(islice((name for name in others if _holds_numbers(table, name)), 5))
    named = f"--score-columns {','.join(free[:4]) or 'NAMES'}{',...' if len(free) > 4 else ''}"
    other = "test" if table.part == "val" else "val"
    there = table.part is not None and any(n.lower().startswith(f"{other}_") for n in table.names)
    raise table.error(
        "expected scores in `logits`, `logit_*`, `probabilities`, `prob_*` or `confidence`; found "
        f"{table.listed()}.",
        f"Name the scores: {named}{f', or the part: --split {other}' if there else ''}.",
    )


def _like_labels(table: Table, wanted: Columns, taken: set[str | None]) -> dict[str, str]:
    """Columns that are named like the values of the label, if each of these has one."""
    labels = table.first(*LABELS) if wanted.label_column is None else wanted.label_column
    if labels is None or wanted.kind == "confidence" or len(table.names) < 3:
        return {}
    values = {
        str(value).strip() for value in table.read_column(table.require(labels, "y")).tolist()
    }
    values -= {value for value in values if value.lower() in MISSING}
    free = {name.strip(): name for name in table.names if name not in taken}
    return {name: free[name] for name in free if name in values} if values <= {*free} else {}


def _by_convention(table: Table, kind: Kind, taken: set[str | None]) -> dict[str, str]:
    """Columns of one kind of scores, by class or by their own name; none if there are none."""
    whole, patterns = _SCORES[kind]
    name = table.first(*whole)
    if name is not None:
        return {name: name}
    matches = (_match(table, pattern, taken) for pattern in patterns)
    return next((found for found in matches if len(found) > 1), {})


def _holds_numbers(table: Table, name: str) -> bool:
    try:
        return table.read((name,), ())[0].dtype.kind in "fiu"
    except DataFileError:
        return False


def _named_scores(table: Table, wanted: Columns) -> Mapping[str, str]:
    pattern = wanted.score_columns[0]
    if "*" not in pattern:
        chosen = [table.require(name, "--score-columns") for name in wanted.score_columns]
        own = wanted.classes if len(chosen) == len(wanted.classes) > 1 else wanted.score_columns
        return dict(zip(own, chosen, strict=True))
    found = _match(table, re.escape(pattern).replace(r"\*", "(.+)", 1), set())
    if len(found) < 2:
        raise table.error(
            f"expected columns like {pattern}, one for every class; found {table.listed()}.",
            "Check --score-columns; `*` is the name of a class.",
        )
    return _in_order(table, found, wanted)


def _match(table: Table, pattern: str, taken: set[str | None]) -> dict[str, str]:
    """Columns that match, by the class in their name; numbered ones alone if there are such."""
    own = re.compile(pattern, re.IGNORECASE)
    matches = ((own.fullmatch(name.strip()), name) for name in table.names if name not in taken)
    found = {match[1]: name for match, name in matches if match}
    return {key: name for key, name in found.items() if key.isdecimal()} or found


def _in_order(table: Table, found: dict[str, str], wanted: Columns) -> Mapping[str, str]:
    """Columns in the order of the classes: by number, or as they are asked for."""
    if all(map(str.isdecimal, found)):
        numbers = sorted(map(int, found))
        if numbers[0] > 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise table.error(
                f"expected columns of scores numbered 0, 1, 2, ...; found {numbers}.",
                "Add the missing columns, or name the columns: --score-columns a,b,c.",
            )
        return dict(sorted(found.items(), key=lambda item: int(item[0])))
    missing = next((name for name in wanted.classes if name not in found), None)
    if missing is not None:
        raise table.error(
            f"expected a column for each class; found none for {missing} among {table.listed()}.",
            "Check --classes and --score-columns.",
        )
    return {name: found[name] for name in wanted.classes} or found
