"""What a calibrator keeps of its calibration examples, for guarantees that are asked for later."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple, Self

import numpy as np

from hokical._core.types import AnyArray, BoolArray, IntArray
from hokical.guarantees._class_scores import ClassScores
from hokical.guarantees._group_names import GroupNames
from hokical.guarantees._row_sketch import RowSketch
from hokical.guarantees._scores import CLASS_LEVELS, LEVELS, ScoreTable, Support
from hokical.guarantees._sets import Conformity

#: Examples that are kept for prediction sets: a sample, so that a fitted calibrator stays small.
SAMPLE_SIZE = 2048


class HeldOutPart(NamedTuple):
    """Some examples of `certify`: where their true classes are, the `level` (n,) of the label's
    score, whether the label is `wrong` (n,), counts by each class, and the columns of groups.
    """

    examples: Conformity
    level: IntArray
    wrong: BoolArray
    classes: ScoreTable | None
    groups: dict[str, AnyArray] | None


@dataclass(frozen=True, eq=False)
class CalibrationData:
    """Statistics of the examples of a fit, and of those of `certify`; None where not available."""

    #: Counts by the classifier's own score on the examples of the fit.
    fit_scores: ScoreTable | None = None
    #: Counts by the calibrated confidence on a sample of them, for monitors.
    fit_confidences: ScoreTable | None = None
    #: Counts by the calibrated confidence on the examples of `certify`.
    held_out_scores: ScoreTable | None = None
    #: The range of the rows of the fit.
    support: Support | None = None
    #: Where the classifier's softmax places the true classes of a sample of the fit.
    fit_conformity: Conformity | None = None
    #: Where the calibrated probabilities place those of `certify`.
    held_out_conformity: Conformity | None = None
    #: Those of `certify` by the calibrated probability of each class.
    held_out_classes: ScoreTable | None = None
    #: A fingerprint of the rows of the fit, which cannot certify it.
    fit_rows: RowSketch | None = None
    #: Features of the rows of the fit by true class.
    class_scores: ClassScores | None = None

    def unsuitable(self, n_classes: int) -> Iterator[str]:
        """The names of what cannot be of so many classes, in a forged file."""
        for name, noted in vars(self).items():
            fits = True
            if isinstance(noted, Conformity):
                fits = noted.n > 0 and noted.labels.max() < n_classes
            elif isinstance(noted, ClassScores):
                fits = noted.n_classes == n_classes
            elif isinstance(noted, ScoreTable) and name == "held_out_classes":
                fits = noted.count.shape == (n_classes, CLASS_LEVELS)
            elif isinstance(noted, ScoreTable):
                fits = noted.count.shape[-1] == LEVELS
            if not fits:
                yield name

    def without_fit(self) -> Self:
        """Without what the examples of the fit would prove, where they are not independent."""
        gone = ("fit_scores", "fit_confidences", "fit_conformity")
        return replace(self, **dict.fromkeys(gone))

    def without_held_out(self) -> Self:
        """Without what `certify` noted."""
        gone = ("held_out_scores", "held_out_conformity", "held_out_classes")
        return replace(self, **dict.fromkeys(gone))

    def with_held_out(
        self, parts: Sequence[HeldOutPart], unseen: Sequence[HeldOutPart] = ()
    ) -> Self:
        """With the examples of `certify`, in place of earlier ones.

        `unseen` are the same with the predictions for groups that the fit does not know.
        """
        if unseen:
            found, alone = self.with_held_out(parts), self.with_held_out(unseen)
            scores, examples = found.held_out_scores, found.held_out_conformity
            if scores is not None:
                scores = replace(scores, unseen=alone.held_out_scores)
            if examples is not None:
                examples = replace(examples, unseen=alone.held_out_conformity)
            return replace(found, held_out_scores=scores, held_out_conformity=examples)
        noted, levels, wrong, tables, named = zip(*parts, strict=True)
        examples, groups = reduce(operator.add, noted).settled(), None
        if (columns := _join_columns(named)) is not None:
            groups = GroupNames.from_rows(columns, examples.n)
            examples = replace(examples, group_names=groups[0], group=groups[1])
        left = replace(self.without_held_out(), held_out_conformity=examples)
        if not examples.counted:
            return left
        rows = np.concatenate(levels), np.concatenate(wrong)
        counts = ScoreTable.from_examples(*rows, examples.counts, groups)
        classes = reduce(partial(_if_both, operator.add), tables)
        return replace(left, held_out_scores=counts, held_out_classes=classes)

    def __add__(self, other: Self) -> Self:
        """Of the examples of two fits; of a sample of each, shares as large as the fits."""
        known = [each.class_scores for each in (self, other) if each.class_scores is not None]
        weights = [classes.square.sum() / classes.count.sum() for classes in known]
        alike = len(weights) == 2 and math.isclose(*weights, rel_tol=1e-12)
        counted = self if alike else type(self)()
        return type(self)(
            fit_scores=_if_both(operator.add, counted.fit_scores, other.fit_scores),
            support=_if_both(operator.or_, self.support, other.support),
            fit_conformity=_if_both(_join_samples, counted.fit_conformity, other.fit_conformity),
            fit_rows=_if_both(operator.or_, self.fit_rows, other.fit_rows),
            class_scores=_if_both(operator.add, self.class_scores, other.class_scores),
        )


def _join_samples(left: Conformity, right: Conformity) -> Conformity | None:
    """A sample of two fits; None if one is of a file of 0.3, which has no keys."""
    both = left + right
    if both.key is None:
        return None
    return both.take(np.argsort(both.key, kind="stable")[:SAMPLE_SIZE])


def _join_columns(parts: Sequence[dict[str, AnyArray] | None]) -> dict[str, AnyArray] | None:
    """The columns of all parts, matched by name; None unless all have some."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if len({frozenset(part) for part in known}) > 1:
        raise ValueError("`groups` must have the same columns in all parts.")
    return {name: np.concatenate([part[name] for part in known]) for name in known[0]}


def _if_both(join: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    return None if left is None or right is None else join(left, right)
