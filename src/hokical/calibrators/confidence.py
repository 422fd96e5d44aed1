"""Yes-or-no outcomes: is an answer right, by a confidence without logits; and which
labels?

The labels do not exclude each other: each is calibrated, and rare ones borrow strength.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from hokical._core import arrays, reading
from hokical._core.arrays import NUMPY, AnyArray, Array, FloatArray, backend_of
from hokical._core.checks import (
    NoEvidenceError,
    check_choice,
    check_flag,
    check_positive,
)
from hokical._core.groups import GroupCoding, GroupNames, check_rows_of, tell_unknown
from hokical._core.logits import as_float_matrix
from hokical._core.reading import Rows, check_row_order, refuse, to_numpy
from hokical._core.runtime import ConvergenceWarning, FitDataWarning, warn_user
from hokical._core.schema import ColumnSchema
from hokical._core.storage import CalibratorFileError
from hokical.calibrators.decisions import Decisions, decide
from hokical.calibrators.stored import (
    MethodInfo,
    StoredEstimator,
    check_stored,
    check_stored_or_none,
)
from hokical.guarantees import control, scores
from hokical.guarantees.bounds import check_chance
from hokical.guarantees.fingerprints import (
    Reused,
    RowSketch,
    number_hashes,
    number_words,
    scatter,
)
from hokical.guarantees.repeats import (
    ONE_ROW,
    AnswerMarks,
    Copies,
    RowMarks,
    refuse_copies,
    warn_of_copies_in_fit,
)
from hokical.guarantees.scores import (
    AbstentionOptions,
    ScoreTable,
    SelectivePrediction,
    match_groups,
    prove_abstention,
    score_levels,
)
from hokical.guarantees.sets import (
    ByLabel,
    HeldOutLabels,
    LabelSetOptions,
    LabelSets,
    label_sets,
)
from hokical.rules.confidence import ConfidenceCurve, MultilabelCurves

#: Whom a risk is bounded for.
ForWhom = Literal["all", "group", "new group"]


class OutcomeCalibrator(StoredEstimator):
    """The base of calibrators of yes-or-no outcomes: one confidence per row, or several
    labels.

    A subclass has a `method`, and `fit` calls `_store_fit` with its rule and a report.
    """

    #: The class of what `certify` notes.
    _held_out_kind: ClassVar[type[Any]]

    rule_: Any
    columns_: ColumnSchema
    reason_: str
    held_out_log_loss_: dict[str, float]
    #: What `certify` noted, or None; and of predictions without groups, where these
    #: differ.
    held_out_: Any
    held_out_for_new_groups_: Any
    #: Fingerprints of the examples of the fit, which cannot certify it.
    fit_rows_: tuple[RowSketch, ...]

    @property
    def is_fitted(self) -> bool:
        """Whether there is a rule."""
        return "rule_" in vars(self)

    @property
    def schema_(self) -> ColumnSchema:
        """How new rows are read."""
        return self.columns_ if "columns_" in vars(self) else ColumnSchema()

    def _stored_data(self) -> dict[str, Any]:
        return {
            "rule": self.rule_,
            "schema": self.schema_,
            "held_out": self.held_out_,
            "held_out_for_new_groups": self.held_out_for_new_groups_,
            "fit_rows": list(self.fit_rows_),
        }

    def _restore(self, document: dict[str, Any]) -> None:
        rule = check_stored(document, "rule", self.method.rule)
        schema = check_stored(document, "schema", ColumnSchema)
        held_out = [
            check_stored_or_none(document, name, self._held_out_kind)
            for name in ("held_out", "held_out_for_new_groups")
        ]
        sketches = tuple(check_stored(document, "fit_rows", list))
        unusable = {
            "held_out": not all(
                self._is_usable(evidence, rule) for evidence in held_out
            ),
            "fit_rows": not all(isinstance(sketch, RowSketch) for sketch in sketches),
        }
        for name, refused in unusable.items():
            if refused:
                raise CalibratorFileError(
                    f"the file of this {self.name} has no usable `{name}`."
                )
        self.columns_ = schema
        self._store_fit(rule, document["report"])
        self.held_out_, self.held_out_for_new_groups_ = held_out
        self.fit_rows_ = sketches

    def _is_usable(
        self, held_out: ScoreTable | HeldOutLabels | None, rule: object
    ) -> bool:
        """Whether what a file says of `certify` can be of this rule."""
        if isinstance(held_out, ScoreTable):
            return bool(held_out.count.shape[-1] == scores.LEVELS)
        if isinstance(held_out, HeldOutLabels) and isinstance(rule, MultilabelCurves):
            labels = (held_out.label, held_out.absent_label)
            return all((label < rule.shift.size).all() for label in labels)
        return True

    @property
    def needed_groups(self) -> GroupCoding | None:
        """The groups that the rule needs beside confidences."""
        coding: GroupCoding | None = self.rule_.needed_groups
        return coding

    def set_columns(
        self, columns: tuple[str, ...], class_names: tuple[str, ...] = ()
    ) -> None:
        """Note the columns of the fit."""
        self.columns_ = ColumnSchema(columns)

    @abstractmethod
    def _check_rows(self, examples: Rows) -> Rows:
        """Checked rows on the host."""

    @abstractmethod
    def _hashes(self, rows: Rows) -> list[FloatArray]:
        """Numbers (n,) that tell checked rows apart, in one way or several."""

    @abstractmethod
    def copies(self, rows: Rows) -> Copies:
        """The exact copies among checked rows with labels."""

    @abstractmethod
    def predict_rows(self, scores: FloatArray, groups: Any) -> FloatArray:
        """Probabilities on the host of checked scores."""

    @abstractmethod
    def uncalibrated(self, scores: Any) -> FloatArray:
        """What the scores say by themselves, as probabilities."""

    def _begin_fit(self, examples: Rows) -> Rows:
        """The checked rows of a fit; an interrupted one leaves no half-fitted state."""
        vars(self).pop("rule_", None)
        self.columns_ = ColumnSchema(examples.columns)
        return self._check_rows(examples)

    def _store_fit(
        self, rule: Any, report: dict[str, Any], rows: Rows | None = None
    ) -> None:
        """Keep the result of a fit on `rows`; what `certify` noted for an earlier one
        is dropped.

        Fingerprints of the rows are noted, of those that count.
        """
        self.rule_ = rule
        self._keep_report(report)
        self.metadata_ = {}
        hashes = [] if rows is None else self._hashes(_counting(rows))
        self.fit_rows_ = tuple(map(RowSketch.from_hashes, hashes))
        self.held_out_ = None
        self.held_out_for_new_groups_ = None
        if rows is not None and any(sketch.has_twins for sketch in self.fit_rows_):
            warn_of_copies_in_fit(self.copies(rows), name=self.row_names[0])
        if not report.get("converged", True):
            problem = f"{type(self).__name__} did not converge"
            warn_user(f"{problem}: {self.reason_}", ConvergenceWarning, cause=problem)

    def is_of_fit(self, rows: Rows) -> bool:
        """Whether checked rows are those of the fit, by their `_hashes`."""
        pairs = zip(self.fit_rows_, self._hashes(_counting(rows)), strict=False)
        return any(sketch.holds_too_many(hashes) for sketch, hashes in pairs)

    def read_labelled(
        self, scores: Any, labels: Any, sample_weight: Any = None, groups: Any = None
    ) -> Rows:
        """Checked rows on the host: what is calibrated, its labels, and the rest."""
        return self._check_rows(self.read_pair(scores, labels, sample_weight, groups))

    def _control_risk(
        self,
        options: control.RiskOptions,
        by: ForWhom,
        reused: Reused,
        *examples: object,
    ) -> control.RiskControl:
        """The threshold that examples prove; see `Calibrator.control_risk`.

        They are the arguments of `read_labelled`.
        """
        rows = self.read_held_out(reused, *examples)
        name = self.row_names[0]
        refuse_copies(self.copies(rows), reused, name=name, remedy=ONE_ROW)
        proba = self.predict_rows(
            rows.scores, None if by == "new group" else rows.groups
        )
        # Groups that only the predictions need.
        needless = by == "all" and self.method.learns_groups
        return control.control_risk(
            proba,
            rows.labels,
            options,
            by=by,
            groups=None if needless else rows.groups,
            weights=rows.weights,
        )

    def _noted(self, method: str) -> Any:
        """What `certify` noted, which a method needs."""
        self.check_fitted()
        if self.held_out_ is None:
            raise NoEvidenceError(
                f"`{method}` has no examples to go by.",
                f"certify({', '.join(self.row_names)})",
            )
        return self.held_out_


def _remedy_below_zero(values: FloatArray) -> str:
    """What to do about confidences below 0, (n,) or signals (n, k)."""
    below = values[..., (values < 0.0).any(axis=0)]
    if not (below > 0.0).any():
        return "They seem to be log-probabilities: pass `numpy.exp(confidence)`."
    return "For log-odds apply a sigmoid."


def _counting(rows: Rows) -> Rows:
    """Those with a weight above 0."""
    return rows if rows.weights is None else rows.take(rows.weights > 0.0)


#: What to do about confidences above the scale.
_TOO_LARGE = (
    "For percentages pass `scale=100` (--set scale=100); for log-odds apply a sigmoid."
)

#: A signal that is not given, as text.
_NOT_GIVEN = ("None", "<NA>", "nan")

#: The share of values below 1 % above which fractions are suspected on a scale to 100.
_MAX_FRACTIONS = 0.02


class ConfidenceCalibrator(OutcomeCalibrator):
    """The probability that an answer is right, from one number in [0, 1] stated with
    it.

    For confidences without logits: those that a language model states in words,
    P(True), the agreement of samples, the score of a detection. The log-odds are an
    average of those stated, of a line, and of a curve with hinges at quantiles and a
    term for every value that 3 % of the answers have, weighed by held-out log loss: few
    examples give mostly the line, many the curve. Corrections by group (subject,
    language, model) are shrunk by partial pooling, so that a group of few examples gets
    the common curve; groups and pairs of them are used where they help on held-out
    examples. It takes at least ten examples.

    Parameters
    ----------
    scale : float
        The largest confidence: 1, or 100 for percentages.
    monotone : bool
        True: within each group the answer never falls where the confidence rises. The
        fitted curve is replaced by the nearest such curve (isotonic regression,
        weighted by the examples).

    Attributes
    ----------
    reason_ : what was fitted, whether groups are used, and why
    held_out_log_loss_ : mean log loss by candidate, every example left out of its own
        fit
    rule_ : the fitted numbers
    converged_, n_iter_ : how the fit ended

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import ConfidenceCalibrator
    >>> rng = np.random.default_rng(0)
    >>> stated = rng.choice([0.8, 0.9, 0.95, 1.0], size=3000)
    >>> subject = rng.choice(["law", "maths"], size=3000)
    >>> truth = np.where(subject == "law", 0.55, 0.8) * stated
    >>> right = rng.random(3000) < truth
    >>> cal = ConfidenceCalibrator().fit(stated, right, groups=subject)
    >>> cal.predict([0.9, 0.9], groups=["law", "maths"]).round(1)
    array([0.5, 0.7])
    """

    method = MethodInfo(ConfidenceCurve, "Confidence curve", learns_groups=True)
    row_names = ("confidence", "right")
    _held_out_kind = ScoreTable

    rule_: ConfidenceCurve
    held_out_: ScoreTable | None

    def __init__(self, *, scale: float = 1.0, monotone: bool = False) -> None:
        self.scale = scale
        self.monotone = monotone

    def fit(
        self,
        confidence: Any,
        right: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
    ) -> Self:
        """Learn from confidences (n,) and whether the answers were right (n,).

        Several signals of each answer (stated confidence, token probability, agreement)
        are columns (n, signals): they are combined to one confidence by a regression on
        their log-odds. NaN is a signal that is not given; each answer needs one.
        `groups` are the groups of the answers: an array (n,) of names,
        or several columns that add up, as a mapping, a DataFrame or (n, columns).
        """
        from hokical._fitting.confidence_curves import fit_confidence

        check_choice("monotone", self.monotone, Literal[True, False])
        examples = self.read_pair(confidence, right, sample_weight, groups)
        if groups is None:
            _warn_of_codes(examples.weights)
        rows = self._begin_fit(examples)
        weights = np.ones(len(rows.labels)) if rows.weights is None else rows.weights
        is_used = weights > 0.0
        coded = None
        if rows.groups is not None:
            coding, codes = GroupCoding.read(rows.groups, weights.size, weights)
            coded = coding, codes[is_used]
            tell_unknown(codes[is_used], coding)
        used = rows.take(is_used)
        _check_signals(used.scores)
        rule, report = fit_confidence(
            used.scores,
            used.labels,
            weights[is_used],
            coded,
            monotone=bool(self.monotone),
        )
        self._store_fit(rule, report, used)
        return self

    def predict(self, confidence: Any, *, groups: Any = None) -> Array:
        """The probability (n,) that each answer is right, in the library of the
        confidences.

        Rows whose group is missing or was not in the fit get the prediction for all
        groups, and a warning counts them; without `groups`, all rows get it.
        """
        return arrays.to_input_library(self._predict(confidence, groups), confidence)

    def _check_rows(self, examples: Rows) -> Rows:
        stated = self._stated(examples.scores)
        n = len(stated)
        if not n:
            raise ValueError(
                "`confidence` must hold at least one answer to learn from; got none."
            )
        remedy = (
            "Compare the answers with the truth, `right = answer == truth`, and drop "
            "answers whose truth is not known."
        )
        right = reading.as_outcomes(examples.labels, n, "right", remedy)
        return check_rows_of(examples, stated, right, n)

    def _hashes(self, rows: Rows) -> list[FloatArray]:
        """Numbers of each answer, and others of all of them together, in their order.

        Answers of few distinct confidences come again by themselves, but not all in one
        order.
        """
        table = np.stack([self._combine(rows.scores), rows.labels], axis=1)
        by_position = number_words(table.ravel(), np.arange(table.size))
        in_order = np.arange(len(table), dtype=np.uint64) + by_position.sum()
        return [number_hashes(table), scatter(in_order)]

    def uncalibrated(self, confidence: Any) -> FloatArray:
        """The confidences (n,) as they are stated, on a scale to 1; the mean of
        several signals.
        """
        stated = self._stated(confidence)
        return stated if stated.ndim == 1 else np.nanmean(stated, axis=1)

    def certify(
        self,
        confidence: Any,
        right: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        cluster: Any = None,
        counts: bool = False,
        reused: Reused = "refuse",
    ) -> Self:
        """Count how often answers are right, by confidence, on answers used for nothing
        else.

        They must not be those of `fit`, which are refused (where confidences are of few
        values, in the order of the fit alone), nor many exact copies of answers with
        the same outcomes, unless `reused="ignore"` accepts identical rows.
        `predict_or_abstain` uses these counts. With `groups` it can
        also guarantee the error rate of each. With `counts=True`, `sample_weight` is
        how often each answer was seen, in whole numbers; without it all weights above 0
        must be equal. With `cluster` (n,), one answer of each cluster counts, as in
        `Calibrator.certify`.
        """
        check_flag("counts", counts)
        rows = self.read_held_out(
            reused, confidence, right, sample_weight, groups, cluster=cluster
        )
        refuse_copies(self.copies(rows), reused, name="confidence")
        weights = rows.weights
        wrong = ~rows.labels
        alike = weights is None or np.ptp(weights[weights > 0.0]) == 0.0
        if not (control.can_be_counts(weights) if counts else alike):
            raise ValueError(
                "`sample_weight` must be equal in `certify`, or whole numbers with "
                "`counts=True`: a guarantee is about counts. Leave it out."
            )
        if weights is not None and not counts:
            weights = (weights > 0.0).astype(np.float64)
        names = (
            None
            if rows.groups is None
            else GroupNames.from_rows(rows.groups, wrong.size)
        )

        def count(groups: Any) -> ScoreTable:
            odds = scores.confidence_log_odds(self.predict_rows(rows.scores, groups))
            level = scores.conservative_levels([odds], wrong, np.zeros(wrong.size))
            counted = ScoreTable.from_examples(level, wrong, weights, names)
            return replace(counted, clustered=cluster is not None)

        self.held_out_ = count(rows.groups)
        grouped = names is not None and self.rule_.coding is not None
        self.held_out_for_new_groups_ = count(None) if grouped else None
        return self

    def _restore(self, document: dict[str, Any]) -> None:
        check_positive("scale", self.scale, "Use 1, or 100 for percentages.")
        super()._restore(document)

    def copies(self, rows: Rows) -> Copies:
        rows = _counting(rows)
        table = np.nan_to_num(rows.scores.reshape(rows.labels.size, -1), nan=-1.0)
        confidence = self._combine(rows.scores) if self.is_fitted else table[:, 0]
        return AnswerMarks(number_hashes(table), confidence, rows.labels).copies()

    def predict_or_abstain(
        self,
        confidence: Any,
        *,
        groups: Any = None,
        risk: float = 0.05,
        delta: float = 0.1,
        by: ForWhom = "all",
    ) -> SelectivePrediction:
        """Which answers to accept so that at most a fraction `risk` of them is wrong.

        With probability 1 - delta over the answers passed to `certify`, the error rate
        among accepted exchangeable answers is at most `risk`; of all groups together,
        or, with `by="group"`, of each of the `groups` that `certify` was given, with a
        threshold for each. Answers of other groups are then not accepted. With `by="new
        group"` it is guaranteed for a group that was never seen, drawn like those of
        `certify`, with probability 1 - delta over groups. The `labels` are 1
        throughout: the answers stand as they are.
        """
        options = AbstentionOptions(risk, delta, by)
        table = self._noted("predict_or_abstain")
        if by == "new group":
            table = self.held_out_for_new_groups_ or table
        proba = self._predict(confidence, None if by == "new group" else groups)
        level = score_levels(scores.confidence_log_odds(proba))
        cells = match_groups(table, by, groups, proba.size)
        proven = prove_abstention(table, options, "held-out", True)
        rows = (np.ones(proba.size, np.int64), proba, proven.accepts(level, cells))
        return SelectivePrediction.of(
            proven, *(arrays.to_input_library(array, confidence) for array in rows)
        )

    def predict_action(
        self, confidence: Any, costs: Any, *, groups: Any = None
    ) -> Decisions:
        """The action of least expected cost for each answer, with what it is expected
        to cost.

        `costs` maps names of actions to (cost if the answer is wrong, cost if it is
        right), or to one number where that does not matter: to use the answer, to ask a
        larger model (its price and its expected errors), to ask a person. Or an array
        (2, actions) with these rows.

        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> stated = rng.choice([0.3, 0.6, 0.9, 1.0], size=2000)
        >>> cal = ConfidenceCalibrator().fit(stated, rng.random(2000) < stated**2)
        >>> costs = {"answer": (1.0, 0.0), "larger model": 0.25, "person": 0.6}
        >>> cal.predict_action([0.3, 0.9, 1.0], costs).named.tolist()
        ['larger model', 'answer', 'answer']
        """
        right = self.predict(confidence, groups=groups)
        xp = (backend_of(right) or NUMPY).namespace(right)
        return decide(xp.stack([1.0 - right, right], axis=1), costs, 2)

    def control_risk(
        self,
        confidence: Any,
        right: Any,
        sample_weight: Any = None,
        *,
        loss: control.Loss | Mapping[str, control.Loss],
        risk: float | Mapping[str, float],
        delta: float | None = None,
        thresholds: object = None,
        by: ForWhom = "all",
        groups: Any = None,
        reused: Reused = "refuse",
    ) -> control.RiskControl:
        """The last threshold at which the mean of a loss of your own is proven to be
        small.

        `loss`, `risk`, `delta` and `thresholds` are those of `Calibrator.control_risk`:
        `loss(proba, right, threshold)` gets the calibrated confidences (n,), by their
        `groups`, of answers that nothing was fitted on, and whether they are right
        (n,). For a cascade it says whether what comes out at the end is wrong; see the
        page on language models. With `by="group"` each of the `groups` gets a threshold
        too; with `by="new group"` the threshold is for a group that was never seen,
        drawn like these, with the confidence that it would get.
        """
        options = control.RiskOptions(loss, risk, delta, thresholds)
        return self._control_risk(
            options, by, reused, confidence, right, sample_weight, groups
        )

    def _predict(self, confidence: Any, groups: Any) -> FloatArray:
        self.check_fitted()
        check_row_order(confidence, groups, "groups", "confidence")
        return self.predict_rows(self._stated(confidence), groups)

    def predict_rows(self, scores: FloatArray, groups: Any) -> FloatArray:
        values = self._combine(scores)
        codes = self.rule_.codes(groups, values.size)
        if groups is not None and self.rule_.coding is not None:
            tell_unknown(codes, self.rule_.coding, groups)
        return np.asarray(self.rule_.proba(values, codes))

    def _combine(self, stated: FloatArray) -> FloatArray:
        """One confidence (n,) per answer, as the curve takes it."""
        signals = self.rule_.signals
        shape = () if signals is None else signals.rise.shape
        if stated.shape[1:] != shape:
            raise ValueError(
                f"`confidence` must have the shape {('n', *shape)} of the fit; got "
                f"{stated.shape}. Pass the same signals in the same order; for logits "
                "use `hokical.auto`."
            )
        return self.rule_.combine(stated)

    def _stated(self, confidence: Any) -> FloatArray:
        """Checked confidences (n,), or signals (n, k), in [0, 1]; of these some may be
        NaN.
        """
        check_positive("scale", self.scale, "Use 1, or 100 for percentages.")
        ordered = self.schema_.order(confidence, "confidence")
        array = _as_signals(to_numpy(ordered, "confidence"))
        values = array.astype(np.float64) / float(self.scale)
        message = f"`confidence` must lie in [0, {float(self.scale):g}]"
        missing = np.isnan(values)
        if values.ndim == 1:
            remedy = "Drop answers without a confidence, or give them one of their own."
            refuse(missing, array, message, remedy)
        refuse(values > 1.0, array, message, _TOO_LARGE)
        refuse(values < 0.0, array, message, _remedy_below_zero(values))
        if values.ndim == 2:
            refuse(
                np.asarray(missing.all(axis=1)),
                np.full(len(values), np.nan),
                "`confidence` must have a signal for each answer",
                "Drop answers without any.",
            )
        self._warn_of_scale(array)
        return values

    def _warn_of_scale(self, array: AnyArray) -> None:
        """Warn of numbers that seem to be on another scale, or on two."""
        numbers = array[~np.isnan(array)] if array.dtype.kind == "f" else array.ravel()
        largest = numbers.max(initial=0.0)
        fractions = (array > 0.0) & (array < 1.0)
        mixed = self.scale == 100.0 and largest > 1.0
        if mixed and fractions.sum() > _MAX_FRACTIONS * numbers.size:
            row, *_ = np.argwhere(fractions)[0].tolist()
            warn_user(
                "`confidence` seems to mix percentages and fractions: "
                f"{fractions.sum():,} of {numbers.size:,} lie between 0 and 1, the first "
                f"in row {row}, on a scale to 100. Multiply those by 100."
            )
        if self.scale > 1.0 and numbers.any() and largest <= 1.0:
            warn_user(
                "`confidence` look like fractions: none is above 1 on a scale to "
                f"{self.scale:g}. If they are, multiply them by the scale, or fit with "
                "`scale=1`."
            )


def calibrate_confidence(
    confidence: Any,
    right: Any,
    sample_weight: Any = None,
    *,
    groups: Any = None,
    scale: float = 1.0,
    monotone: bool = False,
) -> ConfidenceCalibrator:
    """Fit a `ConfidenceCalibrator` on confidences (n,) and whether the answers were
    right (n,).

    Parameters
    ----------
    confidence : array-like of shape (n,), or (n, signals)
        What is stated with each answer, from 0 to `scale`; or several signals of each,
        NaN where one is not given.
    right : array-like of bool of shape (n,)
        Whether each answer is right.
    sample_weight : array-like of shape (n,), optional
        How much each answer counts.
    groups : array-like of shape (n,), or several columns, optional
        Subjects, languages, models; see `ConfidenceCalibrator.fit`.
    scale : float
        The largest confidence: 1, or 100 for percentages.
    monotone : bool
        True: within each group predictions never fall where the confidence rises.

    Returns
    -------
    cal : ConfidenceCalibrator
        Fitted: `predict` takes new confidences, `certify` counts errors on other
        answers for guarantees, `save` writes a file.

    Examples
    --------
    >>> import numpy as np
    >>> import hokical
    >>> rng = np.random.default_rng(0)
    >>> stated = rng.choice([80, 90, 100], size=2000)
    >>> cal = hokical.calibrate_confidence(
    ...     stated, rng.random(2000) < stated / 150, scale=100
    ... )
    >>> cal.predict([90]).round(1)
    array([0.6])
    """
    cal = ConfidenceCalibrator(scale=scale, monotone=monotone)
    return cal.fit(confidence, right, sample_weight, groups=groups)


def _warn_of_codes(sample_weight: Any) -> None:
    """Warn if weights look like codes of groups."""
    weights = to_numpy(() if sample_weight is None else sample_weight, "sample_weight")
    if weights.dtype.kind in "iub" and np.unique(weights).size > 1:
        warn_user(
            f"`sample_weight` are of dtype {weights.dtype}, as codes of groups are: in "
            "0.4 the third argument was `groups`. Pass groups by name, `groups=...`, "
            "and weights as `.astype(float)`.",
            FitDataWarning,
        )


def _check_signals(stated: FloatArray) -> None:
    """Refuse signals (n, k) of which one is missing in all answers."""
    is_missing = np.isnan(stated).all(axis=0)
    if stated.ndim == 2 and is_missing.any():
        raise ValueError(
            f"signal {is_missing.argmax()} of `confidence` is missing in all "
            f"{len(stated):,} answers. Leave the column out."
        )


def _as_signals(array: AnyArray) -> AnyArray:
    """Numbers (n,), or several signals (n, k), with NaN for None and pandas' NA."""
    if array.dtype.kind == "O" and array.ndim == 2:
        array = _without_none(array)
    numeric = array.dtype.kind in "fiub"
    if not numeric or array.ndim not in (1, 2) or 0 in array.shape[1:]:
        got = _describe_texts(array) or f"{array.dtype} of shape {array.shape}."
        raise ValueError(
            "`confidence` must be numbers (n,), or several signals (n, k); got "
            f"{got} For logits (n, classes) use `hokical.auto`."
        )
    return array[:, 0] if array.shape[1:] == (1,) else array


