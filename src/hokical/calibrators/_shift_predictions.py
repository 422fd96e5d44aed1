"""A new balance of classes, known or estimated from rows without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from hokical._core.arrays import backend_of, float64_scope
from hokical._core.grouped_logits import GroupedLogits
from hokical._core.groups import GroupCoding, count_rows
from hokical._core.labels import as_weights
from hokical._core.logits import Logits
from hokical._core.reading import to_numpy
from hokical._core.types import FloatArray, IntArray
from hokical._core.warn import warn_user
from hokical.calibrators._certified_predictions import CertifiedPredictions
from hokical.guarantees._binomial import check_chance
from hokical.guarantees._class_scores import ClassScores, row_looks
from hokical.guarantees._label_shift import NewRows
from hokical.guarantees._row_sketch import row_draws, row_hashes
from hokical.guarantees._shift import AccuracyEstimate, ShiftEstimate, estimate_shift
from hokical.rules._sets import SetRule
from hokical.rules._wrapped import BalancedRule, GroupedRule

#: Probabilities that an estimate holds at most; of more rows a sample is taken.
MOST_NUMBERS = 1 << 24
#: A share of the fit's rows with twins up to which equal rows are taken for one.
_FEW_TWINS = 0.05


class ShiftPredictions(CertifiedPredictions):
    """What a `Calibrator` says of rows among which classes are as common as they never were."""

    #: What the examples of the fit looked like, by class; None if it was not stored.
    class_scores_: ClassScores | None = None

    @property
    def class_balance_(self) -> FloatArray:
        """The share of each class among the examples of the fit, (classes,)."""
        return self._known_classes().balance

    def with_balance(self, balance: Any) -> Self:
        """A copy for another balance of classes, which is known: their shares (classes,).

        Shares are in the order of the columns, or a mapping of all classes (names, where the
        calibrator knows them, or column numbers) to shares. For screening, for over- and
        under-sampled data, for class weights in training. Probabilities become p(k | x) times new
        share / share in the fit; labels are the likeliest classes. It is a calibrator like any
        other. What `certify` noted is dropped; sets go by the examples of the fit, each counted by
        how much commoner its class has become.

        >>> import numpy as np
        >>> from hokical import make
        >>> cal = make("uncalibrated").fit([[2.0, 0.0], [0.0, 2.0]], [0, 1])
        >>> cal.with_balance([0.9, 0.1]).predict_proba([[0.0, 0.0]]).round(2)
        array([[0.9, 0.1]])
        """
        known = self._known_classes()
        if isinstance(balance, Mapping):
            balance = in_order(balance, self.class_names or range(self.n_classes_))
        given = to_numpy(balance, "balance")
        if given.shape != (self.n_classes_,) or given.dtype.kind not in "iuf":
            raise ValueError(
                f"`balance` must have the share of each class, ({self.n_classes_},) numbers; got "
                f"shape {given.shape} of {given.dtype}."
            )
        asked = given.astype(np.float64)
        if not ((asked >= 0.0) & np.isfinite(asked)).all() or abs(asked.sum() - 1.0) > 1e-3:
            raise ValueError(
                f"`balance` must hold shares of at least 0 that sum to 1; got {asked}. Divide "
                "counts by their sum."
            )
        rule = self.rule_
        gone = isinstance(rule, BalancedRule) and (asked > 0.0) & (rule.weights == 0.0)
        if np.any(gone):
            raise ValueError(
                "`balance` must be 0 for classes that had no share in the balance before: "
                f"{np.flatnonzero(gone).tolist()}. Start from the calibrator of the fit."
            )
        old = np.where(known.count > 0.0, known.balance, known.smoothed_balance)
        weights = asked / asked.sum() / old
        guessed = np.flatnonzero((known.count == 0.0) & (weights > 1.0))
        if guessed.size:
            warn_user(
                f"`balance` gives {asked[guessed].sum():.1%} to classes without an example in the "
                f"fit, {self._named(guessed)}: how common they were is a guess, and so are all "
                "probabilities that follow. Fit with examples of them, or give them the share 0.",
                UserWarning,
            )
        return self.reweight_classes(weights)

    def _named(self, classes: IntArray) -> str:
        some = [str(self.class_names[k] if self.class_names else k) for k in classes[:5].tolist()]
        return ", ".join(some) + " and others" * (classes.size > 5)

    def reweight_classes(self, weights: FloatArray) -> Self:
        """A copy for rows among which each class is so many times commoner, (classes,)."""
        known, rule = self._known_classes(), self.rule_
        if isinstance(rule, SetRule):
            raise ValueError(
                "sets must come after the balance: `with_balance(...).with_sets(...)`."
            )
        before = np.ones(self.n_classes_)
        if isinstance(rule, BalancedRule):
            before, rule = rule.weights, rule.rule
        twin = copy(self)
        noted = self.fit_conformity_
        twin.forget_examples()
        twin.held_out_scores_ = twin.held_out_conformity_ = None
        if noted is not None and (weights[noted.labels] > 0.0).any():
            own = noted.take(weights[noted.labels] > 0.0)
            # At most 1, so that a weight of 2 is not taken for two examples.
            counts = own.counts * weights[own.labels]
            most, unit = counts.max(), own.unit * weights.max() / counts.max()
            noted = replace(own, weights=counts / most, unit=float(unit))
            twin.fit_conformity_ = noted
        seen = weights if (weights * known.count).any() else np.ones_like(weights)
        twin.class_scores_ = known.reweighted(seen)
        twin.rule_ = BalancedRule(rule, before * weights)
        return twin

    def estimate_shift(
        self, logits: Any, sample_weight: Any = None, *, delta: float = 0.05, groups: Any = None
    ) -> ShiftEstimate:
        """The balance of classes and the accuracy on new rows, which need no labels.

        It assumes *label shift*: classes are as common as they never were, but rows of one class
        look as before. `holds` and `verdict` say whether that explains the rows; where it does not,
        intervals are from 0 to 1. See `docs/shift.md`.

        Parameters
        ----------
        logits : array of shape (n, classes)
            Of any library, rows drawn independently. More than 2^24 / classes are represented by so
            many of them.
        sample_weight : array of shape (n,), optional
        delta : float
            Probability that an interval misses.
        groups : array-like of shape (n,), or several columns, optional
            For `by_group`: an estimate for the rows of each group, whose pseudo-counts lie along
            the balance of all. Verdicts allow for the number of groups.

        A calibrator that learned from groups is asked without them (`without_groups`): how classes
        are shared out among groups may have changed too. So is that of `adapt()`.

        Examples
        --------
        >>> import numpy as np
        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = make("temps").fit(val_logits, val_labels)
        >>> rows = np.flatnonzero((labels != 3) | (np.arange(len(labels)) % 10 == 0))
        >>> found = cal.estimate_shift(logits[rows])
        >>> found.verdict, bool(found.balance[3] < 0.5 * found.old_balance[3])
        ('a new balance explains it', True)
        >>> cal.estimate_shift(0.5 * logits).verdict
        'something else changed: these numbers do not apply'
        """
        known, delta = self._known_classes(), check_chance("delta", delta)
        if not known.cells.size:
            raise ValueError(
                "`estimate_shift` needs the logits of all classes, up to 4096 of them, in the fit "
                "and now. Of the best logits of a row the balance cannot be told."
            )
        judge = self.without_groups()
        if judge is not self and groups is not None:
            raise ValueError(
                "`groups` cannot be given to a calibrator that learned from groups: it is asked "
                "without them here, which is right on average and wrong for a group alone. Fit one "
                "without groups, or see `predict_confidence(logits, groups=...)` of each group."
            )
        if isinstance(logits, GroupedLogits):
            logits = Logits(logits.values, logits.top, logits.backend)
        most = MOST_NUMBERS // self.n_classes_
        given, weights, chosen = _at_most(logits, sample_weight, most)
        with float64_scope(given):
            data = judge._check_logits(given)
            data = data.with_every_class("estimate_shift", "Give it all logits")
            counts = as_weights(weights, data.n_rows)
            found = estimate_shift(judge._as_rows(data, counts), known, delta, judge)
            if groups is None:
                return found
            n_given = data.n_rows if chosen is None else count_rows(groups)
            parts = _rows_by_group(groups, n_given, chosen)
            options: dict[str, Any] = {"around": found, "n_tests": len(parts)}
            by_group = {}
            for name, own in parts.items():
                part = None if counts is None else counts[own]
                if part is None or part.any():
                    rows = judge._as_rows(data.take(own), part)
                    by_group[name] = estimate_shift(rows, known, delta, judge, **options)
        return replace(found, by_group=by_group)

    def without_groups(self) -> Self:
        """A copy that answers for all groups alike; itself, if it did not learn from groups.

        Sets go by the classifier's own scores of the fit, which knew of no groups; for abstention
        and intervals it has no examples: those of the fit were of other answers.
        """
        if self.rule_.needed_groups is None:
            return self
        twin = copy(self)
        twin.forget_examples()
        twin.fit_conformity_ = self.fit_conformity_
        twin.held_out_scores_ = twin.held_out_conformity_ = None
        twin.rule_ = _without_groups(self.rule_)
        return twin

    def estimate_accuracy(
        self, logits: Any, sample_weight: Any = None, *, delta: float = 0.05
    ) -> AccuracyEstimate:
        """The accuracy to expect of the labels of new rows, without labels.

        It is that of `estimate_shift`, which assumes that the class frequencies alone have changed
        and tests whether that explains the rows.

        >>> from hokical import make
        >>> from hokical.demo import demo_logits
        >>> (val_logits, val_labels), (logits, labels) = demo_logits()
        >>> cal = make("temps").fit(val_logits, val_labels)
        >>> found = cal.estimate_accuracy(logits)
        >>> round(found.accuracy, 2), found.holds
        (0.92, True)
        """
        found = self.estimate_shift(logits, sample_weight, delta=delta)
        return AccuracyEstimate(found.accuracy, found.accuracy_interval, found.holds)

    def as_new_rows(self, data: Logits) -> NewRows:
        """What an estimate needs of checked rows."""
        proba = self._output_on_host("proba", data).astype(np.float64)
        labels = self._output_on_host("labels", data).astype(np.int64)
        n, own = data.n_rows, data.to_host(data.labels).astype(np.int64)
        # With a new balance, no labels were counted at fit time.
        known = None if isinstance(self.rule_, BalancedRule) else own
        return NewRows(proba, labels, row_looks(data), np.full(n, 1.0 / n), n, known)

    def _as_rows(self, data: Logits, weights: FloatArray | None) -> NewRows:
        """Checked rows; those that came several times as one of them, in no order."""
        counts = np.ones(data.n_rows) if weights is None else weights
        order, total = self.without_twins(row_hashes(data), counts)
        rows = self.as_new_rows(data.take(order))
        n_rows = int(np.count_nonzero(counts))
        return replace(rows, weights=total / total.sum(), count=n_rows)

    def without_twins(self, hashes: FloatArray, counts: FloatArray) -> tuple[IntArray, FloatArray]:
        """One row of each hash, in no order, and what it counts; if the fit's differed too."""
        twins = 0.0 if self.fit_rows_ is None else self.fit_rows_.share_of_twins
        if twins > _FEW_TWINS:  # rows of few distinct values are equal by themselves
            order = np.argsort(hashes, kind="stable")
            total = counts[order]
        else:
            _, order, place = np.unique(hashes, return_index=True, return_inverse=True)
            total = np.bincount(place, counts).astype(np.float64)
        return order[total > 0.0], total[total > 0.0]

    def _known_classes(self) -> ClassScores:
        self.check_fitted()
        if self.class_scores_ is None:
            raise ValueError(
                "the balance of the examples of the fit was not stored with this calibrator (files "
                "before 0.3 have none). Fit it again."
            )
        return self.class_scores_


