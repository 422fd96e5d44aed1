"""Files of the minor version before this one, as this one would have written them.

What is older is refused, with the version that can read it. `upgrade` works on the
plain values of a JSON document, before they become records.
"""

from __future__ import annotations

from typing import Any

#: The format that hokical 0.2 to 0.5 wrote.
FORMAT_BEFORE = 2
#: The first version whose files are upgraded.
OLDEST_VERSION = (0, 5)
#: Records that held a second one, of predictions without groups.
_NESTED = ("scores", "conformity")


class TooOld(ValueError):
    """The file is of a version that only an earlier hokical can read."""


def upgrade(document: dict[str, Any]) -> dict[str, Any]:
    """A document of format 2 in the present format."""
    version = str(document.get("library_version", "unknown"))
    if _parse(version) < OLDEST_VERSION:
        raise TooOld(
            f"it was written by hokical {version}; files of 0.5 and later can be read. "
            "Load and save it with hokical 0.5, or fit again"
        )
    if "n_classes" in document:
        document = _upgrade_logits(document)
    elif "fit_rows" in document:
        document = _upgrade_outcomes(document)
    upgraded: dict[str, Any] = _without_nested(document)
    return upgraded


def _parse(version: str) -> tuple[int, ...]:
    """The first two numbers of a version; of an unknown one, those of the newest."""
    numbers = version.split(".")[:2]
    if not all(number.isdecimal() for number in numbers):
        return OLDEST_VERSION
    return tuple(map(int, numbers))


def _upgrade_logits(document: dict[str, Any]) -> dict[str, Any]:
    """A calibrator of logits: the schema, and evidence by where it comes from."""
    beside = document.get("beside")
    origin = beside if isinstance(beside, dict) else {}
    report = document.get("report")
    conformity = document.get("held_out_conformity")
    label_scores = document.get("held_out_scores")
    names = document.get("class_names") or []
    n_classes = document["n_classes"]
    schema = {
        "$record": "schema",
        "columns": {"$tuple": document.get("columns", [])},
        "n_classes": n_classes,
        "class_names": {"$tuple": names if len(names) == n_classes else []},
        "scores": origin.get("scores", "logits"),
        "zeros": origin.get("zeros", "unlikely"),
        "saw_groups": isinstance(report, dict) and report.get("groups") is not None,
    }
    fit = {
        "$record": "fit-record",
        "label_scores": document.get("fit_scores"),
        "confidences": document.get("fit_confidences"),
        "conformity": document.get("fit_conformity"),
        "support": document.get("support"),
        "sketch": document.get("fit_rows"),
        "class_features": document.get("class_scores"),
        "group_features": document.get("group_scores"),
    }
    return {
        **_common(document),
        "schema": schema,
        "fit": fit,
        "held_out": _evidence(
            conformity, label_scores, document.get("held_out_classes")
        ),
        "held_out_for_new_groups": _evidence(
            _nested(conformity), _nested(label_scores)
        ),
    }


def _upgrade_outcomes(document: dict[str, Any]) -> dict[str, Any]:
    """A calibrator of confidences or of several labels."""
    columns = {"$tuple": document.get("columns", [])}
    held_out = document.get("held_out")
    return {
        **_common(document),
        "schema": {"$record": "columns", "columns": columns},
        "held_out": held_out,
        "held_out_for_new_groups": _nested(held_out),
        "fit_rows": document["fit_rows"],
    }


def _common(document: dict[str, Any]) -> dict[str, Any]:
    names = ("library_version", "method", "parameters", "rule", "report", "beside")
    return {name: document[name] for name in names if name in document}


def _evidence(conformity: Any, label_scores: Any, class_scores: Any = None) -> Any:
    if conformity is None:
        return None
    return {
        "$record": "evidence",
        "source": "held-out",
        "conformity": conformity,
        "label_scores": label_scores,
        "class_scores": class_scores,
    }


def _nested(record: Any) -> Any:
    return record.get("unseen") if isinstance(record, dict) else None


def _without_nested(value: Any) -> Any:
    """Values without the second record in records that no longer hold one."""
    if isinstance(value, list):
        return [_without_nested(item) for item in value]
    if not isinstance(value, dict):
        return value
    drops = value.get("$record") in _NESTED
    return {
        name: _without_nested(item)
        for name, item in value.items()
        if not (drops and name == "unseen")
    }
