"""What `compare` and `evaluate(folds=)` do with confidences and signals of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hokical._core.arrays import AnyArray, FloatArray, IntArray, to_host
from hokical._core.checks import check_count
from hokical._core.groups import read_columns, take_rows
from hokical._core.reading import Rows, to_numpy
from hokical.calibrators.confidence import ConfidenceCalibrator
from hokical.calibrators.stored import clone
from hokical.guarantees.repeats import warn_of_copies_in_test

#: Calibrators of confidences, by name or not.
Methods = Iterable[Any] | Mapping[str, Any] | None

#: The method that leaves confidences as they are stated.
_AS_STATED = "uncalibrated"


@dataclass(frozen=True, eq=False)
class ConfidenceEntrant:
    """A calibrator to compare, None for confidences as stated, with its confidences.

    `validation` are those that it is fitted on, `test` those that it is evaluated on;
    numbers (n,) or signals (n, k).
    """

    name: str
    calibrator: ConfidenceCalibrator | None
    validation: object
    test: object


@dataclass(frozen=True, eq=False)
class LabelledConfidences:
    """Confidences of answers, or several by name; whether the answers are right (n,).

    `groups` are those of the answers, `name` is that of the data in reports.
    """

    confidences: object
    right: AnyArray
    groups: object = None
    name: str | None = None

    @property
    def n_rows(self) -> int:
        """The number of answers."""
        return len(self.right)


def are_confidences(validation: object, methods: object) -> bool:
    """Whether `compare` is about confidences: by its methods, or by named signals."""
    if isinstance(methods, (list, Mapping)):
        listed = methods.values() if isinstance(methods, Mapping) else methods
        if any(map(_is_confidence_method, listed)):
            return True
    if methods is not None or not isinstance(validation, (tuple, list)):
        return False
    return len(validation) == 2 and isinstance(validation[0], Mapping)


def read_answer_pairs(
    validation: object,
    test: object,
    groups: tuple[object, object],
    names: tuple[str | None, str | None],
    folds: int | None,
) -> tuple[LabelledConfidences, LabelledConfidences]:
    """The answers of the fits and those of the test, which are the same with folds."""
    if (test is None) == (folds is None):
        got = "neither" if folds is None else "both"
        raise TypeError(
            "`compare` of confidences needs `test`, a pair (confidences, right), or "
            f"`folds`; got {got}."
        )
    first = _read_answers("validation", validation, groups[0], names[0])
    if test is None:
        return first, first
    return first, _read_answers("test", test, groups[1], names[1])


def _read_answers(
    argument: str, pair: object, groups: object, name: str | None
) -> LabelledConfidences:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(
            f"`{argument}` must be a pair (confidences, right); got "
            f"{type(pair).__name__}."
        )
    right = to_numpy(pair[1], "right")
    return LabelledConfidences(pair[0], right, groups, name)


def _is_confidence_method(method: object) -> bool:
    return isinstance(method, ConfidenceCalibrator) or method is ConfidenceCalibrator


def choose_entrants(
    validation: object, test: object, methods: Methods
) -> list[ConfidenceEntrant]:
    """One entrant for each named signal, or for each method on the same confidences."""
    if not isinstance(validation, Mapping):
        return [
            ConfidenceEntrant(name, calibrator, validation, test)
            for name, calibrator in _named_methods(methods).items()
        ]
    if not isinstance(test, Mapping) or [*validation] != [*test]:
        names = [*test] if isinstance(test, Mapping) else type(test).__name__
        raise ValueError(
            "`test` must have the confidences of `validation`, "
            f"{[*validation]}; got {names}."
        )
    calibrators = [*_named_methods(methods).values()]
    if len(calibrators) > 1:
        raise ValueError(
            "`methods` must be one `ConfidenceCalibrator` for named confidences; got "
            f"{len(calibrators)}. It is fitted to each of them."
        )
    return [
        ConfidenceEntrant(
            str(name), _copy(calibrators[0]), validation[name], test[name]
        )
        for name in validation
    ]


def _named_methods(methods: Methods) -> dict[str, ConfidenceCalibrator | None]:
    """Calibrators by name; None for confidences as they are stated."""
    if methods is None:
        methods = [ConfidenceCalibrator()]
    pairs: Iterable[tuple[str | None, object]]
    if isinstance(methods, Mapping):
        pairs = methods.items()
    else:
        pairs = ((None, method) for method in methods)
    named: dict[str, ConfidenceCalibrator | None] = {}
    for mapped_name, method in pairs:
        calibrator = _as_calibrator(method)
        default = _AS_STATED if calibrator is None else _default_name(calibrator)
        name = default if mapped_name is None else str(mapped_name)
        if name in named:
            raise ValueError(
                f"`methods` must have different names; got {name!r} twice. Name them "
                "in a dict."
            )
        named[name] = calibrator
    return named


def _default_name(calibrator: ConfidenceCalibrator) -> str:
    """The name of the method, or the calibrator as text if it has options."""
    return str(calibrator) if calibrator.has_options else calibrator.name


def _as_calibrator(method: object) -> ConfidenceCalibrator | None:
    if isinstance(method, str) and method == _AS_STATED:
        return None
    if method is ConfidenceCalibrator:
        return ConfidenceCalibrator()
    if isinstance(method, ConfidenceCalibrator):
        return _copy(method)
    raise TypeError(
        "`methods` for confidences must be calibrators of confidences or "
        f"{_AS_STATED!r}; got {method!r}. For logits use methods of logits alone."
    )


def _copy(calibrator: ConfidenceCalibrator | None) -> ConfidenceCalibrator | None:
    """A calibrator to fit, or the one given if it is fitted."""
    if calibrator is None or calibrator.is_fitted:
        return calibrator
    copied: ConfidenceCalibrator = clone(calibrator)
    return copied


def warn_of_copied_answers(
    calibrator: ConfidenceCalibrator | None,
    answers: Rows,
    cluster: IntArray | None,
    folds: int | None = None,
) -> None:
    """Warn if many answers that are to measure something are copies.

    Those of one `cluster` may be.
    """
    if cluster is not None:
        return
    reader = ConfidenceCalibrator() if calibrator is None else calibrator
    rows = reader.read_labelled(answers.scores, answers.labels, answers.weights)
    warn_of_copies_in_test(reader.copies(rows), folds=folds)


def assign_folds(
    strata: IntArray, folds: int, cluster: IntArray | None = None
) -> IntArray:
    """The fold (n,) of each row, in an order that is drawn once.

    Folds have about the same share of each stratum (n,); with `cluster` (n,), the rows
    of a cluster are in one fold instead.
    """
    n_units = strata.size if cluster is None else np.unique(cluster).size
    remedy = "There cannot be more folds than examples, or clusters of them."
    check_count("folds", folds, least=2, most=n_units, remedy=remedy)
    drawn = np.random.default_rng(0).permutation(n_units)
    fold = np.empty(n_units, np.int64)
    if cluster is not None:
        fold[drawn] = np.arange(n_units) % folds
        return fold[np.unique(cluster, return_inverse=True)[1].ravel()]
    in_turn = drawn[np.argsort(strata[drawn], kind="stable")]
    fold[in_turn] = np.arange(n_units) % folds
    return fold


def cross_fit(
    method: ConfidenceCalibrator, rows: Rows, groups: object, fold: IntArray
) -> FloatArray:
    """The confidence (n,) of each answer by a fit on the other folds.

    `rows` are checked, with confidences on a scale to 1; `fold` (n,) is that of each.
    """
    columns = {} if groups is None else read_columns(groups, fold.size)
    proba = np.empty(fold.size)
    for number in np.unique(fold):
        held_out = np.flatnonzero(fold == number)
        calibrator = clone(method).set_params(scale=1.0)
        fit_rows = np.flatnonzero(fold != number)
        learned = rows.take(fit_rows)
        calibrator.fit(
            learned.scores,
            learned.labels,
            learned.weights,
            groups=take_rows(columns, fit_rows) or None,
        )
        held_out_groups = take_rows(columns, held_out) or None
        predicted = calibrator.predict(rows.scores[held_out], groups=held_out_groups)
        proba[held_out] = to_host(predicted)
    return proba
