"""What `hokical apply` says of every row: how it is asked for, written and shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hokical
from hokical._core.groups import take_rows
from hokical._core.progress import track
from hokical.cli.show import DASH, say, show_result


@dataclass(frozen=True)
class Asked:
    """What is to be said beside label and confidence.

    All probabilities; the options of `predict_or_abstain`, and those of `predict_set`, each empty
    where it is not asked for.
    """

    proba: bool
    promise: dict[str, float]
    sets: dict[str, Any]

    @property
    def nothing_more(self) -> bool:
        """Whether nothing is promised."""
        return not self.promise and not self.sets

    def try_on(self, fitted: hokical.Calibrator, row: Any) -> None:
        """Raise what a calibrator has against the promises, before anything is read."""
        if self.promise:
            fitted.predict_or_abstain(row, **self.promise)
        if self.sets:
            own = [""] if self.sets.get("by") == "group" else None
            fitted.predict_set(row, **self.sets, groups=own)


@dataclass(frozen=True)
class Applied:
    """The arrays to write, facts to show, and the rows of a file they are of, if any."""

    method: str
    results: dict[str, Any]
    facts: dict[str, Any]
    unit: str
    examples: hokical.io.LabelledRows | None = None

    def write(self, output: Path, as_json: bool) -> None:
        """Write them, and show what was written."""
        results, columns = self.results, self.results
        if self.examples is not None:
            columns = _columns(results, self.examples, output.suffix == ".npz")
        marked = hokical.io.write_table(output, columns)
        if marked:
            say(f"{marked:,} cells of text that a spreadsheet would run begin with ' in {output}.")
        facts = {"arrays": list(columns), "examples": len(results.get("labels", ())), **self.facts}
        if "confidence" in results:
            known = results["confidence"][~np.isnan(results["confidence"])]  # NaN: masked
            mean = float(known.mean()) if known.size else float("nan")
            facts |= {"examples": known.size, "mean_confidence": mean}
        if "probabilities" in results:
            _say_other_classes(results["labels"], results["probabilities"])
        show_applied(self.method, output, facts, as_json, self.unit)


def predict_parts(
    model: hokical.Calibrator | hokical.Dense, parts: list[Any], asked: Asked, groups: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays to write, and facts to show; parts are rows of one file."""
    facts: dict[str, Any] = {}
    found: list[dict[str, Any]] = []
    done = 0
    for given in track(parts, "Applying to rows", len(parts), None):
        arrays, own = _predict_part(model, given, asked)
        if asked.sets:
            rows = slice(done, done := done + len(arrays["labels"]))
            by_group = asked.sets.get("by") == "group"
            told = {"groups": take_rows(groups, rows)} if by_group else {}
            sets, own["sets"] = _predict_sets(model, given, asked.sets | told)
            arrays |= sets
        found.append(arrays)
        facts |= own
    whole = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    if asked.promise:
        known = whole["accepted"][~np.isnan(whole["confidence"])]  # NaN: masked
        facts["accepted_share"] = float(known.mean()) if known.size else float("nan")
    return whole, facts


def _predict_part(
    model: Any, given: dict[str, Any], asked: Asked
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Labels, confidence, whether accepted, and all probabilities, as far as asked for."""
    facts: dict[str, Any] = {}
    if asked.promise:
        chosen = model.predict_or_abstain(**given, **asked.promise)
        arrays = {name: getattr(chosen, name) for name in ("labels", "confidence", "accepted")}
        facts["guarantee"] = chosen.guarantee
    else:
        arrays = {"labels": model.predict(**given)}
        arrays["confidence"] = model.predict_confidence(**given)
    if asked.proba:
        arrays["probabilities"] = model.predict_proba(**given)
    return arrays, facts


def _predict_sets(
    model: Any, given: dict[str, Any], options: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Members and size of each set, whether it may be a hidden class, and what is promised."""
    found = model.predict_set(**given, **options)
    arrays = {"members": found.members, "set_size": found.sizes}
    if found.other is not None:
        seen = given["logits"].mark_seen()
        arrays |= {"members": found.members & seen, "other": found.other}
    return arrays, found.guarantee


def _columns(
    results: dict[str, Any], examples: hokical.io.LabelledRows, as_arrays: bool
) -> dict[str, Any]:
    """Kept columns, then results; in a table labels by name, and a column per probability."""
    added = dict(results)
    if not as_arrays:
        names = np.array(examples.classes or range(examples.logits.n_classes))
        if (labels := added.pop("labels", None)) is not None:
            several = labels.ndim == 2
            own = {"labels": _set_names(labels, names)} if several else {"label": names[labels]}
            added = {**own, **added}
        added |= {name: _set_names(added[name], names) for name in ("in", "open") if name in added}
        members = added.pop("members", None)
        if members is not None:
            size, other = added.pop("set_size"), added.pop("other", None)
            added |= {"set": _set_names(members, names, other), "set_size": size}
        vectors = added.pop("probabilities", np.empty((0, 0)))
        added |= {f"probability_{names[k]}": column for k, column in enumerate(vectors.T)}
    kept = {(f"input_{n}" if n in added else n): column for n, column in examples.kept.items()}
    for name in set(examples.kept) - set(kept):
        say(f"The column `{name}` of the input is called `input_{name}`, beside the new one.")
    return kept | added


def _say_other_classes(labels: Any, proba: Any) -> None:
    """Say in how many rows a label that was kept is not the most likely class."""
    alone = labels.ndim == 1 and proba.ndim == 2  # neither several labels nor maps
    if alone and (others := int((proba.argmax(axis=1) != labels).sum())):
        say(
            f"In {others:,} of {len(labels):,} rows another class is more likely than the label: "
            "the calibrator keeps the classifier's own labels."
        )


def _set_names(members: Any, names: Any, other: Any = None) -> Any:
    """The names of each row's set, with bars between them."""
    texts = ["|".join(map(str, names[row])) for row in members]
    if other is not None:  # hidden classes of a `TopK`
        texts = [
            f"{text}|or another" if more else text for text, more in zip(texts, other, strict=True)
        ]
    return np.array(texts)


def show_applied(
    method: str, output: Path, facts: dict[str, Any], as_json: bool, unit: str = "examples"
) -> None:
    """Where the results of so many rows are, and what is promised about them."""
    rows, mean = facts["examples"], facts.get("mean_confidence")
    labels = facts.get("labels_per_example")
    if "parts" in facts:
        already = facts["already_done"]
        kept = f" ({already} of them were there already)" if already else ""
        place = f"{facts['parts']} files in {output}{kept}"
    else:
        names = facts["arrays"]
        more = f", ... {len(names)} columns" if len(names) > 6 else ""
        place = f"{output} ({', '.join(names[:6])}{more})"
    lines = {
        "method": method,
        unit: f"{rows:,}",
        "mean confidence": None if mean is None else f"{mean:.1%}" if rows else DASH,
        "labels per example": None if labels is None else f"{labels:.2f}",
        "written to": place,
        "accepted": f"{facts['accepted_share']:.1%}"
        if rows and "accepted_share" in facts
        else None,
        "guarantee": facts.get("guarantee"),
        "sets": facts.get("sets"),
    }
    show_result({"method": method, "output": str(output)} | facts, lines, as_json)
