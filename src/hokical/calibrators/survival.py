"""Hoki on transformations of any kind: the share of them that keep the label.

The paper states Algorithms 1 and 2 for a class of transformations of inputs or logits.
`Hoki` adds noise to logits and solves the integral; here a user transforms the inputs
(views, paraphrases, prompts, passes with dropout) and passes which of them kept the
label.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from hokical._core import reading
from hokical._core.arrays import BoolArray, FloatArray, IntArray
from hokical._core.checks import check_bins, check_choice, check_count
from hokical._core.groups import GroupCoding
from hokical._core.reading import Rows
from hokical._core.runtime import ConvergenceWarning, warn_user
from hokical._core.schema import ColumnSchema
from hokical._core.storage import CalibratorFileError, storable
from hokical._fitting.recursion import Schedule, Unseen, learn_schedule
from hokical.calibrators.stored import MethodInfo, StoredEstimator, check_stored
from hokical.rules.hoki import Curve
from hokical.stability.tables import StabilityTable

#: Confidence where the label never survived: no classes are known that chance could
#: choose among.
_CHANCE = 0.0


@storable("survival-curve")
@dataclass(frozen=True, eq=False)
class SurvivalCurve(Curve):
    """Confidence as a function of the share of transformations that keep the label."""

    name: ClassVar[str] = "survival"


class SurvivalCalibrator(StoredEstimator):
    """Algorithms 1 and 2 of the paper for any set of transformations.

    The label stability of an example is the share of its transformations that keep the
    label. Per confidence bin the method learns how stability relates to being right,
    and repeats until no validation example changes its bin.

    Where the logits of the transformed inputs are at hand, they say more than their
    labels: `hokical.auto(hokical.Ensemble(...))` pools them.

    Parameters
    ----------
    n_bins : int
        Number of equal-width confidence bins.
    max_iter : int
        Maximum number of steps of the recursion.
    unseen : {"nearest", "as_printed"}
        The confidence where the validation set has no example, as in `Hoki`.

    Attributes
    ----------
    n_transformations_ : how many transformations there were
    accuracy_ : accuracy on the validation set
    alpha_, beta_ : (n_iter_, n_bins), NaN in bins without validation examples
    converged_, ending_, validation_ece_ : as of `Hoki`
    table_ : StabilityTable, the mergeable statistic that all of this is computed from

    Examples
    --------
    >>> import numpy as np
    >>> from hokical.calibrators import SurvivalCalibrator
    >>> rng = np.random.default_rng(0)
    >>> ease = rng.random(3000)
    >>> survived = rng.random((20, 3000)) < ease  # (transformations, n)
    >>> correct = rng.random(3000) < 0.5 + 0.4 * ease
    >>> cal = SurvivalCalibrator().fit(survived[:, :2000], correct[:2000])
    >>> confidence = cal.predict(survived[:, 2000:])
    >>> bool(abs(confidence.mean() - correct[2000:].mean()) < 0.03)
    True
    """

    method = MethodInfo(
        SurvivalCurve,
        "Hoki (any transformations)",
        "Jang, Ivanov, Lee, Weimer: Confidence Calibration Using Logits "
        "Transformations, 2021, arXiv:2102.12680",
        "one count of the examples",
    )
    row_names = ("survived", "correct")

    rule_: SurvivalCurve
    n_transformations_: int
    accuracy_: float
    alpha_: FloatArray
    beta_: FloatArray
    ending_: str
    validation_ece_: float
    table_: StabilityTable

    def __init__(
        self,
        *,
        n_bins: int = 15,
        max_iter: int = 200,
        unseen: Unseen = "nearest",
    ) -> None:
        self.n_bins = n_bins
        self.max_iter = max_iter
        self.unseen = unseen

    def fit(
        self,
        survived: ArrayLike | StabilityTable,
        correct: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from which transformations (transformations, n) kept the label, and
        whether the label was correct (n,).

        `survived` may be a `StabilityTable` that was counted elsewhere, and `correct`
        is None then.
        """
        if isinstance(survived, StabilityTable):
            if correct is not None or sample_weight is not None:
                raise ValueError(
                    "`correct` must be None for a StabilityTable, which has the counts."
                )
            return self._learn(survived)
        rows = self.read_labelled(survived, correct, sample_weight)
        return self._learn(_count_rows(rows))

    def partial_fit(
        self,
        survived: ArrayLike,
        correct: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add more validation examples; the result equals one `fit` on all of them."""
        if not self.is_fitted:
            return self.fit(survived, correct, sample_weight)
        rows = self.read_labelled(survived, correct, sample_weight)
        self._check_transformations(rows.scores)
        return self._learn(self.table_ + _count_rows(rows))

    def merge(self, *others: Self) -> Self:
        """A new calibrator from this one and others fitted on other examples, equal to
        one fit on all of them.
        """
        self.check_fitted()
        table = self.table_
        for calibrator in others:
            calibrator.check_fitted()
            table = table + calibrator.table_
        return copy(self).fit(table, None)

    def stability(self, survived: ArrayLike) -> FloatArray:
        """The share (n,) of the transformations (transformations, n) that kept the
        label.
        """
        return np.asarray(_as_survivals(survived).mean(axis=0))

    def predict(self, survived: ArrayLike) -> FloatArray:
        """The confidence (n,) in the label of each example."""
        self.check_fitted()
        survivals = _as_survivals(survived)
        self._check_transformations(survivals)
        return self.rule_.at(survivals.sum(axis=0), self.n_transformations_)

    def _check_transformations(self, survivals: BoolArray) -> None:
        """Raise unless there are as many transformations as in the fit."""
        if survivals.shape[0] != self.n_transformations_:
            raise ValueError(
                f"`survived` must have the {self.n_transformations_} transformations of "
                f"the fit, (transformations, n); got shape {survivals.shape}. Draw as "
                "many for new examples."
            )

    def _learn(self, table: StabilityTable) -> Self:
        """Run the recursion on the table, and keep the learned curve."""
        n_bins = check_bins(self.n_bins)
        max_iter = check_count("max_iter", self.max_iter)
        check_choice("unseen", self.unseen, Unseen)
        printed = self.unseen == "as_printed"
        schedule = learn_schedule(table, n_bins, max_iter, as_printed=printed)
        curve = schedule.curve(table, self.unseen, _CHANCE)
        self._store(curve, _report(schedule, table))
        if not schedule.is_final(self.unseen):
            warn_user(
                f"{type(self).__name__} did not converge ({schedule.ending}): after "
                f"{schedule.n_steps} iterations some validation examples still change "
                f"their bins, and the validation ECE is {schedule.validation_ece:.1e}. "
                "If that matters, try another `n_bins`.",
                ConvergenceWarning,
                cause="the schedule did not converge",
            )
        return self

    def _store(self, curve: Curve, report: dict[str, Any]) -> None:
        """Keep the result of a fit."""
        self.rule_ = SurvivalCurve(curve.first, curve.slope, curve.base)
        self._keep_report(report)
        self.metadata_ = {}

    @property
    def is_fitted(self) -> bool:
        """Whether there is a rule."""
        return "rule_" in vars(self)

    @property
    def schema_(self) -> ColumnSchema:
        """No columns, as survivals have none."""
        return ColumnSchema()

    @property
    def needed_groups(self) -> GroupCoding | None:
        """None: it does not learn from groups."""
        return None

    def read_labelled(
        self,
        scores: object,
        labels: object,
        sample_weight: object = None,
        groups: object = None,
    ) -> Rows:
        """Checked survivals (transformations, n), 0 or 1 (n,), and weights."""
        survivals = _as_survivals(scores)
        n_rows = survivals.shape[1]
        correct = reading.as_labels(labels, n_rows, 2, name="correct")
        weights = reading.as_weights(sample_weight, n_rows)
        return Rows(survivals, correct, weights)

    def is_of_fit(self, rows: Rows) -> bool:
        """False: counts tell no rows apart."""
        return False

    def _stored_data(self) -> dict[str, Any]:
        return {"rule": self.rule_}

    def _restore(self, document: dict[str, Any]) -> None:
        curve = check_stored(document, "rule", SurvivalCurve)
        table = document["report"].get("table")
        count = document["report"].get("n_transformations")
        if not isinstance(table, StabilityTable) or table.levels != count:
            raise CalibratorFileError("the file has no usable stability table.")
        self._store(curve, document["report"])


def _count_rows(rows: Rows) -> StabilityTable:
    """The examples by the number of transformations that kept their label."""
    survivals: BoolArray = rows.scores
    level: IntArray = survivals.sum(axis=0)
    return StabilityTable.from_examples(
        level, rows.labels == 1, levels=survivals.shape[0], sample_weight=rows.weights
    )


def _report(schedule: Schedule, table: StabilityTable) -> dict[str, Any]:
    """What a fit reports, as attributes and in files."""
    return {
        "n_transformations": table.levels,
        "alpha": schedule.alpha,
        "beta": schedule.beta,
        "ending": schedule.ending,
        "converged": schedule.converged,
        "validation_ece": schedule.validation_ece,
        "accuracy": table.accuracy,
        "n_iter": schedule.n_steps,
        "table": table,
    }


def _as_survivals(survived: object) -> BoolArray:
    """Whether each transformation (transformations, n) kept the label."""
    values = reading.to_numpy(survived, "survived")
    if values.ndim != 2 or not values.size:
        raise ValueError(
            "`survived` must be (transformations, n), whether each kept the label; got "
            f"shape {values.shape}. For labels of transformed inputs: "
            "`transformed_labels == labels`."
        )
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise ValueError(
            "`survived` must be True or False; got other values. For labels of "
            "transformed inputs: `transformed_labels == labels`."
        )
    return values.astype(np.bool_)
