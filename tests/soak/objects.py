"""Attacks on methods: odd arguments to those of every fitted object that users hold."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import hokical
from hokical import (
    CalibratedClassifier,
    CalibrationMonitor,
    Dense,
    Ensemble,
    MultilabelCalibrator,
    TopK,
    auto,
    calibrate_confidence,
)
from hokical.calibrators import SurvivalCalibrator
from hokical.monitoring import CoverageMonitor, OnlineSets
from tests.soak.odd import call_oddly, right_arguments

Generator = np.random.Generator
#: Public for other modules of ours alone, or with inputs of ours.
_INTERNAL = {
    *("all_estimates", "cells", "check_fitted", "check_options", "checked", "convert"),
    *("copies", "draw_positions", "estimates", "evaluations", "fit_partition"),
    *("fitted_calibrator", "for_classifier", "forget_examples", "forget_fit"),
    *("from_document", "get_metadata_routing", "is_of_fit", "label", "method_dict"),
    *("metric_cells", "missing_intervals", "note_groups", "of", "of_single_models"),
    *("order_columns", "predict_rows", "read_held_out", "read_labelled", "read_pair"),
    *("read_positions", "record", "reweighted", "set_columns", "source"),
    *("tracked_metrics", "uncalibrated", "with_predictor", "without_groups", "words"),
    *("write_page", "certify_parts"),
    # Of scikit-learn.
    *("get_params", "set_fit_request", "set_predict_proba_request"),
    *("set_predict_request", "set_score_request"),
    *("log_to_mlflow", "log_to_wandb"),  # need servers
}
Subject = tuple[Any, dict[str, Any]]


def _noisy() -> Any:
    """Other logits, for a certificate."""
    data = right_arguments()["logits"]
    return data + np.random.default_rng(1).normal(size=data.shape)


def _plain() -> Subject:
    data = right_arguments()
    return auto(data["logits"], data["labels"]), data


def _certified() -> Subject:
    cal, data = _plain()
    return cal.certify(_noisy(), data["labels"]), data


def _grouped() -> Subject:
    data = right_arguments()
    labels = np.where(data["groups"] == "u", data["labels"], 0)
    data = data | {"labels": labels}
    cal = auto(data["logits"], labels, groups=data["groups"])
    return cal.certify(_noisy(), labels, groups=data["groups"]), data


def _named() -> Subject:
    import pandas as pd

    data = right_arguments()
    names = ["cat", "dog", "cow"]
    frame = pd.DataFrame(data["logits"], columns=names)
    data = data | {"logits": frame, "labels": np.array(names)[data["labels"]]}
    return auto(frame, data["labels"], classes=names), data


def _pooled(exchangeable: bool) -> Subject:
    data = right_arguments()
    members = [data["logits"], _noisy()]
    names = None if exchangeable else ["first", "second"]
    views = Ensemble(members, names, exchangeable=exchangeable)
    cal = auto(views, data["labels"])
    others = Ensemble([member[::-1] for member in members], names, exchangeable)
    cal.certify(others, data["labels"][::-1], reused="ignore")
    return cal, data | {"logits": views}


def _two_classes() -> Subject:
    data = right_arguments()
    logits = data["logits"][:, :2]
    data = data | {
        "logits": logits,
        "labels": (logits[:, 1] > logits[:, 0]).astype(int) ^ (np.arange(120) % 7 == 0),
        "costs": np.ones((2, 2)) - np.eye(2),
        "frequencies": np.array([0.3, 0.7]),
    }
    return auto(logits, data["labels"]), data


def _confidences() -> Subject:
    data = right_arguments()
    cal = calibrate_confidence(data["confidence"], data["right"], groups=data["groups"])
    cal.certify(data["confidence"] ** 2, data["right"], groups=data["groups"])
    return cal, data | {"costs": [[0.0, 1.0], [1.0, 0.0]], "loss": "wrong"}


def _signals() -> Subject:
    data = right_arguments()
    signals = np.column_stack([data["confidence"], expit(data["logits"][:, 0])])
    signals[::4, 1] = np.nan
    cal = calibrate_confidence(signals, data["right"])
    return cal, data | {"confidence": signals, "costs": [[0.0, 1.0], [1.0, 0.0]]}


def _multilabel() -> Subject:
    data = right_arguments()
    scores = data["logits"]
    labels = np.random.default_rng(2).random(scores.shape) < expit(scores)
    cal = MultilabelCalibrator().fit(scores, labels).certify(_noisy(), labels)
    return cal, data | {"scores": scores, "labels": labels, "costs": (1.0, 2.0)}


def _survival() -> Subject:
    data = right_arguments()
    survived = np.random.default_rng(3).random((8, 120)) < data["confidence"]
    cal = SurvivalCalibrator().fit(survived, data["right"])
    return cal, data | {"survived": survived}


def _classifier() -> Subject:
    data = right_arguments()
    model = CalibratedClassifier(LogisticRegression(), cv=2)
    model.fit(data["X"], data["y"])
    return model.certify(_noisy(), data["y"]), data


def _classifier_of_members() -> Subject:
    data = right_arguments()
    members = [("one", LogisticRegression()), ("two", LogisticRegression(C=0.1))]
    return CalibratedClassifier(members, cv=2).fit(data["X"], data["y"]), data


def _evaluation() -> Subject:
    cal, data = _plain()
    return hokical.evaluate(cal, _noisy(), data["labels"]), data


def _comparison() -> Subject:
    data = right_arguments()
    pair = (data["logits"], data["labels"])
    test = (_noisy(), data["labels"])
    return hokical.compare(pair, test, methods=["temps", "uncalibrated"]), data


def _monitor() -> Subject:
    cal, data = _plain()
    monitor = CalibrationMonitor(cal, window=100)
    monitor.update_logits(_noisy(), ids=data["ids"])
    return monitor, data | {"calibrator": cal}


def _monitor_of_members() -> Subject:
    cal, data = _pooled(False)
    monitor = CalibrationMonitor(cal, window=100)
    monitor.update_logits(data["logits"], data["labels"])
    return monitor, data | {"calibrator": cal}


def _coverage_monitor() -> Subject:
    cal, data = _certified()
    sets = cal.predict_set(data["logits"], coverage=0.8)
    return CoverageMonitor.of(cal, 0.8), data | {"sets": sets}


def _online_sets() -> Subject:
    cal, data = _certified()
    online = OnlineSets(cal, coverage=0.8)
    online.predict_set(data["logits"], ids=data["ids"])
    return online, data | {"calibrator": cal}


def _dense() -> Subject:
    data = right_arguments()
    maps = np.random.default_rng(4).normal(size=(4, 6, 6, 3))
    labels = maps.argmax(axis=3)
    labels[:, 0] = 0
    cal = Dense(auto(data["logits"], data["labels"]))
    return cal.fit(maps, labels), data | {"logits": maps, "labels": labels}


def _sets() -> Subject:
    cal, data = _certified()
    return cal.predict_set(data["logits"], coverage=0.8), data | {"row": 1}


def _selective() -> Subject:
    cal, data = _certified()
    return cal.predict_or_abstain(data["logits"], risk=0.3), data


def _shift() -> Subject:
    cal, data = _plain()
    return cal.estimate_shift(data["logits"]), data


def _ensemble() -> Subject:
    data = right_arguments()
    members = Ensemble({"a": data["logits"], "b": _noisy()})
    return members, data | {"members": ["a"], "rows": slice(3), "others": [members]}


def _top_k() -> Subject:
    data = right_arguments()
    return TopK.from_logits(data["logits"], 2), data | {"k": 2, "n_classes": 3}


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "plain": _plain,
    "certified": _certified,
    "grouped": _grouped,
    "named": _named,
    "members": partial(_pooled, False),
    "passes": partial(_pooled, True),
    "two classes": _two_classes,
    "confidences": _confidences,
    "signals": _signals,
    "multilabel": _multilabel,
    "survival": _survival,
    "classifier": _classifier,
    "classifier of members": _classifier_of_members,
    "evaluation": _evaluation,
    "comparison": _comparison,
    "monitor": _monitor,
    "monitor of members": _monitor_of_members,
    "coverage monitor": _coverage_monitor,
    "online sets": _online_sets,
    "dense": _dense,
    "sets": _sets,
    "selective": _selective,
    "shift": _shift,
    "ensemble": _ensemble,
    "top k": _top_k,
}


@cache
def _subject(name: str) -> Subject:
    return SUBJECTS[name]()


def public_methods(thing: Any) -> list[str]:
    """Those that users call, of an object."""
    if isinstance(thing, TopK):  # whose other methods are those of `Logits`, for rules
        return ["from_log_probabilities", "from_logits", "to_dense"]
    return [
        name
        for name in dir(type(thing))
        if not name.startswith("_")
        and name not in _INTERNAL
        and callable(getattr(type(thing), name))
    ]


def odd_arguments_to_objects(rng: Generator, folder: Path) -> str:
    """A method of a fitted object with odd arguments answers, or raises an error that
    is stated and ours.
    """
    name = str(rng.choice(list(SUBJECTS)))
    original, right = _subject(name)
    thing = copy.deepcopy(original)  # fits change it
    method = str(rng.choice(public_methods(thing)))
    came = call_oddly(getattr(thing, method), f"{name}.{method}", right, rng, folder)
    if method == "save" and came == "answered":
        _check_saved(folder)
    return came


def _check_saved(folder: Path) -> None:
    """What was saved can be loaded, if it is that of a calibrator."""
    for path in folder.iterdir():
        document = json.loads(path.read_text())
        if document.get("kind", "calibrator") == "calibrator":
            hokical.load(path)


ATTACKS = {"odd arguments, objects": odd_arguments_to_objects}
