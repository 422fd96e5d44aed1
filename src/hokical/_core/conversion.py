"""Logits from binary scores and from probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from hokical._core.arrays import NUMPY, Array, Backend, backend_of
from hokical._core.checks import check_choice
from hokical._core.ensembles import Ensemble
from hokical._core.logits import Logits
from hokical._core.reading import infer_numbers, refuse, to_floats, to_numpy
from hokical._core.runtime import FitDataWarning, WarningLog, warn_user

#: What a probability of 0 means: a class that is very unlikely, or one that cannot be.
Zeros = Literal["unlikely", "impossible"]
#: The logit of a probability of 0 that is "unlikely": the log of the smallest positive
#: float64.
LOG_ZERO = -744.4400719213812
#: Rows of up to ten probabilities that were rounded to two digits sum to 1 within this.
SUM_SLACK = 5e-2
#: Sums that are taken for 1 as they are: up to the precision of float16.
SUM_ERROR = 1e-2
#: Cause of the warning about probabilities that are exactly 0 or 1, for `WarningLog`.
CERTAIN = "probabilities of 0 or 1"
#: Cause of the warning about rows that do not sum to 1.
ROUNDED = "rounded probabilities"
#: For numbers outside of [0, 1].
_NO_SHARES = (
    "If these are percentages, divide by 100; if they are logits, use them as they are."
)


def _as_floats(
    data: object, name: str, *, bools: bool = False
) -> tuple[Array, Array, Backend]:
    """Real numbers in their own library, at least float32; float64 of NumPy for all
    else.

    And the same without a gradient, and their backend.
    """
    backend = backend_of(data)
    if backend is None or backend is NUMPY or backend.lazy is not None:
        array = to_floats(data, name, "fiub" if bools else "fiu")
        return array, array, NUMPY
    array = backend.check(data, name)
    xp = backend.namespace(data)
    if backend.kind(array) not in ("float", "integer", "bool" if bools else "float"):
        raise TypeError(f"`{name}` must be real numbers; got dtype {array.dtype}.")
    if array.dtype not in (xp.float32, xp.float64):
        array = xp.astype(
            array, xp.float32 if backend.kind(array) == "float" else xp.float64
        )
    return array, backend.without_gradient(array), backend


def _require(
    good: Array, values: Array, rule: str, remedy: str, first_row: int = 0
) -> None:
    """`refuse` the first value that is not good, unless traced, so not known."""
    backend = backend_of(values) or NUMPY
    if not (backend.is_traced(good) or bool(backend.namespace(good).all(good))):
        refuse(~backend.to_host(good), backend.to_host(values), rule, remedy, first_row)


def from_binary_scores(scores: object, *, name: str = "scores") -> Any:
    """Logits (n, 2) from the 1-D score (log-odds) of class 1 of a binary classifier.

    Tensors, and arrays of other libraries, stay in theirs, with their gradient.

    >>> from_binary_scores([-1.0, 2.0])
    array([[ 0., -1.],
           [ 0.,  2.]])
    """
    column, plain, backend = _as_floats(scores, name)
    if column.ndim != 1:
        raise ValueError(
            f"`{name}` must be 1-D (n,); got shape {tuple(column.shape)}. Use "
            f"`{name}[:, 0]` of one column; scores (n, classes) are logits already."
        )
    xp = backend.namespace(column)
    _require(
        xp.isfinite(plain), plain, f"`{name}` must be finite", "Fix or drop the row."
    )
    return xp.stack([xp.zeros_like(column), column], axis=1)


def from_binary_probabilities(
    probabilities: object, *, name: str = "probabilities"
) -> Any:
    """Log-odds from probabilities of any shape, each of its own event: sigmoids of many
    labels.

    0 and 1 become the log-odds of the floats next to them. A list of arrays (n, 2), one
    for each label, as scikit-learn's `MultiOutputClassifier.predict_proba` gives them,
    becomes (n, labels). Tensors, and arrays of other libraries, stay in theirs, with
    their gradient.

    >>> from_binary_probabilities([[0.5, 0.0], [1.0, 0.75]]).round(1)
    array([[   0. , -744.4],
           [  36.7,    1.1]])
    """
    if isinstance(probabilities, (list, tuple)):
        probabilities = _join_labels(probabilities, name)
    proba, plain, backend = _as_floats(probabilities, name, bools=True)
    pairs = backend is NUMPY and proba.ndim == 3 and proba.shape[2] == 2
    if pairs and np.allclose(proba.sum(axis=2), 1.0):
        raise ValueError(
            f"`{name}` must be of events; got shape {proba.shape} with probabilities "
            "of no and of yes. Pass the list of arrays (n, 2), one for each label, or "
            f"`{name}[..., 1].T`."
        )
    _require(
        (plain >= 0.0) & (plain <= 1.0),
        plain,
        f"`{name}` must lie in [0, 1]",
        _NO_SHARES,
    )
    _tell_certain(plain, name, backend)
    xp = backend.namespace(proba)
    # The float next to 0 is taken for 0 on a GPU.
    low = (
        np.nextafter(0.0, 1.0)
        if backend is NUMPY
        else xp.finfo(proba.dtype).smallest_normal
    )
    proba = xp.clip(proba, float(low), 1.0 - 0.5 * float(xp.finfo(proba.dtype).eps))
    return xp.log(proba) - xp.log1p(-proba)


def _tell_certain(proba: Array, name: str, backend: Backend) -> None:
    """Warn of probabilities that are exactly 0 or 1."""
    if backend.is_traced(proba):
        return
    if bool(backend.namespace(proba).any((proba == 0.0) | (proba == 1.0))):
        warn_user(
            f"some `{name}` are exactly 0 or 1: their logits are bounds, not values. "
            "If they are rounded, pass more digits, or the logits; shares of votes, of "
            "trees or neighbors, can be exactly 0 or 1 and need nothing.",
            FitDataWarning,
            cause=CERTAIN,
        )


def _join_labels(parts: Sequence[Any], name: str) -> Any:
    """The second columns (n, labels) of arrays (n, 2), one for each label; others as
    they are.
    """
    if not parts or not all(np.ndim(pair) == 2 for pair in parts):
        return parts
    arrays = [to_numpy(pair, name) for pair in parts]
    for k, array in enumerate(arrays):
        if array.shape != (arrays[0].shape[0], 2) or not np.allclose(
            array.sum(axis=1), 1.0
        ):
            raise ValueError(
                f"`{name}` must be arrays (n, 2) of the probabilities of no and of "
                f"yes, one for each label; got shape {array.shape} for label {k}. For "
                "a label that the classifier has seen with one value alone, insert "
                "the missing column."
            )
    backend = backend_of(parts[0]) or NUMPY
    label_arrays = arrays if backend is NUMPY else parts
    return backend.namespace(label_arrays[0]).stack(
        [pair[:, 1] for pair in label_arrays], axis=1
    )


def from_probabilities(
    probabilities: object, *, zeros: Zeros = "unlikely", name: str = "probabilities"
) -> Any:
    """Logits from probabilities: (n, classes) rows that sum to 1, or (n,) for class 1
    of two.

    Where several classes share the largest probability of a row, the first is the
    label.

    Parameters
    ----------
    probabilities : array-like of shape (n, classes) or (n,), or Ensemble of those
    zeros : {"unlikely", "impossible"}
        What a probability of 0 means. "unlikely": very unlikely, -744.4; when a
        calibrator is fitted on such logits, it also learns how likely a 0 is.
        "impossible": -inf, and the class gets probability 0 from every method.
    name : str
        Name of the argument in error messages.

    Returns
    -------
    logits : array of shape (n, classes), (n, 2) for (n,)
        In the library of the probabilities, on their device and with their gradient.

    Examples
    --------
    >>> from_probabilities([[0.25, 0.75], [0.0, 1.0]]).round(1).tolist()
    [[-1.4, -0.3], [-744.4, 0.0]]
    >>> from_probabilities([0.75, 1.0], zeros="impossible").round(1)
    array([[-1.4, -0.3],
           [-inf,  0. ]])
    """
    remedy = (
        'Use "impossible" only if a class with probability 0 cannot be the true one.'
    )
    check_choice("zeros", zeros, Zeros, remedy)
    if isinstance(probabilities, Ensemble):
        with WarningLog.current().once():  # all members have the same remedy
            return probabilities.convert(
                lambda member, label: _from_member(member, zeros=zeros, name=label)
            )
    values, plain, backend = _as_floats(probabilities, name)
    xp = backend.namespace(values)
    proba = xp.stack([1.0 - values, values], axis=1) if values.ndim == 1 else values
    if proba.ndim != 2 or proba.shape[0] == 0 or proba.shape[1] < 2:
        raise ValueError(_wrong_shape(tuple(values.shape), name))
    if not backend.is_traced(proba):
        if values.ndim == 1:
            rule = f"`{name}` must lie in [0, 1]"
            _require((plain >= 0.0) & (plain <= 1.0), plain, rule, _NO_SHARES)
        proba = _undo_rounding(proba, name, backend)
        check_probability_rows(backend.without_gradient(proba), name)
        _tell_certain(plain, name, backend)
    return _log_keeping_labels(proba, zeros, backend)


def _wrong_shape(shape: tuple[int, ...], name: str) -> str:
    """What probabilities must be instead of an array of this shape."""
    message = (
        f"`{name}` must be (n, classes) with at least one row and two classes, or (n,) "
        f"for class 1 of two; got shape {shape}."
    )
    if len(shape) == 3:
        message += (
            " For several evaluations of each example: "
            f"`from_probabilities(hokical.Ensemble({name}))`."
        )
    return message


def _log_keeping_labels(proba: Array, zeros: Zeros, backend: Backend) -> Array:
    """The logs of probabilities (n, classes), with the same first maximum."""
    xp = backend.namespace(proba)
    is_zero = proba <= 0.0
    proba = xp.clip(proba, None, 1.0)
    least = LOG_ZERO if zeros == "unlikely" else -np.inf
    logs = xp.log(xp.where(is_zero, xp.ones_like(proba), proba))
    logs = xp.where(is_zero, xp.full_like(proba, least), logs)
    # Neighbouring floats can have one logarithm, and the first of them would become the
    # label.
    label = xp.argmax(backend.without_gradient(proba), axis=-1)
    plain = backend.without_gradient(logs)
    moved = xp.argmax(plain, axis=-1) != label
    if not backend.is_traced(proba) and not bool(xp.any(moved)):
        return logs
    is_label = backend.from_host(np.arange(proba.shape[-1]), proba) == label[..., None]
    raised = xp.nextafter(plain, xp.full_like(plain, np.inf))
    return xp.where(is_label & moved[..., None], backend.follow(raised, logs), logs)


def _from_member(probabilities: Array, *, zeros: Zeros, name: str) -> Array:
    """Logits of a member; rows of NaN, where it was not evaluated, stay."""
    proba, plain, backend = _as_floats(probabilities, name)
    missing = np.isnan(plain).all(axis=-1)
    if not missing.any():
        return from_probabilities(probabilities, zeros=zeros, name=name)
    xp = backend.namespace(proba)
    is_missing = backend.from_host(missing, proba)[:, None]
    uniform = xp.full_like(proba, 1.0 / proba.shape[-1])
    filled = xp.where(is_missing, uniform, proba)
    logits = from_probabilities(filled, zeros=zeros, name=name)
    return xp.where(is_missing, xp.full_like(logits, np.nan), logits)


def _undo_rounding(proba: Array, name: str, backend: Backend) -> Array:
    """Rows whose sum differs from 1 no more than rounding explains, divided by it;
    and say so.
    """
    xp = backend.namespace(proba)
    sums = xp.sum(proba, axis=1)
    error = xp.abs(sums - 1.0)
    rounded = (
        (error > SUM_ERROR) & (error <= SUM_SLACK) & (xp.min(proba, axis=1) >= 0.0)
    )
    if not bool(xp.any(rounded)):
        return proba
    warn_user(
        f"`{name}` seem to be rounded: sums of rows differ from 1 by more than "
        f"{SUM_ERROR:g}, at most {SUM_SLACK:g}; these rows are divided by their sum. "
        "More digits are better.",
        FitDataWarning,
        cause=ROUNDED,
    )
    return proba / xp.where(rounded, sums, xp.ones_like(sums))[:, None]


def as_two_columns(scores: Any, *, fitting: bool = False) -> Any:
    """1-D scores of class 1 as logits (n, 2) in their library; anything else is
    returned as it is.

    When `fitting`, scores that could be probabilities are refused.
    """
    if isinstance(scores, Logits):
        return scores
    backend = backend_of(scores) or NUMPY
    array = scores
    if backend is NUMPY:
        array = infer_numbers(to_numpy(scores, "logits"))
    if len(array.shape) != 1:
        return scores
    if backend.kind(array) not in ("float", "integer"):
        raise TypeError(
            "1-D `logits` must be scores (log-odds) of class 1, real numbers; got dtype "
            f"{array.dtype}. Use `.astype(float)`."
        )
    xp = backend.namespace(array)
    if backend.kind(array) == "integer":
        array = xp.astype(array, xp.float64)
    if fitting and array.shape[0] and bool(xp.all((array >= 0.0) & (array <= 1.0))):
        raise ValueError(
            "1-D `logits` must be scores (log-odds) of class 1; got numbers that all "
            "lie in [0, 1]. For probabilities use `from_probabilities`, for scores in "
            "this range `from_binary_scores`."
        )
    return xp.stack([xp.zeros_like(array), array], axis=1)


def check_probability_rows(
    proba: Array,
    name: str,
    *,
    remedy: str = "",
    first_row: int = 0,
    slack: float = 1e-6,
) -> None:
    """Entries in [0, 1] up to `slack`, row sums of 1 up to the precision of float16."""
    good = (proba >= 0.0) & (proba <= 1.0 + slack)
    _require(
        good, proba, f"`{name}` must lie in [0, 1]", remedy or _NO_SHARES, first_row
    )
    xp = (backend_of(proba) or NUMPY).namespace(proba)
    sums = xp.sum(proba, axis=1)
    remedy = f"Divide each row by its sum if that is what you mean. {remedy}"
    good = xp.abs(sums - 1.0) <= SUM_ERROR
    _require(good, sums, f"`{name}` rows must sum to 1", remedy, first_row)
