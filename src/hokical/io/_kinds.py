"""What scores are: logits, probabilities or confidences. Logits and confidences remain."""

from typing import Any

import numpy as np

from hokical._core.conversion import Zeros, from_binary_scores, from_probabilities
from hokical._core.logits import Logits, as_logits
from hokical._core.types import AnyArray, FloatArray
from hokical.io._convention import LOGITS, Columns, Kind, Roles

#: Rows of probabilities that were rounded to two digits sum to 1 within this.
_SLACK = 0.05
_SAY_KIND = "Say what they are: --probabilities or --logits."


def row_maxima(scores: Any) -> AnyArray:
    """The largest score of each row (n,), NaN where one is missing; zeros if all are known."""
    values = np.asarray(scores)
    if values.dtype.kind != "f" or 0 in values.shape:
        return np.zeros(len(values))
    return values if values.ndim == 1 else np.max(values.reshape(len(values), -1), axis=1)


def refuse_missing(scores: Any, roles: Roles) -> None:
    """Raise for the first row without a score."""
    absent = np.isnan(row_maxima(scores))
    if not absent.any():
        return
    row = int(np.argmax(absent))
    column = int(np.argmax(np.isnan(np.atleast_1d(scores[row]).ravel())))
    name = roles.scores[column] if len(roles.scores) > 1 else roles.scores[0] or column
    raise ValueError(
        f"expected a number in row {row}, column `{name}`; found none (empty, NA or NaN). Fill it "
        "in, or leave out rows without a value: --missing drop."
    )


def settle_kind(scores: Any, roles: Roles, wanted: Columns) -> Kind:
    """What the scores are: as asked for, by their names, or by their values."""
    if wanted.kind is not None:
        return wanted.kind
    values = np.asarray(scores)
    if values.dtype.kind not in "fiu" or not values.size or roles.kind == "confidence":
        return roles.kind or "logits"
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    inside = bool(values.min() >= 0.0)
    if values.ndim == 1:
        if roles.kind == "probabilities":
            return roles.kind
        if inside and values.max() <= 1.0:
            name = roles.scores[0] or LOGITS[0]
            raise ValueError(
                f"`{name}` must be log-odds or probabilities of class 1; got one column in [0, 1], "
                f"which can be either. {_SAY_KIND}"
            )
        return "logits"
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
        values = np.asarray(given)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.ndim != 1:
            raise ValueError(f"`{name}` must be one confidence per row; got shape {values.shape}.")
        return values.astype(np.float64)
    given = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
    if kind == "probabilities":
        given = from_probabilities(given, zeros=zeros, name=name)
    elif given.ndim == 1:
        given = from_binary_scores(given, name=name)
    return as_logits(given, name=name, fitted_by=fitted_by)
