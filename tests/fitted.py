"""Fitted calibrators with another rule, or with other data of their examples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hokical.calibrators import Calibrator
from hokical.guarantees.scores import ScoreTable
from hokical.rules import Rule


def with_rule(calibrator: Calibrator, rule: Rule) -> Any:
    """A copy with another rule."""
    return calibrator.with_predictor(replace(calibrator.predictor_, rule=rule))


def with_fit_record(calibrator: Calibrator, **changes: Any) -> Any:
    """A copy with changes to what it keeps of the examples of the fit."""
    predictor = calibrator.predictor_
    record = replace(predictor.fit_record, **changes)
    return calibrator.with_predictor(replace(predictor, fit_record=record))


def with_held_out(calibrator: Calibrator, **changes: Any) -> Any:
    """A copy with changes to the evidence of `certify`."""
    predictor = calibrator.predictor_
    assert predictor.held_out is not None
    evidence = replace(predictor.held_out, **changes)
    return calibrator.with_predictor(replace(predictor, held_out=evidence))


def fingerprint(calibrator: Calibrator) -> str:
    """A hash of the rule: equal ones, equal predictions."""
    return calibrator.fitted.fingerprint()


def label_scores(calibrator: Calibrator) -> ScoreTable | None:
    """Right and wrong labels of the fit, by the classifier's own score."""
    return calibrator.fitted.fit_record.label_scores


def class_features(calibrator: Calibrator) -> Any:
    """Features of the rows of the fit, by true class."""
    return calibrator.fitted.fit_record.class_features
