"""What scores are: logits, probabilities or confidences. Logits and confidences remain."""

from typing import Any

import numpy as np

from hokical._core.conversion import Zeros, from_binary_scores, from_probabilities
from hokical._core.logits import Logits, as_logits
from hokical._core.reading import first_true
from hokical._core.types import AnyArray, BoolArray, FloatArray
from hokical.io._convention import Columns, Kind, Roles

#: Rows of probabilities that were rounded to two digits sum to 1 within this.
_SLACK = 0.05


def has_scores(scores: AnyArray) -> BoolArray:
    """Whether a row (n,) has all scores."""
    if scores.dtype.kind != "f" or 0 in scores.shape:
        return np.ones(len(scores), np.bool_)
    return ~np.isnan(scores if scores.ndim == 1 else scores.reshape(len(scores), -1).max(axis=1))


def refuse_missing(scores: AnyArray, roles: Roles) -> None:
    """Raise for the first row without a score."""
    if place := first_true(~has_scores(scores)):
        column = int(np.argmax(np.isnan(np.atleast_1d(scores[place]).ravel())))
        name = roles.scores[column] if len(roles.scores) > 1 else roles.scores[0] or column
        raise ValueError(
            f"expected a number in row {place[0]}, column `{name}`; found none (empty, NA or NaN). "
            "Fill it in, or leave out rows without a value: --missing drop."
        )


def settle_kind(values: AnyArray, roles: Roles, wanted: Columns) -> Kind:
    """What scores (n,) or (n, classes) are: as asked for, by their names, or by their values."""
    if wanted.kind is not None:
        return wanted.kind
    if values.dtype.kind not in "fiu" or not values.size or roles.kind == "confidence":
        return roles.kind or "logits"
    inside = bool(values.min() >= 0.0)
    if values.ndim == 1 and roles.kind != "probabilities" and inside and values.max() <= 1.0:
        raise ValueError(
            f"`{roles.scores[0] or 'logits'}` must be log-odds or probabilities of class 1; got "
            "one column in [0, 1], which can be either. Say what they are: --probabilities or "
            "--logits."
        )
    sums = values.sum(axis=1) if inside and values.ndim == 2 else np.zeros(1)
    if np.all(np.abs(sums - 100.0) <= 100.0 * _SLACK):
        raise ValueError(
            "scores must be logits or probabilities; got rows that sum to 100, percentages. Divide "
            "them by 100, or write them with the sign %."
        )
    sums_to_one = bool(np.all(np.abs(sums - 1.0) <= _SLACK))
    return roles.kind or ("probabilities" if sums_to_one else "logits")


def to_scores(
    given: Any, kind: Kind, roles: Roles, zeros: Zeros, fitted_by: Any
) -> Logits | FloatArray:
    """Logits (n, classes) from logits or probabilities; confidences (n,) as they are."""
    name = roles.scores[0] if len(roles.scores) == 1 and roles.scores[0] else kind
    if kind == "confidence":
        if given.ndim != 1:
            raise ValueError(f"`{name}` must be one confidence per row; got shape {given.shape}.")
        return np.asarray(given, np.float64)
    if kind == "probabilities":
        given = from_probabilities(given, zeros=zeros, name=name)
    elif given.ndim == 1:
        given = from_binary_scores(given, name=name)
    return as_logits(given, name=name, fitted_by=fitted_by)
