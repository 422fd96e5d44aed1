"""`hokical show`: what is inside a file that `fit` saved. `hokical methods`: the
calibration methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

import hokical
from hokical.cli import console as ui
from hokical.cli.options import (
    class_names_of,
    command,
    members_of,
    n_classes_of,
    read_calibrator,
)
from hokical.rules.members import PooledMembers
from hokical.stability.families import Noise

if TYPE_CHECKING:  # help pages are fast without calibrators
    from hokical.calibrators.stored import StoredEstimator

#: Arrays with more numbers are not listed.
_MAX_NUMBERS = 1000
#: Class names, and numbers of an array, that are listed in words.
_MAX_LISTED = 6
#: Methods of the package hokical-paper.
_PAPER_METHODS = frozenset({"recal", "ms_odir", "dir_odir", "profile"})
_DEFAULT = (
    "Without `--method`, fit uses the default, auto: structured scaling at several "
    "ridge penalties, of which the strongest is temperature scaling, averaged by "
    "held-out log loss; from three classes on a correction of each row as in "
    "adaptive, if it helps. It predicts the most likely class, or with --keep-labels "
    "the classifier's own label."
)


@command()
def show(calibrator: Path) -> ui.Result:
    """Show what is inside a calibrator.

    Example: hokical show cal.json
    """
    fitted = read_calibrator(calibrator, for_rows=False)
    values, lines = describe(fitted)
    members = members_of(fitted)
    if members is None:
        return ui.Result(values, lines)

    def show_all() -> None:
        ui.show_facts(lines)
        ui.stdout().print(Text(f"\n{members}"), soft_wrap=True)

    return ui.Result(values, show_all)


def _member_values(members: PooledMembers) -> dict[str, Any]:
    """What each member of the ensemble is worth, for JSON."""
    values = [
        {"name": name, "weight": weight}
        for name, weight in zip(members.names, members.weights.tolist(), strict=True)
    ]
    if members.learned:
        for value, loss in zip(values, members.losses.tolist(), strict=True):
            value["log_loss_alone"] = loss
    if members.learned and members.order is not None and members.remaining is not None:
        losses = members.remaining.tolist()
        for v, loss in zip(members.order.tolist(), losses, strict=True):
            values[v]["log_loss_with_better"] = loss
    needed = [*members.needed]
    return {
        "members": values,
        "needed_members": needed,
        "exchangeable": members.exchangeable,
    }


def describe(
    fitted: StoredEstimator,
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """What is inside a loaded calibrator as values, and in words."""
    facts = dict(fitted.metadata_)
    if isinstance(fitted, hokical.Calibrator):
        facts |= _fit_facts(fitted)
    n_classes = n_classes_of(fitted)
    names = list(class_names_of(fitted)) or facts.get("classes")
    values: dict[str, Any] = {
        "method": fitted.name,
        "n_classes": n_classes,
        "classes": names,
        **{name: facts.get(name) for name in ("scores", "examples", "accuracy")},
        "reason": fitted.choice_reason,
    }
    lines: dict[str, str | None] = {
        "method": fitted.name,
        "scores": values["scores"],
        "classes": _class_words(n_classes, names),
        "fitted on": _fit_words(facts),
        "chosen": values["reason"],
    }
    members = members_of(fitted)
    if members is not None:
        values |= _member_values(members)
        lines["members"] = members.describe()
        if len(members.needed) < len(members.names):
            lines["needed"] = ", ".join(members.needed)
    more_values: dict[str, Any] = {}
    more_lines: dict[str, str | None] = {}
    if isinstance(fitted, hokical.Calibrator):
        more_values, more_lines = _describe_rule(fitted)
    elif isinstance(
        fitted, (hokical.ConfidenceCalibrator, hokical.MultilabelCalibrator)
    ):
        certified = "no" if fitted.held_out_ is None else "yes"
        more_values = {"certified": certified}
        more_lines = {"certified": certified}
    return values | more_values, lines | more_lines


def _fit_facts(fitted: hokical.Calibrator) -> dict[str, Any]:
    """Number and accuracy of the calibration examples, if the calibrator counts them."""
    counts = fitted.predictor_.fit_record.label_scores
    if counts is None:
        return {}
    n_wrong = int(counts.wrong.sum())
    return {"examples": counts.total, "accuracy": 1.0 - n_wrong / counts.total}


def _class_words(n_classes: int | None, names: list[str] | None) -> str | None:
    if n_classes is None:
        return None
    if not names:
        return str(n_classes)
    more = ", ..." if len(names) > _MAX_LISTED else ""
    return f"{n_classes}: {', '.join(names[:_MAX_LISTED])}{more}"


def _fit_words(facts: Mapping[str, Any]) -> str | None:
    n = facts.get("examples")
    accuracy = facts.get("accuracy")
    if n is None:
        return None
    share = "" if accuracy is None else f", accuracy {accuracy:.1%} before calibration"
    return f"{n:,} examples{share}"


def _describe_rule(
    fitted: hokical.Calibrator,
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """What a calibrator of logits learned and guarantees, as values and in words."""
    rule = fitted.rule_
    guarantee = _guarantee(fitted)
    learned = {
        name: value for name, value in rule.own_fields().items() if value is not None
    }
    title = fitted.method.title.split(" (")[0]  # without the explanation
    label = "the most likely class after calibration"
    if rule.preserves_labels:
        label = "the classifier's own"
    values = {
        "label": label,
        "reference": fitted.method.reference,
        "library_version": fitted.library_version,
        "title": title,
        "guarantee": guarantee,
        "learned": _plain_values(learned),
    }
    lines: dict[str, str | None] = {
        "method": f"{title} ({fitted.name})",
        "label": label,
    }
    for name, value in learned.items():
        if name != "keep_labels":
            lines[name] = _in_words(value)
    lines["guarantee"] = guarantee["text"]
    lines["reference"] = fitted.method.reference
    lines["saved with"] = f"hokical {fitted.library_version}"
    return values, lines


def _guarantee(fitted: hokical.Calibrator) -> dict[str, Any]:
    """The guarantee of `apply --risk` at its default values, or why there is none."""
    try:
        options = hokical.guarantees.scores.AbstentionOptions(risk=0.05, delta=0.1)
        thresholds = fitted.predictor_.abstention_thresholds(options)
        no_rows = np.zeros(0)
        selective = hokical.guarantees.SelectivePrediction.of(
            thresholds, no_rows, no_rows, no_rows
        )
    except (TypeError, ValueError) as error:
        return {"text": str(error)}
    return {
        "risk": selective.risk,
        "delta": selective.delta,
        "threshold": selective.threshold,
        "coverage": selective.coverage,
        "certified_on": selective.certified_on,
        "text": selective.guarantee,
    }


def _plain_values(value: Any) -> Any:
    """Plain numbers, strings, lists and dicts; of long arrays the shape."""
    if isinstance(value, Noise):
        return value.to_dict()
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {name: _plain_values(item) for name, item in value.items()}
    if isinstance(value, np.ndarray) and value.size > _MAX_NUMBERS:
        return {"shape": list(value.shape)}
    if isinstance(value, (list, tuple)):
        return [_plain_values(item) for item in value]
    return value


def _in_words(value: Any) -> str:
    """Numbers; of long arrays the shape, of records without a text the single
    numbers.
    """
    has_text = "__str__" in vars(type(value))  # not that of all dataclasses
    if is_dataclass(value) and not isinstance(value, Noise) and not has_text:
        value = {
            name: item for name, item in vars(value).items() if isinstance(item, float)
        }
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(item)}" for name, item in value.items())
    if isinstance(value, np.ndarray) and value.size > _MAX_LISTED:
        return f"{' x '.join(map(str, value.shape))} numbers"
    if isinstance(value, (np.ndarray, list, tuple)):
        return ", ".join(map(_in_words, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


@command()
def methods() -> ui.Result:
    """List the calibration methods, the default first.

    Example: hokical methods --json
    """
    names = ("auto", *hokical.calibrators.method_names())
    values = [_method_facts(name) for name in names]

    def show() -> None:
        rows = [
            (
                facts["name"],
                "change" if facts["changes_labels"] else "kept",
                facts["title"].split(" (")[0],
            )
            for facts in values
        ]
        table = ui.new_table(("name", "labels", "method"), rows)
        for column in table.columns[1:]:
            column.justify = "left"
        ui.show_table(
            "Calibration methods; --json shows where each was published", table
        )
        binary = [facts["name"] for facts in values if facts["binary_only"]]
        ui.say(f"For two classes only: {', '.join(binary)}.")
        if missing := sorted(_PAPER_METHODS - {*names}):
            ui.say(
                "In the package hokical-paper (`paper/` in a clone): "
                f"{', '.join(missing)}."
            )
        ui.say(_DEFAULT)

    return ui.Result(values, show)


def _method_facts(name: str) -> dict[str, Any]:
    """What is known of a method, for JSON."""
    calibrator = hokical.make(name)
    method = calibrator.method
    return {
        "name": method.name,
        "title": method.title,
        "reference": method.reference,
        "changes_labels": method.changes_labels,
        "accepts_top_k": method.accepts_top_k,
        "binary_only": method.binary_only,
        "cost": method.cost,
        "kind": type(calibrator).__name__,
        "parameters": calibrator.get_params(deep=False),
    }