def in_order(balance: Mapping[Any, Any], names: Sequence[Any]) -> list[Any]:
    """The shares of a mapping in the order of the classes, each of which must have one."""
    if set(balance) != set(names):
        lacking = [name for name in names if name not in balance][:5]
        other = [name for name in balance if name not in names][:5]
        raise ValueError(
            f"`balance` must have a share for each class and for nothing else; none for {lacking}, "
            f"not classes: {other}. A class that does not occur has the share 0."
        )
    return [balance[name] for name in names]


def _without_groups(rule: Any) -> Any:
    if isinstance(rule, GroupedRule):
        return rule.rule
    return replace(rule, rule=_without_groups(rule.rule))


def _rows_by_group(groups: Any, n_rows: int, chosen: IntArray | None) -> dict[str, IntArray]:
    """The numbers of the rows of each group, among those that were `chosen`."""
    coding = GroupCoding.learn(groups, n_rows)
    codes = coding.codes(groups, n_rows)[slice(None) if chosen is None else chosen]
    cells, place = np.unique(codes, axis=0, return_inverse=True)
    names = [coding.names(k) for k in range(len(coding.columns))]
    titles = [", ".join(own[code] for own, code in zip(names, cell, strict=True)) for cell in cells]
    return {title: np.flatnonzero(place.ravel() == i) for i, title in enumerate(titles)}


def _at_most(logits: Any, weights: Any, n_rows: int) -> tuple[Any, Any, IntArray | None]:
    """The rows, or so many of them, chosen by their numbers; a lazy array's in memory."""
    backend = backend_of(logits)
    lazy = backend is not None and backend.is_lazy
    if lazy and np.isnan(logits.shape[0]):
        logits = logits.compute_chunk_sizes()
    sized = hasattr(logits, "__len__")
    total = getattr(logits, "n_rows", len(logits) if sized else n_rows)
    rows = None
    if total > n_rows:
        keys = row_draws(0, total)
        rows = np.sort(np.argpartition(keys, n_rows)[:n_rows])
        logits = logits.take(rows) if isinstance(logits, Logits) else logits[rows]
        weights = None if weights is None else np.asarray(to_numpy(weights, "sample_weight"))[rows]
    return (np.asarray(logits) if lazy else logits), weights, rows
