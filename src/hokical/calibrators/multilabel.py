"""Labels that do not exclude each other: each is calibrated, and rare ones borrow strength."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from hokical._core.arrays import (
    NUMPY,
    Array,
    Backend,
    FloatArray,
    backend_of,
    float64_scope,
    to_host,
    to_input_library,
)
from hokical._core.logits import as_float_matrix
from hokical._core.messages import FitDataWarning, warn_user
from hokical._core.reading import Rows, first_true, order_columns, pair_rows, to_numpy
from hokical.calibrators.stored import MethodInfo, OutcomeCalibrator
from hokical.guarantees.bounds import check_chance
from hokical.guarantees.calibration_data import (
    Reused,
    number_hashes,
    one_of_each,
    refuse_rows_of_fit,
)
from hokical.guarantees.control import RiskControl, control_risk, group_cells
from hokical.guarantees.label_sets import By, HeldOutLabels, LabelSets, label_sets
from hokical.rules.confidence import MultilabelCurves

#: A logit above this, among others that are all positive, is rather a percentage.
_LARGE_LOGIT = 20.0


class MultilabelCalibrator(OutcomeCalibrator):
    """Probabilities of labels that do not exclude each other, from a score (log-odds) for each.

    Tags, findings, classes of a sigmoid layer. The curve of each label is the common one plus a
    correction that is shrunk by partial pooling: a label of few positives gets nearly the common
    curve, one of many its own. The log-odds of the curves and the uncalibrated ones are averaged by
    held-out log loss, so that few examples change calibrated probabilities little.

    Attributes
    ----------
    rule_ : the fitted numbers
    reason_ : what was fitted, and why
    held_out_log_loss_ : mean log loss by candidate, each example left out of its own fit
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
    _row_names = ("scores", "labels")
    _held_out_kind = HeldOutLabels

    rule_: MultilabelCurves
    held_out_: HeldOutLabels | None

    @property
    def n_labels_(self) -> int:
        """The number of labels."""
        return int(self.rule_.shift.size)

    def fit(self, scores: Any, labels: Any, sample_weight: Any = None) -> Self:
        """Learn from scores (n, labels), logits before the sigmoid, and labels (n, labels) of 0, 1.

        NaN among the labels is a label that is not known. For probabilities use
        `hokical.from_binary_probabilities`.
        """
        from hokical._fitting.confidence import fit_multilabel

        given = pair_rows(scores, labels, sample_weight, None, self._row_names)
        self._columns = given.columns
        host, truth, weights, *_ = self._check_rows(given)
        highest = host.max() if host.min() >= 0.0 else np.inf
        if highest <= 1.0 or _LARGE_LOGIT < highest <= 100.0:
            kind = "probabilities: all lie in [0, 1]. Convert"
            if highest > 1.0:
                kind = "percentages: all lie in [0, 100]. Divide them by 100 and convert"
            warn_user(
                f"`scores` look like {kind} them with `hokical.from_binary_probabilities`, or pass "
                "the logits.",
                FitDataWarning,
            )
        counts = np.ones(len(host)) if weights is None else weights
        self._keep(*fit_multilabel(host, truth, counts), [number_hashes(host[counts > 0.0])])
        return self

    def predict_proba(self, scores: Any) -> Array:
        """The probability (n, labels) of each label, in the library of the scores."""
        with float64_scope(scores):
            values, backend = self._check(scores)
            return to_input_library(self.rule_.proba(values, backend), scores)

    def _uncalibrated(self, scores: Any) -> FloatArray:
        """The classifier's own probabilities (n, labels): sigmoids of the scores."""
        return np.asarray(0.5 + 0.5 * np.tanh(0.5 * self._read_scores(scores)))

    def predict(self, scores: Any, *, costs: Any = (1.0, 1.0)) -> Array:
        """Which labels to predict, (n, labels) bool: the choice of least expected cost.

        `costs` are of a wrong and of a missed label, two numbers or (labels, 2). For a share of
        each label's positives that is to be found, see `recall_thresholds`.
        """
        proba = self.predict_proba(scores)
        price = np.asarray(costs, np.float64)
        shapes = ((2,), (self.n_labels_, 2))
        if price.shape not in shapes or not ((price > 0.0) & np.isfinite(price)).all():
            raise ValueError(
                "`costs` must be positive, of a wrong and of a missed label, shape (2,) or "
                f"{shapes[1]}; got {costs!r}."
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
        `sample_weight` (n,) are importance weights, on any scale: how much more likely each example
        is in the future; only guarantees on average can use them. `groups`, one column or several,
        are for `by="group"` and `by="new group"`. With `cluster` (n,), one example of each cluster
        counts, as in `Calibrator.certify`.
        """
        rows = self._read(scores, labels, sample_weight, groups)
        if cluster is not None:
            rows = one_of_each(rows, cluster)
        proba = self._predict_held_out(rows, reused)
        found = HeldOutLabels.from_rows(proba, *rows[1:4])
        self.held_out_ = replace(found, clustered=cluster is not None)
        return self

    def _read(
        self, scores: Any, labels: Any, sample_weight: Any = None, groups: Any = None
    ) -> Rows:
        """Checked rows: scores (n, labels) on the host, labels of 0, 1 and NaN, and the rest."""
        given = pair_rows(scores, labels, sample_weight, groups, self._row_names)
        return self._check_rows(given)

    def _check_rows(self, given: Rows) -> Rows:
        host = self._read_scores(given.scores)
        truth = self._read_labels(given.labels, host.shape)
        return self._checked(given, host, truth, len(host))

    def _predict_held_out(self, rows: Rows, reused: Reused) -> FloatArray:
        """Probabilities (n, labels) of rows that are not of the fit."""
        refuse_rows_of_fit(self._are_of_fit([number_hashes(rows.scores)]), "scores", reused)
        return to_host(self.predict_proba(rows.scores))

    def _read_scores(self, scores: Any) -> FloatArray:
        return _read_on_host(order_columns(scores, "scores", self._columns))

    def _read_labels(self, labels: Any, shape: tuple[int, ...]) -> FloatArray:
        return _check_labels(order_columns(labels, "labels", self._columns, strict=False), shape)

    def predict_set(
        self,
        scores: Any,
        *,
        coverage: float = 0.9,
        delta: float | None = None,
        by: By = "row",
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
            "row": at least that share of new rows has all labels that are in, and none that are
            out. "label": for each label, at least that share of the rows with it do not have it
            out, and of those without do not have it in. "group": as "row", for each of the `groups`
            (n,) that `certify` knows. "new group": as "row", of the rows of a group that was never
            seen, drawn like those of `certify`; on average or with probability 1 - delta over
            groups.

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
        known = self._noted("predict_set")
        return label_sets(proba, known, coverage=coverage, delta=delta, by=by, groups=groups)

    def control_risk(
        self,
        scores: Any,
        labels: Any,
        sample_weight: Any = None,
        *,
        by: Literal["all", "group", "new group"] = "all",
        groups: Any = None,
        reused: Reused = "refuse",
        **guarantee: Any,
    ) -> RiskControl:
        """The last threshold at which the mean of a loss of your own is proven to be small.

        `loss`, `risk`, `delta` and `thresholds` are those of `Calibrator.control_risk`:
        `loss(proba, labels, threshold)` gets probabilities and labels (n, labels) of held-out
        examples, such as the share of a row's labels that is missed. With `by="group"` each of
        the `groups` gets a threshold too; with `by="new group"` the threshold is for a group that
        was never seen, drawn like these.
        """
        rows = self._read(scores, labels, sample_weight, groups)
        proba = self._predict_held_out(rows, reused)
        cells = group_cells(by, rows.groups, len(proba))
        options: dict[str, Any] = {"groups": cells, "unseen": by == "new group", **guarantee}
        return control_risk(proba, rows.labels, weights=rows.weights, **options)

    def recall_thresholds(self, recall: float, *, delta: float = 0.1) -> FloatArray:
        """Thresholds (labels,) at which at least a share `recall` of a label's positives is found.

        For each label with probability 1 - delta over the positives passed to `certify` (binomial);
        for all labels at once divide `delta` by their number. A label with too few positives for
        that has the threshold 0: it is always predicted. The labels to predict are
        `cal.predict_proba(scores) >= thresholds`.
        """
        recall, delta = check_chance("recall", recall), check_chance("delta", delta)
        self._check_fitted()
        known = self._noted("recall_thresholds")
        return known.unordered_ends(self.n_labels_, recall, delta, "label")[0]

    def _noted(self, method: str) -> HeldOutLabels:
        if self.held_out_ is None:
            raise ValueError(
                f"`{method}` has no examples to go by. Call `certify(scores, labels)` first, with "
                "examples that nothing was fitted on."
            )
        return self.held_out_

    def _check(self, scores: Any) -> tuple[Array, Backend]:
        self._check_fitted()
        values, backend = _read_scores(order_columns(scores, "scores", self._columns))
        if values.shape[1] != self.n_labels_:
            raise ValueError(
                f"`scores` must have one column per label of the fit, {self.n_labels_}; got "
                f"{values.shape[1]}."
            )
        return values, backend


def _read_on_host(scores: Any) -> FloatArray:
    values, backend = _read_scores(scores)
    return backend.to_host(backend.without_gradient(values)).astype(np.float64)


def _read_scores(scores: Any) -> tuple[Array, Backend]:
    """Scores (n, labels) without NaN, in their own library."""
    if len(np.shape(scores)) == 1:
        raise ValueError(
            f"`scores` must be 2-D (n, labels); got shape {np.shape(scores)}. For one label pass "
            "columns, `scores[:, None]` and `labels[:, None]`; one example is `scores[None, :]`."
        )
    values, backend = as_float_matrix(scores, "scores")
    bad = backend.to_host(backend.namespace(values).isnan(backend.without_gradient(values)))
    if place := first_true(bad):
        raise ValueError(
            f"`scores` must not hold NaN; got it in row {place[0]}, column {place[1]}. Drop the "
            "row, or give a label that was not scored its log-odds among all examples."
        )
    return values, backend


def _check_labels(labels: Any, shape: tuple[int, ...]) -> FloatArray:
    """0, 1 and NaN, (n, labels)."""
    array = to_numpy(labels, "labels")
    if array.shape != tuple(shape) or array.dtype.kind not in "fiub":
        raise ValueError(
            f"`labels` must be 0 or 1 for every score, shape {tuple(shape)}; got {array.dtype} of "
            f"shape {array.shape}. For one class per row use `hokical.auto`."
        )
    truth = array.astype(np.float64)
    if place := first_true(~(np.isnan(truth) | (truth == 0.0) | (truth == 1.0))):
        raise ValueError(
            f"`labels` must be 0, 1 or NaN (not known); got {array[place]} in row {place[0]}, "
            f"column {place[1]}."
        )
    return truth