def _without_none(array: AnyArray) -> AnyArray:
    """Signals of numbers and missing values as numbers; others as they are."""
    missing = np.array([[str(x) in _NOT_GIVEN for x in row] for row in array], np.bool_)
    missing = missing.reshape(array.shape)
    try:
        return np.where(missing, np.nan, array).astype(np.float64)
    except (TypeError, ValueError):
        return array


def _describe_texts(array: AnyArray) -> str:
    """What is not a number among confidences (n,), and what to do about it; "" if
    nothing is.
    """
    texts = array.tolist() if array.dtype.kind in "OUST" and array.ndim == 1 else []
    for row, value in enumerate(texts):
        remedy = "Map words to numbers, for example {'yes': 0.9, 'no': 0.1}."
        if value is None:
            remedy = "Drop answers without a confidence."
        elif not isinstance(value, str):
            continue
        elif value.strip().endswith("%"):
            remedy = "Write numbers, `float(text.strip(' %'))`, and pass `scale=100`."
        elif value.strip().replace(".", "", 1).isdecimal():
            remedy = "Convert text to numbers: `float(text)`."
        return f"{value!r} in row {row}. {remedy}"
    return ""


#: A logit above this, among others that are all positive, is rather a percentage.
_LARGE_LOGIT = 20.0


