"""Batches of rows for `shift.py --cases`: with label shift, and with changes of other
kinds.

A data set is examples to fit on, rows to draw batches from, and what they can be
divided by: groups of people or subjects, or the order in which they came. Logits alone
are changed in ways that label shift cannot explain: scaled, blurred by noise, chosen by
where they lie or how sure they are, or answered by another network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logit

SIZES = (50, 100, 300, 2000)
#: Batches of each group, and of rows in order.
_GROUPS, _RUNS = 16, 24


@dataclass
class DataSet:
    """Logits and labels to fit on and to draw from; `groups` (n,) by name; whether
    order counts.
    """

    name: str
    val_logits: Any
    val_labels: Any
    logits: Any
    labels: Any
    groups: dict[str, Any] = field(default_factory=dict)
    ordered: bool = False


def read_data_sets(path: Path) -> Iterator[DataSet]:
    """Those of one file, known by its arrays: logits, or one of the public sets with
    groups.
    """
    arrays = np.load(path)
    if "employed" in arrays:
        yield from _employment(arrays)
    elif "scores" in arrays and "subject" in arrays:
        yield from _prompts(arrays)
    elif any(name.endswith("/token") for name in arrays.files):
        yield from _language_models(arrays)
    elif any(name.endswith("/val_probs") for name in arrays.files):
        yield from _tables(arrays)
    else:
        yield from _logits(path, arrays)


def _logits(path: Path, arrays: Any) -> Iterator[DataSet]:
    logits, labels = arrays["test_logits"], arrays["test_labels"].astype(int)
    if "val_logits" in arrays:
        val, truth = arrays["val_logits"], arrays["val_labels"].astype(int)
    else:
        some, rest = np.array_split(
            np.random.default_rng(0).permutation(len(labels)), 2
        )
        val, truth, logits, labels = (
            logits[some],
            labels[some],
            logits[rest],
            labels[rest],
        )
    both = val.astype(np.float32), truth, logits.astype(np.float32), labels
    yield DataSet(path.stem, *both, ordered="chest" in path.stem)


def _two(probability: Any) -> Any:
    scores = logit(np.clip(probability.astype(np.float64), 1e-6, 1.0 - 1e-6))
    return np.stack([np.zeros_like(scores), scores], axis=1)


def _employment(arrays: Any) -> Iterator[DataSet]:
    """Fitted on the first year; and on one sex, asked about the other."""
    logits, labels = _two(arrays["probability"]), arrays["employed"].astype(int)
    age = np.digitize(arrays["age"].astype(float), [25, 35, 50, 65])
    columns = {name: arrays[name] for name in ("year", "sex", "race")} | {"age": age}
    first, rng = arrays["part"] == 0, np.random.default_rng(0)
    for name, own in {
        "all": first,
        "sex 1": arrays["sex"] == 1,
        "sex 2": arrays["sex"] == 2,
    }.items():
        some = rng.permutation(np.flatnonzero(first & own))[:5000]
        rest = (
            np.flatnonzero(~own)
            if "sex" in name
            else np.setdiff1d(np.arange(len(labels)), some)
        )
        groups = {column: values[rest] for column, values in columns.items()}
        yield DataSet(
            f"employment, {name}",
            logits[some],
            labels[some],
            logits[rest],
            labels[rest],
            groups,
        )


def _prompts(arrays: Any) -> Iterator[DataSet]:
    """Fitted on half of the subjects, asked about the others; and on another prompt."""
    scores, labels = arrays["scores"].astype(np.float64), arrays["labels"].astype(int)
    subject = arrays["subject"]
    halves = np.array_split(np.random.default_rng(0).permutation(len(labels)), 2)
    for prompt in range(0, 10, 3):
        for half in (0, 1):
            own = subject % 2 == half
            parts = scores[prompt][own], labels[own], scores[prompt][~own], labels[~own]
            yield DataSet(
                f"prompt {prompt}, {half}", *parts, {"subject": subject[~own]}
            )
        some, rest = halves
        parts = (
            scores[prompt][some],
            labels[some],
            scores[(prompt + 1) % 10][rest],
            labels[rest],
        )
        yield DataSet(
            f"prompt {prompt} to the next", *parts, {"prompt": np.zeros(len(rest), int)}
        )


def _language_models(arrays: Any) -> Iterator[DataSet]:
    """Whether an answer is right, by its confidence: half of the subjects, then the
    others.
    """
    models = sorted({name.split("/")[0] for name in arrays.files if "/" in name})
    for place, model in enumerate(models[::4]):
        for kind in ("token", "verbal"):
            stated = arrays[f"{model}/{kind}"].astype(np.float64)
            known = np.isfinite(stated)
            if known.sum() < 3000:
                continue
            logits, right = (
                _two(stated[known]),
                arrays[f"{model}/right"][known].astype(int),
            )
            subject = arrays[f"{model}/subject"][known]
            own = np.isin(subject, np.unique(subject)[place % 2 :: 2])
            some, rest = np.flatnonzero(own)[:4000], ~own
            parts = logits[some], right[some], logits[rest], right[rest]
            yield DataSet(f"{model}, {kind}", *parts, {"subject": subject[rest]})


def _tables(arrays: Any) -> Iterator[DataSet]:
    """One model of each data set, in turn."""
    names = sorted({name.split("/")[0] for name in arrays.files})
    for place, name in enumerate(names):
        if place % 5 != (place // 5) % 5 or len(arrays[f"{name}/test_labels"]) < 300:
            continue
        val, test = (
            np.log(np.maximum(arrays[f"{name}/{part}_probs"], 1e-7))
            for part in ("val", "test")
        )
        labels = (
            arrays[f"{name}/{part}_labels"].astype(int) for part in ("val", "test")
        )
        truth, labels = labels
        if len(truth) >= 300:
            yield DataSet(name, val, truth, test, labels)


def label_shifts(
    data: DataSet, size: int, draw: Any, rng: Any
) -> Iterator[tuple[str, Any, Any]]:
    """Batches with label shift alone, or without any change."""
    for _ in range(2):
        for concentration in (0.1, 1.0):
            some = draw(data.labels, size, concentration, rng)
            yield "label shift", data.logits[some], data.labels[some]
        some = rng.choice(len(data.labels), size, replace=False)
        yield "no change", data.logits[some], data.labels[some]


def parts(data: DataSet, size: int, rng: Any) -> Iterator[tuple[str, Any, Any]]:
    """Real changes: rows of one group, or that came one after the other."""
    n = len(data.labels)
    if data.ordered:
        runs = rng.permutation(n // size)[:_RUNS]
        rows = [("neighbours", np.arange(run * size, (run + 1) * size)) for run in runs]
        rows += [("later rows", rng.choice(n, size, replace=False)) for _ in range(6)]
    else:
        rows = [("other groups", rng.choice(n, size, replace=False))]
        for name, values in data.groups.items():
            for value in np.unique(values)[:_GROUPS]:
                own = np.flatnonzero(values == value)
                if len(own) >= size:
                    rows += [(f"by {name}", rng.choice(own, size, replace=False))]
    for name, some in rows:
        yield name, data.logits[some], data.labels[some]


def changes(
    data: DataSet, size: int, strangers: list[Any], rng: Any
) -> Iterator[tuple[str, Any, Any]]:
    """Batches changed in ways that label shift does not explain."""
    logits, labels = data.logits, data.labels
    n, n_classes = logits.shape
    finite = np.where(np.isfinite(logits), logits, 0.0)
    spread, centred = float(finite.std()), finite - finite.mean(axis=1, keepdims=True)
    own = logits.argmax(axis=1)

    def batch(chance: Any = None) -> Any:
        return rng.choice(
            n, size, replace=False, p=None if chance is None else chance / sum(chance)
        )

    for scale in (0.6, 0.8, 0.9, 1.1, 1.25, 1.6):
        some = batch()
        yield f"logits x {scale}", scale * logits[some], labels[some]
    for scale in (0.7, 1.4):
        some, half = batch(), rng.permutation(n_classes)[: max(1, n_classes // 2)]
        factor = np.where(np.isin(own[some], half), scale, 1.0)[:, None]
        yield f"half of labels x {scale}", factor * logits[some], labels[some]
    for share in (0.1, 0.2, 0.4):
        some = batch()
        noise = share * spread * rng.normal(size=(size, n_classes))
        yield f"noise of {share} deviations", logits[some] + noise, labels[some]
    for _ in range(2):
        side = centred @ rng.normal(size=n_classes)
        some = batch((side > np.quantile(side, 0.5)).astype(float))
        yield "a half of the space", logits[some], labels[some]
    sure = centred.max(axis=1)
    for name, tilt in (("harder rows", -0.8), ("surer rows", 0.8)):
        some = batch(np.exp(tilt * (sure - sure.mean()) / max(sure.std(), 1e-12)))
        yield name, logits[some], labels[some]
    for other in strangers[:2]:
        some = batch()
        yield "another network", other[some], labels[some]
        mixed = np.where(rng.random((size, 1)) < 0.3, other[some], logits[some])
        yield "3 of 10 rows by another network", mixed, labels[some]
