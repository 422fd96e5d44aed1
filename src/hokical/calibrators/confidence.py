"""One number per answer: the probability that it is right, from a confidence without logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import (
    NUMPY,
    AnyArray,
    Array,
    BoolArray,
    FloatArray,
    backend_of,
    to_input_library,
)
from hokical._core.checks import check_positive
from hokical._core.groups import GroupCoding, GroupNames, tell_unknown
from hokical._core.messages import FitDataWarning, warn_user
from hokical._core.reading import Rows, check_row_order, order_columns, to_numpy
from hokical.calibrators.decisions import Decisions, decide
from hokical.calibrators.stored import MethodInfo, OutcomeCalibrator
from hokical.guarantees.calibration_data import (
    Reused,
    number_hashes,
    number_words,
    odd_powers,
    one_of_each,
    refuse_rows_of_fit,
    scatter,
)
from hokical.guarantees.control import RiskControl, can_be_counts, control_risk, group_cells
from hokical.guarantees.scores import (
    ScoreTable,
    confidence_log_odds,
    conservative_levels,
    score_levels,
)
from hokical.guarantees.selective import ScoredLabels, SelectivePrediction
from hokical.rules.confidence import ConfidenceCurve

#: What to do about confidences above the scale.
_TOO_LARGE = "For percentages pass `scale=100` (--set scale=100); for log-odds apply a sigmoid."

#: The share of values below 1 % above which fractions are suspected on a scale to 100.
_MOST_BELOW = 0.02


class ConfidenceCalibrator(OutcomeCalibrator):
    """The probability that an answer is right, from one number in [0, 1] stated with it.

    For confidences without logits: those that a language model states in words, P(True), the
    agreement of samples, the score of a detection. The log-odds are an average of those stated, of
    a line, and of a curve with hinges at quantiles and a term for every value that 3 % of the
    answers have, weighed by held-out log loss: few examples give mostly the line, many the curve.
    Corrections by group (subject, language, model) are shrunk by partial pooling, so that a group
    of few examples gets the common curve; groups and pairs of them are used where they help on
    held-out examples. From ten examples on.

    Parameters
    ----------
    scale : float
        The largest confidence: 1, or 100 for percentages.
    monotone : bool
        True: within each group the answer never falls where the confidence rises. The fitted curve
        is replaced by the nearest such curve (isotonic regression, weighted by the examples).

    Attributes
    ----------
    reason_ : what was fitted, whether groups are used, and why
    held_out_log_loss_ : mean log loss by candidate, every example left out of its own fit
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
    >>> cal.predict([0.9, 0.9], ["law", "maths"]).round(1)
    array([0.5, 0.7])
    """

    method = MethodInfo(ConfidenceCurve, "Confidence curve")
    _row_names = ("confidence", "right")
    _held_out_kind = ScoreTable

    rule_: ConfidenceCurve
    held_out_: ScoreTable | None

    def __init__(self, *, scale: float = 1.0, monotone: bool = False) -> None:
        self.scale = scale
        self.monotone = monotone

    def fit(
        self, confidence: Any, right: Any, sample_weight: Any = None, *, groups: Any = None
    ) -> Self:
        """Learn from confidences (n,) and whether the answers were right (n,).

        Several signals of each answer (stated confidence, token probability, agreement) are columns
        (n, signals): they are combined to one confidence by a regression on their log-odds.
        `groups` are the groups of the answers: an array (n,) of names, or several columns that
        add up, as a mapping, a DataFrame or (n, columns).
        """
        from hokical._fitting.confidence import fit_confidence

        if not isinstance(self.monotone, (bool, np.bool_)):
            raise ValueError(f"`monotone` must be True or False; got {self.monotone!r}.")
        given = self._pair(confidence, right, sample_weight, groups)
        if groups is None:
            _warn_of_codes(given.weights)
        self._columns = given.columns
        stated, truth, weights, groups, *_ = self._check_rows(given)
        seen = np.ones(len(stated), np.bool_) if weights is None else weights > 0.0
        weights = np.ones(len(stated)) if weights is None else weights
        known = None
        if groups is not None:
            coding, codes = GroupCoding.read(groups, len(stated), weights)
            known = coding, codes[seen]
            tell_unknown(known[1], coding)
        rule, report = fit_confidence(
            stated[seen], truth[seen], weights[seen], known, monotone=bool(self.monotone)
        )
        self._keep(rule, report, answer_hashes(rule.combine(stated[seen]), truth[seen]))
        return self

    def predict(self, confidence: Any, groups: Any = None) -> Array:
        """The probability (n,) that each answer is right, in the library of the confidences.

        Rows whose group is missing or was not in the fit get the prediction for all groups, and a
        warning counts them; without `groups`, all rows get it.
        """
        return to_input_library(self._predict(confidence, groups), confidence)

    def _read(
        self, confidence: Any, right: Any, sample_weight: Any = None, groups: Any = None
    ) -> Rows:
        """Checked answers: confidences (n,), or signals (n, k), on a scale to 1; (n,) of bool."""
        return self._check_rows(self._pair(confidence, right, sample_weight, groups))

    def _check_rows(self, given: Rows) -> Rows:
        stated = self._stated(given.scores)
        return self._checked(given, stated, _as_right(given.labels, len(stated)), len(stated))

    def _uncalibrated(self, confidence: Any) -> FloatArray:
        """The confidences (n,) as they are stated, on a scale to 1; the mean of several signals."""
        stated = self._stated(confidence)
        return stated if stated.ndim == 1 else np.asarray(stated.mean(axis=1))

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
        """Count how often answers are right, by confidence, on answers used for nothing else.

        They must not be those of `fit`, which are refused (where confidences are of few values, in
        the order of the fit alone), unless `reused="ignore"` accepts identical rows.
        `predict_or_abstain` uses these counts. With `groups` it can also guarantee the error rate
        of each. With `counts=True`, `sample_weight` is how often each answer was seen, in whole
        numbers; without it all weights above 0 must be equal. With `cluster` (n,), one answer of
        each cluster counts, as in `Calibrator.certify`.
        """
        self._check_fitted()
        rows = self._read(confidence, right, sample_weight, groups)
        if cluster is not None:
            rows = one_of_each(rows, cluster)
        stated, truth, weights, groups, *_ = rows
        found, wrong = self._predict_stated(stated, groups), ~truth
        alike = weights is None or np.ptp(weights[weights > 0.0]) == 0.0
        if not (can_be_counts(weights) if counts else alike):
            raise ValueError(
                "`sample_weight` must be equal in `certify`, or whole numbers with `counts=True`, "
                "how often each answer was seen: a guarantee is about counts. Leave it out."
            )
        if weights is not None and not counts:
            weights = (weights > 0.0).astype(np.float64)
        seen = slice(None) if weights is None else weights > 0.0
        hashes = answer_hashes(self._combine(stated)[seen], truth[seen])
        refuse_rows_of_fit(self._are_of_fit(hashes), "confidence", reused)
        level = conservative_levels([confidence_log_odds(found)], wrong, np.zeros(found.size))
        names = None if groups is None else GroupNames.from_rows(groups, found.size)
        counted = ScoreTable.from_examples(level, wrong, weights, names)
        self.held_out_ = replace(counted, clustered=cluster is not None)
        if names is not None and self.rule_.coding is not None:
            alone = confidence_log_odds(self._predict_stated(stated, None))
            level = conservative_levels([alone], wrong, np.zeros(found.size))
            counted = ScoreTable.from_examples(level, wrong, weights, names)
            unseen = replace(counted, clustered=cluster is not None)
            self.held_out_ = replace(self.held_out_, unseen=unseen)
        return self

    def predict_or_abstain(
        self,
        confidence: Any,
        groups: Any = None,
        *,
        risk: float = 0.05,
        delta: float = 0.1,
        by: Literal["all", "group", "new group"] = "all",
    ) -> SelectivePrediction:
        """Which answers to accept so that at most a fraction `risk` of them is wrong.

        With probability 1 - delta over the answers passed to `certify`, the error rate among
        accepted exchangeable answers is at most `risk`; of all groups together, or, with
        `by="group"`, of each of the `groups` that `certify` was given, with a threshold for each.
        Answers of other groups are then not accepted. With `by="new group"` it is guaranteed for a
        group that was never seen, drawn like those of `certify`, with probability 1 - delta over
        groups. The `labels` are 1 throughout: the answers stand as they are.
        """
        found = self._predict(confidence, None if by == "new group" else groups)
        if self.held_out_ is None:
            raise ValueError(
                "`predict_or_abstain` has no examples to go by. Call `certify(confidence, right)` "
                "first, with answers that nothing was fitted on."
            )
        level, ones = score_levels(confidence_log_odds(found)), np.ones(found.size, np.int64)
        rows = ScoredLabels(ones, found, level, self.held_out_, "held-out")
        chosen = rows.accept(risk=risk, delta=delta, by=by, groups=groups)
        return chosen.map_arrays(lambda array: to_input_library(array, confidence))

    def predict_action(self, confidence: Any, costs: Any, *, groups: Any = None) -> Decisions:
        """The action of least expected cost for each answer, with what it is expected to cost.

        `costs` maps names of actions to (cost if the answer is wrong, cost if it is right), or to
        one number where that does not matter: to use the answer, to ask a larger model (its price
        and its expected errors), to ask a person. Or an array (2, actions) with these rows.

        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> stated = rng.choice([0.3, 0.6, 0.9, 1.0], size=2000)
        >>> cal = ConfidenceCalibrator().fit(stated, rng.random(2000) < stated**2)
        >>> costs = {"answer": (1.0, 0.0), "larger model": 0.25, "person": 0.6}
        >>> cal.predict_action([0.3, 0.9, 1.0], costs).named.tolist()
        ['larger model', 'answer', 'answer']
        """
        right = self.predict(confidence, groups)
        xp = (backend_of(right) or NUMPY).namespace(right)
        return decide(xp.stack([1.0 - right, right], axis=1), costs, 2)

    def control_risk(
        self,
        confidence: Any,
        right: Any,
        sample_weight: Any = None,
        *,
        by: Literal["all", "group", "new group"] = "all",
        groups: Any = None,
        reused: Reused = "refuse",
        **guarantee: Any,
    ) -> RiskControl:
        """The last threshold at which the mean of a loss of your own is proven to be small.

        `loss`, `risk`, `delta` and `thresholds` are those of `Calibrator.control_risk`:
        `loss(proba, right, threshold)` gets the calibrated confidences (n,), by their `groups`, of
        answers that nothing was fitted on, and whether they are right (n,). For a cascade it says
        whether what comes out at the end is wrong; see the page on language models. With
        `by="group"` each of the `groups` gets a threshold too; with `by="new group"` the threshold
        is for a group that was never seen, drawn like these, with the confidence that it would get.
        """
        self._check_fitted()
        rows = self._read(confidence, right, sample_weight, groups)
        hashes = answer_hashes(self._combine(rows.scores), rows.labels)
        refuse_rows_of_fit(self._are_of_fit(hashes), "confidence", reused)
        proba = self._predict_stated(rows.scores, None if by == "new group" else rows.groups)
        cells = group_cells(by, rows.groups, len(proba), learned=True)
        options: dict[str, Any] = {"groups": cells, "unseen": by == "new group", **guarantee}
        return control_risk(proba, rows.labels, weights=rows.weights, **options)

    def _predict(self, confidence: Any, groups: Any) -> FloatArray:
        self._check_fitted()
        check_row_order(confidence, groups, "groups", "confidence")
        return self._predict_stated(self._stated(confidence), groups)

    def _predict_stated(self, stated: FloatArray, groups: Any) -> FloatArray:
        """Of checked confidences on a scale to 1."""
        values = self._combine(stated)
        codes = self.rule_.codes(groups, values.size)
        if groups is not None and self.rule_.coding is not None:
            tell_unknown(codes, self.rule_.coding)
        return np.asarray(self.rule_.proba(values, codes))

    def _combine(self, stated: FloatArray) -> FloatArray:
        """One confidence (n,) per answer, as the curve takes it."""
        signals = self.rule_.signals
        shape = () if signals is None else signals.rise.shape
        if stated.shape[1:] != shape:
            raise ValueError(
                f"`confidence` must have the shape {('n', *shape)} of the fit; got "
                f"{stated.shape}. Pass the same signals, in the same order; for logits (n, "
                "classes) use `hokical.auto`."
            )
        return self.rule_.combine(stated)

    def _stated(self, confidence: Any) -> FloatArray:
        """Checked confidences (n,), or signals (n, k), in [0, 1]."""
        check_positive("scale", self.scale, "Use 1, or 100 for percentages.")
        array = to_numpy(order_columns(confidence, "confidence", self._columns), "confidence")
        if array.dtype.kind not in "fiub" or array.ndim not in (1, 2) or 0 in array.shape[1:]:
            raise ValueError(
                "`confidence` must be numbers (n,), or several signals (n, k); got "
                f"{_describe_texts(array) or f'{array.dtype} of shape {array.shape}.'} For logits "
                "(n, classes) use `hokical.auto`."
            )
        if array.shape[1:] == (1,):
            array = array[:, 0]
        values = array.astype(np.float64) / float(self.scale)
        for bad, remedy in (
            (np.isnan(values), "Drop answers without a confidence, or give them one of their own."),
            (values > 1.0, _TOO_LARGE),
            (values < 0.0, "For log-odds apply a sigmoid."),
        ):
            if bad.any():
                place, top = np.argwhere(bad)[0], f"{float(self.scale):g}"
                raise ValueError(
                    f"`confidence` must lie in [0, {top}]; got {array[tuple(place)]} in row "
                    f"{place[0]}. {remedy}"
                )
        fractions = (array > 0.0) & (array < 1.0)
        if self.scale == 100.0 and array.max(initial=0.0) > 1.0 and fractions.mean() > _MOST_BELOW:
            row, *_ = np.argwhere(fractions)[0].tolist()
            warn_user(
                f"`confidence` seems to mix percentages and fractions: {fractions.sum():,} of "
                f"{array.size:,} lie between 0 and 1, the first in row {row}, on a scale to "
                "100. Multiply those by 100.",
                UserWarning,
            )
        if self.scale > 1.0 and array.any() and array.max() <= 1.0:
            warn_user(
                f"`confidence` look like fractions: none is above 1 on a scale to {self.scale:g}. "
                "If they are, multiply them by the scale, or fit with `scale=1`.",
                UserWarning,
            )
        return values


def calibrate_confidence(
    confidence: Any,
    right: Any,
    sample_weight: Any = None,
    *,
    groups: Any = None,
    scale: float = 1.0,
    monotone: bool = False,
) -> ConfidenceCalibrator:
    """Fit a `ConfidenceCalibrator` on confidences (n,) and whether the answers were right (n,).

    Several signals of each answer are columns (n, signals); see `ConfidenceCalibrator.fit`.

    >>> import numpy as np
    >>> import hokical
    >>> rng = np.random.default_rng(0)
    >>> stated = rng.choice([80, 90, 100], size=2000)
    >>> cal = hokical.calibrate_confidence(stated, rng.random(2000) < stated / 150, scale=100)
    >>> cal.predict([90]).round(1)
    array([0.6])
    """
    cal = ConfidenceCalibrator(scale=scale, monotone=monotone)
    return cal.fit(confidence, right, sample_weight, groups=groups)


def _warn_of_codes(weights: Any) -> None:
    """Warn of integers in the place of weights, which was that of the groups in 0.4."""
    codes = np.zeros(0) if weights is None else to_numpy(weights, "sample_weight")
    if codes.dtype.kind in "iub" and np.unique(codes).size > 1:
        warn_user(
            f"`sample_weight` are of dtype {codes.dtype}, as codes of groups are: in 0.4 the third "
            "argument were the groups. Pass groups by name, `groups=...`, and weights as "
            "`.astype(float)`.",
            FitDataWarning,
        )


def _describe_texts(array: AnyArray) -> str:
    """What is not a number among confidences (n,), and what to do about it; "" if nothing is."""
    if array.dtype.kind not in "OUST" or array.ndim != 1:
        return ""
    for row, value in enumerate(array.tolist()):
        if value is None:
            return f"None in row {row}. Drop answers without a confidence."
        if isinstance(value, str):
            remedy = "Map words to numbers, for example {'yes': 0.9, 'no': 0.1}."
            if value.strip().endswith("%"):
                remedy = "Write numbers, `float(text.strip(' %'))`, and pass `scale=100`."
            elif value.strip().replace(".", "", 1).isdecimal():
                remedy = "Convert text to numbers: `float(text)`."
            return f"{value!r} in row {row}. {remedy}"
    return ""


def answer_hashes(confidence: FloatArray, right: BoolArray) -> list[FloatArray]:
    """Numbers (n,) for each answer, and others for all of them together, in their order.

    Answers of few distinct confidences come again by themselves, but not all in the same order.
    """
    rows = np.stack([confidence, right], axis=1)
    places = np.arange(len(rows), dtype=np.uint64)
    return [
        number_hashes(rows),
        scatter(number_words(rows.ravel()) @ odd_powers(rows.size) + places),
    ]


def _as_right(right: Any, n_rows: int) -> BoolArray:
    """Whether each answer is right, (n,)."""
    array: AnyArray = to_numpy(right, "right")
    if not n_rows:
        raise ValueError("`confidence` must hold at least one answer to learn from; got none.")
    if array.shape != (n_rows,) or not np.isin(array, (0, 1)).all():
        got = f"shape {array.shape}" if array.shape != (n_rows,) else f"{np.unique(array)[:3]}"
        raise ValueError(
            f"`right` must be True or False (1 or 0) for each of the {n_rows} answers; got {got}. "
            "Compare the answers with the truth: `right = answer == truth`."
        )
    return np.asarray(array, np.bool_)