class MultilabelCalibrator(OutcomeCalibrator):
    """Probabilities of labels that do not exclude each other, from a score (log-odds)
    for each.

    Tags, findings, classes of a sigmoid layer. The curve of each label is the common
    one plus a correction that is shrunk by partial pooling: a label of few positives
    gets nearly the common curve, one of many its own. The log-odds of the curves and
    the uncalibrated ones are averaged by held-out log loss, so that few examples change
    calibrated probabilities little.

    Attributes
    ----------
    rule_ : the fitted numbers
    reason_ : what was fitted, and why
    held_out_log_loss_ : mean log loss by candidate, each example left out of its own
        fit
    converged_, n_iter_ : how the fit ended

    Examples
    --------
    >>> import numpy as np
    >>> from hokical import MultilabelCalibrator
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(-2.0, 2.0, size=(2000, 5))
    >>> labels = rng.logistic(size=odds.shape) < odds
    >>> cal = MultilabelCalibrator().fit(2 * odds + 1, labels)
    >>> bool(abs(cal.predict_proba(2 * odds + 1).mean() - labels.mean()) < 0.01)
    True
    >>> cal.predict([[3.0, -3.0, 0.0, 1.0, 9.0]]).shape
    (1, 5)
    """

    method = MethodInfo(MultilabelCurves, "Curves of labels")
    row_names = ("scores", "labels")
    _held_out_kind = HeldOutLabels

    rule_: MultilabelCurves
    held_out_: HeldOutLabels | None

    @property
    def n_labels_(self) -> int:
        """The number of labels."""
        return int(self.rule_.shift.size)

    def fit(self, scores: Any, labels: Any, sample_weight: Any = None) -> Self:
        """Learn from scores (n, labels), logits before the sigmoid, and labels (n,
        labels) of 0, 1.

        NaN among the labels is a label that is not known. For probabilities use
        `hokical.from_binary_probabilities`.
        """
        from hokical._fitting.label_curves import fit_multilabel

        examples = self.read_pair(scores, labels, sample_weight, None)
        rows = self._begin_fit(examples)
        highest = rows.scores.max() if rows.scores.min() >= 0.0 else np.inf
        if highest <= 1.0 or _LARGE_LOGIT < highest <= 100.0:
            kind = "probabilities: all lie in [0, 1]. Convert"
            if highest > 1.0:
                kind = (
                    "percentages: all lie in [0, 100]. Divide them by 100 and convert"
                )
            warn_user(
                f"`scores` look like {kind} them with "
                "`hokical.from_binary_probabilities`, or pass the logits.",
                FitDataWarning,
            )
        counts = np.ones(len(rows.scores)) if rows.weights is None else rows.weights
        self._store_fit(*fit_multilabel(rows.scores, rows.labels, counts), rows)
        return self

    def predict_proba(self, scores: Any) -> Array:
        """The probability (n, labels) of each label, in the library of the scores."""
        self.check_fitted()
        with arrays.float64_scope(scores):
            values, backend = _as_scores(self.schema_.order(scores, "scores"))
            if values.shape[1] != self.n_labels_:
                raise ValueError(
                    "`scores` must have one column per label of the fit, "
                    f"{self.n_labels_}; got {values.shape[1]}."
                )
            return arrays.to_input_library(self.rule_.proba(values, backend), scores)

    def uncalibrated(self, scores: Any) -> FloatArray:
        """The classifier's own probabilities (n, labels): sigmoids of the scores."""
        return np.asarray(0.5 + 0.5 * np.tanh(0.5 * self._read_scores(scores)))

    def predict(self, scores: Any, *, costs: Any = (1.0, 1.0)) -> Array:
        """Which labels to predict, (n, labels) bool: the choice of least expected cost.

        `costs` are of a wrong and of a missed label, two numbers or (labels, 2). For a
        share of each label's positives that is to be found, see `recall_thresholds`.
        """
        proba = self.predict_proba(scores)
        price = reading.to_floats(costs, "costs")
        shapes = ((2,), (self.n_labels_, 2))
        if price.shape not in shapes or not ((price > 0.0) & np.isfinite(price)).all():
            raise ValueError(
                "`costs` must be positive, of a wrong and of a missed label, shape "
                f"(2,) or {shapes[1]}; got {costs!r}."
            )
        level = np.broadcast_to(price[..., 0] / price.sum(axis=-1), self.n_labels_)
        return proba >= (backend_of(proba) or NUMPY).from_host(level, proba)

    def certify(
        self,
        scores: Any,
        labels: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        cluster: Any = None,
        reused: Reused = "refuse",
    ) -> Self:
        """Note predictions for examples used for nothing else.

        Rows of the fit are refused, unless `reused="ignore"` accepts identical rows.
        `sample_weight` (n,) are importance weights, on any scale: how much more likely
        each example is in the future; only guarantees on average can use them.
        `groups`, one column or several, are for `by="group"` and `by="new group"`. With
        `cluster` (n,), one example of each cluster counts, as in `Calibrator.certify`.
        """
        rows = self.read_held_out(
            reused, scores, labels, sample_weight, groups, cluster=cluster
        )
        refuse_copies(self.copies(rows), reused, name="scores")
        proba = self.predict_rows(rows.scores, None)
        held_out = HeldOutLabels.from_rows(
            proba, rows.labels, rows.weights, rows.groups
        )
        self.held_out_ = replace(held_out, clustered=cluster is not None)
        return self

    def _check_rows(self, examples: Rows) -> Rows:
        host = self._read_scores(examples.scores)
        columns = self.schema_.columns
        alike = not {*reading.column_names(examples.labels)}.isdisjoint(columns)
        labels = self.schema_.order(examples.labels, "labels", strict=alike)
        array = to_numpy(labels, "labels")
        if array.shape != host.shape or array.dtype.kind not in "fiub":
            raise ValueError(
                f"`labels` must be 0 or 1 for every score, shape {host.shape}; got "
                f"{array.dtype} of shape {array.shape}. For one class per row use "
                "`hokical.auto`."
            )
        truth = array.astype(np.float64)  # NaN where it is not known
        is_label = np.isnan(truth) | (truth == 0.0) | (truth == 1.0)
        refuse(~is_label, array, "`labels` must be 0, 1 or NaN (not known)")
        return check_rows_of(examples, host, truth, len(host))

    def _hashes(self, rows: Rows) -> list[FloatArray]:
        return [number_hashes(rows.scores)]

    def predict_rows(self, scores: FloatArray, groups: Any) -> FloatArray:
        return arrays.to_host(self.predict_proba(scores))

    def copies(self, rows: Rows) -> Copies:
        rows = _counting(rows)
        labels = number_hashes(np.nan_to_num(rows.labels, nan=-1.0))
        wrong = ((rows.scores > 0.0) != (rows.labels > 0.0)).any(axis=1)
        return RowMarks(number_hashes(rows.scores), labels, wrong).copies()

    def _read_scores(self, scores: Any) -> FloatArray:
        values, backend = _as_scores(self.schema_.order(scores, "scores"))
        return backend.to_host(backend.without_gradient(values)).astype(np.float64)

    def predict_set(
        self,
        scores: Any,
        *,
        coverage: float = 0.9,
        delta: float | None = None,
        by: ByLabel = "row",
        groups: Any = None,
    ) -> LabelSets:
        """For each row, the labels that are included, excluded and undecided.

        Needs `certify` first, with exchangeable examples that nothing was fitted on.

        Parameters
        ----------
        scores : array of shape (n, labels)
        coverage : float
            What is guaranteed, on average over the examples of `certify`.
        delta : float, optional
            With probability 1 - delta over those examples it is kept.
        by : {"row", "label", "group", "new group"}
            "row": at least that share of new rows has all labels that are in, and none
            that are out. "label": for each label, at least that share of the rows with
            it do not have it out, and of those without do not have it in. "group": as
            "row", for each of the `groups` (n,) that `certify` knows. "new group": as
            "row", of the rows of a group that was never seen, drawn like those of
            `certify`; on average or with probability 1 - delta over groups.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> odds = rng.normal(-2.0, 3.0, size=(2000, 3))
        >>> labels = rng.logistic(size=odds.shape) < odds
        >>> cal = MultilabelCalibrator().fit(odds[:1000], labels[:1000])
        >>> sets = cal.certify(odds[1000:], labels[1000:]).predict_set(
        ...     [[7.0, 0.0, -7.0]], coverage=0.9
        ... )
        >>> sets.inside.tolist(), sets.open.tolist()
        ([[True, False, False]], [[False, True, False]])
        """
        proba = self.predict_proba(scores)
        options = LabelSetOptions(coverage, delta, by)
        return label_sets(proba, self._noted("predict_set"), options, groups)

    def control_risk(
        self,
        scores: Any,
        labels: Any,
        sample_weight: Any = None,
        *,
        loss: control.Loss | Mapping[str, control.Loss],
        risk: float | Mapping[str, float],
        delta: float | None = None,
        thresholds: object = None,
        by: ForWhom = "all",
        groups: Any = None,
        reused: Reused = "refuse",
    ) -> control.RiskControl:
        """The last threshold at which the mean of a loss of your own is proven to be
        small.

        `loss`, `risk`, `delta` and `thresholds` are those of `Calibrator.control_risk`:
        `loss(proba, labels, threshold)` gets probabilities and labels (n, labels) of
        held-out examples, such as the share of a row's labels that is missed. With
        `by="group"` each of the `groups` gets a threshold too; with `by="new group"`
        the threshold is for a group that was never seen, drawn like these.
        """
        options = control.RiskOptions(loss, risk, delta, thresholds)
        return self._control_risk(
            options, by, reused, scores, labels, sample_weight, groups
        )

    def recall_thresholds(self, recall: float, *, delta: float = 0.1) -> FloatArray:
        """Thresholds (labels,) at which at least a share `recall` of a label's
        positives is found.

        For each label with probability 1 - delta over the positives passed to `certify`
        (binomial); for all labels at once divide `delta` by their number. A label with
        too few positives for that has the threshold 0: it is always predicted. The
        labels to predict are `cal.predict_proba(scores) >= thresholds`.
        """
        recall = check_chance("recall", recall)
        delta = check_chance("delta", delta)
        examples: HeldOutLabels = self._noted("recall_thresholds")
        options = LabelSetOptions(recall, delta, "label")
        return examples.low_high(self.n_labels_, options)[0]


def _as_scores(scores: Any) -> tuple[Array, arrays.Backend]:
    """Scores (n, labels) without NaN, in their own library."""
    if len(np.shape(scores)) == 1:
        raise ValueError(
            f"`scores` must be 2-D (n, labels); got shape {np.shape(scores)}. For one "
            "label pass columns, `scores[:, None]` and `labels[:, None]`; one example "
            "is `scores[None, :]`."
        )
    values, backend = as_float_matrix(scores, "scores")
    bad = backend.to_host(
        backend.namespace(values).isnan(backend.without_gradient(values))
    )
    remedy = (
        "Drop the row, or give a label that was not scored its log-odds among all "
        "examples."
    )
    refuse(
        bad, np.broadcast_to(np.nan, bad.shape), "`scores` must not hold NaN", remedy
    )
    return values, backend
