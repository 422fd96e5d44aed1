"""Data of a command that are no logits: one confidence per answer, or several labels per example.

Both are fitted, certified, applied and measured alike, as the kinds of `hokical.cli.inputs` are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import typer

import hokical
from hokical.cli import data
from hokical.cli.options import Input
from hokical.cli.show import bad_option, check_options, say

#: Columns of several labels, unless others are named.
_COLUMNS = {"score_columns": "score_{label}", "label_column": "label_{label}"}


class Beyond:
    """The rows of a file; columns are as given, or as in the fit of `cal`."""

    unit: ClassVar[str]
    #: Options that name the data, for messages.
    options: ClassVar[str]
    #: What a file has to remember; what the calibrator takes, and its groups where it has any.
    about: dict[str, Any]
    said: Any
    together: dict[str, Any]
    #: From a calibrator, a promise and options of sets to columns to write and facts to show.
    predict: Callable[..., tuple[dict[str, Any], dict[str, Any]]]
    #: From options, a calibrator and columns to keep to what is read.
    choose: Callable[..., hokical.io.Wanted]

    def __init__(
        self,
        path: Path,
        given: Input,
        cal: Any,
        *,
        keep: str | None = None,
        labelled: bool = True,
        unlabelled: bool = False,
    ) -> None:
        self.path, self.known = path, {} if cal is None else cal.metadata
        wanted = self.choose(given, cal, keep)
        wanted = wanted if labelled else replace(wanted, label_column=None)
        wanted = replace(wanted, unlabelled=unlabelled)
        where: Any = {"split": given.split.literal, "labels": given.labels, "need_labels": labelled}
        self.rows = hokical.io.read_examples(path, wanted=wanted, **where)
        self.part, self.groups, self.classes = self.rows.part, self.rows.groups, self.rows.classes
        self.together = {} if self.groups is None else {"groups": self.groups}
        values, self.n_rows = self.rows.logits.values, self.rows.logits.n_rows
        self.said = values if wanted.multilabel else values[:, 1]
        if self.rows.n_dropped:
            say(f"Dropped {self.rows.n_dropped:,} rows of {path.name} without a value.")

    def fit(self, cal: Any) -> tuple[Any, dict[str, Any]]:
        rows = self.rows
        with check_options(self.options):
            cal.fit(self.said, rows.labels, **self.together, sample_weight=rows.weights)
        right = None if rows.labels is None or rows.labels.ndim == 2 else float(rows.labels.mean())
        counts = {"examples": self.n_rows, "accuracy": right}
        return cal, counts | {"groups": list(self.groups or ())}

    def certify(self, cal: Any) -> Any:
        weights = self.rows.weights  # counts of answers; of labels only positives are noted
        own = {} if weights is None or isinstance(self, Tags) else {"sample_weight": weights}
        with check_options("HELD_OUT"):
            return cal.certify(self.said, self.rows.labels, **self.together, **own)

    def compare(
        self, cal: Any, *, full: bool, **options: Any
    ) -> hokical.report._comparison.Comparison:
        """Before and after calibration; there are no classes to be `full` of."""
        if self.rows.weights is not None:
            say(f"The weights in {self.path} are not used here.")
        options |= {"label_names": self.classes, "data_name": self.path.name}
        examples = self.said, self.rows.labels
        with check_options(self.options):
            return hokical.report.before_and_after(cal, *examples, groups=self.groups, **options)


class Answers(Beyond):
    """One confidence per answer, read as the score of one column, unchanged."""

    unit, options = "answers", "--confidence / --right / --groups"

    def choose(self, given: Input, cal: Any, keep: str | None) -> hokical.io.Wanted:
        known = self.known
        column = given.confidence or given.binary_score or known.get("confidence", "confidence")
        right = given.right or given.label_column or known.get("right", "right")
        coding = getattr(getattr(cal, "rule_", None), "coding", None)
        groups = given.groups or (None if coding is None else ",".join(coding.columns))
        self.about = {"confidence": column, "right": right}
        chosen = replace(given, binary_score=column, label_column=right, groups=groups)
        return replace(data.choose_scores(chosen, keep), answers=True)

    def predict(
        self, cal: Any, promise: dict[str, float], sets: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if "recall" in promise or sets:
            option = "--coverage" if sets else "--recall"
            raise bad_option(option, "is not for one answer per row; see --risk.")
        found = {"confidence": cal.predict(self.said, self.groups)}
        facts: dict[str, Any] = {}
        if promise:
            chosen = cal.predict_or_abstain(self.said, self.groups, **promise)
            found["accepted"], facts["guarantee"] = chosen.accepted, chosen.guarantee
            facts["accepted_share"] = float(chosen.accepted.mean())
        unknown = {} if self.groups is None else cal.unknown_groups(self.groups)
        return found, facts | {"unknown_groups": unknown}


class Tags(Beyond):
    """Several labels per example, with a score and a column of 0 and 1 for each."""

    unit, options = "examples", "--multilabel"

    def choose(self, given: Input, cal: Any, keep: str | None) -> hokical.io.Wanted:
        if given.groups:
            raise bad_option("--groups", "does not go with several labels.")
        patterns = {n: getattr(given, n) or self.known.get(n, d) for n, d in _COLUMNS.items()}
        plain = {name: text.replace("{label}", "{class}") for name, text in patterns.items()}
        fitted = cal if hasattr(cal, "rule_") else None
        wanted = data.choose_scores(replace(given, **plain), keep, fitted=fitted)
        self.about = patterns | {"scores": "probabilities" if wanted.probabilities else "logits"}
        return replace(wanted, multilabel=True)

    def predict(
        self, cal: Any, promise: dict[str, float], sets: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if "risk" in promise:
            raise bad_option("--risk", "is for one answer per row; of labels, see --recall.")
        found: dict[str, Any] = {}
        given = cal.predict(self.said, **promise)
        facts: dict[str, Any] = {"labels_per_example": float(given.sum(axis=1).mean())}
        if promise:
            always = int((cal.recall_thresholds(**promise) == 0.0).sum())
            facts["guarantee"] = (
                f"With confidence {1.0 - promise['delta']:.4g} for each label, at least "
                f"{promise['recall']:.4g} of its positives are found; {always:,} of "
                f"{given.shape[1]:,} labels have too few held-out positives and are always given."
            )
        if sets:
            by = "row" if sets.get("by") == "all" else sets.get("by", "row")
            certain = cal.predict_set(self.said, **sets | {"by": by})
            found, facts["sets"] = {"in": certain.inside, "open": certain.open}, certain.guarantee
        return {"labels": given, **found, "probabilities": cal.predict_proba(self.said)}, facts


def kind_of(given: Input, cal: Any = None) -> type[Beyond] | None:
    """What a file holds by the options or by the calibrator; None for logits."""
    if cal is not None:  # by its name, as the classes need not be imported for logits
        return {"confidence": Answers, "multilabel": Tags}.get(cal.name)
    if given.multilabel:
        if given.confidence or given.right:
            raise typer.BadParameter("--multilabel and --confidence exclude each other.")
        return Tags
    if (given.confidence is None) != (given.right is None):
        raise typer.BadParameter("--confidence and --right go together.")
    return None if given.confidence is None else Answers


def make(kind: type[Beyond], settings: list[str]) -> Any:
    """A calibrator that is not fitted yet, with options such as `scale=100`."""
    cal: Any = hokical.ConfidenceCalibrator() if kind is Answers else hokical.MultilabelCalibrator()
    return cal.set_params(**data.read_settings(settings, cal.get_params(), cal.name))
