"""`hokical show`: what is inside a file that `fit` saved."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import numpy as np

import hokical
from hokical.cli.console import show_result
from hokical.cli.options import CalibratorFile, Json
from hokical.cli.reading import read_calibrator

#: Arrays with more numbers are not listed.
_LONGEST = 1000


def show(calibrator: CalibratorFile, as_json: Json = False) -> None:
    """Show what is inside a calibrator."""
    show_result(*describe(read_calibrator(calibrator, for_rows=False)), as_json)


def describe(fitted: Any) -> tuple[dict[str, Any], dict[str, str | None]]:
    """What is inside a loaded calibrator as values, and in words."""
    known, n_classes = dict(fitted.metadata_), getattr(fitted, "n_classes_", None)
    counts = getattr(getattr(fitted, "kept_", None), "fit_scores", None)
    if counts is not None:
        known |= {"examples": counts.total, "accuracy": counts.accuracy}
    values = {"method": fitted.name, "n_classes": n_classes}
    known["classes"] = list(getattr(fitted, "class_names", ())) or known.get("classes")
    values |= {name: known.get(name) for name in ("classes", "scores", "examples", "accuracy")}
    values["reason"] = getattr(fitted, "reason_", None)
    names, n, right = values["classes"] or (), values["examples"], values["accuracy"]
    shown = f": {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}" if names else ""
    share = "" if right is None else f", accuracy {right:.1%} before calibration"
    lines: dict[str, str | None] = {
        "method": fitted.name,
        "scores": values["scores"],
        "classes": None if n_classes is None else f"{n_classes}{shown}",
        "fitted on": None if n is None else f"{n:,} examples{share}",
        "chosen": values["reason"],
    }
    if not isinstance(fitted, hokical.Calibrator):
        certified = "no" if fitted.held_out_ is None else "yes"
        return values | {"certified": certified}, lines | {"certified": certified}
    kept = fitted.rule_.preserves_labels
    about = {
        "label": "the classifier's own" if kept else "the most likely class after calibration",
        "reference": fitted.method.reference,
        "library_version": fitted._library_version,
    }
    fields, guarantee = fitted.rule_.own_fields(), _guarantee(fitted)
    learned = {name: value for name, value in fields.items() if value is not None}
    title = fitted.method.title.split(" (")[0]  # without the explanation
    values |= about | {"title": title, "guarantee": guarantee, "learned": _values(learned)}
    lines |= {"method": f"{title} ({fitted.name})", "label": about["label"]}
    lines |= {name: _in_words(value) for name, value in learned.items() if name != "keep_labels"}
    lines |= {"guarantee": guarantee["text"], "reference": about["reference"]}
    return values, lines | {"saved with": f"hokical {about['library_version']}"}


def _values(value: Any) -> Any:
    """Plain numbers, strings, lists and dicts; of long arrays the shape."""
    if hasattr(value, "family"):  # a noise
        return value.to_dict()
    value = vars(value) if is_dataclass(value) else value
    if isinstance(value, dict):
        return {name: _values(each) for name, each in value.items()}
    if isinstance(value, np.ndarray) and value.size > _LONGEST:
        return {"shape": list(value.shape)}
    return [_values(each) for each in value] if isinstance(value, (list, tuple)) else value


def _in_words(value: Any) -> str:
    """Numbers; of long arrays the shape, of records without a text the single numbers."""
    if is_dataclass(value) and not hasattr(value, "family") and not _has_text(value):
        value = {name: each for name, each in vars(value).items() if isinstance(each, float)}
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(each)}" for name, each in value.items())
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"{' x '.join(map(str, value.shape))} numbers"
    if isinstance(value, (np.ndarray, list, tuple)):
        return ", ".join(map(_in_words, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _has_text(value: Any) -> bool:
    """Whether a record has a text of its own, which is not that of all dataclasses."""
    return "__str__" in vars(type(value))


def _groups(fitted: hokical.Calibrator) -> dict[str, list[Any]] | None:
    """Groups of one row, if the calibrator needs them."""
    needed = fitted.rule_.needed_groups
    if needed is None:
        return None
    return {name: [own[0]] for name, own in zip(needed.columns, needed.levels, strict=True)}


def _guarantee(fitted: hokical.Calibrator) -> dict[str, Any]:
    """The guarantee of `apply --risk` at its default values, or why there is none."""
    try:
        found = fitted.predict_or_abstain(np.zeros((1, fitted.n_classes_)), groups=_groups(fitted))
    except (TypeError, ValueError) as error:
        return {"text": str(error)}
    names = ("risk", "delta", "threshold", "coverage", "certified_on")
    return {name: getattr(found, name) for name in names} | {"text": found.guarantee}
